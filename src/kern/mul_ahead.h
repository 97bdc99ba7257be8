/* mul_ahead.h - what is asked for while a tile is multiplied: the tile that comes next.
 *
 * bring() is called as a tile is worked on, with what corresponds to the part being unpacked: `bytes` from offset `at`
 * of the tile. */

struct ahead {
    size_t tile; /* bytes from a row to its place in the next tile; of few columns 0 where there is none */
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
    if (a->tile > 0)
        prefetch_next(r->p[0] + a->tile + at, bytes, a->tile);
}

/* A tile of long rows has left the first level again when its turn comes: each row's lines are asked for
 * once more, two blocks before they are used.  (It does not pay for blocks of 32.) */
enum { SHORT_TILE = 24576 };
INLINE void bring_again(const struct ahead *a, const struct rows *r, size_t at) {
    if (a->tile > SHORT_TILE)
        for (int i = 0; i < LANES; i++)
            __builtin_prefetch(r->p[i] + at, 0, 3);
}

/* Lines from .. end (constants) of what is at `next`, as prefetch_next. */
INLINE void prefetch_part(const struct ahead *ahead, const uint8_t *next, size_t from, size_t end) {
    const size_t first = (from + 63) / 64 * 64;
    if (ahead->tile <= V_NEAR_TILE) {
        UNROLL
        for (size_t at = first; at < end; at += 64)
            __builtin_prefetch(next + at, 0, 3);
    } else {
        UNROLL
        for (size_t at = first; at < end; at += 64)
            __builtin_prefetch(next + at, 0, 2);
    }
}

/* With a block of row i, a constant: its share of the next tile's lines, and its own where rows are long. */
INLINE void prefetch_row(const struct rows *r, int i, const struct ahead *ahead, size_t b, size_t size) {
    prefetch_part(ahead, r->p[0] + ahead->tile + b * LANES * size, (size_t)i * size, ((size_t)i + 1) * size);
    if (ahead->tile > SHORT_TILE) {
        UNROLL
        for (size_t at = 0; at < size; at += 64)
            __builtin_prefetch(r->p[i] + (b + 2) * size + at, 0, 3);
    }
}
