/* block.h - what the bytes of a block mean.
 *
 * Weight layouts are GGML's (facts of the GGUF format): the first member is at byte 0 and nothing
 * is padded, so every struct has alignment 2 or less and may lie at any address of that alignment
 * (lode's own, which lie in its own memory, have 4).
 * Halves are IEEE binary16 bits; all integers are little-endian.
 *
 * The drawings show bytes in ascending order; "lo/hi nibbles" are bits 0-3 and 4-7.  w is the
 * weight, q the stored code.
 *
 * Activation layouts are lode's own and live only in memory:
 *
 *   A32   32 numbers   { float d; int32_t sum; int8_t q[32] }        x ~ d q
 *   A256  256 numbers  { float d; uint8_t m[8]; .. ; int16_t sums[16]; int8_t q[256] }
 *                                                                    x ~ d m[i / 32] q
 *
 * with sum = the sum of the 32 q, sums[i] = m[i / 2] times the sum of q[16 i .. 16 i + 15];
 * |q| <= 127 and 1 <= m <= 16, so |sums| <= 16 * 127 * 16 = 32512 fits.  The small integer m gives
 * every 32 numbers of a long block their own scale while the block's dot product stays one exact
 * integer: activations have outliers, and one scale for 256 numbers is what costs llama.cpp's
 * K-quants most of their activation error.
 */
#ifndef LODE_TENSOR_BLOCK_H
#define LODE_TENSOR_BLOCK_H

#include <stdint.h>

/* ---- 32 numbers, one scale.  Byte i of qs holds number i (lo) and number i + 16 (hi). ---- */

struct lode_block_q4_0 { /* w = d (q - 8)      | d:2 | qs:16 | */
    uint16_t d;
    uint8_t qs[16];
};
struct lode_block_q4_1 { /* w = d q + m        | d:2 | m:2 | qs:16 | */
    uint16_t d, m;
    uint8_t qs[16];
};
struct lode_block_q5_0 { /* w = d (q - 16)     | d:2 | qh:4 | qs:16 |   bit i of qh: q's fifth bit */
    uint16_t d;
    uint8_t qh[4], qs[16];
};
struct lode_block_q5_1 { /* w = d q + m        | d:2 | m:2 | qh:4 | qs:16 | */
    uint16_t d, m;
    uint8_t qh[4], qs[16];
};
struct lode_block_q8_0 { /* w = d q            | d:2 | qs:32 | */
    uint16_t d;
    int8_t qs[32];
};
struct lode_block_q8_1 { /* w = d q            | d:2 | s:2 | qs:32 |    s = d times the sum of q */
    uint16_t d, s;
    int8_t qs[32];
};
struct lode_block_iq4_nl { /* w = d lode_iq4_levels[q]   | d:2 | qs:16 | */
    uint16_t d;
    uint8_t qs[16];
};
struct lode_block_mxfp4 { /* w = 2^(e-128) lode_fp4_levels[q]  | e:1 | qs:16 |   (levels doubled) */
    uint8_t e;
    uint8_t qs[16];
};

/* ---- 256 numbers in 16 or 8 groups with integer scales under one or two halves. ---- */

/* w = d (sc & 15) q - dmin (sc >> 4), groups of 16.  | scales:16 | qs:64 | d:2 | dmin:2 |
 * qs: bits 2j, 2j+1 of byte 32 h + l are number 128 h + 32 j + l. */
struct lode_block_q2_k {
    uint8_t scales[16], qs[64];
    uint16_t d, dmin;
};
/* w = d (sc - 32) (q - 4), q = 2 bits of qs | 1 of hmask << 2.  | hmask:32 | qs:64 | scales:12 | d:2 |
 * qs as in Q2_K; bit b of hmask[l] belongs to number 32 b + l.  sc[16], 6 bits each:
 *   scales[0..7]   low 4 bits of sc[0..7] (lo nibbles) and sc[8..15] (hi)
 *   scales[8..11]  bits 2g, 2g+1 of byte 8 + i are the high 2 bits of sc[4 g + i] */
struct lode_block_q3_k {
    uint8_t hmask[32], qs[64], scales[12];
    uint16_t d;
};
/* w = d sc q - dmin mn, groups of 32.  | d:2 | dmin:2 | scales:12 | qs:128 |
 * byte 32 c + l of qs: number 64 c + l (lo) and 64 c + 32 + l (hi).  sc[8], mn[8], 6 bits each:
 *   scales[0..3]  bits 0-5 sc[0..3];  bits 6-7: bits 4-5 of sc[4..7]
 *   scales[4..7]  bits 0-5 mn[0..3];  bits 6-7: bits 4-5 of mn[4..7]
 *   scales[8..11] lo: bits 0-3 of sc[4..7];  hi: bits 0-3 of mn[4..7] */
