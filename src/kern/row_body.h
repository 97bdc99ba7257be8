/* row_body.h - rows of floats: what row_scalar.c, act_scalar.c, rope_scalar.c and softmax_scalar.c
 * define, over sixteen lanes (v16.h). */
#include "kern/isa.h"

#include <math.h>

float ISA(dot_f32)(const float *a, const float *b, size_t n) {
    VF sum = vf_set(0);
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        sum = vf_fma(vf_load(a + i), vf_load(b + i), sum);
    if (i < n)
        sum = vf_fma(vf_load_n(a + i, n - i, 0.0f), vf_load_n(b + i, n - i, -0.0f), sum);
    return vf_join(sum);
}

/* y[i] = f(...) for all i; EXPR names the loads by L(pointer). */
#define VF_MAP(y, n, expr)                                                                         \
    do {                                                                                           \
        size_t i_ = 0;                                                                             \
        for (; i_ + 16 <= (n); i_ += 16)                                                           \
            vf_store((y) + i_, expr(VF_LOAD_ALL));                                                 \
        if (i_ < (n))                                                                              \
            vf_store_n((y) + i_, expr(VF_LOAD_SOME), (n) - i_);                                    \
    } while (0)
#define VF_LOAD_ALL(p, n) vf_load((p) + i_)
#define VF_LOAD_SOME(p, n) vf_load_n((p) + i_, (n) - i_, 0.0f)

void ISA(add)(float *y, const float *a, const float *b, size_t n) {
#define EXPR(load) vf_add(load(a, n), load(b, n))
    VF_MAP(y, n, EXPR);
#undef EXPR
}

void ISA(scale)(float *y, const float *x, float s, size_t n) {
#define EXPR(load) vf_mul(load(x, n), vf_set(s))
    VF_MAP(y, n, EXPR);
#undef EXPR
}

void ISA(axpy)(float *y, const float *x, float s, size_t n) {
#define EXPR(load) vf_fma(vf_set(s), load(x, n), load(y, n))
    VF_MAP(y, n, EXPR);
#undef EXPR
}

void ISA(rms_norm)(float *y, const float *x, const float *w, size_t n, float eps) {
    const VF root = vf_set(sqrtf(ISA(dot_f32)(x, x, n) / (float)n + eps));
    if (w) {
#define EXPR(load) vf_mul(vf_div(load(x, n), root), load(w, n))
        VF_MAP(y, n, EXPR);
#undef EXPR
    } else {
#define EXPR(load) vf_div(load(x, n), root)
        VF_MAP(y, n, EXPR);
#undef EXPR
    }
}

void ISA(layer_norm)(float *y, const float *x, const float *w, const float *b, size_t n,
                     float eps) {
    VF sum = vf_set(0), square = vf_set(0);
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        sum = vf_add(sum, vf_load(x + i));
    if (i < n)
        sum = vf_add(sum, vf_load_n(x + i, n - i, -0.0f));
    const VF mean = vf_set(vf_join(sum) / (float)n);

    for (i = 0; i + 16 <= n; i += 16) {
        const VF d = vf_sub(vf_load(x + i), mean);
        square = vf_fma(d, d, square);
    }
    if (i < n) {
        const VF d = vf_sub(vf_load_n(x + i, n - i, 0.0f), mean);
        square = vf_fma(vf_keep(d, n - i, 0.0f), vf_keep(d, n - i, -0.0f), square);
    }
    const VF root = vf_set(sqrtf(vf_join(square) / (float)n + eps));
    const VF one = vf_set(1.0f), none = vf_set(-0.0f); /* see layer_norm_scalar */
#define EXPR(load)                                                                                 \
    vf_fma(vf_div(vf_sub(load(x, n), mean), root), w ? load(w, n) : one, b ? load(b, n) : none)
    VF_MAP(y, n, EXPR);
#undef EXPR
}

void ISA(silu_mul)(float *y, const float *gate, const float *up, size_t n) {
#define EXPR(load) vf_mul(vf_silu(load(gate, n)), load(up, n))
    VF_MAP(y, n, EXPR);
#undef EXPR
}

void ISA(gelu_mul)(float *y, const float *gate, const float *up, size_t n) {
#define EXPR(load) vf_mul(vf_gelu(load(gate, n)), load(up, n))
    VF_MAP(y, n, EXPR);
#undef EXPR
}

void ISA(clamped_mul)(float *y, const float *gate, const float *up, size_t n) {
#define EXPR(load) vf_clamped(load(gate, n), load(up, n))
    VF_MAP(y, n, EXPR);
#undef EXPR
}

