/* widen_pages.cuh - pages of Q8_0 on their way to shared memory as panels of halves (wgmma.cuh): what panels.cuh is for pages that are halves
 * already.
 *
 *     page --copy--> stage --widen.cuh--> place of a ring --> products
 *
 * Two parties of two warps, one for keys and one for values, each with stages and a ring of its own: neither waits for a place of the other's
 * ring, and the other widens while one waits.  While a party widens a stage its other stages' copies are under way. */
#ifndef LODE_CUDA_WIDEN_PAGES_CUH
#define LODE_CUDA_WIDEN_PAGES_CUH

#include "attention_fast.cuh"
#include "panels.cuh"
#include "widen.cuh"

enum { STAGES = LODE_ATT_WIDE_STAGES, PARTIES = 2, PARTY_THREADS = 64 };

/* What a block has in shared memory for it, at a multiple of 16. */
template <int DIM> struct page_stages {
    enum { PAIRS = DIM / WIDEN_NUMBERS, SIZE = PAGE * PAIRS * WIDEN_BYTES };
    uint8_t bytes[PARTIES][STAGES][SIZE];
    uint64_t came[PARTIES][STAGES];
};
/* stages: here and below, where they lie. */
template <int DIM> DEVICE void init_stages(uint32_t stages) {
    typedef struct page_stages<DIM> mem;
    for (int i = 0; i < PARTIES * STAGES; i++)
        barrier_init(stages + AT(came) + 8 * i, 1);
}
/* A party's ring: its first place and that one's barriers, each of which the next ones follow at once. */
struct panel_ring {
    uint32_t to, full, empty; /* full: a party arrives once, by a thread */
};

DEVICE uint32_t party() { return threadIdx.x / PARTY_THREADS % PARTIES; }
/* All threads of a party have come here.  1 to 4 are warpgroups.cuh's. */
DEVICE void party_sync() { asm volatile("bar.sync %0, 64;" ::"r"(5 + party()) : "memory"); }

/* A stage's rows, by a party: a thread has a pair of blocks at a time.  Half a warp has neighbouring rows' first pairs, the other half their
 * second ones: from pair to pair it is 17 words, so that the 32 words read at once are in different banks, in whichever order threads have
 * them; and of the pieces stored at once, eight neighbouring threads', each is another row's modulo 8, hence elsewhere in a panel's 128 bytes.
 * Pairs one after the other would have four rows' there twice. */
template <int DIM> DEVICE void widen_page(uint32_t stage, uint32_t to) {
    enum { PAIRS = page_stages<DIM>::PAIRS };
#pragma unroll
    for (uint32_t some = 0; some < PAGE * PAIRS; some += PARTY_THREADS) {
        const uint32_t i = some + threadIdx.x % PARTY_THREADS;
        const uint32_t row = i / (16 * PAIRS) * 16 + i % 16, pair = i / 16 % PAIRS;
        const uint32_t from = stage + (row * PAIRS + pair) * WIDEN_BYTES, at = to + pair * PANEL + in_panel(row, 0);
        uint32_t word[WIDEN_BYTES / 4]; /* all before the first store, which the compiler lets no load pass */
#pragma unroll
        for (int k = 0; k < WIDEN_BYTES / 4; k++)
            word[k] = load1(from + 4 * k);
        widen_pair([&](uint32_t k) { return word[k]; },
                   [&](uint32_t k, uint4 v) { /* in_panel(row, k): panels begin at multiples of 1024 */
                       store4(at ^ 16 * k, make_float4(lode_bits_f32(v.x), lode_bits_f32(v.y), lode_bits_f32(v.z), lode_bits_f32(v.w)));
                   });
    }
}

/* The pages of a walk to a party's ring of SLOTS places, by all its threads.  page_at(i): where a page lies, of which the party has a head's rows
 * from `rows_at` on, at a multiple of 16; of numbers behind the last, which a walk ends with, anything. */
template <int DIM, int SLOTS, class F>
DEVICE void bring_widened(uint32_t stages, const struct panel_ring &ring, struct page_walk walk, size_t rows_at, F page_at) {
    typedef struct page_stages<DIM> mem;
    enum { SIZE = mem::SIZE };
    const uint32_t bytes = stages + AT(bytes) + party() * STAGES * SIZE, came = stages + AT(came) + party() * STAGES * 8, n = walk.n;
    const bool leads = threadIdx.x % PARTY_THREADS < 32;
    const auto ask = [&](uint32_t stage, const uint8_t *page) {
        barrier_arrive_expect(came + 8 * stage, SIZE);
        bulk_copy(bytes + stage * SIZE, page + rows_at, SIZE, came + 8 * stage);
    };
#pragma unroll 1
    for (uint32_t i = 0; i < STAGES && walk.more(); i++, walk.next()) {
        const uint8_t *page = page_at(walk.page);
        if (leads && elected())
            ask(i, page);
    }
    struct ring s = {0, 0}, r = {0, 1};
#pragma unroll 1
    for (uint32_t i = 0; i < n; i++, next_of<STAGES>(s), next_of<SLOTS>(r), walk.next()) {
        barrier_wait(came + 8 * s.at, s.parity);
        barrier_wait(ring.empty + 8 * r.at, r.parity);
        /* Asked for below.  Here, where nothing waits before there is something else to do: all threads would wait for the table. */
        const uint8_t *page = page_at(walk.page);
        widen_page<DIM>(bytes + s.at * SIZE, ring.to + r.at * (PAGE * 2 * DIM));
        stored_for_wgmma(); /* each thread's own stores, before any thread says so */
        party_sync();       /* and the stage is read by nobody any more */
        if (leads && elected()) {
            barrier_arrive(ring.full + 8 * r.at);
            if (walk.more())
                ask(s.at, page);
        }
    }
}

#endif
