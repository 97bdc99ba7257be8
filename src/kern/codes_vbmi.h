/* codes_vbmi.h - what codebook.h reads of 32 numbers, of two rows' blocks at once (AVX-512 with VBMI, BITALG, GFNI): entries
 * are not loaded one by one but looked up 64 at a time, in tables of their words' bytes (iq_words.h), 4 to 16 lines each.
 *
 * Numbers come in planes: plane p has number p of each entry, in the order of entries, so nothing is put together
 * again; columns are brought to that order once.  Entries of eight numbers: 32 of a row's block beside 32 of the other's,
 * eight planes.  Entries of four: the 64 of one row's block, four planes.
 *
 *   entries_T(o, a, b)   indices, signs, scales: of entries of four of a's block alone
 *
 * Of IQ1, whose grid would be 64 lines, entries are gathered and numbers stay as they lie:
 *
 *   scales_T(a, b)       of both rows' blocks, sixteen each
 *   fields_T(block)      of each entry the high bits of its index (CODES_HIGH) and its delta's sign (CODES_DELTA)
 *
 * Scales are int16 where sums of pairs of a plane's numbers meet them: for entries of eight word w of a row's sixteen is that
 * of numbers 16 w and on, for entries of four word w of thirty-two that of numbers 8 w and on. */
#ifndef LODE_KERN_CODES_VBMI_H
#define LODE_KERN_CODES_VBMI_H

#include "kern/codebook.h"
#include "kern/iq_words.h"

#include <immintrin.h>

struct entries {
    __m512i low, high; /* bytes of the entries' words */
    __m512i signs;     /* of entries of eight a byte each, of four 32 bits in each 64 */
    __m512i scales;
};

INLINE __m512i z_load(const void *p) { return _mm512_loadu_si512(p); }
INLINE __m512i z_halves(const void *low, const void *high) { /* 32 bytes each */
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)low)),
                              _mm256_loadu_si256((const __m256i *)high), 1);
}
INLINE __m512i z_each64(const void *low, const void *high) { /* 8 bytes each, four times */
    uint64_t a, b;
    memcpy(&a, low, 8);
    memcpy(&b, high, 8);
    return _mm512_mask_set1_epi64(_mm512_set1_epi64((long long)a), 0xf0, (long long)b);
}
#define ONES 0x0101010101010101
INLINE __m512i z_odd16(__m512i s) { return _mm512_or_si512(_mm512_slli_epi16(s, 1), _mm512_set1_epi16(1)); } /* 2 s + 1 */

/* An index: its eight low bits, and where those from the seventh on are set. */
struct index {
    __m512i low;
    __mmask64 bit[4];
};
INLINE struct index index_of(__m512i low) {
    return (struct index){low, {_mm512_test_epi8_mask(low, _mm512_set1_epi8(64)), _mm512_movepi8_mask(low)}};
}
/* Bytes of a table of 64 << n entries.  By two permutations of 64, the second of which leaves what the first has found: one
 * of 128 is three operations on Intel's cores. */
INLINE __m512i look_up_1(const uint8_t *table, struct index at) {
    const __m512i first = _mm512_permutexvar_epi8(at.low, z_load(table));
    return _mm512_mask_permutexvar_epi8(first, at.bit[0], at.low, z_load(table + 64));
}
#define TWICE(n, half)                                                                             \
    INLINE __m512i look_up_##n(const uint8_t *table, struct index at) {                            \
        return _mm512_mask_blend_epi8(at.bit[n - 1], look_up_##half(table, at), look_up_##half(table + (32 << n), at)); \
    }
TWICE(2, 1)
TWICE(3, 2)
TWICE(4, 3)
#undef TWICE
#define LOOK_UP(o, n, name, at)                                                                    \
    ((o)->low = look_up_##n(lode_words_low_##name, at), (o)->high = look_up_##n(lode_words_high_##name, at))

/* The seven low bits of bytes and an eighth that makes their number even (codes_even). */
INLINE __m512i even_low(__m512i v) { return _mm512_gf2p8affine_epi64_epi8(v, _mm512_set1_epi64(0x010204081020407f), 0); }
INLINE __m512i even_high(__m512i v) { /* of the seven high bits */
    return _mm512_gf2p8affine_epi64_epi8(v, _mm512_set1_epi64(0x02040810204080fe), 0);
}
/* Four sevens of each word of 32 bits in its bytes (codes_even28). */
INLINE __m512i even28s(__m512i words) {
    return even_low(_mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x352e2720150e0700), words));
}

