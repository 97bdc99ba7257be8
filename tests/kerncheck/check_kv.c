/* The KV cache's kernels.  Rows of keys and values are made by the scalar kv_put of the format. */
#include "base/half.h"
#include "kc.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const double u = FLT_EPSILON / 2;

static size_t row_size(enum lode_dtype type, size_t n) {
    return n / lode_dtypes[type].block * lode_dtypes[type].bytes;
}

/* --- kv_put of floats ---------------------------------------------------------------------- */

static void check_put(struct kc *t, enum lode_dtype type, float (*widen)(uint16_t)) {
    KC_EACH(n, kc_lengths) {
        kc_case(t, "n=%zu", n);
        const size_t size = row_size(type, n);
        float *x = kc_floats(t, n, n % 2 ? KC_SPECIAL : KC_WIDE);
        char *want = kc_tight(t, size), *got = kc_tight(t, size);
        t->ref->kv_put[type](want, x, n);
        for (size_t i = 0; i < n && widen; i++) { /* no neighbour of the same sign is nearer */
            uint16_t h;
            memcpy(&h, want + 2 * i, 2);
            if (isnan(x[i])) {
                kc_true(t, isnan(widen(h)), "NaN stays NaN");
                continue;
            }
            const double d = fabs((double)widen(h) - (double)x[i]);
            for (int step = -1; step <= 1; step += 2) {
                const uint16_t near = (uint16_t)(h + step);
                if ((near ^ h) & 0x8000)
                    continue;
                const double other = fabs((double)widen(near) - (double)x[i]);
                if (isfinite(widen(h)) && isfinite(widen(near)))
                    kc_true(t, d < other || (d == other && h % 2 == 0), "rounds to nearest even");
            }
        }
        if (!widen)
            kc_same_bytes(t, want, x, size);
        t->now->kv_put[type](got, x, n);
        kc_same_bytes(t, got, want, size);
    }
    const size_t n = 1024;
    float *x = kc_floats(t, n, KC_NORMAL), *y = kc_tight(t, n * sizeof *y);
    KC_TIME(t, "n=1024", (double)(4 * n + row_size(type, n)), 1.0 * n)
    t->now->kv_put[type](y, x, n);
}

void check_kv_put_f32(struct kc *t) { check_put(t, LODE_F32, NULL); }
void check_kv_put_f16(struct kc *t) { check_put(t, LODE_F16, lode_f16_f32); }
void check_kv_put_bf16(struct kc *t) { check_put(t, LODE_BF16, lode_bf16_f32); }

/* --- scores and mixtures ------------------------------------------------------------------- */

static const size_t dims[] = {1, 7, 8, 15, 16, 17, 33, 64, 80, 96, 128, 129, 256};
static const size_t dims_32[] = {32, 64, 96, 128, 160, 256}; /* multiples of q8_0's block */
static const size_t positions[] = {0, 1, 2, 3, 4, 5, 7, 16, 63, 64};

/* number c of a row, from the format's own description */
static double value(const char *row, enum lode_dtype type, size_t c) {
    float f;
    uint16_t h;
    if (type == LODE_F32) {
        memcpy(&f, row + 4 * c, 4);
        return (double)f;
    }
    memcpy(&h, type == LODE_Q8_0 ? row + c / 32 * 34 : row + 2 * c, 2);
    if (type == LODE_Q8_0)
        return (double)((const int8_t *)row)[c / 32 * 34 + 2 + c % 32] * (double)lode_f16_f32(h);
    return (double)(type == LODE_F16 ? lode_f16_f32(h) : lode_bf16_f32(h));
}

struct cache {
    size_t n, stride;
    char *rows; /* n rows, the last one tight */
};

static struct cache make_cache(struct kc *t, enum lode_dtype type, size_t n, size_t dim,
                               enum kc_kind kind) {
    struct cache c = {.n = n,
                      .stride = row_size(type, dim) + 2 * lode_dtypes[type].bytes * kc_below(t, 2)};
    c.rows = kc_tight(t, n ? (n - 1) * c.stride + row_size(type, dim) : 0);
    /* q8_0 has no infinities: made of normal numbers, then some scales become special halves */
    float *x = kc_tight(t, dim * sizeof *x);
    for (size_t j = 0; j < n; j++) {
        char *row = c.rows + j * c.stride;
        kc_fill(t, x, dim, type == LODE_Q8_0 ? KC_NORMAL : kind);
        if (type != LODE_Q8_0) {
            t->ref->kv_put[type](row, x, dim);
            continue;
        }
        for (size_t b = 0; b < dim / 32; b++) {
            const uint16_t d = lode_f32_f16(kc_float(t, kind));
            memcpy(row + b * 34, &d, 2);
            for (size_t i = 0; i < 32; i++)
                row[b * 34 + 2 + i] = (char)(kc_below(t, 255) - 127);
        }
    }
    return c;
}