void ISA(gelu)(float *y, const float *x, size_t n) {
#define EXPR(load) vf_gelu(load(x, n))
    VF_MAP(y, n, EXPR);
#undef EXPR
}

void ISA(gelu_erf)(float *y, const float *x, size_t n) {
#define EXPR(load) vf_gelu_erf(load(x, n))
    VF_MAP(y, n, EXPR);
#undef EXPR
}

void ISA(relu2)(float *y, const float *x, size_t n) {
#define EXPR(load) vf_relu2(load(x, n))
    VF_MAP(y, n, EXPR);
#undef EXPR
}

void ISA(times)(float *y, const float *a, const float *b, size_t n) {
#define EXPR(load) vf_mul(load(a, n), load(b, n))
    VF_MAP(y, n, EXPR);
#undef EXPR
}

VF_FN VF vf_sigmoid_mul(VF gate, VF up) {
    const VF e = vf_exp(vf_sub(vf_set(-0.0f), gate));
    return vf_div(up, vf_add(vf_set(1.0f), e));
}

void ISA(sigmoid_mul)(float *y, const float *gate, const float *up, size_t n) {
#define EXPR(load) vf_sigmoid_mul(load(gate, n), load(up, n))
    VF_MAP(y, n, EXPR);
#undef EXPR
}

VF_FN VF vf_cap(VF x, float cap) {
    return vf_mul(vf_set(cap), vf_tanh(vf_div(x, vf_set(cap))));
}

void ISA(softcap)(float *y, const float *x, float cap, size_t n) {
#define EXPR(load) vf_cap(load(x, n), cap)
    VF_MAP(y, n, EXPR);
#undef EXPR
}

/* (a, b) turned by cs[i] = (cos, sin) */
VF_FN void vf_turn(VF *a, VF *b, VF c, VF s) {
    const VF bs = vf_mul(*b, s), bc = vf_mul(*b, c);
    *b = vf_fma(*a, s, bc);
    *a = vf_fma(*a, c, vf_sub(vf_set(-0.0f), bs));
}

void ISA(rope_half)(float *x, size_t stride, size_t n_heads, const float *cs, size_t n_pairs) {
    VF c, s;
    for (size_t h = 0; h < n_heads; h++, x += stride) {
        float *upper = x + n_pairs;
        size_t i = 0;
        for (; i + 16 <= n_pairs; i += 16) {
            VF a = vf_load(x + i), b = vf_load(upper + i);
            vf_load2(cs + 2 * i, &c, &s);
            vf_turn(&a, &b, c, s);
            vf_store(x + i, a);
            vf_store(upper + i, b);
        }
        if (i < n_pairs) {
            const size_t rest = n_pairs - i;
            float turns[32] = {0};
            memcpy(turns, cs + 2 * i, 2 * rest * sizeof *cs);
            VF a = vf_load_n(x + i, rest, 0.0f), b = vf_load_n(upper + i, rest, 0.0f);
            vf_load2(turns, &c, &s);
            vf_turn(&a, &b, c, s);
            vf_store_n(x + i, a, rest);
            vf_store_n(upper + i, b, rest);
        }
    }
}

void ISA(softmax_part)(float *s, size_t n, float scale, float cap, float *max, float *sum) {
    VF best = vf_set(-INFINITY), total = vf_set(0);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        VF v = vf_mul(vf_load(s + i), vf_set(scale));
        if (cap > 0)
            v = vf_cap(v, cap);
        vf_store(s + i, v);
        best = vf_greater(v, best);
    }
    if (i < n) {
        VF v = vf_mul(vf_load_n(s + i, n - i, 0.0f), vf_set(scale));
        if (cap > 0)
            v = vf_cap(v, cap);
        vf_store_n(s + i, v, n - i);
        best = vf_greater(vf_keep(v, n - i, -INFINITY), best);
    }
    *max = vf_join_max(best);

    const VF top = vf_set(*max);
    for (i = 0; i + 16 <= n; i += 16) {
        const VF e = vf_exp(vf_sub(vf_load(s + i), top));
        vf_store(s + i, e);
        total = vf_add(total, e);
    }
    if (i < n) {
        const VF e = vf_exp(vf_sub(vf_load_n(s + i, n - i, 0.0f), top));
        vf_store_n(s + i, e, n - i);
        total = vf_add(total, vf_keep(e, n - i, -0.0f));
    }
    *sum = vf_join(total);
}
