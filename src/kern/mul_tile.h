/* mul_tile.h - the products of quantised weights, written once for every vector width.
 *
 * A file mul_quant_ISA.c defines a small set of vector operations and includes this one; what
 * results equals mul_scalar.c bit for bit, because integer sums are exact in any order and the
 * float chain of a row stays in one lane.
 *
 * The idea: lane i belongs to weight row i.  A tile is LANES rows; each of its blocks is unpacked
 * once into vectors that hold four neighbouring codes of every row,
 *
 *     w[t], lane i = codes 4t .. 4t+3 of row i, unsigned bytes
 *
 * and multiplied with any number of activation columns, whose four neighbouring numbers are
 * broadcast to all lanes (v_dot4).  Nothing is ever summed across lanes, scales are vectors too,
 * and the same code serves one column (decode) and hundreds (prefill).
 *
 * Codes are unsigned because the instruction wants it: w = d (q - bias) becomes
 * sum q x - bias sum x, and activations carry their sums.  Codes of a full byte ("wide": Q8_0 and
 * the IQ4 levels) are kept as the instruction set likes them, unsigned with bias V_WIDE_BIAS = 128
 * or signed with bias 0.
 *
 * Loads never leave a block: all are 4 or 16 bytes inside it.
 *
 * Arithmetic is that of compiler vectors (kern/vec.h); an including file defines what they lack:
 *
 *   KERN(name)                      name##_ISA
 *   LANES, V_COLUMNS, V_WIDE_BIAS   rows of a tile; columns done at once; see above
 *   v_pick(v, P)                    bytes of each lane's dword, P = 0xDDCCBBAA: byte 0..3, 80 for zero
 *   v_lookup(table, codes)          table: 16 bytes at each 16; codes 0..15
 *   v_dot4(acc, w, x)               acc + sum of 4 products; w <= 63 unsigned, x signed
 *   v_dot4_wide(acc, w, x)          the same for wide codes
 *   v_dot2(acc, a, b)               acc + sum of 2 products of int16
 *   v_load16(V out[4], rows, off)   out[t], lane i = bytes off + 4t .. of row i
 *   v_load4(rows, off)
 *   f_set(x), f_half(V: half in the low 16 bits of each lane)
 *   f_fma(a, b, c) f_fnma(a, b, c)  a b + c, c - a b
 *   f_load(p, n) f_store(p, n, v)   the first n lanes
 */
#include "kern/iq_grids.h"
#include "kern/isa.h"
#include "kern/vec.h"
#include "tensor/block.h"

#include <stddef.h>

/* ---- unpacking: 256 numbers ---- */

struct tile256 {
    V w[64];  /* codes */
    V sc[16]; /* scales as int32: of groups of 32 (8 of them) or 16 */
    V mn[8];  /* int16 pairs for groups of 16 (2s, 2s + 1): minima, or bias times scale */
    F d, dmin;
};

/* Bits `from` and up of every byte to bits `to` and up; other bits of the byte are left dirty. */
INLINE V move_bits(V v, int from, int to) {
    return from < to ? v_sll16(v, to - from) : v_srl16(v, from - to);
}

/* n low bits of every byte, n constant. */
INLINE V low_bits(V v, int n) { return v & v_set8((uint8_t)((1 << n) - 1)); }

/* 32 bytes of each row. */
INLINE void load32(V out[8], const struct rows *r, size_t off) {
    v_load16(out, r, off);
    v_load16(out + 4, r, off + 16);
}

/* The half that ends at byte `end` of a block. */
INLINE F half_before(const struct rows *r, size_t end) { return f_half(v_load4(r, end - 4) >> 16); }

/* The four bytes of each lane as int32. */
INLINE void bytes_to_int(V out[4], V v) {
    out[0] = v_pick(v, 0x80808000);
    out[1] = v_pick(v, 0x80808001);
    out[2] = v_pick(v, 0x80808002);
    out[3] = v_pick(v, 0x80808003);
}

