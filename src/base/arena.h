/* arena.h - memory that is freed all at once: parsed files, graphs, vocabularies.
 *
 * init is zeroing.  Blocks are 16-byte aligned and never move.  NULL on failure.  One thread at
 * a time.
 */
#ifndef LODE_BASE_ARENA_H
#define LODE_BASE_ARENA_H

#include <stddef.h>

struct lode_arena {
    struct lode_arena_block *head; /* owned */
    size_t used, size;             /* of head */
    size_t bytes;                  /* of all blocks */
};

void *lode_arena_alloc(struct lode_arena *a, size_t n, size_t size);      /* uninitialised */
void *lode_arena_alloc_zero(struct lode_arena *a, size_t n, size_t size); /* zeroed */
char *lode_arena_strndup(struct lode_arena *a, const char *s, size_t n);  /* NUL-terminated */
__attribute__((format(printf, 2, 3))) char *lode_arena_printf(struct lode_arena *a,
                                                              const char *fmt, ...);
void lode_arena_free(struct lode_arena *a);

#define LODE_ARENA_NEW(a, type) ((type *)lode_arena_alloc_zero((a), 1, sizeof(type)))
#define LODE_ARENA_ARRAY(a, type, n) ((type *)lode_arena_alloc_zero((a), (n), sizeof(type)))

#endif
