/* Rotary embedding. */
#include "kc.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const double u = FLT_EPSILON / 2;
static const size_t pair_counts[] = {0,  1,  2,  3,  4,  7,  8,  9,  15,
                                     16, 17, 24, 31, 32, 33, 48, 64, 128};

typedef void rope(float *x, size_t stride, size_t n_heads, const float *cs, size_t n_pairs);

void check_rope_half(struct kc *t) {
    rope *const ref = t->ref->rope_half, *const now = t->now->rope_half;
    KC_EACH(n, pair_counts) {
        const size_t n_heads = kc_below(t, 4), stride = 2 * n + kc_below(t, 5);
        const size_t size = n_heads ? (n_heads - 1) * stride + 2 * n : 0;
        kc_case(t, "pairs=%zu heads=%zu stride=%zu", n, n_heads, stride);
        float *cs = kc_tight(t, 2 * n * sizeof *cs);
        float *x = kc_floats(t, size, KC_NORMAL);
        float *want = kc_tight(t, size * sizeof *want), *got = kc_tight(t, size * sizeof *got);
        for (size_t i = 0; i < n; i++) {
            const double angle = kc_uniform(t) * 100;
            cs[2 * i] = (float)cos(angle);
            cs[2 * i + 1] = (float)sin(angle);
        }
        memmove(want, x, size * sizeof *want);
        ref(want, stride, n_heads, cs, n);
        for (size_t h = 0; h < n_heads; h++)
            for (size_t i = 0; i < n; i++) {
                const size_t ia = h * stride + i, ib = ia + n;
                const double a = (double)x[ia], b = (double)x[ib];
                const double c = (double)cs[2 * i], s = (double)cs[2 * i + 1];
                /* one product rounded, one FMA */
                kc_near(t, (double)want[ia], a * c - b * s,
                        1.01 * u * (fabs(a * c) + 2 * fabs(b * s)), ia);
                kc_near(t, (double)want[ib], a * s + b * c,
                        1.01 * u * (fabs(a * s) + 2 * fabs(b * c)), ib);
            }
        memmove(got, x, size * sizeof *got);
        now(got, stride, n_heads, cs, n);
        kc_same_floats(t, got, want, size); /* numbers between heads are left alone too */
        kc_fill(t, want, size, KC_SPECIAL);
        memmove(got, want, size * sizeof *got);
        ref(want, stride, n_heads, cs, n);
        now(got, stride, n_heads, cs, n);
        kc_same_floats(t, got, want, size);
    }
    const size_t n = 64, heads = 32;
    float *cs = kc_floats(t, 2 * n, KC_NORMAL), *x = kc_tight(t, heads * 2 * n * sizeof *x);
    KC_TIME(t, "32 heads of 128", 16.0 * heads * n, 6.0 * heads * n)
    now(x, 2 * n, heads, cs, n);
}
