/* attention_ring.cuh - what attention_ring.cu's blocks of threads have in shared memory, and how pages come there.
 *
 * Keys, then values of a page are a stage; a ring of slots has stages widened to floats.  Numbers of keys (and of queries) lie
 * as they are read (place), values as they are. */
#ifndef LODE_CUDA_ATTENTION_RING_CUH
#define LODE_CUDA_ATTENTION_RING_CUH

#include "attention.cuh"
#include "attention_shared.h"
#include "backend/cuda/kernels/shared_memory.cuh"
#include "backend/cuda/kernels/wgmma.cuh"

enum {
    ROWS = LODE_RING_ROWS,
    HALF = ROWS / 2,
    WARP_ROWS = 16,
    WARPS = ROWS / WARP_ROWS, /* that compute */
    BRINGERS = LODE_RING_THREADS - 32 * WARPS,
    SLOTS = LODE_RING_SLOTS,
    LD_S = WARP_ROWS, /* floats from one key's scores to the next's */
};

/* The query rows of a block: two times HALF, each from one on within the segment (row i is token i / group, head i % group). */
struct block_rows {
    uint32_t first[2], n[2];
    uint32_t group, head, pos, first_row;
    uint32_t from_page, last; /* the first page that any row sees, and the last position */
    DEVICE_MEMBER uint32_t number(uint32_t r) const { return first[r / HALF] + r % HALF; }
    DEVICE_MEMBER bool here(uint32_t r) const { return r % HALF < n[r / HALF]; }
    DEVICE_MEMBER uint32_t position(uint32_t r) const { return pos + number(r) / group; }
};

template <int STEPS> struct ring_of {
    enum { DIM = 16 * STEPS, LD = DIM + 4 }; /* floats from one key or value to the next */
    float slot[SLOTS][PAGE * LD];
    float sum[ROWS * DIM];        /* queries, until they are in registers */
    float s[WARPS][PAGE * LD_S];  /* scores by key */
    float old[ROWS], now[ROWS];   /* factors of the sums so far and of the page */
    float max[ROWS], total[ROWS]; /* m, l */
    uint32_t first[ROWS], lo[ROWS], hi[ROWS]; /* the row's first page; what it sees of the page */
    uint4 seen[WARPS]; /* pages that any row of a warp sees, from x to y, and that all see whole, from z to before w */
    struct block_rows rows;
    uint64_t full[SLOTS], empty[SLOTS];
};
static_assert(sizeof(struct ring_of<8>) <= LODE_RING_SHARED(128) && sizeof(struct ring_of<4>) <= LODE_RING_SHARED(64), "");

/* The slot of the stage that comes next, and its phase. */
struct turn {
    uint32_t slot, parity;
    DEVICE_MEMBER void next() {
        if (++slot == SLOTS)
            slot = 0, parity ^= 1;
    }
};

/* ---- bringing ---- */

/* As barrier_wait, for those that have time: others need the turns that asking again and again takes. */
DEVICE void barrier_wait_idly(uint64_t *b, uint32_t parity) {
    for (uint32_t there = 0;;) {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n"
                     "}"
                     : "=r"(there)
                     : "r"(shared_address(b)), "r"(parity)
                     : "memory");
        if (there)
            break;
        __nanosleep(1000);
    }
}

/* The two numbers of 16 bits each. */
DEVICE float2 widened(uint32_t v, bool half) {
    return half ? make_float2(f16_f32((uint16_t)v), f16_f32((uint16_t)(v >> 16)))
                : make_float2(lode_bits_f32(v << 16), lode_bits_f32(v & 0xffff0000u));
}

