/* few_fast.cu - products of one row and of a few (up to 32) with packed weights in --numerics fast: few.cuh's walk,
 * whose items are halves here (fast_items.cuh), multiplied as fast.cuh says.
 *
 * Of one row the instruction's first column alone is there.  Each row of w has a factor of its own for each slice,
 * so that sums are added by one multiply-add. */
#include "fast_items.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* C 0: one row.  Of x, a thread has two steps of 16 numbers at a time. */
template <int B, int COLUMNS> struct fast_items {
    enum {
        TYPES = B,
        BARRIERS = 0,
        X_SHARED = 0,
        ONE = COLUMNS == 0,
        C = ONE ? 1 : COLUMNS,
        LANES = ONE ? 4 : 32, /* that x is for */
        X_BLOCK = LODE_FAST_SLICE / 16 * C * LANES * 8,
    };
    struct first {
        uint4 x[C];
    };
    static DEVICE_MEMBER void read(first &v, const struct few_x_at &x) {
#pragma unroll
        for (int c = 0; c < C; c++)
            v.x[c] = !ONE || threadIdx.x % 32 < 4 ? read16(x.p + c * LANES * 16) : make_uint4(0, 0, 0, 0);
    }
    template <class T> static DEVICE_MEMBER void item_of_type(const struct few_item &w, first &x) {
        const T *const type = NULL;
        const uint32_t r = threadIdx.x % 32 / 4;
        const struct fast_row<T> z[2] = {fast_row_of(type, w.slot, r, w.b), fast_row_of(type, w.slot, r + 8, w.b)};
        float d[C][4] = {};
#pragma unroll
        for (int p = 0; p < 4; p++) {
            uint32_t h[4][4];
            fast_pair<T>(h, w.slot, p, z);
#pragma unroll
            for (int i = 0; i < 4; i += 2) {
                first next = x;
                if (4 * p + i < 14) /* on their way while these are used */
                    read(next, w.x.by((4 * p + i + 2) * C * LANES * 8));
#pragma unroll
                for (int c = 0; c < C; c++) {
                    mma_fast<f16>(d[c], make_uint2(h[i][0], h[i][2]), make_uint2(h[i][1], h[i][3]),
                                  make_uint2(x.x[c].x, x.x[c].y));
                    mma_fast<f16>(d[c], make_uint2(h[i + 1][0], h[i + 1][2]), make_uint2(h[i + 1][1], h[i + 1][3]),
                                  make_uint2(x.x[c].z, x.x[c].w));
                }
                x = next;
            }
        }
        read(x, w.next);
#pragma unroll
        for (int c = 0; c < C; c++) {
            await_turn<false>(w, c);
            const float4 v = sums_so_far(w, c);
            w.acc[32 * c] = make_float4(fmaf(z[0].undo, d[c][0], v.x), fmaf(z[0].undo, d[c][1], v.y),
                                        fmaf(z[1].undo, d[c][2], v.z), fmaf(z[1].undo, d[c][3], v.w));
            end_turn<false>(w, c);
        }
    }
    static DEVICE_MEMBER void item(const struct few_item &w, first &x, uint32_t type) {
        of_type<B>(type, [&](auto *t) { item_of_type<typename type_at<decltype(t)>::type>(w, x); });
    }
    /* Factors of rows lie behind x. */
    static DEVICE_MEMBER float result(const struct lode_cuda_gemv_args &a, uint32_t x, float v) {
        return v * at<const float>(a.x + (size_t)(a.cols / LODE_FAST_SLICE) * X_BLOCK)[x];
    }
};

#define FEW_FAST(block, columns)                                                                   \
    extern "C" __global__ void __launch_bounds__(FEW_THREADS, 1)                                   \
        few_fast_a##block##_##columns(const __grid_constant__ struct lode_cuda_few_args a) {       \
        few<struct fast_items<block, columns>>(a);                                                 \
    }
FEW_FAST(256, 0)
FEW_FAST(256, 1)
FEW_FAST(256, 2)
FEW_FAST(256, 4)
FEW_FAST(32, 0)
FEW_FAST(32, 1)
FEW_FAST(32, 2)
FEW_FAST(32, 4)

#endif
