/* dmath_body.h - the functions of dmath.h, once for every processor: an including file has defined
 * DMATH, what stands before a function there, and DMATH_STATIC, before one of the file alone, and has
 * included math.h, stdint.h and string.h. */
DMATH_STATIC double dmath_from_bits(uint64_t bits) {
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}

DMATH_STATIC uint64_t dmath_to_bits(double d) {
    uint64_t bits;
    memcpy(&bits, &d, sizeof bits);
    return bits;
}

/* ln 2 in two parts; the first has 21 trailing zero bits, so that k * LN2_HI is exact */
#define LN2_HI 0x1.62e42fee00000p-1
#define LN2_LO 0x1.a39ef35793c76p-33

DMATH double lode_exp(double x) {
    if (isnan(x))
        return x;
    if (x > 709.8)
        return INFINITY;
    if (x < -745.2)
        return 0.0;
    /* x = k ln2 + r, |r| <= ln2/2; exp(r) by its Taylor series to r^13 (remainder < 2^-60) */
    const double k = floor(x * 0x1.71547652b82fep+0 + 0.5);
    const double r = (x - k * LN2_HI) - k * LN2_LO;
    double p = 1.0 / 6227020800.0;
    static const double inverse_factorial[] = {
        1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0, 1.0 / 362880.0, 1.0 / 40320.0,
        1.0 / 5040.0,      1.0 / 720.0,      1.0 / 120.0,     1.0 / 24.0,     1.0 / 6.0,
        0.5};
    for (unsigned i = 0; i < sizeof inverse_factorial / sizeof *inverse_factorial; i++)
        p = p * r + inverse_factorial[i];
    const double e = 1.0 + (r + r * r * p);
    const int n = (int)k;
    if (n > 1023)
        return e * dmath_from_bits((uint64_t)(n - 1 + 1023) << 52) * 2.0;
    if (n < -1022)
        return e * dmath_from_bits((uint64_t)(n + 60 + 1023) << 52) * 0x1p-60;
    return e * dmath_from_bits((uint64_t)(n + 1023) << 52);
}

DMATH double lode_log(double x) {
    if (isnan(x) || x < 0)
        return NAN;
    if (x == 0)
        return -INFINITY;
    if (isinf(x))
        return x;
    int k = 0;
    if (x < 0x1p-1022) {
        x *= 0x1p54;
        k = -54;
    }
    uint64_t bits = dmath_to_bits(x);
    k += (int)(bits >> 52) - 1023;
    double m = dmath_from_bits((bits & 0xfffffffffffffu) | 0x3ff0000000000000u); /* [1, 2) */
    if (m > 0x1.6a09e667f3bcdp+0) {
        m *= 0.5;
        k++;
    }
    /* log m = 2 atanh(s), s = (m-1)/(m+1), |s| < 0.1716; s^2 series to s^23 */
    const double f = m - 1.0, s = f / (m + 1.0), z = s * s;
    double p = 0.0;
    for (int i = 23; i >= 3; i -= 2)
        p = (p + 1.0 / i) * z;
    /* 2s = f - s f, so log m = f - s (f - 2 p) : keeps f's exact bits in front */
    return k * LN2_HI + (f - (s * (f - 2.0 * p) - k * LN2_LO));
}

DMATH double lode_pow(double x, double y) { return lode_exp(y * lode_log(x)); }

DMATH void lode_sincos(double x, double *s, double *c) {
    if (!isfinite(x)) {
        *s = *c = NAN;
        return;
    }
    /* pi/2 in three parts of 33 bits (Cody and Waite): k * part is exact for k < 2^20 */
    const double k = floor(x * 0x1.45f306dc9c883p-1 + 0.5);
    const double r = ((x - k * 0x1.921fb54400000p+0) - k * 0x1.0b4611a600000p-34) -
                     k * 0x1.3198a2e037073p-69;
    const double z = r * r;
    double ps = 0.0, pc = 0.0;
    for (int i = 19; i >= 3; i -= 2) /* sin r = r - r^3/3! + ... */
        ps = (1.0 - ps) * z / ((double)i * (i - 1));
    for (int i = 20; i >= 4; i -= 2)
        pc = (1.0 - pc) * z / ((double)i * (i - 1));
    const double sn = r - r * ps, cs = 1.0 - (0.5 * z - 0.5 * z * pc);
    switch ((int64_t)k & 3) {
    case 0:
        *s = sn, *c = cs;
        break;
    case 1:
        *s = cs, *c = -sn;
        break;
    case 2:
        *s = -sn, *c = -cs;
        break;
    default:
        *s = -cs, *c = sn;
        break;
    }
}
