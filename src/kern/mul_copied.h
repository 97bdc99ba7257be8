/* mul_copied.h - products of many rows and columns whose columns are first copied side by side, for instruction sets
 * whose tiles are bound by loads: they lie closer in the caches then, and in an order in which BF16 is widened by one
 * operation a register (VF_BF16_APART) instead of two. */
#ifndef LODE_KERN_MUL_COPIED_H
#define LODE_KERN_MUL_COPIED_H

enum { VF_COPY_ROWS = 64 }; /* from which a copy is worth its while */

/* Floats from a copied column to the next. */
static inline size_t vf_copy_stride(size_t k) { return (k + 15) & ~(size_t)15; }

/* (Not for keys, which are short and asked for ahead.) */
static inline bool vf_copies(const struct vf_panels *p, size_t n_w, size_t n_x, size_t k) {
    return p->w_stride > VF_SHORT_ROW && n_w >= VF_COPY_ROWS && n_x > VF_FEW_COLUMNS &&
           k <= VF_COPY_NUMBERS / (2 * VF_TILE_COLUMNS);
}

/* Rests of a step are filled up with -0, as tiles read them. */
VF_INLINE void vf_copy_columns(enum vf_format f, float *to, const char *x, size_t x_stride, size_t n, size_t k) {
    for (size_t j = 0; j < n; j++, to += vf_copy_stride(k)) {
        const float *from = (const float *)(x + j * x_stride);
        for (size_t l = 0; l < k; l += 16) {
            const VF step = l + 16 <= k ? vf_load(from + l) : vf_load_n(from + l, k - l, -0.0f);
            vf_store(to + l, f == VF_BF16_APART ? vf_apart(step) : step);
        }
    }
}

VF_INLINE void vf_copied(enum vf_format f, float *y, size_t ldy, const struct vf_panels *p, size_t n_w, size_t n_x,
                         size_t k) {
    VF sums[VF_BLOCK_ROWS * VF_BLOCK_COLUMNS];
    float copy[VF_COPY_NUMBERS];
    const size_t fit = k ? VF_COPY_NUMBERS / vf_copy_stride(k) / VF_TILE_COLUMNS * VF_TILE_COLUMNS : VF_BLOCK_COLUMNS;
    const size_t block = vf_least(fit, VF_BLOCK_COLUMNS);
    const bool few = n_x <= 4 * VF_TILE_COLUMNS; /* rows come from memory, and should be read from end to end */
    struct vf_walk t = {.p = *p, .ldy = ldy, .k = k};
    t.p.x = (const char *)copy;
    t.p.x_stride = vf_copy_stride(k) * sizeof *copy;
    for (size_t j = 0; j < n_x; j += block) {
        const size_t columns = vf_least(n_x - j, block);
        vf_copy_columns(f, copy, p->x + j * p->x_stride, p->x_stride, columns, k);
        t.y = y + j * ldy;
        for (t.i = 0; t.i < n_w; t.i += VF_BLOCK_ROWS)
            vf_block(f, t, sums, vf_least(n_w - t.i, VF_BLOCK_ROWS), columns, few ? k : VF_BLOCK_K);
    }
}

#endif
