/* Products of quantised weights with 8-bit activations. */
#include "blocks.h"
#include "kc.h"
#include "kern/unpack.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const double u = FLT_EPSILON / 2;

/* ---- the definition in double precision: w_i x_i of unpacked blocks, summed ---- */

struct exact {
    double sum, size; /* size: the sum of magnitudes, minima counted apart */
    size_t n_blocks;
};

static void exact_32(struct exact *e, const struct unpack32 *w, const struct lode_block_a32 *a) {
    for (int i = 0; i < 32; i++) {
        const double x = (double)a->d * a->q[i], p = (double)w->d * w->q[i] * x,
                     m = (double)w->m * x;
        e->sum += p + m;
        e->size += fabs(p) + fabs(m);
    }
    e->n_blocks++;
}

static void exact_256(struct exact *e, const struct unpack256 *w, const struct lode_block_a256 *a) {
    for (int i = 0; i < 256; i++) {
        const double x = (double)a->d * a->m[i / 32] * a->q[i];
        const double p = (double)w->d * w->scale[i / 16] * w->q[i] * x;
        const double m = (double)w->dmin * w->min[i / 16] * x;
        e->sum += p - m;
        e->size += fabs(p) + fabs(m);
    }
    e->n_blocks++;
}

static void exact_u(struct exact *e, const struct unpack_u *w, const struct lode_block_a32 *a) {
    for (int i = 0; i < 32; i++) {
        const double x = (double)a->d * a->q[i], p = (double)w->d * w->q[i] * x,
                     m = (double)w->m * x;
        e->sum += p + m;
        e->size += fabs(p) + fabs(m);
    }
    e->n_blocks++;
}

static void exact_parts(struct exact *e, const struct unpack32 *w, bool halves, const struct lode_block_a32 *a) {
    for (int i = 0; i < 32; i++) {
        const double p = (double)(halves && i >= 16 ? w->m : w->d) * w->q[i] * (double)a->d * a->q[i];
        e->sum += p;
        e->size += fabs(p);
    }
    e->n_blocks++;
}

/* One row and one column. */
typedef void exact_row(struct exact *e, const void *w, const void *x, size_t k);
#define EXACT(name, n)                                                                             \
    static void exact_##name(struct exact *e, const void *w, const void *x, size_t k) {            \
        for (size_t b = 0; b < k / n; b++) {                                                       \
            struct unpack##n q;                                                                    \
            unpack_##name(&q, (const struct lode_block_##name *)w + b);                            \
            exact_##n(e, &q, (const struct lode_block_a##n *)x + b);                               \
        }                                                                                          \
    }
EXACT(q4_0, 32)
EXACT(q4_1, 32)
EXACT(q5_0, 32)
EXACT(q5_1, 32)
EXACT(q8_0, 32)
EXACT(iq4_nl, 32)
EXACT(mxfp4, 32)
#define EXACT_U(name, type)                                                                        \
    static void exact_##name(struct exact *e, const void *w, const void *x, size_t k) {            \
        for (size_t b = 0; b < k / 32; b++) {                                                      \
            struct unpack_u q;                                                                     \
            unpack_##name(&q, w, b);                                                               \
            exact_u(e, &q, (const struct lode_block_a32 *)x + b);                                  \
        }                                                                                          \
    }
LODE_MUL_U_LIST(EXACT_U)
#define EXACT_PARTS(name, halves)                                                                  \
    static void exact_##name(struct exact *e, const void *w, const void *x, size_t k) {            \
        for (size_t b = 0; b < k / 32; b++) {                                                      \
            struct unpack32 q;                                                                     \
            unpack_##name(&q, w, b);                                                               \
            exact_parts(e, &q, halves, (const struct lode_block_a32 *)x + b);                      \
        }                                                                                          \
    }
#define EXACT_PART(name, type) EXACT_PARTS(name, false)
#define EXACT_HALVES(name, type) EXACT_PARTS(name, true)
LODE_MUL_PART_LIST(EXACT_PART)
LODE_MUL_HALVES_LIST(EXACT_HALVES)
EXACT(tq2_0, 256)
EXACT(q2_k, 256)
EXACT(q3_k, 256)
EXACT(q4_k, 256)
EXACT(q5_k, 256)
EXACT(q6_k, 256)
EXACT(iq4_xs, 256)
#define EXACT_CODES(name, ...) EXACT(name, 256)
LODE_CODEBOOK_LIST(EXACT_CODES)

/* ---- activations ---- */

static size_t x_bytes(enum lode_dtype act, size_t k) {
    return k / lode_dtypes[act].block * lode_dtypes[act].bytes;
}

/* Blocks as the quantiser makes them, or at the ends of their ranges. */
static void fill_x(struct kc *t, enum lode_dtype act, char *x, size_t k, bool corner) {
    float f[256];
    for (size_t i = 0; i < k; i += 256, x += x_bytes(act, 256)) {
        const size_t n = k - i < 256 ? k - i : 256;
        kc_fill(t, f, n, KC_NORMAL);
        f[kc_below(t, n)] *= (float)(1 + kc_below(t, 40)); /* an outlier now and then */
        if (corner) {                                      /* all of one sign, or weights' signs */
            const uint64_t signs = kc_bits(t) & kc_bits(t);
            for (size_t j = 0; j < n; j++)
                f[j] = signs & 1 ? -1 : signs >> (1 + j % 32) & 1 ? -1 : 1;
        }
        if (act == LODE_A32)
            t->ref->quant_a32(x, f, n);
        else
            t->ref->quant_a256(x, f, n);
    }
}

