/* chats.h - the page's chats, kept in one SQLite file.
 *
 * A chat is a tree of messages: each names its parent, and `head` is the leaf that is shown.  What
 * the page sends is stored as it comes, but for the parts that are looked at here: ids, titles,
 * times, and the text that is searched.
 *
 *     struct chats *c;
 *     chats_create(&c, "/home/me/.local/share/lode/chats.db", 0, &err);     opens nothing yet
 *     chats_put(c, "k3f9", body, &err);
 *     chats_list(c, &(struct chats_query){.text = "cats"}, &out, &err);     out: JSON
 *     chats_free(c);
 *
 * The file is opened at the first call that needs it, and made, with its folder, where it is
 * missing (mode 0600).  Writes are transactions in WAL mode: what chats_put has accepted survives a
 * crash. Several servers may use one file.  A file that turns out damaged is renamed to
 * FILE.damaged-YYYYMMDD-HHMMSS, never deleted; what can be read of it goes into a new one, and the
 * notice says both.  A file that is another program's is refused and left alone.
 *
 * Sizes are bounded: a file, a chat, a message, a title, the messages of a chat (the enum).  Any
 * thread may call; calls take their turns.
 *
 * Errors: LODE_ERR_MISSING no such chat; LODE_ERR_ARG a field of the body (`where`);
 * LODE_ERR_LIMIT too large, or with `where` "chats" no room on the disk or in the file;
 * LODE_ERR_CANCELLED another program held the file too long; LODE_ERR_FORMAT damaged;
 * LODE_ERR_IO the system's; LODE_ERR_NOMEM.
 */
#ifndef LODE_SERVE_CHATS_H
#define LODE_SERVE_CHATS_H

#include "base/buf.h"
#include "lode/error.h"
#include "serve/needle.h"

#include <jansson.h>
#include <stdint.h>

enum {
    CHATS_MAX_MESSAGE = 8 << 20, /* bytes of one message */
    CHATS_MAX_CHAT = 64 << 20,   /* bytes of a chat's messages together */
    CHATS_MAX_MESSAGES = 20000,  /* of a chat */
    CHATS_MAX_TITLE = 1000,      /* bytes */
    CHATS_MAX_LIST = 500,        /* chats of one list */
    CHATS_MAX_SEARCH = NEEDLE_MAX, /* code points of a search */
};

struct chats;

/* path is copied.  max_bytes: of the file; 0: 1 GiB. */
int chats_create(struct chats **out, const char *path, uint64_t max_bytes, struct lode_error *err);
void chats_free(struct chats *c);

/* Opens the file now.  Later calls try again where this failed. */
int chats_open(struct chats *c, struct lode_error *err);

struct chats_query {
    const char *text; /* "" or NULL: all chats; else those with it in a title or message, whatever
                         the case */
    uint32_t offset, limit; /* limit 0: 100 */
};

/* {"chats": [{id, title, created, updated, n_messages, bytes, snippet}], "more": whether others
 * follow, "partial": whether the search ran out of time}, the newest first. */
int chats_list(struct chats *c, const struct chats_query *q, struct lode_buf *out,
               struct lode_error *err);

/* The chat with all its messages, as chats_put takes it. */
int chats_get(struct chats *c, const char *id, struct lode_buf *out, struct lode_error *err);

/* body: {title, created, updated, head, ..., messages: [{id, parent, role, content, ...}], "new":
 * whether the chat may be made by this call}.  What is absent stays as it was; messages are added
 * or replaced by id, never removed; the fields that are not named here (the page's settings) are
 * replaced together.  All of it or nothing is stored. */
int chats_put(struct chats *c, const char *id, const json_t *body, struct lode_error *err);
int chats_delete(struct chats *c, const char *id, struct lode_error *err);

/* Adds what the user should know (a damaged file was set aside), or nothing. */
void chats_notice(struct chats *c, struct lode_buf *out);

#endif
