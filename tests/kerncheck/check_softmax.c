/* One chunk of a softmax. */
#include "kc.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const double u = FLT_EPSILON / 2;

void check_softmax_part(struct kc *t) {
    KC_EACH(n, kc_lengths) {
        if (n == 0)
            continue;
        float *x = kc_floats(t, n, KC_NORMAL);
        float *want = kc_tight(t, n * sizeof *want), *got = kc_tight(t, n * sizeof *got);
        double *v = kc_tight_aligned(t, n * sizeof *v, 8);
        for (int with_cap = 0; with_cap < 2; with_cap++) {
            const float scale = 4.0f, cap = with_cap ? 5.0f : 0.0f;
            kc_case(t, "n=%zu cap=%g", n, (double)cap);
            float max, sum, max_now, sum_now;
            memmove(want, x, n * sizeof *want);
            t->ref->softmax_part(want, n, scale, cap, &max, &sum);
            double exact_max = -INFINITY, exact_sum = 0, sum_error = 0;
            for (size_t i = 0; i < n; i++) {
                v[i] = (double)x[i] * (double)scale;
                if (with_cap)
                    v[i] = (double)cap * tanh(v[i] / (double)cap);
                exact_max = fmax(exact_max, v[i]);
            }
            /* v: one product; the cap adds a quotient, tanh's 6 and a product (exp_body.h) */
            const double e_v = with_cap ? 9.1 * u : 1.01 * u;
            kc_near(t, (double)max, exact_max, e_v * fabs(exact_max), n);
            for (size_t i = 0; i < n; i++) {
                const double d = v[i] - exact_max, e = exp(d);
                const double delta = e_v * (fabs(v[i]) + fabs(exact_max)) + 1.01 * u * fabs(d);
                const double bound = e * (1.01 * delta + 2.1 * u) + 0x1p-149;
                kc_near(t, (double)want[i], e, bound, i);
                exact_sum += e;
                sum_error += bound;
            }
            kc_near(t, (double)sum, exact_sum,
                    sum_error + (double)(n / 16 + 5) * 1.01 * u * exact_sum, n);
            memmove(got, x, n * sizeof *got);
            t->now->softmax_part(got, n, scale, cap, &max_now, &sum_now);
            kc_same_floats(t, got, want, n);
            kc_same(t, max_now, max, n);
            kc_same(t, sum_now, sum, n);

            kc_fill(t, want, n, KC_SPECIAL);
            if (n % 2) /* zeros of both signs: which is the maximum is defined, too */
                for (size_t i = 0; i < n; i++)
                    want[i] = kc_bits(t) & 1 ? 0.0f : -0.0f;
            memmove(got, want, n * sizeof *got);
            t->ref->softmax_part(want, n, scale, cap, &max, &sum);
            t->now->softmax_part(got, n, scale, cap, &max_now, &sum_now);
            kc_same_floats(t, got, want, n);
            kc_same(t, max_now, max, n);
            kc_same(t, sum_now, sum, n);
        }
    }
    const size_t n = 64;
    float *s = kc_floats(t, n, KC_NORMAL), max, sum;
    KC_TIME(t, "n=64", 8.0 * n, 16.0 * n)
    t->now->softmax_part(s, n, 0.1f, 0, &max, &sum);
}
