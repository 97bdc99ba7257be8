/* Codebook types to float32, 32 numbers at once: their codes as bytes, one table look-up, signs, then floats. */
#include "kern/iq_grids.h"

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define KERN(name) name##_avx2

/* scale * level with its sign: of ints that is the sign of the product, as no level is zero. */
static inline void put_bytes(float *y, __m128i half, __m256 scale) {
    const __m256 low = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(half));
    const __m256 high = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(half, 8)));
    _mm256_storeu_ps(y, _mm256_mul_ps(scale, low));
    _mm256_storeu_ps(y + 8, _mm256_mul_ps(scale, high));
}

static inline void put_levels(float *y, float scale0, float scale1, __m256i levels, uint32_t signs) {
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    const __m256i place = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bits = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32((int)signs), place), bit);
    const __m256i negative = _mm256_cmpeq_epi8(bits, bit);
    const __m256i v = _mm256_sub_epi8(_mm256_xor_si256(levels, negative), negative);
    put_bytes(y, _mm256_castsi256_si128(v), _mm256_set1_ps(scale0));
    put_bytes(y + 16, _mm256_extracti128_si256(v, 1), _mm256_set1_ps(scale1));
}

/* A word's nibbles one by one: shifted to the top of 16 bits by a product, then down; two codes in each. */
static inline void put_iq2(float *y, const float scale[2], uint64_t words, uint32_t signs) {
    static const int8_t levels[4] = LODE_IQ2_LEVELS;
    int32_t table;
    memcpy(&table, levels, sizeof table);
    const __m256i order = _mm256_setr_epi64x(0x0100010001000100, 0x0302030203020302, 0x0504050405040504, 0x0706070607060706);
    const __m256i up = _mm256_set1_epi64x(0x0001001001001000);
    const __m256i word = _mm256_shuffle_epi8(_mm256_set1_epi64x((int64_t)words), order);
    const __m256i two = _mm256_srli_epi16(_mm256_mullo_epi16(word, up), 12);
    const __m256i codes = _mm256_and_si256(_mm256_or_si256(two, _mm256_slli_epi16(two, 6)), _mm256_set1_epi8(3));
    put_levels(y, scale[0], scale[1], _mm256_shuffle_epi8(_mm256_set1_epi32(table), codes), signs);
}

/* The same by bytes, of two codes of four bits. */
static inline void put_iq3(float *y, float scale, const int8_t levels[8], const uint64_t words[2], uint32_t signs) {
    int64_t table;
    memcpy(&table, levels, sizeof table);
    const __m128i w = _mm_set_epi64x((int64_t)words[1], (int64_t)words[0]);
    const __m256i word = _mm256_set_m128i(_mm_unpackhi_epi16(w, w), _mm_unpacklo_epi16(w, w));
    const __m256i two = _mm256_srli_epi16(_mm256_mullo_epi16(word, _mm256_set1_epi32(0x00010100)), 8);
    const __m256i codes = _mm256_and_si256(_mm256_or_si256(two, _mm256_slli_epi16(two, 4)), _mm256_set1_epi8(7));
    put_levels(y, scale, scale, _mm256_shuffle_epi8(_mm256_set1_epi64x(table), codes), signs);
}

/* Code j of two bits to the low end of lane j; the look-up ignores what is above. */
static inline __m256 level4(const float levels[4], uint32_t word) {
    const __m256i code = _mm256_srlv_epi32(_mm256_set1_epi32((int)word), _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
    return _mm256_permutevar_ps(_mm256_broadcast_ps((const __m128 *)levels), code);
}

static inline void put_iq1(float *y, float scale, uint32_t word, float delta) {
    static const float levels[4] = LODE_IQ1_LEVELS;
    const __m256 sum = _mm256_add_ps(level4(levels, word), _mm256_set1_ps(delta));
    _mm256_storeu_ps(y, _mm256_mul_ps(_mm256_set1_ps(scale), sum));
}

#include "kern/dequant_iq.h"
