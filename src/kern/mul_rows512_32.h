/* mul_rows512_32.h - one column of Q4_0, IQ4_NL and MXFP4, row after row, as mul_rows512.h has blocks of 256.
 *
 * A block of these ends with 16 bytes of codes, whose low halves are its first 16 numbers.  Four blocks are a vector;
 * what sixteen blocks of a row come to becomes a vector with a lane for each, and sixteen of those are turned. */

enum { SPAN = 16, MOST_SPANS = 16 }; /* blocks of a row that are added up together; of a tile's rows at a time */

INLINE bool by_spans(struct shape s, size_t size) { return s.groups == 0 && !s.minima && size <= 18; }

struct span { /* of a column */
    V q[4][2];           /* first, second halves of blocks j, 4 + j, 8 + j, 12 + j */
    float d[SPAN];
    int32_t minus[SPAN]; /* what codes' bias comes to */
};

struct halfway32 {
    V isum[LANES]; /* of a row: of each block */
    uint32_t d[SPAN][LANES];
};

INLINE void span_of(struct shape s, struct span *out, const struct lode_block_a32 *a, size_t n) {
    memset(out, 0, sizeof *out);
    for (size_t b = 0; b < n; b++, a++) {
        for (int h = 0; h < 2; h++)
            memcpy((char *)&out->q[b % 4][h] + b / 4 * 16, a->q + 16 * h, 16);
        out->d[b] = a->d;
        out->minus[b] = s.bias * a->sum;
    }
}

INLINE void span_row(struct shape s, struct halfway32 *out, int row, const uint8_t *w, size_t size, const struct span *x) {
    static const int8_t fp4[16] = LODE_FP4_LEVELS;
    const V table = s.wide ? iq4_table() : (V)((V8)v_table(fp4) + (uint8_t)FP4_BIAS);
    V sum[4];
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

INLINE F end_span(struct shape s, size_t size, F acc, const struct halfway32 *h, size_t n, const struct span *x) {
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
    (void)s;
    return acc;
}

INLINE void mul_spans(struct shape s, size_t size, float *y, const uint8_t *w, size_t w_stride, size_t n_w,
                      const uint8_t *x, size_t k) {
    const size_t n_blocks = k / 32;
    for (size_t from = 0; from < n_blocks; from += SPAN * MOST_SPANS) {
        const size_t n = n_blocks - from < SPAN * MOST_SPANS ? n_blocks - from : SPAN * MOST_SPANS;
        const size_t whole = n / SPAN, rest = n % SPAN;
        struct span column[MOST_SPANS];
        struct halfway32 half[MOST_SPANS];
        for (size_t b = 0; b < n; b += SPAN)
            span_of(s, &column[b / SPAN], (const struct lode_block_a32 *)x + from + b, n - b < SPAN ? n - b : SPAN);
        for (size_t i = 0; i < n_w; i += LANES) {
            const int n_rows = rows_left(n_w, i);
            if (n_rows < LANES)
                memset(half, 0, sizeof half);
            for (int row = 0; row < n_rows; row++) {
                const uint8_t *at = w + (i + (size_t)row) * w_stride + from * size;
                for (size_t p = 0; p < whole; p++, at += SPAN * size) {
                    ask_ahead(at, SPAN * size);
                    span_row(s, &half[p], row, at, size, &column[p]);
                }
                if (rest > 0) { /* behind a row's end nothing is read */
                    uint8_t last[SPAN * 18] = {0};
                    ask_ahead(at, rest * size);
                    memcpy(last, at, rest * size);
                    span_row(s, &half[whole], row, last, size, &column[whole]);
                }
            }
            F acc = f_zero();
            if (from > 0)
                memcpy(&acc, y + i, (size_t)n_rows * sizeof(float));
            for (size_t p = 0; p < whole; p++)
                acc = end_span(s, size, acc, &half[p], SPAN, &column[p]);
            if (rest > 0)
                acc = end_span(s, size, acc, &half[whole], rest, &column[whole]);
            f_store(y + i, n_rows, acc);
        }
    }
}
