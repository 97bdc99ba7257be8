/* Rows of floats.  u = half a FLT_EPSILON is the relative error of one rounding. */
#include "kc.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const double u = FLT_EPSILON / 2;

/* Roundings on the way of any one number through sixteen lanes: its lane's FMAs and the joins. */
static double lane_steps(size_t n) { return (double)(n / 16 + 1 + 4); }

void check_dot_f32(struct kc *t) {
    KC_EACH(n, kc_lengths) {
        kc_case(t, "n=%zu", n);
        float *a = kc_floats(t, n, KC_WIDE), *b = kc_floats(t, n, KC_WIDE);
        double exact = 0, size = 0;
        for (size_t i = 0; i < n; i++) {
            exact += (double)a[i] * (double)b[i];
            size += fabs((double)a[i] * (double)b[i]);
        }
        /* (1 + u)^steps - 1 < steps u 1.01 for every length here */
        const double bound = lane_steps(n) * 1.01 * u * size + (double)n * 0x1p-149;
        kc_near(t, (double)t->ref->dot_f32(a, b, n), exact, bound, n);
        kc_same(t, t->now->dot_f32(a, b, n), t->ref->dot_f32(a, b, n), n);
        kc_fill(t, a, n, KC_SPECIAL);
        kc_fill(t, b, n, KC_SPECIAL);
        kc_same(t, t->now->dot_f32(a, b, n), t->ref->dot_f32(a, b, n), n);
        /* products that round to -0: their lanes must not be touched by padding */
        for (size_t i = 0; i < n; i++) {
            a[i] = -0x1p-100f;
            b[i] = 0x1p-100f;
        }
        kc_same(t, t->now->dot_f32(a, b, n), t->ref->dot_f32(a, b, n), n);
    }
    const size_t n = 4096;
    float *a = kc_floats(t, n, KC_NORMAL), *b = kc_floats(t, n, KC_NORMAL);
    volatile float sink = 0;
    KC_TIME(t, "n=4096", 8.0 * n, 2.0 * n)
    sink = t->now->dot_f32(a, b, n);
    (void)sink;
}

void check_rms_norm(struct kc *t) {
    const float eps = 1e-6f;
    KC_EACH(n, kc_lengths) {
        kc_case(t, "n=%zu", n);
        float *x = kc_floats(t, n, KC_NORMAL), *w = kc_floats(t, n, KC_NORMAL);
        float *want = kc_tight(t, n * sizeof *want), *got = kc_tight(t, n * sizeof *got);
        double square = 0;
        for (size_t i = 0; i < n; i++)
            square += (double)x[i] * (double)x[i];
        const double root = sqrt(square / (double)n + (double)eps);
        t->ref->rms_norm(want, x, w, n, eps);
        for (size_t i = 0; i < n; i++) {
            const double exact = (double)x[i] / root * (double)w[i];
            /* under the root: the sum, the division by n, eps, all positive; the root halves that
             * and rounds; then a division and a product */
            const double bound = ((lane_steps(n) + 2) / 2 + 3) * 1.01 * u * fabs(exact);
            kc_near(t, (double)want[i], exact, bound, i);
        }
        t->now->rms_norm(got, x, w, n, eps);
        kc_same_floats(t, got, want, n);
        t->ref->rms_norm(want, x, NULL, n, eps);
        t->now->rms_norm(x, x, NULL, n, eps); /* in place */
        kc_same_floats(t, x, want, n);
        kc_fill(t, x, n, KC_SPECIAL);
        t->ref->rms_norm(want, x, w, n, eps);
        t->now->rms_norm(got, x, w, n, eps);
        kc_same_floats(t, got, want, n);
    }
    const size_t n = 4096;
    float *x = kc_floats(t, n, KC_NORMAL), *w = kc_floats(t, n, KC_NORMAL);
    float *y = kc_tight(t, n * sizeof *y);
    KC_TIME(t, "n=4096", 12.0 * n, 4.0 * n)
    t->now->rms_norm(y, x, w, n, eps);
}

