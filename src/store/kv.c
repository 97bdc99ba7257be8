#include "store/kv.h"

#include "base/alloc.h"

#include <assert.h>

struct table { /* of a group */
    uint32_t n_entries;
    uint32_t *page; /* owned; (n_entries): of the pool, or NONE */
    uint32_t *held; /* owned; (n_entries): which page of the sequence the entry stands for */
};

struct lode_kv {
    struct lode_kv_pool *pool; /* shared */
    uint32_t n_groups;
    struct table *tables; /* owned; (n_groups) */
};

int lode_kv_open(struct lode_kv **out, struct lode_kv_pool *pool, struct lode_error *err) {
    *out = NULL;
    struct lode_kv *kv = LODE_NEW(struct lode_kv);
    if (!kv)
        return lode_fail_nomem(err, "KV cache");
    kv->pool = lode_kv_pool_share(pool);
    const uint32_t n_groups = lode_kv_pool_groups(pool);
    kv->tables = LODE_NEW_ARRAY(struct table, n_groups);
    bool ok = kv->tables != NULL;
    for (uint32_t i = 0; ok && i < n_groups; i++) {
        struct table *t = &kv->tables[kv->n_groups++];
        t->n_entries = lode_kv_pool_group(pool, i)->n_entries;
        t->page = LODE_NEW_ARRAY(uint32_t, t->n_entries);
        t->held = LODE_NEW_ARRAY(uint32_t, t->n_entries);
        ok = t->page && t->held;
        for (uint32_t e = 0; ok && e < t->n_entries; e++)
            t->page[e] = t->held[e] = LODE_KV_NONE;
    }
    if (!ok) {
        lode_kv_free(kv);
        return lode_fail_nomem(err, "KV cache");
    }
    *out = kv;
    return 0;
}

int lode_kv_create(struct lode_kv **out, const struct lode_kv_layer *layers, uint32_t n_layers,
                   uint32_t ctx, uint32_t batch,
                   const struct lode_memory *const memory[LODE_PLACES],
                   struct lode_error *err) {
    struct lode_kv_pool *pool;
    *out = NULL;
    LODE_TRY(lode_kv_pool_create(&pool, layers, n_layers,
                                 &(struct lode_kv_room){.ctx = ctx, .batch = batch}, memory, err));
    const int rc = lode_kv_open(out, pool, err);
    lode_kv_pool_release(pool);
    return rc;
}

void lode_kv_free(struct lode_kv *kv) {
    if (!kv)
        return;
    for (uint32_t i = 0; i < kv->n_groups; i++) {
        struct table *t = &kv->tables[i];
        for (uint32_t e = 0; t->page && t->held && e < t->n_entries; e++)
            if (t->page[e] != LODE_KV_NONE)
                lode_kv_page_drop(kv->pool, i, t->page[e]);
        lode_free(t->page);
        lode_free(t->held);
    }
    lode_free(kv->tables);
    lode_kv_pool_release(kv->pool);
    lode_free(kv);
}

/* ---- growing and shrinking ---- */

static bool is_shared(const struct lode_kv *kv, uint32_t group, uint32_t e) {
    return lode_kv_page_holders(kv->pool, group, kv->tables[group].page[e]) > 1;
}

uint32_t lode_kv_missing(const struct lode_kv *kv, uint32_t group, uint32_t first, uint32_t n) {
    const struct table *t = &kv->tables[group];
    uint32_t missing = 0;
    for (uint32_t p = first / LODE_KV_PAGE; p <= (first + n - 1) / LODE_KV_PAGE; p++) {
        const uint32_t e = p % t->n_entries;
        missing += t->page[e] == LODE_KV_NONE || is_shared(kv, group, e);
    }
    return missing;
}

/* A page for entry e that nobody else holds.  Where it stood for page p already, its rows go along;
 * with a window, the page that was here may be behind it. */
static int make_own(struct lode_kv *kv, uint32_t group, uint32_t e, uint32_t p,
                    struct lode_error *err) {
    struct table *t = &kv->tables[group];
    const uint32_t old = t->page[e];
    if (old != LODE_KV_NONE && !is_shared(kv, group, e)) {
        t->held[e] = p;
        return 0;
    }
    const uint32_t page = lode_kv_page_take(kv->pool, group);
    assert(page != LODE_KV_NONE);
    int rc = 0;
    if (old != LODE_KV_NONE) {
        if (t->held[e] == p)
            rc = lode_kv_page_copy(kv->pool, group, page, old, err);
        lode_kv_page_drop(kv->pool, group, old);
    }
    t->page[e] = page;
    t->held[e] = p;
    return rc;
}

