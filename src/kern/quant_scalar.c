/* quant_scalar.c - activations and KV entries to 8 bits.
 *
 * "Round" is to nearest even throughout, and the largest magnitude of a block is found on the bits
 * of |x|, so that neither order nor lane count can matter.  A block is special when
 *
 *   - it holds an infinity or a NaN: d is NaN and every q is 0, so whatever it is multiplied with
 *     becomes NaN and the fault is seen;
 *   - its largest magnitude is under 2^-100 (zeros included): d and every q are 0.  That keeps the
 *     reciprocals below finite and loses nothing a float32 sum could show.
 *
 *   A32   d = max / 127,          q = round(x * (127 / max))
 *   A256  d = max / (127 * 16),   m = ceil(max of 32 * (16 / max)) in 1..16,
 *         q = round(x * ((2032 / max) / m))
 *
 * x * (127 / max) errs by at most 3 roundings, so |q| <= round(127.00003) = 127.
 */
#include "kern/isa.h"
#include "kern/unpack.h"

#include <math.h>

#define TINY 0x1p-100f

/* The bits of the largest |x|.  As integers NaN > infinity > every number. */
static uint32_t max_bits(const float *x, int n) {
    uint32_t max = 0;
    for (int i = 0; i < n; i++) {
        const uint32_t bits = lode_f32_bits(x[i]) & 0x7fffffff;
        max = bits > max ? bits : max;
    }
    return max;
}

/* To nearest even, |v| < 2^22: above 1.5 * 2^23 a float has no bits below 1. */
static int round_even(float v) { return (int)((v + 0x1.8p23f) - 0x1.8p23f); }

static const float nan_scale = NAN;

void quant_a32_scalar(void *y, const float *x, size_t n) {
    struct lode_block_a32 *b = y;
    for (; n; n -= 32, x += 32, b++) {
        const uint32_t bits = max_bits(x, 32);
        const float max = lode_bits_f32(bits);
        memset(b, 0, sizeof *b);
        if (bits >= 0x7f800000) {
            b->d = nan_scale;
        } else if (max >= TINY) {
            const float inverse = 127.0f / max;
            b->d = max / 127.0f;
            for (int i = 0; i < 32; i++) {
                b->q[i] = (int8_t)round_even(x[i] * inverse);
                b->sum += b->q[i];
            }
        }
    }
}

void quant_a256_scalar(void *y, const float *x, size_t n) {
    struct lode_block_a256 *b = y;
    for (; n; n -= 256, x += 256, b++) {
        const uint32_t bits = max_bits(x, 256);
        const float max = lode_bits_f32(bits);
        memset(b, 0, sizeof *b);
        if (bits < 0x7f800000 && max >= TINY) {
            const float inverse = 127.0f * LODE_A256_MUL / max, to_m = LODE_A256_MUL / max;
            b->d = max / (127.0f * LODE_A256_MUL);
            for (int g = 0; g < 8; g++) {
                const float m = ceilf(lode_bits_f32(max_bits(x + 32 * g, 32)) * to_m);
                b->m[g] = (uint8_t)(m < 1 ? 1 : m > LODE_A256_MUL ? LODE_A256_MUL : m);
                for (int i = 32 * g; i < 32 * g + 32; i++) {
                    b->q[i] = (int8_t)round_even(x[i] * (inverse / b->m[g]));
                    b->sums[i / 16] = (int16_t)(b->sums[i / 16] + b->m[g] * b->q[i]);
                }
            }
        } else {
            b->d = bits >= 0x7f800000 ? nan_scale : 0;
            memset(b->m, 1, sizeof b->m);
        }
    }
}

/* GGML's Q8_0, q chosen for the half d that is stored rather than for the float it came from:
 * d = half(max / 127), q = round(x * (1 / d)), held to +-127.  d = 0 gives zeros; a block with an
 * infinity or NaN has d = NaN; max beyond 127 * 65504 has d = 65504. */
void kv_put_q8_0_scalar(void *y, const float *x, size_t n) {
    struct lode_block_q8_0 *b = y;
    for (; n; n -= 32, x += 32, b++) {
        const uint32_t bits = max_bits(x, 32);
        memset(b, 0, sizeof *b);
        if (bits >= 0x7f800000) {
            b->d = 0x7e00;
            continue;
        }
        const float d = lode_bits_f32(bits) / 127.0f;
        b->d = lode_f32_f16(d < 65504.0f ? d : 65504.0f);
        if (b->d == 0)
            continue;
        const float inverse = 1.0f / lode_f16_f32(b->d);
        for (int i = 0; i < 32; i++) {
            const float v = x[i] * inverse;
            b->qs[i] = (int8_t)round_even(v < -127 ? -127 : v > 127 ? 127 : v);
        }
    }
}
