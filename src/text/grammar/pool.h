/* pool.h - equal items once, numbered: a list with a hash over it.
 *
 * Items are plain bytes, a multiple of four, without padding that differs.  Not for threads.
 */
#ifndef LODE_GRAMMAR_POOL_H
#define LODE_GRAMMAR_POOL_H

#include "text/grammar/build.h"

struct pool {
    uint8_t *v; /* (n) items of size bytes */
    uint32_t n, cap, size;
    gvec_u32 slots;
};
uint32_t pool_put(struct pool *p, const void *item);      /* UINT32_MAX without memory */
void pool_cut(struct pool *p, uint32_t n);                /* forgets all but the first n */
bool pool_copy(struct pool *to, const struct pool *from); /* false without memory: free `to` */
void pool_free(struct pool *p);

#endif
