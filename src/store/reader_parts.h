/* reader_parts.h - between reader.c, which decides what is read next, and the engines. */
#ifndef LODE_STORE_READER_PARTS_H
#define LODE_STORE_READER_PARTS_H

#include "store/reader.h"

#include <pthread.h>

struct lode_piece {
    struct lode_read *read;
    uint32_t part;
    uint64_t offset; /* in the file */
    char *to;
    size_t size;
    uint32_t stalls; /* results in a row that brought it no further */
};

struct lode_reader_queue {
    struct lode_read *first, *last;
};

struct lode_uring;

struct lode_reader {
    const struct lode_in_file *const *files; /* borrowed; (n_files) */
    int *fds;                 /* owned; (n_files) */
    uint32_t n_files, depth, piece;
    bool direct;
    struct lode_reader_opts opts;

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t work;
    struct lode_reader_queue urgent, lazy;
    uint32_t n_flying, lazy_flying; /* pieces; of reads that are not urgent */
    uint64_t busy_since, busy_ns;   /* anything is in flight since; was, before that */
    uint64_t bytes;
    bool stop;

    pthread_t *threads; /* owned; (n_threads) */
    uint32_t n_threads;
    struct lode_uring *uring; /* owned; NULL: the threads call pread */
};

/* The next piece to read, or false: there is none now.  With the lock. */
bool lode_reader_take(struct lode_reader *r, struct lode_piece *out);
/* What became of a piece: bytes or -errno.  true: the rest of it, in *p, is to be read.  Without
 * the lock; calls `done` where that was the last. */
bool lode_reader_put(struct lode_reader *r, struct lode_piece *p, ssize_t result);

/* uring.c.  NULL: not here, and preads will do. */
struct lode_uring *lode_uring_create(struct lode_reader *r);
void lode_uring_free(struct lode_uring *u);
void lode_uring_poke(struct lode_uring *u); /* there is work */
void lode_uring_release(struct lode_uring *u, uint32_t room);
void lode_uring_run(struct lode_uring *u); /* a thread's body, until r->stop */

#endif
