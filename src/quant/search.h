/* search.h - scales and codes for a few numbers, by least squares.
 *
 * Everything here minimises sum v (x - w)^2 for numbers x with weights v, where w is what the codes
 * stand for: d c (fit_scale) or d c - m with m >= 0, or of any sign (fit_affine).  For given codes
 * the best d and m are a division; for given d and m the best codes are the nearest.  So a search
 * walks over scales near the one that the largest number asks for, takes the codes that each gives,
 * and scores them by the error that remains when d is fitted to them: sum v x^2 - gain.
 *
 * Sums run in four lanes joined as (0 + 2) + (1 + 3): the same bits in every build.
 */
#ifndef LODE_QUANT_SEARCH_H
#define LODE_QUANT_SEARCH_H

#include "base/half.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef float v4 __attribute__((vector_size(16)));
typedef int32_t m4 __attribute__((vector_size(16)));

static inline v4 v4_of(float f) { return (v4){f, f, f, f}; }
static inline v4 v4_load(const float *p) {
    v4 v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void v4_store(float *p, v4 v) { memcpy(p, &v, sizeof v); }
static inline v4 v4_pick(m4 m, v4 a, v4 b) { return (v4)(((m4)a & m) | ((m4)b & ~m)); }
static inline float v4_sum(v4 v) { return (v[0] + v[2]) + (v[1] + v[3]); }

/* Codes as floats: whole numbers from lo to hi, or the levels of a table. */
struct codes {
    float lo, hi;
    const float *nearest; /* ((hi - lo) * fine + 1) the level nearest to lo + i / fine; or NULL */
    float fine;
};

/* Fills such a table from n ascending levels. */
static inline void nearest_levels(float *nearest, const float *levels, int n, int fine) {
    int k = 0;
    for (int i = (int)levels[0] * fine; i <= (int)levels[n - 1] * fine; i++) {
        while (k + 1 < n && (float)(2 * i) > (float)fine * (levels[k] + levels[k + 1]))
            k++;
        *nearest++ = levels[k];
    }
}

/* To nearest even: adding 1.5 * 2^23 leaves no bits behind the point.  |x| < 2^22 after clamping,
 * which also makes lo of what is not a number. */
static inline v4 snap_whole(v4 x, float lo, float hi) {
    const v4 big = v4_of(12582912.0f), l = v4_of(lo), h = v4_of(hi);
    x = v4_pick(x > l, x, l);
    x = v4_pick(x < h, x, h);
    return (x + big) - big;
}

/* The value of the code nearest to x: of levels, to x in steps of 1 / fine. */
static inline v4 snap(v4 x, const struct codes *c) {
    if (!c->nearest)
        return snap_whole(x, c->lo, c->hi);
    x = snap_whole(x * c->fine, c->lo * c->fine, c->hi * c->fine) - c->lo * c->fine;
    return (v4){c->nearest[(int)x[0]], c->nearest[(int)x[1]], c->nearest[(int)x[2]],
                c->nearest[(int)x[3]]};
}

/* The half nearest to d, as a float. */
static inline float to_half(float d) { return lode_f16_f32(lode_f32_f16(d)); }

static inline float inverse(float d) {
    const float i = 1 / d;
    return d != 0 && isfinite(i) ? i : 0;
}

/* ---- w = d c ---- */

/* Gain of the codes nearest to x / d, and the d that fits them. */
static inline float try_scale(const float *x, const float *v, int n, const struct codes *c,
                              float inv, float *d) {
    v4 xc = v4_of(0), cc = v4_of(0);
    for (int i = 0; i < n; i += 4) {
        const v4 t = v4_load(x + i), code = snap(t * inv, c), vc = v4_load(v + i) * code;
        xc += vc * t;
        cc += vc * code;
    }
    const float sxc = v4_sum(xc), scc = v4_sum(cc);
    if (!(scc > 0))
        return 0;
    *d = sxc / scc;
    return sxc * *d;
}

/* The scale; 0 where nothing is better than zeros. */
static inline float fit_scale(const float *x, const float *v, int n, const struct codes *c) {
    enum { STEPS = 6 };
    float most = 0, best = 0, best_gain = 0;
    for (int i = 0; i < n; i++)
        most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
    if (fabsf(most) < 1e-20f) /* less than any scale can say */
        return 0;
    const float stride = (c->hi - c->lo) / 128 > 0.25f ? (c->hi - c->lo) / 128 : 0.25f;
    for (int side = 0; side < 2; side++)
        for (int k = -STEPS; k <= STEPS; k++) { /* the largest number near either end */
            float d = 0;
            const float end = (side ? c->hi : c->lo) + stride * (float)k;
            const float gain = try_scale(x, v, n, c, end / most, &d);
            if (gain > best_gain) {
                best_gain = gain;
                best = d;
            }
        }
    for (int again = 0; again < 4; again++) { /* codes by the fitted scale may be others again */
        float d = 0;
        const float gain = try_scale(x, v, n, c, inverse(best), &d);
        if (!(gain > best_gain))
            break;
        best_gain = gain;
        best = d;
    }
    return best;
}

/* Error of the codes nearest to x / d; code: (n), or NULL. */
static inline float scale_error(const float *x, const float *v, int n, const struct codes *c,
                                float d, float *code) {
    const float inv = inverse(d);
    v4 sum = v4_of(0);
    for (int i = 0; i < n; i += 4) {
        const v4 t = v4_load(x + i), q = snap(t * inv, c), e = t - q * d;
        sum += v4_load(v + i) * e * e;
        if (code)
            v4_store(code + i, q);
    }
    return v4_sum(sum);
}

/* ---- w = d c - m, c from 0 to hi ---- */

struct affine {
    float d, m;
};

static inline float try_affine(const float *x, const float *v, int n, float hi, float inv,
                               float low, bool min_only, struct affine *out) {
    v4 a = v4_of(0), b = a, c = a, e = a, f = a;
    for (int i = 0; i < n; i += 4) {
        const v4 t = v4_load(x + i), w = v4_load(v + i);
        const v4 q = snap_whole((t - low) * inv, 0, hi), wq = w * q;
        a += w;
        b += wq;
        c += wq * q;
        e += w * t;
        f += wq * t;
    }
    const float sw = v4_sum(a), sq = v4_sum(b), sqq = v4_sum(c), sx = v4_sum(e), sxq = v4_sum(f);
    const float det = sw * sqq - sq * sq;
    struct affine r = {0, 0};
    if (det > 0) {
        r.d = (sw * sxq - sx * sq) / det;
        r.m = (sq * sxq - sqq * sx) / det;
    } else if (sw > 0) {
        r.m = -sx / sw;
    }
    if (min_only && r.m < 0) {
        r.m = 0;
        r.d = sqq > 0 ? sxq / sqq : 0;
    }
    if (r.d < 0)
        r.d = 0;
    *out = r;
    /* 2 <x, w> - <w, w>: what the error is smaller by than that of zeros */
    return 2 * (r.d * sxq - r.m * sx) - (r.d * r.d * sqq - 2 * r.d * r.m * sq + r.m * r.m * sw);
}

static inline struct affine fit_affine(const float *x, const float *v, int n, float hi,
                                       bool min_only) {
    enum { STEPS = 6 };
    float low = x[0], high = x[0], best_gain = -1;
    struct affine best = {0, 0};
    for (int i = 1; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    if (min_only && low > 0)
        low = 0;
    if (!(high - low > 1e-20f))
        return (struct affine){0, -low};
    for (int k = -STEPS; k <= STEPS; k++) {
        struct affine r;
        const float gain =
            try_affine(x, v, n, hi, (hi + 0.15f * (float)k) / (high - low), low, min_only, &r);
        if (gain > best_gain) {
            best_gain = gain;
            best = r;
        }
    }
    for (int again = 0; again < 6; again++) {
        struct affine r;
        const float gain = try_affine(x, v, n, hi, inverse(best.d), -best.m, min_only, &r);
        if (!(gain > best_gain))
            break;
        best_gain = gain;
        best = r;
    }
    return best;
}

static inline float affine_error(const float *x, const float *v, int n, float hi, float d, float m,
                                 float *code) {
    const float inv = inverse(d);
    v4 sum = v4_of(0);
    for (int i = 0; i < n; i += 4) {
        const v4 t = v4_load(x + i), q = snap_whole((t + m) * inv, 0, hi), e = t - (q * d - m);
        sum += v4_load(v + i) * e * e;
        if (code)
            v4_store(code + i, q);
    }
    return v4_sum(sum);
}

/* Weights that are all one, for those that have none. */
static const float even[256] = {
#define EVEN16 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1
#define EVEN64 EVEN16, EVEN16, EVEN16, EVEN16
    EVEN64, EVEN64, EVEN64, EVEN64
#undef EVEN64
#undef EVEN16
};

#endif