struct lode_block_q4_k {
    uint16_t d, dmin;
    uint8_t scales[12], qs[128];
};
/* Q4_K with a fifth bit: bit b of qh[l] belongs to number 32 b + l.
 * | d:2 | dmin:2 | scales:12 | qh:32 | qs:128 | */
struct lode_block_q5_k {
    uint16_t d, dmin;
    uint8_t scales[12], qh[32], qs[128];
};
/* w = d sc (q - 32), groups of 16.  | ql:128 | qh:64 | scales:16 | d:2 |
 * For half h, l = 0..31:  ql[64 h + l] lo, hi are the low bits of numbers 128 h + l, 128 h + 64 + l;
 * ql[64 h + 32 + l] those of 128 h + 32 + l, 128 h + 96 + l; bits 2j, 2j+1 of qh[32 h + l] are the
 * high bits of number 128 h + 32 j + l. */
struct lode_block_q6_k {
    uint8_t ql[128], qh[64];
    int8_t scales[16];
    uint16_t d;
};
struct lode_block_q8_k { /* w = d q   | d:4 float | qs:256 | bsums:32 |   sums of 16 q */
    uint8_t d[4];
    int8_t qs[256];
    uint8_t bsums[32];
};
/* w = d (sc - 32) lode_iq4_levels[q], groups of 32; codes as in 8 blocks of IQ4_NL.
 * | d:2 | scales_h:2 | scales_l:4 | qs:128 |   sc[g] = nibble g of scales_l | bits 2g, 2g+1 of
 * scales_h << 4 */
struct lode_block_iq4_xs {
    uint16_t d, scales_h;
    uint8_t scales_l[4], qs[128];
};

/* ---- Codebooks: 8 (or 4) numbers are an entry of a grid (kern/iq_grids.h), signs apart.
 *      "7 sign bits" give the eighth by even parity. ---- */

/* Per 32 numbers 8 bytes: 4 grid indices, then 32 bits = 4 x 7 sign bits, 4 bits sc.
 * w = d (0.5 + sc) / 4 * grid.                       | d:2 | (idx:4 signs+sc:4) x 8 | */
struct lode_block_iq2_xxs {
    uint16_t d;
    uint8_t qs[64];
};
/* Per 8 numbers 16 bits: 9 of grid index, 7 sign bits; per 16 numbers 4 bits sc.
 * w = d (0.5 + sc) / 4 * grid.                       | d:2 | qs:64 | scales:8 | */
struct lode_block_iq2_xs {
    uint16_t d;
    uint8_t qs[64], scales[8];
};
/* Index = byte of qs | 2 bits of qh << 8; 8 sign bits.  | d:2 | idx:32 signs:32 | qh:8 | scales:8 | */
struct lode_block_iq2_s {
    uint16_t d;
    uint8_t qs[32], signs[32], qh[8], scales[8];
};
/* Grid entries of 4; per 32 numbers 32 bits = 4 x 7 sign bits, 4 bits sc.
 * w = d (0.5 + sc) / 2 * grid.                       | d:2 | idx:64 | signs+sc:32 | */
struct lode_block_iq3_xxs {
    uint16_t d;
    uint8_t qs[64], signs[32];
};
/* Entries of 4; index = byte | bit of qh << 8; 4 bits sc per 32.  w = d (1 + 2 sc) * grid.
 * | d:2 | idx:64 | qh:8 | signs:32 | scales:4 | */
struct lode_block_iq3_s {
    uint16_t d;
    uint8_t qs[64], qh[8], signs[32], scales[4];
};
/* Per 32 numbers 16 bits of qh: 4 x 3 high index bits, 3 bits sc, 1 sign of delta = 1/8.
 * w = d (2 sc + 1) (grid +- delta).                  | d:2 | qs:32 | qh:16 | */
struct lode_block_iq1_s {
    uint16_t d;
    uint8_t qs[32], qh[16];
};
/* As IQ1_S with a nibble of qh per 8 numbers (3 index bits, sign of delta) and 3 bits sc per 16:
 * 4 x 3 in each 16 bits of scales, whose top nibbles spell the half d.
 *                                                    | qs:32 | qh:16 | scales:8 | */
struct lode_block_iq1_m {
    uint8_t qs[32], qh[16], scales[8];
};

/* ---- Ternary, binary and two-bit. ---- */

/* Base-3 digits: a byte b holds five, t_k = (b * 3^k mod 256) * 3 >> 8; w = d (t - 1).
 * | qs:48 | qh:4 | d:2 |   number 32 k + l = digit k of qs[l] (l < 32); 160 + 16 k + l = digit k of
 * qs[32 + l] (l < 16); 240 + 4 k + l = digit k of qh[l], k < 4. */
