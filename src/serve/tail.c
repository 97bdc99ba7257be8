/* tail.c - see tail.h. */
#include "serve/tail.h"

#include <string.h>

int tail_find(const struct tail *t, const char *piece, size_t len, const char *tag) {
    char all[TAIL_BYTES + TAIL_PIECE];
    len = len > TAIL_PIECE ? TAIL_PIECE : len;
    const size_t n = t->n + len, n_tag = strlen(tag);
    memcpy(all, t->last, t->n);
    memcpy(all + t->n, piece, len);
    const char *at = memmem(all, n, tag, n_tag);
    while (at && (size_t)(at - all) + n_tag <= t->n) /* it was there before */
        at = memmem(at + 1, n - (size_t)(at + 1 - all), tag, n_tag);
    return !at ? 0 : (size_t)(at - all) + n_tag == n ? 1 : -1;
}

void tail_keep(struct tail *t, const char *piece, size_t len) {
    if (len >= TAIL_BYTES) {
        memcpy(t->last, piece + len - TAIL_BYTES, TAIL_BYTES);
        t->n = TAIL_BYTES;
        return;
    }
    const size_t drop = t->n + len > TAIL_BYTES ? t->n + len - TAIL_BYTES : 0;
    memmove(t->last, t->last + drop, t->n - drop);
    t->n -= drop;
    memcpy(t->last + t->n, piece, len);
    t->n += len;
}
