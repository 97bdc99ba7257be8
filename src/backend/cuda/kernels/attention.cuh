/* attention.cuh - what all kernels of attention share: what a position sees, and how pages' parts
 * are merged. */
#ifndef LODE_CUDA_ATTENTION_CUH
#define LODE_CUDA_ATTENTION_CUH

#include "common.cuh"

#pragma push_macro("inline")
#define inline __device__ __forceinline__
#include "tensor/dtype.h"
#pragma pop_macro("inline")

enum { PAGE = 64 };

/* The first position that one at p sees. */
DEVICE uint32_t first_seen(const struct lode_cuda_att_args &a, uint32_t p) {
    const uint32_t from = a.window && p >= a.window ? p - a.window + 1 : 0;
    const uint32_t start = a.chunk ? p - p % a.chunk : 0;
    return from > start ? from : start;
}

/* (m, l, o) with a page's (max, total, part); see the definition. */
DEVICE void merge_one(float *m, float *l, float *o, float max, float total, float part,
                      bool first) {
    if (first) {
        *m = max, *l = total, *o = part;
        return;
    }
    const float top = *m > max ? *m : max;
    const float a = lode_expf(*m - top), b = lode_expf(max - top);
    *l = fmaf(total, b, *l * a);
    *m = top;
    *o = fmaf(b, part, a != 1.0f ? *o * a : *o);
}
DEVICE float finish(float m, float l, float o, const float *sink) {
    if (sink) {
        const float top = m > *sink ? m : *sink;
        const float a = lode_expf(m - top), b = lode_expf(*sink - top);
        l = fmaf(1.0f, b, l * a);
        if (a != 1.0f)
            o *= a;
    }
    return o * (1.0f / l);
}

#endif