/* Of eight bytes of each of two rows: two scales of four bits. */
INLINE __m512i two_scales_each(const uint8_t a[8], const uint8_t b[8]) {
    const __m128i both = _mm_unpacklo_epi64(_mm_loadl_epi64((const __m128i *)a), _mm_loadl_epi64((const __m128i *)b));
    const __m512i v = _mm512_cvtepu8_epi32(both);
    return z_odd16(_mm512_and_si512(_mm512_or_si512(v, _mm512_slli_epi32(v, 12)), _mm512_set1_epi32(0x000f000f)));
}

#define ENTRIES(name)                                                                              \
    INLINE void entries_##name(struct entries *o, const struct lode_block_##name *a, const struct lode_block_##name *b)

ENTRIES(iq2_xxs) {
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i qa = z_load(a->qs), qb = z_load(b->qs);
    const __m512i words = _mm512_permutex2var_epi32(qa, _mm512_add_epi32(even, _mm512_set1_epi32(1)), qb);
    const __m512i scale = _mm512_srli_epi32(words, 28);
    LOOK_UP(o, 2, iq2_xxs, index_of(_mm512_permutex2var_epi32(qa, even, qb)));
    o->signs = even28s(words);
    o->scales = z_odd16(_mm512_or_si512(scale, _mm512_slli_epi32(scale, 16)));
}
ENTRIES(iq2_xs) {
    const __m512i qa = z_load(a->qs), qb = z_load(b->qs), step = _mm512_set1_epi8(1);
    const __m512i even = _mm512_set_epi64(0x7e7c7a7876747270, 0x6e6c6a6866646260, 0x5e5c5a5856545250, 0x4e4c4a4846444240,
                                          0x3e3c3a3836343230, 0x2e2c2a2826242220, 0x1e1c1a1816141210, 0x0e0c0a0806040200);
    const __m512i high = _mm512_permutex2var_epi8(qa, _mm512_add_epi8(even, step), qb);
    struct index at = index_of(_mm512_permutex2var_epi8(qa, even, qb));
    at.bit[2] = _mm512_test_epi8_mask(high, step);
    LOOK_UP(o, 3, iq2_xs, at);
    o->signs = even_high(high);
    o->scales = two_scales_each(a->scales, b->scales);
}
ENTRIES(iq2_s) { /* qh: two bits an entry, 16 of each of four 64 */
    const __m512i qh = z_each64(a->qh, b->qh);
    const __m512i first = _mm512_set4_epi64(0x3e3c3a3836343230, 0x2e2c2a2826242220, 0x1e1c1a1816141210, 0x0e0c0a0806040200);
    struct index at = index_of(z_halves(a->qs, b->qs));
    at.bit[2] = _mm512_bitshuffle_epi64_mask(qh, first);
    at.bit[3] = _mm512_bitshuffle_epi64_mask(qh, _mm512_add_epi8(first, _mm512_set1_epi8(1)));
    LOOK_UP(o, 4, iq2_s, at);
    o->signs = z_halves(a->signs, b->signs);
    o->scales = two_scales_each(a->scales, b->scales);
}

ENTRIES(iq3_xxs) {
    const __m512i words = _mm512_cvtepu32_epi64(_mm256_loadu_si256((const __m256i *)a->signs));
    const __m512i first = _mm512_set4_epi32(0x09080908, 0x09080908, 0x01000100, 0x01000100); /* of each four words */
    (void)b;
    LOOK_UP(o, 2, iq3_xxs, index_of(z_load(a->qs)));
    o->signs = even28s(words);
    o->scales = z_odd16(_mm512_shuffle_epi8(_mm512_srli_epi64(words, 28), first));
}
ENTRIES(iq3_s) {
    struct index at = index_of(z_load(a->qs));
    (void)b;
    memcpy(&at.bit[2], a->qh, 8);
    LOOK_UP(o, 3, iq3_s, at);
    o->signs = _mm512_cvtepu32_epi64(_mm256_loadu_si256((const __m256i *)a->signs));
    const __m512i nibble = _mm512_set_epi64(0x1c1c1c1c1c1c1c1c, 0x1818181818181818, 0x1414141414141414, 0x1010101010101010,
                                            0x0c0c0c0c0c0c0c0c, 0x0808080808080808, 0x0404040404040404, 0);
    const __m512i s = _mm512_multishift_epi64_epi8(nibble, _mm512_set1_epi64(codes_load32(a->scales)));
    o->scales = z_odd16(_mm512_and_si512(s, _mm512_set1_epi16(15)));
}
#undef ENTRIES
#undef LOOK_UP

