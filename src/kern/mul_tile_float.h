/* mul_tile_float.h - tiles of rows that are widened to F32 as they are read, by columns: what mul_body.h walks through.
 *
 * VF_KEEP_WIDE, if an including file defines it: of many columns the first tile keeps the rows that it has widened for
 * the others, for cores on which widening takes from the multiply-adds' pipes.
 * VF_COPY_NUMBERS, if v16_ISA.h defines it (v16.h): see mul_copied.h. */
#ifndef LODE_KERN_MUL_TILE_FLOAT_H
#define LODE_KERN_MUL_TILE_FLOAT_H

#include "kern/kern.h"

#define VF_INLINE static inline __attribute__((always_inline))

#ifndef VF_TILE_LOOP
#define VF_TILE_LOOP
#define VF_STEP_LOOP
#endif

/* Formats as compile-time constants: each use is inlined and the switch disappears.  VF_BF16_APART: BF16 whose even
 * numbers are lanes 0 .. 7 and the odd ones 8 .. 15, by columns that lie so. */
enum vf_format { VF_F32, VF_F16, VF_BF16, VF_BF16_APART, VF_Q8_0, VF_E4M3, VF_E5M2 };

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
    case VF_BF16_APART:
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
    case VF_BF16_APART:
#ifdef VF_COPY_NUMBERS
        return at ? vp_load_bf16_odd(p) : vp_load_bf16_even(p);
#endif
        break;
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
    case VF_BF16_APART:
#ifdef VF_COPY_NUMBERS
        return vf_apart(vf_load_bf16_n(p, n));
#endif
    case VF_Q8_0:
    case VF_E4M3:
    case VF_E5M2:
        break;
    }
    return vf_set(0);
}

/* A format's lanes in kern.h's order. */
VF_INLINE VF vf_in_order(enum vf_format f, VF x) {
#ifdef VF_COPY_NUMBERS
    if (f == VF_BF16_APART)
        return vf_together(x);
#endif
    (void)f;
    return x;
}

enum { VF_ROWS_MAX = VF_ROWS_1 > VF_TILE_ROWS ? VF_ROWS_1 : VF_TILE_ROWS };

/* What all tiles of a product share. */
struct vf_panels {
    const char *w, *x;
    size_t w_stride, x_stride;
    size_t from; /* the number of k with which w's rows begin */
};

/* A product is walked in blocks, so that what a tile reads comes from the first cache: columns of
 * VF_BLOCK_K numbers stay while the rows of the block pass by.  Between blocks of k the lanes of
 * every (row, column) wait in `sums`.  None of this changes the order within a lane. */
#ifdef VF_KEEP_WIDE
enum { VF_BLOCK_ROWS = 16, VF_BLOCK_COLUMNS = 48 }; /* that meet what was kept */
#else
enum { VF_BLOCK_ROWS = 32, VF_BLOCK_COLUMNS = 24 };
#endif
enum {
    VF_FEW_COLUMNS = 2 * VF_TILE_COLUMNS, /* that are in the cache anyway */
    VF_BLOCK_K = 1024,
    VF_WIDE_STRIDE = VF_BLOCK_K + 16 /* of rows that are kept, which so lie in sets of the cache of their own */
};
_Static_assert(VF_BLOCK_ROWS % VF_TILE_ROWS == 0 && VF_BLOCK_COLUMNS % VF_TILE_COLUMNS == 0, "");

/* acc[r][c] += < w row i + r, x row j + c > over k0 <= l < k1 (k0 a multiple of 32); R and C are
 * constants, so that acc lives in registers.  keep: where the rows' numbers go as floats; NULL: nowhere. */