/* The 6-bit scales and minima of Q4_K and Q5_K from the block's first 16 bytes. */
INLINE void scales_k(struct tile256 *t, const struct rows *r, size_t off) {
    const V m48 = v_set8(48);
    V h[4];
    v_load16(h, r, off);
    t->d = f_half(h[0]);
    t->dmin = f_half(h[0] >> 16);
    const V sc[2] = {low_bits(h[1], 6), low_bits(h[3], 4) | (v_srl16(h[1], 2) & m48)};
    const V mn[2] = {low_bits(h[2], 6), low_bits(v_srl16(h[3], 4), 4) | (v_srl16(h[2], 2) & m48)};
    for (int g = 0; g < 2; g++) {
        bytes_to_int(t->sc + 4 * g, sc[g]);
        t->mn[4 * g + 0] = v_pick(mn[g], 0x80008000);
        t->mn[4 * g + 1] = v_pick(mn[g], 0x80018001);
        t->mn[4 * g + 2] = v_pick(mn[g], 0x80028002);
        t->mn[4 * g + 3] = v_pick(mn[g], 0x80038003);
    }
}

INLINE void tile_q4_k(struct tile256 *t, const struct rows *r, size_t off) {
    scales_k(t, r, off);
    for (int c = 0; c < 8; c++) { /* 16 bytes */
        V q[4], *w = t->w + 16 * (c / 2) + 4 * (c % 2);
        v_load16(q, r, off + offsetof(struct lode_block_q4_k, qs) + 16 * (size_t)c);
        for (int i = 0; i < 4; i++) {
            w[i] = low_bits(q[i], 4);
            w[8 + i] = low_bits(v_srl16(q[i], 4), 4);
        }
    }
}

INLINE void tile_q5_k(struct tile256 *t, const struct rows *r, size_t off) {
    const V m16 = v_set8(16);
    V h[8];
    scales_k(t, r, off);
    load32(h, r, off + offsetof(struct lode_block_q5_k, qh));
    for (int c = 0; c < 8; c++) {
        V q[4], *w = t->w + 16 * (c / 2) + 4 * (c % 2);
        v_load16(q, r, off + offsetof(struct lode_block_q5_k, qs) + 16 * (size_t)c);
        for (int i = 0; i < 4; i++) {
            const V five = h[4 * (c % 2) + i];
            w[i] = low_bits(q[i], 4) | (move_bits(five, c / 2 * 2, 4) & m16);
            w[8 + i] = low_bits(v_srl16(q[i], 4), 4) | (move_bits(five, c / 2 * 2 + 1, 4) & m16);
        }
    }
}

/* 16 scales as signed bytes in 4 vectors: sc[], and in mn[] the scales times bias = 2^log_bias. */
INLINE void scales_16(struct tile256 *t, const V s[4], int log_bias) {
    for (int g = 0; g < 4; g++) {
        for (int i = 0; i < 4; i++)
            t->sc[4 * g + i] = v_sra32(s[g] << (24 - 8 * i), 24);
        t->mn[2 * g + 0] = v_sra16(v_pick(s[g], 0x01800080), 8 - log_bias);
        t->mn[2 * g + 1] = v_sra16(v_pick(s[g], 0x03800280), 8 - log_bias);
    }
}

INLINE void tile_q6_k(struct tile256 *t, const struct rows *r, size_t off) {
    const V m48 = v_set8(48);
    V s[4];
    v_load16(s, r, off + offsetof(struct lode_block_q6_k, scales));
    scales_16(t, s, 5);
    t->d = half_before(r, off + sizeof(struct lode_block_q6_k));
    for (int c = 0; c < 4; c++) { /* 16 bytes of a run of 32, for each of two halves */
        const size_t half = (size_t)c / 2, at = 16 * ((size_t)c % 2);
        V a[4], b[4], hi[4], *w = t->w + 32 * half + at / 4;
        v_load16(a, r, off + 64 * half + at);
        v_load16(b, r, off + 64 * half + 32 + at);
        v_load16(hi, r, off + offsetof(struct lode_block_q6_k, qh) + 32 * half + at);
        for (int i = 0; i < 4; i++) {
            w[i] = low_bits(a[i], 4) | (v_sll16(hi[i], 4) & m48);
            w[8 + i] = low_bits(b[i], 4) | (v_sll16(hi[i], 2) & m48);
            w[16 + i] = low_bits(v_srl16(a[i], 4), 4) | (hi[i] & m48);
            w[24 + i] = low_bits(v_srl16(b[i], 4), 4) | (v_srl16(hi[i], 2) & m48);
        }
    }
}

