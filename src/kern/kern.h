/* kern.h - every CPU kernel, as one list.
 *
 * A kernel is a leaf: plain memory in, plain memory out; no allocation, threads, logging or
 * failure.  The scalar version (..._scalar.c) is the definition, the order of its sums included;
 * the other instruction sets give the same bits (tests/kerncheck proves it and times them).
 *
 * Definitions that all of them share:
 *
 *  - "sixteen lanes": a float sum over i = 0 .. n-1 is kept in 16 accumulators, number i going to
 *    lane i % 16 by fmaf in ascending order (starting from +0); they are joined as a tree:
 *    for (w = 8; w; w /= 2) lane[l] += lane[l + w] for l < w.
 *  - a block dot of quantised weights is an exact integer sum per block, then
 *    acc = fmaf(d_w * d_x, (float)isum, acc), and where the format has minima a second
 *    acc = fmaf(-(m_w * d_x), (float)msum, acc) (Q4_1, Q5_1, U2 ..: +, with the block's own m), in
 *    ascending order of blocks from acc = +0; one accumulator for a row.  d_w is the half widened,
 *    d_w * d_x one rounded product.  kern/mul_scalar.c spells it out by type.
 *  - exp, tanh: kern/expf.h, our own polynomials; division and square root are IEEE.
 *  - where a result is NaN is defined, its sign and payload are not (kv_put's are).
 *  - y may be the same array as another float argument of its length; else nothing overlaps.
 *
 * MUL kernels multiply a panel of weight rows with a panel of activation rows:
 *
 *     y[j * ldy + i] = < w row i, x row j >       i < n_w, j < n_x, over k numbers
 *
 * w rows lie w_stride bytes apart in the weight's file layout, x rows x_stride bytes apart in the
 * layout lode_dtypes[type].act.  k is a multiple of both blocks.  The result of one (i, j) does
 * not depend on n_w, n_x or the other rows.
 *
 * To add a kernel: a line here, the scalar function, and check_NAME in tests/kerncheck; the test
 * program does not link until all exist.  Faster versions come after: define NAME_avx2 in a file
 * whose name ends in _avx2.c and name it in list_float.h or list_quant.h.
 */
#ifndef LODE_KERN_KERN_H
#define LODE_KERN_KERN_H

#include "tensor/dtype.h"

#include <stddef.h>
#include <stdint.h>

#define LODE_MUL_ARGS                                                                              \
    (float *y, size_t ldy, const void *w, size_t w_stride, size_t n_w, const void *x,              \
     size_t x_stride, size_t n_x, size_t k)

/* Types that are multiplied as they lie: W(kernel suffix, dtype, X), or X(kernel suffix, dtype). */
#define LODE_MUL_LIST_BY(W, X)                                                                     \
    W(f32, F32, X) W(f16, F16, X) W(bf16, BF16, X) W(q4_0, Q4_0, X) W(q4_1, Q4_1, X)               \
    W(q5_0, Q5_0, X) W(q5_1, Q5_1, X) W(q8_0, Q8_0, X) W(q2_k, Q2_K, X) W(q3_k, Q3_K, X)           \
    W(q4_k, Q4_K, X) W(q5_k, Q5_K, X) W(q6_k, Q6_K, X) W(iq4_nl, IQ4_NL, X) W(iq4_xs, IQ4_XS, X)   \
    W(iq1_s, IQ1_S, X) W(iq1_m, IQ1_M, X) W(iq2_xxs, IQ2_XXS, X) W(iq2_xs, IQ2_XS, X)              \
    W(iq2_s, IQ2_S, X) W(iq3_xxs, IQ3_XXS, X) W(iq3_s, IQ3_S, X) W(tq1_0, TQ1_0, X)                \
    W(tq2_0, TQ2_0, X) W(mxfp4, MXFP4, X) W(e4m3, E4M3, X) W(e5m2, E5M2, X)                        \
    LODE_MUL_PART_LIST_BY(W, X) LODE_MUL_HALVES_LIST_BY(W, X) LODE_MUL_U_LIST_BY(W, X)
