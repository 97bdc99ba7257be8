/* mul_rows512_32.h - sixteen blocks of 32 numbers of a row, for mul_rows512.h.
 *
 * A vector has 16 codes of each of four blocks.  What sixteen blocks of a row come to becomes a vector with a lane
 * for each, and sixteen of those are turned. */

enum { SPAN = 16, MOST_32 = sizeof(struct lode_block_u8g32) };

/* Where a block has what (tensor/block.h). */
struct lines {
    int codes, bits; /* bytes before its planes of so many bits */
    int fifth;       /* before 32 fifth bits, the codes' own; 0: none */
    enum { HALF_SCALE, EXPONENT, SHARED_FLOATS, FLOATS } scale;
};
#define LINES(name, ...) static const struct lines lines_##name = {__VA_ARGS__};
LINES(q4_0, .codes = 2, .bits = 4)
LINES(q4_1, .codes = 4, .bits = 4)
LINES(q5_0, .codes = 6, .bits = 4, .fifth = 2)
LINES(q5_1, .codes = 8, .bits = 4, .fifth = 4)
LINES(q8_0, .codes = 2, .bits = 8)
LINES(iq4_nl, .codes = 2, .bits = 4)
LINES(mxfp4, .codes = 1, .bits = 4, .scale = EXPONENT)
#define LINES_U(b, bytes) LINES(u##b, .codes = 4, .bits = b, .scale = SHARED_FLOATS)
LODE_U_LIST(LINES_U)
#undef LINES_U
LINES(u4g32, .codes = 8, .bits = 4, .scale = FLOATS)
LINES(u8g32, .codes = 8, .bits = 8, .scale = FLOATS)
#undef LINES

struct span { /* of a column */
    V q[4][2];         /* first, second halves of blocks j, 4 + j, 8 + j, 12 + j */
    float d[SPAN];
    int32_t sum[SPAN]; /* of a block's numbers */
};

struct halfway32 {
    V isum[LANES];           /* of a row: of each block */
    uint32_t d[SPAN][LANES]; /* as a row has them: d, and m in its upper half; or two floats; an exponent by itself */
    uint32_t m[SPAN][LANES];
};

/* The first n <= SPAN blocks of a column. */
INLINE void span_of(struct span *out, const uint8_t *x, size_t n) {
    const struct lode_block_a32 *a = (const struct lode_block_a32 *)x;
    if (n < SPAN)
        memset(out, 0, sizeof *out);
    for (size_t b = 0; b < n; b++, a++) {
        for (int h = 0; h < 2; h++)
            memcpy((char *)&out->q[b % 4][h] + b / 4 * 16, a->q + 16 * h, 16);
        out->d[b] = a->d;
        out->sum[b] = a->sum;
    }
}

/* 4 bytes of each of four blocks, four times. */
INLINE V v_load4s(const uint8_t *p, size_t size) {
    uint32_t x[4];
    for (int i = 0; i < 4; i++)
        memcpy(&x[i], p + (size_t)i * size, 4);
    return (V)_mm512_setr_epi32((int)x[0], (int)x[0], (int)x[0], (int)x[0], (int)x[1], (int)x[1], (int)x[1],
                                (int)x[1], (int)x[2], (int)x[2], (int)x[2], (int)x[2], (int)x[3], (int)x[3],
                                (int)x[3], (int)x[3]);
}

/* Fifth bits of 16 codes, which are the first of their blocks' two bytes at p. */
INLINE V with_fifths(V codes, const uint8_t *p, size_t size) {
    const V each = v_each16(0, 0, 0x01010101, 0x01010101), bit = v_each16(0x08040201, 0x80402010, 0x08040201, 0x80402010);
    const __mmask64 set = _mm512_test_epi8_mask((__m512i)v_shuffle(v_load4s(p, size), each), (__m512i)bit);
    return (V)_mm512_mask_add_epi8((__m512i)codes, set, (__m512i)codes, (__m512i)v_set8(16));
}

