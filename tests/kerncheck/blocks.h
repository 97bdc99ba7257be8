/* blocks.h - random blocks of quantised types, for checks. */
#ifndef LODE_KERNCHECK_BLOCKS_H
#define LODE_KERNCHECK_BLOCKS_H

#include "kc.h"

enum blocks_kind {
    BLOCKS_FINITE, /* random bytes, so that every code is reached; halves finite, E8M0 near 1 */
    BLOCKS_ANY,    /* random bytes, infinities and NaN among the halves */
    BLOCKS_CORNER, /* codes and scales all zeros, all ones, all top bits ... ; halves finite */
};

/* size bytes of blocks of a type; only the bytes of whole blocks are written. */
void blocks_fill(struct kc *t, enum lode_dtype type, void *w, size_t size, enum blocks_kind kind);

#endif
