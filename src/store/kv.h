/* kv.h - the keys and values of one sequence: its table of pages.
 *
 * Attention walks a sequence page by page, so the page size is part of the numerics (DESIGN law 2).
 * Layers with the same window (a group, kv_pool.h) share a block table: for full attention, page p
 * of the sequence sits in table entry p; with a window, entries rotate and a page is let go when the
 * window has passed it.
 *
 * The beginning of a sequence may be another's: pages are shared, and the one page in which both
 * would write is copied by the first that does.
 *
 * Nothing below create allocates.  One thread at a time, except that the pages may be read by many.
 */
#ifndef LODE_STORE_KV_H
#define LODE_STORE_KV_H

#include "store/kv_pool.h"

struct lode_kv;

/* A sequence over a pool, which it shares; or over one of its own, of exactly its size. */
int lode_kv_open(struct lode_kv **out, struct lode_kv_pool *pool, struct lode_error *err);
int lode_kv_create(struct lode_kv **out, const struct lode_kv_layer *layers, uint32_t n_layers,
                   uint32_t ctx, uint32_t batch,
                   const struct lode_memory *const memory[LODE_PLACES],
                   struct lode_error *err);
void lode_kv_free(struct lode_kv *kv);

/* Gives pages to positions first .. first + n - 1, which the step is about to write.  LODE_ERR_LIMIT
 * where the pool has too few, and nothing has changed; not with a pool of its own. */
int lode_kv_extend(struct lode_kv *kv, uint32_t first, uint32_t n, struct lode_error *err);
/* Pages of a group that extend takes from the pool. */
uint32_t lode_kv_missing(const struct lode_kv *kv, uint32_t group, uint32_t first, uint32_t n);
/* Whether a step may go on at position n: all that its windows can see is still held. */
bool lode_kv_can_resume(const struct lode_kv *kv, uint32_t n);
/* Gives back the pages past position n. */
void lode_kv_truncate(struct lode_kv *kv, uint32_t n);

/* ---- sharing ---- */

/* The page of the group that holds positions page * LODE_KV_PAGE and on; LODE_KV_NONE. */
uint32_t lode_kv_page(const struct lode_kv *kv, uint32_t group, uint32_t page);
/* Holds `id` as that page, which it does not have or has in another copy. */
void lode_kv_attach(struct lode_kv *kv, uint32_t group, uint32_t page, uint32_t id);
/* Becomes what src is, of the same pool; kv held nothing. */
void lode_kv_fork(struct lode_kv *kv, const struct lode_kv *src);
/* The oldest page that a step at position n can see. */
uint32_t lode_kv_oldest(const struct lode_kv_pool *p, uint32_t group, uint32_t n);

/* ---- for ops ---- */

/* The first of LODE_KV_PAGE rows of a head in a page; rows follow one another at *stride bytes. */
void *lode_kv_k(const struct lode_kv *kv, uint32_t layer, uint32_t head, uint32_t page,
                size_t *stride);
void *lode_kv_v(const struct lode_kv *kv, uint32_t layer, uint32_t head, uint32_t page,
                size_t *stride);
const struct lode_kv_layer *lode_kv_layer(const struct lode_kv *kv, uint32_t layer);

/* The same for a device, which finds its rows by itself: page p of the sequence lies at pool +
 * table[p % n_entries] * page_size; there the layer's keys at offset k, its values at v, rows of a
 * head following one another at k_stride and v_stride bytes, heads at LODE_KV_PAGE times that.
 * Layers of one group share pool and table. */
struct lode_kv_view {
    uint32_t group;
    char *pool;
    const uint32_t *table; /* (n_entries), changed by extend and truncate */
    uint32_t n_entries;
    size_t page_size, k, v, k_stride, v_stride;
};
struct lode_kv_view lode_kv_view(const struct lode_kv *kv, uint32_t layer);

#endif
