/* codebook_rows.h - what codebook.h reads of 32 numbers, of all of a block (AVX2): indices, signs and scales are made at
 * once, numbers as they are wanted.
 *
 *   begin_T(o, block)       o and, returned, scales as int16: of the first 16 of each 32 numbers in the low half, of the
 *                           others in the high half
 *   bytes_T(o, block, g)    bytes of numbers 32 g and on
 *   signs_T(o, block, g)    and their signs */
#ifndef LODE_KERN_CODEBOOK_ROWS_H
#define LODE_KERN_CODEBOOK_ROWS_H

#include "kern/codebook_vec.h"

#include <immintrin.h>

struct row_codes {
    uint16_t at[64];   /* indices, where they are not bytes of the block */
    uint32_t signs[8]; /* where the block has none that are whole */
};

INLINE __m256i load256(const void *p) { return _mm256_loadu_si256(p); }
INLINE void store256(void *p, __m256i v) { _mm256_storeu_si256(p, v); }
INLINE __m256i both_halves(__m128i v) { return _mm256_broadcastsi128_si256(v); }
INLINE __m256i load_twice(const void *p) { return both_halves(_mm_loadu_si128((const __m128i *)p)); } /* 16 bytes */
INLINE __m256i odd16(__m256i s) { return _mm256_add_epi16(_mm256_add_epi16(s, s), _mm256_set1_epi16(1)); } /* 2 s + 1 */

/* codes_even, codes_even28 of eight words */
INLINE __m256i even8(__m256i seven) {
    __m256i parity = _mm256_xor_si256(seven, _mm256_srli_epi32(seven, 4));
    parity = _mm256_xor_si256(parity, _mm256_srli_epi32(parity, 2));
    parity = _mm256_xor_si256(parity, _mm256_srli_epi32(parity, 1));
    return _mm256_or_si256(seven, _mm256_slli_epi32(_mm256_and_si256(parity, _mm256_set1_epi8(1)), 7));
}
INLINE __m256i even28(__m256i s) {
#define MASKED(v, m) _mm256_and_si256(v, _mm256_set1_epi32(m))
    const __m256i two = _mm256_or_si256(MASKED(s, 0x3fff), _mm256_slli_epi32(MASKED(s, 0xfffc000), 2));
    return even8(_mm256_or_si256(MASKED(two, 0x007f007f), _mm256_slli_epi32(MASKED(two, 0x3f803f80), 1)));
#undef MASKED
}
/* Signs and the scale of each 32 numbers from eight words. */
INLINE __m256i signs_and_scale(struct row_codes *o, __m256i words) {
    const __m256i s = _mm256_srli_epi32(words, 28);
    store256(o->signs, even28(words));
    return odd16(_mm256_permute4x64_epi64(_mm256_packus_epi32(s, s), 0x88));
}
/* From eight bytes, two of four bits in each. */
INLINE __m256i two_scales(const uint8_t scales[8]) {
    const __m128i v = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)scales));
    return odd16(_mm256_set_m128i(_mm_srli_epi16(v, 4), _mm_and_si128(v, _mm_set1_epi16(15))));
}
/* 32 indices from their low and their high bytes. */
INLINE void put_indices(uint16_t at[32], __m256i low, __m256i high) {
    const __m256i a = _mm256_unpacklo_epi8(low, high), b = _mm256_unpackhi_epi8(low, high);
    store256(at, _mm256_permute2x128_si256(a, b, 0x20));
    store256(at + 16, _mm256_permute2x128_si256(a, b, 0x31));
}

#define BEGIN_ROW(name) INLINE __m256i begin_##name(struct row_codes *o, const struct lode_block_##name *b)
#define ROW_BYTES(name)                                                                            \
    INLINE __m256i bytes_##name(const struct row_codes *o, const struct lode_block_##name *b, int g)
#define ROW_SIGNS(name, where)                                                                     \
    INLINE uint32_t signs_##name(const struct row_codes *o, const struct lode_block_##name *b, int g) { \
        uint32_t signs;                                                                            \
        (void)o, (void)b;                                                                          \
        memcpy(&signs, (const uint8_t *)(where) + 4 * g, 4);                                       \
        return signs;                                                                              \
    }
#define NO_SIGNS(name)                                                                             \
    INLINE uint32_t signs_##name(const struct row_codes *o, const struct lode_block_##name *b, int g) { \
        (void)o, (void)b, (void)g;                                                                 \
        return 0;                                                                                  \
    }

/* Entries side by side: broadcasts of memory and blends, as insertions share what shuffles do. */
#define FOUR_OF(grid, index)                                                                       \
    join64(_mm256_blend_epi32(EACH64(grid[index(0)]), EACH64(grid[index(1)]), 0x0c),               \
           _mm256_blend_epi32(EACH64(grid[index(2)]), EACH64(grid[index(3)]), 0xc0))
