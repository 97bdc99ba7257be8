/* mul_one_codes.h - one column of a codebook type, of mul_tile.h, row by row (256 bits of x86).
 *
 * What a block costs is the entries that come from all over a grid, and signs: rows side by side would have each turned to
 * lanes besides.  Here 32 numbers of a row meet the column's as they lie, the column's with the weights' signs: pairs of
 * products fit an int16, and one multiplication by pairs applies scales and multipliers.  Indices, signs and scales of a
 * block are made at once, before its numbers.  What a row's vector holds after a block is added together with that of the
 * tile's other rows.  A few columns meet what was made of a row together.  bench/notes/kern-quant.md */
#ifndef LODE_KERN_MUL_ONE_CODES_H
#define LODE_KERN_MUL_ONE_CODES_H

#include "kern/codebook_rows.h"

#include <immintrin.h>

/* Both halves of low added in the low half, of high in the high one. */
INLINE __m256i fold_two(__m256i low, __m256i high) {
    return _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31));
}

/* Lane i (4 + i): the sum of the low (high) half of v[i]. */
INLINE __m256i add_halves4(const __m256i v[4]) {
    __m256i t[2];
    for (int i = 0; i < 2; i++)
        t[i] = _mm256_add_epi32(_mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]),
                                _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
    return _mm256_add_epi32(_mm256_unpacklo_epi64(t[0], t[1]), _mm256_unpackhi_epi64(t[0], t[1]));
}

/* Lane i: the sum of v[i]'s lanes. */
INLINE __m256i add_rows8(const __m256i v[8]) {
    __m256i s[4];
    for (int i = 0; i < 4; i++)
        s[i] = fold_two(v[i], v[i + 4]);
    return add_halves4(s);
}

/* The same of all rows of a tile. */
INLINE V add_rows(const __m256i v[LANES]) {
    V sum;
    for (int i = 0; i < LANES; i += 8) {
        const __m256i eight = add_rows8(v + i);
        memcpy((char *)&sum + 4 * i, &eight, sizeof eight);
    }
    return sum;
}

/* A block of a column: its multipliers in both halves, sums of 16 numbers in the order of the scales. */
struct codes_column {
    __m256i m, sums;
    const int8_t *q;
    float d;
};
INLINE struct codes_column column_of(const struct lode_block_a256 *a) {
    const __m256i order = both_halves(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    const __m256i sums = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(load256(a->sums), order), 0xd8);
    return (struct codes_column){both_halves(_mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)a->m))), sums, a->q,
                                 a->d};
}
/* The n-th int16 of each half in all of that half. */
INLINE __m256i spread_word(__m256i v, int n) {
    return _mm256_shuffle_epi8(v, _mm256_set1_epi16((short)(2 * n | (2 * n + 1) << 8)));
}

/* Compilers would take what was stored out of the vectors again, word by word, which loads do better. */
INLINE void in_memory(struct row_codes o[LANES]) { __asm__("" : "+m"(*(struct row_codes(*)[LANES])o)); }

