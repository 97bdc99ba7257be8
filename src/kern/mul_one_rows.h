/* mul_one_rows.h - one column of Q6_K, of mul_tile.h, row by row (AVX2).
 *
 * Where each 16 numbers have a scale, rows side by side meet one after every four vectors of codes, and more is
 * transposed than multiplied.  Here a vector holds 32 codes of one row and meets the column's numbers as
 * they lie; pairs of products fit an int16, and one multiplication by pairs applies the scales of both halves.
 * What a row's vector holds after a block is added together with that of the tile's other rows.
 * bench/notes/kern-quant.md
 *
 * The including file defines, beside what mul_many_short.h needs, of vectors of 32 bytes,
 *
 *   v_even_odd8(x)        16 signed bytes as int16: even places in the low half, odd ones in the high half */
#include "kern/mul_one_codes.h"

/* The codes of a block's half (128 numbers) in the order of its numbers. */
INLINE void row_q6_k(V w[4], const struct lode_block_q6_k *b, int half) {
    const V m48 = v_set8(48);
    const V p0 = v_load(b->ql + 64 * half), p1 = v_load(b->ql + 64 * half + 32), hi = v_load(b->qh + 32 * half);
    w[0] = low_bits(p0, 4) | (v_sll16(hi, 4) & m48);
    w[1] = low_bits(p1, 4) | (v_sll16(hi, 2) & m48);
    w[2] = low_bits(v_srl16(p0, 4), 4) | (hi & m48);
    w[3] = low_bits(v_srl16(p1, 4), 4) | (v_srl16(hi, 2) & m48);
}

INLINE F one_rows256(TYPE_256, F acc, const struct rows *r, struct ahead ahead, const uint8_t *x, size_t k) {
    (void)read_head, (void)unpack;
    for (size_t b = 0; b < k / 256; b++, x += sizeof(struct lode_block_a256)) {
        const struct lode_block_a256 *a = (const struct lode_block_a256 *)x;
        const struct codes_column column = column_of(a);
        const V m = (V)column.m, sums = (V)column.sums;
        V isum[LANES];
#pragma GCC unroll 1
        for (int i = 0; i < LANES; i++) {
            const struct lode_block_q6_k *row = (const struct lode_block_q6_k *)(r->p[i] + b * size);
            prefetch_row(r, i, &ahead, b, size);
            const V sc = v_even_odd8(row->scales), by = v_mul16(sc, m);
            V sum = v_dot2(v_zero(), sc, sums) * v_set32((uint32_t)-s.bias);
            for (int half = 0; half < 2; half++) {
                V w[4];
                row_q6_k(w, row, half);
                for (int n = 0; n < 4; n++)
                    sum = v_dot2(sum, v_mul_pairs(w[n], v_load(a->q + 128 * half + 32 * n)),
                                 (V)spread_word((__m256i)by, 4 * half + n));
            }
            isum[i] = sum;
        }
        const F d = half_before(r, (b + 1) * size);
        acc = f_fma(d * f_set(a->d), f_int(add_rows((const __m256i *)isum)), acc);
    }
    return acc;
}
