/* shared_memory.cuh - shared memory by its own addresses, of 32 bits: what is added to one stays an addition, and where a
 * loop begins an address is not found anew from the thread's number. */
#ifndef LODE_CUDA_SHARED_MEMORY_CUH
#define LODE_CUDA_SHARED_MEMORY_CUH

#include "common.cuh"

DEVICE float4 load4(uint32_t p) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(p));
    return v;
}
DEVICE uint2 load2(uint32_t p) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(p));
    return v;
}
DEVICE uint32_t load1(uint32_t p) {
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(p));
    return v;
}
DEVICE uint32_t load_half(uint32_t p) {
    uint16_t v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(p));
    return v;
}
DEVICE float load_float(uint32_t p) { return lode_bits_f32(load1(p)); }
DEVICE void store4(uint32_t p, float4 v) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(p), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}
DEVICE void store2(uint32_t p, float2 v) { asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(p), "f"(v.x), "f"(v.y) : "memory"); }
DEVICE void store1(uint32_t p, uint32_t v) { asm volatile("st.shared.u32 [%0], %1;" ::"r"(p), "r"(v) : "memory"); }
DEVICE void store_float(uint32_t p, float v) { asm volatile("st.shared.f32 [%0], %1;" ::"r"(p), "f"(v) : "memory"); }

/* v, of which the compiler does not know where it comes from. */
DEVICE uint32_t opaque(uint32_t v) {
    asm volatile("" : "+r"(v));
    return v;
}

#endif
