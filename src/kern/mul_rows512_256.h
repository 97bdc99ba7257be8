/* mul_rows512_256.h - four blocks of 256 numbers of a row, for mul_rows512.h: 64 codes a vector meet
 * the column's numbers in the same order. */

enum { QUAD = 4 };

/* Four blocks of a column: numbers in the order in which codes of a type are unpacked, multipliers and sums where
 * the scales and minima of four blocks meet them, a block in each 16 bytes. */
struct quad {
    V q[QUAD][4];
    V m[2], sums[2];
    float d[QUAD];
};

/* What a tile's rows come to, before it is turned. */
struct halfway {
    V isum[LANES]; /* of a row: four parts (16 bytes each) of the sums of four blocks */
    V msum[LANES]; /* of a row: of each block (16 bytes) four parts of the sum of minima */
    uint32_t d[QUAD][LANES];
};

/* ---- Q4_K, Q5_K ---- */

/* Groups whose codes are the low and the high halves of 64 bytes: 0 and 2, 1 and 3, 4 and 6, 5 and 7. */
INLINE int first_group(int v) { return v % 2 + v / 2 * 4; }

/* Multipliers and sums. */
INLINE void sides_of_32(struct quad *out, const struct lode_block_a256 *a, int b) {
    for (int g = 0; g < 8; g++) {
        const int16_t m = a->m[g];
        memcpy((char *)&out->m[0] + 16 * b + 2 * g, &m, 2);
    }
    for (int h = 0; h < 2; h++)
        memcpy((char *)&out->sums[h] + 16 * b, a->sums + 8 * h, 16);
}
INLINE void quad_of_32(struct quad *out, const struct lode_block_a256 *a, int b) {
    sides_of_32(out, a, b);
    for (int v = 0; v < 4; v++) {
        memcpy((char *)&out->q[b][v], a->q + 32 * first_group(v), 32);
        memcpy((char *)&out->q[b][v] + 32, a->q + 32 * (first_group(v) + 2), 32);
    }
}

/* Bytes that words are made of in each 16: for vector v, the scales of its two groups. */
INLINE V spread_groups(int v) {
    const int low = 2 * first_group(v), high = low + 4;
    return v_by_halves((low + 1) << 8 | low, (high + 1) << 8 | high);
}

/* Scales times multipliers, and (mn) minima twice, of n blocks' first 16 bytes. */
INLINE V scales_of_32(V mn[2], V head, V m) {
    const V six = v_set8(63), four = v_set8(15), two = v_set8(48);
    const V top = v_srl16(head, 2) & two;
#define LAST(v, from) (V)_mm512_shuffle_epi32((__m512i)(v), from) /* lane `from` of four as the last */
    const V low = head & six, last = (head & four) | LAST(top, _MM_PERM_BAAA);
    const V scales = (V)_mm512_mask_mov_epi32((__m512i)low, 0x8888, (__m512i)last);
    const V minima = (v_srl16(head, 4) & four) | LAST(top, _MM_PERM_CAAA);
#undef LAST
    mn[0] = v_shuffle(scales, v_each16(0x80088008, 0x80098009, 0x800a800a, 0x800b800b));
    mn[1] = v_shuffle(minima, v_each16(0x800c800c, 0x800d800d, 0x800e800e, 0x800f800f));
    return v_mul16(v_shuffle(scales, v_each16(0x80058004, 0x80078006, 0x800d800c, 0x800f800e)), m);
}

/* The fifth bits of vector v's codes. */
INLINE V fifth_of(V qh, int v) {
    static const int8_t shift[4][2] = {{4, 2}, {3, 1}, {0, -2}, {-1, -3}};
    const V moved = v < 2 ? v_sllv16(qh, v_by_halves(shift[v][0], shift[v][1]))
                          : v_srlv16(qh, v_by_halves(-shift[v][0], -shift[v][1]));
    return moved & v_set8(16);
}

