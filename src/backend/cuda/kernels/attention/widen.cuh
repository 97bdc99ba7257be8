/* widen.cuh - Q8_0 keys and values as the halves that --numerics tensor multiplies: d q, rounded once, two blocks of a row at a time, which
 * begin at a multiple of four bytes.  Halves end at 65504: what is beyond is infinite, as it is where keys and values are kept in F16. */
#ifndef LODE_CUDA_WIDEN_CUH
#define LODE_CUDA_WIDEN_CUH

#include "backend/cuda/kernels/common.cuh"

enum { WIDEN_NUMBERS = 64, WIDEN_BYTES = 2 * 34, WIDEN_PIECES = WIDEN_NUMBERS / 8 };

/* Two halves: the difference, which is exact for 1024 + u less 1152; the product. */
DEVICE uint32_t codes_of(uint32_t u) {
    uint32_t v;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(v) : "r"(u), "r"(0x64806480u));
    return v;
}
DEVICE uint32_t times_halves(uint32_t a, uint32_t b) {
    uint32_t v;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b));
    return v;
}
/* Eight codes, times d, which both halves of `d` are: 1024 + 128 + q is 0x6400 with q's byte, its sign turned, below. */
DEVICE uint4 widened_eight(uint32_t low, uint32_t high, uint32_t d) {
    low ^= 0x80808080u, high ^= 0x80808080u;
    return make_uint4(times_halves(codes_of(__byte_perm(low, 0x64646464u, 0x5140)), d), times_halves(codes_of(__byte_perm(low, 0x64646464u, 0x5342)), d),
                      times_halves(codes_of(__byte_perm(high, 0x64646464u, 0x5140)), d), times_halves(codes_of(__byte_perm(high, 0x64646464u, 0x5342)), d));
}
/* word(i): the i-th of the pair's 17; put(i, v): its numbers 8 i to 8 i + 7. */
template <class W, class F> DEVICE void widen_pair(W word, F put) {
    uint32_t last = word(0), d = __byte_perm(last, 0, 0x1010);
#pragma unroll
    for (uint32_t k = 0; k < 4; k++) { /* codes begin in the middle of a word */
        const uint32_t a = word(2 * k + 1), b = word(2 * k + 2);
        put(k, widened_eight(__funnelshift_r(last, a, 16), __funnelshift_r(a, b, 16), d));
        last = b;
    }
    d = __byte_perm(last, 0, 0x3232);
#pragma unroll
    for (uint32_t k = 0; k < 4; k++)
        put(4 + k, widened_eight(word(2 * k + 9), word(2 * k + 10), d));
}

#endif
