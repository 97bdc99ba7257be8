#include "store/kv.h"

#include "base/alloc.h"

#include <assert.h>

#define NO_PAGE UINT32_MAX

/* Layers that forget at the same pace: one block table, one pool of pages. */
struct group {
    uint32_t window;
    uint32_t n_entries; /* of the block table, and pages in the pool */
    size_t page_size;
    char *pool;      /* owned; (n_entries, page_size), in the memory that create was given */
    uint32_t *table; /* owned; (n_entries): page of the pool, or NO_PAGE */
    uint32_t *held;  /* owned; (n_entries): which page of the sequence the entry stands for */
    uint32_t *free;  /* owned; (n_free of n_entries): pages of the pool nobody uses */
    uint32_t n_free;
};

struct place { /* of a layer within its group's pages */
    uint32_t group;
    size_t k, v;               /* offsets */
    size_t k_stride, v_stride; /* bytes of a row */
};

struct lode_kv {
    const struct lode_memory *memory; /* of the pools */
    uint32_t n_layers, n_groups;
    struct lode_kv_layer *layers; /* owned; (n_layers) */
    struct place *places;         /* owned; (n_layers) */
    struct group *groups;         /* owned; (n_layers), n_groups in use */
};

/* A window w and a step of b rows reach from the page of the oldest visible position to that of
 * the newest row: w + b - 1 positions, which touch at most this many pages. */
static uint32_t entries_for(uint32_t window, uint32_t ctx, uint32_t batch) {
    const uint32_t all = (ctx - 1) / LODE_KV_PAGE + 1;
    if (!window)
        return all;
    const uint64_t ring = ((uint64_t)window + batch + LODE_KV_PAGE - 2) / LODE_KV_PAGE + 1;
    return ring < all ? (uint32_t)ring : all;
}

static int lay_out(struct lode_kv *kv, uint32_t ctx, uint32_t batch, struct lode_error *err) {
    for (uint32_t l = 0; l < kv->n_layers; l++) {
        const struct lode_kv_layer *layer = &kv->layers[l];
        struct place *at = &kv->places[l];
        uint32_t i = 0;
        while (i < kv->n_groups && kv->groups[i].window != layer->window)
            i++;
        struct group *g = &kv->groups[i];
        if (i == kv->n_groups) {
            kv->n_groups++;
            g->window = layer->window;
            g->n_entries = entries_for(layer->window, ctx, batch);
        }
        at->group = i;
        if (!lode_dtype_row_size(layer->type_k, layer->head_dim, &at->k_stride))
            return lode_fail(err, LODE_ERR_UNSUPPORTED, "-ctk",
                             "a key of %u numbers can't be kept as %s (blocks of %u): use f16",
                             layer->head_dim, lode_dtypes[layer->type_k].name,
                             lode_dtypes[layer->type_k].block);
        if (!lode_dtype_row_size(layer->type_v, layer->head_dim_v, &at->v_stride))
            return lode_fail(err, LODE_ERR_UNSUPPORTED, "-ctv",
                             "a value of %u numbers can't be kept as %s (blocks of %u): use f16",
                             layer->head_dim_v, lode_dtypes[layer->type_v].name,
                             lode_dtypes[layer->type_v].block);
        at->k = g->page_size;
        g->page_size = at->k + at->k_stride * LODE_KV_PAGE * layer->n_heads;
        if (layer->v_in_k) {
            at->v = at->k;
            at->v_stride = at->k_stride;
        } else {
            at->v = g->page_size;
            g->page_size += at->v_stride * LODE_KV_PAGE * layer->n_heads;
        }
        g->page_size = (g->page_size + 63) & ~(size_t)63;
    }
    return 0;
}

static int describe(struct lode_kv **out, const struct lode_kv_layer *layers, uint32_t n_layers,
                    uint32_t ctx, uint32_t batch, struct lode_error *err) {
    struct lode_kv *kv = LODE_NEW(struct lode_kv);
    *out = kv;
    if (!kv)
        return lode_fail_nomem(err, "KV cache");
    kv->layers = LODE_NEW_ARRAY(struct lode_kv_layer, n_layers);
    kv->places = LODE_NEW_ARRAY(struct place, n_layers);
    kv->groups = LODE_NEW_ARRAY(struct group, n_layers);
    if (!kv->layers || !kv->places || !kv->groups)
        return lode_fail_nomem(err, "KV cache");
    kv->n_layers = n_layers;
    memcpy(kv->layers, layers, n_layers * sizeof *layers);
    for (uint32_t l = 0; l < n_layers; l++)
        if (layers[l].v_in_k)
            kv->layers[l].type_v = layers[l].type_k;
    return lay_out(kv, ctx, batch, err);
}

static uint64_t total(const struct lode_kv *kv) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < kv->n_groups; i++)
        bytes += (uint64_t)kv->groups[i].n_entries * kv->groups[i].page_size;
    return bytes;
}

int lode_kv_size(const struct lode_kv_layer *layers, uint32_t n_layers, uint32_t ctx,
                 uint32_t batch, uint64_t *bytes, struct lode_error *err) {
    struct lode_kv *kv;
    const int rc = describe(&kv, layers, n_layers, ctx, batch, err);
    if (rc == 0)
        *bytes = total(kv);
    lode_kv_free(kv);
    return rc;
}