#define LODE_MUL_U_LIST_BY(W, X)                                                                   \
    W(u2, U2, X) W(u3, U3, X) W(u4, U4, X) W(u5, U5, X) W(u6, U6, X) W(u8, U8, X)                  \
    W(u4g32, U4G32, X) W(u8g32, U8G32, X)
/* ... 32 numbers of a larger block at a time; those of whose 32 numbers each half has a scale */
#define LODE_MUL_PART_LIST_BY(W, X) W(q1_0, Q1_0, X) W(q2_0, Q2_0, X)
#define LODE_MUL_HALVES_LIST_BY(W, X) W(nvfp4, NVFP4, X) W(nvfp4g, NVFP4G, X)
#define LODE_MUL_AS_IS(s, t, X) X(s, t)
#define LODE_MUL_LIST(X) LODE_MUL_LIST_BY(LODE_MUL_AS_IS, X)
#define LODE_MUL_U_LIST(X) LODE_MUL_U_LIST_BY(LODE_MUL_AS_IS, X)
#define LODE_MUL_PART_LIST(X) LODE_MUL_PART_LIST_BY(LODE_MUL_AS_IS, X)
#define LODE_MUL_HALVES_LIST(X) LODE_MUL_HALVES_LIST_BY(LODE_MUL_AS_IS, X)

/* Types that can be widened to F32 (all that a weight can have): X(suffix, dtype). */
#define LODE_DEQUANT_LIST(X)                                                                       \
    X(f32, F32) X(f16, F16) X(bf16, BF16) X(f64, F64) X(i8, I8) X(i16, I16) X(i32, I32)            \
    X(i64, I64) X(q4_0, Q4_0) X(q4_1, Q4_1) X(q5_0, Q5_0) X(q5_1, Q5_1) X(q8_0, Q8_0)              \
    X(q8_1, Q8_1) X(q2_k, Q2_K) X(q3_k, Q3_K) X(q4_k, Q4_K) X(q5_k, Q5_K) X(q6_k, Q6_K)            \
    X(q8_k, Q8_K) X(iq1_s, IQ1_S) X(iq1_m, IQ1_M) X(iq2_xxs, IQ2_XXS) X(iq2_xs, IQ2_XS)            \
    X(iq2_s, IQ2_S) X(iq3_xxs, IQ3_XXS) X(iq3_s, IQ3_S) X(iq4_nl, IQ4_NL) X(iq4_xs, IQ4_XS)        \
    X(tq1_0, TQ1_0) X(tq2_0, TQ2_0) X(q1_0, Q1_0) X(q2_0, Q2_0) X(mxfp4, MXFP4) X(nvfp4, NVFP4)    \
    LODE_MUL_U_LIST(X) X(e4m3, E4M3) X(e5m2, E5M2) X(nvfp4g, NVFP4G)

/* KV formats: X(suffix, dtype, name on the command line). */
#define LODE_KV_LIST(X)                                                                            \
    X(f32, F32, "f32")                                                                             \
    X(f16, F16, "f16")                                                                             \
    X(bf16, BF16, "bf16")                                                                          \
    X(q8_0, Q8_0, "q8_0")