/* The codes of four blocks, `stride` bytes from one to the next: their first 16 numbers, the others. */
INLINE void codes_of_four(V c[2], struct shape s, struct lines l, const uint8_t *p, size_t stride) {
    const uint8_t *at = p + l.codes;
    int have = 0; /* bits */
    if (l.bits == 8) {
        const V sign = v_set8(s.minima ? 0 : V_WIDE_BIAS); /* taking 128 flips the top bit */
        c[0] = v_load16s(at, stride, 4) ^ sign;
        c[1] = v_load16s(at + 16, stride, 4) ^ sign;
        return;
    }
    c[0] = c[1] = v_zero();
    if (l.bits & 4) {
        const V q = v_load16s(at, stride, 4);
        c[0] = low_bits(q, 4);
        c[1] = low_bits(v_srl16(q, 4), 4);
        at += 16;
        have = 4;
    }
    if (l.bits & 2) {
        const __m512i shift = (__m512i)v_each16(0, 2, 4, 6);
        for (int h = 0; h < 2; h++, at += 4)
            c[h] |= v_sll16(low_bits((V)_mm512_srlv_epi32((__m512i)v_load4s(at, stride), shift), 2), have);
        have += 2;
    }
    if (l.bits & 1) {
        const V eight = v_load4s(at, stride), shift = v_each16(0, 1, 2, 3);
        for (int h = 0; h < 2; h++)
            c[h] |= v_sll16(low_bits((V)_mm512_srlv_epi32((__m512i)eight, (__m512i)(shift + v_set32(4 * (uint32_t)h))), 1),
                            have);
    }
    for (int h = 0; h < 2 && l.fifth; h++)
        c[h] = with_fifths(c[h], p + l.fifth + 2 * h, stride);
    if (s.wide || l.scale == EXPONENT) {
        const V table = s.wide ? iq4_table() : fp4_table();
        c[0] = v_lookup(table, c[0]);
        c[1] = v_lookup(table, c[1]);
    }
}

INLINE void span_row(struct shape s, struct lines l, struct halfway32 *out, int row, const uint8_t *w, size_t size,
                     size_t n, const struct span *x) {
    V sum[4];
    uint8_t last[SPAN * MOST_32];
    if (n < SPAN) { /* behind a row's end nothing is read */
        memset(last, 0, sizeof last);
        w = memcpy(last, w, n * size);
    }
    UNROLL
    for (int j = 0; j < 4; j++) {
        V c[2];
        codes_of_four(c, s, l, w + (size_t)j * size, 4 * size);
        sum[j] = v_dot4_wide(v_dot4_wide(v_zero(), c[0], x->q[j][0]), c[1], x->q[j][1]);
    }
    out->isum[row] = v_add_fours(sum);
    UNROLL
    for (size_t b = 0; b < SPAN; b++) {
        const uint8_t *d = w + (l.scale == SHARED_FLOATS ? b / 2 * 2 : b) * size;
        if (l.scale == EXPONENT)
            out->d[b][row] = *d;
        else
            memcpy(&out->d[b][row], d, 4);
        if (l.scale >= SHARED_FLOATS)
            memcpy(&out->m[b][row], d + (l.scale == FLOATS ? 4 : size), 4);
    }
}

/* The blocks' sums to a tile's rows.  least: MXFP4's exponents are taken for normal floats', and their least comes to be known; NULL: they
 * may be 0 and 1 too, which are not and take five times the operations. */
INLINE F add_blocks(struct shape s, struct lines l, F acc, const struct halfway32 *h, const V *isum, size_t n, const struct span *x,
                    __m512i *least) {
    for (size_t b = 0; b < n; b++) {
        const F dx = f_set(x->d[b]);
        V d, m;
        memcpy(&d, h->d[b], sizeof d);
        memcpy(&m, h->m[b], sizeof m);
        if (least)
            *least = _mm512_min_epu32(*least, (__m512i)d);
        const F scale = l.scale == EXPONENT     ? least ? (F)((d - v_set32(1)) << 23) : scale_mxfp4(d)
                        : l.scale == HALF_SCALE ? f_half(d)
                                                : (F)d;
        acc = f_fma(scale * dx, f_int(isum[b] - v_set32((uint32_t)(s.bias * x->sum[b]))), acc);
        if (s.minima)
            acc = f_fma((l.scale == HALF_SCALE ? f_half(d >> 16) : (F)m) * dx, f_set((float)x->sum[b]), acc);
    }
    return acc;
}

INLINE F end_span(struct shape s, struct lines l, F acc, const struct halfway32 *h, size_t n, const struct span *x) {
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
    if (l.scale == EXPONENT) {
        __m512i least = _mm512_set1_epi32(255);
        const F sum = add_blocks(s, l, acc, h, isum, n, x, &least);
        if (_mm512_cmplt_epu32_mask(least, _mm512_set1_epi32(2)) == 0)
            return sum;
    }
    return add_blocks(s, l, acc, h, isum, n, x, NULL);
}
