/* ring_peak.cu - how fast rings in shared memory are filled on a Hopper GPU, by how a chunk is copied: launches in the shapes of
 * an 8B model's layer in BF16 (6,144 and 24,576 rows of 4,096 numbers, 4,096 of 4,096 and of 12,288), as kernels/products/stream.cuh has
 * them, in one graph; us of a layer, and of each launch alone.
 *
 *     nvcc -gencode arch=compute_90a,code=sm_90a -std=c++17 -O3 -Isrc -o ring_peak bench/ring_peak.cu && ./ring_peak
 *
 * A warp has eight rows at a time and chunks of 1 KB of each.  No sum is right: x is what the launch before left. */
#include "backend/cuda/kernels/common.cuh"
#include "backend/cuda/kernels/wgmma.cuh"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <vector>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        const cudaError_t rc_ = (call);                                                            \
        if (rc_ != cudaSuccess) {                                                                  \
            fprintf(stderr, "ring_peak: %s: %s\n", #call, cudaGetErrorString(rc_));                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { ROWS = 8, PIECE = 1024, WARPS = 16, SLOTS = 16, SHARED = 219 << 10, LAYERS = 14, RUNS = 15 };
/* One copy of 8 KB in a row; eight to rows 1,040 bytes apart, of rows or of those 8 KB; a tensor map's box, lines of 128 bytes. */
enum way { WHOLE, BY_ROW, BY_PIECE, MAP };

struct launch_args {
    const uint8_t *w;
    const float *x;
    float *y;
    uint32_t rows, cols, warps, slots, early; /* early: slots that are asked for before the launch before has ended */
    bool norm;                                /* a sum over x comes first */
};

template <enum way W, bool COMPUTED>
__global__ void __launch_bounds__(32 * WARPS, 1) fill(const __grid_constant__ launch_args a, const __grid_constant__ CUtensorMap map) {
    extern __shared__ __align__(128) uint8_t bytes[];
    __shared__ uint64_t barriers[WARPS][SLOTS];
    __shared__ float total;
    enum { APART = W == MAP ? PIECE : PIECE + 16, SLOT = ROWS * APART };
    asm volatile("griddepcontrol.launch_dependents;");
    const uint32_t warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32, units = a.rows / ROWS;
    float *const x = (float *)bytes;
    uint8_t *ring = bytes + a.cols * 4;
    ring += (-shared_address(ring) & 1023) + warp * a.slots * SLOT;
    if (lane < a.slots)
        barrier_init(&barriers[warp][lane], 1);
    barriers_made();
    __syncwarp();
    const uint32_t first = warp < a.warps ? warp * gridDim.x + blockIdx.x : units, step = a.warps * gridDim.x, pieces = a.cols * 2 / PIECE;
    uint32_t unit = first, piece = 0, slot = 0;
    auto ask = [&]() {
        if (unit >= units)
            return;
        if (elected()) {
            const uint32_t b = shared_address(&barriers[warp][slot]), to = shared_address(ring + slot * SLOT);
            const uint8_t *from = a.w + (size_t)unit * ROWS * a.cols * 2;
            barrier_arrive_expect(b, ROWS * PIECE);
            if (W == WHOLE)
                bulk_copy(to, from + (size_t)piece * ROWS * PIECE, ROWS * PIECE, b);
            else if (W == MAP)
                bulk_lines(to, (const struct lode_cuda_map *)&map, piece * (PIECE / 128), unit * ROWS, b);
            else
#pragma unroll
                for (uint32_t r = 0; r < ROWS; r++)
                    bulk_copy(to + r * APART, W == BY_ROW ? from + (size_t)r * a.cols * 2 + piece * PIECE : from + ((size_t)piece * ROWS + r) * PIECE,
                              PIECE, b);
        }
        slot = slot + 1 == a.slots ? 0 : slot + 1;
        if (++piece == pieces)
            piece = 0, unit += step;
    };
#pragma unroll 1
    for (uint32_t i = 0; i < a.early; i++)
        ask();
    asm volatile("griddepcontrol.wait;" ::: "memory");
    for (uint32_t i = threadIdx.x; i < a.cols / 4; i += blockDim.x)
        ((float4 *)x)[i] = ((const float4 *)a.x)[i];
#pragma unroll 1
    for (uint32_t i = a.early; i + 1 < a.slots; i++)
        ask();
    __syncthreads();
    if (a.norm) { /* the definition's chain of one lane in sixteen */
        float acc = 0;
        if (threadIdx.x < 32) {
#pragma unroll 16
            for (uint32_t i = lane % 16; i < a.cols; i += 16)
                acc = fmaf(x[i], x[i], acc);
            if (lane == 0)
                total = acc;
        }
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < a.cols; i += blockDim.x)
            x[i] *= total;
        __syncthreads();
    }
    const uint32_t row = lane % ROWS, l = lane / ROWS * 4; /* numbers of sixteen */
    uint32_t used = 0, parity = 0;
    for (uint32_t u = first; u < units; u += step) {
        float acc[4] = {};
#pragma unroll 1
        for (uint32_t p = 0; p < pieces; p++) {
            __syncwarp();
            ask();
            barrier_wait(&barriers[warp][used], parity);
            const uint8_t *w = ring + used * SLOT;
            const float *z = x + p * (PIECE / 2) + l;
            for (int i = 0; i < (COMPUTED ? PIECE / 32 : 1); i++) {
                const uint32_t byte = i * 32 + l * 2;
                const uint2 v = *(const uint2 *)(w + (W == MAP ? byte / 128 * (ROWS * 128) + in_panel(row, byte % 128 / 16) + byte % 16
                                                               : row * APART + byte));
                const float4 n = *(const float4 *)(z + i * 16);
                acc[0] = fmaf(__uint_as_float(v.x << 16), n.x, acc[0]);
                acc[1] = fmaf(__uint_as_float(v.x & 0xffff0000u), n.y, acc[1]);
                acc[2] = fmaf(__uint_as_float(v.y << 16), n.z, acc[2]);
                acc[3] = fmaf(__uint_as_float(v.y & 0xffff0000u), n.w, acc[3]);
            }
            if (++used == a.slots)
                used = 0, parity ^= 1;
        }
        if (lane < ROWS)
            a.y[u * ROWS + lane] = (acc[0] + acc[2]) + (acc[1] + acc[3]);
    }
}

struct shape {
    uint32_t rows, cols;
    bool norm;
};
static const shape SHAPES[] = {{6144, 4096, true}, {4096, 4096, false}, {24576, 4096, true}, {4096, 12288, false}};

static CUresult (*encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                          const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
static uint8_t *weights;
static float *rows;
static int multiprocessors;
static const size_t ALL = (size_t)6 << 30;

/* Where a launch's weights begin: others each time, so that none come from the second cache. */
static const uint8_t *next_weights(const shape &s) {
    static size_t at;
    const size_t size = (size_t)s.rows * s.cols * 2;
    if (at + size > ALL)
        at = 0;
    at += size;
    return weights + at - size;
}
static CUtensorMap map_of(const uint8_t *w, const shape &s, CUtensorMapL2promotion promotion) {
    CUtensorMap map;
    const cuuint64_t sizes[3] = {32, s.rows, s.cols * 2 / 128}, strides[2] = {s.cols * 2, 128};
    const cuuint32_t box[3] = {32, ROWS, PIECE / 128}, steps[3] = {1, 1, 1};
    const CUresult rc = encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 3, (void *)w, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                               CU_TENSOR_MAP_SWIZZLE_128B, promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (rc != CUDA_SUCCESS) {
        fprintf(stderr, "ring_peak: cuTensorMapEncodeTiled: %d\n", rc);
        exit(1);
    }
    return map;
}

struct version {
    const char *name;
    void (*kernel)(launch_args, CUtensorMap);
    uint32_t slot;
    CUtensorMapL2promotion promotion;
};

/* us of `layers` times n launches in those shapes, a layer of them. */
static double measure(const version &v, const shape *s, int n, int layers) {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t from, to;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreate(&from));
    CHECK(cudaEventCreate(&to));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < layers * n; i++) {
        const shape &p = s[i % n];
        launch_args a = {next_weights(p), rows, rows, p.rows, p.cols, 0, 0, 0, p.norm};
        const uint32_t room = SHARED - p.cols * 4 - 1024, own = (p.rows / ROWS + multiprocessors - 1) / multiprocessors,
                       fit = std::min<uint32_t>(WARPS, room / (3 * v.slot)), turns = (own + fit - 1) / fit;
        a.warps = (own + turns - 1) / turns;
        a.slots = std::min<uint32_t>(SLOTS, room / a.warps / v.slot);
        a.early = a.slots / 2;
        cudaLaunchAttribute early = {};
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = multiprocessors, config.blockDim = 32 * std::max<uint32_t>(a.warps, 8), config.stream = stream;
        config.dynamicSmemBytes = p.cols * 4 + 1024 + a.warps * a.slots * v.slot;
        config.attrs = &early, config.numAttrs = 1;
        CHECK(cudaLaunchKernelEx(&config, v.kernel, a, map_of(a.w, p, v.promotion)));
    }
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    std::vector<float> ms;
    for (int i = 0; i < RUNS; i++) {
        float t;
        CHECK(cudaEventRecord(from, stream));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaEventRecord(to, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaEventElapsedTime(&t, from, to));
        if (i >= 4)
            ms.push_back(t);
    }
    std::sort(ms.begin(), ms.end());
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    return ms[ms.size() / 2] * 1000.0 / layers;
}

