/* Attention of many queries to a whole page, against the kernels that do it row by row, which
 * check_kv.c and check_softmax.c hold to double precision: the bits are the same. */
#include "kc.h"

#include <string.h>

static const size_t queries[] = {16, 32, 48, 64, 80};
static const size_t pages[] = {1, 2, 3, 5, 6, 7, 15, 16, 17, 33, 64};
static const size_t dims[] = {16, 32, 48, 64, 80, 96, 128, 256};

static float *turned(struct kc *t, const float *x, size_t rows, size_t columns) {
    float *y = kc_tight(t, rows * columns * sizeof *y);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++)
            y[c * rows + r] = x[r * columns + c];
    return y;
}

void check_att_score(struct kc *t) {
    KC_EACH(n_q, queries)
        KC_EACH(dim, dims)
            KC_EACH(n_k, pages)
                for (int special = 0; special < 2; special++) {
                    kc_case(t, "%zu queries, %zu keys, dim=%zu", n_q, n_k, dim);
                    const enum kc_kind kind = special ? KC_SPECIAL : KC_NORMAL;
                    const float *q = kc_floats(t, n_q * dim, kind), *k = kc_floats(t, n_k * dim, kind);
                    float *rows = kc_tight(t, n_q * n_k * 4);
                    float *ref = kc_tight(t, n_q * n_k * 4), *now = kc_tight(t, n_q * n_k * 4);
                    KC_OF_REF(t) t->ref->kv_score_f32(rows, n_k, q, dim, n_q, k, dim * 4, n_k, dim, NULL);
                    /* (n_q, dim / 16, 16) to (16, dim / 16, n_q) */
                    float *by_lane = kc_tight(t, n_q * dim * 4);
                    for (size_t i = 0; i < n_q * dim; i++)
                        by_lane[(i % 16 * (dim / 16) + i % dim / 16) * n_q + i / dim] = q[i];
                    q = by_lane;
                    t->ref->att_score(ref, q, n_q, k, n_k, dim);
                    rows = turned(t, rows, n_q, n_k);
                    KC_OF_REF(t) kc_same_floats(t, ref, rows, n_q * n_k);
                    t->now->att_score(now, q, n_q, k, n_k, dim);
                    kc_same_floats(t, now, ref, n_q * n_k);
                }
    enum { Q = 64, K = 64, DIM = 128 };
    float *s = kc_tight_aligned(t, Q * K * 4, 64);
    const float *q = kc_floats(t, Q * DIM, KC_NORMAL), *k = kc_floats(t, K * DIM, KC_NORMAL);
    KC_TIME(t, "64 queries, 64x128", 0, 2.0 * Q * K * DIM)
    t->now->att_score(s, q, Q, k, K, DIM);
}

/* How many of n_k positions each query sees, as tokens of `group` queries do; the last one all. */
static const uint32_t *some_seen(struct kc *t, size_t n_q, size_t n_k, size_t group) {
    uint32_t *seen = kc_tight(t, n_q * sizeof *seen);
    for (size_t i = 0; i < n_q; i++) {
        const size_t hidden = (n_q - 1 - i) / group;
        seen[i] = hidden < n_k ? (uint32_t)(n_k - hidden) : 1;
    }
    return seen;
}

