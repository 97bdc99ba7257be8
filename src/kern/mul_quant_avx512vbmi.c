/* Products of codebook types with few columns, two rows after two rows, whose entries are looked up 64 at a time
 * (codes_vbmi.h); with more they are mul_quant_avx512vnni.c's. */
#include "kern/vec_avx512vnni.h"

#include "kern/codes_vbmi.h"
#include "kern/mul_shape.h"

enum {
    FEW = 4,        /* columns at a time, */
    MOST = 8,       /* and as many as are not better multiplied by tiles, of IQ1 FEW */
    BLOCKS = 16,    /* of a row at a time with one column, */
    BLOCKS_FEW = 8, /* and with more: what a tile's rows come to stays in the first level */
};

/* A block of a column. */
struct column {
    uint8_t q[256];   /* in planes */
    __m512i m;        /* multipliers where scales are */
    __m512i entries;  /* of IQ1: each entry's numbers' sum */
    float d;
};
/* Rows of a tile with a block of a column: two rows a half each. */
struct tile_sums {
    __m512i of[LANES / 2];
};

/* How the numbers of a type are summed: `planes` (1: as they lie), of which the pairs of `run` fit 16 bits together; 0: four
 * entries that follow one another have one scale, which their sums meet in 32 bits. */
struct form {
    int planes, run;
    struct levels levels;
};

/* ---- columns ---- */

/* 64 numbers, those of the same place in their entries (of `planes` numbers) side by side. */
INLINE __m512i split_64(const int8_t *q, int planes) {
    const __m512i by8 = _mm512_set_epi64(0x3f372f271f170f07, 0x3e362e261e160e06, 0x3d352d251d150d05, 0x3c342c241c140c04,
                                         0x3b332b231b130b03, 0x3a322a221a120a02, 0x3931292119110901, 0x3830282018100800);
    const __m512i by4 = _mm512_set_epi64(0x3f3b37332f2b2723, 0x1f1b17130f0b0703, 0x3e3a36322e2a2622, 0x1e1a16120e0a0602,
                                         0x3d3935312d292521, 0x1d1915110d090501, 0x3c3834302c282420, 0x1c1814100c080400);
    return _mm512_permutexvar_epi8(planes == 8 ? by8 : by4, z_load(q));
}

/* Numbers of a plane from each of z side by side: of planes 2 i and 2 i + 1 in q's i-th 64 bytes, or of plane i. */
INLINE void join_planes(uint8_t q[256], const __m512i z[4], int planes) {
    __m512i out[4];
    for (int i = 0; i < 2 && planes == 8; i++) { /* 64 bits of each */
        const __m512i pairs = _mm512_setr_epi64(4 * i, 4 * i + 8, 4 * i + 1, 4 * i + 9, 4 * i + 2, 4 * i + 10, 4 * i + 3, 4 * i + 11);
        const __m512i a = _mm512_permutex2var_epi64(z[0], pairs, z[1]), b = _mm512_permutex2var_epi64(z[2], pairs, z[3]);
        out[2 * i] = _mm512_permutex2var_epi64(a, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), b);
        out[2 * i + 1] = _mm512_permutex2var_epi64(a, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), b);
    }
    if (planes == 4)
        v_turn_quarters((V *)out, (const V *)z);
    memcpy(q, out, 256);
}

INLINE __m512i sums_of_8(const __m512i z[4]) { /* as int16 */
    __m128i sums[4];
    for (int i = 0; i < 4; i++) { /* of bytes that are 128 more */
        const __m512i more = _mm512_sad_epu8(_mm512_xor_si512(z[i], _mm512_set1_epi8(-128)), _mm512_setzero_si512());
        sums[i] = _mm_sub_epi16(_mm512_cvtepi64_epi16(more), _mm_set1_epi16(8 * 128));
    }
    return z_load(sums);
}