#define EIGHT_OF(grid, index)                                                                      \
    join64(_mm256_blend_epi32(_mm256_blend_epi32(EACH32(grid[index(0)]), EACH32(grid[index(1)]), 0x02), \
                              _mm256_blend_epi32(EACH32(grid[index(2)]), EACH32(grid[index(3)]), 0x08), 0x0c), \
           _mm256_blend_epi32(_mm256_blend_epi32(EACH32(grid[index(4)]), EACH32(grid[index(5)]), 0x20), \
                              _mm256_blend_epi32(EACH32(grid[index(6)]), EACH32(grid[index(7)]), 0x80), 0xc0))
#define EACH64(v) _mm256_set1_epi64x((long long)(v))
#define EACH32(v) _mm256_set1_epi32((int)(v))
INLINE __m256i join64(__m256i low, __m256i high) { return _mm256_blend_epi32(low, high, 0xf0); }

#define INDEX_QS(i) b->qs[8 * g + (i)]
#define INDEX4(i) o->at[4 * g + (i)]
#define INDEX8(i) o->at[8 * g + (i)]

BEGIN_ROW(iq2_xxs) {
    const __m256 a = (__m256)load256(b->qs), c = (__m256)load256(b->qs + 32);
    return signs_and_scale(o, _mm256_permute4x64_epi64((__m256i)_mm256_shuffle_ps(a, c, 0xdd), 0xd8));
}
ROW_BYTES(iq2_xxs) {
    (void)o;
    return FOUR_OF(lode_grid_iq2_xxs, INDEX_QS);
}
ROW_SIGNS(iq2_xxs, o->signs)

BEGIN_ROW(iq2_xs) {
    const __m256i w[2] = {load256(b->qs), load256(b->qs + 32)}, index = _mm256_set1_epi16(511);
    store256(o->at, _mm256_and_si256(w[0], index));
    store256(o->at + 16, _mm256_and_si256(w[1], index));
    const __m256i sevens = _mm256_packus_epi16(_mm256_srli_epi16(w[0], 9), _mm256_srli_epi16(w[1], 9));
    store256(o->signs, even8(_mm256_permute4x64_epi64(sevens, 0xd8)));
    return two_scales(b->scales);
}
ROW_BYTES(iq2_xs) {
    (void)b;
    return FOUR_OF(lode_grid_iq2_xs, INDEX4);
}
ROW_SIGNS(iq2_xs, o->signs)

BEGIN_ROW(iq2_s) { /* a byte of qh: two bits for each of four indices */
    __m256i high = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)b->qh));
    high = _mm256_or_si256(high, _mm256_slli_epi32(high, 12));
    high = _mm256_and_si256(_mm256_or_si256(high, _mm256_slli_epi32(high, 6)), _mm256_set1_epi8(3));
    put_indices(o->at, load256(b->qs), high);
    return two_scales(b->scales);
}
ROW_BYTES(iq2_s) {
    (void)b;
    return FOUR_OF(lode_grid_iq2_s, INDEX4);
}
ROW_SIGNS(iq2_s, b->signs)

BEGIN_ROW(iq3_xxs) { return signs_and_scale(o, load256(b->signs)); }
ROW_BYTES(iq3_xxs) {
    (void)o;
    return EIGHT_OF(lode_grid_iq3_xxs, INDEX_QS);
}
ROW_SIGNS(iq3_xxs, o->signs)

BEGIN_ROW(iq3_s) {
    for (int h = 0; h < 2; h++) {
        const __m256i high = (__m256i)codes_negative(codes_load32(b->qh + 4 * h));
        put_indices(o->at + 32 * h, load256(b->qs + 32 * h), _mm256_and_si256(high, _mm256_set1_epi8(1)));
    }
    const __m128i v = _mm_cvtepu8_epi16(_mm_cvtsi32_si128((int)codes_load32(b->scales)));
    return odd16(both_halves(_mm_unpacklo_epi16(_mm_and_si128(v, _mm_set1_epi16(15)), _mm_srli_epi16(v, 4))));
}
ROW_BYTES(iq3_s) {
    (void)b;
    return EIGHT_OF(lode_grid_iq3_s, INDEX8);
}
ROW_SIGNS(iq3_s, b->signs)