INLINE void quad_rows_32(struct halfway *out, int row, const uint8_t *w, size_t size, int n, const struct quad *x) {
    const bool fifth = size == sizeof(struct lode_block_q5_k);
    V mn[2], sum[QUAD];
    const V by = scales_of_32(mn, v_load16s(w, size, n), x->m[0]);
    out->msum[row] = v_dot2(v_dot2(v_zero(), mn[0], x->sums[0]), mn[1], x->sums[1]);
    UNROLL
    for (int b = 0; b < QUAD; b++) {
        sum[b] = v_zero();
        if (b >= n)
            continue;
        const uint8_t *block = w + (size_t)b * size, *codes = block + (fifth ? 48 : 16);
        const V of = v_quarter(by, b);
        const V qh = fifth ? v_twice32(block + 16) : v_zero();
        memcpy(&out->d[b][row], block, 4);
        UNROLL
        for (int v = 0; v < 4; v++) {
            const V q = v_load64(codes + v / 2 * 64);
            V c = low_bits(v % 2 ? v_srl16(q, 4) : q, 4);
            if (fifth)
                c |= fifth_of(qh, v);
            sum[b] = v_dot2(sum[b], v_mul_pairs(c, x->q[b][v]), v_shuffle(of, spread_groups(v)));
        }
    }
    out->isum[row] = v_add_fours(sum);
}

/* ---- IQ4_XS ---- */

/* A vector has the first or the second 16 numbers of each of four groups, and 16 bytes of sums are one group's. */
INLINE void quad_of_levels(struct quad *out, const struct lode_block_a256 *a, int b) {
    sides_of_32(out, a, b);
    for (int g = 0; g < 8; g++)
        for (int h = 0; h < 2; h++)
            memcpy((char *)&out->q[b][g / 4 * 2 + h] + g % 4 * 16, a->q + 32 * g + 16 * h, 16);
}

/* Scales of n blocks as int16: four bits of four bytes, two of the two before those.  (Words put together one by one and read as a vector
 * again would be waited for until they are in the first level.) */
INLINE V scales_of_levels(const uint8_t *w, size_t size, int n) {
    const V head = v_load16s(w, size, n), four = v_set8(15), two = v_set32(0x00030003);
    const V low = v_srlv16(v_shuffle(head, v_each16(0x80048004, 0x80058005, 0x80068006, 0x80078007)), v_set32(4 << 16));
    const V high = v_srlv16(v_shuffle(head, v_set32(0x03020302)), v_each16(2 << 16, 6 << 16 | 4, 10 << 16 | 8, 14 << 16 | 12));
    return (V)_mm512_sub_epi16((__m512i)((low & four) | v_sll16(high & two, 4)), _mm512_set1_epi16(32));
}

INLINE void quad_rows_levels(struct halfway *out, int row, const uint8_t *w, size_t size, int n, const struct quad *x) {
    const V table = iq4_table();
    const V sc = scales_of_levels(w, size, n), by = v_mul16(sc, x->m[0]);
    for (int b = 0; b < n; b++)
        out->d[b][row] = ((const struct lode_block_iq4_xs *)(w + (size_t)b * size))->d;
    /* what is to be taken from each code, 128, is to be taken from these later */
    const V twice[2] = {v_shuffle(sc, v_each16(0x01000100, 0x03020302, 0x05040504, 0x07060706)),
                        v_shuffle(sc, v_each16(0x09080908, 0x0b0a0b0a, 0x0d0c0d0c, 0x0f0e0f0e))};
    out->msum[row] = v_dot2(v_dot2(v_zero(), twice[0], x->sums[0]), twice[1], x->sums[1]) << 7;
    V sum[QUAD];
    UNROLL
    for (int b = 0; b < QUAD; b++) {
        sum[b] = v_zero();
        if (b >= n)
            continue;
        const uint8_t *codes = w + (size_t)b * size + offsetof(struct lode_block_iq4_xs, qs);
        const __m512i of = _mm512_cvtepi16_epi32(_mm512_castsi512_si256((__m512i)v_quarter(by, b)));
        UNROLL
        for (int h = 0; h < 2; h++) {
            const V q = v_load64(codes + 64 * h);
            V dot = v_dot4_wide(v_zero(), v_lookup(table, low_bits(q, 4)), x->q[b][2 * h]);
            dot = v_dot4_wide(dot, v_lookup(table, low_bits(v_srl16(q, 4), 4)), x->q[b][2 * h + 1]);
            const __m512i group = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
            sum[b] += dot * (V)_mm512_permutexvar_epi32(_mm512_add_epi32(group, _mm512_set1_epi32(4 * h)), of);
        }
    }
    out->isum[row] = v_add_fours(sum);
}