INLINE void tile_q2_k(struct tile256 *t, const struct rows *r, size_t off) {
    V s[4];
    v_load16(s, r, off);
    for (int g = 0; g < 4; g++) {
        const V mn = low_bits(v_srl16(s[g], 4), 4);
        bytes_to_int(t->sc + 4 * g, low_bits(s[g], 4));
        t->mn[2 * g + 0] = v_pick(mn, 0x80018000);
        t->mn[2 * g + 1] = v_pick(mn, 0x80038002);
    }
    const V d = v_load4(r, off + offsetof(struct lode_block_q2_k, d));
    t->d = f_half(d);
    t->dmin = f_half(d >> 16);
    for (int c = 0; c < 4; c++) {
        V q[4], *w = t->w + 32 * (c / 2) + 4 * (c % 2);
        v_load16(q, r, off + offsetof(struct lode_block_q2_k, qs) + 16 * (size_t)c);
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++)
                w[8 * j + i] = low_bits(v_srl16(q[i], 2 * j), 2);
    }
}

INLINE void tile_q3_k(struct tile256 *t, const struct rows *r, size_t off) {
    const V m4 = v_set8(4), m32 = v_set8(32), m48 = v_set8(48);
    const size_t at = off + offsetof(struct lode_block_q3_k, scales);
    const V a = v_load4(r, at), b = v_load4(r, at + 4), c = v_load4(r, at + 8);
    V s[4] = {low_bits(a, 4) | (v_sll16(c, 4) & m48), low_bits(b, 4) | (v_sll16(c, 2) & m48),
              low_bits(v_srl16(a, 4), 4) | (c & m48),
              low_bits(v_srl16(b, 4), 4) | (v_srl16(c, 2) & m48)};
    /* less 32 as signed bytes: s ^ 32 is that in 6 bits of two's complement; bit 5 is its sign */
    for (int g = 0; g < 4; g++) {
        const V six = s[g] ^ m32, sign = six & m32;
        s[g] = six | v_sll16(sign, 1) | v_sll16(sign, 2);
    }
    scales_16(t, s, 2);
    t->d = half_before(r, off + sizeof(struct lode_block_q3_k));
    V h[8];
    load32(h, r, off);
    for (int n = 0; n < 4; n++) {
        V q[4], *w = t->w + 32 * (n / 2) + 4 * (n % 2);
        v_load16(q, r, off + offsetof(struct lode_block_q3_k, qs) + 16 * (size_t)n);
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++)
                w[8 * j + i] = low_bits(v_srl16(q[i], 2 * j), 2) |
                               (move_bits(h[4 * (n % 2) + i], 4 * (n / 2) + j, 2) & m4);
    }
}

/* IQ4 levels as wide codes. */
INLINE V iq4_table(void) {
    static const int8_t levels[16] = LODE_IQ4_LEVELS;
    return v_table(levels) ^ v_set8(V_WIDE_BIAS); /* adding 128 flips the top bit */
}

INLINE void tile_iq4_xs(struct tile256 *t, const struct rows *r, size_t off) {
    const V table = iq4_table(), head = v_load4(r, off), low = v_load4(r, off + 4);
    t->d = f_half(head);
    for (int g = 0; g < 8; g++) { /* scale = nibble g of low | bits 2 g of head's upper half << 4 */
        t->sc[g] = ((low >> (4 * g) & v_set32(15)) | (head >> (12 + 2 * g) & v_set32(48))) -
                   v_set32(32);
        if (V_WIDE_BIAS)
            t->mn[g] = v_sll16(v_pick(t->sc[g], 0x01000100), 7);
    }
    for (int c = 0; c < 8; c++) {
        V q[4];
        v_load16(q, r, off + offsetof(struct lode_block_iq4_xs, qs) + 16 * (size_t)c);
        for (int i = 0; i < 4; i++) {
            t->w[8 * c + i] = v_lookup(table, low_bits(q[i], 4));
            t->w[8 * c + 4 + i] = v_lookup(table, low_bits(v_srl16(q[i], 4), 4));
        }
    }
}

/* ---- unpacking: 32 numbers ---- */

#define RUN32 8 /* blocks unpacked before the columns see them */
struct tile32 {
    V w[8 * RUN32];
    F d[RUN32], m[RUN32];
};

