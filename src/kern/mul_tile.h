/* mul_tile.h - the products of quantised weights, written once for every vector width.
 *
 * A file mul_quant_ISA.c defines a small set of vector operations and includes this one; what
 * results equals mul_scalar.c bit for bit, because integer sums are exact in any order and the
 * float chain of a row stays in one lane.
 *
 * The idea: lane i belongs to weight row i.  A tile is LANES rows; each of its blocks is unpacked
 * once (tile_unpack.h) into vectors that hold four neighbouring codes of every row,
 *
 *     w[t], lane i = codes 4t .. 4t+3 of row i, unsigned bytes
 *
 * and multiplied with any number of activation columns, whose four neighbouring numbers are
 * broadcast to all lanes.  Nothing is ever summed across lanes, scales are vectors too, and the
 * same code serves one column (decode) and hundreds (prefill).
 *
 * Codes are unsigned because the instruction wants it: w = d (q - bias) becomes
 * sum q x - bias sum x, and activations carry their sums.  Codes of a full byte ("wide": Q8_0 and
 * the IQ4 levels) are kept as the instruction set likes them, unsigned with bias V_WIDE_BIAS = 128
 * or signed with bias 0.
 *
 * Arithmetic is that of compiler vectors (kern/vec.h); an including file defines what they lack:
 *
 *   KERN(name)                      name##_ISA
 *   LANES, V_WIDE_BIAS              rows of a tile; see above
 *   V_COLUMNS, V_TILES              how many of each are multiplied at once
 *   V_WIDE_COLUMNS                  if it exists: mul_many_short.h, and what it needs
 *   V_ONE                           if it exists: one column by the forms of mul_one.h
 *   V_FEW_256                       see most_few
 *   V_CHAINS                        if it exists: mul_many_vnni.h, and what it needs
 *   V_NEAR_TILE                     see mul_ahead.h; may be missing: the first level is large
 *   V_NO_CODEBOOKS                  if it exists: without products of codebook types
 *   V_ASK_SUMS                      if it exists: many columns ask for where their results go before they are made
 *   v_pick(v, P)                    bytes of each lane's dword, P = 0xDDCCBBAA: byte 0..3, 80: zero
 *   v_lookup(table, codes)          table: 16 bytes at each 16; codes 0..15
 *   v_dot4_wide(acc, w, x)          acc + sum of 4 products of wide codes; without V_DOT16 of all codes
 *   v_dot16(acc, w[4], x[4], top)   acc + sum of 16 products; codes w <= top, signed x; V_DOT16: exists
 *   v_dot4_at(acc, w, p)            the same of all codes with 4 numbers in memory; V_DOT4_AT: exists
 *   v_dot2(acc, a, b)               acc + sum of 2 products of int16
 *   v_held(v)                       v, in a register from here on (compilers would read it again)
 *   v_load16(V out[4], rows, off)   out[t], lane i = bytes off + 4t .. of row i
 *   v_load4(rows, off)              4 bytes of each row
 *   f_set(x), f_half(V)             half: in the low 16 bits of each lane
 *   f_halves(low, high, V)          both halves of each lane; F_HALVES: exists
 *   f_half_at(rows, off)            the half at off of each row; F_HALF_AT: exists
 *   f_fma(a, b, c), f_fnma(a, b, c) a b + c, c - a b
 *   f_store(p, n, v)                the first n lanes
 */
#include "kern/mul_shape.h"

/* Columns taken together: they stay in the second level while the tiles of a panel pass, and their
 * sums lie side by side, which y's do not (its rows may all fall into one set of a cache). */
#define CHUNK 128

/* 16 numbers of a column, each four broadcast to all rows. */
struct x16 {
    V v[4];
};
INLINE struct x16 bcast16(const int8_t *x) {
    return (struct x16){{v_bcast4(x), v_bcast4(x + 4), v_bcast4(x + 8), v_bcast4(x + 12)}};
}

/* acc + their products with 16 codes of every row. */
INLINE V dot16(struct shape s, V acc, const V w[4], struct x16 x) {
#ifdef V_DOT16
    if (!s.wide)
        return v_dot16(acc, w, x.v, s.top);
#endif
    (void)s;
    for (int i = 0; i < 4; i++)
        acc = v_dot4_wide(acc, w[i], x.v[i]);
    return acc;
}

/* The same with 16 numbers in memory. */
INLINE V dot16_at(struct shape s, V acc, const V w[4], const int8_t *x) {
#ifdef V_DOT4_AT
    (void)s;
    for (int i = 0; i < 4; i++)
        acc = v_dot4_at(acc, w[i], x + 4 * i);
    return acc;
#else
    return dot16(s, acc, w, bcast16(x));
#endif
}

