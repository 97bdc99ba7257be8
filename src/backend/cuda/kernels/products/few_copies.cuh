/* few_copies.cuh - items of weights of a few rows' products (few.cuh) on their way to shared memory, and which types a kernel
 * knows: all of a block's size, or some that files mix, as code that is shorter stays near. */
#ifndef LODE_CUDA_FEW_COPIES_CUH
#define LODE_CUDA_FEW_COPIES_CUH

#include "backend/cuda/kernels/planes.h"
#include "items.cuh"

#include "tensor/dtype.h"

/* A tile of rows of a part. */
struct __align__(16) few_tile {
    const uint8_t *w;
    uint32_t stride;
    uint16_t type;
    uint8_t rows, part;
};

/* By one instruction, where reading what is asked for would be one after the other. */
DEVICE struct few_tile read_tile(const struct few_tile *t) {
    static_assert(sizeof *t == 16, "a read");
    const uint4 v = *(const uint4 *)t;
    return {(const uint8_t *)(v.x | (uint64_t)v.y << 32), v.z, (uint16_t)v.w, (uint8_t)(v.w >> 16), (uint8_t)(v.w >> 24)};
}

/* ---- types ---- */

/* Which types a kernel knows: those of a BLOCK, 256 or 32, or some. */
enum { OWN_TYPES = 1 /* planes.h's LODE_CUDA_OWN_LIST */, Q4_K_Q6_K, Q5_K_Q6_K };
static constexpr __device__ bool knows(int kernel, int block, int type, bool own) {
    return own                   ? kernel == OWN_TYPES
           : kernel == Q4_K_Q6_K ? type == LODE_Q4_K || type == LODE_Q6_K
           : kernel == Q5_K_Q6_K ? type == LODE_Q5_K || type == LODE_Q6_K
                                 : kernel == block;
}
/* Numbers of a block of x by that of types. */
static constexpr __device__ int x_block(int kernel) {
    return kernel == 256 || kernel == Q4_K_Q6_K || kernel == Q5_K_Q6_K ? 256 : 32;
}
/* f(a type *) for the type of that number, if the kernel knows it; what it points to: type_at's. */
template <class P> struct type_at;
template <class T> struct type_at<const T *> { typedef T type; };
template <int KERNEL_TYPES, class F> DEVICE void of_type(uint32_t type, F f) {
    switch (type) {
#define CALL_OF(own, name, dtype, block)                                                           \
    case LODE_##dtype:                                                                             \
        if constexpr (knows(KERNEL_TYPES, block, LODE_##dtype, own))                               \
            f((const struct name *)NULL);                                                          \
        break;
#define CALL(name, dtype, block, ...) CALL_OF(false, name, dtype, block)
        LODE_CUDA_QUANT_LIST(CALL)
#undef CALL
#define CALL(name, dtype, block, ...) CALL_OF(true, name, dtype, block)
        LODE_CUDA_OWN_LIST(CALL)
#undef CALL
#undef CALL_OF
    }
}

/* ---- copies ---- */

/* Pieces of a plane's row, of which a warp copies some rows at once. */
template <class T, int I> struct pieces {
    enum {
        BYTES = plane<T, I>::BYTES,
        SIZE = BYTES % 16 == 0 ? 16 : BYTES % 8 == 0 ? 8 : 4,
        N = BYTES < SIZE ? 1 : BYTES / SIZE,
        LANES = N <= 1 ? 1 : N <= 2 ? 2 : N <= 4 ? 4 : N <= 8 ? 8 : 16, /* of a row */
        AT_ONCE = 32 / LANES,
    };
};
/* Plane I of block b, of nb, to a slot. */
template <class T, int I>
DEVICE void copy_plane(const struct few_tile &t, uint32_t nb, uint32_t b, uint32_t slot, uint32_t lane) {
    typedef pieces<T, I> P;
    if constexpr (P::BYTES != 0) {
        const uint32_t row = lane / P::LANES, piece = lane % P::LANES * P::SIZE;
        const uint32_t from = nb * (256 / planes<T>::NUMBERS) * plane_before<T, I>::SIZE + b * P::BYTES;
        /* of less than four bytes, those four that they lie in */
        const uint8_t *p = t.w + (row * t.stride + (P::BYTES < P::SIZE ? from & ~3u : from) + piece);
        const uint32_t to = slot + plane<T, I>::AT + row * plane<T, I>::STRIDE + piece;
        const bool some = P::N == P::LANES || lane % P::LANES < P::N;
        auto copy = [&](uint32_t r) { copy_async_at<P::SIZE>(to + r * plane<T, I>::STRIDE, p + (size_t)r * t.stride); };
        if (P::AT_ONCE >= 16) {
            if (some && row < t.rows)
                copy(0);
        } else if (t.rows == 16) {
#pragma unroll
            for (uint32_t r = 0; r < 16; r += P::AT_ONCE)
                if (some)
                    copy(r);
        } else {
#pragma unroll 1
            for (uint32_t r = 0; r + row < t.rows; r += P::AT_ONCE)
                if (some)
                    copy(r);
        }
    }
}
template <int TYPES> DEVICE void copy_item(const struct few_tile &t, uint32_t nb, uint32_t b, uint32_t slot, uint32_t lane) {
    of_type<TYPES>(t.type, [&](auto *type) {
        typedef typename type_at<decltype(type)>::type T;
        copy_plane<T, 0>(t, nb, b, slot, lane);
        copy_plane<T, 1>(t, nb, b, slot, lane);
        copy_plane<T, 2>(t, nb, b, slot, lane);
        copy_plane<T, 3>(t, nb, b, slot, lane);
    });
}
/* What comes after place `at` of a ring, which is left in steps of a slot. */
DEVICE uint32_t next_slot(uint32_t at, uint32_t slot_size, uint32_t ring_size) { return at + slot_size < ring_size ? at + slot_size : 0; }
/* Until the oldest of depth items that were asked for is there; each ended a group, depth is 2 to 4. */
DEVICE void await_oldest(uint32_t depth) {
    if (depth == 2)
        copies_wait<1>();
    else if (depth == 3)
        copies_wait<2>();
    else
        copies_wait<3>();
    __syncwarp();
}

#endif
