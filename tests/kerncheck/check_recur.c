/* Short convolutions and the gated delta rule.  u = half a FLT_EPSILON is the relative error of one
 * rounding. */
#include "kc.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const double u = FLT_EPSILON / 2;

static double silu(double x) { return x / (1 + exp(-x)); }

void check_conv_row(struct kc *t) {
    for (size_t taps = 1; taps <= LODE_MAX_TAPS; taps++)
        KC_EACH(n, kc_lengths) {
            kc_case(t, "taps=%zu n=%zu", taps, n);
            const float *x[LODE_MAX_TAPS];
            float *w = kc_floats(t, taps * n, KC_NORMAL);
            float *want = kc_tight(t, n * sizeof *want), *got = kc_tight(t, n * sizeof *got);
            for (size_t i = 0; i < taps; i++)
                x[i] = kc_floats(t, n, KC_NORMAL);
            t->ref->conv_row(want, x, w, taps, n, false);
            for (size_t c = 0; c < n; c++) {
                double exact = 0, size = 0;
                for (size_t i = 0; i < taps; i++) {
                    exact += (double)w[c * taps + i] * (double)x[i][c];
                    size += fabs((double)w[c * taps + i] * (double)x[i][c]);
                }
                kc_near(t, (double)want[c], exact, (double)taps * 1.01 * u * size, c);
            }
            t->now->conv_row(got, x, w, taps, n, false);
            kc_same_floats(t, got, want, n);
            t->ref->conv_row(got, x, w, taps, n, true);
            for (size_t c = 0; c < n; c++) /* exp_body.h has silu's bound */
                kc_near(t, (double)got[c], silu((double)want[c]),
                        4.2 * u * fabs(silu((double)want[c])), c);
            memcpy(want, got, n * sizeof *got);
            t->now->conv_row(got, x, w, taps, n, true);
            kc_same_floats(t, got, want, n);
            kc_fill(t, w, taps * n, KC_SPECIAL);
            t->ref->conv_row(want, x, w, taps, n, true);
            t->now->conv_row(got, x, w, taps, n, true);
            kc_same_floats(t, got, want, n);
        }
    const size_t n = 8192;
    const float *x[4];
    float *w = kc_floats(t, 4 * n, KC_NORMAL), *y = kc_tight(t, n * sizeof *y);
    for (size_t i = 0; i < 4; i++)
        x[i] = kc_floats(t, n, KC_NORMAL);
    KC_TIME(t, "4 taps, n=8192", 36.0 * n, 24.0 * n)
    t->now->conv_row(y, x, w, 4, n, true);
}

/* The rule in double precision beside a bound e on the error of every float, followed through each
 * line of the definition: the error of what a line reads, times what it is multiplied by, and u for
 * each rounding (of a sum of dim_k: that many times the sum of the sizes); 1.01 covers products of
 * errors.  Holds o to it. */
struct number {
    double x, e;
};

static struct number sum_at(const struct number *s, const float *key, size_t dim_k) {
    struct number m = {0, 0};
    double size = 0;
    for (size_t i = 0; i < dim_k; i++) {
        m.x += s[i].x * (double)key[i];
        m.e += s[i].e * fabs((double)key[i]);
        size += fabs(s[i].x * (double)key[i]);
    }
    m.e = 1.01 * (m.e + (double)dim_k * u * size);
    return m;
}

static void hold(struct kc *t, const float *o, struct number *s /* a column */, const float *q,
                 const float *k, const float *v, size_t ldx, size_t ldo, const float *gates,
                 size_t ldg, size_t n_t, size_t dim_k) {
    for (size_t n = 0; n < n_t; n++) {
        const double decay = (double)gates[n * ldg], beta = (double)gates[n * ldg + 1];
        const struct number m = sum_at(s, k + n * ldx, dim_k);
        const double left = (double)v[n * ldx] - decay * m.x;
        const struct number d = {left * beta,
                                 1.01 * fabs(beta) * (fabs(decay) * m.e + 2 * u * fabs(left))};
        for (size_t i = 0; i < dim_k; i++) {
            const double key = (double)k[n * ldx + i], kept = s[i].x * decay, added = key * d.x;
            s[i].e = 1.01 * (s[i].e * fabs(decay) + u * fabs(kept) + fabs(key) * d.e +
                             u * fabs(kept + added));
            s[i].x = kept + added;
        }
        const struct number sum = sum_at(s, q + n * ldx, dim_k);
        kc_near(t, (double)o[n * ldo], sum.x, sum.e, n);
    }
}

static const size_t column_counts[] = {16, 32, 48, 64, 128, 144};

