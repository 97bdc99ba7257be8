/* tile_unpack.h - one block of each of a tile's rows as vectors: lane i belongs to row i
 * (mul_tile.h).
 *
 *   head_T    scales, minima, high bits of a block of 256 numbers
 *   chunk_T   the codes in 16 (Q6_K: 32) bytes of each row, groups of 16 numbers, four to a vector
 *   block_T   all of a block of 32 numbers (U2 .. U8: of half a block)
 *
 * Loads never leave a block: all are 4 or 16 bytes inside it.  Layouts: tensor/block.h.
 */
#ifndef LODE_KERN_TILE_UNPACK_H
#define LODE_KERN_TILE_UNPACK_H

#include "kern/iq_grids.h"
#include "kern/vec.h"
#include "tensor/block.h"

/* ---- blocks of 256: what is read before the codes ---- */

struct head {
    V sc[16]; /* scales as int32 */
    V mn[8];  /* int16 pairs for groups of 16 (2s, 2s + 1): minima, or bias times scale */
    V hi[8];  /* 32 bytes of high bits (Q3_K, Q5_K) */
    F d, dmin;
    uint8_t codes[LANES][256]; /* of codebook types */
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

INLINE void head_tq2_0(struct head *h, const struct rows *r, size_t off) {
    for (int g = 0; g < 16; g++)
        h->sc[g] = v_set32(1);
    for (int g = 0; g < 8; g++)
        h->mn[g] = v_set32(0x10001);
    h->d = half_before(r, off + sizeof(struct lode_block_tq2_0));
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
        h->sc[g] =
            ((low >> (4 * g) & v_set32(15)) | (head >> (12 + 2 * g) & v_set32(48))) - v_set32(32);
        if (V_WIDE_BIAS)
            h->mn[g] = v_sll16(v_pick(h->sc[g], 0x01000100), 7);
    }
}

/* ---- blocks of 256: codes, from the c-th 16 bytes of each row ---- */

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

INLINE void two_bits(V w[4][4], const struct rows *r, size_t off) {
    V q[4];
    v_load16(q, r, off);
    for (int i = 0; i < 4; i++)
        for (int n = 0; n < 4; n++)
            w[n][i] = low_bits(v_srl16(q[i], 2 * n), 2);
}
INLINE void chunk_q2_k(V w[4][4], const struct head *h, const struct rows *r, size_t off, int c) {
    (void)h;
    two_bits(w, r, off + offsetof(struct lode_block_q2_k, qs) + 16 * (size_t)c);
}
INLINE void chunk_tq2_0(V w[4][4], const struct head *h, const struct rows *r, size_t off, int c) {
    (void)h;
    two_bits(w, r, off + 16 * (size_t)c);
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

/* Where bit i of the lane is set, those of `which` are in code i: a byte's bits are spread over two dwords. */
INLINE void or_bits(V w[8], V bits, uint8_t which) {
    const V select[2] = {v_set32(0x08040201), v_set32(0x80402010)}, set = v_set8(which);
    const V spread[4] = {v_pick(bits, 0x00000000), v_pick(bits, 0x01010101),
                         v_pick(bits, 0x02020202), v_pick(bits, 0x03030303)};
    for (int i = 0; i < 8; i++)
        w[i] |= v_eq8(spread[i / 2] & select[i % 2], select[i % 2]) & set;
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
    or_bits(w, v_load4(r, off + 2), 16);
}
INLINE void block_q5_1(V w[8], F *d, F *m, const struct rows *r, size_t off) {
    const V h = v_load4(r, off);
    *d = f_half(h);
    *m = f_half(h >> 16);
    nibbles(w, r, off + 8);
    or_bits(w, v_load4(r, off + 4), 16);
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

/* 32 codes of U2 .. U8G32. */
INLINE void planes(V w[8], const struct rows *r, size_t off, int bits) {
    int at = 0;
    for (int i = 0; i < 8; i++)
        w[i] = v_zero();
    if (bits == 8) {
        load32(w, r, off);
        for (int i = 0; i < 8; i++)
            w[i] ^= v_set8(128 ^ V_WIDE_BIAS); /* taking 128 flips the top bit */
        return;
    }
    if (bits & 4) {
        nibbles(w, r, off);
        off += 16;
        at = 4;
    }
    if (bits & 2) {
        for (int h = 0; h < 2; h++, off += 4) {
            const V four = v_load4(r, off);
            for (int t = 0; t < 4; t++)
                w[4 * h + t] |= v_sll16(low_bits(v_srl16(four, 2 * t), 2), at);
        }
        at += 2;
    }
    if (bits & 1) {
        const V eight = v_load4(r, off);
        for (int t = 0; t < 8; t++)
            w[t] |= v_sll16(low_bits(v_srl16(eight, t), 1), at);
    }
}
#define BLOCK_U(bits, bytes)                                                                       \
    INLINE void block_u##bits(V w[8], F *d, F *m, const struct rows *r, size_t off) {              \
        const size_t pair = off / (2 * (4 + (bytes))) * (2 * (4 + (bytes)));                       \
        *d = (F)v_load4(r, pair);                                                                  \
        *m = (F)v_load4(r, pair + 4 + (bytes));                                                    \
        planes(w, r, off + 4, bits);                                                               \
    }
LODE_U_LIST(BLOCK_U)
#define BLOCK_UG32(bits)                                                                           \
    INLINE void block_u##bits##g32(V w[8], F *d, F *m, const struct rows *r, size_t off) {         \
        *d = (F)v_load4(r, off);                                                                   \
        *m = (F)v_load4(r, off + 4);                                                               \
        planes(w, r, off + 8, bits);                                                               \
    }