/* ---- one shape: random strides, tight panels, y's gaps unchanged ---- */

static void check_shape(struct kc *t, enum lode_dtype type, exact_row *exact_of, size_t n_w,
                        size_t n_x, size_t k, enum blocks_kind kind) {
    const struct lode_dtype_info *info = &lode_dtypes[type];
    const size_t w_size = k / info->block * info->bytes, x_size = x_bytes(info->act, k);
    const size_t w_stride = w_size + kc_below(t, 3) * info->bytes;
    const size_t x_stride = x_size + kc_below(t, 3) * lode_dtypes[info->act].bytes;
    const size_t ldy = n_w + kc_below(t, 3);
    kc_case(t, "%zu rows, %zu columns, k=%zu, kind %d", n_w, n_x, k, kind);
    char *w = kc_tight(t, n_w ? (n_w - 1) * w_stride + w_size : 0);
    char *x = kc_tight(t, n_x ? (n_x - 1) * x_stride + x_size : 0);
    const size_t y_size = n_w && n_x ? (n_x - 1) * ldy + n_w : 0;
    float *want = kc_floats(t, y_size, KC_NORMAL), *got = kc_tight(t, y_size * sizeof *got);
    if (y_size)
        memcpy(got, want, y_size * sizeof *got);
    for (size_t i = 0; i < n_w; i++)
        blocks_fill(t, type, w + i * w_stride, w_size, kind);
    for (size_t j = 0; j < n_x; j++)
        fill_x(t, info->act, x + j * x_stride, k, kind == BLOCKS_CORNER);

    t->ref->mul[type](want, ldy, w, w_stride, n_w, x, x_stride, n_x, k);
    KC_OF_REF(t)
        for (size_t i = 0; i < n_w && kind != BLOCKS_ANY; i++)
            for (size_t j = 0; j < n_x; j++) {
                struct exact e = {0};
                exact_of(&e, w + i * w_stride, x + j * x_stride, k);
                /* Integer sums are exact.  Of each block's one or two terms the product of the scales
                 * and the conversion of the sum round, then every addition does; a product of scales
                 * below 2^-126 loses up to 2^-150 times a sum below 2^31, and so may an addition. */
                const double n_terms = 2 * (double)e.n_blocks;
                const double bound = (n_terms + 2) * 1.01 * u * e.size + n_terms * 0x1p-118;
                kc_near(t, (double)want[j * ldy + i], e.sum, bound, j * ldy + i);
            }
    t->now->mul[type](got, ldy, w, w_stride, n_w, x, x_stride, n_x, k);
    kc_same_floats(t, got, want, y_size);
}

static const size_t row_counts[] = {0, 1, 3, 4, 5, 8, 15, 16, 17, 33};
static const size_t column_counts[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 16, 17};
static const size_t many_columns[] = {128, 129, 135, 150, 257};
static const size_t block_counts[] = {0, 1, 2, 3, 5, 7, 8, 9, 17};

static bool is_codebook(enum lode_dtype type) {
#define IS(name, of, ...) || type == LODE_##of
    return false LODE_CODEBOOK_LIST(IS);
#undef IS
}