struct lode_block_tq1_0 {
    uint8_t qs[48], qh[4];
    uint16_t d;
};
struct lode_block_tq2_0 { /* w = d (q - 1)   | qs:64 | d:2 |   codes as in Q2_K */
    uint8_t qs[64];
    uint16_t d;
};
struct lode_block_q1_0 { /* 128 numbers; w = bit ? d : -d   | d:2 | bits:16 | */
    uint16_t d;
    uint8_t qs[16];
};
struct lode_block_q2_0 { /* 64 numbers; w = d (q - 1)   | d:2 | qs:16 |   number i: bits 2 (i % 4) */
    uint16_t d;
    uint8_t qs[16];
};
/* 64 numbers: 4 groups of 16, d[g] an unsigned E4M3 float (halved: the levels are doubled).
 * | d:4 | qs:32 |   byte 8 g + l: number 16 g + l (lo), 16 g + 8 + l (hi) */
struct lode_block_nvfp4 {
    uint8_t d[4], qs[32];
};

/* ---- lode's own weights: what GGML's layouts can't hold exactly (format/hf_scheme.h). ---- */

/* w = d q + m, each product and sum rounded; q unsigned, of B bits.  UB: 64 numbers share d and m,
 * in two halves of 32, so that a pair of floats costs as much as the files' pairs of halves:
 *
 *   UB      | d:4 | codes of 0..31 | m:4 | codes of 32..63 |
 *   UBG32   | d:4 | m:4 | codes |                               32 numbers
 *
 * The codes of 32 numbers are planes of bits, the lowest bits first (U5: 4 and 1, U3: 2 and 1):
 *
 *   8 bits  32 bytes
 *   4 bits  16 bytes: byte i holds number i (lo) and i + 16 (hi)
 *   2 bits   8 bytes: bits 2t, 2t+1 of byte 4 h + j belong to number 16 h + 4 t + j
 *   1 bit    4 bytes: bit t of byte j belongs to number 4 t + j */
#define LODE_U_LIST(X) X(2, 8) X(3, 12) X(4, 16) X(5, 20) X(6, 24) X(8, 32) /* bits, bytes of 32 */
#define LODE_U_STRUCT(bits, bytes)                                                                 \
    struct lode_block_u##bits {                                                                    \
        struct {                                                                                   \
            float dm;                                                                              \
            uint8_t q[bytes];                                                                      \
        } half[2];                                                                                 \
    };
LODE_U_LIST(LODE_U_STRUCT)
#undef LODE_U_STRUCT
struct lode_block_u4g32 {
    float d, m;
    uint8_t q[16];
};
struct lode_block_u8g32 {
    float d, m;
    uint8_t q[32];
};
/* w = d q, q an 8-bit float with 3 or 2 bits of mantissa.   | d:4 | q:32 | */
struct lode_block_e4m3 {
    float d;
    uint8_t q[32];
};
struct lode_block_e5m2 {
    float d;
    uint8_t q[32];
};
/* NVFP4 whose scales a float divides: w = (d[g] / by) level   | by:4 | d:4 | qs:32 |   as NVFP4,
 * but d is E4M3 with its sign and its NaN */
struct lode_block_nvfp4g {
    float by;
    uint8_t d[4], qs[32];
};

/* ---- lode's activations. ---- */

struct lode_block_a32 {
    float d;
    int32_t sum;
    int8_t q[32];
};
struct lode_block_a256 {
    float d;
    uint8_t m[8], pad[4];
    int16_t sums[16];
    int8_t q[256];
};
#define LODE_A256_MUL 16 /* the largest m; 16 keeps every dot product below 2^31, kern/mul_scalar.c */

#define LODE_BLOCK_SIZES(X)                                                                        \
    X(q4_0, 18) X(q4_1, 20) X(q5_0, 22) X(q5_1, 24) X(q8_0, 34) X(q8_1, 36) X(iq4_nl, 18)          \
    X(mxfp4, 17) X(q2_k, 84) X(q3_k, 110) X(q4_k, 144) X(q5_k, 176) X(q6_k, 210) X(q8_k, 292)      \
    X(iq4_xs, 136) X(iq2_xxs, 66) X(iq2_xs, 74) X(iq2_s, 82) X(iq3_xxs, 98) X(iq3_s, 110)          \
    X(iq1_s, 50) X(iq1_m, 56) X(tq1_0, 54) X(tq2_0, 66) X(q1_0, 18) X(q2_0, 18) X(nvfp4, 36)       \
    X(a32, 40) X(a256, 304) X(u2, 24) X(u3, 32) X(u4, 40) X(u5, 48) X(u6, 56) X(u8, 72)            \
    X(u4g32, 24) X(u8g32, 40) X(e4m3, 36) X(e5m2, 36) X(nvfp4g, 40)
#define LODE_BLOCK_CHECK(name, bytes)                                                              \
    _Static_assert(sizeof(struct lode_block_##name) == (bytes), #name);
LODE_BLOCK_SIZES(LODE_BLOCK_CHECK)
#undef LODE_BLOCK_CHECK

#endif