INLINE void nibbles(V w[8], const struct rows *r, size_t off) {
    V q[4];
    v_load16(q, r, off);
    for (int i = 0; i < 4; i++) {
        w[i] = low_bits(q[i], 4);
        w[4 + i] = low_bits(v_srl16(q[i], 4), 4);
    }
}

INLINE void lookup8(V w[8], V table) {
    for (int i = 0; i < 8; i++)
        w[i] = v_lookup(table, w[i]);
}

/* Bit i of the lane to bit 4 of code i: a byte's bits are spread over two dwords. */
INLINE void fifth_bits(V w[8], V bits) {
    const V select[2] = {v_set32(0x08040201), v_set32(0x80402010)}, m16 = v_set8(16);
    const V spread[4] = {v_pick(bits, 0x00000000), v_pick(bits, 0x01010101),
                         v_pick(bits, 0x02020202), v_pick(bits, 0x03030303)};
    for (int i = 0; i < 8; i++)
        w[i] |= v_eq8(spread[i / 2] & select[i % 2], select[i % 2]) & m16;
}

INLINE void tile_q4_0(struct tile32 *t, int b, const struct rows *r, size_t off) {
    t->d[b] = f_half(v_load4(r, off));
    nibbles(t->w + 8 * b, r, off + 2);
}
INLINE void tile_q4_1(struct tile32 *t, int b, const struct rows *r, size_t off) {
    const V h = v_load4(r, off);
    t->d[b] = f_half(h);
    t->m[b] = f_half(h >> 16);
    nibbles(t->w + 8 * b, r, off + 4);
}
INLINE void tile_q5_0(struct tile32 *t, int b, const struct rows *r, size_t off) {
    t->d[b] = f_half(v_load4(r, off));
    nibbles(t->w + 8 * b, r, off + 6);
    fifth_bits(t->w + 8 * b, v_load4(r, off + 2));
}
INLINE void tile_q5_1(struct tile32 *t, int b, const struct rows *r, size_t off) {
    const V h = v_load4(r, off);
    t->d[b] = f_half(h);
    t->m[b] = f_half(h >> 16);
    nibbles(t->w + 8 * b, r, off + 8);
    fifth_bits(t->w + 8 * b, v_load4(r, off + 4));
}
INLINE void tile_q8_0(struct tile32 *t, int b, const struct rows *r, size_t off) {
    t->d[b] = f_half(v_load4(r, off));
    load32(t->w + 8 * b, r, off + 2);
    for (int i = 0; i < 8; i++)
        t->w[8 * b + i] ^= v_set8(V_WIDE_BIAS);
}
INLINE void tile_iq4_nl(struct tile32 *t, int b, const struct rows *r, size_t off) {
    t->d[b] = f_half(v_load4(r, off));
    nibbles(t->w + 8 * b, r, off + 2);
    lookup8(t->w + 8 * b, iq4_table());
}
#define FP4_BIAS 12 /* the levels are -12 .. 12 */
INLINE void tile_mxfp4(struct tile32 *t, int b, const struct rows *r, size_t off) {
    static const int8_t levels[16] = LODE_FP4_LEVELS;
    /* e >= 2: 2^(e-128) has the exponent field e - 1; e = 0, 1: subnormals of 2^21, 2^22 ulps */
    const V e = v_load4(r, off) & v_set32(255), one = v_set32(1);
    const V normal = v_gt32(e, one);
    t->d[b] = (F)((((e - one) << 23) & normal) | (((e + one) << 21) & ~normal));
    nibbles(t->w + 8 * b, r, off + 1);
    V table = v_table(levels);
    lookup8(t->w + 8 * b, (V)((V8)table + (uint8_t)FP4_BIAS));
}

/* ---- columns ---- */

/* How the codes of a type become a sum; constants, so that each use is compiled for its type. */
struct shape {
    int groups;   /* of a block of 256: 8 of 32 or 16 of 16 */
    int minima;   /* mn are minima under dmin (or, blocks of 32, there is an m) */
    int wide;     /* wide codes */
    int bias;     /* to take from each code: through mn, or (32) the sums of the column */
};

INLINE V dot4(struct shape s, V acc, V w, V x) {
    return s.wide ? v_dot4_wide(acc, w, x) : v_dot4(acc, w, x);
}