INLINE void put_column(struct form f, struct column *out, const struct lode_block_a256 *a) {
    __m512i z[4];
    long long m;
    for (int i = 0; i < 4; i++)
        z[i] = f.planes == 1 ? z_load(a->q + 64 * i) : split_64(a->q + 64 * i, f.planes);
    if (f.planes == 1) {
        memcpy(out->q, z, sizeof z);
        out->entries = sums_of_8(z);
    } else {
        join_planes(out->q, z, f.planes);
    }
    memcpy(&m, a->m, 8);
    const __m512i by8 = _mm512_set4_epi64(0x0707070706060606, 0x0505050504040404, 0x0303030302020202, 0x0101010100000000);
    const __m512i by4 = _mm512_setr_epi64(0, ONES, 2 * ONES, 3 * ONES, 4 * ONES, 5 * ONES, 6 * ONES, 7 * ONES);
    out->m = _mm512_maskz_permutexvar_epi8(f.run ? 0x5555555555555555 : 0x1111111111111111, f.planes == 4 ? by4 : by8,
                                           _mm512_set1_epi64(m));
    out->d = a->d;
}

/* ---- a block of two rows ---- */

/* The sums of two rows' blocks with a block of each column; the half of a block. */
typedef void two_rows(__m512i sums[FEW], const uint8_t *a, const uint8_t *b, const struct column *const x[FEW], size_t n);
typedef uint16_t half_of(const uint8_t *block);

INLINE __m512i plane_of(struct form f, const struct entries *o, int p) {
    return f.planes == 8 ? plane_of_8(o, p, f.levels) : plane_of_4(o, p, f.levels);
}
INLINE __m512i column_plane(struct form f, const struct column *x, int p) {
    if (f.planes == 4)
        return z_load(x->q + 64 * p);
    return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(x->q + 32 * p)));
}

/* sums[j]: of the entries with the block of column j. */
INLINE void dot_entries(struct form f, __m512i sums[FEW], const struct entries *o, const struct column *const x[FEW], size_t n) {
    __m512i by[FEW], run[FEW];
    UNROLL for (size_t j = 0; j < n; j++) {
        by[j] = _mm512_mullo_epi16(o->scales, x[j]->m);
        sums[j] = _mm512_setzero_si512();
    }
    UNROLL for (int p = 0; p < f.planes; p++) {
        const __m512i plane = plane_of(f, o, p);
        const __mmask64 negative = plane_negative(o, f.planes, p);
        UNROLL for (size_t j = 0; j < n; j++) {
            const __m512i q = column_plane(f, x[j], p), x_of = _mm512_mask_sub_epi8(q, negative, _mm512_setzero_si512(), q);
            if (f.run == 0) {
                sums[j] = _mm512_dpbusd_epi32(sums[j], plane, x_of);
                continue;
            }
            const __m512i pairs = _mm512_maddubs_epi16(plane, x_of);
            run[j] = p % f.run == 0 ? pairs : _mm512_add_epi16(run[j], pairs);
            if (p % f.run == f.run - 1 || p == f.planes - 1)
                sums[j] = _mm512_dpwssd_epi32(sums[j], run[j], by[j]);
        }
    }
    UNROLL for (size_t j = 0; j < n; j++)
        sums[j] = f.run ? sums[j] : _mm512_mullo_epi32(sums[j], by[j]);
}

/* The sums of two rows a half each. */
INLINE __m512i two_halves(__m512i a, __m512i b) { return (__m512i)v_add_pairs((V)a, (V)b); }

#define TWO_ROWS(name, ...)                                                                        \
    static const struct form form_##name = {__VA_ARGS__};                                          \
    INLINE void rows_##name(__m512i sums[FEW], const uint8_t *a, const uint8_t *b, const struct column *const x[FEW], \
                            size_t n) {                                                            \
        const struct form f = form_##name;                                                         \
        struct entries o;                                                                          \
        entries_##name(&o, (const struct lode_block_##name *)a, (const struct lode_block_##name *)b); \
        dot_entries(f, sums, &o, x, n);                                                            \
        if (f.planes == 4) {                                                                       \
            __m512i second[FEW];                                                                   \
            entries_##name(&o, (const struct lode_block_##name *)b, (const struct lode_block_##name *)b); \
            dot_entries(f, second, &o, x, n);                                                      \
            for (size_t j = 0; j < n; j++)                                                         \
                sums[j] = two_halves(sums[j], second[j]);                                          \
        }                                                                                          \
    }
TWO_ROWS(iq2_xxs, 8, 0, LEVELS_3(IQ2))
TWO_ROWS(iq2_xs, 8, 3, LEVELS_3(IQ2))
TWO_ROWS(iq2_s, 8, 3, LEVELS_3(IQ2))
TWO_ROWS(iq3_xxs, 4, 0, LEVELS_8(IQ3_XXS))
TWO_ROWS(iq3_s, 4, 0, LEVELS_8(IQ3_S))

