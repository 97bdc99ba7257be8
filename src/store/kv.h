/* kv.h - the keys and values of one sequence, in pages.
 *
 * A cache is a format plus pages.  Positions are cut into pages of LODE_KV_PAGE at multiples of
 * it; attention walks a sequence page by page, so the page size is part of the numerics
 * (DESIGN law 2).  Layers with the same window share a block table: for full attention, page p of
 * the sequence sits in table entry p; with a window, entries rotate and a page is forgotten when
 * the window has passed it.
 *
 * Within a page every layer has K then V (unless V is part of K), each as (n_kv_heads, LODE_KV_PAGE, head_dim) rows of its
 * format.  All memory is set aside by create and touched only when positions are written; nothing
 * below allocates.  One thread at a time, except that the pages may be read by many.
 */
#ifndef LODE_STORE_KV_H
#define LODE_STORE_KV_H

#include "base/error.h"
#include "store/memory.h"
#include "tensor/dtype.h"

enum { LODE_KV_PAGE = 64 };

struct lode_kv_layer {
    uint32_t n_heads, head_dim, head_dim_v;
    uint32_t window; /* positions a row may see, itself included; 0: all before it */
    enum lode_dtype type_k, type_v;
    bool v_in_k; /* values are the beginning of the keys (and of their type): nothing of their own */
};

struct lode_kv;

/* ctx: the most positions the sequence will have; batch: the most that one step appends.
 * layers: (n_layers), copied.  memory: where the pages live, borrowed; the rest is the host's. */
int lode_kv_create(struct lode_kv **out, const struct lode_kv_layer *layers, uint32_t n_layers,
                   uint32_t ctx, uint32_t batch, const struct lode_memory *memory,
                   struct lode_error *err);
void lode_kv_free(struct lode_kv *kv);
/* What create would set aside, without doing it. */
int lode_kv_size(const struct lode_kv_layer *layers, uint32_t n_layers, uint32_t ctx,
                 uint32_t batch, uint64_t *bytes, struct lode_error *err);

/* Gives pages to positions first .. first + n - 1, which the step is about to write. */
void lode_kv_extend(struct lode_kv *kv, uint32_t first, uint32_t n);
/* Whether a step may go on at position n: all that its windows can see is still held. */
bool lode_kv_can_resume(const struct lode_kv *kv, uint32_t n);
/* Gives back the pages past position n. */
void lode_kv_truncate(struct lode_kv *kv, uint32_t n);

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