/* acc of n columns (constant) after all blocks of a tile. */
#define CODES_TILE(name, type, groups, most, per, bias)                                            \
    /* sums[j]: of a row's block with column j, of its lanes */                                    \
    INLINE void block_row_##name(__m256i sums[CODEBOOK_FEW], const struct row_codes *o, __m256i scale, \
                                 const struct lode_block_##name *b, const struct codes_column x[CODEBOOK_FEW], size_t n) { \
        __m256i by[CODEBOOK_FEW];                                                                  \
        UNROLL for (size_t j = 0; j < n; j++) {                                                    \
            by[j] = _mm256_mullo_epi16(scale, x[j].m);                                             \
            sums[j] = (bias) ? _mm256_mullo_epi32(_mm256_madd_epi16(scale, x[j].sums),             \
                                                  _mm256_set1_epi32(-(bias)))                      \
                             : _mm256_setzero_si256();                                             \
        }                                                                                          \
        UNROLL for (int g = 0; g < 8; g++) {                                                       \
            const __m256i bytes = bytes_##name(o, b, g);                                           \
            const __m256i negative = (bias) ? _mm256_setzero_si256()                               \
                                            : (__m256i)codes_negative(signs_##name(o, b, g));      \
            UNROLL for (size_t j = 0; j < n; j++) {                                                \
                __m256i numbers = load256(x[j].q + 32 * g);                                        \
                if (!(bias))                                                                       \
                    numbers = _mm256_sub_epi8(_mm256_xor_si256(numbers, negative), negative);      \
                const __m256i pairs = _mm256_maddubs_epi16(bytes, numbers);                        \
                sums[j] = _mm256_add_epi32(sums[j], _mm256_madd_epi16(pairs, spread_word(by[j], g))); \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    INLINE void tile_##name(F *acc, const struct rows *r, struct ahead ahead, const uint8_t *const *x, size_t n, \
                            size_t k) {                                                            \
        const size_t size = sizeof(struct lode_block_##name);                                      \
        for (size_t b = 0; b < k / 256; b++) {                                                     \
            struct codes_column column[CODEBOOK_FEW];                                              \
            struct row_codes o[LANES];                                                             \
            uint32_t half[LANES];                                                                  \
            __m256i scale[LANES], sums[CODEBOOK_FEW][LANES];                                       \
            V d;                                                                                   \
            for (size_t j = 0; j < n; j++)                                                         \
                column[j] = column_of((const struct lode_block_a256 *)x[j] + b);                   \
            _Pragma("GCC unroll 1") for (int i = 0; i < LANES; i++) {                              \
                const struct lode_block_##name *row = (const struct lode_block_##name *)(r->p[i] + b * size); \
                half[i] = half_##name(row);                                                        \
                scale[i] = begin_##name(&o[i], row);                                               \
            }                                                                                      \
            in_memory(o);                                                                          \
            prefetch_part(&ahead, r->p[0] + ahead.tile + b * LANES * size, 0, LANES * size);       \
            for (size_t at = 0; at < size; at += 64)                                               \
                bring_again(&ahead, r, (b + 2) * size + at);                                       \
            _Pragma("GCC unroll 1") for (int i = 0; i < LANES; i++) {                              \
                const struct lode_block_##name *row = (const struct lode_block_##name *)(r->p[i] + b * size); \
                __m256i of[CODEBOOK_FEW];                                                          \
                block_row_##name(of, &o[i], scale[i], row, column, n);                             \
                for (size_t j = 0; j < n; j++)                                                     \
                    sums[j][i] = of[j];                                                            \
            }                                                                                      \
            memcpy(&d, half, sizeof d);                                                            \
            const F by = f_half(d) * (1.0f / (per));                                               \
            for (size_t j = 0; j < n; j++)                                                         \
                acc[j] = f_fma(by * f_set(column[j].d), f_int(add_rows(sums[j])), acc[j]);         \
        }                                                                                          \
    }
LODE_CODEBOOK_LIST(CODES_TILE)

#define ONE_CODEBOOK(name, ...)                                                                    \
    static __attribute__((noinline))                                                               \
    F one_##name(F acc, const struct rows *r, struct ahead ahead, const uint8_t *x, size_t k) {    \
        const struct shape s = {__VA_ARGS__};                                                      \
        ONE_TERNARY(s)                                                                             \
        (void)s;                                                                                   \
        tile_##name(&acc, r, ahead, &x, 1, k);                                                     \
        return acc;                                                                                \
    }
#define FEW_CODEBOOK(name, ...)                                                                    \
    static __attribute__((noinline)) void few_##name(                                              \
        F acc[FEW], const struct rows *r, struct ahead ahead, const uint8_t *const *x, size_t n,   \
        size_t k) {                                                                                \
        if (n <= 2)                                                                                \
            tile_##name(acc, r, ahead, x, 2, k);                                                   \
        for (size_t j = 0; n > 2 && j < n; j += CODEBOOK_FEW)                                      \
            tile_##name(acc + j, r, ahead, x + j, CODEBOOK_FEW, k);                                \
    }

#endif
