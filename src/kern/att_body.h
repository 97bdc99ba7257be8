/* att_body.h - attention of many queries to a whole page, over sixteen lanes (v16.h); after
 * mul_body.h and kv_body.h.
 *
 * A register holds neighbouring queries, so a lane of kern.h is a register of its own and joining
 * lanes adds whole registers: no shuffles, and the multiply-adds are all that binds. */

/* A tile of V registers of queries by N keys.  Lanes l and l + 8 are summed side by side and joined,
 * in an order of l in which the tree's next sum is always that of the two sums made last: 0 + 4,
 * 2 + 6, their sum, ...; `wait` holds those whose partner is still to come. */
VF_INLINE void vf_att_score_tile(size_t V, size_t N, float *s, const float *q, size_t n_q,
                                 const float *k, size_t dim) {
    static const uint8_t order[8] = {0, 4, 2, 6, 1, 5, 3, 7};
    VP wait[3][VF_ATT_KEYS][2];
    size_t n_wait = 0;
#pragma GCC unroll 8 /* the order known, nothing of the tree is left to be predicted */
    for (size_t i = 0; i < 8; i++) {
        VP low[VF_ATT_KEYS][2], high[VF_ATT_KEYS][2];
        for (size_t n = 0; n < N; n++)
            for (size_t v = 0; v < V; v++)
                low[n][v] = high[n][v] = vp_set(0);
        const float *x_low = q + order[i] * (dim / 16) * n_q, *x_high = x_low + dim / 2 * n_q;
        for (size_t c = order[i]; c < dim; c += 16, x_low += n_q, x_high += n_q) {
            VP x[2];
            for (size_t v = 0; v < V; v++)
                x[v] = vp_load(x_low + v * VP_LANES);
            for (size_t n = 0; n < N; n++) {
                const VP key = vp_held(vp_set(k[n * dim + c]));
                for (size_t v = 0; v < V; v++)
                    low[n][v] = vp_fma(x[v], key, low[n][v]);
            }
            for (size_t v = 0; v < V; v++)
                x[v] = vp_load(x_high + v * VP_LANES);
            for (size_t n = 0; n < N; n++) {
                const VP key = vp_held(vp_set(k[n * dim + c + 8]));
                for (size_t v = 0; v < V; v++)
                    high[n][v] = vp_fma(x[v], key, high[n][v]);
            }
        }
        for (size_t n = 0; n < N; n++)
            for (size_t v = 0; v < V; v++)
                low[n][v] = vp_add(low[n][v], high[n][v]);
        for (size_t m = i; m & 1; m >>= 1) {
            n_wait--;
            for (size_t n = 0; n < N; n++)
                for (size_t v = 0; v < V; v++)
                    low[n][v] = vp_add(wait[n_wait][n][v], low[n][v]);
        }
        for (size_t n = 0; n < N; n++)
            for (size_t v = 0; v < V; v++)
                if (i < 7)
                    wait[n_wait][n][v] = low[n][v];
                else
                    vp_store(s + n * n_q + v * VP_LANES, low[n][v]);
        n_wait++;
    }
}

VF_INLINE void vf_att_score(size_t V, float *s, const float *q, size_t n_q, const float *k,
                            size_t n_k, size_t dim) {
    size_t j = 0;
    for (; j + VF_ATT_KEYS <= n_k; j += VF_ATT_KEYS)
        vf_att_score_tile(V, VF_ATT_KEYS, s + j * n_q, q, n_q, k + j * dim, dim);
    for (; j + 2 <= n_k; j += 2)
        vf_att_score_tile(V, 2, s + j * n_q, q, n_q, k + j * dim, dim);
    for (; j < n_k; j++)
        vf_att_score_tile(V, 1, s + j * n_q, q, n_q, k + j * dim, dim);
}

void ISA(att_score) LODE_ATT_SCORE_ARGS {
    size_t i = 0; /* so few queries at a time stay in the nearest cache while the keys pass by */
    for (; i + 2 * VP_LANES <= n_q; i += 2 * VP_LANES)
        vf_att_score(2, s + i, q + i, n_q, k, n_k, dim);
    for (; i < n_q; i += VP_LANES)
        vf_att_score(1, s + i, q + i, n_q, k, n_k, dim);
}

