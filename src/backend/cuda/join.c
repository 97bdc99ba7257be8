/* join.c - what pages, or chains of them, have left of attention in the scratch becomes one result: by which kernels.  All give the same
 * bits. */
#include "backend/cuda/run.h"
#include "backend/cuda/kernels/attention/attention_shared.h"

int lode_cuda_merge_parts(const struct op *o, const struct lode_cuda_att_args *a, uint32_t rows) {
    enum { MERGED = 32, MERGED_OF_ONE = 16 }; /* pages, up to so many by blocks of a head each */
    const struct lode_cuda_kernels *k = &o->r->c->kernels;
    const bool is_long = a->head_dim_v > 256; /* than decode_merge's threads are, and one row's are blocks enough for decode_join_rows */
    if (a->max_pages <= (rows == 1 ? MERGED_OF_ONE : MERGED) && !is_long)
        return lode_cuda_run_kernel(o, k->decode_merge, a->n_heads, rows, 1, 256, 0, a);
    const uint32_t pieces = (a->head_dim_v + LODE_JOIN_COLS - 1) / LODE_JOIN_COLS;
    enum { WARPS = LODE_JOIN_ROWS_THREADS / 32 };
    const uint32_t some = WARPS * a->max_pages * LODE_JOIN_ROWS_PAGE;
    if ((rows > 1 || is_long) && a->max_pages <= LODE_JOIN_ROWS_PAGES && some <= lode_cuda_room(o->r->c))
        return lode_cuda_run_kernel(o, k->decode_join_rows, (a->n_heads * pieces + WARPS - 1) / WARPS, rows, 1, LODE_JOIN_ROWS_THREADS, some, a);
    if (rows == 1 && a->max_pages <= LODE_JOIN_ONCE_PAGES)
        return lode_cuda_run_kernel(o, k->decode_join_once, a->n_heads * pieces, 1, 1, LODE_JOIN_ONCE_PAGES, LODE_JOIN_ONCE_ROOM, a);
    /* one row's are quicker by twice as many at once.  Two slots even where all pages fit one: with less beside it the next launch's blocks come
     * sooner, and their copies stand before what is read here */
    const bool wide = rows == 1 && a->max_pages > LODE_JOIN_PAGES && 2 * LODE_JOIN_SLOT(2 * LODE_JOIN_PAGES) <= lode_cuda_room(o->r->c);
    const uint32_t at_once = wide ? 2 * LODE_JOIN_PAGES : LODE_JOIN_PAGES;
    return lode_cuda_run_kernel(o, wide ? k->decode_join_256 : k->decode_join_128, a->n_heads * pieces, rows, 1,
                                LODE_JOIN_THREADS(at_once), 2 * LODE_JOIN_SLOT(at_once), a);
}