/* ---- Q6_K, Q2_K, Q3_K ---- */

/* Of vector v of a block, the group of its i-th 16 codes: codes of two bits of 64 bytes are numbers of both halves. */
INLINE int group_at(struct shape s, int v, int i) { return s.top == 63 ? 4 * v + i : 2 * v + i % 2 + i / 2 * 8; }

INLINE void quad_of_16(struct shape s, struct quad *out, const struct lode_block_a256 *a, int b) {
    for (int v = 0; v < 4; v++)
        for (int i = 0; i < 4; i++)
            memcpy((char *)&out->q[b][v] + 16 * i, a->q + 16 * group_at(s, v, i), 16);
    for (int g = 0; g < 16; g++) { /* scales of two blocks meet in a vector */
        const int16_t m = a->m[g / 2];
        memcpy((char *)&out->m[b / 2] + 32 * (b % 2) + 2 * g, &m, 2);
        memcpy((char *)&out->sums[b / 2] + 32 * (b % 2) + 2 * g, &a->sums[g], 2);
    }
}

/* The bytes of two blocks as int16. */
INLINE V words_of_two(__m128i first, __m128i second, bool is_signed) {
    const __m256i bytes = _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
    return (V)(is_signed ? _mm512_cvtepi8_epi16(bytes) : _mm512_cvtepu8_epi16(bytes));
}

/* Q3_K's scales of n blocks, each in 16 bytes, less their bias: bits 0 to 3 are halves of eight bytes, 4 and 5 quarters of four. */
INLINE V scales_of_q3_k(const uint8_t *w, size_t size, int n) {
    enum { BEFORE = 2 }; /* bytes, so that no sixteen reach behind a block */
    const V bytes = v_load16s(w + offsetof(struct lode_block_q3_k, scales) - BEFORE, size, n);
    const V eight = v_shuffle(bytes, v_each16(0x05040302, 0x09080706, 0x05040302, 0x09080706)),
            four = v_shuffle(bytes, v_each16(0x0d0c0b0a, 0x0d0c0b0a, 0x0d0c0b0a, 0x0d0c0b0a));
    const V low = v_srlv16(eight, v_each16(0, 0, 0x00040004, 0x00040004));
    const V top = v_sll16((V)_mm512_srlv_epi32((__m512i)four, (__m512i)v_each16(0, 2, 4, 6)) & v_set8(3), 4);
    return (V)_mm512_sub_epi8((__m512i)((low & v_set8(15)) | top), _mm512_set1_epi8(32));
}

/* Scales of blocks 2 p and 2 p + 1 of n as int16; of Q2_K the minima too. */
INLINE V scales_of_16(struct shape s, V *mn, const uint8_t *w, size_t size, int p, int n) {
    const uint8_t *first = w + 2 * (size_t)p * size, *second = 2 * p + 1 < n ? first + size : first;
    if (s.top == 7) { /* compilers make all of them once */
        const __m512i all = (__m512i)scales_of_q3_k(w, size, n);
        return (V)_mm512_cvtepi8_epi16(p ? _mm512_extracti64x4_epi64(all, 1) : _mm512_castsi512_si256(all));
    }
    const size_t at = s.top == 3 ? offsetof(struct lode_block_q2_k, scales) : offsetof(struct lode_block_q6_k, scales);
    const V words = words_of_two(_mm_loadu_si128((const __m128i *)(first + at)),
                                 _mm_loadu_si128((const __m128i *)(second + at)), s.top == 63);
    if (s.top == 63)
        return words;
    *mn = v_srl16(words, 4);
    return words & v_set8(15);
}

