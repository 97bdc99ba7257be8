/* blocks_256.c - types whose blocks have 256 numbers in groups, each with a small whole scale under
 * the block's own (tensor/block.h draws them).
 *
 * First each group is fitted by itself.  Then the block's scale is set so that the largest of these
 * fits, the groups' scales are rounded to whole numbers, and both are improved in turn: for each
 * group the neighbours of its whole scale are tried with the codes that they give, then the
 * block's scale is fitted to all codes by least squares.  The best of these states is kept. */
#include "quant/quant.h"

#include "kern/iq_grids.h"
#include "quant/search.h"
#include "tensor/block.h"

enum { ROUNDS = 3 };

static float whole(float x, float lo, float hi) { return snap_whole(v4_of(x), lo, hi)[0]; }

/* ---- w = d s[g] c ---- */

struct scaled {
    float d, s[16], code[256];
};

struct scaled_type {
    int size;     /* of a group */
    float lo, hi; /* of s */
    struct codes c;
};

/* The best whole scale near s[g] for each group, and its codes; their error together. */
static float settle_scaled(const float *x, const float *v, const struct scaled_type *t,
                           struct scaled *b) {
    float sum = 0;
    for (int g = 0; g * t->size < 256; g++) {
        const float *xg = x + g * t->size, *vg = v + g * t->size, start = b->s[g];
        float least = INFINITY;
        for (int k = -1; k <= 1; k++) {
            const float s = start + (float)k;
            if (s < t->lo || s > t->hi)
                continue;
            const float error = scale_error(xg, vg, t->size, &t->c, b->d * s, NULL);
            if (error < least) {
                least = error;
                b->s[g] = s;
            }
        }
        sum += scale_error(xg, vg, t->size, &t->c, b->d * b->s[g], b->code + g * t->size);
    }
    return sum;
}

static float refit_scaled(const float *x, const float *v, const struct scaled_type *t,
                          const struct scaled *b) {
    v4 xa = v4_of(0), aa = v4_of(0);
    for (int i = 0; i < 256; i += 4) {
        const v4 a = v4_load(b->code + i) * b->s[i / t->size], va = v4_load(v + i) * a;
        xa += va * v4_load(x + i);
        aa += va * a;
    }
    const float saa = v4_sum(aa);
    return saa > 0 ? v4_sum(xa) / saa : b->d;
}

static void fit_scaled(const float *x, const float *v, const struct scaled_type *t,
                       struct scaled *best) {
    struct scaled b = {0};
    float fitted[16], most = 0, least = INFINITY;
    for (int g = 0; g * t->size < 256; g++) {
        fitted[g] = fit_scale(x + g * t->size, v + g * t->size, t->size, &t->c);
        most = fabsf(fitted[g]) > fabsf(most) ? fitted[g] : most;
    }
    b.d = to_half(most / t->lo);
    for (int g = 0; g * t->size < 256; g++)
        b.s[g] = whole(fitted[g] * inverse(b.d), t->lo, t->hi);
    for (int round = 0; round < ROUNDS; round++) {
        const float error = settle_scaled(x, v, t, &b);
        if (!(error < least))
            break;
        least = error;
        *best = b;
        b.d = to_half(refit_scaled(x, v, t, &b));
    }
}

/* ---- w = d s[g] c - dmin m[g], c from 0 ---- */

struct minned {
    float d, dmin, s[16], m[16], code[256];
};

struct minned_type {
    int size;
    float most, hi; /* of s and m; of codes */
};

static float settle_minned(const float *x, const float *v, const struct minned_type *t,
                           struct minned *b) {
    float sum = 0;
    for (int g = 0; g * t->size < 256; g++) {
        const float *xg = x + g * t->size, *vg = v + g * t->size;
        const float s0 = b->s[g], m0 = b->m[g];
        float least = INFINITY;
        for (int k = 0; k < 9; k++) {
            const float s = s0 + (float)(k % 3 - 1), m = m0 + (float)(k / 3 - 1);
            if (s < 0 || s > t->most || m < 0 || m > t->most)
                continue;
            const float error = affine_error(xg, vg, t->size, t->hi, b->d * s, b->dmin * m, NULL);
            if (error < least) {
                least = error;
                b->s[g] = s;
                b->m[g] = m;
            }
        }
        sum += affine_error(xg, vg, t->size, t->hi, b->d * b->s[g], b->dmin * b->m[g],
                            b->code + g * t->size);
    }
    return sum;
}

