#include "base/map.h"

#include "base/alloc.h"
#include "base/error.h"

#include <sys/random.h>
#include <xxhash.h>

struct lode_map_slot {
    struct lode_str key; /* data NULL: empty slot */
    uint32_t hash, value;
};

uint64_t lode_hash_seed(void) {
    uint64_t seed;
    return getrandom(&seed, sizeof seed, GRND_NONBLOCK) == sizeof seed ? seed : 0;
}

static uint32_t hash_of(const struct lode_map *m, struct lode_str key) {
    return (uint32_t)XXH3_64bits_withSeed(key.data, key.len, m->seed);
}

static struct lode_map_slot *find(const struct lode_map *m, struct lode_str key, uint32_t hash) {
    uint32_t i = hash & (m->cap - 1);
    for (;; i = (i + 1) & (m->cap - 1)) {
        struct lode_map_slot *s = &m->slots[i];
        if (!s->key.data || (s->hash == hash && lode_str_eq(s->key, key)))
            return s;
    }
}

bool lode_map_reserve(struct lode_map *m, uint32_t n) {
    if (n > UINT32_MAX / 4)
        return false;
    uint32_t cap = m->cap ? m->cap : 16;
    while (cap < n * 2)
        cap *= 2;
    if (cap == m->cap)
        return true;
    struct lode_map bigger = {LODE_NEW_ARRAY(struct lode_map_slot, cap), m->len, cap,
                              m->cap ? m->seed : lode_hash_seed()};
    if (!bigger.slots)
        return false;
    for (uint32_t i = 0; i < m->cap; i++)
        if (m->slots[i].key.data)
            *find(&bigger, m->slots[i].key, m->slots[i].hash) = m->slots[i];
    lode_free(m->slots);
    *m = bigger;
    return true;
}

int lode_map_put(struct lode_map *m, struct lode_str key, uint32_t value, uint32_t *old) {
    if (!lode_map_reserve(m, m->len + 1))
        return LODE_ERR_NOMEM;
    if (!key.data)
        key.data = "";
    const uint32_t hash = hash_of(m, key);
    struct lode_map_slot *s = find(m, key, hash);
    if (s->key.data) {
        if (old)
            *old = s->value;
        return 0;
    }
    *s = (struct lode_map_slot){key, hash, value};
    m->len++;
    return 1;
}

uint32_t lode_map_get(const struct lode_map *m, struct lode_str key) {
    if (!m->cap)
        return LODE_MAP_NONE;
    const struct lode_map_slot *s = find(m, key, hash_of(m, key));
    return s->key.data ? s->value : LODE_MAP_NONE;
}

void lode_map_free(struct lode_map *m) {
    lode_free(m->slots);
    *m = (struct lode_map){0};
}
