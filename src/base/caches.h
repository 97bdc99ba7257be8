/* caches.h - memory that can be had again: who holds some, and how to get it back.
 *
 * An owner lists itself; lode_memory_trim and the watch over memory pressure (lode/memory.h) ask all
 * that are listed.  They are called from any thread, with the list locked: they must not list,
 * unlist or wait for whoever does.
 */
#ifndef LODE_BASE_CACHES_H
#define LODE_BASE_CACHES_H

#include <stdbool.h>
#include <stdint.h>

struct lode_cache {
    uint64_t (*held)(void *user); /* bytes that could be given back */
    /* Gives back up to `bytes`; returns how many.  stay: and does not take them again. */
    uint64_t (*shrink)(void *user, uint64_t bytes, bool stay);
    void (*grow)(void *user); /* a sixteenth of what it had at first may be taken again */
    void *user;
    struct lode_cache *next; /* the list's */
};

void lode_cache_list(struct lode_cache *c);
void lode_cache_unlist(struct lode_cache *c);

uint64_t lode_caches_held(void);
uint64_t lode_caches_shrink(uint64_t bytes, bool stay);
void lode_caches_grow(void);

#endif
