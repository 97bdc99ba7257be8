/* Products of float weights with panels of activations. */
#include "base/half.h"
#include "blocks.h"
#include "kc.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const double u = FLT_EPSILON / 2;
static const size_t panels[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 17};
static const size_t wide_k[] = {4096, 1000};

typedef void mul LODE_MUL_ARGS;

static void put(void *w, enum lode_dtype type, size_t i, float f) {
    const uint16_t half = type == LODE_F16 ? lode_f32_f16(f) : lode_f32_bf16(f);
    if (type == LODE_F32)
        memcpy((char *)w + 4 * i, &f, 4);
    else
        memcpy((char *)w + 2 * i, &half, 2);
}

static double get(const void *w, enum lode_dtype type, size_t i) {
    if (type == LODE_F32)
        return (double)((const float *)w)[i];
    const uint16_t half = ((const uint16_t *)w)[i];
    return (double)(type == LODE_F16 ? lode_f16_f32(half) : lode_bf16_f32(half));
}

/* One shape: random strides, tight panels, y's gaps unchanged. */
static void check_shape(struct kc *t, enum lode_dtype type, size_t n_w, size_t n_x, size_t k,
                        enum kc_kind kind) {
    const size_t size = lode_dtypes[type].bytes;
    const size_t w_stride = (k + kc_below(t, 3)) * size, x_stride = (k + kc_below(t, 3)) * 4;
    const size_t ldy = n_w + kc_below(t, 3);
    kc_case(t, "%zu rows, %zu columns, k=%zu", n_w, n_x, k);
    char *w = kc_tight(t, n_w ? (n_w - 1) * w_stride + k * size : 0);
    char *x = kc_tight(t, n_x ? (n_x - 1) * x_stride + k * 4 : 0);
    const size_t y_size = n_w && n_x ? (n_x - 1) * ldy + n_w : 0;
    float *want = kc_floats(t, y_size, KC_NORMAL), *got = kc_tight(t, y_size * sizeof *got);
    memmove(got, want, y_size * sizeof *got);
    for (size_t i = 0; i < n_w; i++)
        for (size_t l = 0; l < k; l++)
            put(w + i * w_stride, type, l, kc_float(t, kind));
    for (size_t j = 0; j < n_x; j++)
        kc_fill(t, (float *)(x + j * x_stride), k, kind);

    t->ref->mul[type](want, ldy, w, w_stride, n_w, x, x_stride, n_x, k);
    for (size_t i = 0; i < n_w && kind == KC_NORMAL; i++)
        for (size_t j = 0; j < n_x; j++) {
            const float *col = (const float *)(x + j * x_stride);
            double exact = 0, sum = 0;
            for (size_t l = 0; l < k; l++) {
                const double product = get(w + i * w_stride, type, l) * (double)col[l];
                exact += product;
                sum += fabs(product);
            }
            /* widening is exact; a lane's FMAs and four joins round */
            const double bound = (double)(k / 16 + 5) * 1.01 * u * sum + (double)k * 0x1p-149;
            kc_near(t, (double)want[j * ldy + i], exact, bound, j * ldy + i);
        }
    t->now->mul[type](got, ldy, w, w_stride, n_w, x, x_stride, n_x, k);
    kc_same_floats(t, got, want, y_size);
}

static void check_mul(struct kc *t, enum lode_dtype type) {
    KC_EACH(n_w, panels)
        KC_EACH(n_x, panels)
            check_shape(t, type, n_w, n_x, 1 + kc_below(t, 70), KC_NORMAL);
    KC_EACH(k, kc_lengths) {
        check_shape(t, type, 1 + kc_below(t, 9), 1 + kc_below(t, 9), k, KC_NORMAL);
        check_shape(t, type, 1 + kc_below(t, 5), 1 + kc_below(t, 3), k, KC_SPECIAL);
    }
    KC_EACH(wide, wide_k) { /* several blocks of rows, columns and k; few rows and many */
        check_shape(t, type, 35, 103, wide, KC_NORMAL);
        check_shape(t, type, 67, 26, wide, KC_NORMAL);
    }
    for (size_t n = 0; n < 4; n++)
        check_shape(t, type, 64 + kc_below(t, 9), 4 + kc_below(t, 20), 500 + kc_below(t, 600), n ? KC_NORMAL : KC_SPECIAL);

    /* Weights far larger than the caches: what decoding does.  Then a prompt's 512 columns. */
    const size_t k = 4096, rows = 1 << 14, size = lode_dtypes[type].bytes;
    if (!t->bench)
        return;
    char *w = kc_tight_aligned(t, rows * k * size, 64);
    float *x = kc_tight_aligned(t, 512 * k * 4, 64);
    float *y = kc_tight_aligned(t, 512 * rows * 4, 64);
    for (size_t i = 0; i < rows * k; i++)
        put(w, type, i, (float)(i % 1000) * 1e-3f - 0.5f);
    kc_fill(t, x, k * 512, KC_NORMAL);
    KC_TIME(t, "16384x4096 x 1", (double)(rows * k * size), 2.0 * (double)(rows * k))
    t->now->mul[type](y, rows, w, k * size, rows, x, k * 4, 1, k);
    KC_TIME(t, "256x4096 x 1", (double)(256 * k * size), 2.0 * (double)(256 * k))
    t->now->mul[type](y, rows, w, k * size, 256, x, k * 4, 1, k);
    KC_TIME(t, "64x4096 x 8", (double)(64 * k * size), 2.0 * (double)(64 * k) * 8)
    t->now->mul[type](y, rows, w, k * size, 64, x, k * 4, 8, k);
    KC_TIME(t, "64x1024 x 512", (double)(64 * 1024 * size), 2.0 * (double)(64 * 1024) * 512)
    t->now->mul[type](y, rows, w, k * size, 64, x, k * 4, 512, 1024);
    KC_TIME(t, "1024x4096 x 512", (double)(1024 * k * size), 2.0 * (double)(1024 * k) * 512)
    t->now->mul[type](y, rows, w, k * size, 1024, x, k * 4, 512, k);
}