VF_INLINE void vf_tile(VF acc[VF_ROWS_MAX][VF_TILE_COLUMNS], enum vf_format f, size_t R, size_t C,
                       const struct vf_panels *p, size_t i, size_t j, size_t k0, size_t k1,
                       bool ahead, float *keep) {
    const size_t length = vf_step_length(f), size = vf_step_size(f);
    const size_t w_stride = p->w_stride, x_stride = p->x_stride;
    const char *w = p->w + i * w_stride + (k0 - p->from) / length * size;
    const char *x = p->x + j * x_stride + k0 * sizeof(float);
    size_t left = k1 - k0;
    VF_STEP_LOOP
    for (size_t done = 0; left >= length; done += size, left -= length) {
        if (ahead) /* Read at memory's speed.  The hardware's prefetchers start anew with every
            row, so these rows' steps ask for the next ones, from end to end. */
            for (size_t b = 0; b < size * R; b += 64)
                vf_prefetch_rows(w - done + R * w_stride + done * R + b);
        /* register by register: a whole step of weights would crowd out accumulators */
        VF_TILE_LOOP
        for (size_t at = 0; at < length; at += VP_LANES) {
            VP wide[VF_ROWS_MAX];
            VF_TILE_LOOP
            for (size_t r = 0; r < R; r++)
                wide[r] = vf_widen(f, w + r * w_stride, at);
            for (size_t r = 0; keep && r < R; r++)
                vp_store(keep + r * VF_WIDE_STRIDE + at, wide[r]);
            VF_TILE_LOOP
            for (size_t c = 0; c < C; c++) {
                VP col = vp_load((const float *)(x + c * x_stride) + at);
                if (R > 1) /* gcc would load it again for each row */
                    col = vp_held(col);
                VF_TILE_LOOP
                for (size_t r = 0; r < R; r++) {
                    VP *lanes = &acc[r][c].v[at / VP_LANES % VF_PARTS];
                    *lanes = vp_fma(wide[r], col, *lanes);
                }
            }
        }
        w += size;
        x += length * sizeof(float);
        keep = keep ? keep + length : NULL;
    }
    if (left && !vf_scaled(f)) {
        VF wide[VF_ROWS_MAX];
        VF_TILE_LOOP
        for (size_t r = 0; r < R; r++)
            wide[r] = vf_widen_n(f, w + r * w_stride, left);
        for (size_t r = 0; keep && r < R; r++)
            vf_store(keep + r * VF_WIDE_STRIDE, wide[r]);
        VF_TILE_LOOP
        for (size_t c = 0; c < C; c++) {
            const float *rest = (const float *)(x + c * x_stride);
            const VF col = f == VF_BF16_APART ? vf_load(rest) /* filled up */ : vf_load_n(rest, left, -0.0f);
            VF_TILE_LOOP
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

struct vf_walk {
    struct vf_panels p;
    float *y;
    size_t ldy, k;
    size_t i, j, k0, k1; /* this tile */
    size_t end;          /* of short rows, in bytes: they are asked for ahead; or 0 */
    const char *next;    /* what is read after them, or NULL */
    VF *sums;            /* of this tile, rows VF_BLOCK_COLUMNS apart */
    float *keep;         /* where its rows are kept; or NULL */
};

VF_INLINE void vf_step(enum vf_format f, bool keep, size_t R, size_t C, const struct vf_walk *t) {
    VF acc[VF_ROWS_MAX][VF_TILE_COLUMNS];
    VF_TILE_LOOP
    for (size_t r = 0; r < R; r++)
        VF_TILE_LOOP
        for (size_t c = 0; c < C; c++)
            acc[r][c] = t->k0 ? t->sums[r * VF_BLOCK_COLUMNS + c] : vf_set(0);
    if (t->end && t->j == 0)
        vf_ahead(t->p.w, t->i * t->p.w_stride, R * t->p.w_stride, t->end, t->next);
    vf_tile(acc, f, R, C, &t->p, t->i, t->j, t->k0, t->k1, C == 1 && !t->end,
            keep ? t->keep : NULL);
    VF_TILE_LOOP
    for (size_t c = 0; c < C; c++) {
        if (t->k1 < t->k) {
            VF_TILE_LOOP
            for (size_t r = 0; r < R; r++)
                t->sums[r * VF_BLOCK_COLUMNS + c] = acc[r][c];
            continue;
        }
        float *y = t->y + (t->j + c) * t->ldy + t->i;
        size_t r = 0;
        for (; r + VF_TILE_ROWS <= R; r += VF_TILE_ROWS) {
            VF column[VF_TILE_ROWS];
            for (size_t i = 0; i < VF_TILE_ROWS; i++)
                column[i] = vf_in_order(f, acc[r + i][c]);
            vf_join_rows(y + r, column);
        }
        for (; r < R; r++)
            y[r] = vf_join(vf_in_order(f, acc[r][c]));
    }
}

VF_INLINE void vf_rows(enum vf_format f, bool keep, size_t C, struct vf_walk t, size_t n_rows) {
    const size_t R = C == 1 ? VF_ROWS_1 : VF_TILE_ROWS;
    for (size_t r = 0; r < n_rows;) {
        size_t n = 1;
        if (r + R <= n_rows) {
            vf_step(f, keep, R, C, &t);
            n = R;
        } else {
            vf_step(f, keep, 1, C, &t);
        }
        r += n;
        t.i += n;
        t.sums += n * VF_BLOCK_COLUMNS;
        if (keep)
            t.keep += n * VF_WIDE_STRIDE;
    }
}

VF_INLINE void vf_columns(enum vf_format f, bool keep, size_t C, const struct vf_walk *t, size_t n_rows) {
    switch (C) {
#define COLUMNS(C)                                                                                 \
    case C:                                                                                        \
        vf_rows(f, keep, C, *t, n_rows);                                                           \
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

/* n_rows from row t.i on by n_columns from column t.j on. */
VF_INLINE void vf_block(enum vf_format f, struct vf_walk t, VF *sums, size_t n_rows, size_t n_columns, size_t block_k) {
    const size_t j = t.j;
    t.k1 = 0;
    do { /* once if k is 0 */
        t.k0 = t.k1;
        t.k1 = vf_least(t.k, t.k0 + block_k);
        for (size_t c = 0; c < n_columns; c += VF_TILE_COLUMNS) {
            t.j = j + c;
            t.sums = sums + c;
            vf_columns(f, false, vf_least(n_columns - c, VF_TILE_COLUMNS), &t, n_rows);
        }
    } while (t.k1 < t.k);
}

#endif