#ifdef __GFNI__
/* Of each byte some bits: a matrix's last byte says which the lowest one is, the one before which the next. */
INLINE V v_bits(V v, __m512i matrix) { return (V)_mm512_gf2p8affine_epi64_epi8((__m512i)v, matrix, 0); }
#endif

/* 64 codes of a block, their groups those of group_at. */
INLINE V codes_of_16(struct shape s, const uint8_t *block, int v) {
    if (s.top == 63) {
        const struct lode_block_q6_k *b = (const struct lode_block_q6_k *)block;
        const V q = v_load64(b->ql + v / 2 * 64), hi = v_twice32(b->qh + v / 2 * 32);
        const V top = v % 2 ? v_srlv16(hi, v_by_halves(0, 2)) : v_sllv16(hi, v_by_halves(4, 2));
        return low_bits(v % 2 ? v_srl16(q, 4) : q, 4) | (top & v_set8(48));
    }
    if (s.top == 3)
        return low_bits(v_srl16(v_load64(((const struct lode_block_q2_k *)block)->qs), 2 * v), 2);
    const struct lode_block_q3_k *b = (const struct lode_block_q3_k *)block;
    const V q = v_load64(b->qs), third = v_twice32(b->hmask);
#ifdef __GFNI__
    /* bits 2 v and 2 v + 1; as the third v or, of the second half, 4 + v */
    const long long of_first = 1ll << (40 + v), of_second = 1ll << (44 + v);
    return v_bits(q, _mm512_set1_epi64((long long)(1ull << (56 + 2 * v) | 1ull << (49 + 2 * v)))) |
           v_bits(third, _mm512_setr_epi64(of_first, of_first, of_first, of_first, of_second, of_second, of_second, of_second));
#else
    return low_bits(v_srl16(q, 2 * v), 2) | v_sll16(v_srlv16(third, v_by_halves(v, 4 + v)) & v_set8(1), 2);
#endif
}

INLINE uint32_t scale_of_16(struct shape s, const uint8_t *block) { /* d, and dmin in the upper half */
    uint16_t d[2] = {0};
    memcpy(d, block + (s.top == 63  ? offsetof(struct lode_block_q6_k, d)
                       : s.top == 7 ? offsetof(struct lode_block_q3_k, d)
                                    : offsetof(struct lode_block_q2_k, d)), s.minima ? 4 : 2);
    return d[0] | (uint32_t)d[1] << 16;
}

INLINE V spread_words(struct shape s, int block, int v) { /* words of a vector of two blocks' scales, each for 16 codes */
    uint16_t at[32];
    for (int i = 0; i < 32; i++)
        at[i] = (uint16_t)(16 * block + group_at(s, v, i / 8));
    V r;
    memcpy(&r, at, sizeof r);
    return r;
}

