/* exp_body.h - exp, tanh and the activations, written once for one number and for sixteen.
 *
 * Whoever includes this (expf.h for float, v16_*.h for vectors) has defined the type VF and
 *
 *     VF_FN                  what functions of VF are declared with
 *     vf_set(float)          all lanes                vf_add, vf_sub, vf_mul, vf_div   IEEE
 *     vf_fma(a, b, c)        a b + c, one rounding    vf_lesser(a, b)   a < b ? a : b
 *     vf_abs(x)                                       vf_greater(a, b)  a > b ? a : b
 *     vf_sign(x, s)          |x| with the sign of s
 *     vf_pow2(t), vf_times_pow2(x, t): with n the integer in the low bits of t, which has had MAGIC
 *         added: 2^n, x 2^n with one rounding.  No other t is ever used but NaN, for which any
 *         result of vf_pow2 will do, and x is NaN then too.
 *
 * Since every step is one IEEE operation, all of them give the same bits (NaNs aside: that a
 * result is NaN is defined, its payload is not).
 *
 * exp.  n = round(x / ln 2), r = x - n ln 2 in two FMA steps (the first is exact: n ln2_hi and x
 * are close), e^r = 1 + (r + r^2 q(r)) with a minimax q of degree 4, result times 2^n, by
 * 2^(n >> 1) and 2^(n - (n >> 1)) one after the other where there is no instruction for it, so
 * that subnormal results are rounded once.  Error, relative to the result, in units of
 * u = 2^-24, where |r| <= 0.3467 and 0.707 <= e^r <= 1.415:
 *     r               |r| half an ulp: u/4 absolute                                0.36
 *     q               approximation 2^-28.2 relative to e^r                        0.06
 *     r + r^2 q       rounding of r^2 and q, 0.12 u each times 1/2; of the sum, u/4: 0.6
 *     1 + ...         half an ulp: u (of results from 1), u/2 below: relative <=   1.0
 *     total           2.02, taken as  2.1 u = 1.05 * 2^-23; and below 2^-126 half of 2^-149 more.
 * Above 88.73 it is infinity, below -103.98 it is 0, of NaN it is NaN.
 *
 * tanh(x) = m / (m + 2) with m = e^2|x| - 1 = 2^n (r + r^2 q) + (2^n - 1), which keeps all of the
 * relative accuracy near 0.  With y = 2|x|: the relative error of m is at worst that of n = 1,
 * r = -ln 2 / 2: 2^n p = -0.586 with p's relative error: r's u/4 / 0.29 = 0.86, the sum's u/4 /
 * 0.29 = 0.86, products 0.3, approximation 0.1 -> 2.1 u; so 1.25 u absolute on m = 0.414, 3.0 u,
 * + 1/2 ulp: 4.0 u.  m / (m + 2) does not amplify (derivative 2 / (m + 2) <= 1); the sum and the
 * quotient add 1 u each: 6.0 u = 3 * 2^-23 in all.  For tiny x the result is x.
 *
 * silu(x) = x / (1 + e^-x): exp 2.1, sum 1, quotient 1: 4.1 u.
 * gelu(x) = x / (1 + e^z), z = -2 sqrt(2/pi) (x + 0.044715 x^3), which is x (1 + tanh(-z/2)) / 2
 * without its cancellation for negative x.  z is two products and one FMA, |z| 3.5 u with the
 * constants' own rounding, which the exponential turns into |z| 3.5 u relative: (|z| 3.5 + 4.1) u.
 *
 * gelu_erf(x) = x Phi(x) = max(x, 0) - |x| Q(|x|), Q(t) = Phi(-t) = e^(-t^2/2) s g(s) with
 * s = 1 / (1 + 0.3 t) and a minimax g of degree 9 in w = s - 0.4, for t <= 14.5 (beyond, e^(-t^2/2)
 * is 0).  Error of Q, relative, in u, from the maxima over t of the terms of Horner's scheme:
 *     s               its sum 1, quotient 1; d ln Q / d ln s <= 2.66                5.4
 *     w, g            w's own rounding 1.0, Horner 2.1 (sum of both and s: 8.4), approximation 0.7
 *     e^(-t^2/2)      exp 2.1, its argument's rounding t^2/2; two products 2
 *     total           13.3 + t^2/2
 * For x < 0 the result is a rounding more; for x > 0 Q's error counts Q / (1 - Q) <= 1 times, so
 * (14.3 + x^2/2) u bounds both.
 *
 * swish(x, b) = x / (1 + e^(-b x)): the product and the constant round, 2 |b x| through exp:
 * (4.1 + 2 |b x|) u.
 */
