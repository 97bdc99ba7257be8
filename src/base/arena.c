#include "base/arena.h"

#include "base/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct lode_arena_block {
    _Alignas(16) struct lode_arena_block *next;
    _Alignas(16) char data[];
};

enum { BLOCK_SIZE = 64 * 1024 };

void *lode_arena_alloc(struct lode_arena *a, size_t n, size_t size) {
    size_t bytes;
    if (!lode_mul_size(n, size, &bytes) || bytes > SIZE_MAX / 2)
        return NULL;
    bytes = (bytes + 15) & ~(size_t)15;
    if (!a->head || a->size - a->used < bytes) {
        const size_t room = bytes > BLOCK_SIZE ? bytes : BLOCK_SIZE;
        struct lode_arena_block *b = lode_alloc(1, sizeof *b + room);
        if (!b)
            return NULL;
        b->next = a->head;
        a->head = b;
        a->size = room;
        a->used = 0;
        a->bytes += sizeof *b + room;
    }
    void *p = a->head->data + a->used;
    a->used += bytes;
    return p;
}

void *lode_arena_alloc_zero(struct lode_arena *a, size_t n, size_t size) {
    void *p = lode_arena_alloc(a, n, size);
    if (p)
        memset(p, 0, n * size);
    return p;
}

char *lode_arena_strndup(struct lode_arena *a, const char *s, size_t n) {
    char *copy = lode_arena_alloc(a, n + 1, 1);
    if (!copy)
        return NULL;
    memcpy(copy, s, n);
    copy[n] = '\0';
    return copy;
}

char *lode_arena_printf(struct lode_arena *a, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *s = n < 0 ? NULL : lode_arena_alloc(a, (size_t)n + 1, 1);
    if (!s)
        return NULL;
    va_start(ap, fmt);
    vsnprintf(s, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return s;
}

void lode_arena_free(struct lode_arena *a) {
    while (a->head) {
        struct lode_arena_block *next = a->head->next;
        lode_free(a->head);
        a->head = next;
    }
    *a = (struct lode_arena){0};
}
