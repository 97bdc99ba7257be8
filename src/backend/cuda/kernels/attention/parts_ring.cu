/* parts_ring.cu - attention_fast.cu's parts on Hopper: few rows of a sequence that see many pages, heads of 64 or 128 numbers in 16 bits, scores
 * without a cap, no windows.
 *
 * All heads' chains are shared out over as many blocks of threads as there are multiprocessors (chain_share.cuh).  A block's warps have sixteen
 * query rows of a chain each, as many as have all rows together are a group with a chain of its own.  One warp more brings keys and values to
 * panels (wgmma.cuh) in one ring for all groups, and those of first pages, but for pages that the launch before writes to, while that runs. */
#include "chain_share.cuh"
#include "fast_heads.cuh"
#include "fast_panels.cuh"
#include "fast_rows.cuh"

#if __CUDA_ARCH__ >= 900

enum { WARPS = LODE_PARTS_RING_WARPS, TILES = LODE_PARTS_RING_TILES, HEADS = LODE_PARTS_RING_HEADS, BARRIERS = LODE_PARTS_RING_BARRIERS };

/* Shared memory behind the slots and before queries. */
struct parts_mem {
    uint64_t full[BARRIERS], empty[BARRIERS];
    float undo[HEADS * ROW_TILE * TILES];
};
typedef struct parts_mem mem;

/* Keys or values of a page: their slot, and their barriers' turn. */
struct turn {
    uint32_t slot, at, parity;
};
/* What all warps know of a block. */
struct block {
    uint32_t slots, small;                  /* in shared memory */
    uint32_t tiles, groups, ring, barriers; /* a group is as many warps; slots; barriers: see later */
    struct chain_share share;
    struct rows_of rows; /* head: the first */
    struct lode_cuda_view view;
    DEVICE_MEMBER struct chains_walk walk(const struct lode_cuda_att_args &a, uint32_t group) const {
        return chains_walk(share, rows.last / PAGE + 1, a.chains, group, groups);
    }
    template <int DIM> DEVICE_MEMBER uint32_t slot(const struct turn &t) const { return slots + t.slot * (PAGE * 2 * DIM); }
    DEVICE_MEMBER uint32_t full(uint32_t at) const { return small + (uint32_t)AT(full) + at * 8; }
    DEVICE_MEMBER uint32_t empty(uint32_t at) const { return small + (uint32_t)AT(empty) + at * 8; }
    /* Of all groups' keys, then their values, then the next pages' keys, what comes n later: no more than there are slots.
     *
     * Barriers are whole times the groups: so each is always the same group's, which has seen all of its phases, as it might take one that
     * another has not yet had for the one before.  And they are so many more than slots as all groups ask for at once, in whatever order: who asks has then
     * seen a barrier's last phase before it is that of what comes next. */
    DEVICE_MEMBER struct turn later(struct turn t, uint32_t n) const {
        t.slot += n, t.at += n;
        if (t.slot >= ring)
            t.slot -= ring;
        if (t.at >= barriers)
            t.at -= barriers, t.parity ^= 1;
        return t;
    }
};