static void check_delta_case(struct kc *t, size_t n, size_t dim_k, size_t n_t, enum kc_kind kind) {
    kc_case(t, "columns=%zu dim_k=%zu tokens=%zu", n, dim_k, n_t);
    const size_t ldx = 2 * dim_k + n + kc_below(t, 4), ldo = n + kc_below(t, 4);
    const size_t ldg = 2 + kc_below(t, 3), size = n * dim_k;
    const size_t rows = n_t ? (n_t - 1) * ldx + 2 * dim_k + n : 0;
    const size_t results = n_t ? (n_t - 1) * ldo + n : 0;
    float *x = kc_floats(t, rows, KC_NORMAL);
    float *gates = kc_floats(t, n_t ? (n_t - 1) * ldg + 2 : 0, KC_NORMAL);
    float *s = kc_floats(t, size, kind);
    float *now = kc_tight(t, size * sizeof *now), *ref = kc_tight(t, size * sizeof *ref);
    float *got = kc_tight(t, results * sizeof *got), *want = kc_tight(t, results * sizeof *want);
    for (size_t i = 0; i < n_t; i++) { /* as the layers have them: keys of length 1 */
        for (size_t j = 0; j < 2 * dim_k; j++)
            x[i * ldx + j] /= sqrtf((float)dim_k);
        gates[i * ldg] = (float)kc_uniform(t);
        gates[i * ldg + 1] = (float)kc_uniform(t);
    }
    const float *q = x, *k = x + dim_k, *v = k + dim_k;
    memcpy(want, got, results * sizeof *got); /* what lies between rows is left alone */
    memcpy(ref, s, size * sizeof *s);
    memcpy(now, s, size * sizeof *s);
    t->ref->delta_rule(want, ldo, ref, q, k, v, ldx, gates, ldg, n_t, dim_k, n);
    t->now->delta_rule(got, ldo, now, q, k, v, ldx, gates, ldg, n_t, dim_k, n);
    kc_same_floats(t, got, want, results);
    kc_same_floats(t, now, ref, size);
    if (kind == KC_NORMAL) {
        struct number column[256];
        for (size_t c = 0; c < n; c++) {
            for (size_t i = 0; i < dim_k; i++)
                column[i] = (struct number){(double)s[(c / 16 * dim_k + i) * 16 + c % 16], 0};
            hold(t, want + c, column, q, k, v + c, ldx, ldo, gates, ldg, n_t, dim_k);
        }
    }
    if (n_t < 2)
        return;
    /* the same in two calls, over halves of the columns where there are halves */
    const size_t first = 1 + kc_below(t, n_t - 1), half = n % 32 ? n : n / 2;
    memcpy(now, s, size * sizeof *s);
    for (size_t c = 0; c < n; c += half) {
        float *part = now + c * dim_k;
        t->now->delta_rule(got + c, ldo, part, q, k, v + c, ldx, gates, ldg, first, dim_k, half);
        const size_t at = first * ldx;
        t->now->delta_rule(got + first * ldo + c, ldo, part, q + at, k + at, v + at + c, ldx,
                           gates + first * ldg, ldg, n_t - first, dim_k, half);
    }
    kc_same_floats(t, got, want, results);
    kc_same_floats(t, now, ref, size);
}

void check_delta_rule(struct kc *t) {
    static const size_t dims[] = {1, 2, 16, 64, 128}, tokens[] = {0, 1, 2, 3, 9};
    KC_EACH(n, column_counts)
        KC_EACH(dim_k, dims)
            KC_EACH(n_t, tokens) {
                check_delta_case(t, n, dim_k, n_t, KC_NORMAL);
                check_delta_case(t, n, dim_k, n_t, KC_SPECIAL);
            }
    enum { DIM = 128, TOKENS = 64 };
    const size_t ldx = 3 * DIM;
    float *x = kc_floats(t, TOKENS * ldx, KC_NORMAL), *s = kc_tight(t, DIM * DIM * sizeof *s);
    float *gates = kc_tight(t, TOKENS * 2 * sizeof *gates);
    float *o = kc_tight(t, TOKENS * DIM * sizeof *o);
    for (size_t i = 0; i < TOKENS * ldx; i++)
        x[i] *= 0.09f;
    for (size_t i = 0; i < TOKENS * 2; i++)
        gates[i] = 0.9f;
    memset(s, 0, DIM * DIM * sizeof *s);
    /* a multiply-add for each: what S holds, the update, the output; and the decay */
    const double ops = 7.0 * DIM * DIM;
    KC_TIME(t, "1 token, 128 x 128", 8.0 * DIM * DIM, ops)
    t->now->delta_rule(o, DIM, s, x, x + DIM, x + 2 * DIM, ldx, gates, 2, 1, DIM, DIM);
    KC_TIME(t, "64 tokens, 128 x 128", 8.0 * DIM * DIM, ops * TOKENS)
    t->now->delta_rule(o, DIM, s, x, x + DIM, x + 2 * DIM, ldx, gates, 2, TOKENS, DIM, DIM);
}