int main() {
    enum { N = sizeof SHAPES / sizeof *SHAPES, APART = ROWS * (PIECE + 16), TOGETHER = ROWS * PIECE };
    const CUtensorMapL2promotion by_128 = CU_TENSOR_MAP_L2_PROMOTION_L2_128B, by_256 = CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
    const version versions[] = {
        {"a bulk copy a row", fill<BY_ROW, true>, APART, by_128},
        {".. nothing computed", fill<BY_ROW, false>, APART, by_128},
        {"the same from 8 KB in a row", fill<BY_PIECE, true>, APART, by_128},
        {"one bulk copy of those", fill<WHOLE, true>, APART, by_128},
        {".. nothing computed", fill<WHOLE, false>, APART, by_128},
        {"a tensor map's box", fill<MAP, true>, TOGETHER, by_128},
        {".. nothing computed", fill<MAP, false>, TOGETHER, by_128},
        {"the same by 256 bytes", fill<MAP, true>, TOGETHER, by_256},
    };
    cudaDriverEntryPointQueryResult found;
    CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&encode, 12000, cudaEnableDefault, &found));
    CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    CHECK(cudaMalloc(&weights, ALL));
    CHECK(cudaMemset(weights, 0x3c, ALL));
    CHECK(cudaMalloc(&rows, 1 << 20));
    CHECK(cudaMemset(rows, 0, 1 << 20));
    double megabytes = 0;
    for (const shape &s : SHAPES)
        megabytes += s.rows * (s.cols * 2e-6);
    printf("a layer has %.0f MB; us of a layer, GB/s; us of each of its launches after each other\n", megabytes);
    for (const version &v : versions) {
        CHECK(cudaFuncSetAttribute((const void *)v.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED));
        CHECK(cudaFuncSetAttribute((const void *)v.kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
        const double us = measure(v, SHAPES, N, LAYERS);
        printf("%-28s %7.2f %6.0f ", v.name, us, megabytes / us * 1000);
        for (const shape &s : SHAPES)
            printf(" %6.2f", measure(v, &s, 1, 3 * LAYERS));
        printf("\n");
    }
    return 0;
}
