/* mul_body.h - products of rows that are widened to F32 as they are read: mul_f32, mul_f16,
 * mul_bf16, and kv_score, which is the same thing with keys for weights. */
#include "kern/isa.h"

#define VF_INLINE static inline __attribute__((always_inline))

/* Formats as compile-time constants: each use is inlined and the switch disappears. */
enum vf_format { VF_F32, VF_F16, VF_BF16, VF_Q8_0 };

VF_INLINE const char *vf_at(enum vf_format f, const char *row, size_t i) {
    switch (f) {
    case VF_F32:
        return row + 4 * i;
    case VF_F16:
    case VF_BF16:
        return row + 2 * i;
    case VF_Q8_0: /* { half d; int8_t q[32] }: the block's scale, i is 0 or 16 within it */
        return row + i / 32 * 34;
    }
    return row;
}

/* Numbers i .. i+15 of a row, i a multiple of 16. */
VF_INLINE VF vf_widen(enum vf_format f, const char *row, size_t i) {
    const char *p = vf_at(f, row, i);
    switch (f) {
    case VF_F32:
        return vf_load((const float *)p);
    case VF_F16:
        return vf_load_f16(p);
    case VF_BF16:
        return vf_load_bf16(p);
    case VF_Q8_0:
        return vf_mul(vf_load_i8(p + 2 + i % 32), vf_set(vf_half(p)));
    }
    return vf_set(0);
}

/* The first n < 16 of them; the other lanes are +0.  (q8_0 has whole blocks only.) */
VF_INLINE VF vf_widen_n(enum vf_format f, const char *row, size_t i, size_t n) {
    const char *p = vf_at(f, row, i);
    switch (f) {
    case VF_F32:
        return vf_load_n((const float *)p, n, 0.0f);
    case VF_F16:
        return vf_load_f16_n(p, n);
    case VF_BF16:
        return vf_load_bf16_n(p, n);
    case VF_Q8_0:
        break;
    }
    return vf_set(0);
}

/* What all tiles of a product share. */
struct vf_panels {
    const char *w, *x;
    size_t w_stride, x_stride;
};

enum { VF_AHEAD = 1024 }; /* bytes of each weight row to have under way */

/* acc[r][c] += < w row i + r, x row j + c > over k0 <= l < k1 (k0 a multiple of 16); R and C are
 * constants, so that acc lives in registers. */
VF_INLINE void vf_tile(VF acc[VF_TILE_ROWS][VF_TILE_COLUMNS], enum vf_format f, size_t R, size_t C,
                       const struct vf_panels *p, size_t i, size_t j, size_t k0, size_t k1) {
    const char *w = p->w + i * p->w_stride, *x = p->x + j * p->x_stride;
    const size_t w_stride = p->w_stride, x_stride = p->x_stride;
    size_t l = k0;
    for (; l + 16 <= k1; l += 16) {
        VF wide[VF_TILE_ROWS];
        for (size_t r = 0; r < R; r++) {
            if (C == 1) /* reading at memory's speed: the next lines should be coming */
                vf_prefetch(vf_at(f, w + r * w_stride, l) + VF_AHEAD);
            wide[r] = vf_widen(f, w + r * w_stride, l);
        }
        for (size_t c = 0; c < C; c++) {
            const VF col = vf_load((const float *)(x + c * x_stride) + l);
            for (size_t r = 0; r < R; r++)
                acc[r][c] = vf_fma(wide[r], col, acc[r][c]);
        }
    }
    if (l < k1) {
        const size_t n = k1 - l;
        VF wide[VF_TILE_ROWS];
        for (size_t r = 0; r < R; r++)
            wide[r] = vf_widen_n(f, w + r * w_stride, l, n);
        for (size_t c = 0; c < C; c++) {
            const VF col = vf_load_n((const float *)(x + c * x_stride) + l, n, -0.0f);
            for (size_t r = 0; r < R; r++)
                acc[r][c] = vf_fma(wide[r], col, acc[r][c]);
        }
    }
}

/* One tile over all of k.  y[(j+c) * ld_column + (i+r) * ld_row] */
VF_INLINE void vf_tile_whole(float *y, size_t ld_row, size_t ld_column, enum vf_format f, size_t R,
                             size_t C, const struct vf_panels *p, size_t i, size_t j, size_t k) {
    VF acc[VF_TILE_ROWS][VF_TILE_COLUMNS];
    for (size_t r = 0; r < R; r++)
        for (size_t c = 0; c < C; c++)
            acc[r][c] = vf_set(0);
    vf_tile(acc, f, R, C, p, i, j, 0, k);
    for (size_t r = 0; r < R; r++)
        for (size_t c = 0; c < C; c++)
            y[(j + c) * ld_column + (i + r) * ld_row] = vf_join(acc[r][c]);
}

/* All columns of R rows. */
VF_INLINE void vf_columns(float *y, size_t ld_row, size_t ld_column, enum vf_format f, size_t R,
                          const struct vf_panels *p, size_t i, size_t n_x, size_t k) {
    size_t j = 0;
    for (; j + VF_TILE_COLUMNS <= n_x; j += VF_TILE_COLUMNS)
        vf_tile_whole(y, ld_row, ld_column, f, R, VF_TILE_COLUMNS, p, i, j, k);
    switch (n_x - j) {
#define REST(c)                                                                                    \
    case c:                                                                                        \
        vf_tile_whole(y, ld_row, ld_column, f, R, c, p, i, j, k);                                  \
        break;
        REST(1)
        REST(2)
#if VF_TILE_COLUMNS > 3
        REST(3)
        REST(4)
        REST(5)
#endif
#undef REST
    default:
        break;
    }
}

VF_INLINE void vf_product(float *y, size_t ld_row, size_t ld_column, enum vf_format f,
                          const struct vf_panels *p, size_t n_w, size_t n_x, size_t k) {
    size_t i = 0;
    for (; i + VF_TILE_ROWS <= n_w; i += VF_TILE_ROWS)
        vf_columns(y, ld_row, ld_column, f, VF_TILE_ROWS, p, i, n_x, k);
    for (; i < n_w; i++)
        vf_columns(y, ld_row, ld_column, f, 1, p, i, n_x, k);
}

#define MUL(name, format)                                                                          \
    void ISA(name) LODE_MUL_ARGS {                                                                 \
        const struct vf_panels p = {w, x, w_stride, x_stride};                                     \
        vf_product(y, 1, ldy, format, &p, n_w, n_x, k);                                            \
    }
MUL(mul_f32, VF_F32)
MUL(mul_f16, VF_F16)
MUL(mul_bf16, VF_BF16)

#define SCORE(name, format)                                                                        \
    void ISA(name) LODE_KV_SCORE_ARGS {                                                            \
        const struct vf_panels p = {k, (const char *)q, k_stride, ldq * sizeof *q};                \
        vf_product(s, 1, lds, format, &p, n_k, n_q, dim);                                          \
    }
SCORE(kv_score_f32, VF_F32)
SCORE(kv_score_f16, VF_F16)
SCORE(kv_score_bf16, VF_BF16)
SCORE(kv_score_q8_0, VF_Q8_0)
