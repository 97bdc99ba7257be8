/* kv_body.h - storing rows of the KV cache, scoring keys and mixing values, over sixteen lanes (v16.h); after
 * mul_body.h, which has the formats and products. */

PRODUCT(product_q8_0, VF_Q8_0)

/* n rows of n_c numbers, from number c of each, as floats `width` apart. */
VF_INLINE void vf_widen_rows(enum vf_format f, float *wide, size_t width, const char *rows,
                             size_t stride, size_t n, size_t c, size_t n_c) {
    const size_t length = vf_step_length(f);
    for (size_t r = 0; r < n; r++) {
        size_t i = 0;
        for (; i + 16 <= n_c; i += 16)
            for (size_t at = 0; at < 16; at += VP_LANES)
                vp_store(wide + r * width + i + at,
                         vf_widen(f, rows + r * stride + (c + i) / length * vf_step_size(f),
                                  (c + i) % length + at));
        if (i < n_c)
            vf_store_n(wide + r * width + i,
                       vf_widen_n(f, rows + r * stride + (c + i) / length * vf_step_size(f),
                                  n_c - i),
                       n_c - i);
    }
}

/* From so many queries on, what is cached is widened once for all of them rather than for each tile. */
enum { VF_MANY_QUERIES = 2 * VF_TILE_COLUMNS, VF_WIDE_ROWS = 32, VF_WIDE_DIM = 256 };

VF_INLINE void vf_score(enum vf_format f, float *s, size_t lds, const float *q, size_t ldq,
                        size_t n_q, const char *k, size_t k_stride, size_t n_k, size_t dim) {
    float wide[VF_WIDE_ROWS * VF_WIDE_DIM];
    const struct vf_panels p = {(const char *)wide, (const char *)q, dim * sizeof *wide,
                                ldq * sizeof *q, 0};
    for (size_t j = 0; j < n_k; j += VF_WIDE_ROWS) {
        const size_t n = vf_least(n_k - j, VF_WIDE_ROWS);
        vf_widen_rows(f, wide, dim, k + j * k_stride, k_stride, n, 0, dim);
        product_f32(s + j, lds, &p, n, n_q, dim, NULL);
    }
}

#ifdef VF_FEW_MIX
#include "kern/kv_few.h"
#else
#define vf_few_scores(...) false
#define vf_few_mixes(...) false
#endif

#define SCORE(name, product, format)                                                               \
    void ISA(name) LODE_KV_SCORE_ARGS {                                                            \
        const struct vf_panels p = {k, (const char *)q, k_stride, ldq * sizeof *q, 0};             \
        if (format != VF_F32 && n_q >= VF_MANY_QUERIES && dim <= VF_WIDE_DIM)                      \
            vf_score(format, s, lds, q, ldq, n_q, k, k_stride, n_k, dim);                          \
        else if (!vf_few_scores(format, s, lds, q, ldq, n_q, k, k_stride, n_k, dim, next))         \
            product(s, lds, &p, n_k, n_q, dim, next);                                              \
    }
SCORE(kv_score_f32, product_f32, VF_F32)
SCORE(kv_score_f16, product_f16, VF_F16)
SCORE(kv_score_bf16, product_bf16, VF_BF16)
SCORE(kv_score_q8_0, product_q8_0, VF_Q8_0)

void ISA(kv_put_f16)(void *y, const float *x, size_t n) {
    uint16_t *out = y;
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        vf_store_f16(out + i, vf_load(x + i), 16);
    if (i < n)
        vf_store_f16(out + i, vf_load_n(x + i, n - i, 0.0f), n - i);
}

void ISA(kv_put_bf16)(void *y, const float *x, size_t n) {
    uint16_t *out = y;
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        vf_store_bf16(out + i, vf_load(x + i), 16);
    if (i < n)
        vf_store_bf16(out + i, vf_load_n(x + i, n - i, 0.0f), n - i);
}

/* V times sixteen numbers from number c of a row, or only n < 16 of them (V is 1). */
VF_INLINE void vf_mix_load(VF wide[8], enum vf_format f, size_t V, size_t n, const char *row,
                           size_t c) {
    const size_t length = vf_step_length(f);
    for (size_t b = 0; b < V; b++) {
        const char *p = row + (c + 16 * b) / length * vf_step_size(f);
        if (n < 16)
            wide[b] = vf_widen_n(f, p, n);
        else
            for (size_t i = 0; i < VF_PARTS; i++)
                wide[b].v[i] = vf_widen(f, p, (c + 16 * b) % length + i * VP_LANES);
    }
}

