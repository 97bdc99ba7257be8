/* kv_pool.h - pages of keys and values that many sequences share.
 *
 * Positions are cut into pages of LODE_KV_PAGE at multiples of it.  Layers with the same window at the
 * same place are a group: one page of a group holds those positions for all of its layers, so that whoever holds
 * the page holds them all.  Within a page every layer has K then V (unless V is part of K), each as
 * (n_kv_heads, LODE_KV_PAGE, head_dim) rows of its format.  So a page lies in a device's memory, and so it
 * is read and written as bytes.  In the host's memory a head's values follow its keys, and what a head has
 * of LODE_KV_RUN successive pages is one piece: decode reads head by head, and a processor reads ahead
 * of itself only what follows.
 *
 * Pages are counted references: sequences (kv.h) whose beginnings are equal share them, and caches
 * of prefixes hold them after their sequence is gone.  A page that more than one holds is never
 * written to.
 *
 * All memory is set aside by create and touched only when positions are written (of the host's, behind the
 * first run, large pages at a time where the system has them); nothing below allocates.  One thread at a
 * time changes who holds what; what is in full pages may be read by many.
 */
#ifndef LODE_STORE_KV_POOL_H
#define LODE_STORE_KV_POOL_H

#include "base/error.h"
#include "store/memory.h"
#include "tensor/dtype.h"

enum { LODE_KV_PAGE = 64, LODE_KV_RUN = 4 };
#define LODE_KV_NONE UINT32_MAX /* no page */

struct lode_kv_layer {
    uint32_t n_heads, head_dim, head_dim_v;
    uint32_t window; /* positions a row may see, itself included; 0: all before it */
    enum lode_dtype type_k, type_v;
    bool v_in_k; /* values are the beginning of the keys (and of their type): nothing of their own */
    uint8_t place; /* where its pages lie (memory.h) */
};

/* Positions to make room for. */
struct lode_kv_room {
    uint32_t ctx;    /* the most that one sequence will have */
    uint32_t batch;  /* the most that one step appends to it */
    uint32_t n_seqs; /* sequences at once; 0: 1 */
    uint64_t tokens; /* of all sequences and caches together, at least ctx; 0: n_seqs * ctx */
};

struct lode_kv_pool;

/* layers: (n_layers), copied.  memory: of each place that layers have, borrowed; what is not pages is the
 * host's. */
int lode_kv_pool_create(struct lode_kv_pool **out, const struct lode_kv_layer *layers,
                        uint32_t n_layers, const struct lode_kv_room *room,
                        const struct lode_memory *const memory[LODE_PLACES],
                        struct lode_error *err);
struct lode_kv_pool *lode_kv_pool_share(struct lode_kv_pool *p);
void lode_kv_pool_release(struct lode_kv_pool *p);
/* What create would set aside at each place, without doing it. */
int lode_kv_pool_size(const struct lode_kv_layer *layers, uint32_t n_layers,
                      const struct lode_kv_room *room, uint64_t bytes[LODE_PLACES],
                      struct lode_error *err);

/* ---- layout ---- */

struct lode_kv_place { /* of a layer within its group's pages */
    uint32_t group;
    size_t k, v;               /* offsets, but not in the host's memory */
    size_t k_stride, v_stride; /* bytes of a row */
};
const struct lode_kv_layer *lode_kv_pool_layer(const struct lode_kv_pool *p, uint32_t layer);
const struct lode_kv_place *lode_kv_pool_place(const struct lode_kv_pool *p, uint32_t layer);

struct lode_kv_group {
    uint32_t window;
    uint8_t place;
    uint32_t n_entries; /* pages that one sequence holds at most */
    uint32_t n_pages, n_free;
    size_t page_size;
    char *data; /* (n_pages, page_size), in its place's memory; the host's pages in runs */
};
uint32_t lode_kv_pool_groups(const struct lode_kv_pool *p);
const struct lode_kv_group *lode_kv_pool_group(const struct lode_kv_pool *p, uint32_t group);

/* ---- pages ---- */

/* A page that nobody holds, held once; LODE_KV_NONE: there is none. */
uint32_t lode_kv_page_take(struct lode_kv_pool *p, uint32_t group);
void lode_kv_page_hold(struct lode_kv_pool *p, uint32_t group, uint32_t page);
void lode_kv_page_drop(struct lode_kv_pool *p, uint32_t group, uint32_t page);
uint32_t lode_kv_page_holders(const struct lode_kv_pool *p, uint32_t group, uint32_t page);
/* Gives the system the memory of the host's pages that nobody holds; they take it anew when written. */
void lode_kv_pool_trim(const struct lode_kv_pool *p);
/* The first of LODE_KV_PAGE rows of a head; rows follow one another at k_stride and v_stride bytes. */
char *lode_kv_page_keys(const struct lode_kv_pool *p, uint32_t layer, uint32_t head, uint32_t page);
char *lode_kv_page_values(const struct lode_kv_pool *p, uint32_t layer, uint32_t head, uint32_t page);
/* All bytes of a page to and from the host. */
int lode_kv_page_read(const struct lode_kv_pool *p, uint32_t group, uint32_t page, void *out,
                      struct lode_error *err);
int lode_kv_page_write(struct lode_kv_pool *p, uint32_t group, uint32_t page, const void *bytes,
                       struct lode_error *err);
/* From one page to another of the group. */
int lode_kv_page_copy(struct lode_kv_pool *p, uint32_t group, uint32_t to, uint32_t from,
                      struct lode_error *err);

#endif