void check_layer_norm(struct kc *t) {
    const float eps = 1e-5f;
    KC_EACH(n, kc_lengths) {
        kc_case(t, "n=%zu", n);
        float *x = kc_floats(t, n, KC_NORMAL), *w = kc_floats(t, n, KC_NORMAL);
        float *b = kc_floats(t, n, KC_NORMAL);
        float *want = kc_tight(t, n * sizeof *want), *got = kc_tight(t, n * sizeof *got);
        double mean = 0, size = 0, square = 0, deviation = 0;
        for (size_t i = 0; i < n; i++) {
            mean += (double)x[i] / (double)n;
            size += fabs((double)x[i]) / (double)n;
        }
        for (size_t i = 0; i < n; i++) {
            square += ((double)x[i] - mean) * ((double)x[i] - mean);
            deviation += fabs((double)x[i] - mean);
        }
        const double var = square / (double)n, root = sqrt(var + (double)eps);
        /* of the mean: lanes, division; of each d: that and one rounding; of the variance: 2 |d|
         * and d's error, and lanes, division; of the root: half of it, eps, rounding */
        const double e_mean = (lane_steps(n) + 1) * 1.01 * u * size;
        const double e_var = 2 * (deviation / (double)n) * e_mean + e_mean * e_mean +
                             (lane_steps(n) + 4) * 1.01 * u * var;
        const double e_root = e_var / (var + (double)eps) / 2 + 1.6 * u;
        t->ref->layer_norm(want, x, w, b, n, eps);
        for (size_t i = 0; i < n; i++) {
            const double d = (double)x[i] - mean, unit = d / root;
            const double e_unit = (e_mean + fabs(d) * u) / root + fabs(unit) * (e_root * 1.01 + u);
            const double exact = unit * (double)w[i] + (double)b[i];
            kc_near(t, (double)want[i], exact,
                    e_unit * 1.01 * fabs((double)w[i]) + u * 1.01 * fabs(exact), i);
        }
        t->now->layer_norm(got, x, w, b, n, eps);
        kc_same_floats(t, got, want, n);
        t->ref->layer_norm(want, x, NULL, b, n, eps);
        t->now->layer_norm(got, x, NULL, b, n, eps);
        kc_same_floats(t, got, want, n);
        kc_fill(t, w, n, KC_SPECIAL);
        t->ref->layer_norm(want, x, w, NULL, n, eps);
        t->now->layer_norm(got, x, w, NULL, n, eps);
        kc_same_floats(t, got, want, n);
        kc_fill(t, x, n, KC_SPECIAL);
        t->ref->layer_norm(want, x, w, b, n, eps);
        t->now->layer_norm(x, x, w, b, n, eps);
        kc_same_floats(t, x, want, n);
    }
    const size_t n = 4096;
    float *x = kc_floats(t, n, KC_NORMAL), *w = kc_floats(t, n, KC_NORMAL);
    float *y = kc_tight(t, n * sizeof *y);
    KC_TIME(t, "n=4096", 16.0 * n, 7.0 * n)
    t->now->layer_norm(y, x, w, w, n, eps);
}

void check_add(struct kc *t) {
    KC_EACH(n, kc_lengths) {
        kc_case(t, "n=%zu", n);
        float *a = kc_floats(t, n, KC_SPECIAL), *b = kc_floats(t, n, KC_SPECIAL);
        float *want = kc_tight(t, n * sizeof *want), *got = kc_tight(t, n * sizeof *got);
        t->ref->add(want, a, b, n);
        for (size_t i = 0; i < n; i++)
            kc_same(t, want[i], (float)((double)a[i] + (double)b[i]), i); /* 53 >= 2 * 24 + 2 */
        t->now->add(got, a, b, n);
        kc_same_floats(t, got, want, n);
        t->now->add(a, a, b, n);
        kc_same_floats(t, a, want, n);
    }
    const size_t n = 4096;
    float *a = kc_floats(t, n, KC_NORMAL), *y = kc_tight(t, n * sizeof *y);
    KC_TIME(t, "n=4096", 12.0 * n, 1.0 * n)
    t->now->add(y, a, a, n);
}

void check_scale(struct kc *t) {
    KC_EACH(n, kc_lengths) {
        kc_case(t, "n=%zu", n);
        float *x = kc_floats(t, n, KC_SPECIAL);
        const float s = kc_normal(t);
        float *want = kc_tight(t, n * sizeof *want), *got = kc_tight(t, n * sizeof *got);
        t->ref->scale(want, x, s, n);
        for (size_t i = 0; i < n; i++)
            kc_same(t, want[i], (float)((double)x[i] * (double)s), i);
        t->now->scale(got, x, s, n);
        kc_same_floats(t, got, want, n);
        t->now->scale(x, x, s, n);
        kc_same_floats(t, x, want, n);
    }
    const size_t n = 4096;
    float *x = kc_floats(t, n, KC_NORMAL), *y = kc_tight(t, n * sizeof *y);
    KC_TIME(t, "n=4096", 8.0 * n, 1.0 * n)
    t->now->scale(y, x, 3.0f, n);
}

void check_axpy(struct kc *t) {
    KC_EACH(n, kc_lengths) {
        kc_case(t, "n=%zu", n);
        float *x = kc_floats(t, n, KC_NORMAL), *want = kc_floats(t, n, KC_NORMAL);
        float *got = kc_tight(t, n * sizeof *got);
        const float s = kc_normal(t);
        for (int special = 0; special < 2; special++) {
            if (special) {
                kc_fill(t, x, n, KC_SPECIAL);
                kc_fill(t, want, n, KC_SPECIAL);
            }
            memmove(got, want, n * sizeof *got);
            t->ref->axpy(want, x, s, n);
            for (size_t i = 0; i < n && !special; i++) {
                const double exact = (double)s * (double)x[i] + (double)got[i];
                kc_near(t, (double)want[i], exact, u * 1.01 * fabs(exact) + 0x1p-149, i);
            }
            t->now->axpy(got, x, s, n);
            kc_same_floats(t, got, want, n);
        }
    }
    const size_t n = 4096;
    float *x = kc_floats(t, n, KC_NORMAL), *y = kc_floats(t, n, KC_NORMAL);
    KC_TIME(t, "n=4096", 12.0 * n, 2.0 * n)
    t->now->axpy(y, x, 1e-6f, n);
}