static void refit_minned(const float *x, const float *v, const struct minned_type *t,
                         struct minned *b) {
    v4 aa = v4_of(0), am = aa, mm = aa, xa = aa, xm = aa;
    for (int i = 0; i < 256; i += 4) {
        const v4 a = v4_load(b->code + i) * b->s[i / t->size], m = v4_of(b->m[i / t->size]);
        const v4 w = v4_load(v + i), u = v4_load(x + i);
        aa += w * a * a;
        am += w * a * m;
        mm += w * m * m;
        xa += w * u * a;
        xm += w * u * m;
    }
    const double saa = (double)v4_sum(aa), sam = (double)v4_sum(am), smm = (double)v4_sum(mm),
                 sxa = (double)v4_sum(xa), sxm = (double)v4_sum(xm), det = saa * smm - sam * sam;
    if (det > 1e-6 * saa * smm) {
        b->d = (float)((sxa * smm - sxm * sam) / det);
        b->dmin = (float)((sxa * sam - sxm * saa) / det);
    } else if (saa > 0) {
        b->d = (float)((sxa + (double)b->dmin * sam) / saa);
    }
    b->d = to_half(b->d > 0 ? b->d : 0);
    b->dmin = to_half(b->dmin > 0 ? b->dmin : 0);
}

static void fit_minned(const float *x, const float *v, const struct minned_type *t,
                       struct minned *best) {
    struct minned b = {0};
    struct affine fitted[16];
    float d = 0, m = 0, least = INFINITY;
    for (int g = 0; g * t->size < 256; g++) {
        fitted[g] = fit_affine(x + g * t->size, v + g * t->size, t->size, t->hi, true);
        d = fitted[g].d > d ? fitted[g].d : d;
        m = fitted[g].m > m ? fitted[g].m : m;
    }
    b.d = to_half(d / t->most);
    b.dmin = to_half(m / t->most);
    for (int g = 0; g * t->size < 256; g++) {
        b.s[g] = whole(fitted[g].d * inverse(b.d), 0, t->most);
        b.m[g] = whole(fitted[g].m * inverse(b.dmin), 0, t->most);
    }
    for (int round = 0; round < ROUNDS; round++) {
        const float error = settle_minned(x, v, t, &b);
        if (!(error < least))
            break;
        least = error;
        *best = b;
        refit_minned(x, v, t, &b);
    }
}

/* ---- the layouts ---- */

/* Two bits of number 128 h + 32 j + l are bits 2j, 2j+1 of byte 32 h + l. */
static void put_two_bits(uint8_t out[64], const uint8_t c[256]) {
    for (int h = 0; h < 2; h++)
        for (int l = 0; l < 32; l++) {
            const uint8_t *q = c + 128 * h + l;
            out[32 * h + l] =
                (uint8_t)((q[0] & 3) | (q[32] & 3) << 2 | (q[64] & 3) << 4 | (q[96] & 3) << 6);
        }
}

/* Four bits of numbers 64 k + l (low) and 64 k + 32 + l. */
static void put_four_bits(uint8_t out[128], const uint8_t c[256]) {
    for (int k = 0; k < 4; k++)
        for (int l = 0; l < 32; l++)
            out[32 * k + l] = (uint8_t)((c[64 * k + l] & 15) | (c[64 * k + 32 + l] & 15) << 4);
}

/* Eight scales and eight minima of six bits. */
static void put_k_scales(uint8_t out[12], const float s[8], const float m[8]) {
    for (int g = 0; g < 4; g++) {
        const unsigned s0 = (unsigned)s[g], s1 = (unsigned)s[g + 4];
        const unsigned m0 = (unsigned)m[g], m1 = (unsigned)m[g + 4];
        out[g] = (uint8_t)(s0 | s1 >> 4 << 6);
        out[g + 4] = (uint8_t)(m0 | m1 >> 4 << 6);
        out[g + 8] = (uint8_t)((s1 & 15) | (m1 & 15) << 4);
    }
}

static void codes_from(uint8_t c[256], const float code[256], int offset) {
    for (int i = 0; i < 256; i++)
        c[i] = (uint8_t)((int)code[i] + offset);
}

static const float *weights_at(const float *v, size_t i) { return v ? v + i : even; }

void lode_quant_q2_k(void *y, const float *x, const float *v, size_t n) {
    static const struct minned_type type = {16, 15, 3};
    struct lode_block_q2_k *b = y;
    struct minned f = {0};
    uint8_t c[256];
    for (size_t i = 0; i < n; i += 256, b++) {
        fit_minned(x + i, weights_at(v, i), &type, &f);
        codes_from(c, f.code, 0);
        for (int g = 0; g < 16; g++)
            b->scales[g] = (uint8_t)((unsigned)f.s[g] | (unsigned)f.m[g] << 4);
        put_two_bits(b->qs, c);
        b->d = lode_f32_f16(f.d);
        b->dmin = lode_f32_f16(f.dmin);
    }
}