/* Word i of a vector of both rows' scales: that of number 8 i (of all) or 64 part + 2 i of the row's. */
INLINE __m512i each_scale(__m512i by, int row, int part) {
    uint16_t at[32];
    UNROLL for (int i = 0; i < 16; i++) {
        at[2 * i] = (uint16_t)(16 * row + (part < 0 ? i : 4 * part + i / 4));
        at[2 * i + 1] = at[2 * i];
    }
    return _mm512_permutexvar_epi16(z_load(at), by);
}

/* Of a row's block of IQ1 (0 or 1, of two rows): bytes of entries are 9 more than what they stand for, 7 where delta's sign is
 * clear. */
INLINE void dot_iq1(__m512i sums[FEW], const uint8_t qs[32], __m512i fields, int row, const __m512i by[FEW],
                    const struct column *const x[FEW], size_t n) {
    uint16_t at[32];
    const __m512i high = _mm512_and_si512(fields, _mm512_set1_epi16(CODES_HIGH));
    const __m512i delta = _mm512_and_si512(fields, _mm512_set1_epi16(CODES_DELTA));
    const __m512i more = _mm512_sub_epi16(_mm512_set1_epi16(CODES_PLUS - 9), _mm512_srli_epi16(delta, 2));
    _mm512_storeu_si512(at, _mm512_or_si512(_mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)qs)), high));
    UNROLL for (size_t j = 0; j < n; j++)
        sums[j] = _mm512_dpwssd_epi32(_mm512_setzero_si512(), _mm512_mullo_epi16(more, x[j]->entries), each_scale(by[j], row, -1));
    UNROLL for (int part = 0; part < 4; part++) {
        const __m256i places = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(at + 8 * part)));
        const __m512i bytes = _mm512_i32gather_epi64(places, lode_grid_iq1, 8);
        UNROLL for (size_t j = 0; j < n; j++)
            sums[j] = _mm512_dpwssd_epi32(sums[j], _mm512_maddubs_epi16(bytes, z_load(x[j]->q + 64 * part)),
                                          each_scale(by[j], row, part));
    }
}
#define TWO_ROWS_IQ1(name)                                                                         \
    static const struct form form_##name = {.planes = 1, .run = 1};                                \
    INLINE void rows_##name(__m512i sums[FEW], const uint8_t *a, const uint8_t *b, const struct column *const x[FEW], \
                            size_t n) {                                                            \
        const struct lode_block_##name *first = (const struct lode_block_##name *)a;               \
        const struct lode_block_##name *second = (const struct lode_block_##name *)b;              \
        const __m512i scales = scales_##name(first, second);                                       \
        __m512i by[FEW], of_second[FEW];                                                           \
        for (size_t j = 0; j < n; j++)                                                             \
            by[j] = _mm512_mullo_epi16(scales, x[j]->m);                                           \
        dot_iq1(sums, first->qs, fields_##name(first), 0, by, x, n);                               \
        dot_iq1(of_second, second->qs, fields_##name(second), 1, by, x, n);                        \
        for (size_t j = 0; j < n; j++)                                                             \
            sums[j] = two_halves(sums[j], of_second[j]);                                           \
    }
TWO_ROWS_IQ1(iq1_s)
TWO_ROWS_IQ1(iq1_m)

/* ---- a tile ---- */

/* Lane i: the sum of row i. */
INLINE V sums_of_rows(const struct tile_sums *t) {
    const V *v = (const V *)t->of;
    const __m512i a = (__m512i)v_add_fours(v), b = (__m512i)v_add_fours(v + 4); /* rows 0, 2, 4, 6 twice, 1, 3, 5, 7 twice */
    const __m512i order = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    return (V)_mm512_permutexvar_epi32(order, two_halves(a, b));
}

/* n <= FEW columns, a constant; while a row has blocks left, y keeps what came before. */
INLINE void mul_few(struct form f, two_rows *two, half_of *half, float per, size_t size, float *y, size_t ldy, const uint8_t *w,
                    size_t w_stride, size_t n_w, const uint8_t *x, size_t x_stride, size_t n, size_t k) {
    const size_t most = n == 1 ? BLOCKS : BLOCKS_FEW, n_blocks = k / 256;
    for (size_t from = 0; from < n_blocks; from += most) {
        const size_t n_now = n_blocks - from < most ? n_blocks - from : most;
        struct column column[FEW * BLOCKS_FEW];
        struct tile_sums sums[FEW * BLOCKS_FEW];
        uint16_t d[BLOCKS][LANES];
        for (size_t j = 0; j < n; j++)
            for (size_t b = 0; b < n_now; b++)
                put_column(f, &column[j * most + b], (const struct lode_block_a256 *)(x + j * x_stride) + from + b);
        for (size_t i = 0; i < n_w; i += LANES) {
            const int n_rows = rows_left(n_w, i);
            const struct rows rows = tile_rows(w + i * w_stride + from * size, w_stride, n_rows);
            for (int pair = 0; pair < LANES / 2; pair++)
                for (size_t b = 0; b < n_now; b++) {
                    const uint8_t *first = rows.p[2 * pair] + b * size, *second = rows.p[2 * pair + 1] + b * size;
                    const struct column *columns[FEW];
                    __m512i of[FEW];
                    for (size_t j = 0; j < n; j++)
                        columns[j] = &column[j * most + b];
                    ask_ahead(first, size);
                    ask_ahead(second, size);
                    two(of, first, second, columns, n);
                    for (size_t j = 0; j < n; j++)
                        sums[j * most + b].of[pair] = of[j];
                    d[b][2 * pair] = half(first);
                    d[b][2 * pair + 1] = half(second);
                }
            for (size_t j = 0; j < n; j++) {
                F acc = f_zero();
                if (from > 0)
                    memcpy(&acc, y + j * ldy + i, (size_t)n_rows * sizeof(float));
                for (size_t b = 0; b < n_now; b++) {
                    const F halves = (F)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)d[b])), by = halves * (1.0f / per);
                    acc = f_fma(by * f_set(column[j * most + b].d), f_int(sums_of_rows(&sums[j * most + b])), acc);
                }
                f_store(y + j * ldy + i, n_rows, acc);
            }
        }
    }
}

