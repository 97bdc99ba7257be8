/* mul_body.h - products of rows that are widened to F32 as they are read: mul_f32, mul_f16,
 * mul_bf16, mul_e4m3, mul_e5m2, and kv_score, which is the same thing with keys for weights. */
#include "kern/isa.h"

#define VF_INLINE static inline __attribute__((always_inline))

/* Formats as compile-time constants: each use is inlined and the switch disappears. */
enum vf_format { VF_F32, VF_F16, VF_BF16, VF_Q8_0, VF_E4M3, VF_E5M2 };

/* ... with a scale for 32 numbers, so that there are whole steps only. */
VF_INLINE bool vf_scaled(enum vf_format f) { return f >= VF_Q8_0; }

/* Numbers in a step of the loops: what shares a scale is widened together. */
VF_INLINE size_t vf_step_length(enum vf_format f) { return vf_scaled(f) ? 32 : 16; }
/* ... and their bytes. */
VF_INLINE size_t vf_step_size(enum vf_format f) {
    switch (f) {
    case VF_F32:
        return 64;
    case VF_F16:
    case VF_BF16:
        return 32;
    case VF_Q8_0: /* { half d; int8_t q[32] } */
        return 34;
    case VF_E4M3:
    case VF_E5M2: /* { float d; uint8_t q[32] } */
        return 36;
    }
    return 0;
}

/* One register of numbers, from `at` on in the step at p. */
VF_INLINE VP vf_widen(enum vf_format f, const char *p, size_t at) {
    switch (f) {
    case VF_F32:
        return vp_load((const float *)p + at);
    case VF_F16:
        return vp_load_f16(p + 2 * at);
    case VF_BF16:
        return vp_load_bf16(p + 2 * at);
    case VF_Q8_0:
        return vp_mul(vp_load_i8(p + 2 + at), vp_set_f16(p));
    case VF_E4M3:
        return vp_mul(vp_load_e4m3(p + 4 + at), vp_set(*(const float *)p));
    case VF_E5M2:
        return vp_mul(vp_load_e5m2(p + 4 + at), vp_set(*(const float *)p));
    }
    return vp_set(0);
}

/* The first n < 16 numbers of a step; the other lanes are +0.  (q8_0 has whole blocks only.) */
VF_INLINE VF vf_widen_n(enum vf_format f, const char *p, size_t n) {
    switch (f) {
    case VF_F32:
        return vf_load_n((const float *)p, n, 0.0f);
    case VF_F16:
        return vf_load_f16_n(p, n);
    case VF_BF16:
        return vf_load_bf16_n(p, n);
    case VF_Q8_0:
    case VF_E4M3:
    case VF_E5M2:
        break;
    }
    return vf_set(0);
}

enum { VF_ROWS_MAX = VF_ROWS_1 > VF_TILE_ROWS ? VF_ROWS_1 : VF_TILE_ROWS };

/* What all tiles of a product share. */
struct vf_panels {
    const char *w, *x;
    size_t w_stride, x_stride;
};

/* acc[r][c] += < w row i + r, x row j + c > over k0 <= l < k1 (k0 a multiple of 32); R and C are
 * constants, so that acc lives in registers. */
VF_INLINE void vf_tile(VF acc[VF_ROWS_MAX][VF_TILE_COLUMNS], enum vf_format f, size_t R, size_t C,
                       const struct vf_panels *p, size_t i, size_t j, size_t k0, size_t k1,
                       bool ahead) {
    const size_t length = vf_step_length(f), size = vf_step_size(f);
    const size_t w_stride = p->w_stride, x_stride = p->x_stride;
    const char *w = p->w + i * w_stride + k0 / length * size;
    const char *x = p->x + j * x_stride + k0 * sizeof(float);
    size_t left = k1 - k0;
    for (size_t done = 0; left >= length; done += size, left -= length) {
        if (ahead) /* Read at memory's speed.  The hardware's prefetchers start anew with every
            row, so these rows' steps ask for the next ones, from end to end. */
            for (size_t b = 0; b < size * R; b += 64)
                vf_prefetch_rows(w - done + R * w_stride + done * R + b);
        /* register by register: a whole step of weights would crowd out accumulators */
        for (size_t at = 0; at < length; at += VP_LANES) {
            VP wide[VF_ROWS_MAX];
            for (size_t r = 0; r < R; r++)
                wide[r] = vf_widen(f, w + r * w_stride, at);
            for (size_t c = 0; c < C; c++) {
                VP col = vp_load((const float *)(x + c * x_stride) + at);
                if (R > 1) /* gcc would load it again for each row */
                    col = vp_held(col);
                for (size_t r = 0; r < R; r++) {
                    VP *lanes = &acc[r][c].v[at / VP_LANES % VF_PARTS];
                    *lanes = vp_fma(wide[r], col, *lanes);
                }
            }
        }
        w += size;
        x += length * sizeof(float);
    }
    if (left && !vf_scaled(f)) {
        VF wide[VF_ROWS_MAX];
        for (size_t r = 0; r < R; r++)
            wide[r] = vf_widen_n(f, w + r * w_stride, left);
        for (size_t c = 0; c < C; c++) {
            const VF col = vf_load_n((const float *)(x + c * x_stride), left, -0.0f);
            for (size_t r = 0; r < R; r++)
                acc[r][c] = vf_fma(wide[r], col, acc[r][c]);
        }
    }
}

