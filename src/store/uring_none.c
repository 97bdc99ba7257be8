/* uring_none.c - instead of uring.c where liburing is not there: the reader uses threads. */
#include "store/reader_parts.h"

struct lode_uring *lode_uring_create(struct lode_reader *r) {
    (void)r;
    return NULL;
}
void lode_uring_free(struct lode_uring *u) { (void)u; }
void lode_uring_poke(struct lode_uring *u) { (void)u; }
void lode_uring_run(struct lode_uring *u) { (void)u; }
void lode_uring_release(struct lode_uring *u, uint32_t room) { (void)u, (void)room; }
