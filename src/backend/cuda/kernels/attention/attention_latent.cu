/* attention_latent.cu - attention_long.cu on Hopper's warpgroups: steps of many rows in --numerics tensor, latent heads of 576 numbers whose first
 * 512 are their values, scores without a cap.
 *
 * A block of threads has 64 query rows and half of the values' numbers, each of its two warpgroups that multiply a quarter: sums of more are more
 * than registers hold.  So scores are made four times, which with warpgroups takes less than half as long as making them once without.
 * A thread of a third warpgroup has pages brought. */
#include "wide_walk.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

enum { MULTIPLIERS = 2 * GROUP_THREADS, KEPT = 24, TAKEN = 240 };
static_assert(KEPT + 2 * TAKEN <= 3 * 168, "384 threads begin with 168 registers each: who asks for more waits for ever");

struct __align__(1024) latent_mem {
    enum { SLOTS = LODE_ATT_LATENT_SLOTS, SIZE = PAGE * 2 * LODE_ATT_LONG_DIM };
    uint8_t q[GROUP_ROWS * 2 * LODE_ATT_LONG_DIM];
    uint8_t k[SLOTS][SIZE];
    uint64_t k_full[SLOTS], k_empty[SLOTS];
};
static_assert(sizeof(struct latent_mem) + 1024 <= LODE_ATT_LATENT_SHARED, "attention_shared.h");

struct latent_work {
    typedef struct latent_mem mem;
    enum { DIM = LODE_ATT_LONG_DIM, VALUES = LODE_ATT_LONG_DIM_V / 4, SLOTS = LODE_ATT_LATENT_SLOTS, TURNS = 1, ONE = 1 };
    static DEVICE_MEMBER uint32_t tile() { return 0; }
    static DEVICE_MEMBER uint32_t first_value() { return (blockIdx.z * 2 + threadIdx.x / GROUP_THREADS) * VALUES; }
};

/* Pages to the ring, by a thread. */
DEVICE void bring_pages(uint32_t m, const struct lode_cuda_att_wide_args &f, const struct rows_of &t, const struct lode_cuda_view &view,
                        const struct pages_of &pages) {
    typedef struct latent_mem mem;
    const size_t rows_at = view.k + (size_t)t.head * mem::SIZE;
    struct ring r = {0, 1};
#pragma unroll 1
    for (struct page_walk p = pages.walk(); p.more(); p.next(), next_of<mem::SLOTS>(r)) {
        const uint8_t *const rows = page_of(view, pages.from + p.page) + rows_at;
        const uint32_t full = m + AT(k_full) + 8 * r.at;
        barrier_wait(m + AT(k_empty) + 8 * r.at, r.parity);
        barrier_arrive_expect(full, mem::SIZE);
        bulk_long_panels(m + AT(k) + r.at * mem::SIZE, &f.rows, rows, full);
    }
}

template <class T> DEVICE void attend(const struct lode_cuda_att_wide_args &f) {
    const struct lode_cuda_att_args &a = f.att;
    typedef struct latent_mem mem;
    extern __shared__ __align__(1024) uint8_t latent_bytes[];
    const uint32_t m = (shared_address(latent_bytes) + 1023) & ~1023u;
    if (threadIdx.x == 0) {
        for (int i = 0; i < mem::SLOTS; i++)
            barrier_init(m + AT(k_full) + 8 * i, 1), barrier_init(m + AT(k_empty) + 8 * i, MULTIPLIERS / 32);
        barriers_made();
    }
    __syncthreads();
    begin();
    struct rows_of t;
    uint32_t segment;
    if (!find_rows<GROUP_ROWS>(a, t, &segment))
        return;
    const uint32_t oldest = first_seen(a, t.pos + t.first / t.group);
    const struct pages_of pages = {oldest / PAGE, t.last / PAGE, oldest, t.last, a.chains};
    if (threadIdx.x >= MULTIPLIERS) {
        keep_registers<KEPT>();
        const struct lode_cuda_segment &s = at<const struct lode_cuda_segment>(step_at(a.step)->segments)[segment];
        if (threadIdx.x == MULTIPLIERS)
            bring_pages(m, f, t, at<const struct lode_cuda_view>(s.views)[a.layer], pages);
        return;
    }
    take_registers<TAKEN>();
    begin_turns();
    struct walker<T, latent_work> w = {m, pages};
    find_own(w.own, a, t, threadIdx.x % GROUP_THREADS / 32);
    w.put_queries(a);
    walk_pages(w, a, t, 0);
    store(a, w.own, w.o, latent_work::first_value());
}

/* attend_latent_wide_KEPT; blockIdx: head of keys, tile of rows, half of the values' numbers. */
#define ATTEND(name)                                                                                     \
    extern "C" __global__ void __launch_bounds__(MULTIPLIERS + GROUP_THREADS, 1)                         \
        attend_latent_wide_##name(const __grid_constant__ struct lode_cuda_att_wide_args f) {            \
        attend<struct name>(f);                                                                          \
    }
ATTEND(f16)
ATTEND(bf16)

#endif
