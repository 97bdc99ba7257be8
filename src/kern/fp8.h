/* fp8.h - the 256 numbers of each 8-bit float, c = | sign | exponent | mantissa |.
 *
 * E4M3 as torch's float8_e4m3fn: all ones is NaN, there is no infinity.  E5M2 is the upper byte of
 * a binary16. */
#ifndef LODE_KERN_FP8_H
#define LODE_KERN_FP8_H

#include <math.h>

#define FP8_SIGN(c) (float)((c) & 128 ? -1 : 1)
#define FP8_E4M3_EXP(c) ((c) >> 3 & 15)
#define FP8_E4M3(c)                                                                                \
    ((c) & 127) == 127 ? FP8_SIGN(c) * NAN                                                         \
    : FP8_E4M3_EXP(c)  ? FP8_SIGN(c) * (float)((8 + ((c) & 7)) << FP8_E4M3_EXP(c)) * 0x1p-10f      \
                       : FP8_SIGN(c) * (float)((c) & 7) * 0x1p-9f
#define FP8_E5M2_EXP(c) ((c) >> 2 & 31)
#define FP8_E5M2(c)                                                                                \
    FP8_E5M2_EXP(c) == 31 ? FP8_SIGN(c) * ((c) & 3 ? NAN : INFINITY)                               \
    : FP8_E5M2_EXP(c)                                                                              \
        ? FP8_SIGN(c) * (float)(4 + ((c) & 3)) * (float)(1u << FP8_E5M2_EXP(c)) * 0x1p-17f         \
        : FP8_SIGN(c) * (float)((c) & 3) * 0x1p-16f
#define FP8_4(f, c) f(c), f((c) + 1), f((c) + 2), f((c) + 3)
#define FP8_16(f, c) FP8_4(f, c), FP8_4(f, (c) + 4), FP8_4(f, (c) + 8), FP8_4(f, (c) + 12)
#define FP8_64(f, c) FP8_16(f, c), FP8_16(f, (c) + 16), FP8_16(f, (c) + 32), FP8_16(f, (c) + 48)
#define FP8_ALL(f) {FP8_64(f, 0), FP8_64(f, 64), FP8_64(f, 128), FP8_64(f, 192)}

static const float e4m3[256] = FP8_ALL(FP8_E4M3), e5m2[256] = FP8_ALL(FP8_E5M2);

#endif
