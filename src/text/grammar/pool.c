/* pool.c - see pool.h. */
#include "text/grammar/pool.h"

static uint32_t hash_bytes(const uint8_t *v, uint32_t n) {
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (uint32_t i = 0; i < n; i += 4) {
        uint32_t w;
        memcpy(&w, v + i, 4);
        h = (h ^ w) * 0xff51afd7ed558ccdu;
        h ^= h >> 29;
    }
    return (uint32_t)(h ^ h >> 32);
}

static uint32_t *find_slot(struct pool *p, const void *item) {
    uint32_t at = hash_bytes(item, p->size) & (uint32_t)(p->slots.n - 1);
    while (p->slots.v[at] &&
           memcmp(p->v + (size_t)(p->slots.v[at] - 1) * p->size, item, p->size) != 0)
        at = (at + 1) & (uint32_t)(p->slots.n - 1);
    return &p->slots.v[at];
}

static bool pool_grow(struct pool *p) {
    const size_t n_slots = p->slots.n ? 2 * p->slots.n : 256;
    uint32_t *slots = lode_alloc_zero(n_slots, sizeof *slots);
    if (!slots)
        return false;
    lode_free(p->slots.v);
    p->slots.v = slots;
    p->slots.n = p->slots.cap = n_slots;
    for (uint32_t i = 0; i < p->n; i++)
        *find_slot(p, p->v + (size_t)i * p->size) = i + 1;
    return true;
}

uint32_t pool_put(struct pool *p, const void *item) {
    if (2 * ((size_t)p->n + 1) > p->slots.n && !pool_grow(p))
        return UINT32_MAX;
    uint32_t *slot = find_slot(p, item);
    if (*slot)
        return *slot - 1;
    if (p->n == p->cap) {
        const uint32_t cap = p->cap ? 2 * p->cap : 64;
        uint8_t *v = lode_realloc(p->v, cap, p->size);
        if (!v)
            return UINT32_MAX;
        p->v = v;
        p->cap = cap;
    }
    memcpy(p->v + (size_t)p->n * p->size, item, p->size);
    *slot = ++p->n;
    return p->n - 1;
}

void pool_cut(struct pool *p, uint32_t n) {
    /* the last put is the last of its chain, so taking slots back in this order leaves no holes */
    while (p->n > n) {
        uint32_t *slot = find_slot(p, p->v + (size_t)(p->n - 1) * p->size);
        *slot = 0;
        p->n--;
    }
}

void pool_free(struct pool *p) {
    lode_free(p->v);
    GVEC_FREE(&p->slots);
    p->v = NULL;
    p->n = p->cap = 0;
}

bool pool_copy(struct pool *to, const struct pool *from) {
    *to = (struct pool){.size = from->size};
    to->v = lode_alloc((size_t)from->n + 1, from->size);
    if (!to->v)
        return false;
    memcpy(to->v, from->v, (size_t)from->n * from->size);
    to->n = from->n;
    to->cap = from->n + 1;
    to->slots.v = lode_alloc(from->slots.n, sizeof *to->slots.v);
    if (!to->slots.v)
        return false;
    memcpy(to->slots.v, from->slots.v, from->slots.n * sizeof *to->slots.v);
    to->slots.n = to->slots.cap = from->slots.n;
    return true;
}
