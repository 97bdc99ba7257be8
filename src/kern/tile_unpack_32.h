/* tile_unpack_32.h - tile_unpack.h's blocks of 32 numbers.
 *
 *   block_T   scale, m and all codes of a block; of a larger one, of the 32 numbers that bytes `off` are the share of
 */
#ifndef LODE_KERN_TILE_UNPACK_32_H
#define LODE_KERN_TILE_UNPACK_32_H

#include "kern/tile_unpack.h"

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
    *d = f_half_at(r, off);
    nibbles(w, r, off + 2);
}
INLINE void block_q4_1(V w[8], F *d, F *m, const struct rows *r, size_t off) {
    f_halves(d, m, v_load4(r, off));
    nibbles(w, r, off + 4);
}
INLINE void block_q5_0(V w[8], F *d, F *m, const struct rows *r, size_t off) {
    (void)m;
    *d = f_half_at(r, off);
    nibbles(w, r, off + 6);
    or_bits(w, v_load4(r, off + 2), 16);
}
INLINE void block_q5_1(V w[8], F *d, F *m, const struct rows *r, size_t off) {
    f_halves(d, m, v_load4(r, off));
    nibbles(w, r, off + 8);
    or_bits(w, v_load4(r, off + 4), 16);
}
INLINE void block_q8_0(V w[8], F *d, F *m, const struct rows *r, size_t off) {
    (void)m;
    *d = f_half_at(r, off);
    load32(w, r, off + 2);
    for (int i = 0; i < 8; i++)
        w[i] ^= v_set8(V_WIDE_BIAS);
}
INLINE void block_iq4_nl(V w[8], F *d, F *m, const struct rows *r, size_t off) {
    (void)m;
    *d = f_half_at(r, off);
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
    *d = f_half_at(r, p.block);
    for (int i = 0; i < 8; i++)
        w[i] = v_zero();
    or_bits(w, v_load4(r, p.codes), 2);
}

INLINE void block_q2_0(V w[8], F *d, F *m, const struct rows *r, size_t off) {
    const struct part p = PART_AT(q2_0, off);
    (void)m;
    *d = f_half_at(r, p.block);
    for (int h = 0; h < 2; h++) {
        const V four = v_load4(r, p.codes + 4 * (size_t)h);
        for (int i = 0; i < 4; i++) { /* of a byte two bits to each byte of the lane */
            const V byte = four >> (8 * i) & v_set32(255), two = byte | byte << 12;
            w[4 * h + i] = low_bits(two | two << 6, 2);
        }
    }
}

/* E4M3 without its sign, halved: of bytes that are lanes.  Read as a half it is 2^8 times smaller, subnormal or not. */
INLINE F scale_e4m3_half(V byte) { return f_half((byte & v_set32(127)) << 7) * 0x1p7f; }
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
    /* scale_e4m3_half of two bytes at once; 0x7f is 0 */
    const V two = v_pick(v_load4(r, p.block), p.n ? 0x80038002 : 0x80018000), none = (V)((V16)two == 127);
    f_halves(d, m, v_sll16(two & v_set32(0x7f007f) & ~none, 7));
    *d *= 0x1p7f;
    *m *= 0x1p7f;
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

#endif