#define VF_MAGIC 0x1.8p23f /* adding it rounds to an integer and leaves that in the low bits */

/* e^r - 1 for x = n ln 2 + r; *t = n + MAGIC */
VF_FN VF vf_expm1_part(VF x, VF *t) {
    *t = vf_fma(x, vf_set(0x1.715476p+0f), vf_set(VF_MAGIC));
    const VF n = vf_sub(*t, vf_set(VF_MAGIC));
    VF r = vf_fma(n, vf_set(-0x1.62e43p-1f), x);
    r = vf_fma(n, vf_set(0x1.05c61p-29f), r);
    VF q = vf_set(0x1.6a511ap-10f);
    q = vf_fma(q, r, vf_set(0x1.12397cp-7f));
    q = vf_fma(q, r, vf_set(0x1.5558acp-5f));
    q = vf_fma(q, r, vf_set(0x1.555492p-3f));
    q = vf_fma(q, r, vf_set(0x1.fffffcp-2f));
    return vf_fma(vf_mul(r, r), q, r);
}

VF_FN VF vf_exp(VF x) {
    VF t;
    /* in this order NaN passes; the ends lie beyond overflow and underflow */
    x = vf_greater(vf_set(-104.0f), vf_lesser(vf_set(89.0f), x));
    const VF e = vf_add(vf_set(1.0f), vf_expm1_part(x, &t));
    return vf_times_pow2(e, t);
}

VF_FN VF vf_tanh(VF x) {
    VF t;
    const VF a = vf_abs(x);
    const VF y = vf_lesser(vf_set(20.0f), vf_add(a, a)); /* tanh(10) rounds to 1 */
    const VF p = vf_expm1_part(y, &t), s = vf_pow2(t);
    const VF m = vf_fma(s, p, vf_sub(s, vf_set(1.0f)));
    return vf_sign(vf_div(m, vf_add(m, vf_set(2.0f))), x);
}

VF_FN VF vf_silu(VF x) {
    const VF e = vf_exp(vf_sub(vf_set(-0.0f), x));
    return vf_div(x, vf_add(vf_set(1.0f), e));
}

VF_FN VF vf_gelu(VF x) {
    /* -2 sqrt(2/pi) and that times 0.044715 */
    const VF c = vf_fma(vf_mul(x, x), vf_set(-0.071354814f), vf_set(-1.5957691f));
    return vf_div(x, vf_add(vf_set(1.0f), vf_exp(vf_mul(x, c))));
}

/* x^2 of what is positive */
VF_FN VF vf_relu2(VF x) {
    const VF r = vf_greater(vf_set(0.0f), x); /* NaN passes */
    return vf_mul(r, r);
}

VF_FN VF vf_gelu_erf(VF x) {
    const VF t = vf_lesser(vf_set(14.5f), vf_abs(x));
    const VF s = vf_div(vf_set(1.0f), vf_fma(vf_set(0.3f), t, vf_set(1.0f)));
    const VF w = vf_sub(s, vf_set(0.4f));
    VF g = vf_set(-0x1.3d185ep-6f);
    g = vf_fma(g, w, vf_set(0x1.261c7ep-5f));
    g = vf_fma(g, w, vf_set(0x1.cecee2p-7f));
    g = vf_fma(g, w, vf_set(-0x1.be9e5ap-5f));
    g = vf_fma(g, w, vf_set(-0x1.965ae4p-5f));
    g = vf_fma(g, w, vf_set(0x1.f624bp-5f));
    g = vf_fma(g, w, vf_set(0x1.a0de9ep-3f));
    g = vf_fma(g, w, vf_set(0x1.20cc98p-2f));
    g = vf_fma(g, w, vf_set(0x1.10d2cap-2f));
    g = vf_fma(g, w, vf_set(0x1.89d3aep-3f));
    const VF e = vf_exp(vf_mul(vf_mul(t, vf_set(-0.5f)), t));
    const VF q = vf_mul(vf_mul(s, g), e);
    return vf_fma(vf_sub(vf_set(-0.0f), t), q, vf_greater(x, vf_set(0.0f)));
}

VF_FN VF vf_swish(VF x, float b) {
    return vf_div(x, vf_add(vf_set(1.0f), vf_exp(vf_mul(x, vf_set(-b)))));
}

/* gpt-oss: swish of the gate cut at 7, times the other cut at +-7, plus one */
VF_FN VF vf_clamped(VF gate, VF up) {
    const VF a = vf_swish(vf_lesser(vf_set(7.0f), gate), 1.702f);
    const VF b = vf_greater(vf_set(-7.0f), vf_lesser(vf_set(7.0f), up));
    return vf_mul(a, vf_add(b, vf_set(1.0f)));
}