int lode_kv_extend(struct lode_kv *kv, uint32_t first, uint32_t n, struct lode_error *err) {
    for (uint32_t i = 0; i < kv->n_groups; i++) {
        const uint32_t missing = lode_kv_missing(kv, i, first, n);
        const struct lode_kv_group *g = lode_kv_pool_group(kv->pool, i);
        if (missing > g->n_free)
            return lode_fail(err, LODE_ERR_LIMIT, "KV cache",
                             "a step needs %u pages of %d tokens, %u of %u are free", missing,
                             LODE_KV_PAGE, g->n_free, g->n_pages);
    }
    for (uint32_t i = 0; i < kv->n_groups; i++)
        for (uint32_t p = first / LODE_KV_PAGE; p <= (first + n - 1) / LODE_KV_PAGE; p++)
            LODE_TRY(make_own(kv, i, p % kv->tables[i].n_entries, p, err));
    return 0;
}

uint32_t lode_kv_oldest(const struct lode_kv_pool *p, uint32_t group, uint32_t n) {
    const uint32_t window = lode_kv_pool_group(p, group)->window;
    return window && n >= window ? (n - window + 1) / LODE_KV_PAGE : 0;
}

bool lode_kv_can_resume(const struct lode_kv *kv, uint32_t n) {
    for (uint32_t i = 0; i < kv->n_groups; i++) {
        const struct table *t = &kv->tables[i];
        if (!lode_kv_pool_group(kv->pool, i)->window || n == 0)
            continue;
        for (uint32_t p = lode_kv_oldest(kv->pool, i, n); p <= (n - 1) / LODE_KV_PAGE; p++)
            if (t->held[p % t->n_entries] != p)
                return false;
    }
    return true;
}

void lode_kv_truncate(struct lode_kv *kv, uint32_t n) {
    const uint32_t keep = (n + LODE_KV_PAGE - 1) / LODE_KV_PAGE; /* pages below stay */
    for (uint32_t i = 0; i < kv->n_groups; i++) {
        struct table *t = &kv->tables[i];
        for (uint32_t e = 0; e < t->n_entries; e++)
            if (t->page[e] != LODE_KV_NONE && t->held[e] >= keep) {
                lode_kv_page_drop(kv->pool, i, t->page[e]);
                t->page[e] = t->held[e] = LODE_KV_NONE;
            }
    }
}

/* ---- sharing ---- */

uint32_t lode_kv_page(const struct lode_kv *kv, uint32_t group, uint32_t page) {
    const struct table *t = &kv->tables[group];
    const uint32_t e = page % t->n_entries;
    return t->held[e] == page ? t->page[e] : LODE_KV_NONE;
}

void lode_kv_attach(struct lode_kv *kv, uint32_t group, uint32_t page, uint32_t id) {
    struct table *t = &kv->tables[group];
    const uint32_t e = page % t->n_entries;
    lode_kv_page_hold(kv->pool, group, id);
    if (t->page[e] != LODE_KV_NONE)
        lode_kv_page_drop(kv->pool, group, t->page[e]);
    t->page[e] = id;
    t->held[e] = page;
}

void lode_kv_fork(struct lode_kv *kv, const struct lode_kv *src) {
    assert(kv->pool == src->pool);
    for (uint32_t i = 0; i < kv->n_groups; i++) {
        const struct table *t = &src->tables[i];
        for (uint32_t e = 0; e < t->n_entries; e++)
            if (t->page[e] != LODE_KV_NONE)
                lode_kv_attach(kv, i, t->held[e], t->page[e]);
    }
}

/* ---- for ops ---- */

static uint32_t page_of(const struct lode_kv *kv, uint32_t group, uint32_t page) {
    const struct table *t = &kv->tables[group];
    const uint32_t e = page % t->n_entries;
    assert(t->held[e] == page);
    return t->page[e];
}

void *lode_kv_k(const struct lode_kv *kv, uint32_t layer, uint32_t head, uint32_t page,
                size_t *stride) {
    const struct lode_kv_place *at = lode_kv_pool_place(kv->pool, layer);
    *stride = at->k_stride;
    return lode_kv_page_keys(kv->pool, layer, head, page_of(kv, at->group, page));
}

void *lode_kv_v(const struct lode_kv *kv, uint32_t layer, uint32_t head, uint32_t page,
                size_t *stride) {
    const struct lode_kv_place *at = lode_kv_pool_place(kv->pool, layer);
    *stride = at->v_stride;
    return lode_kv_page_values(kv->pool, layer, head, page_of(kv, at->group, page));
}

const struct lode_kv_layer *lode_kv_layer(const struct lode_kv *kv, uint32_t layer) {
    return lode_kv_pool_layer(kv->pool, layer);
}

struct lode_kv_view lode_kv_view(const struct lode_kv *kv, uint32_t layer) {
    const struct lode_kv_place *at = lode_kv_pool_place(kv->pool, layer);
    const struct lode_kv_group *g = lode_kv_pool_group(kv->pool, at->group);
    const struct table *t = &kv->tables[at->group];
    return (struct lode_kv_view){at->group, g->data, t->page,      t->n_entries, g->page_size,
                                 at->k,     at->v,   at->k_stride, at->v_stride};
}