/* All groups' pages on their way, by a warp: its lanes know where groups are. */
template <int DIM> DEVICE void bring(const struct block &b, const struct lode_cuda_att_args &a, const struct lode_cuda_map *map) {
    const uint32_t lane = threadIdx.x % 32, own = b.rows.pos / PAGE; /* the first page that the launch before may have written to */
    const uint64_t policy = gridDim.y == 1 ? read_once() : read_again(), values = b.view.v - b.view.k; /* behind keys, whose rows are as long */
    struct chains_walk w = b.walk(a, lane);
    if (lane >= b.groups)
        w.left = 0;
    const auto keys = [&] { return w.more() ? (uint64_t)(uintptr_t)page_of(b.view, w.page) + b.view.k + (b.rows.head + w.head) * (PAGE * 2 * DIM) : 0; };
    struct turn t = {0, 0, 0}, before = {0, b.barriers - b.ring, 1}; /* before: what was in the slot that t has; at first nothing, which has gone */
    uint64_t from = keys();
    uint32_t more = __ballot_sync(0xffffffffu, w.more()), waited = 0;
    while (more) {
        const uint64_t now = from;
        const uint32_t early = __ballot_sync(0xffffffffu, w.more() && w.page < own);
        if (w.more())
            w.next();
        from = keys(); /* where the next ones lie is found a turn before they are asked for */
        for (uint32_t late = 0; late < 2; late++) { /* what may come before the launch before has ended, then the rest */
            struct turn to = t, gone = before;
            if (late && ~early & more && !waited) {
                wait_for_last();
                waited = 1;
            }
            for (uint32_t value = 0; value < 2; value++)
                for (uint32_t g = 0; g < b.groups; g++, to = b.later(to, 1), gone = b.later(gone, 1)) {
                    if ((early >> g & 1) == late)
                        continue;
                    const uint64_t page = __shfl_sync(0xffffffffu, now, g) + value * values;
                    barrier_wait(b.empty(gone.at), gone.parity);
                    if (more >> g & 1) {
                        if (elected())
                            ask_panels<DIM>(b.slot<DIM>(to), map, at<const uint8_t>(page), b.full(to.at), policy);
                    } else if (lane == 0) { /* that group is done: its barriers' turn all the same */
                        barrier_arrive(b.full(to.at));
                        for (uint32_t k = 0; k < b.tiles; k++)
                            barrier_arrive(b.empty(to.at));
                    }
                    __syncwarp();
                }
        }
        t = b.later(t, 2 * b.groups), before = b.later(before, 2 * b.groups);
        more = __ballot_sync(0xffffffffu, w.more());
    }
}

/* The block's queries, rounded, of one head or two, to `to`, by all warps that multiply: each has every n-th row. */
template <class T, int DIM>
DEVICE void round_rows(const struct block &b, const struct lode_cuda_att_args &a, uint32_t heads, uint32_t warp, uint8_t *to, float *undo) {
    enum { U = DIM / 32 };
    const uint32_t lane = threadIdx.x % 32, warps = b.tiles * b.groups, of_head = ROW_TILE * b.tiles;
    const struct rows_of &t = b.rows;
#pragma unroll 4
    for (uint32_t i = warp; i < of_head * heads; i += warps) {
        const uint32_t next = i >= of_head, r = i - next * of_head, n = t.first + r, token = n / t.group;
        const float *from = row_at<const float>(a.q, t.first_row + token) + ((t.head + next) * t.group + n - token * t.group) * DIM;
        float x[U];
#pragma unroll
        for (int u = 0; u < U; u++)
            x[u] = r < t.n ? from[lane + 32 * u] : 0;
        const float factor = put_query<T, U>(x, (uint16_t *)(to + i * LODE_ATT_FAST_STRIDE(DIM)), DIM);
        if (lane == 0)
            undo[i] = factor;
    }
}

/* A warp's sixteen query rows on their way through its group's chains. */
template <class T, int DIM>
DEVICE void multiply(const struct block &b, const struct lode_cuda_att_args &a, uint32_t group, uint32_t tile, uint32_t queries, const float *undo) {
    const uint32_t lane = threadIdx.x % 32, of_head = ROW_TILE * b.tiles;
    struct own_rows own;
    find_own(own, a, b.rows, tile);
    uint32_t last[2]; /* that a row sees; what one that is not there sees does not matter */
    for (int i = 0; i < 2; i++)
        last[i] = own.last[i] < own.from[i] ? b.rows.last : own.last[i];
    struct turn t = b.later({0, 0, 0}, group);
    float y[DIM / 8][4], scale[2];
    struct weights e;
#pragma unroll 1
    for (struct chains_walk w = b.walk(a, group); w.more(); w.next()) {
        const uint32_t start = w.page * PAGE, row = w.head * of_head + tile * ROW_TILE;
        struct sight seen;
#pragma unroll
        for (int i = 0; i < 2; i++)
            seen.lo[i] = 0, seen.n[i] = last[i] < start ? 0 : min(last[i] - start + 1, (uint32_t)PAGE);
        const bool any = __any_sync(0xffffffffu, (seen.n[0] | seen.n[1]) != 0);
        float c[KEY_TILES][4];
        barrier_wait(b.full(t.at), t.parity);
        if (any)
            score_panels<T, 2, DIM>(c, queries + row * LODE_ATT_FAST_STRIDE(DIM), b.slot<DIM>(t));
        release(b.empty(t.at));
        t = b.later(t, b.groups);
        if (w.begins()) {
            begin_chain(e);
            begin_sums(y);
#pragma unroll
            for (int i = 0; i < 2; i++)
                scale[i] = a.scale * undo[row + lane / 4 + 8 * i];
        }
        if (any) {
            weigh<2>(e, c, scale, 0, seen, __all_sync(0xffffffffu, seen.n[0] == PAGE && seen.n[1] == PAGE));
            round_weights<T, 2>(e, c);
        }
        barrier_wait(b.full(t.at), t.parity);
        const uint32_t values = b.slot<DIM>(t), n = b.rows.last - start + 1;
        if (n < PAGE) { /* by each of the group's warps: all store the same */
            clear_unseen<DIM>(values, 0, n);
            stored_for_wgmma(); /* the slot is a copy's again some time */
            __syncwarp();
        }
        if (any)
            mix_panels<T, DIM>(y, e, values);
        release(b.empty(t.at));
        t = b.later(t, b.groups);
        if (!w.ends())
            continue;
        struct rows_of rows = b.rows;
        rows.head += w.head;
        find_own(own, a, rows, tile);
        leave_rows(a, own, w.chain, sight_of(own, w.chain * PAGE), e, y);
    }
}

