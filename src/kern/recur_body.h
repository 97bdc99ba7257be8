/* recur_body.h - what recur_scalar.c defines, over sixteen lanes (v16.h). */

/* w of sixteen channels, one vector a tap; only n of them are there */
static inline void vf_load_taps(VF *out, const float *w, size_t taps, size_t n) {
    float turned[LODE_MAX_TAPS * 16];
    if (taps == 4 && n == 16) { /* even and odd ones, twice */
        VF a, b, c, d;
        vf_load2(w, &a, &b);
        vf_load2(w + 32, &c, &d);
        vf_store(turned, a);
        vf_store(turned + 16, c);
        vf_store(turned + 32, b);
        vf_store(turned + 48, d);
        vf_load2(turned, &out[0], &out[2]);
        vf_load2(turned + 32, &out[1], &out[3]);
        return;
    }
    for (size_t t = 0; t < taps; t++) {
        for (size_t c = 0; c < 16; c++)
            turned[t * 16 + c] = c < n ? w[c * taps + t] : 0.0f;
        out[t] = vf_load(turned + t * 16);
    }
}

void ISA(conv_row)(float *y, const float *const *x, const float *w, size_t taps, size_t n,
                   bool silu) {
    VF tap[LODE_MAX_TAPS];
    for (size_t c = 0; c < n; c += 16) {
        const size_t some = n - c < 16 ? n - c : 16;
        VF sum = vf_set(0);
        vf_load_taps(tap, w + c * taps, taps, some);
        for (size_t t = 0; t < taps; t++)
            sum = vf_fma(tap[t], some == 16 ? vf_load(x[t] + c) : vf_load_n(x[t] + c, some, 0.0f),
                         sum);
        if (silu)
            sum = vf_silu(sum);
        if (some == 16)
            vf_store(y + c, sum);
        else
            vf_store_n(y + c, sum, some);
    }
}

#define VF_DELTA_BLOCKS (VP_LANES == 16 ? 4 : 1) /* whose sums fit into the registers */

/* B blocks of columns.  One pass over S a token: what is updated for this token is at once summed
 * for its output and for what the next token finds at its key. */
VF_INLINE void vf_delta(size_t B, float *o, size_t ldo, float *s, const float *q, const float *k,
                        const float *v, size_t ldx, const float *gates, size_t ldg, size_t n_t,
                        size_t dim_k) {
    VF m[4], d[4], sum[4];
    for (size_t b = 0; b < B; b++) {
        m[b] = vf_set(0);
        for (size_t i = 0; n_t && i < dim_k; i++)
            m[b] = vf_fma(vf_load(s + (b * dim_k + i) * 16), vf_set(k[i]), m[b]);
    }
    for (size_t t = 0; t < n_t; t++, o += ldo, q += ldx, k += ldx, v += ldx, gates += ldg) {
        const VF decay = vf_set(gates[0]), beta = vf_set(gates[1]);
        const float *next = t + 1 < n_t ? k + ldx : k; /* of the last: summed and not used */
        for (size_t b = 0; b < B; b++) {
            d[b] = vf_mul(vf_fma(vf_set(-gates[0]), m[b], vf_load(v + 16 * b)), beta);
            m[b] = sum[b] = vf_set(0);
        }
        for (size_t i = 0; i < dim_k; i++) {
            const VF ki = vf_set(k[i]), qi = vf_set(q[i]), ni = vf_set(next[i]);
            for (size_t b = 0; b < B; b++) {
                float *at = s + (b * dim_k + i) * 16;
                const VF x = vf_fma(ki, d[b], vf_mul(vf_load(at), decay));
                vf_store(at, x);
                sum[b] = vf_fma(x, qi, sum[b]);
                m[b] = vf_fma(x, ni, m[b]);
            }
        }
        for (size_t b = 0; b < B; b++)
            vf_store(o + 16 * b, sum[b]);
    }
}

void ISA(delta_rule) LODE_DELTA_ARGS {
    size_t c = 0;
#define GROUP(B)                                                                                   \
    if (B <= VF_DELTA_BLOCKS)                                                                      \
        for (; c + 16 * B <= n; c += 16 * B)                                                       \
            vf_delta(B, o + c, ldo, s + c * dim_k, q, k, v + c, ldx, gates, ldg, n_t, dim_k);
    GROUP(4)
    GROUP(2)
    GROUP(1)
#undef GROUP
}