/* Functions of their own, as mul_tile.h's. */
#define COLUMNS(n, name, per)                                                                      \
    static __attribute__((noinline)) void few_##name##_##n(float *y, size_t ldy, const uint8_t *w, size_t w_stride, size_t n_w, \
                                                           const uint8_t *x, size_t x_stride, size_t k) { \
        mul_few(form_##name, rows_##name, half_of_##name, per, sizeof(struct lode_block_##name), y, ldy, w, w_stride, n_w, \
                x, x_stride, n, k);                                                                \
    }
#define HALF(name, ...)                                                                            \
    INLINE uint16_t half_of_##name(const uint8_t *block) { return half_##name((const struct lode_block_##name *)block); }
LODE_GRID_LIST(HALF)
#define MUL(name, per)                                                                             \
    COLUMNS(1, name, per)                                                                          \
    COLUMNS(2, name, per)                                                                          \
    COLUMNS(3, name, per)                                                                          \
    COLUMNS(4, name, per)                                                                          \
    void mul_##name##_avx512vbmi LODE_MUL_ARGS {                                                   \
        typedef void few(float *, size_t, const uint8_t *, size_t, size_t, const uint8_t *, size_t, size_t); \
        static few *const of[FEW + 1] = {NULL, few_##name##_1, few_##name##_2, few_##name##_3, few_##name##_4}; \
        if (k == 0 || n_x > (form_##name.planes == 1 ? FEW : MOST)) {                              \
            mul_##name##_avx512vnni(y, ldy, w, w_stride, n_w, x, x_stride, n_x, k);                \
            return;                                                                                \
        }                                                                                          \
        for (size_t j = 0; j < n_x; j += FEW)                                                      \
            of[n_x - j < FEW ? n_x - j : FEW](y + j * ldy, ldy, w, w_stride, n_w, (const uint8_t *)x + j * x_stride, x_stride, k); \
    }
#define MUL_OF(name, type, groups, most, per, ...) MUL(name, per)
LODE_GRID_LIST(MUL_OF)

/* One column of TQ1_0: mul_one_ternary.h, which has the least instructions for its digits. */
void mul_tq1_0_avx512vbmi LODE_MUL_ARGS {
    if (n_x == 1)
        mul_tq1_0_avx2(y, ldy, w, w_stride, n_w, x, x_stride, n_x, k);
    else
        mul_tq1_0_avx512vnni(y, ldy, w, w_stride, n_w, x, x_stride, n_x, k);
}