/* ---- 8-bit floats in blocks with a scale ---- */

static void check_fp8_shape(struct kc *t, enum lode_dtype type, size_t n_w, size_t n_x, size_t k,
                            enum blocks_kind kind) {
    const size_t size = k / 32 * lode_dtypes[type].bytes;
    const size_t w_stride = size + kc_below(t, 3) * lode_dtypes[type].bytes;
    const size_t x_stride = (k + kc_below(t, 3)) * 4, ldy = n_w + kc_below(t, 3);
    kc_case(t, "%zu rows, %zu columns, k=%zu, kind %d", n_w, n_x, k, kind);
    char *w = kc_tight(t, n_w ? (n_w - 1) * w_stride + size : 0);
    char *x = kc_tight(t, n_x ? (n_x - 1) * x_stride + k * 4 : 0);
    const size_t y_size = n_w && n_x ? (n_x - 1) * ldy + n_w : 0;
    float *want = kc_floats(t, y_size, KC_NORMAL), *got = kc_tight(t, y_size * sizeof *got);
    float *wide = kc_tight(t, k * sizeof *wide), *same = kc_tight(t, y_size * sizeof *same);
    memmove(got, want, y_size * sizeof *got);
    memmove(same, want, y_size * sizeof *same);
    for (size_t i = 0; i < n_w; i++)
        blocks_fill(t, type, w + i * w_stride, size, kind);
    for (size_t j = 0; j < n_x; j++)
        kc_fill(t, (float *)(x + j * x_stride), k, KC_NORMAL);
    /* by definition the product of the widened row, bit for bit */
    for (size_t i = 0; i < n_w; i++) {
        t->ref->dequant[type](wide, w + i * w_stride, k);
        t->ref->mul_f32(want + i, ldy, wide, k * 4, 1, x, x_stride, n_x, k);
    }
    t->ref->mul[type](same, ldy, w, w_stride, n_w, x, x_stride, n_x, k);
    kc_same_floats(t, same, want, y_size);
    t->now->mul[type](got, ldy, w, w_stride, n_w, x, x_stride, n_x, k);
    kc_same_floats(t, got, want, y_size);
}

static void check_fp8(struct kc *t, enum lode_dtype type) {
    KC_EACH(n_w, panels)
        KC_EACH(n_x, panels)
            check_fp8_shape(t, type, n_w, n_x, 32 * (1 + kc_below(t, 3)), BLOCKS_FINITE);
    for (size_t n = 0; n < 20; n++) {
        check_fp8_shape(t, type, 1 + kc_below(t, 9), 1 + kc_below(t, 9), 32 * n, BLOCKS_ANY);
        check_fp8_shape(t, type, 1 + kc_below(t, 9), 1 + kc_below(t, 9), 32 * n, BLOCKS_CORNER);
    }
    check_fp8_shape(t, type, 35, 70, 4096, BLOCKS_FINITE);
    check_fp8_shape(t, type, 66, 13, 4096, BLOCKS_FINITE);
    const size_t k = 4096, rows = 1 << 14, w_stride = k / 32 * lode_dtypes[type].bytes;
    if (!t->bench)
        return;
    char *w = kc_tight_aligned(t, rows * w_stride, 64);
    float *x = kc_tight_aligned(t, 64 * k * 4, 64);
    float *y = kc_tight_aligned(t, 64 * rows * 4, 64);
    blocks_fill(t, type, w, 64 * w_stride, BLOCKS_FINITE);
    for (size_t i = 64; i < rows; i += 64)
        memcpy(w + i * w_stride, w, 64 * w_stride);
    kc_fill(t, x, k * 64, KC_NORMAL);
    KC_TIME(t, "16384x4096 x 1", (double)(rows * w_stride), 2.0 * (double)(rows * k))
    t->now->mul[type](y, rows, w, w_stride, rows, x, k * 4, 1, k);
    KC_TIME(t, "256x4096 x 1", (double)(256 * w_stride), 2.0 * (double)(256 * k))
    t->now->mul[type](y, rows, w, w_stride, 256, x, k * 4, 1, k);
    KC_TIME(t, "64x4096 x 4", (double)(64 * w_stride), 2.0 * (double)(64 * k) * 4)
    t->now->mul[type](y, rows, w, w_stride, 64, x, k * 4, 4, k);
    KC_TIME(t, "64x4096 x 64", (double)(64 * w_stride), 2.0 * (double)(64 * k) * 64)
    t->now->mul[type](y, rows, w, w_stride, 64, x, k * 4, 64, k);
}

void check_mul_e4m3(struct kc *t) { check_fp8(t, LODE_E4M3); }
void check_mul_e5m2(struct kc *t) { check_fp8(t, LODE_E5M2); }

void check_mul_f32(struct kc *t) { check_mul(t, LODE_F32); }
void check_mul_f16(struct kc *t) { check_mul(t, LODE_F16); }
void check_mul_bf16(struct kc *t) { check_mul(t, LODE_BF16); }