/* X(name, return type, arguments).  The families above expand into it. */
#define LODE_KERN_MUL(s, t, X) X(mul_##s, void, LODE_MUL_ARGS)
#define LODE_KERN_PLAIN_LIST(X)                                                                    \
    /* sixteen lanes */                                                                            \
    X(dot_f32, float, (const float *a, const float *b, size_t n))                                  \
    /* y = (x / sqrt(mean(x^2) + eps)) * w; the mean by sixteen lanes; w NULL: ones */             \
    X(rms_norm, void, (float *y, const float *x, const float *w, size_t n, float eps))             \
    /* y = fmaf((x - mean) / sqrt(var + eps), w, b); w, b may be NULL; two passes of lanes */      \
    X(layer_norm, void,                                                                            \
      (float *y, const float *x, const float *w, const float *b, size_t n, float eps))             \
    X(add, void, (float *y, const float *a, const float *b, size_t n))                             \
    X(scale, void, (float *y, const float *x, float s, size_t n))                                  \
    /* y = y + s x by fmaf */                                                                      \
    X(axpy, void, (float *y, const float *x, float s, size_t n))                                   \
    /* y = f(gate) * up */                                                                         \
    X(silu_mul, void, (float *y, const float *gate, const float *up, size_t n))                    \
    /* gelu by its tanh form */                                                                    \
    X(gelu_mul, void, (float *y, const float *gate, const float *up, size_t n))                    \
    /* gpt-oss: g = min(gate, 7), u = up cut to +-7: g / (1 + exp(-1.702 g)) * (u + 1) */          \
    X(clamped_mul, void, (float *y, const float *gate, const float *up, size_t n))                 \
    /* activations without a gate: gelu by its tanh form, by the error function; max(x, 0)^2 */    \
    X(gelu, void, (float *y, const float *x, size_t n))                                            \
    X(gelu_erf, void, (float *y, const float *x, size_t n))                                        \
    X(relu2, void, (float *y, const float *x, size_t n))                                           \
    /* y = a b; y = up / (1 + exp(-gate)) */                                                       \
    X(times, void, (float *y, const float *a, const float *b, size_t n))                           \
    X(sigmoid_mul, void, (float *y, const float *gate, const float *up, size_t n))                 \
    /* One row of a causal convolution of n channels, each by itself: y[c] = the sum over t        \
       ascending of w[c * taps + t] x[t][c] by fmaf from +0, then silu of that if asked.  x: the   \
       rows of the last `taps` positions, oldest first; y is none of them.  taps <= LODE_MAX_TAPS */ \
    X(conv_row, void,                                                                              \
      (float *y, const float *const *x, const float *w, size_t taps, size_t n, bool silu))         \
    /* The gated delta rule over n_t tokens, n columns of a state S (dim_k, n); see below */       \
    X(delta_rule, void, LODE_DELTA_ARGS)                                                           \
    /* y = cap tanh(x / cap) */                                                                    \
    X(softcap, void, (float *y, const float *x, float cap, size_t n))                              \
    /* Rotary embedding of n_heads heads that lie `stride` floats apart, in place: the first       \
       2 n_pairs numbers of each, as pairs (i, i + n_pairs).  cs: (n_pairs, 2) = cos, sin.         \
       a' = a c - b s = fmaf(a, c, -(b s)); b' = fmaf(a, s, b c) */                                \
    X(rope_half, void, (float *x, size_t stride, size_t n_heads, const float *cs, size_t n_pairs)) \
    /* One row of attention scores over one chunk of the cache, in place: v = s * scale, then      \
       cap tanh(v / cap) if cap > 0; *max = max v; s = exp(v - max); *sum = their sum by sixteen   \
       lanes.  n >= 1.  NaN is never the maximum, but makes the sum NaN; so do +infinity and n     \
       scores of -infinity. */                                                                   \
    X(softmax_part, void,                                                                          \
      (float *s, size_t n, float scale, float cap, float *max, float *sum))                        \
    /* Attention of many queries to a whole page; see below */                                     \
    X(att_score, void, LODE_ATT_SCORE_ARGS)                                                        \
    X(att_weigh, void, LODE_ATT_WEIGH_ARGS)                                                        \
    X(att_mix, void, LODE_ATT_MIX_ARGS)                                                            \
    /* activations: x -> blocks of A32 / A256; n a multiple of the block */                        \
    X(quant_a32, void, (void *y, const float *x, size_t n))                                        \
    X(quant_a256, void, (void *y, const float *x, size_t n))                                       \
    /* KV store: x -> n numbers of the format (round to nearest even; q8_0: GGML's Q8_0) */        \
    X(kv_put_f32, void, (void *y, const float *x, size_t n))                                       \
    X(kv_put_f16, void, (void *y, const float *x, size_t n))                                       \
    X(kv_put_bf16, void, (void *y, const float *x, size_t n))                                      \
    X(kv_put_q8_0, void, (void *y, const float *x, size_t n))

