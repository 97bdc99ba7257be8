/* page.h - the web page, and what it alone asks of the server, apart from any HTTP library.
 *
 *     GET /                        the page: one file, embedded (page/, joined by page/join.py)
 *     GET /lode/status             what runs, for the page's charts and its view of the model
 *     GET /lode/chats?q=&offset=&limit=       PUT, GET, DELETE /lode/chats/ID      chats.h
 *
 * Changes go by PUT and DELETE alone: a page of another site cannot send those to this server
 * without being asked for permission, which it never gets.
 */
#ifndef LODE_SERVE_PAGE_H
#define LODE_SERVE_PAGE_H

#include "base/buf.h"
#include "serve/server.h"

struct page_request {
    const char *method, *path;
    /* The value of ?name=, or NULL. */
    const char *(*arg)(void *user, const char *name);
    void *user;
    const char *body; /* (len) */
    size_t len;
};

struct page_reply {
    int status;
    const char *type;
    struct lode_buf out;             /* owned: lode_buf_free */
    struct lode_str fixed;           /* or this, for ever, where it has bytes */
    const char *const (*headers)[2]; /* name and value, up to a NULL name; NULL: none */
};

/* Whether page_answer serves this path. */
bool page_has(const char *path);
/* Whether anybody may ask for it, as for the page itself, which asks for the key. */
bool page_is_open(const char *path);
/* Always answers; an error is a reply in OpenAI's shape. */
void page_answer(struct server *s, const struct page_request *r, struct page_reply *reply);

/* The place of the chats by the server's options; 0 with s->chats NULL where there is none. */
int page_init(struct server *s, struct lode_error *err);
void page_deinit(struct server *s);

#endif