static inline size_t vf_least(size_t a, size_t b) { return a < b ? a : b; }

/* Short rows - keys, which a tile reads side by side - look like no stream to the hardware, and
 * come from memory at a third of its speed.  So lines are asked for in order, VF_AHEAD bytes before
 * they are needed: n from byte `at` on of rows that end at byte `end` and go on at `next`, which has
 * as many bytes: what comes after it is not known here, so nobody looks further. */
enum { VF_SHORT_ROW = 1024 };
VF_INLINE void vf_ahead(const char *rows, size_t at, size_t n, size_t end, const char *next) {
    const size_t ahead = at + vf_least(VF_AHEAD, end);
    const char *from = ahead < end ? rows : next;
    if (!from)
        return;
    from += ahead < end ? ahead : ahead - end;
    for (size_t b = 0; b < n; b += 64)
        vf_prefetch(from + b);
}

/* A product is walked in blocks, so that what a tile reads comes from the first cache: columns of
 * VF_BLOCK_K numbers stay while the rows of the block pass by.  Between blocks of k the lanes of
 * every (row, column) wait in `sums`.  None of this changes the order within a lane. */
enum { VF_BLOCK_K = 1024, VF_BLOCK_ROWS = 32, VF_BLOCK_COLUMNS = 24 };
_Static_assert(VF_BLOCK_ROWS % VF_TILE_ROWS == 0 && VF_BLOCK_COLUMNS % VF_TILE_COLUMNS == 0, "");

struct vf_walk {
    struct vf_panels p;
    float *y;
    size_t ldy, k;
    size_t i, j, k0, k1; /* this tile */
    size_t end;          /* of short rows, in bytes: they are asked for ahead; or 0 */
    const char *next;    /* what is read after them, or NULL */
    VF *sums;            /* of this tile, rows VF_BLOCK_COLUMNS apart */
};

VF_INLINE void vf_step(enum vf_format f, size_t R, size_t C, const struct vf_walk *t) {
    VF acc[VF_ROWS_MAX][VF_TILE_COLUMNS];
    for (size_t r = 0; r < R; r++)
        for (size_t c = 0; c < C; c++)
            acc[r][c] = t->k0 ? t->sums[r * VF_BLOCK_COLUMNS + c] : vf_set(0);
    if (t->end && t->j == 0)
        vf_ahead(t->p.w, t->i * t->p.w_stride, R * t->p.w_stride, t->end, t->next);
    vf_tile(acc, f, R, C, &t->p, t->i, t->j, t->k0, t->k1, C == 1 && !t->end);
    for (size_t c = 0; c < C; c++) {
        if (t->k1 < t->k) {
            for (size_t r = 0; r < R; r++)
                t->sums[r * VF_BLOCK_COLUMNS + c] = acc[r][c];
            continue;
        }
        float *y = t->y + (t->j + c) * t->ldy + t->i;
        size_t r = 0;
        for (; r + VF_TILE_ROWS <= R; r += VF_TILE_ROWS) {
            VF column[VF_TILE_ROWS];
            for (size_t i = 0; i < VF_TILE_ROWS; i++)
                column[i] = acc[r + i][c];
            vf_join_rows(y + r, column);
        }
        for (; r < R; r++)
            y[r] = vf_join(acc[r][c]);
    }
}

