/* copy_rows.h - rows from one place in the host's memory to another, as tasks that threads share. */
#ifndef LODE_BACKEND_COPY_ROWS_H
#define LODE_BACKEND_COPY_ROWS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { LODE_COPY_ALONE = 16 }; /* rows that one thread copies sooner than it has woken others */

struct lode_row_copy {
    char *to;
    const char *from;
    size_t to_stride, from_stride, bytes; /* bytes of a row */
};

/* A lode_pool_fn of struct lode_row_copy. */
static inline void lode_copy_row(void *arg, uint32_t row, uint32_t worker) {
    const struct lode_row_copy *c = arg;
    (void)worker;
    memcpy(c->to + row * c->to_stride, c->from + row * c->from_stride, c->bytes);
}

#endif