INLINE void quad_rows_16(struct shape s, struct halfway *out, int row, const uint8_t *w, size_t size, int n,
                         const struct quad *x) {
    V sum[QUAD], by[2], minima[2] = {v_zero(), v_zero()};
    UNROLL
    for (int p = 0; p < 2; p++) {
        sum[2 * p] = sum[2 * p + 1] = by[p] = v_zero();
        if (2 * p >= n)
            continue;
        V mn = v_zero();
        const V sc = scales_of_16(s, &mn, w, size, p, n);
        by[p] = v_mul16(sc, x->m[p]);
        if (s.minima) {
            minima[p] = v_dot2(v_zero(), mn, x->sums[p]);
        } else { /* the bias is to be taken from each code: what is left of that of two blocks are two halves */
            const V bias = v_dot2(v_zero(), sc, x->sums[p]) * v_set32((uint32_t)s.bias);
            sum[2 * p] = (V)_mm512_maskz_sub_epi32(0x00ff, _mm512_setzero_si512(), (__m512i)bias);
            sum[2 * p + 1] = (V)_mm512_maskz_sub_epi32(0xff00, _mm512_setzero_si512(), (__m512i)bias);
        }
    }
    UNROLL
    for (int b = 0; b < QUAD; b++) {
        if (b >= n)
            continue;
        const uint8_t *block = w + (size_t)b * size;
        out->d[b][row] = scale_of_16(s, block);
        UNROLL
        for (int v = 0; v < 4; v++) {
            const V of = (V)_mm512_permutexvar_epi16((__m512i)spread_words(s, b % 2, v), (__m512i)by[b / 2]);
            sum[b] = v_dot2(sum[b], v_mul_pairs(codes_of_16(s, block, v), x->q[b][v]), of);
        }
    }
    out->isum[row] = v_add_fours(sum);
    if (s.minima)
        out->msum[row] = v_add_pairs(minima[0], minima[1]);
}

/* ---- all of them ---- */

/* The first n <= QUAD blocks of a column. */
INLINE void quad_of(struct shape s, struct quad *out, const uint8_t *x, size_t n) {
    if (n < QUAD)
        memset(out, 0, sizeof *out);
    for (size_t b = 0; b < n; b++) {
        const struct lode_block_a256 *a = (const struct lode_block_a256 *)x + b;
        out->d[b] = a->d;
        if (s.wide)
            quad_of_levels(out, a, (int)b);
        else if (s.groups == 8)
            quad_of_32(out, a, (int)b);
        else
            quad_of_16(s, out, a, (int)b);
    }
}

#define QUAD_ROWS(s, ...)                                                                          \
    ((s).wide          ? quad_rows_levels(__VA_ARGS__)                                             \
     : (s).groups == 8 ? quad_rows_32(__VA_ARGS__)                                                 \
                       : quad_rows_16(s, __VA_ARGS__))

/* n: constants for the compiler */
INLINE void quad_row(struct shape s, struct halfway *out, int row, const uint8_t *w, size_t size, size_t n,
                     const struct quad *x) {
    if (n == QUAD)
        QUAD_ROWS(s, out, row, w, size, QUAD, x);
    else if (n == 3)
        QUAD_ROWS(s, out, row, w, size, 3, x);
    else if (n == 2)
        QUAD_ROWS(s, out, row, w, size, 2, x);
    else
        QUAD_ROWS(s, out, row, w, size, 1, x);
}

/* acc after n more blocks of a tile. */
INLINE F end_quad(struct shape s, F acc, const struct halfway *h, size_t n, const struct quad *x) {
    V isum[4], msum[4], part[4];
    for (int j = 0; j < 4; j++) { /* rows j, 4 + j, 8 + j, 12 + j */
        const V rows[4] = {h->isum[j], h->isum[4 + j], h->isum[8 + j], h->isum[12 + j]};
        part[j] = v_add_quarters(rows);
    }
    v_turn_lanes(isum, part);
    if (s.wide || s.minima) {
        for (int i = 0; i < 4; i++)
            part[i] = v_add_fours(h->msum + 4 * i);
        v_turn_quarters(msum, part);
    }
    for (size_t b = 0; b < n; b++) {
        const F dx = f_set(x->d[b]);
        V d;
        memcpy(&d, h->d[b], sizeof d);
        acc = f_fma(f_half(d) * dx, f_int(s.wide ? isum[b] - msum[b] : isum[b]), acc);
        if (s.minima)
            acc = f_fnma(f_half(d >> 16) * dx, f_int(msum[b]), acc);
    }
    return acc;
}
