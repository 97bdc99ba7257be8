/* kv_few.h - a page of keys and values for the few queries that share them in decoding, where sixteen lanes are
 * two registers (VF_FEW_MIX exists); after vf_widen of mul_body.h.
 *
 * One or two queries at a time, in registers of VP_LANES numbers: four keys, whose sums are joined together, and
 * up to VF_FEW_MIX accumulators of values, more than the multiply-adds' latency wants.  While a piece is read, the
 * same line of the next one (values after keys, then the next page) is asked for; where there is none, its own.
 * bench/notes/kern-float.md */

/* Sums of four keys by Q queries, lanes l and l + 8 added up: sum[4 i + n] of query i.  Lanes from `part` VP_LANES
 * on to `parts` are formed together, so that 8 accumulators wait for no addition and no more is loaded than the
 * multiply-adds leave time for. */
VF_INLINE void vf_few_keys(VP sum[8], enum vf_format f, size_t Q, const float *q, size_t ldq, const char *k,
                           size_t k_stride, size_t dim, const char *ask) {
    const size_t length = vf_step_length(f), size = vf_step_size(f), parts = 2 / Q;
    for (size_t part = 0; part < VF_PARTS; part += parts) {
        VP acc[2][8];
        for (size_t i = 0; i < parts; i++)
            for (size_t n = 0; n < 4 * Q; n++)
                acc[i][n] = vp_set(0);
        const char *key = k;
        for (size_t c = 0; c < dim; c += length, key += size) {
            for (size_t b = 0; b + 64 <= 4 * size * parts / VF_PARTS; b += 64, ask += 64)
                vf_prefetch(ask);
            for (size_t step = 0; step < length; step += 16)
                for (size_t i = 0; i < parts; i++) {
                    const size_t at = step + (part + i) * VP_LANES;
                    VP x[2];
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

/* Scores of four keys and Q queries, 1 or 2. */
VF_INLINE void vf_few_score(enum vf_format f, size_t Q, float *s, size_t lds, const float *q, size_t ldq,
                            const char *k, size_t k_stride, size_t dim, const char *ask) {
    VP sum[8];
    vf_few_keys(sum, f, Q, q, ldq, k, k_stride, dim, ask);
    if (Q == 1)
        vp_join_4(s, sum);
    else
        vp_join_2_by_4(s, s + lds, sum);
}

/* False: not for these. */
VF_INLINE bool vf_few_scores(enum vf_format f, float *s, size_t lds, const float *q, size_t ldq, size_t n_q,
                             const char *k, size_t k_stride, size_t n_k, size_t dim, const char *next) {
    if (n_k % 4 || dim % vf_step_length(f) || k_stride > VF_SHORT_ROW)
        return false;
    const char *ask = next ? next : k;
    for (size_t j = 0; j < n_k; j += 4, k += 4 * k_stride, ask += 4 * k_stride, s += 4) {
        size_t i = 0;
        for (; i + 2 <= n_q; i += 2)
            vf_few_score(f, 2, s + i * lds, lds, q + i * ldq, ldq, k, k_stride, dim, ask);
        if (i < n_q)
            vf_few_score(f, 1, s + i * lds, lds, q + i * ldq, ldq, k, k_stride, dim, ask);
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
    for (const float *end = p + n_k; p < end; p++, v += v_stride, ask += v_stride) {
        VP weight[2];
        for (size_t i = 0; i < Q; i++)
            weight[i] = vp_set(p[i * ldp]);
        for (size_t at = 0; at < bytes; at += 64)
            vf_prefetch(ask + at);
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
#define NUMBERS(V, if_fit)                                                                                            \
    for (; if_fit && Q * V <= VF_FEW_MIX && c + V * VP_LANES <= dim; c += V * VP_LANES)                               \
        vf_few_mix_tile(f, Q, V, o + c, ldo, p, ldp, v + c / length * size, v_stride, n_k, next + c / length * size);
    NUMBERS(8, true)
    NUMBERS(6, !vf_scaled(f)) /* blocks that share a scale are taken whole */
    NUMBERS(4, true)
    NUMBERS(2, !vf_scaled(f))
#undef NUMBERS
}

/* False: not for these. */
VF_INLINE bool vf_few_mixes(enum vf_format f, float *o, size_t ldo, const float *p, size_t ldp,
                            const uint32_t *lo, const uint32_t *hi, size_t n_q, const char *v,
                            size_t v_stride, size_t dim, const char *next) {
    if (n_q == 0 || lo[0] > hi[0] || dim % vf_step_length(f))
        return false;
    for (size_t i = 1; i < n_q; i++)
        if (lo[i] != lo[0] || hi[i] != hi[0])
            return false;
    const char *from = v + lo[0] * v_stride;
    const size_t n = hi[0] - lo[0];
    p += lo[0];
    size_t i = 0;
    for (; i + 2 <= n_q; i += 2)
        vf_few_mix(f, 2, o + i * ldo, ldo, p + i * ldp, ldp, from, v_stride, n, dim, next ? next : from);
    if (i < n_q)
        vf_few_mix(f, 1, o + i * ldo, ldo, p + i * ldp, ldp, from, v_stride, n, dim, next ? next : from);
    return true;
}
