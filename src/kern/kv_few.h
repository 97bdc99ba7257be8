/* kv_few.h - a page of keys and values for the few queries that share them in decoding (where VF_FEW_MIX
 * exists); after vf_widen of mul_body.h.
 *
 * Up to VF_FEW_QUERIES queries at a time, in registers of VP_LANES numbers: four keys, whose sums are joined
 * together, and up to VF_FEW_MIX accumulators of values, more than the multiply-adds' latency wants.  While a piece
 * is read, the same line of the next one (values after keys, then the next page) is asked for; where there is none,
 * its own: by vf_few_rows.  vf_few_near asks for what comes four rows later, where that goes to the second level and the first is not fed from
 * there by itself.
 * bench/notes/kern-float.md, kern-intel.md */
enum { VF_FEW_SUMS = 4 * VF_FEW_QUERIES };

/* CALL(Q, i) for n_q queries from query i on, Q of them (a constant) at a time. */
#define VF_FEW_EACH(n_q, CALL)                                                                                        \
    do {                                                                                                              \
        size_t i = 0;                                                                                                 \
        for (; i + VF_FEW_QUERIES <= (n_q); i += VF_FEW_QUERIES)                                                      \
            CALL(VF_FEW_QUERIES, i);                                                                                  \
        for (; VF_FEW_QUERIES > 2 && i + 2 <= (n_q); i += 2)                                                          \
            CALL(2, i);                                                                                               \
        for (; i < (n_q); i++)                                                                                        \
            CALL(1, i);                                                                                               \
    } while (0)

/* Sums of four keys by Q queries, of VP_LANES lanes: sum[4 i + n] of query i.  Where sixteen lanes are two
 * registers those from `part` on to `parts` are formed together and lanes l and l + 8 added up, so that 8
 * accumulators wait for no addition and no more is loaded than the multiply-adds leave time for. */
VF_INLINE void vf_few_keys(VP sum[VF_FEW_SUMS], enum vf_format f, size_t Q, const float *q, size_t ldq,
                           const char *k, size_t k_stride, size_t dim, const char *ask) {
    const size_t length = vf_step_length(f), size = vf_step_size(f), parts = VF_PARTS == 1 ? 1 : 2 / Q;
    for (size_t part = 0; part < VF_PARTS; part += parts) {
        VP acc[2][VF_FEW_SUMS];
        for (size_t i = 0; i < parts; i++)
            for (size_t n = 0; n < 4 * Q; n++)
                acc[i][n] = vp_set(0);
        const char *key = k;
        for (size_t c = 0; c < dim; c += length, key += size) {
            if (ask)
                for (size_t b = 0; b + 64 <= 4 * size * parts / VF_PARTS; b += 64, ask += 64) {
                    vf_few_rows(ask);
                    vf_few_near(k + 4 * k_stride + c / length * 4 * size + b);
                }
            for (size_t step = 0; step < length; step += 16)
                for (size_t i = 0; i < parts; i++) {
                    const size_t at = step + (part + i) * VP_LANES;
                    VP x[VF_FEW_QUERIES];
                    for (size_t j = 0; j < Q; j++)
                        x[j] = vp_held(vp_load(q + j * ldq + c + at));
                    for (size_t n = 0; n < 4; n++) {
                        const VP wide = vf_widen(f, key + n * k_stride, at);
                        for (size_t j = 0; j < Q; j++)
                            acc[i][4 * j + n] = vp_fma(wide, x[j], acc[i][4 * j + n]);
                    }
                }
        }
        for (size_t n = 0; n < 4 * Q; n++)
            sum[n] = parts == 2 ? vp_add(acc[0][n], acc[1][n]) : part ? vp_add(sum[n], acc[0][n]) : acc[0][n];
    }
}

/* Scores of four keys and Q queries: 1, 2 or VF_FEW_QUERIES. */
VF_INLINE void vf_few_score(enum vf_format f, size_t Q, float *s, size_t lds, const float *q, size_t ldq,
                            const char *k, size_t k_stride, size_t dim, const char *ask) {
    VP sum[VF_FEW_SUMS];
    vf_few_keys(sum, f, Q, q, ldq, k, k_stride, dim, ask);
    if (Q == 1)
        vp_join_4(s, sum);
    for (size_t i = 0; i + 2 <= Q; i += 2)
        vp_join_2_by_4(s + i * lds, s + (i + 1) * lds, sum + 4 * i);
}

