/* mul_body.h - products of rows that are widened to F32 as they are read: mul_f32, mul_f16,
 * mul_bf16, mul_e4m3, mul_e5m2; kv_body.h scores keys with them. */
#include "kern/isa.h"
#include "kern/mul_tile_float.h"

#ifdef VF_KEEP_WIDE
/* vf_block, but that its first tile keeps the rows for the others in `wide`. */
VF_INLINE void vf_block_kept(enum vf_format f, struct vf_walk t, VF *sums, float *wide, size_t n_rows,
                             size_t n_columns) {
    const size_t j = t.j;
    struct vf_walk kept = t; /* over those rows */
    kept.p.w = (const char *)wide;
    kept.p.w_stride = VF_WIDE_STRIDE * sizeof *wide;
    kept.y += t.i;
    kept.i = 0;
    t.keep = wide;
    t.k1 = 0;
    do {
        t.k0 = t.k1;
        t.k1 = vf_least(t.k, t.k0 + VF_BLOCK_K);
        t.sums = sums;
        vf_columns(f, true, vf_least(n_columns, VF_TILE_COLUMNS), &t, n_rows);
        kept.p.from = kept.k0 = t.k0;
        kept.k1 = t.k1;
        for (size_t c = VF_TILE_COLUMNS; c < n_columns; c += VF_TILE_COLUMNS) {
            kept.j = j + c;
            kept.sums = sums + c;
            vf_columns(VF_F32, false, vf_least(n_columns - c, VF_TILE_COLUMNS), &kept, n_rows);
        }
    } while (t.k1 < t.k);
}
#endif

/* y[j * ldy + i] = < w row i, x row j >, as mul of kern.h */
VF_INLINE void vf_product(enum vf_format f, float *y, size_t ldy, const struct vf_panels *p,
                          size_t n_w, size_t n_x, size_t k, const char *next) {
    VF sums[VF_BLOCK_ROWS * VF_BLOCK_COLUMNS];
    struct vf_walk t = {.p = *p, .y = y, .ldy = ldy, .k = k, .next = next};
    const bool few = n_x <= VF_FEW_COLUMNS; /* so rows should be read from end to end */
    t.end = few && p->w_stride <= VF_SHORT_ROW ? n_w * p->w_stride : 0;
#ifdef VF_KEEP_WIDE
    const bool keeps = !few && f != VF_F32;
    float wide[VF_BLOCK_ROWS * VF_WIDE_STRIDE];
#else
    const bool keeps = false;
#endif
    const size_t n_i = (n_w + VF_BLOCK_ROWS - 1) / VF_BLOCK_ROWS, n_j = (n_x + VF_BLOCK_COLUMNS - 1) / VF_BLOCK_COLUMNS;
    for (size_t b = 0; b < n_i * n_j; b++) { /* where rows are kept, columns are what is larger and should stay */
        t.i = (keeps ? b % n_i : b / n_j) * VF_BLOCK_ROWS;
        t.j = (keeps ? b / n_i : b % n_j) * VF_BLOCK_COLUMNS;
        const size_t rows = vf_least(n_w - t.i, VF_BLOCK_ROWS), columns = vf_least(n_x - t.j, VF_BLOCK_COLUMNS);
#ifdef VF_KEEP_WIDE
        if (keeps) {
            vf_block_kept(f, t, sums, wide, rows, columns);
            continue;
        }
#endif
        vf_block(f, t, sums, rows, columns, few ? k : VF_BLOCK_K);
    }
}

#define PRODUCT_ARGS                                                                               \
    (float *y, size_t ldy, const struct vf_panels *p, size_t n_w, size_t n_x, size_t k, const void *next)
#ifdef VF_COPY_NUMBERS
#include "kern/mul_copied.h"
#define PRODUCT(name, format)                                                                      \
    static __attribute__((noinline)) void name##_copied PRODUCT_ARGS {                             \
        (void)next;                                                                                \
        vf_copied(format == VF_BF16 ? VF_BF16_APART : format, y, ldy, p, n_w, n_x, k);             \
    }                                                                                              \
    static void name PRODUCT_ARGS {                                                                \
        if (vf_copies(p, n_w, n_x, k))                                                             \
            name##_copied(y, ldy, p, n_w, n_x, k, next);                                           \
        else                                                                                       \
            vf_product(format, y, ldy, p, n_w, n_x, k, next);                                      \
    }
#else
#define PRODUCT(name, format)                                                                      \
    static void name PRODUCT_ARGS {                                                                \
        vf_product(format, y, ldy, p, n_w, n_x, k, next);                                          \
    }
#endif
PRODUCT(product_f32, VF_F32)
PRODUCT(product_f16, VF_F16)
PRODUCT(product_bf16, VF_BF16)
PRODUCT(product_e4m3, VF_E4M3)
PRODUCT(product_e5m2, VF_E5M2)

#define MUL(name, product)                                                                         \
    void ISA(name) LODE_MUL_ARGS {                                                                 \
        product(y, ldy, &(struct vf_panels){w, x, w_stride, x_stride, 0}, n_w, n_x, k, NULL);         \
    }
#ifndef VF_KEEP_WIDE /* whose blocks are not for what needs no widening */
MUL(mul_f32, product_f32)
#endif
MUL(mul_f16, product_f16)
MUL(mul_bf16, product_bf16)
MUL(mul_e4m3, product_e4m3)
MUL(mul_e5m2, product_e5m2)