void check_att_weigh(struct kc *t) {
    KC_EACH(n_q, queries)
        KC_EACH(n_k, pages)
            for (int way = 0; way < 24; way++) {
                const bool first = way & 1;
                const float scale = 4.0f, cap = way & 2 ? 5.0f : 0.0f;
                const uint32_t *seen = way < 8 ? NULL : some_seen(t, n_q, n_k, way < 16 ? 2 : 5);
                kc_case(t, "%zu queries, %zu keys, first=%d cap=%g way=%d", n_q, n_k, first, (double)cap, way);
                float *rows = kc_floats(t, n_q * n_k, way & 4 ? KC_SPECIAL : KC_NORMAL);
                float *ref = turned(t, rows, n_q, n_k), *now = turned(t, rows, n_q, n_k);
                float *max = kc_floats(t, n_q, KC_NORMAL), *total = kc_floats(t, n_q, KC_NORMAL);
                float *got = kc_tight(t, 4 * n_q * 4), *want = kc_tight(t, 4 * n_q * 4);
                float *m = want, *l = m + n_q, *a = l + n_q, *b = a + n_q;
                memmove(m, max, n_q * 4);
                memmove(l, total, n_q * 4);
                memmove(got, want, 2 * n_q * 4);
                t->ref->att_weigh(ref, n_q, n_k, seen, scale, cap, first, m, l, a, b);
                for (size_t i = 0; i < n_q; i++) {
                    float row_max, row_sum;
                    t->ref->softmax_part(rows + i * n_k, seen ? seen[i] : n_k, scale, cap, &row_max, &row_sum);
                    if (first) {
                        kc_same(t, m[i], row_max, i);
                        kc_same(t, l[i], row_sum, i);
                        continue;
                    }
                    kc_same(t, m[i], max[i] > row_max ? max[i] : row_max, i);
                    /* l = l' b + l a, with one rounding and two */
                    float scaled = total[i], sum;
                    t->ref->scale(&scaled, &scaled, a[i], 1);
                    sum = scaled;
                    t->ref->axpy(&sum, &row_sum, b[i], 1);
                    kc_same(t, l[i], sum, i);
                }
                rows = turned(t, rows, n_q, n_k);
                for (size_t i = 0; i < n_q; i++) /* what is not seen is left behind in some way */
                    for (size_t j = seen ? seen[i] : n_k; j < n_k; j++)
                        rows[j * n_q + i] = ref[j * n_q + i] = 0;
                kc_same_floats(t, ref, rows, n_q * n_k);
                t->now->att_weigh(now, n_q, n_k, seen, scale, cap, first, got, got + n_q, got + 2 * n_q,
                                  got + 3 * n_q);
                for (size_t i = 0; i < n_q; i++)
                    for (size_t j = seen ? seen[i] : n_k; j < n_k; j++)
                        now[j * n_q + i] = 0;
                kc_same_floats(t, now, ref, n_q * n_k);
                kc_same_floats(t, got, want, 4 * n_q);
            }
    enum { Q = 64, K = 64 };
    float *s = kc_floats(t, Q * K, KC_NORMAL), *x = kc_floats(t, 4 * Q, KC_NORMAL);
    KC_TIME(t, "64 queries, 64 positions", 0, 16.0 * Q * K)
    t->now->att_weigh(s, Q, K, NULL, 0.1f, 0, false, x, x + Q, x + 2 * Q, x + 3 * Q);
}

void check_att_mix(struct kc *t) {
    KC_EACH(n_q, queries)
        KC_EACH(dim, dims)
            KC_EACH(n_k, pages)
                for (int way = 0; way < 12; way++) {
                    const bool first = way & 1;
                    const uint32_t *seen = way < 4 ? NULL : some_seen(t, n_q, n_k, way < 8 ? 2 : 5);
                    kc_case(t, "%zu queries, %zu values, dim=%zu, first=%d way=%d", n_q, n_k, dim, first, way);
                    const enum kc_kind kind = way & 2 ? KC_SPECIAL : KC_NORMAL;
                    const float *p = kc_floats(t, n_q * n_k, kind), *v = kc_floats(t, n_k * dim, kind);
                    const float *a = kc_floats(t, n_q, kind), *b = kc_floats(t, n_q, kind);
                    float *o = kc_floats(t, n_q * dim, kind), *part = kc_tight(t, n_q * dim * 4);
                    float *ref = kc_tight(t, n_q * dim * 4), *now = kc_tight(t, n_q * dim * 4);
                    uint32_t lo[80] = {0}, hi[80];
                    for (size_t i = 0; i < n_q; i++)
                        hi[i] = seen ? seen[i] : (uint32_t)n_k;
                    memmove(ref, o, n_q * dim * 4);
                    memmove(now, o, n_q * dim * 4);
                    KC_OF_REF(t) {
                        t->ref->kv_mix_f32(part, dim, p, n_k, lo, hi, n_q, v, dim * 4, dim, NULL);
                        for (size_t i = 0; i < n_q && !first; i++) {
                            t->ref->scale(o + i * dim, o + i * dim, a[i], dim);
                            t->ref->axpy(o + i * dim, part + i * dim, b[i], dim);
                        }
                    }
                    p = turned(t, p, n_q, n_k);
                    t->ref->att_mix(ref, p, n_q, v, n_k, seen, dim, first, a, b);
                    KC_OF_REF(t) kc_same_floats(t, ref, first ? part : o, n_q * dim);
                    t->now->att_mix(now, p, n_q, v, n_k, seen, dim, first, a, b);
                    kc_same_floats(t, now, ref, n_q * dim);
                }
    enum { Q = 64, K = 64, DIM = 128 };
    float *o = kc_tight_aligned(t, Q * DIM * 4, 64), *ab = kc_floats(t, 2 * Q, KC_NORMAL);
    const float *p = kc_floats(t, Q * K, KC_NORMAL), *v = kc_floats(t, K * DIM, KC_NORMAL);
    KC_TIME(t, "64 queries, 64x128", 0, 2.0 * Q * K * DIM)
    t->now->att_mix(o, p, Q, v, K, NULL, DIM, true, ab, ab + Q);
}