template <class T, int DIM> DEVICE void attend(const struct lode_cuda_parts_ring_args &f) {
    extern __shared__ __align__(1024) uint8_t parts_bytes[];
    const struct lode_cuda_att_args &a = f.att;
    const uint32_t warp = of_warp(threadIdx.x / 32);
    struct block b;
    b.tiles = f.tiles, b.groups = f.groups, b.ring = f.slots, b.barriers = ((f.slots + f.groups - 1) / f.groups + 2) * f.groups;
    b.slots = (shared_address(parts_bytes) + 1023) & ~1023u;
    b.small = b.slots + f.slots * (PAGE * 2 * DIM);
    mem &s = *(mem *)(parts_bytes + (b.small - shared_address(parts_bytes)));
    uint8_t *const q = (uint8_t *)(&s + 1);
    static_assert(sizeof(mem) == LODE_PARTS_RING_OWN, "attention_shared.h");
    let_next_come();
    if (threadIdx.x < b.barriers) {
        barrier_init(b.full(threadIdx.x), 1);
        barrier_init(b.empty(threadIdx.x), f.tiles);
        barriers_made();
    }
    __syncthreads();
    /* the step was there before the first launch: its places can be found while the last one runs */
    uint32_t segment;
    find_some_rows(a, b.rows, ROW_TILE * f.tiles, &segment);
    const struct lode_cuda_segment &in = at<const struct lode_cuda_segment>(step_at(a.step)->segments)[segment];
    b.view = at<const struct lode_cuda_view>(in.views)[a.layer];
    b.share = chain_share_of(a.n_kv_heads, b.rows.last / PAGE + 1, a.chains);
    b.rows.head = b.share.head;
    if (warp == f.tiles * f.groups) {
        bring<DIM>(b, a, &f.rows);
        return;
    }
    wait_for_last();
    if (b.share.n == 0)
        return;
    round_rows<T, DIM>(b, a, b.share.has_next_head() ? 2 : 1, warp, q, s.undo);
    asm volatile("bar.sync 1, %0;" ::"r"(32 * f.tiles * f.groups) : "memory");
    multiply<T, DIM>(b, a, warp / f.tiles, warp % f.tiles, shared_address(q), s.undo);
}

/* parts_ring_TYPE_DIM: heads of DIM numbers; blockIdx: which chains, which of the rows; threads: a warp for each sixteen rows of each group, and
 * one that brings. */
#define PARTS(type, dim)                                                                                 \
    extern "C" __global__ void __launch_bounds__(32 * WARPS + 32, 1)                                     \
        parts_ring_##type##_##dim(const __grid_constant__ struct lode_cuda_parts_ring_args f) {           \
        attend<struct type, dim>(f);                                                                     \
    }
#define PARTS_OF(type) PARTS(type, 64) PARTS(type, 128)
PARTS_OF(f16)
PARTS_OF(bf16)

#endif