BLOCK_UG32(4)
BLOCK_UG32(8)

#define FP4_BIAS 12 /* the levels are -12 .. 12 */
/* e >= 2: 2^(e-128) has the exponent field e - 1; e = 0, 1: subnormals of 2^21, 2^22 ulps */
INLINE F scale_mxfp4(V e) {
    const V one = v_set32(1), normal = v_gt32(e, one);
    return (F)((((e - one) << 23) & normal) | (((e + one) << 21) & ~normal));
}
INLINE V fp4_table(void) {
    static const int8_t levels[16] = LODE_FP4_LEVELS;
    return (V)((V8)v_table(levels) + (uint8_t)FP4_BIAS);
}
INLINE void block_mxfp4(V w[8], F *d, F *m, const struct rows *r, size_t off) {
    (void)m;
    *d = scale_mxfp4(v_load4(r, off) & v_set32(255));
    nibbles(w, r, off + 1);
    lookup8(w, fp4_table());
}

/* Blocks of several 32 numbers, whose scales lie together: loops count for each its share of the bytes. */
#define PART_CODES_q1_0 4 /* bytes of the codes of 32 */
#define PART_CODES_q2_0 8
#define PART_CODES_nvfp4 16
#define PART_CODES_nvfp4g 16
#define PARTS_OF(name) (sizeof(((struct lode_block_##name *)0)->qs) / PART_CODES_##name)
#define PART_BYTES(name) (sizeof(struct lode_block_##name) / PARTS_OF(name))
struct part {
    size_t block, codes; /* where they begin */
    size_t n;            /* of a block */
};
#define PART_AT(name, off)                                                                         \
    part_at((off) / PART_BYTES(name), PARTS_OF(name), sizeof(struct lode_block_##name),            \
            offsetof(struct lode_block_##name, qs), PART_CODES_##name)
INLINE struct part part_at(size_t i, size_t parts, size_t block, size_t before, size_t codes) {
    const size_t at = i / parts * block, n = i % parts;
    return (struct part){at, at + before + n * codes, n};
}

INLINE void block_q1_0(V w[8], F *d, F *m, const struct rows *r, size_t off) {
    const struct part p = PART_AT(q1_0, off);
    (void)m;
    *d = f_half(v_load4(r, p.block));
    for (int i = 0; i < 8; i++)
        w[i] = v_zero();
    or_bits(w, v_load4(r, p.codes), 2);
}

INLINE void block_q2_0(V w[8], F *d, F *m, const struct rows *r, size_t off) {
    const struct part p = PART_AT(q2_0, off);
    (void)m;
    *d = f_half(v_load4(r, p.block));
    for (int h = 0; h < 2; h++) {
        const V four = v_load4(r, p.codes + 4 * (size_t)h);
        for (int i = 0; i < 4; i++) { /* of a byte two bits to each byte of the lane */
            const V byte = four >> (8 * i) & v_set32(255), two = byte | byte << 12;
            w[4 * h + i] = low_bits(two | two << 6, 2);
        }
    }
}

/* E4M3 without its sign, halved: of bytes that are lanes. */
INLINE F scale_e4m3_half(V byte) {
    const V e = byte & v_set32(127), normal = v_gt32(e, v_set32(7));
    const F small = f_int(e) * 0x1p-10f;
    return (F)((((e << 20) + v_set32(119u << 23)) & normal) | ((V)small & ~normal));
}
INLINE void fp4_of_halves(V w[8], const struct rows *r, size_t off) {
    V q[4];
    v_load16(q, r, off);
    for (int i = 0; i < 4; i++) {
        w[i / 2 * 4 + i % 2] = low_bits(q[i], 4);
        w[i / 2 * 4 + 2 + i % 2] = low_bits(v_srl16(q[i], 4), 4);
    }
    lookup8(w, fp4_table());
}
INLINE void block_nvfp4(V w[8], F *d, F *m, const struct rows *r, size_t off) {
    const struct part p = PART_AT(nvfp4, off);
    const V scales = v_load4(r, p.block) >> (16 * (uint32_t)p.n);
    for (int h = 0; h < 2; h++) { /* 0x7f is 0 */
        const V byte = scales >> (8 * h) & v_set32(255), none = (V)(byte == v_set32(127));
        *(h ? m : d) = (F)((V)scale_e4m3_half(byte) & ~none);
    }
    fp4_of_halves(w, r, p.codes);
}
INLINE void block_nvfp4g(V w[8], F *d, F *m, const struct rows *r, size_t off) {
    const struct part p = PART_AT(nvfp4g, off);
    const F by = (F)v_load4(r, p.block);
    const V scales = v_load4(r, p.block + 4) >> (16 * (uint32_t)p.n);
    for (int h = 0; h < 2; h++) { /* with its sign; all ones are NaN */
        const V byte = scales >> (8 * h), nan = (V)((byte & v_set32(127)) == v_set32(127));
        const V whole = (V)(scale_e4m3_half(byte) * 2.0f) | (nan & v_set32(0x7fc00000)) | (byte & v_set32(128)) << 24;
        *(h ? m : d) = (F)whole / by * 0.5f;
    }
    fp4_of_halves(w, r, p.codes);
}

#include "kern/tile_codes.h"

#endif