int lode_kv_create(struct lode_kv **out, const struct lode_kv_layer *layers, uint32_t n_layers,
                   uint32_t ctx, uint32_t batch, const struct lode_memory *memory,
                   struct lode_error *err) {
    struct lode_kv *kv;
    int rc = describe(&kv, layers, n_layers, ctx, batch, err);
    if (kv)
        kv->memory = memory;
    for (uint32_t i = 0; rc == 0 && i < kv->n_groups; i++) {
        struct group *g = &kv->groups[i];
        g->pool = memory->alloc(memory, 4096, g->n_entries, g->page_size);
        g->table = LODE_NEW_ARRAY(uint32_t, g->n_entries);
        g->held = LODE_NEW_ARRAY(uint32_t, g->n_entries);
        g->free = LODE_NEW_ARRAY(uint32_t, g->n_entries);
        if (!g->pool || !g->table || !g->held || !g->free) {
            rc = lode_fail(err, LODE_ERR_NOMEM, "-c",
                           "the KV cache for %u tokens needs %.1f MiB: use a smaller context", ctx,
                           (double)total(kv) / 0x1p20);
            break;
        }
        for (uint32_t e = 0; e < g->n_entries; e++) {
            g->table[e] = g->held[e] = NO_PAGE;
            g->free[g->n_free++] = g->n_entries - 1 - e; /* low pages are used first */
        }
    }
    if (rc < 0) {
        lode_kv_free(kv);
        kv = NULL;
    }
    *out = kv;
    return rc;
}

void lode_kv_free(struct lode_kv *kv) {
    if (!kv)
        return;
    for (uint32_t i = 0; i < kv->n_groups; i++) {
        if (kv->groups[i].pool)
            kv->memory->free(kv->memory, kv->groups[i].pool);
        lode_free(kv->groups[i].table);
        lode_free(kv->groups[i].held);
        lode_free(kv->groups[i].free);
    }
    lode_free(kv->layers);
    lode_free(kv->places);
    lode_free(kv->groups);
    lode_free(kv);
}

void lode_kv_extend(struct lode_kv *kv, uint32_t first, uint32_t n) {
    for (uint32_t i = 0; i < kv->n_groups; i++) {
        struct group *g = &kv->groups[i];
        for (uint32_t p = first / LODE_KV_PAGE; p <= (first + n - 1) / LODE_KV_PAGE; p++) {
            const uint32_t e = p % g->n_entries;
            if (g->table[e] == NO_PAGE) {
                assert(g->n_free > 0);
                g->table[e] = g->free[--g->n_free];
            }
            g->held[e] = p; /* with a window, the page that was here is behind it */
        }
    }
}

bool lode_kv_can_resume(const struct lode_kv *kv, uint32_t n) {
    for (uint32_t i = 0; i < kv->n_groups; i++) {
        const struct group *g = &kv->groups[i];
        if (!g->window || n == 0)
            continue;
        const uint32_t oldest = n >= g->window ? n - g->window + 1 : 0;
        for (uint32_t p = oldest / LODE_KV_PAGE; p <= (n - 1) / LODE_KV_PAGE; p++)
            if (g->held[p % g->n_entries] != p)
                return false;
    }
    return true;
}

void lode_kv_truncate(struct lode_kv *kv, uint32_t n) {
    const uint32_t keep = (n + LODE_KV_PAGE - 1) / LODE_KV_PAGE; /* pages below stay */
    for (uint32_t i = 0; i < kv->n_groups; i++) {
        struct group *g = &kv->groups[i];
        for (uint32_t e = 0; e < g->n_entries; e++)
            if (g->table[e] != NO_PAGE && g->held[e] >= keep) {
                g->free[g->n_free++] = g->table[e];
                g->table[e] = g->held[e] = NO_PAGE;
            }
    }
}

static char *page_of(const struct lode_kv *kv, const struct place *at, uint32_t page) {
    const struct group *g = &kv->groups[at->group];
    const uint32_t e = page % g->n_entries;
    assert(g->held[e] == page);
    return g->pool + g->table[e] * g->page_size;
}

void *lode_kv_k(const struct lode_kv *kv, uint32_t layer, uint32_t head, uint32_t page,
                size_t *stride) {
    const struct place *at = &kv->places[layer];
    *stride = at->k_stride;
    return page_of(kv, at, page) + at->k + head * LODE_KV_PAGE * at->k_stride;
}

void *lode_kv_v(const struct lode_kv *kv, uint32_t layer, uint32_t head, uint32_t page,
                size_t *stride) {
    const struct place *at = &kv->places[layer];
    *stride = at->v_stride;
    return page_of(kv, at, page) + at->v + head * LODE_KV_PAGE * at->v_stride;
}

const struct lode_kv_layer *lode_kv_layer(const struct lode_kv *kv, uint32_t layer) {
    return &kv->layers[layer];
}

struct lode_kv_view lode_kv_view(const struct lode_kv *kv, uint32_t layer) {
    const struct place *at = &kv->places[layer];
    const struct group *g = &kv->groups[at->group];
    return (struct lode_kv_view){at->group, g->pool, g->table,     g->n_entries, g->page_size,
                                 at->k,     at->v,   at->k_stride, at->v_stride};
}