VF_INLINE void vf_rows(enum vf_format f, size_t C, struct vf_walk *t, size_t n_rows) {
    const size_t R = C == 1 ? VF_ROWS_1 : VF_TILE_ROWS;
    size_t r = 0;
    for (; r + R <= n_rows; r += R) {
        vf_step(f, R, C, t);
        t->i += R;
        t->sums += R * VF_BLOCK_COLUMNS;
    }
    for (; r < n_rows; r++) {
        vf_step(f, 1, C, t);
        t->i++;
        t->sums += VF_BLOCK_COLUMNS;
    }
}

/* y[j * ldy + i] = < w row i, x row j >, as mul of kern.h */
VF_INLINE void vf_product(enum vf_format f, float *y, size_t ldy, const struct vf_panels *p,
                          size_t n_w, size_t n_x, size_t k, const char *next) {
    VF sums[VF_BLOCK_ROWS * VF_BLOCK_COLUMNS];
    struct vf_walk t = {.p = *p, .y = y, .ldy = ldy, .k = k, .next = next};
    /* a few columns are in the cache anyway; and rows should then be read from end to end */
    const bool few = n_x <= 2 * VF_TILE_COLUMNS;
    const size_t block_k = few ? k : VF_BLOCK_K;
    t.end = few && p->w_stride <= VF_SHORT_ROW ? n_w * p->w_stride : 0;
    for (size_t i = 0; i < n_w; i += VF_BLOCK_ROWS)
        for (size_t j = 0; j < n_x; j += VF_BLOCK_COLUMNS) {
            const size_t rows = vf_least(n_w - i, VF_BLOCK_ROWS);
            const size_t columns = vf_least(n_x - j, VF_BLOCK_COLUMNS);
            t.k1 = 0;
            do { /* once if k is 0 */
                t.k0 = t.k1;
                t.k1 = vf_least(k, t.k0 + block_k);
                for (size_t c = 0; c < columns; c += VF_TILE_COLUMNS) {
                    t.i = i;
                    t.j = j + c;
                    t.sums = sums + c;
                    switch (vf_least(columns - c, VF_TILE_COLUMNS)) {
#define COLUMNS(C)                                                                                 \
    case C:                                                                                        \
        vf_rows(f, C, &t, rows);                                                                   \
        break;
                        COLUMNS(1)
                        COLUMNS(2)
                        COLUMNS(3)
#if VF_TILE_COLUMNS > 3
                        COLUMNS(4)
                        COLUMNS(5)
                        COLUMNS(6)
#endif
#undef COLUMNS
                    }
                }
            } while (t.k1 < k);
        }
}

#define PRODUCT(name, format)                                                                      \
    static void name(float *y, size_t ldy, const struct vf_panels *p, size_t n_w, size_t n_x,      \
                     size_t k, const void *next) {                                                 \
        vf_product(format, y, ldy, p, n_w, n_x, k, next);                                          \
    }
PRODUCT(product_f32, VF_F32)
PRODUCT(product_f16, VF_F16)
PRODUCT(product_bf16, VF_BF16)
PRODUCT(product_q8_0, VF_Q8_0)
PRODUCT(product_e4m3, VF_E4M3)
PRODUCT(product_e5m2, VF_E5M2)

#define MUL(name, product)                                                                         \
    void ISA(name) LODE_MUL_ARGS {                                                                 \
        product(y, ldy, &(struct vf_panels){w, x, w_stride, x_stride}, n_w, n_x, k, NULL);         \
    }
MUL(mul_f32, product_f32)
MUL(mul_f16, product_f16)
MUL(mul_bf16, product_bf16)
MUL(mul_e4m3, product_e4m3)
MUL(mul_e5m2, product_e5m2)

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
                                ldq * sizeof *q};
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
        const struct vf_panels p = {k, (const char *)q, k_stride, ldq * sizeof *q};                \
        if (format != VF_F32 && n_q >= VF_MANY_QUERIES && dim <= VF_WIDE_DIM)                      \
            vf_score(format, s, lds, q, ldq, n_q, k, k_stride, n_k, dim);                          \
        else if (!vf_few_scores(format, s, lds, q, ldq, n_q, k, k_stride, n_k, dim, next))         \
            product(s, lds, &p, n_k, n_q, dim, next);                                              \
    }
SCORE(kv_score_f32, product_f32, VF_F32)
SCORE(kv_score_f16, product_f16, VF_F16)
SCORE(kv_score_bf16, product_bf16, VF_BF16)
SCORE(kv_score_q8_0, product_q8_0, VF_Q8_0)