static void check_score_shape(struct kc *t, enum lode_dtype type, size_t n_k, size_t dim,
                              enum kc_kind kind) {
    const size_t n_q = kc_below(t, 2) ? kc_below(t, 10) : kc_below(t, 40), ldq = dim + kc_below(t, 3), lds = n_k + kc_below(t, 3);
    kc_case(t, "%zu queries, %zu keys, dim=%zu", n_q, n_k, dim);
    const struct cache k = make_cache(t, type, n_k, dim, kind);
    const size_t s_size = n_q && n_k ? (n_q - 1) * lds + n_k : 0;
    float *q = kc_floats(t, n_q ? (n_q - 1) * ldq + dim : 0, kind);
    float *want = kc_floats(t, s_size, KC_NORMAL), *got = kc_tight(t, s_size * sizeof *got);
    memmove(got, want, s_size * sizeof *got);
    t->ref->kv_score[type](want, lds, q, ldq, n_q, k.rows, k.stride, n_k, dim, NULL);
    for (size_t i = 0; i < n_q && kind == KC_NORMAL; i++)
        for (size_t j = 0; j < n_k; j++) {
            double exact = 0, sum = 0;
            for (size_t c = 0; c < dim; c++) {
                const double product =
                    (double)q[i * ldq + c] * value(k.rows + j * k.stride, type, c);
                exact += product;
                sum += fabs(product);
            }
            /* as mul; q8_0 rounds once more when it widens */
            kc_near(t, (double)want[i * lds + j], exact, (double)(dim / 16 + 6) * 1.01 * u * sum,
                    i * lds + j);
        }
    t->now->kv_score[type](got, lds, q, ldq, n_q, k.rows, k.stride, n_k, dim, NULL);
    kc_same_floats(t, got, want, s_size);
}

static void check_mix_shape(struct kc *t, enum lode_dtype type, size_t n_v, size_t dim,
                            enum kc_kind kind) {
    const size_t n_q = kc_below(t, 2) ? kc_below(t, 10) : kc_below(t, 40), ldp = n_v + kc_below(t, 3), ldo = dim + kc_below(t, 3);
    kc_case(t, "%zu queries, %zu values, dim=%zu", n_q, n_v, dim);
    const struct cache v = make_cache(t, type, n_v, dim, kind);
    const size_t o_size = n_q && dim ? (n_q - 1) * ldo + dim : 0;
    float *p = kc_floats(t, n_q ? (n_q - 1) * ldp + n_v : 0, kind);
    float *want = kc_floats(t, o_size, KC_NORMAL), *got = kc_tight(t, o_size * sizeof *got);
    uint32_t *lo = kc_tight_aligned(t, n_q * 4, 4), *hi = kc_tight_aligned(t, n_q * 4, 4);
    const bool same_range = kc_bits(t) & 1;
    const size_t from = kc_below(t, 2) ? kc_below(t, n_v + 1) : 0;
    for (size_t i = 0; i < n_q;
         i++) { /* the same for all, causal, windows, or anything, lo > hi too */
        lo[i] = same_range ? (uint32_t)from : (uint32_t)kc_below(t, n_v + 1);
        hi[i] = same_range ? (uint32_t)n_v : (uint32_t)kc_below(t, n_v + 1);
    }
    memmove(got, want, o_size * sizeof *got);
    t->ref->kv_mix[type](want, ldo, p, ldp, lo, hi, n_q, v.rows, v.stride, dim, NULL);
    for (size_t i = 0; i < n_q && kind == KC_NORMAL; i++)
        for (size_t c = 0; c < dim; c++) {
            double exact = 0, sum = 0;
            for (size_t j = lo[i]; j < hi[i]; j++) {
                const double product =
                    (double)p[i * ldp + j] * value(v.rows + j * v.stride, type, c);
                exact += product;
                sum += fabs(product);
            }
            kc_near(t, (double)want[i * ldo + c], exact, (double)(n_v + 1) * 1.01 * u * sum,
                    i * ldo + c);
        }
    t->now->kv_mix[type](got, ldo, p, ldp, lo, hi, n_q, v.rows, v.stride, dim, NULL);
    kc_same_floats(t, got, want, o_size);
}

typedef void check_shape(struct kc *t, enum lode_dtype type, size_t n, size_t dim,
                         enum kc_kind kind);

