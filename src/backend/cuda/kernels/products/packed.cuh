/* packed.cuh - weights whose products are made in float (their type has no rounded activations): two
 * neighbouring numbers of a row at a time, computed from the block as it lies in the file.
 *
 *   float2 T::pair(row, k)   numbers k and k + 1, k even: the bits of kern/dequant.h
 *
 * Layouts: tensor/block.h.
 */
#ifndef LODE_CUDA_PACKED_CUH
#define LODE_CUDA_PACKED_CUH

#include "backend/cuda/kernels/common.cuh"

#include "fp8.cuh"

#define PACKED(name, numbers, bytes)                                                               \
    struct name {                                                                                  \
        static __device__ __forceinline__ float2 pair(const uint8_t *row, uint32_t k) {            \
            return in_block(row + (size_t)(k / (numbers)) * (bytes), k % (numbers));               \
        }                                                                                          \
        static __device__ __forceinline__ float2 in_block(const uint8_t *b, uint32_t i);           \
    };                                                                                             \
    __device__ __forceinline__ float2 name::in_block(const uint8_t *b, uint32_t i)

DEVICE uint32_t u16_at(const uint8_t *p) { return __ldg((const uint16_t *)p); }
DEVICE uint32_t u32_at(const uint8_t *p) { return u16_at(p) | u16_at(p + 2) << 16; }
DEVICE float float_at(const uint8_t *p) { return lode_bits_f32(u32_at(p)); }

PACKED(e4m3, 32, 36) {
    const uint32_t v = u16_at(b + 4 + i);
    const float d = float_at(b);
    return make_float2(d * e4m3_of(v & 255), d * e4m3_of(v >> 8));
}
PACKED(e5m2, 32, 36) {
    const uint32_t v = u16_at(b + 4 + i);
    const float d = float_at(b);
    return make_float2(d * e5m2_of(v & 255), d * e5m2_of(v >> 8));
}

#endif
