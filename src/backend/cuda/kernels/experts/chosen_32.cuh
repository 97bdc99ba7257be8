/* chosen_32.cuh - rows of chosen experts in types of blocks of 32, in shared memory: a block by a thread, dp4a.
 *
 * x lies there as planes: the first 16 bytes of all blocks, then their other 16, then d and sum of each.  Neighbours that have neighbouring
 * blocks have all banks, those that have one block of several rows read it once. */
#ifndef LODE_CUDA_CHOSEN_32_CUH
#define LODE_CUDA_CHOSEN_32_CUH

#include "chosen.cuh"
#include "backend/cuda/kernels/products/parts.cuh"

/* ---- codes by x ---- */

struct reads_shared {
    DEVICE_MEMBER uint4 load16(const uint8_t *p) { return *(const uint4 *)p; }
    DEVICE_MEMBER uint2 load8(const uint8_t *p) { return *(const uint2 *)p; }
    DEVICE_MEMBER uint32_t load4(const uint8_t *p) { return *(const uint32_t *)p; }
    DEVICE_MEMBER uint16_t load2(const uint8_t *p) { return *(const uint16_t *)p; }
    DEVICE_MEMBER uint8_t load1(const uint8_t *p) { return *p; }
};
DEVICE int dot16(uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint4 x) {
    return dp4a((int)d, (int)x.w, dp4a((int)c, (int)x.z, dp4a((int)b, (int)x.y, dp4a((int)a, (int)x.x, 0))));
}

/* Of a block of codes, each OFFSET too large, the products with x's first 16 and its last.  PAIRED: with numbers of x in the order 0, 16,
 * 1, 17 and so on. */
template <class T> struct codes_of {
    enum { PAIRED = false, OFFSET = T::OFFSET };
    DEVICE_MEMBER int2 dots(const uint8_t *row, uint32_t nb, uint32_t b, uint4 x, uint4 y) const {
        struct reads_shared in;
        struct chunk c;
        T::chunk_at(c, in, row, nb, b, 0);
        return make_int2(dot16(c.q[0], c.q[1], c.q[2], c.q[3], x), dot16(c.q[4], c.q[5], c.q[6], c.q[7], y));
    }
};

/* A permutation of bytes takes of each code of four bits three to say which byte, and the fourth to say that not the byte is wanted but its
 * sign, eight times.  So codes without a sign find 64 + w in the first table, where no byte has one, and the others 0; with the fourth bits
 * turned it is those that find theirs, in the second.  That way codes are used in the order in which they lie, and it is x that is put in it.
 *
 * Half of a table is in a register, which comes from another thread so that compilers do not know what it is: they set a constant anew before
 * each permutation. */
template <> struct codes_of<struct mxfp4> {
    enum { PAIRED = true, OFFSET = 64 };
    uint32_t up = __shfl_xor_sync(0xffffffffu, 0x43424140, 1), down = __shfl_xor_sync(0xffffffffu, 0x3d3e3f40, 1);
    static DEVICE_MEMBER uint32_t find(uint32_t lo, uint32_t hi, uint32_t codes) {
        uint32_t r;
        asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(lo), "r"(hi), "r"(codes));
        return r;
    }
    DEVICE_MEMBER uint32_t four(uint32_t v, uint32_t turned) const { return find(up, 0x4c484644, v) | find(down, 0x34383a3c, turned); }
    DEVICE_MEMBER int dot(uint32_t u, uint32_t v, uint4 x) const {
        const uint32_t s = u ^ 0x88888888, t = v ^ 0x88888888;
        return dot16(four(u, s), four(u >> 16, s >> 16), four(v, t), four(v >> 16, t >> 16), x);
    }
    DEVICE_MEMBER int2 dots(const uint8_t *row, uint32_t, uint32_t b, uint4 x, uint4 y) const {
        const uint4 v = *(const uint4 *)(row + b * 16);
        return make_int2(dot(v.x, v.y, x), dot(v.z, v.w, y));
    }
};

/* ---- pairs ---- */

/* What a block leaves for the definition's sum: a pair of numbers or two. */
template <class T> struct pairs_of {
    enum { TWO = terms_of<T>::TWO };
    float4 v;
    static DEVICE_MEMBER uint32_t size(uint32_t cols) { return LODE_CHOSEN_PAIRS32(cols, TWO); } /* bytes of a row's */
    DEVICE_MEMBER void set(const struct codes_of<T> &by, const uint8_t *row, const uint8_t *x, uint32_t nb, uint32_t b) {
        enum { HALVES = terms_of<T>::HALVES };
        struct reads_shared in;
        const uint4 *codes = (const uint4 *)x + b;
        const uint2 head = *(const uint2 *)(x + nb * 32 + b * 8);
        const int2 dot = by.dots(row, nb, b, codes[0], codes[nb]);
        const float2 d = T::scale_at(in, row, nb, b);
        const float dx = lode_bits_f32(head.x);
        const int sum = (int)head.y, first = HALVES ? dot.x : dot.x + dot.y - codes_of<T>::OFFSET * sum;
        v = make_float4(d.x * dx, (float)first, TWO ? d.y * dx : 0, TWO ? (float)(HALVES ? dot.y : sum) : 0);
    }
    DEVICE_MEMBER void put(uint8_t *pairs, uint32_t b) const {
        if (TWO)
            *(float4 *)(pairs + b * 16) = v;
        else
            *(float2 *)(pairs + b * 8) = make_float2(v.x, v.y);
    }
};

/* The definition's sum over nb blocks' pairs. */
template <class T> DEVICE float add_blocks(const uint8_t *pairs, uint32_t nb) {
    float acc = sum_of_pairs<8>((const float4 *)pairs, pairs_of<T>::TWO ? nb : nb / 2);
    if (!pairs_of<T>::TWO && nb % 2) {
        const float2 v = ((const float2 *)pairs)[nb - 1];
        acc = fmaf(v.x, v.y, acc);
    }
    return acc;
}

/* ---- x ---- */

/* A warp's four blocks of x from block `first` on: this thread's, and which four of its numbers. */
DEVICE uint32_t block_from(uint32_t first) { return first + threadIdx.x % 32 / 8; }
DEVICE uint32_t word_here() { return threadIdx.x % 8; }
DEVICE float4 four_numbers_of(const float *x, uint32_t nb, uint32_t b) {
    return ((const float4 *)x)[(b < nb ? b : nb - 1) * 8 + word_here()];
}
/* Block b of a row of nb, where there is one; by a whole warp. */
template <class T> DEVICE void put_block(uint8_t *x, uint32_t nb, uint32_t b, const struct rounded &r) {
    const uint32_t k = word_here();
    uint32_t word = r.q, i = k;
    if (codes_of<T>::PAIRED) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, r.q, 4);
        word = k < 4 ? __byte_perm(r.q, other, 0x5140) : __byte_perm(other, r.q, 0x7362);
        i = k % 4 * 2 + k / 4;
    }
    if (b >= nb)
        return;
    *(uint32_t *)(x + (i / 4 * nb + b) * 16 + i % 4 * 4) = word;
    if (k == 0)
        *(uint2 *)(x + nb * 32 + b * 8) = make_uint2(lode_f32_bits(r.d), (uint32_t)r.sum);
}

#endif
