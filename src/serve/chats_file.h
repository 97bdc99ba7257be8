/* chats_file.h - the SQLite file under chats.h: opened, checked, set aside when damaged. */
#ifndef LODE_SERVE_CHATS_FILE_H
#define LODE_SERVE_CHATS_FILE_H

#include "lode/error.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

struct chats_file {
    char *path; /* owned */
    uint64_t max_bytes;
    sqlite3 *db;       /* NULL: not open */
    int lock;          /* descriptor of PATH.lock, held shared; -1: none */
    bool damaged;      /* a call has met damage: the next opening sets the file aside */
    char notice[1024]; /* what was set aside; "": nothing */
};

/* db is open and checked, or an error.  Nothing to do where it is open already. */
int chats_file_open(struct chats_file *f, struct lode_error *err);
void chats_file_close(struct chats_file *f);

/* The error for a failed call on db; LODE_ERR_FORMAT closes the file, so that the next opening
 * sets it aside. */
int chats_file_fail(struct chats_file *f, int rc, struct lode_error *err);

/* Columns in the order that both of these statements' users rely on. */
#define CHATS_COLUMNS "id, title, created, updated, head, n_messages, bytes, rest"
#define MESSAGES_COLUMNS "chat, id, parent, role, size, rest, content"

#endif
