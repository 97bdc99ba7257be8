/* blocks_32.c - types whose blocks have 32 numbers and one scale (tensor/block.h draws them). */
#include "quant/quant.h"

#include "kern/iq_grids.h"
#include "quant/search.h"
#include "tensor/block.h"

/* The weights of the next block. */
static const float *weights_at(const float *v, size_t i) { return v ? v + i : even; }

/* Byte i: numbers i (low nibble) and i + 16. */
static void put_nibbles(uint8_t out[16], const uint8_t c[32]) {
    for (int i = 0; i < 16; i++)
        out[i] = (uint8_t)((c[i] & 15) | (c[i + 16] & 15) << 4);
}

static void put_fifth_bits(uint8_t out[4], const uint8_t c[32]) {
    memset(out, 0, 4);
    for (int i = 0; i < 32; i++)
        out[i / 8] |= (uint8_t)((c[i] >> 4 & 1) << i % 8);
}

/* w = d (c - offset): *d and the codes from 0. */
static void scale_block(const float *x, const float *v, int offset, uint16_t *d, uint8_t c[32]) {
    const struct codes codes = {(float)-offset, (float)(offset - 1), NULL, 0};
    float code[32];
    *d = lode_f32_f16(fit_scale(x, v, 32, &codes));
    scale_error(x, v, 32, &codes, lode_f16_f32(*d), code);
    for (int i = 0; i < 32; i++)
        c[i] = (uint8_t)((int)code[i] + offset);
}

void lode_quant_q4_0(void *y, const float *x, const float *v, size_t n) {
    struct lode_block_q4_0 *b = y;
    uint8_t c[32];
    for (size_t i = 0; i < n; i += 32, b++) {
        scale_block(x + i, weights_at(v, i), 8, &b->d, c);
        put_nibbles(b->qs, c);
    }
}

void lode_quant_q5_0(void *y, const float *x, const float *v, size_t n) {
    struct lode_block_q5_0 *b = y;
    uint8_t c[32];
    for (size_t i = 0; i < n; i += 32, b++) {
        scale_block(x + i, weights_at(v, i), 16, &b->d, c);
        put_nibbles(b->qs, c);
        put_fifth_bits(b->qh, c);
    }
}

/* w = d c + m, both halves. */
static void affine_block(const float *x, const float *v, int hi, uint16_t *d, uint16_t *m,
                         uint8_t c[32]) {
    const struct affine a = fit_affine(x, v, 32, (float)hi, false);
    float code[32];
    *d = lode_f32_f16(a.d);
    *m = lode_f32_f16(-a.m);
    affine_error(x, v, 32, (float)hi, lode_f16_f32(*d), -lode_f16_f32(*m), code);
    for (int i = 0; i < 32; i++)
        c[i] = (uint8_t)code[i];
}

void lode_quant_q4_1(void *y, const float *x, const float *v, size_t n) {
    struct lode_block_q4_1 *b = y;
    uint8_t c[32];
    for (size_t i = 0; i < n; i += 32, b++) {
        affine_block(x + i, weights_at(v, i), 15, &b->d, &b->m, c);
        put_nibbles(b->qs, c);
    }
}

void lode_quant_q5_1(void *y, const float *x, const float *v, size_t n) {
    struct lode_block_q5_1 *b = y;
    uint8_t c[32];
    for (size_t i = 0; i < n; i += 32, b++) {
        affine_block(x + i, weights_at(v, i), 31, &b->d, &b->m, c);
        put_nibbles(b->qs, c);
        put_fifth_bits(b->qh, c);
    }
}

/* 8 bits are so fine that the largest number decides; a search finds nothing. */
void lode_quant_q8_0(void *y, const float *x, const float *v, size_t n) {
    static const struct codes codes = {-127, 127, NULL, 0};
    struct lode_block_q8_0 *b = y;
    float code[32];
    for (size_t i = 0; i < n; i += 32, b++) {
        float most = 0;
        for (int k = 0; k < 32; k++)
            most = fabsf(x[i + (size_t)k]) > most ? fabsf(x[i + (size_t)k]) : most;
        b->d = lode_f32_f16(most / 127);
        scale_error(x + i, weights_at(v, i), 32, &codes, lode_f16_f32(b->d), code);
        for (int k = 0; k < 32; k++)
            b->qs[k] = (int8_t)code[k];
    }
}

void lode_quant_iq4_nl(void *y, const float *x, const float *v, size_t n) {
    static const float levels[16] = LODE_IQ4_LEVELS;
    struct lode_block_iq4_nl *b = y;
    float code[32], nearest[241];
    const struct codes codes = {-127, 113, nearest, 1};
    uint8_t c[32];
    nearest_levels(nearest, levels, 16, 1);
    for (size_t i = 0; i < n; i += 32, b++) {
        b->d = lode_f32_f16(fit_scale(x + i, weights_at(v, i), 32, &codes));
        scale_error(x + i, weights_at(v, i), 32, &codes, lode_f16_f32(b->d), code);
        for (int k = 0; k < 32; k++) {
            c[k] = 0;
            while (levels[c[k]] != code[k])
                c[k]++;
        }
        put_nibbles(b->qs, c);
    }
}

/* Powers of two as scales: the one that puts the largest number below 6, and its neighbours. */
void lode_quant_mxfp4(void *y, const float *x, const float *v, size_t n) {
    static const float levels[16] = LODE_FP4_LEVELS; /* doubled; 8 is -0 */
    static const float sorted[15] = {-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12};
    float nearest[24 * 64 + 1];
    const struct codes codes = {-12, 12, nearest, 64};
    struct lode_block_mxfp4 *b = y;
    float code[32];
    uint8_t c[32];
    nearest_levels(nearest, sorted, 15, 64);
    for (size_t i = 0; i < n; i += 32, b++) {
        const float *w = weights_at(v, i);
        float most = 0, best = INFINITY;
        int exponent, best_e = 0;
        for (int k = 0; k < 32; k++)
            most = fabsf(x[i + (size_t)k]) > most ? fabsf(x[i + (size_t)k]) : most;
        frexpf(most, &exponent); /* most < 2^exponent; 6 * 2^(exponent - 3) is 0.75 of that */
        for (int e = exponent - 4 + 127; most > 0 && e <= exponent - 2 + 127; e++) {
            if (e < 0 || e > 254)
                continue;
            const float error = scale_error(x + i, w, 32, &codes, ldexpf(1, e - 128), NULL);
            if (error < best) {
                best = error;
                best_e = e;
            }
        }
        b->e = (uint8_t)best_e;
        scale_error(x + i, w, 32, &codes, ldexpf(1, best_e - 128), code);
        for (int k = 0; k < 32; k++) {
            c[k] = 0;
            while (levels[c[k]] != code[k])
                c[k]++;
        }
        put_nibbles(b->qs, c);
    }
}
