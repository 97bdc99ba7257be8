/* mul_shape.h - what all products of quantised weights with vectors share: shapes of types, rows of a
 * tile, the end of a block of 256.  mul_tile.h multiplies with them, mul_quant_amx.c on tiles. */
#ifndef LODE_KERN_MUL_SHAPE_H
#define LODE_KERN_MUL_SHAPE_H

#include "kern/isa.h"
#include "kern/tile_unpack_32.h"

/* Loops whose arrays are to be registers; they have no more than 16 turns.  UNROLL_CLANG: gcc does so by
 * itself, and orders instructions worse when told to (Q4_K 680 -> 595 GOPS). */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#define UNROLL_CLANG UNROLL
#else
#define UNROLL _Pragma("GCC unroll 16")
#define UNROLL_CLANG
#endif

/* Asks for the part of the next tile that corresponds to the block being worked on.  Into the first
 * level, from which long rows fall to the second, where prefetching there would have put them.
 * bench/notes/kern-quant.md */
INLINE void prefetch(const uint8_t *next, size_t bytes) {
    const uintptr_t end = (uintptr_t)next + bytes;
    for (uintptr_t line = ((uintptr_t)next + 63) & ~(uintptr_t)63; line < end; line += 64)
        __builtin_prefetch((const void *)line, 0, 3);
}

/* How far ahead of a row that is read as it lies lines are asked for into the first level, and into the second: two pages,
 * whose translation comes with it (bench/notes/kern-amx.md). */
enum { NEAR_AT = 1536, FAR_AT = 8192 };
INLINE void ask_ahead(const uint8_t *w, size_t bytes) {
    for (size_t line = 0; line < bytes; line += 64) {
        __builtin_prefetch(w + NEAR_AT + line, 0, 3);
        __builtin_prefetch(w + FAR_AT + line, 0, 2);
    }
}

/* How the codes of a type become a sum; constants, so that each use is compiled for its type. */
struct shape {
    int groups;   /* scales of a block of 256: 8 for groups of 32 or 16 for groups of 16 */
    int runs;     /* groups of 16 numbers that 16 bytes of codes hold: 2 (nibbles), 4 (two bits) */
    int adjacent; /* and where they are, see group_of */
    int minima;   /* mn are minima under dmin (or, blocks of 32, there is an m) */
    int wide;     /* wide codes */
    int top;      /* else the largest code, at most 63, of codebook types 127 */
    int bias;     /* to take from each code: through mn, or (32) the sums of the column */
    int codebook; /* codes are made with the head (tile_codes.h) */
    int ternary;  /* codes less 1 are all: there are no scales */
    int halves;   /* of blocks of 32: m is the scale of the last 16 numbers */
    int codes;    /* of blocks of 32: bytes before codes that are nibbles or bytes (of Q5, four of fifth bits before
                   * them); 0: others */
    int levels;   /* whose nibbles are looked up: IQ4's if wide, else FP4's */
};

INLINE size_t block_numbers(struct shape s) { return s.groups ? 256 : 32; }
INLINE size_t block_of_x(struct shape s) { /* bytes */
    return s.groups ? sizeof(struct lode_block_a256) : sizeof(struct lode_block_a32);
}

/* The group of 16 numbers that run n of chunk c is. */
INLINE int group_of(struct shape s, int c, int n) {
    return s.adjacent ? 2 * c + n : c / 2 * 2 * s.runs + c % 2 + 2 * n;
}

/* acc after one more block whose integer sum is isum; mn's part is formed here. */
INLINE F add_block(struct shape s, F acc, const struct head *h, const struct lode_block_a256 *a,
                   V isum) {
    const F dx = f_set(a->d);
    V msum = v_zero();
    if (s.minima || s.bias)
        for (int g = 0; g < 8; g++)
            msum = v_dot2(msum, h->mn[g], v_bcast4(&a->sums[2 * g]));
    if (!s.minima)
        return f_fma(h->d * dx, f_int(isum - msum), acc);
    acc = f_fma(h->d * dx, f_int(isum), acc);
    return f_fnma(h->dmin * dx, f_int(msum), acc);
}

/* The sums of groups of 32 numbers, which hold m; false: one does not fit. */
INLINE bool sums_of_32(int16_t sums[8], const struct lode_block_a256 *a) {
    typedef int32_t pairs __attribute__((vector_size(32)));
    typedef int16_t eight __attribute__((vector_size(16)));
    pairs both;
    memcpy(&both, a->sums, sizeof both);
    both = (both << 16 >> 16) + (both >> 16);
    const eight low = __builtin_convertvector(both, eight);
    memcpy(sums, &low, sizeof low);
    const pairs beyond = both != __builtin_convertvector(low, pairs);
    uint64_t any[4];
    memcpy(any, &beyond, sizeof any);
    return !(any[0] | any[1] | any[2] | any[3]);
}

/* Of a block's numbers the sum of the first 16. */
INLINE int32_t sum_of_first(const struct lode_block_a32 *a) {
#ifdef __SSE2__
    const __m128i up = _mm_xor_si128(_mm_loadu_si128((const __m128i *)a->q), _mm_set1_epi8(-128)); /* + 128 */
    const __m128i two = _mm_sad_epu8(up, _mm_setzero_si128());
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_unpackhi_epi64(two, two))) - 16 * 128;
#else
    int32_t sum = 0;
    for (int i = 0; i < 16; i++)
        sum += a->q[i];
    return sum;
#endif
}

/* acc after a block whose halves' integer sums are lo and hi. */
INLINE F add_halves(F acc, V lo, V hi, F d, F m, F dx) { return f_fma(m * dx, f_int(hi), f_fma(d * dx, f_int(lo), acc)); }
/* What those sums begin with. */
INLINE V half_start(struct shape s, const struct lode_block_a32 *a, int half) {
    const int32_t first = sum_of_first(a);
    return v_set32((uint32_t)(-s.bias * (half ? a->sum - first : first)));
}

/* The rows of a tile; where fewer are left, the last one again, whose results are not stored. */
INLINE struct rows tile_rows(const uint8_t *w, size_t w_stride, int n_rows) {
    struct rows r;
    for (int i = 0; i < LANES; i++)
        r.p[i] = w + (size_t)(i < n_rows ? i : n_rows - 1) * w_stride;
    return r;
}

INLINE int rows_left(size_t n_w, size_t i) { return n_w - i < LANES ? (int)(n_w - i) : LANES; }

/* What a tile of a type needs to know. */
#define TYPE_256                                                                                   \
    struct shape s, void (*read_head)(struct head *, const struct rows *, size_t), chunk *unpack,  \
        size_t size
#define TYPE_32 struct shape s, block32 *unpack, size_t size
#define UNPACK_32(name) block_##name
#define UNPACK_256(name) head_##name, chunk_##name

#endif