static void check_mul(struct kc *t, enum lode_dtype type, exact_row *exact_of) {
    const size_t block = lode_dtypes[type].block;
    KC_EACH(n_w, row_counts)
        KC_EACH(n_x, column_counts)
            check_shape(t, type, exact_of, n_w, n_x, block * (1 + kc_below(t, 2)), BLOCKS_FINITE);
    KC_EACH(n_blocks, block_counts) {
        check_shape(t, type, exact_of, 1 + kc_below(t, 20), 1 + kc_below(t, 9), block * n_blocks,
                    BLOCKS_FINITE);
        check_shape(t, type, exact_of, 1 + kc_below(t, 20), 1 + kc_below(t, 9), block * n_blocks,
                    BLOCKS_ANY);
        check_shape(t, type, exact_of, 32, 4, block * n_blocks, BLOCKS_CORNER);
        check_shape(t, type, exact_of, 17, 37, block * n_blocks, BLOCKS_CORNER);
        check_shape(t, type, exact_of, 33, 46, block * n_blocks, BLOCKS_ANY);
    }
    /* more columns than a kernel takes at once (mul_tile.h: 128) */
    KC_EACH(n_x, many_columns)
        check_shape(t, type, exact_of, 1 + kc_below(t, 40), n_x, block * 2, BLOCKS_FINITE);
    /* and of more blocks than lie ready for so many (mul_sides.h: 1,024 by all columns) */
    check_shape(t, type, exact_of, 18, 128, block * 9, BLOCKS_FINITE);
    check_shape(t, type, exact_of, 18, 101, block * 11, BLOCKS_FINITE);
    /* and of more rows and columns than wait at once (amx_panel.h: 512) */
    check_shape(t, type, exact_of, 530, 33, block, BLOCKS_FINITE);
    check_shape(t, type, exact_of, 3, 533, block * 2, BLOCKS_FINITE);

    /* Rows so long that they are taken in parts (mul_rows512.h), which those of codebook types are not. */
    for (size_t n_x = 1; n_x <= 3; n_x += 2)
        for (size_t bytes = 9000; bytes <= (is_codebook(type) ? 9000 : 27000); bytes += 9000)
            check_shape(t, type, exact_of, 17 + kc_below(t, 3), n_x,
                        block * (bytes / lode_dtypes[type].bytes + kc_below(t, 4)), BLOCKS_FINITE);

    /* And so many that a few columns meet rows that lie apart (mul_apart.h). */
    static const size_t apart[][2] = {{49, 2}, {67, 3}, {100, 4}, {80, 8}}; /* rows, columns */
    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
        check_shape(t, type, exact_of, apart[i][0], apart[i][1], block * (4200 / lode_dtypes[type].bytes + kc_below(t, 4)), BLOCKS_FINITE);

    /* Weights far larger than the caches: what decoding does.  Then prompts. */
    const size_t k = 4096, rows = 1 << 14;
    if (!t->bench)
        return;
    const enum lode_dtype act = lode_dtypes[type].act;
    const size_t w_stride = k / block * lode_dtypes[type].bytes, x_stride = x_bytes(act, k);
    char *w = kc_tight_aligned(t, rows * w_stride, 64);
    char *x = kc_tight_aligned(t, 512 * x_stride, 64);
    const size_t ldy = rows + 16; /* rows of y in sets of the cache of their own, as the engine lays them */
    float *y = kc_tight_aligned(t, 512 * ldy * sizeof *y, 64);
    blocks_fill(t, type, w, 64 * w_stride, BLOCKS_FINITE);
    for (size_t i = 64; i < rows; i += 64)
        memcpy(w + i * w_stride, w, 64 * w_stride);
    for (size_t j = 0; j < 512; j++)
        fill_x(t, act, x + j * x_stride, k, false);
#define TIME(n_w, n_x)                                                                              \
    KC_TIME(t, #n_w "x4096 x " #n_x, (double)(n_w * w_stride), 2.0 * (double)(n_w * k) * n_x)      \
    t->now->mul[type](y, ldy, w, w_stride, n_w, x, x_stride, n_x, k);
    TIME(16384, 1)
    TIME(16384, 4)
    TIME(16384, 8)
    TIME(256, 1)
    TIME(64, 8)
    TIME(64, 512)
    TIME(256, 512)
    TIME(256, 128)
    TIME(256, 32)
    TIME(256, 16)
#undef TIME
}

#define CHECK(name, type)                                                                          \
    void check_mul_##name(struct kc *t) { check_mul(t, LODE_##type, exact_##name); }
CHECK(q4_0, Q4_0)
CHECK(q4_1, Q4_1)
CHECK(q5_0, Q5_0)
CHECK(q5_1, Q5_1)
CHECK(q8_0, Q8_0)
CHECK(q2_k, Q2_K)
CHECK(q3_k, Q3_K)
CHECK(q4_k, Q4_K)
CHECK(q5_k, Q5_K)
CHECK(iq4_nl, IQ4_NL)
CHECK(iq4_xs, IQ4_XS)
#define CHECK_CODES(name, type, ...) CHECK(name, type)
LODE_CODEBOOK_LIST(CHECK_CODES)
CHECK(mxfp4, MXFP4)
CHECK(tq2_0, TQ2_0)
LODE_MUL_PART_LIST(CHECK)
LODE_MUL_HALVES_LIST(CHECK)
LODE_MUL_U_LIST(CHECK)

/* The largest integer sum that exists: mul_scalar.c says 2130706432 and that it fits. */
void check_mul_q6_k(struct kc *t) {
    check_mul(t, LODE_Q6_K, exact_q6_k);
    struct lode_block_q6_k *w = kc_tight(t, sizeof *w);
    struct lode_block_a256 *x = kc_tight(t, sizeof *x);
    for (int sign = -1; sign <= 1; sign += 2) {
        float y = 0;
        memset(w, 0, sizeof *w); /* every q is -32 */
        memset(w->scales, 0x80, sizeof w->scales);
        w->d = 0x3c00;
        memset(x, 0, sizeof *x);
        x->d = 1;
        memset(x->m, LODE_A256_MUL, sizeof x->m);
        memset(x->q, sign * 127, sizeof x->q);
        for (int i = 0; i < 16; i++)
            x->sums[i] = (int16_t)(sign * 127 * 16 * LODE_A256_MUL);
        kc_case(t, "largest sum, sign %d", sign);
        t->now->mul_q6_k(&y, 1, w, sizeof *w, 1, x, sizeof *x, 1, 256);
        kc_same(t, y, (float)sign * 2130706432.0f, 0);
    }
}
