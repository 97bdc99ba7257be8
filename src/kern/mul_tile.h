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
 * broadcast to all lanes.  Nothing is ever summed across lanes, scales are vectors too,
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
 *   LANES, V_WIDE_BIAS              rows of a tile; see above
 *   V_COLUMNS, V_TILES              how many of each are multiplied at once
 *   v_pick(v, P)                    bytes of each lane's dword, P = 0xDDCCBBAA: byte 0..3, 80 for zero
 *   v_lookup(table, codes)          table: 16 bytes at each 16; codes 0..15
 *   v_dot16(acc, w[4], x, top)      acc + sum of 16 products; codes w <= top <= 63, signed x[4]
 *   v_dot4_wide(acc, w, x)          acc + sum of 4 products of wide codes
 *   v_dot2(acc, a, b)               acc + sum of 2 products of int16
 *   v_load16(V out[4], rows, off)   out[t], lane i = bytes off + 4t .. of row i
 *   v_load4(rows, off)
 *   f_set(x), f_half(V: half in the low 16 bits of each lane)
 *   f_fma(a, b, c) f_fnma(a, b, c)  a b + c, c - a b
 *   f_store(p, n, v)                the first n lanes
 */
#include "kern/iq_grids.h"
#include "kern/isa.h"
#include "kern/vec.h"
#include "tensor/block.h"

#include <stddef.h>

/* Asks for the part of the next tile that corresponds to the block being worked on.  Into the first
 * level, from which long rows fall to the second, where prefetching there would have put them.
 * bench/notes/kern-quant.md */
INLINE void prefetch(const uint8_t *next, size_t bytes) {
    const uintptr_t end = (uintptr_t)next + bytes;
    for (uintptr_t line = ((uintptr_t)next + 63) & ~(uintptr_t)63; line < end; line += 64)
        __builtin_prefetch((const void *)line, 0, 3);
}

/* Columns taken together: they stay in the second level while the tiles of a panel pass, and their
 * sums lie side by side, which y's do not (its rows may all fall into one set of a cache). */
#define CHUNK 128

/* How the codes of a type become a sum; constants, so that each use is compiled for its type. */
struct shape {
    int groups;   /* scales of a block of 256: 8 for groups of 32 or 16 for groups of 16 */
    int runs;     /* groups of 16 numbers that 16 bytes of codes hold: 2 (nibbles), 4 (two bits) */
    int adjacent; /* and where they are, see group_of */
    int minima;   /* mn are minima under dmin (or, blocks of 32, there is an m) */
    int wide;     /* wide codes */
    int top;      /* else the largest code, at most 63 */
    int bias;     /* to take from each code: through mn, or (32) the sums of the column */
};

/* 16 numbers of a column, each four broadcast to all rows. */
struct x16 {
    V v[4];
};
INLINE struct x16 bcast16(const int8_t *x) {
    return (struct x16){{v_bcast4(x), v_bcast4(x + 4), v_bcast4(x + 8), v_bcast4(x + 12)}};
}

/* acc + their products with 16 codes of every row. */
INLINE V dot16(struct shape s, V acc, const V w[4], struct x16 x) {
    if (!s.wide)
        return v_dot16(acc, w, x.v, s.top);
    for (int i = 0; i < 4; i++)
        acc = v_dot4_wide(acc, w[i], x.v[i]);
    return acc;
}

/* ---- blocks of 256: what is read before the codes ---- */