/* ---- IQ1 ---- */

enum { CODES_HIGH = 0x0700, CODES_DELTA = 8 };

/* Two bytes an entry of the 16 bits that four entries have; which, eight say. */
INLINE __m512i fields_of_16(const uint8_t qh[16], long long which) {
    return _mm512_multishift_epi64_epi8(_mm512_set1_epi64(which), _mm512_cvtepu16_epi64(_mm_loadu_si128((const __m128i *)qh)));
}
INLINE __m512i fields_iq1_s(const struct lode_block_iq1_s *b) { return fields_of_16(b->qh, 0x090c060c030c000c); }
INLINE __m512i fields_iq1_m(const struct lode_block_iq1_m *b) { return fields_of_16(b->qh, 0x0c0c080804040000); }

INLINE __m512i scales_iq1_s(const struct lode_block_iq1_s *a, const struct lode_block_iq1_s *b) {
    const __m128i qa = _mm_loadu_si128((const __m128i *)a->qh), qb = _mm_loadu_si128((const __m128i *)b->qh);
    const __m512i s = _mm512_srli_epi16(_mm512_cvtepu16_epi32(_mm256_set_m128i(qb, qa)), 12);
    return z_odd16(_mm512_and_si512(_mm512_or_si512(s, _mm512_slli_epi32(s, 16)), _mm512_set1_epi16(7)));
}
INLINE __m512i scales_iq1_m(const struct lode_block_iq1_m *a, const struct lode_block_iq1_m *b) { /* four of three bits in each 16 */
    const __m512i three = _mm512_set4_epi64(0x0039003600330030, 0x0029002600230020, 0x0019001600130010, 0x0009000600030000);
    const __m512i s = _mm512_multishift_epi64_epi8(three, z_each64(a->scales, b->scales));
    return z_odd16(_mm512_and_si512(s, _mm512_set1_epi16(7)));
}

/* ---- planes ---- */

/* What codes stand for: of two bits 0, 1, 2, of four bits 0 .. 7. */
struct levels {
    int of[8];
};
#define LEVEL(type, code) (uint8_t)(LODE_##type##_BYTES(code)) /* iq_grids.h */
#define LEVELS_3(t) {{LEVEL(t, 0), LEVEL(t, 1), LEVEL(t, 2)}}
#define LEVELS_8(t)                                                                                \
    {{LEVEL(t, 0), LEVEL(t, 1), LEVEL(t, 2), LEVEL(t, 3), LEVEL(t, 4), LEVEL(t, 5), LEVEL(t, 6), LEVEL(t, 7)}}

/* By six bits, three codes, of which the n-th counts. */
INLINE __m512i levels_of_two(struct levels l, int n) {
    const long long a = l.of[0] * ONES, b = l.of[1] * ONES, c = l.of[2] * ONES;
    if (n == 0)
        return _mm512_set1_epi32(l.of[0] | l.of[1] << 8 | l.of[2] << 16);
    return n == 1 ? _mm512_set4_epi32(0, (int)c, (int)b, (int)a) : _mm512_setr_epi64(a, a, b, b, c, c, 0, 0);
}
INLINE __m512i plane_of_8(const struct entries *o, int p, struct levels l) {
    const __m512i codes = p < 4 ? o->low : o->high;
    return p % 4 == 3 ? _mm512_permutexvar_epi8(_mm512_srli_epi16(codes, 2), levels_of_two(l, 2))
                      : _mm512_permutexvar_epi8(codes, levels_of_two(l, p % 4));
}
INLINE __m512i plane_of_4(const struct entries *o, int p, struct levels l) { /* whose bytes' top bits are clear */
    const __m512i codes = p < 2 ? o->low : o->high;
    const __m512i levels = _mm512_set4_epi32(0, 0, l.of[4] | l.of[5] << 8 | l.of[6] << 16 | l.of[7] << 24,
                                             l.of[0] | l.of[1] << 8 | l.of[2] << 16 | l.of[3] << 24);
    return _mm512_shuffle_epi8(levels, p % 2 ? _mm512_srli_epi16(codes, 4) : codes);
}

/* Where numbers of a plane are negative. */
INLINE __mmask64 plane_negative(const struct entries *o, int planes, int p) {
    const long long each = planes == 8 ? 0x3830282018100800 : 0x1c1814100c080400;
    return _mm512_bitshuffle_epi64_mask(o->signs, _mm512_set1_epi64(each + p * ONES));
}

#endif