enum { VF_MIX_MOST = 6 };

/* The lines of row j from number c on that V vectors of sixteen numbers end in, some rows ahead. */
VF_INLINE void vf_mix_ahead(enum vf_format f, size_t V, const char *v, size_t v_stride, size_t j,
                            size_t c, size_t n_rows, const char *next) {
    const size_t length = vf_step_length(f), size = vf_step_size(f);
    const size_t from = (c / length * size + 63) & ~(size_t)63;
    const size_t to = (c + 16 * V) / length * size;
    if (from < to)
        vf_ahead(v, j * v_stride + from, to - from, n_rows * v_stride, next);
}

/* A tile of Q queries by V vectors of sixteen numbers, from number c on, over the chunk's values.
 * Where the queries' ranges [lo, hi) overlap all of them share what was read; before and after,
 * each looks whether the position is its own.  n < 16: only so many numbers (V is 1). */
VF_INLINE void vf_mix_tile(enum vf_format f, size_t Q, size_t V, size_t n, float *o, size_t ldo,
                           const float *p, size_t ldp, const uint32_t *lo, const uint32_t *hi,
                           const char *v, size_t v_stride, size_t c, bool ahead,
                           const char *next) {
    VF acc[VF_MIX_MOST][8], wide[8];
    size_t first = lo[0], last = hi[0], all_from = lo[0], all_to = hi[0];
    for (size_t q = 0; q < Q; q++) {
        for (size_t b = 0; b < V; b++)
            acc[q][b] = vf_set(0);
        first = lo[q] < first ? lo[q] : first;
        last = hi[q] > last ? hi[q] : last;
        all_from = lo[q] > all_from ? lo[q] : all_from;
        all_to = hi[q] < all_to ? hi[q] : all_to;
    }
    if (all_from >= all_to)
        all_from = all_to = last;
    for (size_t j = first; j < last;) {
        for (; j < all_from || (j >= all_to && j < last); j++)
            for (size_t q = 0; q < Q; q++) {
                if (j < lo[q] || j >= hi[q])
                    continue;
                const VF weight = vf_set(p[q * ldp + j]);
                vf_mix_load(wide, f, V, n, v + j * v_stride, c);
                for (size_t b = 0; b < V; b++)
                    acc[q][b] = vf_fma(weight, wide[b], acc[q][b]);
            }
        for (; j >= all_from && j < all_to; j++) {
            if (ahead)
                vf_mix_ahead(f, V, v, v_stride, j, c, last, next);
            vf_mix_load(wide, f, V, n, v + j * v_stride, c);
            for (size_t q = 0; q < Q; q++) {
                const VF weight = vf_set(p[q * ldp + j]);
                for (size_t b = 0; b < V; b++)
                    acc[q][b] = vf_fma(weight, wide[b], acc[q][b]);
            }
        }
    }
    for (size_t q = 0; q < Q; q++)
        for (size_t b = 0; b < V; b++) {
            if (n < 16)
                vf_store_n(o + q * ldo + c, acc[q][b], n);
            else
                vf_store(o + q * ldo + c + 16 * b, acc[q][b]);
        }
}

/* All numbers of Q queries. */
VF_INLINE void vf_mix_row(enum vf_format f, size_t Q, float *o, size_t ldo, const float *p,
                          size_t ldp, const uint32_t *lo, const uint32_t *hi, const char *v,
                          size_t v_stride, size_t dim, bool ahead, const char *next) {
    size_t c = 0;
#define GROUP(V)                                                                                   \
    if (Q * V <= VF_MIX_TILE)                                                                      \
        for (; c + 16 * V <= dim; c += 16 * V)                                                     \
            vf_mix_tile(f, Q, V, 16, o, ldo, p, ldp, lo, hi, v, v_stride, c, ahead, next);
    GROUP(8)
    GROUP(4)
    GROUP(2)
    GROUP(1)
#undef GROUP
    if (c < dim)
        vf_mix_tile(f, Q, 1, dim - c, o, ldo, p, ldp, lo, hi, v, v_stride, c, false, NULL);
}

VF_INLINE void vf_mix(enum vf_format f, float *o, size_t ldo, const float *p, size_t ldp,
                      const uint32_t *lo, const uint32_t *hi, size_t n_q, const char *v,
                      size_t v_stride, size_t dim, const char *next) {
    size_t i = 0;
    /* Two queries and many numbers rather than four and half as many: whole rows are read in one
     * pass, which is what memory likes.  Not where widening costs more than reading. */
    const size_t most = f == VF_Q8_0 ? 4 : 2;
#define GROUP(Q)                                                                                   \
    for (; Q <= most && i + Q <= n_q; i += Q)                                                      \
        vf_mix_row(f, Q, o + i * ldo, ldo, p + i * ldp, ldp, lo + i, hi + i, v, v_stride, dim,     \
                   i == 0, next);
    GROUP(4)
    GROUP(2)
    GROUP(1)
#undef GROUP
}