/* y[j] of n_cols columns (constant) from one block of 256. */
INLINE void columns256(struct shape s, int n_cols, float *y, size_t ldy, int n_rows, int first,
                       const struct tile256 *t, const uint8_t *x, size_t x_stride) {
    const struct lode_block_a256 *a[8];
    V isum[8];
    for (int j = 0; j < n_cols; j++) {
        a[j] = (const struct lode_block_a256 *)(x + (size_t)j * x_stride);
        isum[j] = v_zero();
    }
    for (int g = 0; g < 8; g++) {
        const V *w = t->w + 8 * g;
        for (int j = 0; j < n_cols; j++) {
            const int8_t *q = a[j]->q + 32 * g;
            V lo = v_zero(), hi = v_zero(), sum;
            for (int i = 0; i < 4; i++) {
                lo = dot4(s, lo, w[i], v_bcast4(q + 4 * i));
                hi = dot4(s, hi, w[4 + i], v_bcast4(q + 16 + 4 * i));
            }
            if (s.groups == 8)
                sum = ((lo + hi) * t->sc[g]);
            else
                sum = ((lo * t->sc[2 * g]) + (hi * t->sc[2 * g + 1]));
            isum[j] = (isum[j] + (sum * v_set32(a[j]->m[g])));
        }
    }
    for (int j = 0; j < n_cols; j++) {
        float *to = y + (size_t)j * ldy;
        F acc = first ? f_zero() : f_load(to, n_rows);
        V msum = v_zero();
        if (s.minima || s.bias)
            for (int g = 0; g < 8; g++)
                msum = v_dot2(msum, t->mn[g], v_bcast4(&a[j]->sums[2 * g]));
        const F dx = f_set(a[j]->d);
        if (s.minima) {
            acc = f_fma(t->d * dx, f_int(isum[j]), acc);
            acc = f_fnma(t->dmin * dx, f_int(msum), acc);
        } else {
            acc = f_fma(t->d * dx, f_int((isum[j] - msum)), acc);
        }
        f_store(to, n_rows, acc);
    }
}

/* The same from n_blocks blocks of 32. */
INLINE void columns32(struct shape s, int n_cols, float *y, size_t ldy, int n_rows, int first,
                      const struct tile32 *t, int n_blocks, const uint8_t *x, size_t x_stride) {
    F acc[8];
    for (int j = 0; j < n_cols; j++)
        acc[j] = first ? f_zero() : f_load(y + (size_t)j * ldy, n_rows);
    for (int b = 0; b < n_blocks; b++) {
        const V *w = t->w + 8 * b;
        for (int j = 0; j < n_cols; j++) {
            const struct lode_block_a32 *a =
                (const struct lode_block_a32 *)(x + (size_t)j * x_stride) + b;
            V lo = v_set32((uint32_t)(-s.bias * a->sum)), hi = v_zero();
            for (int i = 0; i < 4; i++) {
                lo = dot4(s, lo, w[i], v_bcast4(a->q + 4 * i));
                hi = dot4(s, hi, w[4 + i], v_bcast4(a->q + 16 + 4 * i));
            }
            const F dx = f_set(a->d);
            acc[j] = f_fma(t->d[b] * dx, f_int((lo + hi)), acc[j]);
            if (s.minima)
                acc[j] = f_fma(t->m[b] * dx, f_set((float)a->sum), acc[j]);
        }
    }
    for (int j = 0; j < n_cols; j++)
        f_store(y + (size_t)j * ldy, n_rows, acc[j]);
}

/* The rows of a tile; where fewer are left, the last one again, whose results are not stored. */
INLINE struct rows tile_rows(const void *w, size_t w_stride, size_t n_left) {
    struct rows r;
    for (size_t i = 0; i < LANES; i++)
        r.p[i] = (const uint8_t *)w + (i < n_left ? i : n_left - 1) * w_stride;
    return r;
}

/* Asks for the part of the next tile that corresponds to the block being worked on.  Into the
 * second level: a tile of long rows is larger than the first.  notes: bench/notes/kern-quant.md */
INLINE void prefetch(const uint8_t *next, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(next + i, 0, 2);
}

#define EACH_COLUMNS(j, n_x, call)                                                                 \
    do {                                                                                           \
        size_t j = 0;                                                                              \
        for (; j + V_COLUMNS <= (n_x); j += V_COLUMNS)                                             \
            call(V_COLUMNS, j);                                                                    \
        for (; j + 2 <= (n_x); j += 2)                                                             \
            call(2, j);                                                                            \
        if (j < (n_x))                                                                             \
            call(1, j);                                                                            \
    } while (0)