/* acc after one more block of a tile. */
INLINE F add_block32(struct shape s, F acc, const V w[8], F d, F m, const struct lode_block_a32 *a,
                     struct x16 x_lo, struct x16 x_hi) {
    const F dx = f_set(a->d);
    if (s.halves)
        return add_halves(acc, dot16(s, half_start(s, a, 0), w, x_lo), dot16(s, half_start(s, a, 1), w + 4, x_hi), d, m, dx);
    const V lo = dot16(s, v_set32((uint32_t)(-s.bias * a->sum)), w, x_lo);
    const V hi = dot16(s, v_zero(), w + 4, x_hi);
    acc = f_fma(d * dx, f_int(lo + hi), acc);
    return s.minima ? f_fma(m * dx, f_set((float)a->sum), acc) : acc;
}

/* ---- tiles ---- */

#include "kern/mul_ahead.h"

/* One column: codes are used as soon as they are unpacked. */
INLINE F one256(TYPE_256, F acc, const struct rows *r, struct ahead ahead, const uint8_t *x, size_t k) {
    const int n_chunks = 16 / s.runs;
    const size_t part = LANES * size / (size_t)n_chunks;
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
            bring(&ahead, r, (b * (size_t)n_chunks + (size_t)c) * part, part);
            bring_again(&ahead, r, (b + 2) * size + (size_t)c * size / (size_t)n_chunks);
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

INLINE F one32(TYPE_32, F acc, const struct rows *r, struct ahead ahead, const uint8_t *x, size_t k) {
    for (size_t b = 0; b < k / 32; b++, x += sizeof(struct lode_block_a32)) {
        V w[8];
        F d, m = f_zero();
        bring(&ahead, r, LANES * b * size, LANES * size);
        unpack(w, &d, &m, r, b * size);
        const struct lode_block_a32 *a = (const struct lode_block_a32 *)x;
        acc = add_block32(s, acc, w, d, m, a, bcast16(a->q), bcast16(a->q + 16));
    }
    return acc;
}

/* A few columns (n constant, up to FEW): as one, for speculation and small batches, which should cost
 * little more than the reading of the weights.  x[j]: where a column's blocks begin.  In blocks of 256,
 * which want a register for each column's sum beside all codes of a group, up to V_FEW_256 columns; with
 * mul_many_short.h up to those from which its sums of 16 bits are faster. */
#define FEW 8
#ifdef __AVX2__
#define CODEBOOK_FEW 4 /* mul_one_codes.h */
#else
#define CODEBOOK_FEW 1
#endif
INLINE size_t most_few(struct shape s) {
    if (s.codebook)
        return s.top > 64 && CODEBOOK_FEW > 1 ? FEW : CODEBOOK_FEW; /* whose many columns come in parts of 8 numbers */
#ifdef V_WIDE_COLUMNS
    return s.wide && !s.groups ? 4 : s.wide || !s.groups ? 3 : V_FEW_256;
#else
    return s.groups ? V_FEW_256 : FEW;
#endif
}

/* Where n columns begin, the last one again where few are fewer. */
INLINE void few_columns(const uint8_t *columns[FEW], const uint8_t *x, size_t x_stride, size_t n) {
    for (size_t c = 0; c < FEW; c++)
        columns[c] = x + (c < n ? c : n - 1) * x_stride;
}

/* Eight bytes as int16. */
INLINE void widen8(int16_t y[8], const uint8_t x[8]) {
    typedef uint8_t bytes __attribute__((vector_size(8)));
    typedef int16_t numbers __attribute__((vector_size(16)));
    bytes b;
    memcpy(&b, x, sizeof b);
    const numbers wide = __builtin_convertvector(b, numbers);
    memcpy(y, &wide, sizeof wide);
}

INLINE void few256(F acc[FEW], TYPE_256, const struct rows *r, struct ahead ahead, const uint8_t *const *x,
                   size_t n, size_t k) {
    /* Chunks at a time: two with groups of 32, which are two groups then (with a half in each chunk or not)
     * and four groups of 16 else.  They are taken in pairs that meet their scales together. */
    const int n_chunks = 16 / s.runs, step = s.groups == 8 ? 2 : 1, groups = s.groups == 8 ? 2 : 4;
    const size_t part = LANES * size / (size_t)n_chunks;
    for (size_t b = 0; b < k / 256; b++) {
        const struct lode_block_a256 *a[FEW];
        struct head h;
        V isum[FEW];
        int16_t m[FEW][8]; /* to be broadcast from memory in pairs */
        read_head(&h, r, b * size);
        for (size_t j = 0; j < n; j++) {
            a[j] = (const struct lode_block_a256 *)x[j] + b;
            isum[j] = v_zero();
            widen8(m[j], a[j]->m);
        }
#pragma GCC unroll 1
        for (int c = 0; c < n_chunks; c += step) {
            V w[2][4][4], sc[2];
            bring(&ahead, r, (b * (size_t)n_chunks + (size_t)c) * part, part * (size_t)step);
            unpack(w[0], &h, r, b * size, c);
            if (step == 2)
                unpack(w[1], &h, r, b * size, c + 1);
            for (int i = 0; i < groups; i += 2) {
                const V *of = h.sc + (s.groups == 8 ? c + i : group_of(s, c, i));
                sc[i / 2] = v_pair(of[0], of[s.groups == 8 ? 1 : 2]);
            }
#pragma GCC unroll 8
            for (size_t j = 0; j < n; j++)
#pragma GCC unroll 2
                for (int i = 0; i < groups; i += 2) {
                    const int at = s.groups == 8 ? c : c / 2 * 4 + i; /* of groups of 32 */
                    V sum[2];
                    for (int g = 0; g < 2; g++) {
                        const V *lo = s.adjacent ? w[g][0] : w[0][i + g];
                        const int8_t *q = a[j]->q + (s.groups == 8 ? 32 * (c + g) : 16 * group_of(s, c, i + g));
                        sum[g] = dot16_at(s, v_zero(), lo, q);
                        if (s.groups == 8)
                            sum[g] += dot16_at(s, v_zero(), s.adjacent ? w[g][1] : w[1][g], q + 16);
                    }
                    const V scale = v_mul16(sc[i / 2], v_bcast4(&m[j][at]));
                    isum[j] += sum[0] * v_sra32(scale << 16, 16) + sum[1] * v_sra32(scale, 16);
                }
        }
#pragma GCC unroll 8
        for (size_t j = 0; j < n; j++)
            acc[j] = add_block(s, acc[j], &h, a[j], isum[j]);
    }
}

INLINE void few32(F acc[FEW], TYPE_32, const struct rows *r, struct ahead ahead, const uint8_t *const *x,
                  size_t n, size_t k) {
    F sum[FEW];
    for (size_t j = 0; j < n; j++)
        sum[j] = acc[j];
    for (size_t b = 0; b < k / 32; b++) {
        V w[8];
        F d, m = f_zero();
        bring(&ahead, r, LANES * b * size, LANES * size);
        unpack(w, &d, &m, r, b * size);
#pragma GCC unroll 8
        for (size_t j = 0; j < n; j++) {
            const struct lode_block_a32 *a = (const struct lode_block_a32 *)x[j] + b;
            sum[j] = add_block32(s, sum[j], w, d, m, a, bcast16(a->q), bcast16(a->q + 16));
        }
    }
    for (size_t j = 0; j < n; j++)
        acc[j] = sum[j];
}

#ifdef V_ONE
#include "kern/mul_one_broadcast.h"
#include "kern/mul_one_pairs.h"
#include "kern/mul_one_rows.h"
#include "kern/mul_one_ternary.h"
#define ONE_32(s, ...) ((s).codes ? one_pairs32(s, __VA_ARGS__) : one32(s, __VA_ARGS__))
#define ONE_256(s, ...) ((s).groups == 8 ? one_broadcast256(s, __VA_ARGS__) : one_rows256(s, __VA_ARGS__))
#define ONE_TERNARY(s)                                                                             \
    if ((s).ternary)                                                                               \
        return one_ternary256(s, acc, r, ahead, x, k);
#else
#define ONE_32 one32
#define ONE_256 one256
#define ONE_TERNARY(s)
#endif
#ifdef __AVX2__
#include "kern/mul_one_codes.h"
#else
#define ONE_CODEBOOK(name, ...) ONE(name, 256, sizeof(struct lode_block_##name), __VA_ARGS__)
#define FEW_CODEBOOK(name, ...) FEW_OF(name, 256, sizeof(struct lode_block_##name), __VA_ARGS__)
#endif

/* n <= c columns as c, where a type has so many */
#define FEW_AS(c, few, s, ...)                                                                     \
    if (n <= (c) && (c) <= most_few(s)) {                                                          \
        few(acc, s, __VA_ARGS__, r, ahead, x, c, k);                                               \
        return;                                                                                    \
    }

/* Functions of their own, which together would get in one another's way in the compiler's registers. */
#define ONE(name, block, size, ...)                                                                \
    static __attribute__((noinline))                                                               \
    F one_##name(F acc, const struct rows *r, struct ahead ahead, const uint8_t *x, size_t k) {    \
        const struct shape s = {__VA_ARGS__};                                                      \
        ONE_TERNARY(s)                                                                             \
        return ONE_##block(s, UNPACK_##block(name), size, acc, r, ahead, x, k);                    \
    }
#define FEW_OF(name, block, size, ...)                                                             \
    static __attribute__((noinline)) void few_##name(                                              \
        F acc[FEW], const struct rows *r, struct ahead ahead, const uint8_t *const *x, size_t n,   \
        size_t k) {                                                                                \
        const struct shape s = {__VA_ARGS__};                                                      \
        FEW_AS(2, few##block, s, UNPACK_##block(name), size)                                       \
        FEW_AS(3, few##block, s, UNPACK_##block(name), size)                                       \
        FEW_AS(4, few##block, s, UNPACK_##block(name), size)                                       \
        FEW_AS(6, few##block, s, UNPACK_##block(name), size)                                       \
        FEW_AS(8, few##block, s, UNPACK_##block(name), size)                                       \
    }

#include "kern/mul_all.h"