static void check_shapes(struct kc *t, enum lode_dtype type, check_shape *check) {
    KC_EACH(n, positions) {
        if (type == LODE_Q8_0)
            KC_EACH(dim, dims_32) {
                check(t, type, n, dim, KC_NORMAL);
                check(t, type, n, dim, KC_SPECIAL);
            }
        else
            KC_EACH(dim, dims) {
                check(t, type, n, dim, KC_NORMAL);
                check(t, type, n, dim, KC_SPECIAL);
            }
    }
}

enum { CHUNK = 64, DIM = 128, MANY = 1 << 19 }; /* MANY rows: far larger than the caches */

static struct cache make_zeros(struct kc *t, enum lode_dtype type, size_t n, size_t dim) {
    const size_t stride = row_size(type, dim);
    return (struct cache){n, stride, kc_tight_aligned(t, n * stride, 64)};
}

static void check_score(struct kc *t, enum lode_dtype type) {
    check_shapes(t, type, check_score_shape);
    const size_t row = row_size(type, DIM);
    float *q = kc_floats(t, 64 * DIM, KC_NORMAL), *s = kc_tight_aligned(t, 64 * CHUNK * 4, 64);
    const struct cache k = make_cache(t, type, CHUNK, DIM, KC_NORMAL);
    KC_TIME(t, "1 query, 64x128", (double)(CHUNK * row), 2.0 * CHUNK * DIM)
    t->now->kv_score[type](s, CHUNK, q, DIM, 1, k.rows, k.stride, CHUNK, DIM, NULL);
    KC_TIME(t, "4 queries, 64x128", (double)(CHUNK * row), 8.0 * CHUNK * DIM)
    t->now->kv_score[type](s, CHUNK, q, DIM, 4, k.rows, k.stride, CHUNK, DIM, NULL);
    KC_TIME(t, "64 queries, 64x128", (double)(CHUNK * row), 128.0 * CHUNK * DIM)
    t->now->kv_score[type](s, CHUNK, q, DIM, 64, k.rows, k.stride, CHUNK, DIM, NULL);
    if (!t->bench)
        return;
    const struct cache m = make_zeros(t, type, MANY, DIM);
    KC_TIME(t, "4 queries, from memory", (double)(MANY * row), 8.0 * MANY * DIM)
    for (size_t j = 0; j < MANY; j += CHUNK)
        t->now->kv_score[type](s, CHUNK, q, DIM, 4, m.rows + j * m.stride, m.stride, CHUNK, DIM, NULL);
}

static void check_mix(struct kc *t, enum lode_dtype type) {
    check_shapes(t, type, check_mix_shape);
    const size_t row = row_size(type, DIM);
    float *p = kc_floats(t, 64 * CHUNK, KC_NORMAL), *o = kc_tight_aligned(t, 64 * DIM * 4, 64);
    uint32_t lo[64] = {0}, hi[64];
    for (size_t i = 0; i < 64; i++)
        hi[i] = CHUNK;
    const struct cache v = make_cache(t, type, CHUNK, DIM, KC_NORMAL);
    KC_TIME(t, "1 query, 64x128", (double)(CHUNK * row), 2.0 * CHUNK * DIM)
    t->now->kv_mix[type](o, DIM, p, CHUNK, lo, hi, 1, v.rows, v.stride, DIM, NULL);
    KC_TIME(t, "4 queries, 64x128", (double)(CHUNK * row), 8.0 * CHUNK * DIM)
    t->now->kv_mix[type](o, DIM, p, CHUNK, lo, hi, 4, v.rows, v.stride, DIM, NULL);
    KC_TIME(t, "64 queries, 64x128", (double)(CHUNK * row), 128.0 * CHUNK * DIM)
    t->now->kv_mix[type](o, DIM, p, CHUNK, lo, hi, 64, v.rows, v.stride, DIM, NULL);
    if (!t->bench)
        return;
    const struct cache m = make_zeros(t, type, MANY, DIM);
    KC_TIME(t, "4 queries, from memory", (double)(MANY * row), 8.0 * MANY * DIM)
    for (size_t j = 0; j < MANY; j += CHUNK)
        t->now->kv_mix[type](o, DIM, p, CHUNK, lo, hi, 4, m.rows + j * m.stride, m.stride, DIM, NULL);
}

#define CHECK(s, type, name)                                                                       \
    void check_kv_score_##s(struct kc *t) { check_score(t, LODE_##type); }                         \
    void check_kv_mix_##s(struct kc *t) { check_mix(t, LODE_##type); }
LODE_KV_LIST(CHECK)