void lode_quant_q4_k(void *y, const float *x, const float *v, size_t n) {
    static const struct minned_type type = {32, 63, 15};
    struct lode_block_q4_k *b = y;
    struct minned f = {0};
    uint8_t c[256];
    for (size_t i = 0; i < n; i += 256, b++) {
        fit_minned(x + i, weights_at(v, i), &type, &f);
        codes_from(c, f.code, 0);
        b->d = lode_f32_f16(f.d);
        b->dmin = lode_f32_f16(f.dmin);
        put_k_scales(b->scales, f.s, f.m);
        put_four_bits(b->qs, c);
    }
}

void lode_quant_q5_k(void *y, const float *x, const float *v, size_t n) {
    static const struct minned_type type = {32, 63, 31};
    struct lode_block_q5_k *b = y;
    struct minned f = {0};
    uint8_t c[256];
    for (size_t i = 0; i < n; i += 256, b++) {
        fit_minned(x + i, weights_at(v, i), &type, &f);
        codes_from(c, f.code, 0);
        b->d = lode_f32_f16(f.d);
        b->dmin = lode_f32_f16(f.dmin);
        put_k_scales(b->scales, f.s, f.m);
        put_four_bits(b->qs, c);
        memset(b->qh, 0, sizeof b->qh);
        for (int k = 0; k < 256; k++)
            b->qh[k % 32] |= (uint8_t)((c[k] >> 4) << k / 32);
    }
}

void lode_quant_q3_k(void *y, const float *x, const float *v, size_t n) {
    static const struct scaled_type type = {16, -32, 31, {-4, 3, NULL, 0}};
    struct lode_block_q3_k *b = y;
    struct scaled f = {0};
    uint8_t c[256];
    for (size_t i = 0; i < n; i += 256, b++) {
        fit_scaled(x + i, weights_at(v, i), &type, &f);
        codes_from(c, f.code, 4);
        memset(b->hmask, 0, sizeof b->hmask);
        memset(b->scales, 0, sizeof b->scales);
        for (int k = 0; k < 256; k++)
            b->hmask[k % 32] |= (uint8_t)((c[k] >> 2) << k / 32);
        put_two_bits(b->qs, c);
        for (int g = 0; g < 16; g++) {
            const unsigned s = (unsigned)((int)f.s[g] + 32);
            b->scales[g % 8] |= (uint8_t)((s & 15) << g / 8 * 4);
            b->scales[8 + g % 4] |= (uint8_t)((s >> 4) << g / 4 * 2);
        }
        b->d = lode_f32_f16(f.d);
    }
}

void lode_quant_q6_k(void *y, const float *x, const float *v, size_t n) {
    static const struct scaled_type type = {16, -128, 127, {-32, 31, NULL, 0}};
    struct lode_block_q6_k *b = y;
    struct scaled f = {0};
    uint8_t c[256];
    for (size_t i = 0; i < n; i += 256, b++) {
        fit_scaled(x + i, weights_at(v, i), &type, &f);
        codes_from(c, f.code, 32);
        for (int h = 0; h < 2; h++)
            for (int l = 0; l < 32; l++) {
                const uint8_t *q = c + 128 * h + l;
                b->ql[64 * h + l] = (uint8_t)((q[0] & 15) | (q[64] & 15) << 4);
                b->ql[64 * h + 32 + l] = (uint8_t)((q[32] & 15) | (q[96] & 15) << 4);
                b->qh[32 * h + l] =
                    (uint8_t)(q[0] >> 4 | q[32] >> 4 << 2 | q[64] >> 4 << 4 | q[96] >> 4 << 6);
            }
        for (int g = 0; g < 16; g++)
            b->scales[g] = (int8_t)f.s[g];
        b->d = lode_f32_f16(f.d);
    }
}

void lode_quant_iq4_xs(void *y, const float *x, const float *v, size_t n) {
    static const float levels[16] = LODE_IQ4_LEVELS;
    float nearest[241];
    const struct scaled_type type = {32, -32, 31, {-127, 113, nearest, 1}};
    struct lode_block_iq4_xs *b = y;
    struct scaled f = {0};
    nearest_levels(nearest, levels, 16, 1);
    for (size_t i = 0; i < n; i += 256, b++) {
        fit_scaled(x + i, weights_at(v, i), &type, &f);
        b->d = lode_f32_f16(f.d);
        b->scales_h = 0;
        memset(b->scales_l, 0, sizeof b->scales_l);
        for (int g = 0; g < 8; g++) {
            const unsigned s = (unsigned)((int)f.s[g] + 32);
            b->scales_l[g / 2] |= (uint8_t)((s & 15) << g % 2 * 4);
            b->scales_h |= (uint16_t)((s >> 4) << 2 * g);
            for (int k = 0; k < 16; k++) {
                uint8_t c[2] = {0, 0};
                for (int half = 0; half < 2; half++)
                    while (levels[c[half]] != f.code[32 * g + 16 * half + k])
                        c[half]++;
                b->qs[16 * g + k] = (uint8_t)(c[0] | c[1] << 4);
            }
        }
    }
}
