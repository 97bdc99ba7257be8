/* rooms.h - the memory of a cache: rooms of a few sizes in one stretch, on large pages.
 *
 * Large pages are worth the trouble: a read into them is one piece of memory to the device where
 * small ones are 64, which nearly doubled what a virtual disk gave (bench/measured/memory.md).  They cannot
 * be given away in part, so a room is as large as what is to be in it: there is a kind of room for
 * each size of group, up to a few, and each kind has its share of the budget.  A room serves groups
 * of its kind and smaller ones.
 *
 * Memory comes with what is written into a room, or all before, and stays with it until it is
 * released.  Not thread-safe.
 */
#ifndef LODE_STORE_ROOMS_H
#define LODE_STORE_ROOMS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LODE_NO_ROOM UINT32_MAX
enum { LODE_ROOM_KINDS = 8 };

struct lode_room_kind {
    size_t size;       /* bytes of one room; kinds are in descending order of it */
    uint32_t first, n; /* its rooms */
    uint32_t n_free;   /* free[first ... first + n_free - 1]; the last is taken first */
    uint32_t n_busy;   /* taken, and not to be had back for now */
};

struct lode_rooms { /* zeros: none */
    struct lode_room_kind kinds[LODE_ROOM_KINDS];
    uint32_t n_kinds, n;
    char *memory; /* owned; (bytes) */
    size_t bytes;
    size_t *offsets; /* owned; (n): of each room */
    uint32_t *free;  /* owned; (n) */
    uint8_t *kind;   /* owned; (n) */
};

/* Rooms for groups of `sizes` bytes (n; whole pages), within budget, which holds the largest.  out
 * is to be freed after a failure too. */
int lode_rooms_make(struct lode_rooms *out, const size_t *sizes, uint32_t n, uint64_t budget,
                    struct lode_error *err);
void lode_rooms_free(struct lode_rooms *r);

/* Has all memory come now, by a few threads, so that nothing that is read waits for it later. */
int lode_rooms_touch(struct lode_rooms *r, struct lode_error *err);

bool lode_rooms_has(const struct lode_rooms *r, size_t size);
/* A free room of the smallest kind that holds size bytes, or LODE_NO_ROOM. */
uint32_t lode_rooms_take(struct lode_rooms *r, size_t size);
/* Whether evicting could make one free: not all that would do are busy. */
bool lode_rooms_may_have(const struct lode_rooms *r, size_t size);
void lode_rooms_set_busy(struct lode_rooms *r, uint32_t room, bool busy);
void lode_rooms_give(struct lode_rooms *r, uint32_t room);
/* Its memory goes back to the system; its bytes are lost. */
void lode_rooms_release(struct lode_rooms *r, uint32_t room);
static inline size_t lode_rooms_size(const struct lode_rooms *r, uint32_t room) {
    return r->kinds[r->kind[room]].size;
}
static inline char *lode_rooms_at(const struct lode_rooms *r, uint32_t room) {
    return r->memory + r->offsets[room];
}

#endif
