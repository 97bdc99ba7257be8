/* widen.cuh - Q8_0 keys and values as the halves that --numerics tensor multiplies: d q, rounded once, two blocks of a row at a time, which
 * begin at a multiple of four bytes.  Halves end at 65504: what is beyond is infinite, as it is where keys and values are kept in F16. */
#ifndef LODE_CUDA_WIDEN_CUH
#define LODE_CUDA_WIDEN_CUH

#include "backend/cuda/kernels/halves.cuh"

enum { WIDEN_NUMBERS = 64, WIDEN_BYTES = 2 * 34, WIDEN_PIECES = WIDEN_NUMBERS / 8 };

/* Codes, times d, which both halves of `d` are: 1024 + 128 + q is 0x6400 with q's byte, its sign turned, below.  The difference is exact. */
DEVICE uint32_t widened_two(uint32_t turned, uint32_t which, uint32_t d) {
    return mul_halves(sub_halves(__byte_perm(turned, 0x64646464u, which), 0x64806480u), d);
}
DEVICE uint4 widened_eight(uint32_t low, uint32_t high, uint32_t d) {
    low ^= 0x80808080u, high ^= 0x80808080u;
    return make_uint4(widened_two(low, 0x5140, d), widened_two(low, 0x5342, d), widened_two(high, 0x5140, d), widened_two(high, 0x5342, d));
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
