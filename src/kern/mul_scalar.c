/* mul_scalar.c - the definition of every product of quantised weights with 8-bit activations.
 *
 * Blocks of 32 (w = d q + m) with A32 (x ~ dx xq):
 *
 *     isum = sum q xq                          exact; |isum| <= 32 * 128 * 127 < 2^20
 *     acc  = fmaf(d * dx, isum, acc)
 *     acc  = fmaf(m * dx, sum xq, acc)         types with m
 *
 * U2 .. U8G32 likewise, 32 numbers at a time, q unsigned up to 255; Q1_0 and Q2_0, too.  NVFP4, of whose 32 numbers each
 * half has a scale, d and m:
 *
 *     acc  = fmaf(d * dx, sum of the first 16 q xq, acc)
 *     acc  = fmaf(m * dx, sum of the others, acc)
 *
 * Blocks of 256 (w = d scale q - dmin min) with A256 (x ~ dx mul xq, mul <= 16):
 *
 *     isum = sum over the groups g of 16 of  scale[g] mul[g / 2] (sum over the group of q xq)
 *     msum = sum over g of min[g] sums[g]      sums already hold mul
 *     acc  = fmaf(d * dx, isum, acc)
 *     acc  = fmaf(-(dmin * dx), msum, acc)     types with minima
 *
 * for ascending blocks from acc = +0.  Both sums are exact and fit 32 bits: with |xq| <= 127 and
 * mul <= 16, a block's isum is at most 256 * 16 * 127 * (scale q), where the product of scale and q
 * is largest in Q6_K (128 * 32 = 4096: 2130706432 < 2^31) and IQ4_XS (32 * 127); the others stay
 * under half of that (codebook types: kern/codebook.h's integers, 31 * 62 at most).  msum <= 16 * 63 * 32512.  Conversions to float round to nearest even.
 *
 * A faster version may form other partial sums, even ones that wrap around 2^32: the total is the
 * same integer.
 */
#include "kern/isa.h"
#include "kern/unpack.h"

#include <math.h>

static int32_t dot_i8(const int8_t *a, const int8_t *b, int n) {
    int32_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static int32_t dot_u8(const uint8_t *a, const int8_t *b, int n) {
    int32_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static void clear(float *y, size_t ldy, size_t n_w, size_t n_x) {
    for (size_t j = 0; j < n_x; j++)
        for (size_t i = 0; i < n_w; i++)
            y[j * ldy + i] = 0;
}

/* y itself is the accumulator, so that a block of weights is unpacked once for all columns.  32 numbers at a time: block b
 * of row w, u, by block a of a column; terms(acc, u, a) are what it adds to *acc. */
#define MUL_BY_32(name, unpacked, unpack, terms)                                                   \
    void mul_##name##_scalar LODE_MUL_ARGS {                                                       \
        clear(y, ldy, n_w, n_x);                                                                   \
        for (size_t i = 0; i < n_w; i++)                                                           \
            for (size_t b = 0; b < k / 32; b++) {                                                  \
                struct unpacked u;                                                                 \
                unpack(name, &u, (const char *)w + i * w_stride, b);                               \
                for (size_t j = 0; j < n_x; j++)                                                   \
                    terms(&y[j * ldy + i], &u,                                                     \
                          (const struct lode_block_a32 *)((const char *)x + j * x_stride) + b);    \
            }                                                                                      \
    }
#define UNPACK_BLOCK(name, u, row, b) unpack_##name(u, (const struct lode_block_##name *)(row) + (b))
#define UNPACK_OF_ROW(name, u, row, b) unpack_##name(u, row, b)

static void add_d(float *acc, const struct unpack32 *u, const struct lode_block_a32 *a) {
    *acc = fmaf(u->d * a->d, (float)dot_i8(u->q, a->q, 32), *acc);
}
static void add_d_m(float *acc, const struct unpack32 *u, const struct lode_block_a32 *a) {
    add_d(acc, u, a);
    *acc = fmaf(u->m * a->d, (float)a->sum, *acc);
}
static void add_halves(float *acc, const struct unpack32 *u, const struct lode_block_a32 *a) {
    *acc = fmaf(u->d * a->d, (float)dot_i8(u->q, a->q, 16), *acc);
    *acc = fmaf(u->m * a->d, (float)dot_i8(u->q + 16, a->q + 16, 16), *acc);
}
static void add_u(float *acc, const struct unpack_u *u, const struct lode_block_a32 *a) {
    *acc = fmaf(u->d * a->d, (float)dot_u8(u->q, a->q, 32), *acc);
    *acc = fmaf(u->m * a->d, (float)a->sum, *acc);
}
#define MUL_32(name, terms) MUL_BY_32(name, unpack32, UNPACK_BLOCK, terms)
#define MUL_U(name, type) MUL_BY_32(name, unpack_u, UNPACK_OF_ROW, add_u)
#define MUL_PART(name, type) MUL_BY_32(name, unpack32, UNPACK_OF_ROW, add_d)
#define MUL_HALVES(name, type) MUL_BY_32(name, unpack32, UNPACK_OF_ROW, add_halves)

#define MUL_256(name, with_min)                                                                    \
    void mul_##name##_scalar LODE_MUL_ARGS {                                                       \
        clear(y, ldy, n_w, n_x);                                                                   \
        for (size_t i = 0; i < n_w; i++)                                                           \
            for (size_t b = 0; b < k / 256; b++) {                                                 \
                struct unpack256 u;                                                                \
                unpack_##name(                                                                     \
                    &u, (const struct lode_block_##name *)((const char *)w + i * w_stride) + b);   \
                for (size_t j = 0; j < n_x; j++) {                                                 \
                    const struct lode_block_a256 *a =                                              \
                        (const struct lode_block_a256 *)((const char *)x + j * x_stride) + b;      \
                    float *acc = &y[j * ldy + i];                                                  \
                    int32_t isum = 0, msum = 0;                                                    \
                    for (int g = 0; g < 16; g++) {                                                 \
                        isum +=                                                                    \
                            u.scale[g] * a->m[g / 2] * dot_i8(u.q + 16 * g, a->q + 16 * g, 16);    \
                        msum += u.min[g] * a->sums[g];                                             \
                    }                                                                              \
                    *acc = fmaf(u.d * a->d, (float)isum, *acc);                                    \
                    if (with_min)                                                                  \
                        *acc = fmaf(-(u.dmin * a->d), (float)msum, *acc);                          \
                }                                                                                  \
            }                                                                                      \
    }

MUL_32(q4_0, add_d)
MUL_32(q4_1, add_d_m)
MUL_32(q5_0, add_d)
MUL_32(q5_1, add_d_m)
MUL_32(q8_0, add_d)
MUL_32(iq4_nl, add_d)
MUL_32(mxfp4, add_d)
LODE_MUL_U_LIST(MUL_U)
LODE_MUL_PART_LIST(MUL_PART)
LODE_MUL_HALVES_LIST(MUL_HALVES)
MUL_256(tq2_0, 0)
MUL_256(q2_k, 1)
MUL_256(q3_k, 0)
MUL_256(q4_k, 1)
MUL_256(q5_k, 1)
MUL_256(q6_k, 0)
MUL_256(iq4_xs, 0)
#define MUL_CODES(name, ...) MUL_256(name, 0)
LODE_CODEBOOK_LIST(MUL_CODES)