/* False: not for these. */
VF_INLINE bool vf_few_scores(enum vf_format f, float *s, size_t lds, const float *q, size_t ldq, size_t n_q,
                             const char *k, size_t k_stride, size_t n_k, size_t dim, const char *next) {
    if (!vf_few_takes(f, n_q) || n_k % 4 || dim % vf_step_length(f) || k_stride > VF_SHORT_ROW)
        return false;
    const char *ask = next ? next : k;
    for (size_t j = 0; j < n_k; j += 4, k += 4 * k_stride, ask += 4 * k_stride, s += 4) {
#define CALL(Q, i) vf_few_score(f, Q, s + (i) * lds, lds, q + (i) * ldq, ldq, k, k_stride, dim, (i) ? NULL : ask)
        VF_FEW_EACH(n_q, CALL);
#undef CALL
    }
    return true;
}

/* Q queries by V registers of numbers of each value, from v and o on. */
VF_INLINE void vf_few_mix_tile(enum vf_format f, size_t Q, size_t V, float *o, size_t ldo, const float *p,
                               size_t ldp, const char *v, size_t v_stride, size_t n_k, const char *ask) {
    const size_t length = vf_step_length(f), size = vf_step_size(f), bytes = V * VP_LANES * size / length;
    VP acc[VF_FEW_MIX];
    for (size_t i = 0; i < Q * V; i++)
        acc[i] = vp_set(0);
    for (const float *end = p + n_k; p < end; p++, v += v_stride, ask = ask ? ask + v_stride : NULL) {
        VP weight[VF_FEW_QUERIES];
        for (size_t i = 0; i < Q; i++)
            weight[i] = vp_set(p[i * ldp]);
        if (ask)
            for (size_t at = 0; at < bytes; at += 64) {
                vf_few_rows(ask + at);
                vf_few_near(v + 4 * v_stride + at);
            }
        for (size_t b = 0; b < V; b++) {
            const size_t at = b * VP_LANES;
            const VP wide = vf_widen(f, v + at / length * size, at % length);
            for (size_t i = 0; i < Q; i++)
                acc[i * V + b] = vp_fma(weight[i], wide, acc[i * V + b]);
        }
    }
    for (size_t i = 0; i < Q; i++)
        for (size_t b = 0; b < V; b++)
            vp_store(o + i * ldo + b * VP_LANES, acc[i * V + b]);
}

VF_INLINE void vf_few_mix(enum vf_format f, size_t Q, float *o, size_t ldo, const float *p, size_t ldp,
                          const char *v, size_t v_stride, size_t n_k, size_t dim, const char *next) {
    const size_t length = vf_step_length(f), size = vf_step_size(f);
    size_t c = 0;
#define NUMBERS(V) /* blocks that share a scale are taken whole */                                                    \
    if (V * VP_LANES % length == 0 && Q * V <= VF_FEW_MIX)                                                            \
        for (; c + V * VP_LANES <= dim; c += V * VP_LANES)                                                            \
            vf_few_mix_tile(f, Q, V, o + c, ldo, p, ldp, v + c / length * size, v_stride, n_k,                        \
                            next ? next + c / length * size : NULL);
    NUMBERS(8)
    NUMBERS(6)
    NUMBERS(4)
    NUMBERS(2)
    NUMBERS(1)
#undef NUMBERS
}

/* False: not for these. */
VF_INLINE bool vf_few_mixes(enum vf_format f, float *o, size_t ldo, const float *p, size_t ldp,
                            const uint32_t *lo, const uint32_t *hi, size_t n_q, const char *v,
                            size_t v_stride, size_t dim, const char *next) {
    if (!vf_few_takes(f, n_q) || n_q == 0 || lo[0] > hi[0] || dim % vf_step_length(f))
        return false;
    for (size_t i = 1; i < n_q; i++)
        if (lo[i] != lo[0] || hi[i] != hi[0])
            return false;
    const char *from = v + lo[0] * v_stride;
    const size_t n = hi[0] - lo[0];
    p += lo[0];
    next = next ? next : from;
#define CALL(Q, i) vf_few_mix(f, Q, o + (i) * ldo, ldo, p + (i) * ldp, ldp, from, v_stride, n, dim, (i) ? NULL : next)
    VF_FEW_EACH(n_q, CALL);
#undef CALL
    return true;
}
