/* copies.cuh - copies to shared memory that a thread does not wait for; plain ones before Ampere. */
#ifndef LODE_CUDA_COPIES_CUH
#define LODE_CUDA_COPIES_CUH

#include "common.cuh"

/* at: an address of shared memory. */
template <int BYTES> DEVICE void copy_async_at(uint32_t at, const void *from) {
#if __CUDA_ARCH__ >= 800
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(BYTES)
                     : "memory");
#else
    for (int i = 0; i < BYTES; i += 4)
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(at + i),
                     "r"(*(const uint32_t *)((const uint8_t *)from + i))
                     : "memory");
#endif
}
template <int BYTES> DEVICE void copy_async(void *to, const void *from) {
    copy_async_at<BYTES>(shared_address(to), from);
}
/* Nothing where it is not there; without a branch. */
template <int BYTES> DEVICE void copy_async_if(uint32_t at, const void *from, bool there) {
#if __CUDA_ARCH__ >= 800
    if constexpr (BYTES == 16)
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p cp.async.cg.shared.global [%0], [%1], 16; }" ::"r"(at), "l"(from),
                     "r"((uint32_t)there)
                     : "memory");
    else
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p cp.async.ca.shared.global [%0], [%1], %3; }" ::"r"(at), "l"(from),
                     "r"((uint32_t)there), "n"(BYTES)
                     : "memory");
#else
    if (there)
        copy_async_at<BYTES>(at, from);
#endif
}
/* 16 bytes, zeros where they are not there. */
DEVICE void copy_16_or_zero_at(uint32_t at, const void *from, bool there) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(there ? 16 : 0) : "memory");
#else
    const uint4 v = there ? *(const uint4 *)from : make_uint4(0, 0, 0, 0);
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
#endif
}
DEVICE void copy_16_or_zero(void *to, const void *from, bool there) { copy_16_or_zero_at(shared_address(to), from, there); }
DEVICE void copies_end_group() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int LATER> DEVICE void copies_wait() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory");
#endif
}

#endif
