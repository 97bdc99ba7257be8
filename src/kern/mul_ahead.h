/* mul_ahead.h - what is asked for while a tile is multiplied: the tile that comes next.
 *
 * Without V_COPIES its lines are prefetched.  With V_COPIES (mul_few_amx.c) they are copied: a piece of the next
 * tile (all its rows, as many numbers of each as fit) lies in a buffer when its turn comes, copied line by line in
 * the order in which it lies in memory.  On Intel's cores a loop that unpacks rows side by side and prefetches
 * waits for memory and for its own instructions one after the other; behind the copy it waits for whichever is
 * longer.  bench/notes/kern-amx.md
 *
 * bring() is called as a tile is worked on, with what corresponds to the part being unpacked: `bytes` from offset `at`
 * of the tile; bring_rest() at the end. */
#ifdef V_COPIES

enum {
    COPIED = 131072, /* bytes of a piece at most */
    LINE = 64,
    EARLY = 4096, /* how far before the copy memory is asked */
};

struct ahead {
    const uint8_t *from; /* the rest of a run */
    uint8_t *to;
    size_t run, left;    /* bytes of each run, >= LINE, and of this one */
    size_t runs, stride; /* that are left, with this one; from one to the next */
    size_t early;        /* bytes to what is asked for */
    size_t due;          /* bytes that should have been copied by now */
};

INLINE void bring_line(struct ahead *a) {
    const size_t back = a->left < LINE ? LINE - a->left : 0; /* a run's last bytes may come twice */
    __builtin_prefetch(a->from + a->early, 0, 2);
    _mm512_storeu_si512(a->to - back, _mm512_loadu_si512(a->from - back));
    if (a->left > LINE) {
        a->left -= LINE;
        a->from += LINE;
        a->to += LINE;
        return;
    }
    a->from += a->left + a->stride - a->run;
    a->to += a->left;
    a->left = a->run;
    a->runs--;
}

INLINE void bring(struct ahead *a, const struct rows *r, size_t at, size_t bytes) {
    (void)r, (void)at;
    a->due += bytes;
    for (; a->due >= LINE && a->runs > 0; a->due -= LINE)
        bring_line(a);
}
INLINE void bring_again(const struct ahead *a, const struct rows *r, size_t at) { (void)a, (void)r, (void)at; }
INLINE void bring_rest(struct ahead *a) {
    while (a->runs > 0)
        bring_line(a);
}

#else

struct ahead {
    size_t tile; /* bytes from a row to its place in the next tile */
};

/* Into the second level where that has more than V_NEAR_TILE bytes, because in a first level of 32 KB it would drive
 * out the tile being worked on. */
#ifndef V_NEAR_TILE
#define V_NEAR_TILE SIZE_MAX
#endif
INLINE void prefetch_next(const uint8_t *piece, size_t bytes, size_t tile) {
    if (tile <= V_NEAR_TILE) {
        prefetch(piece, bytes);
        return;
    }
    const uintptr_t end = (uintptr_t)piece + bytes;
    for (uintptr_t line = ((uintptr_t)piece + 63) & ~(uintptr_t)63; line < end; line += 64)
        __builtin_prefetch((const void *)line, 0, 2);
}
INLINE void bring(const struct ahead *a, const struct rows *r, size_t at, size_t bytes) {
    prefetch_next(r->p[0] + a->tile + at, bytes, a->tile);
}
INLINE void bring_rest(const struct ahead *a) { (void)a; }

/* A tile of long rows has left the first level again when its turn comes: each row's lines are asked for
 * once more, two blocks before they are used.  (It does not pay for blocks of 32.) */
enum { SHORT_TILE = 24576 };
INLINE void bring_again(const struct ahead *a, const struct rows *r, size_t at) {
    if (a->tile > SHORT_TILE)
        for (int i = 0; i < LANES; i++)
            __builtin_prefetch(r->p[i] + at, 0, 3);
}

#endif