/* s[i * lds + j] = < q row i, k row j > by sixteen lanes, K widened to F32 (q8_0: (float)q * d,
 * one rounding).  q: n_q rows of dim floats, ldq floats apart; k: n_k rows, k_stride bytes apart.
 * next, here and in kv_mix: what the caller reads after these rows, or NULL.  With few queries rows
 * are asked for before they are needed, and what follows the last is there; no result depends on it. */
#define LODE_KV_SCORE_ARGS                                                                         \
    (float *s, size_t lds, const float *q, size_t ldq, size_t n_q, const void *k, size_t k_stride, \
     size_t n_k, size_t dim, const void *next)
/* o[i * ldo + c] = sum over j ascending of p[i * ldp + j] * v[j][c], by fmaf from +0, for
 * lo <= j < hi given per row i: rows attend to positions lo[i] .. hi[i]-1 of the chunk. */
#define LODE_KV_MIX_ARGS                                                                           \
    (float *o, size_t ldo, const float *p, size_t ldp, const uint32_t *lo, const uint32_t *hi,     \
     size_t n_q, const void *v, size_t v_stride, size_t dim, const void *next)

/* Many queries, side by side in memory, and n_k positions that they attend to, widened to floats: query i to
 * the first seen[i] >= 1 of them, or, seen == NULL, each to all.  seen never falls from one query to the next.  They give what kv_score, softmax_part, kv_mix and then the merging of pages (attention.c
 * of the CPU backend) give a query, bit for bit; nothing is summed across neighbours.  n_q, dim are
 * multiples of 16, n_k >= 1.
 *
 *     att_score   s[j][i] = < query i, k row j > by sixteen lanes; k: (n_k, dim), s: (n_k, n_q);
 *                 q: (16, dim / 16, n_q), number c of query i at [c % 16][c / 16][i]: lane by lane
 *     att_weigh   what is seen of each column of s as softmax_part does its row, giving m' and l'; then
 *                 first: max, total = m', l', a = 0, b = 1; else M = max > m' ? max : m',
 *                 a = exp(max - M), b = exp(m' - M), total = fmaf(l', b, total a), max = M
 *     att_mix     o' = the sum over seen j ascending of p[j][i] v[j] by fmaf from +0; first: o[i] = o',
 *                 else fmaf(o', b[i], o[i] a[i]).  p: (n_k, n_q), v: (n_k, dim), o: (n_q, dim) */
#define LODE_ATT_SCORE_ARGS                                                                        \
    (float *s, const float *q, size_t n_q, const float *k, size_t n_k, size_t dim)
#define LODE_ATT_WEIGH_ARGS                                                                        \
    (float *s, size_t n_q, size_t n_k, const uint32_t *seen, float scale, float cap, bool first,   \
     float *max, float *total, float *a, float *b)
#define LODE_ATT_MIX_ARGS                                                                          \
    (float *o, const float *p, size_t n_q, const float *v, size_t n_k, const uint32_t *seen,       \
     size_t dim, bool first, const float *a, const float *b)

/* For each token t, with decay, beta = gates[t * ldg], gates[t * ldg + 1] and k, q, v, o its rows
 * (ldx floats apart, of o ldo), for every column c:
 *
 *     m    = sum over i ascending of S[i][c] k[i], by fmaf from +0        what S holds at k
 *     d    = fmaf(-decay, m, v[c]) * beta
 *     S[i][c] = fmaf(k[i], d, S[i][c] * decay)                            for all i
 *     o[c] = sum over i ascending of S[i][c] q[i], by fmaf from +0
 *
 * Columns lie in blocks of sixteen, S[i][c] at s[(c / 16 * dim_k + i) * 16 + c % 16], so that a
 * block is one piece of memory that stays in the nearest cache from token to token.  n is a multiple
 * of 16.  Nothing depends on how tokens or columns are shared out among calls. */
#define LODE_DELTA_ARGS                                                                            \
    (float *o, size_t ldo, float *s, const float *q, const float *k, const float *v, size_t ldx,   \
     const float *gates, size_t ldg, size_t n_t, size_t dim_k, size_t n)

enum { LODE_MAX_TAPS = 8 };