/* Three bits above each byte: a word has those of four, at 0, 3, 6 and 9 (IQ1_S) or at 0, 4, 8 and 12 (IQ1_M). */
INLINE void put_indices_iq1(uint16_t at[32], const uint8_t qs[32], const uint8_t qh[16], int apart) {
    const __m256i words = load_twice(qh);
    const __m256i up = apart == 3 ? _mm256_set1_epi64x(0x0000000400200100) : _mm256_set1_epi64x(0x0000000100100100);
    const __m256i last = _mm256_set1_epi64x((long long)0xffff000000000000);
    for (int h = 0; h < 2; h++) {
        const char f = (char)(8 * h);
        const __m256i each = _mm256_shuffle_epi8(
            words, _mm256_add_epi8(_mm256_setr_epi64x(0x0100010001000100, 0x0302030203020302, 0x0504050405040504,
                                                      0x0706070607060706), _mm256_set1_epi8(f)));
        const __m256i down = _mm256_and_si256(_mm256_srli_epi16(each, apart == 3 ? 1 : 4), last);
        const __m256i high = _mm256_or_si256(_mm256_mullo_epi16(each, up), down);
        const __m256i low = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(qs + 16 * h)));
        store256(at + 16 * h, _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi16(0x700))));
    }
}
BEGIN_ROW(iq1_s) {
    const __m128i high = _mm_loadu_si128((const __m128i *)b->qh);
    put_indices_iq1(o->at, b->qs, b->qh, 3);
    return odd16(both_halves(_mm_and_si128(_mm_srli_epi16(high, 12), _mm_set1_epi16(7))));
}
INLINE __m256i plus_where_clear(__m256i bytes, __m256i bits) { /* of 64 bits each */
    const __m256i clear = _mm256_cmpeq_epi64(bits, _mm256_setzero_si256());
    return _mm256_add_epi8(bytes, _mm256_and_si256(clear, _mm256_set1_epi8(CODES_PLUS)));
}
ROW_BYTES(iq1_s) {
    const int delta = b->qh[2 * g + 1] & 0x80 ? 0 : CODES_PLUS;
    return _mm256_add_epi8(FOUR_OF(lode_grid_iq1, INDEX4), _mm256_set1_epi8((char)delta));
}
NO_SIGNS(iq1_s)

BEGIN_ROW(iq1_m) {
    put_indices_iq1(o->at, b->qs, b->qh, 4);
    /* four words of four scales: of the first and the second 16 numbers in turn */
    const __m128i words = _mm_loadl_epi64((const __m128i *)b->scales), twice = _mm_unpacklo_epi16(words, words);
    const __m128i low = _mm_blend_epi16(twice, _mm_srli_epi16(twice, 6), 0xaa), seven = _mm_set1_epi16(7);
    return odd16(_mm256_set_m128i(_mm_and_si128(_mm_srli_epi16(low, 3), seven), _mm_and_si128(low, seven)));
}
ROW_BYTES(iq1_m) {
    uint16_t high;
    memcpy(&high, b->qh + 2 * g, 2);
    const __m256i bits = _mm256_and_si256(_mm256_set1_epi16((short)high), _mm256_setr_epi64x(8, 0x80, 0x800, 0x8000));
    return plus_where_clear(FOUR_OF(lode_grid_iq1, INDEX4), bits);
}
NO_SIGNS(iq1_m)

/* TQ1_0.  Digits of bytes that are 128 more, as comparisons have signs: three times such a byte is 128 more again.  Three
 * times what is left of a byte has the digit above it: 1 from 86 on, 2 from 171 on. */
BEGIN_ROW(tq1_0) {
    (void)o, (void)b;
    return _mm256_set1_epi16(1);
}
INLINE __m256i triple(__m256i v, int times) { /* in turn, so that a group begins with what the one before has */
    for (int i = 0; i < times; i++)
        v = _mm256_add_epi8(v, _mm256_add_epi8(v, v));
    return v;
}
ROW_BYTES(tq1_0) {
    const __m256i top = _mm256_set1_epi8(-128);
    __m256i v = _mm256_xor_si256(g < 5 ? load256(b->qs) : load_twice(b->qs + 32), top);
    (void)o;
    if (g < 5)
        v = triple(v, g);
    else /* two digits of sixteen bytes side by side */
        v = triple(_mm256_blend_epi32(v, triple(v, 1), 0xf0), 2 * (g - 5));
    if (g == 7) { /* the fifth of them, and four of four bytes */
        __m256i four = _mm256_xor_si256(EACH32(codes_load32(b->qh)), top);
        four = _mm256_blend_epi32(four, triple(four, 1), 0xaa);
        four = _mm256_blend_epi32(four, triple(four, 2), 0xcc);
        v = join64(v, four);
    }
    const __m256i one = _mm256_cmpgt_epi8(v, _mm256_set1_epi8(85 - 128)), two = _mm256_cmpgt_epi8(v, _mm256_set1_epi8(170 - 128));
    return _mm256_sub_epi8(_mm256_setzero_si256(), _mm256_add_epi8(one, two));
}
NO_SIGNS(tq1_0)
#undef INDEX_QS
#undef INDEX4
#undef INDEX8

/* The scales as bytes, in the order of the numbers: `groups` of them. */
INLINE void put_scales(uint8_t scales[16], __m256i scale, int groups) {
    const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(scale), _mm256_extracti128_si256(scale, 1));
    const __m128i in_turn = _mm_unpacklo_epi8(bytes, _mm_srli_si128(bytes, 8));
    _mm_storeu_si128((__m128i *)scales, groups == 16 ? in_turn : bytes);
}

#endif