#define MUL_256(name, ...)                                                                         \
    void KERN(mul_##name) LODE_MUL_ARGS {                                                          \
        const struct shape s = {__VA_ARGS__};                                                      \
        const size_t size = sizeof(struct lode_block_##name), n_blocks = k / 256;                  \
        for (size_t i = 0; i < n_w; i += LANES) {                                                  \
            const int n_rows = n_w - i < LANES ? (int)(n_w - i) : LANES;                           \
            const uint8_t *tile = (const uint8_t *)w + i * w_stride;                               \
            const struct rows r = tile_rows(tile, w_stride, (size_t)n_rows);                       \
            for (size_t b = 0; b < n_blocks; b++) {                                                \
                struct tile256 t;                                                                  \
                prefetch(tile + LANES * (w_stride + b * size), LANES * size);                      \
                tile_##name(&t, &r, b * size);                                                     \
                const uint8_t *xb = (const uint8_t *)x + b * sizeof(struct lode_block_a256);       \
                EACH_COLUMNS(j, n_x, CALL_256);                                                    \
            }                                                                                      \
            if (n_blocks == 0)                                                                     \
                for (size_t j = 0; j < n_x; j++)                                                   \
                    f_store(y + j * ldy + i, n_rows, f_zero());                                    \
        }                                                                                          \
    }
#define CALL_256(n, j)                                                                             \
    columns256(s, n, y + (j) * ldy + i, ldy, n_rows, b == 0, &t, xb + (j) * x_stride, x_stride)

#define MUL_32(name, ...)                                                                          \
    void KERN(mul_##name) LODE_MUL_ARGS {                                                          \
        const struct shape s = {__VA_ARGS__};                                                      \
        const size_t size = sizeof(struct lode_block_##name), n_blocks = k / 32;                   \
        for (size_t i = 0; i < n_w; i += LANES) {                                                  \
            const int n_rows = n_w - i < LANES ? (int)(n_w - i) : LANES;                           \
            const uint8_t *tile = (const uint8_t *)w + i * w_stride;                               \
            const struct rows r = tile_rows(tile, w_stride, (size_t)n_rows);                       \
            for (size_t b = 0; b < n_blocks; b += RUN32) {                                         \
                const int n_run = n_blocks - b < RUN32 ? (int)(n_blocks - b) : RUN32;              \
                struct tile32 t;                                                                   \
                prefetch(tile + LANES * (w_stride + b * size), LANES * size * (size_t)n_run);      \
                for (int c = 0; c < n_run; c++)                                                    \
                    tile_##name(&t, c, &r, (b + (size_t)c) * size);                                \
                const uint8_t *xb = (const uint8_t *)x + b * sizeof(struct lode_block_a32);        \
                EACH_COLUMNS(j, n_x, CALL_32);                                                     \
            }                                                                                      \
            if (n_blocks == 0)                                                                     \
                for (size_t j = 0; j < n_x; j++)                                                   \
                    f_store(y + j * ldy + i, n_rows, f_zero());                                    \
        }                                                                                          \
    }
#define CALL_32(n, j)                                                                              \
    columns32(s, n, y + (j) * ldy + i, ldy, n_rows, b == 0, &t, n_run, xb + (j) * x_stride,        \
              x_stride)

MUL_32(q4_0, .bias = 8)
MUL_32(q4_1, .minima = 1)
MUL_32(q5_0, .bias = 16)
MUL_32(q5_1, .minima = 1)
MUL_32(q8_0, .wide = 1, .bias = V_WIDE_BIAS)
MUL_32(iq4_nl, .wide = 1, .bias = V_WIDE_BIAS)
MUL_32(mxfp4, .bias = FP4_BIAS)
MUL_256(q2_k, .groups = 16, .minima = 1)
MUL_256(q3_k, .groups = 16, .bias = 4)
MUL_256(q4_k, .groups = 8, .minima = 1)
MUL_256(q5_k, .groups = 8, .minima = 1)
MUL_256(q6_k, .groups = 16, .bias = 32)
MUL_256(iq4_xs, .groups = 8, .wide = 1, .bias = V_WIDE_BIAS)
