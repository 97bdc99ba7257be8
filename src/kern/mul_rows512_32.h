/* mul_rows512_32.h - sixteen blocks of a row of Q4_0, IQ4_NL and MXFP4, for mul_rows512.h.
 *
 * A block of these ends with 16 bytes of codes, whose low halves are its first 16 numbers.  Four blocks are a vector;
 * what sixteen blocks of a row come to becomes a vector with a lane for each, and sixteen of those are turned. */

enum { SPAN = 16, MOST_32 = 18 }; /* MOST_32: bytes of a block */

struct span { /* of a column */
    V q[4][2];           /* first, second halves of blocks j, 4 + j, 8 + j, 12 + j */
    float d[SPAN];
    int32_t minus[SPAN]; /* what codes' bias comes to */
};

struct halfway32 {
    V isum[LANES]; /* of a row: of each block */
    uint32_t d[SPAN][LANES];
};

/* The first n <= SPAN blocks of a column. */
INLINE void span_of(struct shape s, struct span *out, const uint8_t *x, size_t n) {
    const struct lode_block_a32 *a = (const struct lode_block_a32 *)x;
    if (n < SPAN)
        memset(out, 0, sizeof *out);
    for (size_t b = 0; b < n; b++, a++) {
        for (int h = 0; h < 2; h++)
            memcpy((char *)&out->q[b % 4][h] + b / 4 * 16, a->q + 16 * h, 16);
        out->d[b] = a->d;
        out->minus[b] = s.bias * a->sum;
    }
}

INLINE void span_row(struct shape s, struct halfway32 *out, int row, const uint8_t *w, size_t size, size_t n,
                     const struct span *x) {
    const V table = s.wide ? iq4_table() : fp4_table();
    V sum[4];
    uint8_t last[SPAN * MOST_32];
    if (n < SPAN) { /* behind a row's end nothing is read */
        memset(last, 0, sizeof last);
        w = memcpy(last, w, n * size);
    }
    UNROLL
    for (int j = 0; j < 4; j++) {
        const V q = v_load16s(w + (size_t)j * size + size - 16, 4 * size, 4);
        V low = low_bits(q, 4), high = low_bits(v_srl16(q, 4), 4);
        if (s.top != 15) {
            low = v_lookup(table, low);
            high = v_lookup(table, high);
        }
        sum[j] = v_dot4_wide(v_dot4_wide(v_zero(), low, x->q[j][0]), high, x->q[j][1]);
    }
    out->isum[row] = v_add_fours(sum);
    UNROLL
    for (int b = 0; b < SPAN; b++) {
        uint16_t d;
        memcpy(&d, w + (size_t)b * size, 2);
        out->d[b][row] = d;
    }
}

INLINE F end_span(size_t size, F acc, const struct halfway32 *h, size_t n, const struct span *x) {
    V turned[4][4], isum[SPAN];
    for (int i = 0; i < 4; i++)
        v_turn_lanes(turned[i], h->isum + 4 * i);
    for (int e = 0; e < 4; e++) {
        const V rows[4] = {turned[0][e], turned[1][e], turned[2][e], turned[3][e]};
        V blocks[4];
        v_turn_quarters(blocks, rows);
        for (int q = 0; q < 4; q++)
            isum[4 * q + e] = blocks[q];
    }
    for (size_t b = 0; b < n; b++) {
        V d;
        memcpy(&d, h->d[b], sizeof d);
        const F scale = size == sizeof(struct lode_block_mxfp4) ? scale_mxfp4(d & v_set32(255)) : f_half(d);
        acc = f_fma(scale * f_set(x->d[b]), f_int(isum[b] - v_set32((uint32_t)x->minus[b])), acc);
    }
    return acc;
}