#define LODE_KERN_LIST(X)                                                                          \
    LODE_KERN_PLAIN_LIST(X)                                                                        \
    LODE_MUL_LIST_BY(LODE_KERN_MUL, X)                                                             \
    X(kv_score_f32, void, LODE_KV_SCORE_ARGS)                                                      \
    X(kv_score_f16, void, LODE_KV_SCORE_ARGS)                                                      \
    X(kv_score_bf16, void, LODE_KV_SCORE_ARGS)                                                     \
    X(kv_score_q8_0, void, LODE_KV_SCORE_ARGS)                                                     \
    X(kv_mix_f32, void, LODE_KV_MIX_ARGS)                                                          \
    X(kv_mix_f16, void, LODE_KV_MIX_ARGS)                                                          \
    X(kv_mix_bf16, void, LODE_KV_MIX_ARGS)                                                         \
    X(kv_mix_q8_0, void, LODE_KV_MIX_ARGS)

struct lode_kern {
    const char *isa; /* what the table was made for, e.g. "avx512vnni" */
    bool tiles;      /* quantised products of many columns prepare them once for all rows that a call has (AMX) */
#define LODE_KERN_FIELD(name, ret, args) ret(*name) args;
    LODE_KERN_LIST(LODE_KERN_FIELD)
#undef LODE_KERN_FIELD
    /* The families by type; NULL where the type has none. */
    void(*mul[LODE_DTYPE_COUNT]) LODE_MUL_ARGS;
    void (*dequant[LODE_DTYPE_COUNT])(float *y, const void *x, size_t n);
    void (*kv_put[LODE_DTYPE_COUNT])(void *y, const float *x, size_t n);
    void(*kv_score[LODE_DTYPE_COUNT]) LODE_KV_SCORE_ARGS;
    void(*kv_mix[LODE_DTYPE_COUNT]) LODE_KV_MIX_ARGS;
};

/* Instruction sets, weakest first; each includes those before it on its architecture, but for
 * avxvnni, which is what processors without AVX-512 have in its place, and avx512zen4; this and avx512intel do without
 * avx512vbmi where that is not.
 * X(name, KiB of a thread's stack that its products take at most: tests/unit/test_stack.c). */
#define LODE_ISA_LIST(X)                                                                           \
    X(scalar, 8)                                                                                   \
    X(avx2, 248)       /* AVX2, FMA, F16C */                                                       \
    X(avxvnni, 248)    /* and AVX-VNNI, without AVX-512 */                                         \
    X(avx512, 124)     /* AVX2 and AVX-512 F, BW, VL, DQ */                                        \
    X(avx512vnni, 160) /* and VNNI */                                                              \
    X(avx512vbmi, 160) /* and VBMI, BITALG, GFNI: entries of codebooks are looked up 64 at a time */ \
    X(avx512zen4, 160) /* the same instructions as AMD's Zen 4 wants them: one column and keys and \
                          values as below, more columns by tiles asked for into the second level   \
                          (bench/notes/kern-zen4.md) */                                            \
    X(avx512intel, 160) /* the same instructions as Intel's cores want them: weights are read in   \
                           the order in which they lie, for one column, and widened once for many, \
                           as all vector instructions share two pipes there; keys and values by    \
                           kv_few.h (bench/notes/kern-intel.md) */                                 \
    X(amx, 352)         /* and tiles of 8-bit integers */                                          \
    X(neon, 124)

enum lode_isa {
#define LODE_ISA_ENUM(name, ...) LODE_ISA_##name,
    LODE_ISA_LIST(LODE_ISA_ENUM)
#undef LODE_ISA_ENUM
        LODE_ISA_COUNT
};

const char *lode_isa_name(enum lode_isa isa);
/* Whether this build has it and CPU and operating system can run it. */
bool lode_isa_usable(enum lode_isa isa);
enum lode_isa lode_isa_best(void);
/* Bytes of a thread's stack that products take at most. */
size_t lode_isa_stack(enum lode_isa isa);
/* By name; -1 unknown. */
int lode_isa_from_name(const char *name);

/* Fills the table: scalar versions, then everything up to `isa` laid over them. */
void lode_kern_table(struct lode_kern *t, enum lode_isa isa);

#endif
