/* Activations and KV entries to 8 bits. */
#include "base/half.h"
#include "kc.h"
#include "tensor/block.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double u = FLT_EPSILON / 2;

static double max_abs(const float *x, int n) {
    double max = 0;
    for (int i = 0; i < n; i++) {
        const double a = fabs((double)x[i]);
        max = isnan(a) || a > max ? a : max;
        if (isnan(a))
            break;
    }
    return max;
}

/* Every rounding to the nearest of the steps x / step.  x * (127 / max), or with two divisions,
 * errs by 3 roundings of a number up to 127, and the step itself by 2 more of them. */
static void near_steps(struct kc *t, const float *x, const int8_t *q, int n, double step,
                       size_t at) {
    for (int i = 0; i < n; i++)
        kc_near(t, step * q[i], (double)x[i], step * (0.5 + 127 * 6 * u), at + (size_t)i);
}

/* What a block is, if it is not an ordinary one: 1 and its d is as it must be, all else zero. */
static bool special(struct kc *t, double max, float d, const void *rest, size_t size) {
    static const char zeros[512];
    if (max < 0x1p-100)
        kc_true(t, d == 0, "d of a tiny block is 0");
    else if (isinf(max) || isnan(max))
        kc_true(t, isnan(d), "d of a block with an infinity or NaN is NaN");
    else
        return false;
    kc_true(t, memcmp(rest, zeros, size) == 0, "a special block is zeros");
    return true;
}

static void verify_a32(struct kc *t, const struct lode_block_a32 *b, const float *x) {
    const double max = max_abs(x, 32);
    int sum = 0;
    for (int i = 0; i < 32; i++) {
        sum += b->q[i];
        kc_true(t, b->q[i] != -128, "|q| <= 127");
    }
    kc_true(t, sum == b->sum, "sum of q");
    if (special(t, max, b->d, b->q, 32))
        return;
    kc_near(t, (double)b->d, max / 127, u * max / 127 * 1.01, 0);
    near_steps(t, x, b->q, 32, (double)b->d, 0);
}

static void verify_a256(struct kc *t, const struct lode_block_a256 *b, const float *x) {
    static const uint8_t no_pad[sizeof b->pad];
    const double max = max_abs(x, 256);
    kc_true(t, memcmp(b->pad, no_pad, sizeof no_pad) == 0, "padding is zero");
    for (int g = 0; g < 16; g++) {
        int sum = 0;
        for (int i = 16 * g; i < 16 * g + 16; i++) {
            sum += b->q[i];
            kc_true(t, b->q[i] != -128, "|q| <= 127");
        }
        kc_true(t, sum * b->m[g / 2] == b->sums[g], "sums");
    }
    for (int g = 0; g < 8; g++)
        kc_true(t, b->m[g] >= 1 && b->m[g] <= LODE_A256_MUL, "1 <= m <= 16");
    if (special(t, max, b->d, b->q, 256))
        return;
    kc_near(t, (double)b->d, max / 2032, u * max / 2032 * 1.01, 0);
    for (int g = 0; g < 8; g++) {
        /* m is the smallest that covers the 32, but for roundings */
        const double need = max_abs(x + 32 * g, 32) * LODE_A256_MUL / max;
        kc_true(t, b->m[g] == 1 || b->m[g] - 1 < need * (1 + 4 * u), "m is not too large");
        near_steps(t, x + 32 * g, b->q + 32 * g, 32, (double)b->d * b->m[g], 32 * (size_t)g);
    }
}

static void verify_q8_0(struct kc *t, const struct lode_block_q8_0 *b, const float *x) {
    const double max = max_abs(x, 32), want = max / 127, d = (double)lode_f16_f32(b->d);
    int all = 0;
    for (int i = 0; i < 32; i++)
        all |= b->qs[i];
    if (isinf(max) || isnan(max)) {
        kc_true(t, isnan(d) && all == 0, "NaN or infinity: d NaN, q 0");
        return;
    }
    if (want > 65520) {
        kc_true(t, d == 65504, "a scale beyond the halves is the largest half");
        return;
    }
    /* d is a half away by 2^-11 of it, or 2^-25; where it lies lower, q is held at 127 */
    kc_near(t, d, want, fmax(want * 0x1.01p-11, 0x1.01p-25), 0);
    if (d == 0) {
        kc_true(t, all == 0, "d = 0: q 0");
        return;
    }
    for (int i = 0; i < 32; i++)
        kc_near(t, d * b->qs[i], (double)x[i],
                d * (0.5 + 127 * 4 * u) + 127 * fmax(want - d, 0) * (1 + 4 * u), (size_t)i);
}

static const size_t block_counts[] = {0, 1, 2, 3, 4, 9};
static const struct input {
    enum kc_kind kind;
    float scale;
} inputs[] = {{KC_NORMAL, 1},        {KC_WIDE, 1},           {KC_SPECIAL, 1},
              {KC_NORMAL, 0},        {KC_NORMAL, 0x1p-102f}, {KC_NORMAL, 0x1p-140f},
              {KC_NORMAL, 0x1p120f}, {KC_NORMAL, 0x1p-20f},  {KC_NORMAL, 0x1p20f}};

static void check_quant(struct kc *t, size_t block, size_t bytes,
                        void (*ref)(void *, const float *, size_t),
                        void (*now)(void *, const float *, size_t),
                        void (*verify)(struct kc *, const void *, const float *)) {
    KC_EACH(n, block_counts)
        for (size_t k = 0; k < sizeof inputs / sizeof *inputs; k++) {
            float *x = kc_tight(t, n * block * sizeof *x);
            char *want = kc_tight(t, n * bytes), *got = kc_tight(t, n * bytes);
            kc_case(t, "%zu blocks, input %zu", n, k);
            kc_fill(t, x, n * block, inputs[k].kind);
            for (size_t i = 0; i < n * block; i++)
                x[i] *= inputs[k].scale;
            for (size_t i = 0; i < n && k == 0; i++) /* ties: halves of the step */
                if (i % 2)
                    for (size_t j = 0; j < block; j++)
                        x[i * block + j] = j ? (float)kc_below(t, 254) / 2 - 63.5f : 127;
            ref(want, x, n * block);
            for (size_t i = 0; i < n; i++)
                verify(t, want + i * bytes, x + i * block);
            now(got, x, n * block);
            kc_same_bytes(t, got, want, n * bytes);
        }
    const size_t n = 4096;
    float *x = kc_floats(t, n, KC_NORMAL);
    char *y = kc_tight_aligned(t, n / block * bytes, 64);
    KC_TIME(t, "n=4096", (double)(4 * n + n / block * bytes), (double)n)
    now(y, x, n);
}

#define VERIFY(name, type)                                                                         \
    static void any_##name(struct kc *t, const void *b, const float *x) {                          \
        verify_##name(t, (const struct lode_block_##type *)b, x);                                  \
    }
VERIFY(a32, a32)
VERIFY(a256, a256)
VERIFY(q8_0, q8_0)

void check_quant_a32(struct kc *t) {
    check_quant(t, 32, sizeof(struct lode_block_a32), t->ref->quant_a32, t->now->quant_a32,
                any_a32);
}
void check_quant_a256(struct kc *t) {
    check_quant(t, 256, sizeof(struct lode_block_a256), t->ref->quant_a256, t->now->quant_a256,
                any_a256);
}
void check_kv_put_q8_0(struct kc *t) {
    check_quant(t, 32, sizeof(struct lode_block_q8_0), t->ref->kv_put_q8_0, t->now->kv_put_q8_0,
                any_q8_0);
}
