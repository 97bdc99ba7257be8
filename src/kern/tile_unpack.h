/* tile_unpack.h - one block of each of a tile's rows as vectors: lane i belongs to row i
 * (mul_tile.h).  Blocks of 32: tile_unpack_32.h.
 *
 *   head_T    scales, minima, high bits of a block of 256 numbers
 *   chunk_T   the codes in 16 (Q6_K: 32) bytes of each row, groups of 16 numbers, four to a vector
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

/* What vec_ISA.h may have in fewer instructions. */
#ifndef F_HALVES
INLINE void f_halves(F *low, F *high, V v) {
    *low = f_half(v);
    *high = f_half(v >> 16);
}
#endif
#ifndef F_HALF_AT
INLINE F f_half_at(const struct rows *r, size_t off) { return f_half(v_load4(r, off)); } /* two bytes after it are read */
#endif

/* The half that ends at byte `end` of a block. */
INLINE F half_before(const struct rows *r, size_t end) {
#ifdef F_HALF_AT
    return f_half_at(r, end - 2);
#else
    return f_half(v_load4(r, end - 4) >> 16);
#endif
}

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
    f_halves(&h->d, &h->dmin, b[0]);
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
    f_halves(&h->d, &h->dmin, v_load4(r, off + offsetof(struct lode_block_q2_k, d)));
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

#include "kern/tile_codes.h"

#endif