struct head {
    V sc[16]; /* scales as int32 */
    V mn[8];  /* int16 pairs for groups of 16 (2s, 2s + 1): minima, or bias times scale */
    V hi[8];  /* 32 bytes of high bits (Q3_K, Q5_K) */
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
INLINE void head_q4_k(struct head *h, const struct rows *r, size_t off) {
    const V m48 = v_set8(48);
    V b[4];
    v_load16(b, r, off);
    h->d = f_half(b[0]);
    h->dmin = f_half(b[0] >> 16);
    const V sc[2] = {low_bits(b[1], 6), low_bits(b[3], 4) | (v_srl16(b[1], 2) & m48)};
    const V mn[2] = {low_bits(b[2], 6), low_bits(v_srl16(b[3], 4), 4) | (v_srl16(b[2], 2) & m48)};
    for (int g = 0; g < 2; g++) {
        bytes_to_int(h->sc + 4 * g, sc[g]);
        h->mn[4 * g + 0] = v_pick(mn[g], 0x80008000);
        h->mn[4 * g + 1] = v_pick(mn[g], 0x80018001);
        h->mn[4 * g + 2] = v_pick(mn[g], 0x80028002);
        h->mn[4 * g + 3] = v_pick(mn[g], 0x80038003);
    }
}

INLINE void head_q5_k(struct head *h, const struct rows *r, size_t off) {
    head_q4_k(h, r, off);
    load32(h->hi, r, off + offsetof(struct lode_block_q5_k, qh));
}

/* 16 scales as signed bytes in 4 vectors: sc[], and in mn[] the scales times bias = 2^log_bias. */
INLINE void scales_16(struct head *h, const V s[4], int log_bias) {
    for (int g = 0; g < 4; g++) {
        for (int i = 0; i < 4; i++)
            h->sc[4 * g + i] = v_sra32(s[g] << (24 - 8 * i), 24);
        h->mn[2 * g + 0] = v_sra16(v_pick(s[g], 0x01800080), 8 - log_bias);
        h->mn[2 * g + 1] = v_sra16(v_pick(s[g], 0x03800280), 8 - log_bias);
    }
}

INLINE void head_q6_k(struct head *h, const struct rows *r, size_t off) {
    V s[4];
    v_load16(s, r, off + offsetof(struct lode_block_q6_k, scales));
    scales_16(h, s, 5);
    h->d = half_before(r, off + sizeof(struct lode_block_q6_k));
}

INLINE void head_q2_k(struct head *h, const struct rows *r, size_t off) {
    V s[4];
    v_load16(s, r, off);
    for (int g = 0; g < 4; g++) {
        const V mn = low_bits(v_srl16(s[g], 4), 4);
        bytes_to_int(h->sc + 4 * g, low_bits(s[g], 4));
        h->mn[2 * g + 0] = v_pick(mn, 0x80018000);
        h->mn[2 * g + 1] = v_pick(mn, 0x80038002);
    }
    const V d = v_load4(r, off + offsetof(struct lode_block_q2_k, d));
    h->d = f_half(d);
    h->dmin = f_half(d >> 16);
}

INLINE void head_q3_k(struct head *h, const struct rows *r, size_t off) {
    const V m32 = v_set8(32), m48 = v_set8(48);
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
    scales_16(h, s, 2);
    h->d = half_before(r, off + sizeof(struct lode_block_q3_k));
    load32(h->hi, r, off);
}

INLINE void head_iq4_xs(struct head *h, const struct rows *r, size_t off) {
    const V head = v_load4(r, off), low = v_load4(r, off + 4);
    h->d = f_half(head);
    for (int g = 0; g < 8; g++) { /* scale = nibble g of low | bits 2 g of head's upper half << 4 */
        h->sc[g] = ((low >> (4 * g) & v_set32(15)) | (head >> (12 + 2 * g) & v_set32(48))) -
                   v_set32(32);
        if (V_WIDE_BIAS)
            h->mn[g] = v_sll16(v_pick(h->sc[g], 0x01000100), 7);
    }
}

/* ---- blocks of 256: codes, from the c-th 16 bytes of each row ---- */

/* The group of 16 numbers that run n of chunk c is. */
INLINE int group_of(struct shape s, int c, int n) {
    return s.adjacent ? 2 * c + n : c / 2 * 2 * s.runs + c % 2 + 2 * n;
}

typedef void chunk(V w[4][4], const struct head *h, const struct rows *r, size_t off, int c);

INLINE void chunk_q4_k(V w[4][4], const struct head *h, const struct rows *r, size_t off, int c) {
    (void)h;
    V q[4];
    v_load16(q, r, off + offsetof(struct lode_block_q4_k, qs) + 16 * (size_t)c);
    for (int i = 0; i < 4; i++) {
        w[0][i] = low_bits(q[i], 4);
        w[1][i] = low_bits(v_srl16(q[i], 4), 4);
    }
}

INLINE void chunk_q5_k(V w[4][4], const struct head *h, const struct rows *r, size_t off, int c) {
    const V m16 = v_set8(16);
    V q[4];
    v_load16(q, r, off + offsetof(struct lode_block_q5_k, qs) + 16 * (size_t)c);
    for (int i = 0; i < 4; i++) {
        const V five = h->hi[4 * (c % 2) + i];
        w[0][i] = low_bits(q[i], 4) | (move_bits(five, c / 2 * 2, 4) & m16);
        w[1][i] = low_bits(v_srl16(q[i], 4), 4) | (move_bits(five, c / 2 * 2 + 1, 4) & m16);
    }
}

INLINE void chunk_q6_k(V w[4][4], const struct head *h, const struct rows *r, size_t off, int c) {
    (void)h;
    const V m48 = v_set8(48);
    const size_t half = (size_t)c / 2, at = off + 16 * ((size_t)c % 2);
    V a[4], b[4], hi[4];
    v_load16(a, r, at + 64 * half);
    v_load16(b, r, at + 64 * half + 32);
    v_load16(hi, r, at + offsetof(struct lode_block_q6_k, qh) + 32 * half);
    for (int i = 0; i < 4; i++) {
        w[0][i] = low_bits(a[i], 4) | (v_sll16(hi[i], 4) & m48);
        w[1][i] = low_bits(b[i], 4) | (v_sll16(hi[i], 2) & m48);
        w[2][i] = low_bits(v_srl16(a[i], 4), 4) | (hi[i] & m48);
        w[3][i] = low_bits(v_srl16(b[i], 4), 4) | (v_srl16(hi[i], 2) & m48);
    }
}

INLINE void chunk_q2_k(V w[4][4], const struct head *h, const struct rows *r, size_t off, int c) {
    (void)h;
    V q[4];
    v_load16(q, r, off + offsetof(struct lode_block_q2_k, qs) + 16 * (size_t)c);
    for (int i = 0; i < 4; i++)
        for (int n = 0; n < 4; n++)
            w[n][i] = low_bits(v_srl16(q[i], 2 * n), 2);
}

INLINE void chunk_q3_k(V w[4][4], const struct head *h, const struct rows *r, size_t off, int c) {
    const V m4 = v_set8(4);
    V q[4];
    v_load16(q, r, off + offsetof(struct lode_block_q3_k, qs) + 16 * (size_t)c);
    for (int i = 0; i < 4; i++)
        for (int n = 0; n < 4; n++)
            w[n][i] = low_bits(v_srl16(q[i], 2 * n), 2) |
                      (move_bits(h->hi[4 * (c % 2) + i], 4 * (c / 2) + n, 2) & m4);
}

/* IQ4 levels as wide codes. */
INLINE V iq4_table(void) {
    static const int8_t levels[16] = LODE_IQ4_LEVELS;
    return v_table(levels) ^ v_set8(V_WIDE_BIAS); /* adding 128 flips the top bit */
}

INLINE void chunk_iq4_xs(V w[4][4], const struct head *h, const struct rows *r, size_t off, int c) {
    (void)h;
    const V table = iq4_table();
    V q[4];
    v_load16(q, r, off + offsetof(struct lode_block_iq4_xs, qs) + 16 * (size_t)c);
    for (int i = 0; i < 4; i++) {
        w[0][i] = v_lookup(table, low_bits(q[i], 4));
        w[1][i] = v_lookup(table, low_bits(v_srl16(q[i], 4), 4));
    }
}

/* ---- blocks of 256: columns ---- */

/* acc after one more block whose integer sum is isum; mn's part is formed here. */
INLINE F add_block(struct shape s, F acc, const struct head *h, const struct lode_block_a256 *a,
                   V isum) {
    const F dx = f_set(a->d);
    V msum = v_zero();
    if (s.minima || s.bias)
        for (int g = 0; g < 8; g++)
            msum = v_dot2(msum, h->mn[g], v_bcast4(&a->sums[2 * g]));
    if (!s.minima)
        return f_fma(h->d * dx, f_int(isum - msum), acc);
    acc = f_fma(h->d * dx, f_int(isum), acc);
    return f_fnma(h->dmin * dx, f_int(msum), acc);
}

/* Unpacked blocks of V_TILES tiles that meet the columns together, so that a number of a column is
 * broadcast once for all of them. */
struct block256 {
    struct head head;
    V w[64];
};

/* sums[t][j0 ..] of n_cols columns (constant) after one more block of each tile. */
INLINE void columns256(struct shape s, size_t n_cols, F sums[V_TILES][CHUNK], size_t j0,
                       const struct block256 block[V_TILES], const uint8_t *x, size_t x_stride) {
    const struct lode_block_a256 *a[V_COLUMNS];
    V isum[V_COLUMNS][V_TILES];
    int32_t m[V_COLUMNS][8]; /* to be broadcast from memory, which costs no more than a load */
    for (size_t j = 0; j < n_cols; j++) {
        a[j] = (const struct lode_block_a256 *)(x + (j0 + j) * x_stride);
        for (int t = 0; t < V_TILES; t++)
            isum[j][t] = v_zero();
        for (int g = 0; g < 8; g++)
            m[j][g] = a[j]->m[g];
    }
    for (int g = 0; g < 8; g++)
#pragma GCC unroll 16
        for (size_t j = 0; j < n_cols; j++) {
            const struct x16 lo = bcast16(a[j]->q + 32 * g), hi = bcast16(a[j]->q + 32 * g + 16);
            const V mul = v_bcast4(&m[j][g]);
            for (int t = 0; t < V_TILES; t++) {
                const V *w = block[t].w + 8 * g, *sc = block[t].head.sc;
                const V a16 = dot16(s, v_zero(), w, lo), b16 = dot16(s, v_zero(), w + 4, hi);
                isum[j][t] += mul * (s.groups == 8 ? (a16 + b16) * sc[g]
                                                   : a16 * sc[2 * g] + b16 * sc[2 * g + 1]);
            }
        }
#pragma GCC unroll 16
    for (size_t j = 0; j < n_cols; j++)
        for (int t = 0; t < V_TILES; t++)
            sums[t][j0 + j] = add_block(s, sums[t][j0 + j], &block[t].head, a[j], isum[j][t]);
}

/* ---- blocks of 32: their scales and codes ---- */

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

typedef void block32(V w[8], F *d, F *m, const struct rows *r, size_t off);

INLINE void block_q4_0(V w[8], F *d, F *m, const struct rows *r, size_t off) {
    (void)m;
    *d = f_half(v_load4(r, off));
    nibbles(w, r, off + 2);
}
INLINE void block_q4_1(V w[8], F *d, F *m, const struct rows *r, size_t off) {
    const V h = v_load4(r, off);
    *d = f_half(h);
    *m = f_half(h >> 16);
    nibbles(w, r, off + 4);
}
INLINE void block_q5_0(V w[8], F *d, F *m, const struct rows *r, size_t off) {
    (void)m;
    *d = f_half(v_load4(r, off));
    nibbles(w, r, off + 6);
    fifth_bits(w, v_load4(r, off + 2));
}
INLINE void block_q5_1(V w[8], F *d, F *m, const struct rows *r, size_t off) {
    const V h = v_load4(r, off);
    *d = f_half(h);
    *m = f_half(h >> 16);
    nibbles(w, r, off + 8);
    fifth_bits(w, v_load4(r, off + 4));
}
INLINE void block_q8_0(V w[8], F *d, F *m, const struct rows *r, size_t off) {
    (void)m;
    *d = f_half(v_load4(r, off));
    load32(w, r, off + 2);
    for (int i = 0; i < 8; i++)
        w[i] ^= v_set8(V_WIDE_BIAS);
}
INLINE void block_iq4_nl(V w[8], F *d, F *m, const struct rows *r, size_t off) {
    (void)m;
    *d = f_half(v_load4(r, off));
    nibbles(w, r, off + 2);
    lookup8(w, iq4_table());
}
#define FP4_BIAS 12 /* the levels are -12 .. 12 */
INLINE void block_mxfp4(V w[8], F *d, F *m, const struct rows *r, size_t off) {
    static const int8_t levels[16] = LODE_FP4_LEVELS;
    (void)m;
    /* e >= 2: 2^(e-128) has the exponent field e - 1; e = 0, 1: subnormals of 2^21, 2^22 ulps */
    const V e = v_load4(r, off) & v_set32(255), one = v_set32(1);
    const V normal = v_gt32(e, one);
    *d = (F)((((e - one) << 23) & normal) | (((e + one) << 21) & ~normal));
    nibbles(w, r, off + 1);
    lookup8(w, (V)((V8)v_table(levels) + (uint8_t)FP4_BIAS));
}

/* ---- blocks of 32: columns ---- */

/* acc after one more block of a tile. */
INLINE F add_block32(struct shape s, F acc, const V w[8], F d, F m, const struct lode_block_a32 *a,
                     struct x16 x_lo, struct x16 x_hi) {
    const F dx = f_set(a->d);
    const V lo = dot16(s, v_set32((uint32_t)(-s.bias * a->sum)), w, x_lo);
    const V hi = dot16(s, v_zero(), w + 4, x_hi);
    acc = f_fma(d * dx, f_int(lo + hi), acc);
    return s.minima ? f_fma(m * dx, f_set((float)a->sum), acc) : acc;
}

#define RUN32 8 /* blocks unpacked before the columns see them */
struct run32 {
    V w[RUN32][8];
    F d[RUN32], m[RUN32];
};

/* sums[t][j0 ..] of n_cols columns (constant) after n_blocks more blocks of each tile. */
INLINE void columns32(struct shape s, size_t n_cols, F sums[V_TILES][CHUNK], size_t j0,
                      const struct run32 run[V_TILES], int n_blocks, const uint8_t *x,
                      size_t x_stride) {
    F acc[V_COLUMNS][V_TILES];
    for (size_t j = 0; j < n_cols; j++)
        for (int t = 0; t < V_TILES; t++)
            acc[j][t] = sums[t][j0 + j];
    for (int b = 0; b < n_blocks; b++)
#pragma GCC unroll 16
        for (size_t j = 0; j < n_cols; j++) {
            const struct lode_block_a32 *a =
                (const struct lode_block_a32 *)(x + (j0 + j) * x_stride) + b;
            const struct x16 lo = bcast16(a->q), hi = bcast16(a->q + 16);
            for (int t = 0; t < V_TILES; t++)
                acc[j][t] = add_block32(s, acc[j][t], run[t].w[b], run[t].d[b], run[t].m[b], a, lo, hi);
        }
    for (size_t j = 0; j < n_cols; j++)
        for (int t = 0; t < V_TILES; t++)
            sums[t][j0 + j] = acc[j][t];
}

/* ---- tiles ---- */

/* The rows of a tile; where fewer are left, the last one again, whose results are not stored. */
INLINE struct rows tile_rows(const uint8_t *w, size_t w_stride, int n_rows) {
    struct rows r;
    for (int i = 0; i < LANES; i++)
        r.p[i] = w + (size_t)(i < n_rows ? i : n_rows - 1) * w_stride;
    return r;
}

/* call(n, j) for all columns in n's that are constants. */
#define EACH_COLUMNS(n_x, call)                                                                    \
    do {                                                                                           \
        size_t j = 0;                                                                              \
        for (; j + V_COLUMNS <= (n_x); j += V_COLUMNS)                                             \
            call(V_COLUMNS, j);                                                                    \
        for (; j + 2 <= (n_x); j += 2)                                                             \
            call(2, j);                                                                            \
        if (j < (n_x))                                                                             \
            call(1, j);                                                                            \
    } while (0)

/* What a tile of a type needs to know; `next` bytes on begin the rows of the next tile. */
#define TYPE_256                                                                                   \
    struct shape s, void (*read_head)(struct head *, const struct rows *, size_t), chunk *unpack,  \
        size_t size
#define TYPE_32 struct shape s, block32 *unpack, size_t size
#define TILE_ARGS                                                                                  \
    const struct rows *r, size_t next, const uint8_t *x, size_t x_stride, size_t n_x, size_t k

/* One column: codes are used as soon as they are unpacked. */
INLINE F one256(TYPE_256, const struct rows *r, size_t next, const uint8_t *x, size_t k) {
    const int n_chunks = 16 / s.runs;
    const size_t part = LANES * size / (size_t)n_chunks;
    F acc = f_zero();
    for (size_t b = 0; b < k / 256; b++, x += sizeof(struct lode_block_a256)) {
        const struct lode_block_a256 *a = (const struct lode_block_a256 *)x;
        struct head h;
        V isum = v_zero(), sc[16];
        read_head(&h, r, b * size);
        for (int g = 0; g < s.groups; g++)
            sc[g] = h.sc[g] * v_set32(a->m[g * 8 / s.groups]);
#pragma GCC unroll 1
        for (int c = 0; c < n_chunks; c++) {
            V w[4][4];
            prefetch(r->p[0] + next + (b * (size_t)n_chunks + (size_t)c) * part, part);
            unpack(w, &h, r, b * size, c);
            for (int n = 0; n < s.runs; n++) {
                const int g = group_of(s, c, n);
                isum += dot16(s, v_zero(), w[n], bcast16(a->q + 16 * g)) * sc[g * s.groups / 16];
            }
        }
        acc = add_block(s, acc, &h, a, isum);
    }
    return acc;
}

INLINE F one32(TYPE_32, const struct rows *r, size_t next, const uint8_t *x, size_t k) {
    F acc = f_zero();
    for (size_t b = 0; b < k / 32; b++, x += sizeof(struct lode_block_a32)) {
        V w[8];
        F d, m = f_zero();
        prefetch(r->p[0] + next + LANES * b * size, LANES * size);
        unpack(w, &d, &m, r, b * size);
        const struct lode_block_a32 *a = (const struct lode_block_a32 *)x;
        acc = add_block32(s, acc, w, d, m, a, bcast16(a->q), bcast16(a->q + 16));
    }
    return acc;
}

/* n_x <= CHUNK columns. */
INLINE void many256(F sums[V_TILES][CHUNK], TYPE_256, TILE_ARGS) {
    for (size_t b = 0; b < k / 256; b++, x += sizeof(struct lode_block_a256)) {
        struct block256 block[V_TILES];
        for (int t = 0; t < V_TILES; t++) {
            prefetch(r[t].p[0] + next + LANES * b * size, LANES * size);
            read_head(&block[t].head, &r[t], b * size);
#pragma GCC unroll 8
            for (int c = 0; c < 16 / s.runs; c++) {
                V w[4][4];
                unpack(w, &block[t].head, &r[t], b * size, c);
                for (int n = 0; n < s.runs; n++)
                    for (int i = 0; i < 4; i++)
                        block[t].w[4 * group_of(s, c, n) + i] = w[n][i];
            }
        }
#define CALL(n, j) columns256(s, n, sums, j, block, x, x_stride)
        EACH_COLUMNS(n_x, CALL);
#undef CALL
    }
}

INLINE void many32(F sums[V_TILES][CHUNK], TYPE_32, TILE_ARGS) {
    const size_t n_blocks = k / 32;
    for (size_t b = 0; b < n_blocks; b += RUN32, x += RUN32 * sizeof(struct lode_block_a32)) {
        const int n_run = n_blocks - b < RUN32 ? (int)(n_blocks - b) : RUN32;
        struct run32 run[V_TILES];
        for (int t = 0; t < V_TILES; t++) {
            prefetch(r[t].p[0] + next + LANES * b * size, LANES * size * (size_t)n_run);
            for (int c = 0; c < n_run; c++)
                unpack(run[t].w[c], &run[t].d[c], &run[t].m[c], &r[t], (b + (size_t)c) * size);
        }
#define CALL(n, j) columns32(s, n, sums, j, run, n_run, x, x_stride)
        EACH_COLUMNS(n_x, CALL);
#undef CALL
    }
}

/* Functions of their own: together they get in one another's way in the compiler's registers. */
#define MUL(name, block, ...)                                                                      \
    static __attribute__((noinline)) F one_##name(const struct rows *r, size_t next,               \
                                                  const uint8_t *x, size_t k) {                    \
        const struct shape s = {__VA_ARGS__};                                                      \
        return one##block(s, UNPACK_##block(name), sizeof(struct lode_block_##name), r, next, x,   \
                          k);                                                                      \
    }                                                                                              \
    static __attribute__((noinline)) void many_##name(F sums[V_TILES][CHUNK], TILE_ARGS) {         \
        const struct shape s = {__VA_ARGS__};                                                      \
        many##block(sums, s, UNPACK_##block(name), sizeof(struct lode_block_##name), r, next, x,   \
                    x_stride, n_x, k);                                                             \
    }                                                                                              \
    void KERN(mul_##name) LODE_MUL_ARGS {                                                          \
        mul(one_##name, many_##name, y, ldy, w, w_stride, n_w, x, x_stride, n_x, k);               \
    }
INLINE int rows_left(size_t n_w, size_t i) { return n_w - i < LANES ? (int)(n_w - i) : LANES; }

INLINE void mul(F (*one)(const struct rows *, size_t, const uint8_t *, size_t),
                void (*many)(F sums[V_TILES][CHUNK], TILE_ARGS), float *y, size_t ldy, const uint8_t *w,
                size_t w_stride, size_t n_w, const uint8_t *x, size_t x_stride, size_t n_x,
                size_t k) {
    for (size_t j = 0; j < n_x; j += CHUNK) {
        const size_t n_cols = n_x - j < CHUNK ? n_x - j : CHUNK;
        for (size_t i = 0; n_cols == 1 && i < n_w; i += LANES) {
            const int n_rows = rows_left(n_w, i);
            const struct rows r = tile_rows(w + i * w_stride, w_stride, n_rows);
            f_store(y + j * ldy + i, n_rows, one(&r, LANES * w_stride, x + j * x_stride, k));
        }
        for (size_t i = 0; n_cols > 1 && i < n_w; i += V_TILES * LANES) {
            struct rows r[V_TILES];
            F sums[V_TILES][CHUNK];
            for (size_t t = 0; t < V_TILES; t++) {
                const size_t first = i + t * LANES < n_w ? i + t * LANES : n_w - 1;
                r[t] = tile_rows(w + first * w_stride, w_stride, rows_left(n_w, first));
                for (size_t c = 0; c < n_cols; c++)
                    sums[t][c] = f_zero();
            }
            many(sums, r, V_TILES * LANES * w_stride, x + j * x_stride, x_stride, n_cols, k);
            for (size_t t = 0; t < V_TILES && i + t * LANES < n_w; t++)
                for (size_t c = 0; c < n_cols; c++)
                    f_store(y + (j + c) * ldy + i + t * LANES, rows_left(n_w, i + t * LANES),
                            sums[t][c]);
        }
    }
}
#define UNPACK_32(name) block_##name
#define UNPACK_256(name) head_##name, chunk_##name

MUL(q4_0, 32, .top = 15, .bias = 8)
MUL(q4_1, 32, .top = 15, .minima = 1)
MUL(q5_0, 32, .top = 31, .bias = 16)
MUL(q5_1, 32, .top = 31, .minima = 1)
MUL(q8_0, 32, .wide = 1, .bias = V_WIDE_BIAS)
MUL(iq4_nl, 32, .wide = 1, .bias = V_WIDE_BIAS)
MUL(mxfp4, 32, .top = 2 * FP4_BIAS, .bias = FP4_BIAS)
MUL(q2_k, 256, .top = 3, .groups = 16, .runs = 4, .minima = 1)
MUL(q3_k, 256, .top = 7, .groups = 16, .runs = 4, .bias = 4)
MUL(q4_k, 256, .top = 15, .groups = 8, .runs = 2, .minima = 1)
MUL(q5_k, 256, .top = 31, .groups = 8, .runs = 2, .minima = 1)
MUL(q6_k, 256, .top = 63, .groups = 16, .runs = 4, .bias = 32)
MUL(iq4_xs, 256, .groups = 8, .runs = 2, .adjacent = 1, .wide = 1, .bias = V_WIDE_BIAS)