/* Eight numbers of a row four times: of keys of four steps, of which each then has its four neighbours; of values of four rows. */
template <int STEPS, bool KEYS> struct pieces {
    enum { LD = ring_of<STEPS>::LD, APART = KEYS ? 0 : BRINGERS / (2 * STEPS), NUMBERS = KEYS ? 16 : 0 }; /* from one to the next */
    uint32_t row, number;
    /* Turn u of STEPS / 4. */
    DEVICE_MEMBER pieces(uint32_t u) {
        const uint32_t i = threadIdx.x % BRINGERS;
        row = KEYS ? i % PAGE : i / (2 * STEPS) + 4 * u * APART;
        number = KEYS ? u * 64 + i / PAGE * 8 : i % (2 * STEPS) * 8;
    }
    DEVICE_MEMBER float *place_in(float *to) const { return to + row * LD + (KEYS ? place<STEPS>(number) : number); }
    /* 16 bits; n rows exist. */
    DEVICE_MEMBER void ask(uint4 v[4], const uint8_t *from, uint32_t stride, uint32_t n) const {
        from += row * stride + 2 * number;
#pragma unroll
        for (int k = 0; k < 4; k++)
            v[k] = row + k * APART < n ? *(const uint4 *)(from + k * APART * stride + k * 2 * NUMBERS) : make_uint4(0, 0, 0, 0);
    }
    DEVICE_MEMBER void put(float *to, const uint4 v[4], bool half) const {
        float4 *y = (float4 *)place_in(to);
        const auto pair = [&](int k, int i) { return widened(i == 0 ? v[k].x : i == 1 ? v[k].y : i == 2 ? v[k].z : v[k].w, half); };
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 a = pair(0, i), b = pair(1, i), c = pair(2, i), d = pair(3, i);
            if (KEYS) {
                y[2 * i] = make_float4(a.x, b.x, c.x, d.x), y[2 * i + 1] = make_float4(a.y, b.y, c.y, d.y);
            } else {
                float2 *z = (float2 *)y + i;
                z[0] = a, z[APART * LD / 2] = b, z[APART * LD] = c, z[3 * APART * LD / 2] = d;
            }
        }
    }
    /* Q8_0: pieces by themselves, as they lie at any even byte. */
    DEVICE_MEMBER void put_q8_0(float *to, const uint8_t *from, uint32_t stride, uint32_t n) const {
        float *y = place_in(to);
#pragma unroll 1
        for (uint32_t k = 0; k < 4; k++) {
            const uint32_t r = row + k * APART, c = number + k * NUMBERS;
            if (r >= n)
                break;
            float x[8];
            read_eight(x, from + r * stride, c, LODE_Q8_0);
            float *z = y + (KEYS ? k : k * APART * LD);
#pragma unroll
            for (int i = 0; i < 8; i++)
                z[i * (KEYS ? 4 : 1)] = x[i];
        }
    }
};

template <int STEPS, bool KEYS>
DEVICE void bring_stage(struct ring_of<STEPS> &m, struct turn &turn, const uint8_t *from, uint32_t stride, uint32_t n, uint32_t type) {
    float *to = m.slot[turn.slot];
#pragma unroll 1
    for (uint32_t u = 0; u < STEPS / 4; u++) {
        const struct pieces<STEPS, KEYS> p(u);
        uint4 v[4];
        if (type != LODE_Q8_0)
            p.ask(v, from, stride, n);
        if (u == 0)
            barrier_wait_idly(&m.empty[turn.slot], turn.parity);
        if (type != LODE_Q8_0)
            p.put(to, v, type == LODE_F16);
        else
            p.put_q8_0(to, from, stride, n);
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        barrier_arrive(&m.full[turn.slot]);
    turn.next();
}
/* All pages that the block's rows see. */
template <int STEPS> DEVICE void bring(struct ring_of<STEPS> &m, const struct lode_cuda_view &view) {
    const uint32_t head = m.rows.head, last = m.rows.last;
    const size_t k_at = view.k + (size_t)head * PAGE * view.k_stride, v_at = view.v + (size_t)head * PAGE * view.v_stride;
    struct turn turn = {0, 1};
#pragma unroll 1
    for (uint32_t page = m.rows.from_page; page <= last / PAGE; page++) {
        const uint8_t *base = page_of(view, page);
        const uint32_t n = last - page * PAGE < PAGE ? last - page * PAGE + 1 : PAGE;
        bring_stage<STEPS, true>(m, turn, base + k_at, view.k_stride, n, view.type_k);
        bring_stage<STEPS, false>(m, turn, base + v_at, view.v_stride, n, view.type_v);
    }
}

#endif