void ISA(att_weigh) LODE_ATT_WEIGH_ARGS {
    for (size_t i = 0; i < n_q; i += 16) {
        VF lane[16];
        const size_t all_see = seen ? seen[i] : n_k; /* the first so many positions */
        for (size_t l = 0; l < 16; l++) {
            lane[l] = vf_set(-INFINITY);
            for (size_t j = l; j < n_k; j += 16) {
                VF v = vf_mul(vf_load(s + j * n_q + i), vf_set(scale));
                if (cap > 0)
                    v = vf_cap(v, cap);
                if (j >= all_see) /* e^-infinity adds nothing */
                    v = vf_hide(v, seen + i, (uint32_t)j);
                vf_store(s + j * n_q + i, v);
                lane[l] = vf_greater(v, lane[l]);
            }
        }
        for (size_t w = 8; w; w /= 2)
            for (size_t l = 0; l < w; l++)
                lane[l] = vf_greater(lane[l + w], lane[l]);
        const VF m = lane[0];
        for (size_t l = 0; l < 16; l++) {
            lane[l] = vf_set(0);
            for (size_t j = l; j < n_k; j += 16) {
                const VF e = vf_exp(vf_sub(vf_load(s + j * n_q + i), m));
                vf_store(s + j * n_q + i, e);
                lane[l] = vf_add(lane[l], e);
            }
        }
        for (size_t w = 8; w; w /= 2)
            for (size_t l = 0; l < w; l++)
                lane[l] = vf_add(lane[l], lane[l + w]);
        if (first) {
            vf_store(max + i, m);
            vf_store(total + i, lane[0]);
            vf_store(a + i, vf_set(0));
            vf_store(b + i, vf_set(1));
            continue;
        }
        const VF before = vf_load(max + i), top = vf_greater(before, m);
        const VF of_old = vf_exp(vf_sub(before, top)), of_new = vf_exp(vf_sub(m, top));
        vf_store(a + i, of_old);
        vf_store(b + i, of_new);
        vf_store(total + i, vf_fma(lane[0], of_new, vf_mul(vf_load(total + i), of_old)));
        vf_store(max + i, top);
    }
}

/* A tile of Q queries by V vectors of sixteen numbers; n_k: positions that all of them see. */
VF_INLINE void vf_att_mix_tile(size_t Q, size_t V, float *o, const float *p, size_t n_q,
                               const float *v, size_t n_k, const uint32_t *seen, size_t dim, bool first,
                               const float *a, const float *b) {
    VF acc[VF_MIX_MOST][VF_MIX_VECTORS], x[VF_MIX_VECTORS];
    for (size_t i = 0; i < Q; i++)
        for (size_t c = 0; c < V; c++)
            acc[i][c] = vf_set(0);
    for (size_t j = 0; j < n_k; j++) {
        for (size_t c = 0; c < V; c++)
            x[c] = vf_load(v + j * dim + 16 * c);
        for (size_t i = 0; i < Q; i++) {
            const VF weight = vf_set(p[j * n_q + i]);
            for (size_t c = 0; c < V; c++)
                acc[i][c] = vf_fma(weight, x[c], acc[i][c]);
        }
    }
    if (seen)
#pragma GCC unroll 8
        for (size_t i = 1; i < Q; i++)
            for (size_t j = n_k; j < seen[i]; j++) {
                const VF weight = vf_set(p[j * n_q + i]);
                for (size_t c = 0; c < V; c++)
                    acc[i][c] = vf_fma(weight, vf_load(v + j * dim + 16 * c), acc[i][c]);
            }
#pragma GCC unroll 8 /* else gcc keeps all accumulators in memory from here on */
    for (size_t i = 0; i < Q; i++) {
        float *y = o + i * dim;
        const VF of_old = vf_set(a[i]), of_new = vf_set(b[i]);
#pragma GCC unroll 8
        for (size_t c = 0; c < V; c++) {
            if (!first)
                acc[i][c] = vf_fma(acc[i][c], of_new, vf_mul(vf_load(y + 16 * c), of_old));
            vf_store(y + 16 * c, acc[i][c]);
        }
    }
}

VF_INLINE void vf_att_mix(size_t V, float *o, const float *p, size_t n_q, const float *v, size_t n_k,
                          const uint32_t *seen, size_t dim, bool first, const float *a, const float *b) {
    size_t i = 0;
#define VF_ATT_MIX_TILE(Q)                                                                         \
    vf_att_mix_tile(Q, V, o + i * dim, p + i, n_q, v, seen ? seen[i] : n_k, seen ? seen + i : NULL, dim, first, \
                    a + i, b + i)
    for (; (n_q - i) % VF_MIX_MOST; i += 4) /* a multiple of 16 is 0, 4 or 8 and a multiple of 6 */
        VF_ATT_MIX_TILE(4);
    for (; i < n_q; i += VF_MIX_MOST)
        VF_ATT_MIX_TILE(VF_MIX_MOST);
#undef VF_ATT_MIX_TILE
}
_Static_assert(VF_MIX_MOST == 6, "");

/* With a constant `seen` of NULL nothing is left of what only some queries see. */
VF_INLINE void vf_att_mix_all LODE_ATT_MIX_ARGS {
    size_t c = 0;
    for (; c + 16 * VF_MIX_VECTORS <= dim; c += 16 * VF_MIX_VECTORS)
        vf_att_mix(VF_MIX_VECTORS, o + c, p, n_q, v + c, n_k, seen, dim, first, a, b);
    for (; c < dim; c += 16)
        vf_att_mix(1, o + c, p, n_q, v + c, n_k, seen, dim, first, a, b);
}

void ISA(att_mix) LODE_ATT_MIX_ARGS {
    if (seen)
        vf_att_mix_all(o, p, n_q, v, n_k, seen, dim, first, a, b);
    else
        vf_att_mix_all(o, p, n_q, v, n_k, NULL, dim, first, a, b);
}
