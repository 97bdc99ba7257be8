/* Activation functions and what they are made of; the bounds are derived in kern/exp_body.h. */
#include "kc.h"
#include "kern/expf.h"

#include <float.h>

static const double u = FLT_EPSILON / 2;

/* Numbers of every sign and exponent, dense where the functions live, and special ones. */
static float argument(struct kc *t) {
    switch (kc_below(t, 4)) {
    case 0:
        return kc_float(t, KC_WIDE);
    case 1:
        return kc_float(t, KC_SPECIAL);
    case 2:
        return (float)(kc_uniform(t) * 220 - 110);
    default:
        return kc_normal(t) * 3;
    }
}

static double silu_exact(double x) { return x / (1 + exp(-x)); }
static double gelu_exact(double x) {
    return x / (1 + exp(-2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

/* expf.h itself: the vectors share its text, so this needs to run once only. */
static void check_expf(struct kc *t) {
    kc_case(t, "expf, tanhf");
    for (size_t i = 0; i < 50000; i++) {
        const float x = argument(t);
        const double e = exp((double)x), th = tanh((double)x);
        if (e * (1 + 2.1 * u) < (double)FLT_MAX)
            kc_near(t, (double)lode_expf(x), e, 2.1 * u * e + 0x1p-150, i);
        else /* so near the end of the range that the error may cross it, or beyond */
            kc_true(t, lode_expf(x) >= FLT_MAX * 0.999999f || isnan(x), "exp overflows to infinity");
        kc_near(t, (double)lode_tanhf(x), th, 6.0 * u * fabs(th) + 0x1p-150, i);
    }
    kc_same(t, lode_expf(0.0f), 1.0f, 0);
    kc_same(t, lode_expf(-0.0f), 1.0f, 0);
    kc_same(t, lode_expf(-104.5f), 0.0f, 0);
    kc_same(t, lode_expf(-INFINITY), 0.0f, 0);
    kc_same(t, lode_expf(INFINITY), INFINITY, 0);
    kc_same(t, lode_expf(NAN), NAN, 0);
    kc_same(t, lode_tanhf(-0.0f), -0.0f, 0);
    kc_same(t, lode_tanhf(INFINITY), 1.0f, 0);
    kc_same(t, lode_tanhf(-INFINITY), -1.0f, 0);
    kc_same(t, lode_tanhf(NAN), NAN, 0);
    kc_same(t, lode_tanhf(0x1p-149f), 0x1p-149f, 0);
}

typedef void gated(float *y, const float *gate, const float *up, size_t n);

static double itself(double up) { return up; }

/* y = f(gate) g(up).  error: of f(x) and g(x), relative, in u.  One more for the product; where e^-x overflows the result is 0
 * though |x| e^x is up to |x| 2^-128; f(x) and the product may each be subnormal. */
static void check_gated(struct kc *t, gated *ref, gated *now, double (*f)(double),
                        double (*g)(double), double (*error)(double)) {
    KC_EACH(n, kc_lengths) {
        kc_case(t, "n=%zu", n);
        float *gate = kc_tight(t, n * sizeof *gate), *up = kc_floats(t, n, KC_NORMAL);
        float *want = kc_tight(t, n * sizeof *want), *got = kc_tight(t, n * sizeof *got);
        for (size_t i = 0; i < n; i++)
            gate[i] = argument(t);
        ref(want, gate, up, n);
        for (size_t i = 0; i < n; i++) {
            const double x = (double)gate[i], other = g((double)up[i]), exact = f(x) * other;
            if (isfinite(x) && fabs(exact) < (double)FLT_MAX)
                kc_near(t, (double)want[i], exact,
                        (error(x) + 1) * 1.01 * u * fabs(exact) +
                            (fabs(x) * 0x1p-128 + 0x1p-150) * fabs(other) + 0x1p-150, i);
        }
        now(got, gate, up, n);
        kc_same_floats(t, got, want, n);
        kc_fill(t, up, n, KC_SPECIAL);
        ref(want, gate, up, n);
        now(gate, gate, up, n);
        kc_same_floats(t, gate, want, n);
    }
    const size_t n = 4096;
    float *gate = kc_floats(t, n, KC_NORMAL), *y = kc_tight(t, n * sizeof *y);
    KC_TIME(t, "n=4096", 12.0 * n, 16.0 * n)
        now(y, gate, gate, n);
}

static double silu_error(double x) { return 4.1 + 0 * x; }
static double gelu_error(double x) {
    return 4.1 + 3.5 * fabs(2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
}

void check_silu_mul(struct kc *t) {
    if (t->now == t->ref && !t->bench)
        check_expf(t);
    check_gated(t, t->ref->silu_mul, t->now->silu_mul, silu_exact, itself, silu_error);
}

void check_gelu_mul(struct kc *t) {
    check_gated(t, t->ref->gelu_mul, t->now->gelu_mul, gelu_exact, itself, gelu_error);
}

static double clamped_gate(double x) {
    x = x > 7 ? 7 : x;
    return x / (1 + exp(-1.702 * x));
}
static double clamped_up(double x) { return (x > 7 ? 7 : x < -7 ? -7 : x) + 1; }
static double clamped_error(double x) { return 4.1 + 2 * 1.702 * fabs(x > 7 ? 7 : x) + 1; }

void check_clamped_mul(struct kc *t) {
    check_gated(t, t->ref->clamped_mul, t->now->clamped_mul, clamped_gate, clamped_up,
                clamped_error);
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

void check_sigmoid_mul(struct kc *t) {
    check_gated(t, t->ref->sigmoid_mul, t->now->sigmoid_mul, sigmoid, itself, silu_error);
}

static double no_error(double x) { return 0 * x; }

void check_times(struct kc *t) {
    check_gated(t, t->ref->times, t->now->times, itself, itself, no_error);
}

typedef void plain(float *y, const float *x, size_t n);

/* The same without a gate.  Where an exponential underflows the result is 0 or x, |x| 2^-128 off;
 * what is cut off beyond 14.5 is smaller. */
static void check_plain(struct kc *t, plain *ref, plain *now, double (*f)(double),
                        double (*error)(double)) {
    KC_EACH(n, kc_lengths) {
        kc_case(t, "n=%zu", n);
        float *x = kc_tight(t, n * sizeof *x);
        float *want = kc_tight(t, n * sizeof *want), *got = kc_tight(t, n * sizeof *got);
        for (size_t i = 0; i < n; i++)
            x[i] = argument(t);
        ref(want, x, n);
        for (size_t i = 0; i < n; i++) {
            const double exact = f((double)x[i]);
            if (isfinite(x[i]) && fabs(exact) < (double)FLT_MAX)
                kc_near(t, (double)want[i], exact,
                        error((double)x[i]) * 1.01 * u * fabs(exact) +
                            fabs((double)x[i]) * 0x1p-128 + 0x1p-149, i);
        }
        now(got, x, n);
        kc_same_floats(t, got, want, n);
        now(x, x, n);
        kc_same_floats(t, x, want, n);
    }
    const size_t n = 4096;
    float *x = kc_floats(t, n, KC_NORMAL), *y = kc_tight(t, n * sizeof *y);
    KC_TIME(t, "n=4096", 8.0 * n, 16.0 * n)
        now(y, x, n);
}

static double gelu_erf_exact(double x) { return x * erfc(-x * M_SQRT1_2) / 2; }
static double gelu_erf_error(double x) { return 14.3 + x * x / 2; }
static double relu2_exact(double x) { return x > 0 ? x * x : 0; }
static double relu2_error(double x) { return 1 + 0 * x; }

void check_gelu(struct kc *t) {
    check_plain(t, t->ref->gelu, t->now->gelu, gelu_exact, gelu_error);
}
void check_gelu_erf(struct kc *t) {
    check_plain(t, t->ref->gelu_erf, t->now->gelu_erf, gelu_erf_exact, gelu_erf_error);
}
void check_relu2(struct kc *t) {
    check_plain(t, t->ref->relu2, t->now->relu2, relu2_exact, relu2_error);
}

void check_softcap(struct kc *t) {
    KC_EACH(n, kc_lengths) {
        kc_case(t, "n=%zu", n);
        float *x = kc_tight(t, n * sizeof *x);
        float *want = kc_tight(t, n * sizeof *want), *got = kc_tight(t, n * sizeof *got);
        const float cap = n % 2 ? 30.0f : 50.0f;
        for (size_t i = 0; i < n; i++)
            x[i] = argument(t);
        t->ref->softcap(want, x, cap, n);
        for (size_t i = 0; i < n; i++) {
            /* the quotient, tanh (which does not amplify), the product; where x / cap is subnormal
             * its rounding is half of 2^-149, times cap */
            const double exact = (double)cap * tanh((double)x[i] / (double)cap);
            kc_near(t, (double)want[i], exact, 8.1 * u * fabs(exact) + (double)cap * 0x1p-149, i);
        }
        t->now->softcap(got, x, cap, n);
        kc_same_floats(t, got, want, n);
        t->now->softcap(x, x, cap, n);
        kc_same_floats(t, x, want, n);
    }
    const size_t n = 4096;
    float *x = kc_floats(t, n, KC_NORMAL), *y = kc_tight(t, n * sizeof *y);
    KC_TIME(t, "n=4096", 8.0 * n, 20.0 * n)
        t->now->softcap(y, x, 30.0f, n);
}
