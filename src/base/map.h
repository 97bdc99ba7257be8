/* map.h - bytes -> uint32_t, by open addressing over XXH3.
 *
 * Keys are borrowed and must outlive the map.  init is zeroing.  Inserting an existing key keeps
 * the old value and returns it, so that duplicates are seen.  One writer, or many readers.
 *
 * Keys come from strangers' files, so each map seeds its hash from the system's random numbers:
 * nobody can choose keys that all meet in one slot.  Nothing that a map returns depends on the seed.
 */
#ifndef LODE_BASE_MAP_H
#define LODE_BASE_MAP_H

#include "base/buf.h"

#define LODE_MAP_NONE UINT32_MAX

struct lode_map {
    struct lode_map_slot *slots; /* owned; (cap) */
    uint32_t len, cap;           /* cap: 0 or a power of two */
    uint64_t seed;               /* of the hash; set with the first slots */
};

/* A seed from the system's random numbers, for hash tables of other shapes; 0 if it has none. */
uint64_t lode_hash_seed(void);

/* Room for n keys without growing; false: out of memory. */
bool lode_map_reserve(struct lode_map *m, uint32_t n);
/* 1: inserted; 0: was there already (*old, if given, is its value); negative: LODE_ERR_NOMEM. */
int lode_map_put(struct lode_map *m, struct lode_str key, uint32_t value, uint32_t *old);
/* LODE_MAP_NONE when absent. */
uint32_t lode_map_get(const struct lode_map *m, struct lode_str key);
void lode_map_free(struct lode_map *m);

#endif