/* Many queries: VF_WIDE_NUMBERS of each position are widened for all of them. */
enum { VF_WIDE_POSITIONS = 64, VF_WIDE_NUMBERS = 64 };

/* n <= VF_WIDE_NUMBERS numbers of all queries from widened rows: once for all formats. */
static void mix_widened(float *o, size_t ldo, const float *p, size_t ldp, const uint32_t *lo,
                        const uint32_t *hi, size_t n_q, const char *rows, size_t n) {
    const size_t stride = VF_WIDE_NUMBERS * sizeof(float);
    size_t i = 0, b;
#define TILE(Q, V)                                                                                 \
    for (; b + 16 * V <= n; b += 16 * V)                                                           \
        vf_mix_tile(VF_F32, Q, V, 16, o + i * ldo, ldo, p + i * ldp, ldp, lo + i, hi + i, rows,    \
                    stride, b, false, NULL);
#define QUERIES(Q, V)                                                                              \
    for (; i + Q <= n_q; i += Q) {                                                                 \
        b = 0;                                                                                     \
        TILE(Q, V)                                                                                 \
        TILE(Q, 1)                                                                                 \
        if (b < n)                                                                                 \
            vf_mix_tile(VF_F32, Q, 1, n - b, o + i * ldo, ldo, p + i * ldp, ldp, lo + i, hi + i,   \
                        rows, stride, b, false, NULL);                                             \
    }
    QUERIES(VF_MIX_MOST, VF_MIX_VECTORS)
    QUERIES(2, VF_MIX_VECTORS)
    QUERIES(1, VF_MIX_VECTORS)
#undef QUERIES
#undef TILE
}

VF_INLINE void vf_mix_many(enum vf_format f, float *o, size_t ldo, const float *p, size_t ldp,
                           const uint32_t *lo, const uint32_t *hi, size_t n_q, size_t first,
                           size_t last, const char *v, size_t v_stride, size_t dim) {
    float wide[VF_WIDE_POSITIONS * VF_WIDE_NUMBERS];
    /* tiles count positions from 0 on: none before `first` is looked at */
    const char *rows = (const char *)wide - first * VF_WIDE_NUMBERS * sizeof *wide;
    for (size_t c = 0; c < dim; c += VF_WIDE_NUMBERS) {
        const size_t n = vf_least(dim - c, VF_WIDE_NUMBERS);
        vf_widen_rows(f, wide, VF_WIDE_NUMBERS, v + first * v_stride, v_stride, last - first, c, n);
        mix_widened(o + c, ldo, p, ldp, lo, hi, n_q, rows, n);
    }
}

/* The positions that any query attends to, [*first, *last). */
VF_INLINE void vf_mix_range(const uint32_t *lo, const uint32_t *hi, size_t n_q, size_t *first,
                            size_t *last) {
    *first = SIZE_MAX;
    *last = 0;
    for (size_t i = 0; i < n_q; i++)
        if (lo[i] < hi[i]) {
            *first = vf_least(*first, lo[i]);
            *last = hi[i] > *last ? hi[i] : *last;
        }
}

#define MIX(name, format)                                                                          \
    void ISA(name) LODE_KV_MIX_ARGS {                                                              \
        size_t first, last;                                                                        \
        if (n_q >= VF_MANY_QUERIES) {                                                              \
            vf_mix_range(lo, hi, n_q, &first, &last);                                              \
            if (last > first && last - first <= VF_WIDE_POSITIONS) {                               \
                vf_mix_many(format, o, ldo, p, ldp, lo, hi, n_q, first, last, v, v_stride, dim);   \
                return;                                                                            \
            }                                                                                      \
        }                                                                                          \
        if (!vf_few_mixes(format, o, ldo, p, ldp, lo, hi, n_q, v, v_stride, dim, next))            \
            vf_mix(format, o, ldo, p, ldp, lo, hi, n_q, v, v_stride, dim, next);                   \
    }
MIX(kv_mix_f32, VF_F32)
MIX(kv_mix_f16, VF_F16)
MIX(kv_mix_bf16, VF_BF16)
MIX(kv_mix_q8_0, VF_Q8_0)
