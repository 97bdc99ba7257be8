/* attend_fast.c - attention of --numerics tensor (kernels/attention/attention_fast.cuh).  Which layers have it depends on the
 * device, on heads and on how keys and values are kept, never on a step: their rows then have the same bits in all
 * steps, and what is chosen here by the number of rows or pages changes nothing. */
#include "backend/cuda/run.h"
#include "backend/cuda/kernels/attention/attention_shared.h"

/* Rows of dim numbers, `at` bytes into a page, that the kernels read: copies of 16 bytes and steps of sixteen numbers; of Q8_0 a head's rows
 * of a page lie one behind the other and are copied as one, and two blocks are widened at a time. */
static bool can_read(enum lode_dtype type, uint32_t dim, size_t stride, size_t at) {
    const bool packed = type == LODE_Q8_0;
    return dim > 0 && dim % (packed ? 64 : 16) == 0 && at % 16 == 0 && (packed ? stride == LODE_ATT_Q8_0_STRIDE(dim) : stride % 16 == 0);
}

/* Heads of more numbers than all kernels but attention_long.cu take. */
static bool is_long(const struct lode_cuda_att_args *a) { return a->head_dim > 256 || a->head_dim_v > 256; }

static bool keeps_packed(const struct op *o, const struct lode_cuda_att_args *a) {
    return lode_kv_layer(o->step->segments[0].kv, a->layer)->type_k == LODE_Q8_0;
}
/* Bytes of shared memory of attention_fast.cu's blocks, of decode_fast.cu's, of decode_short_fast.cu's. */
static uint32_t many_shared(const struct op *o, const struct lode_cuda_att_args *a) {
    return keeps_packed(o, a) ? LODE_ATT_FAST_Q8_0_SHARED(a->head_dim, a->head_dim_v) : LODE_ATT_FAST_SHARED(a->head_dim, a->head_dim_v);
}
static uint32_t decode_shared(const struct op *o, const struct lode_cuda_att_args *a, uint32_t heads) {
    return keeps_packed(o, a) ? LODE_DECODE_FAST_Q8_0_SHARED(heads, a->head_dim, a->head_dim_v)
                              : LODE_DECODE_FAST_SHARED(heads, a->head_dim, a->head_dim_v);
}
static uint32_t short_shared(const struct op *o, const struct lode_cuda_att_args *a) {
    return keeps_packed(o, a) ? LODE_SHORT_FAST_Q8_0_SHARED(a->head_dim, a->head_dim_v, a->max_pages)
                              : LODE_SHORT_FAST_SHARED(a->head_dim, a->head_dim_v, a->max_pages);
}

/* attention_long.cu's blocks of 16 or 32 query rows: bytes of a slot, of all that a block asks for. */
static uint32_t long_slot(const struct lode_cuda_att_args *a) { return LODE_ATT_LONG_SLOT(LODE_ATT_FAST_MOST(a->head_dim, a->head_dim_v)); }
static uint32_t long_shared(const struct lode_cuda_att_args *a, uint32_t rows, uint32_t slots) {
    return LODE_ATT_LONG_SHARED(rows, a->head_dim, 0) + slots * long_slot(a);
}
static uint32_t long_room(const struct op *o) { return (uint32_t)o->r->c->shared_max - LODE_ATT_LONG_OWN; }
static bool takes_long(const struct op *o, const struct lode_cuda_attend_kernels *k, const struct lode_cuda_att_args *a) {
    bool all = a->head_dim <= LODE_ATT_LONG_DIM && a->head_dim_v <= LODE_ATT_LONG_DIM_V;
    for (int i = 0; i < 8; i++)
        all &= k->large[i / 4][i / 2 % 2][i % 2] != NULL;
    return all && long_shared(a, 16, 1) <= long_room(o);
}

/* The kernels of a layer; NULL: its attention is exact. */
static const struct lode_cuda_attend_kernels *kernels_of(const struct op *o, const struct lode_cuda_att_args *a) {
    const struct lode_cuda *c = o->r->c;
    const struct lode_kv *kv = o->step->segments[0].kv;
    const struct lode_kv_layer *l = lode_kv_layer(kv, a->layer);
    const struct lode_kv_view v = lode_kv_view(kv, a->layer);
    const int kept = l->type_k == LODE_F16    ? LODE_CUDA_KEPT_f16
                     : l->type_k == LODE_BF16 ? LODE_CUDA_KEPT_bf16
                     : l->type_k == LODE_Q8_0 ? LODE_CUDA_KEPT_q8_0
                                              : -1;
    if (l->type_k != l->type_v || kept < 0)
        return NULL;
    const struct lode_cuda_attend_kernels *k = &c->kernels.attend[kept];
    const uint32_t room = lode_cuda_room(c);
    bool all = k->decode[0] && k->decode[1] && k->decode[2] && k->decode[3];
    for (int i = 0; i < LODE_CUDA_ATTEND_DIMS; i++)
        all &= k->many[i] && k->deep[i] && k->parts[i];
    if (!o->r->o.tensor || !all || !can_read(l->type_k, a->head_dim, v.k_stride, v.k) || !can_read(l->type_v, a->head_dim_v, v.v_stride, v.v) ||
        v.page_size % 16 || !(a->scale > 0))
        return NULL;
    if (is_long(a))
        return takes_long(o, k, a) ? k : NULL;
    return many_shared(o, a) <= room && decode_shared(o, a, LODE_DECODE_FAST_HEADS) <= room ? k : NULL;
}

bool lode_cuda_attends_fast(const struct op *o, const struct lode_cuda_att_args *a) { return kernels_of(o, a) != NULL; }

void lode_cuda_set_chains(struct lode_cuda_att_args *a, uint32_t all_kv_heads) {
    const uint32_t each = is_long(a) ? LODE_ATT_LONG_CHAINS : LODE_ATT_CHAINS / all_kv_heads;
    a->chains = a->window || a->chunk ? LODE_ATT_NO_CHAINS : each > LODE_ATT_LEAST_CHAINS ? each : LODE_ATT_LEAST_CHAINS;
    a->max_pages = a->max_pages < a->chains ? a->max_pages : a->chains;
}

/* Blocks of decode_short_fast.cu that run at once, with the threads of so many pages. */
static uint64_t short_at_once(const struct op *o, const struct lode_cuda_att_args *a, uint32_t pages) {
    const uint32_t by_threads = LODE_SHORT_PAGES / pages, by_shared = lode_cuda_blocks_by_shared(o->r->c, short_shared(o, a));
    return (by_threads < by_shared ? by_threads : by_shared) * (uint64_t)o->r->c->multiprocessors;
}
/* The pages whose threads a block has: of a sequence's several rows the last one's makes `heads` queries and all rows' keys and values, a warp one
 * at a time, so those of as many as make all of these at once, if `blocks` run at once with so many. */
static uint32_t short_pages(const struct op *o, const struct lode_cuda_att_args *a, uint32_t heads, uint64_t blocks) {
    const uint32_t wanted = lode_cuda_up(heads + 2 * lode_cuda_rows_of_longest(o->step), LODE_SHORT_THREADS / 32);
    uint32_t n = a->max_pages;
    while (n < wanted && n < LODE_SHORT_PAGES && blocks <= short_at_once(o, a, n + 1))
        n++;
    return n;
}

/* kernels/attention/decode_short_fast.cu: a block of threads has a head of keys and all pages, where there are few and all blocks run at once:
 * 1, or 0 where they do not. */
int lode_cuda_run_short_fast(const struct op *o, const struct lode_cuda_decode_args *d) {
    const struct lode_cuda_att_args *a = &d->att;
    const struct lode_cuda_attend_kernels *k = kernels_of(o, a);
    if (!k)
        return 0;
    const uint32_t group = a->n_heads / a->n_kv_heads, rows = o->step->n_rows, multiprocessors = (uint32_t)o->r->c->multiprocessors;
    const uint32_t shared = short_shared(o, a);
    const int size = lode_cuda_size_of_heads(a);
    const bool several = d->prepares && o->step->n_segments < rows; /* (of heads of any size there is room for one row's) */
    void *const kernel = k->brief[!d->prepares ? 2 : several][size];
    if (a->max_pages > LODE_SHORT_PAGES || !kernel || shared > lode_cuda_room(o->r->c))
        return 0;
    uint32_t heads = 1, parts = group; /* of a block; blocks of a head of keys: one each for multiprocessors, or as few as there can be */
    while (heads < LODE_SHORT_FAST_HEADS && heads < group && (uint64_t)a->n_kv_heads * parts * rows > multiprocessors) {
        heads *= 2;
        parts = (group + heads - 1) / heads;
    }
    const uint64_t blocks = (uint64_t)a->n_kv_heads * parts * rows;
    if (blocks > short_at_once(o, a, a->max_pages))
        return 0;
    const uint32_t pages = several ? short_pages(o, a, heads, blocks) : a->max_pages;
    const struct lode_cuda_short_fast_args args = {.decode = *d,
                                                   .parts = lode_cuda_divisor(parts),
                                                   .group = group,
                                                   .heads = heads,
                                                   .k_pieces = lode_cuda_divisor(a->head_dim / 8),
                                                   .v_pieces = lode_cuda_divisor(a->head_dim_v / 8)};
    LODE_TRY(lode_cuda_run_kernel(o, kernel, a->n_kv_heads * parts, rows, 1, LODE_SHORT_THREADS * pages, shared, &args));
    return 1;
}

/* Heads that kernels with panels take (Hopper): 64, 128 or 256 numbers, scores without a cap; and pages, of 16 bits by a map. */
static bool has_panels(const struct op *o, const struct lode_cuda_att_args *a, struct lode_cuda_map *map) {
    const struct lode_kv_view v = lode_kv_view(o->step->segments[0].kv, a->layer);
    return (a->head_dim == 64 || a->head_dim == 128 || a->head_dim == 256) && a->head_dim_v == a->head_dim && !(a->cap > 0) &&
           (keeps_packed(o, a) || lode_cuda_map_memory(o->r->c, &v, a->head_dim, LODE_KV_PAGE, map));
}

/* Query heads of a head of keys that blocks of decode_ring.cu and decode_fast.cu have at a time, and how many blocks all heads are. */
struct blocks_of_heads {
    uint32_t heads, n;
};
static struct blocks_of_heads blocks_of_heads(const struct lode_cuda_att_args *a) {
    const uint32_t group = a->n_heads / a->n_kv_heads, heads = group > 8 ? LODE_DECODE_FAST_HEADS : 8;
    return (struct blocks_of_heads){heads, a->n_kv_heads * lode_cuda_up(group, heads)};
}

/* kernels/attention/decode_ring.cu: 1, or 0 where heads, rows or the device are not for it. */
static int run_ring(const struct op *o, const struct lode_cuda_attend_kernels *k, const struct lode_cuda_decode_args *d) {
    enum { MANY_PAGES = 512 }; /* of heads of 128 numbers, as graphs count them: with fewer four warps have a page sooner than one */
    const struct lode_cuda_att_args *a = &d->att;
    const uint32_t dim = a->head_dim, rows = o->step->n_rows, room = lode_cuda_room(o->r->c);
    const struct blocks_of_heads b = blocks_of_heads(a);
    const uint64_t all = (uint64_t)b.n * rows, multiprocessors = (uint64_t)o->r->c->multiprocessors;
    struct lode_cuda_ring_decode_args args = {.decode = *d};
    void *const kernel = k->ring[dim == 128][b.heads > 8];
    if (!kernel || dim > 128 || a->max_pages == 1 || (dim == 128 && o->r->pages < MANY_PAGES) || all > multiprocessors || !has_panels(o, a, &args.rows))
        return 0;
    uint32_t pages = LODE_DECODE_RING_WARPS * LODE_DECODE_RING_PAGES; /* that there is room for */
    while (pages > 0 && LODE_DECODE_RING_SHARED(b.heads, dim, pages) > room)
        pages--;
    if (pages == 0)
        return 0;
    const uint32_t z = lode_cuda_blocks_for(a->max_pages, (uint32_t)(multiprocessors / all));
    const uint32_t most = pages < LODE_DECODE_RING_WARPS ? pages : LODE_DECODE_RING_WARPS;
    const uint32_t chains = lode_cuda_up(a->max_pages, z); /* of a block, at most */
    const uint32_t warps = lode_cuda_up(chains, lode_cuda_up(chains, most));
    args.pages = pages / warps < LODE_DECODE_RING_PAGES ? pages / warps : LODE_DECODE_RING_PAGES;
    LODE_TRY(lode_cuda_run_kernel(o, kernel, b.n, rows, z, 32 * (warps + 1), LODE_DECODE_RING_SHARED(b.heads, dim, warps * args.pages), &args));
    return 1;
}

int lode_cuda_run_decode_fast(const struct op *o, const struct lode_cuda_decode_args *d) {
    const struct lode_cuda_att_args *a = &d->att;
    const struct lode_cuda_attend_kernels *k = kernels_of(o, a);
    if (!k)
        return 0;
    const int ring = run_ring(o, k, d);
    if (ring)
        return ring;
    const uint32_t rows = o->step->n_rows;
    const struct blocks_of_heads b = blocks_of_heads(a);
    const uint32_t shared = decode_shared(o, a, b.heads);
    const int size = lode_cuda_size_of_heads(a), kernel = b.heads > 8 ? 1 : size == 2 ? 2 : size == 1 ? 3 : 0;
    uint32_t at_once = (uint32_t)o->r->c->shared_max / (shared + 2048); /* a block takes some of its own */
    at_once = at_once < 1 ? 1 : at_once < LODE_DECODE_FAST_BLOCKS ? at_once : LODE_DECODE_FAST_BLOCKS;
    const uint32_t z = lode_cuda_blocks_for(a->max_pages, at_once * (uint32_t)o->r->c->multiprocessors / (b.n * rows));
    LODE_TRY(lode_cuda_run_kernel(o, k->decode[kernel], b.n, rows, z, LODE_ATT_FAST_THREADS, shared, d));
    return 1;
}

/* kernels/attention/attention_wide.cu: by two warpgroups a block, or by one where that makes no more blocks than there are multiprocessors:
 * 1, or 0 where heads or the device are not for it. */
static int run_wide(const struct op *o, const struct lode_cuda_attend_kernels *k, const struct lode_cuda_att_args *a) {
    const uint32_t dim = a->head_dim, group = a->n_heads / a->n_kv_heads;
    const bool shares = dim > 128; /* two have the same rows */
    void *const *const kernels = k->wide[dim == 64 ? 0 : shares ? 2 : 1];
    struct lode_cuda_att_wide_args args = {.att = *a};
    if ((!kernels[0] && !shares) || !kernels[1] || !has_panels(o, a, &args.rows) || (shares && a->tiles.kind == LODE_TILES_SPREAD))
        return 0;
    uint32_t groups = 1, tiles = lode_cuda_attention_tiles(o, group, 64);
    if (!shares && (uint64_t)tiles * a->n_kv_heads > (uint64_t)o->r->c->multiprocessors)
        groups = 2, tiles = lode_cuda_attention_tiles(o, group, 128);
    LODE_TRY(lode_cuda_run_kernel(o, kernels[shares ? 1 : groups - 1], a->n_kv_heads, tiles, 1, 128 * (shares ? 3 : groups + 1),
                                  keeps_packed(o, a) ? LODE_ATT_WIDE_Q8_0_SHARED(dim, groups) : LODE_ATT_WIDE_SHARED(dim, groups), &args));
    return 1;
}

/* kernels/attention/parts_ring.cu: whether heads, pages and the device are for it. */
enum { PARTS_RING_LEFT = 40 << 10, PARTS_RING_LEAST = 6 }; /* bytes, so that blocks of the launch that joins find room beside its own; slots */
static bool has_parts_ring(const struct op *o, const struct lode_cuda_attend_kernels *k, const struct lode_cuda_att_args *a, struct lode_cuda_map *map) {
    return a->head_dim <= 128 && !keeps_packed(o, a) && k->parts_ring[a->head_dim == 128] && a->chains != LODE_ATT_NO_CHAINS &&
           LODE_PARTS_RING_SHARED(LODE_PARTS_RING_TILES, a->head_dim, PARTS_RING_LEAST) + PARTS_RING_LEFT <= lode_cuda_room(o->r->c) &&
           has_panels(o, a, map);
}
/* Its launch for a->n_rows rows.  takes_parts sees to it that a block has chains of two heads of keys at most. */
struct parts_ring {
    struct lode_cuda_parts_ring_args args;
    uint32_t x, y, shared;
};
static void plan_parts_ring(const struct op *o, const struct lode_cuda_att_args *a, uint32_t chains, struct parts_ring *p) {
    enum { WARPS = LODE_PARTS_RING_WARPS, TILES = LODE_PARTS_RING_TILES, SLOTS = LODE_PARTS_RING_SLOTS };
    const uint32_t dim = a->head_dim, rows = lode_cuda_up(a->n_rows * (a->n_heads / a->n_kv_heads), 16);
    p->y = lode_cuda_up(rows, TILES);
    const uint32_t tiles = lode_cuda_up(rows, p->y), room = lode_cuda_room(o->r->c) - PARTS_RING_LEFT - LODE_PARTS_RING_SHARED(tiles, dim, 0);
    const uint32_t fit = room / LODE_PARTS_RING_SLOT(dim), slots = fit < SLOTS ? fit : SLOTS;
    const uint32_t all = a->n_kv_heads * chains, each = lode_cuda_up(all, (uint32_t)o->r->c->multiprocessors / p->y); /* chains of a block, at most */
    const uint32_t most = slots / 2 < WARPS / tiles ? slots / 2 : WARPS / tiles;                                     /* at a time */
    p->x = lode_cuda_up(all, each);
    p->args.tiles = tiles;
    p->args.groups = lode_cuda_up(each, lode_cuda_up(each, most));
    p->args.slots = slots;
    p->shared = LODE_PARTS_RING_SHARED(tiles, dim, slots);
}

/* Whether rows see so many pages, and are too few for as many blocks of threads as there are multiprocessors, that each chain is better by
 * itself: not where what chains leave is more than their keys and values would take. */
static bool takes_parts(const struct op *o, const struct lode_cuda_attend_kernels *k, const struct lode_cuda_att_args *a, uint32_t tiles, uint32_t pages) {
    enum { LEAST_PAGES = 13, LEAST_OF_RING = 5, MOST_NUMBERS = 1 << 17, MANY_PAGES = 128 /* of twice as many */ };
    struct lode_cuda_map map;
    const bool ring = pages >= LEAST_OF_RING && o->step->n_segments == 1 && has_parts_ring(o, k, a, &map); /* (each sequence's are two launches) */
    return tiles * a->n_kv_heads < (uint32_t)o->r->c->multiprocessors && !a->both_ways && pages <= 65535 &&
           (ring || pages >= LEAST_PAGES) && lode_cuda_parts_size(a) <= LODE_CUDA_SCRATCH && a->head_dim_v % 16 == 0 &&
           (uint64_t)o->step->n_rows * a->n_heads * a->head_dim_v <= (pages < MANY_PAGES ? MOST_NUMBERS : 2 * MOST_NUMBERS);
}
/* Chains of a->n_rows rows from a->first_row on, to the scratch. */
static int leave_parts(const struct op *o, const struct lode_cuda_attend_kernels *k, const struct lode_cuda_att_args *a, uint32_t pages, uint32_t size) {
    const uint32_t group = a->n_heads / a->n_kv_heads, chains = pages < a->chains ? pages : a->chains;
    struct parts_ring ring = {.args = {.att = *a}};
    if (has_parts_ring(o, k, a, &ring.args.rows)) {
        plan_parts_ring(o, a, chains, &ring);
        return lode_cuda_run_kernel(o, k->parts_ring[a->head_dim == 128], ring.x, ring.y, 1,
                                    32 * (ring.args.tiles * ring.args.groups + 1), ring.shared, &ring.args);
    }
    const uint32_t most_blocks = (a->head_dim_v <= 64 ? 4 : 3) * (uint32_t)o->r->c->multiprocessors;
    const uint32_t tiles = lode_cuda_up(a->n_rows * group, LODE_ATT_FAST_ROWS), z = lode_cuda_blocks_for(chains, most_blocks / (a->n_kv_heads * tiles));
    return lode_cuda_run_kernel(o, k->parts[size], a->n_kv_heads, tiles, z, LODE_ATT_FAST_THREADS, many_shared(o, a), a);
}
static int run_parts(const struct op *o, const struct lode_cuda_attend_kernels *k, const struct lode_cuda_att_args *a, uint32_t pages, uint32_t size) {
    const uint64_t most = LODE_CUDA_SCRATCH / lode_cuda_parts_size(a); /* rows at once */
    struct lode_cuda_att_args some = *a;
    for (uint32_t i = 0; i < o->step->n_segments; i++) {
        const uint32_t rows = o->step->segments[i].n_rows, times = (uint32_t)((rows + most - 1) / most);
        for (uint32_t done = 0, n; done < rows; done += n) {
            n = (rows + times - 1) / times; /* of one size, nearly */
            n = n < rows - done ? n : rows - done;
            some.first_row = o->step->segments[i].first_row + done;
            some.n_rows = n;
            LODE_TRY(leave_parts(o, k, &some, pages, size));
            LODE_TRY(lode_cuda_merge_parts(o, &some, n));
        }
    }
    return 1;
}

/* kernels/attention/attention_latent.cu: 1, or 0 where the device, the rows or the pages are not for it. */
static int run_latent(const struct op *o, const struct lode_cuda_attend_kernels *k, const struct lode_cuda_att_args *a) {
    enum { MANY_PAGES = 12 }; /* blocks take as long to begin as for some */
    const struct lode_kv_view v = lode_kv_view(o->step->segments[0].kv, a->layer);
    const uint32_t tiles = lode_cuda_attention_tiles(o, a->n_heads / a->n_kv_heads, 64);
    struct lode_cuda_att_wide_args args = {.att = *a};
    if (!k->latent || a->cap > 0 || a->max_pages < MANY_PAGES || 2 * tiles * a->n_kv_heads < (uint32_t)o->r->c->multiprocessors ||
        !lode_cuda_map_long_rows(o->r->c, &v, a->head_dim, &args.rows))
        return 0;
    LODE_TRY(lode_cuda_run_kernel(o, k->latent, a->n_kv_heads, tiles, 2, 384, LODE_ATT_LATENT_SHARED, &args));
    return 1;
}

/* kernels/attention/attention_long.cu: all rows' pages (attention_latent.cu where it can), or where blocks are few and the scratch has room for it
 * every n-th chain. */
static int run_long(const struct op *o, const struct lode_cuda_attend_kernels *k, const struct lode_cuda_att_args *a) {
    enum { LEAST_CHAINS = 3 }; /* with fewer joining takes longer than walking */
    const uint32_t group = a->n_heads / a->n_kv_heads, room = long_room(o), multiprocessors = (uint32_t)o->r->c->multiprocessors;
    const bool many = group * o->step->n_rows > 16 && long_shared(a, 32, 1) <= room;
    const uint32_t rows = many ? 32 : 16, tiles = lode_cuda_attention_tiles(o, group, rows), blocks = a->n_kv_heads * tiles;
    struct lode_cuda_att_long_args args = {.att = *a, .slots = long_shared(a, rows, 2) <= room ? 2 : 1, .slot_size = long_slot(a)};
    const uint32_t shared = long_shared(a, rows, args.slots);
    const bool latent = a->head_dim == LODE_ATT_LONG_DIM && a->head_dim_v == LODE_ATT_LONG_DIM_V && lode_kv_layer(o->step->segments[0].kv, a->layer)->v_in_k;
    void *const(*kernels)[2] = k->large[latent];
    if (a->tiles.kind != LODE_TILES_NONE)
        return 0;
    const bool parts = a->max_pages >= LEAST_CHAINS && 2 * blocks <= multiprocessors && !a->both_ways &&
                       o->step->n_rows * lode_cuda_parts_size(a) <= LODE_CUDA_SCRATCH;
    const int wide = parts || !latent ? 0 : run_latent(o, k, a);
    if (wide)
        return wide;
    if (!parts) {
        LODE_TRY(lode_cuda_run_kernel(o, kernels[0][many], a->n_kv_heads, tiles, 1, LODE_ATT_LONG_THREADS, shared, &args));
        return 1;
    }
    args.att.n_rows = o->step->n_rows;
    LODE_TRY(lode_cuda_run_kernel(o, kernels[1][many], a->n_kv_heads, tiles, lode_cuda_blocks_for(a->max_pages, multiprocessors / blocks),
                                  LODE_ATT_LONG_THREADS, shared, &args));
    LODE_TRY(lode_cuda_merge_parts(o, a, o->step->n_rows));
    return 1;
}

int lode_cuda_run_attention_fast(const struct op *o, const struct lode_cuda_att_args *a) {
    enum { TILE = LODE_ATT_FAST_ROWS };
    const struct lode_cuda_attend_kernels *k = kernels_of(o, a);
    if (!k)
        return 0;
    if (is_long(a))
        return run_long(o, k, a);
    const uint32_t group = a->n_heads / a->n_kv_heads;
    const uint32_t dim = a->head_dim > a->head_dim_v ? a->head_dim : a->head_dim_v;
    const int i = dim <= 64 ? 0 : dim <= 128 ? 1 : 2;
    const uint32_t shared = many_shared(o, a);
    const uint32_t tiles = lode_cuda_attention_tiles(o, group, TILE);
    uint32_t pages = o->r->pages;
    if (a->window) { /* what the rows of a tile reach over, at most */
        const uint32_t most = (a->window + TILE) / LODE_KV_PAGE + 2;
        pages = pages < most ? pages : most;
    }
    if (takes_parts(o, k, a, tiles, pages))
        return a->tiles.kind == LODE_TILES_NONE ? run_parts(o, k, a, pages, (uint32_t)i) : 0;
    const int wide = run_wide(o, k, a);
    if (wide != 0)
        return wide;
    if (a->tiles.kind == LODE_TILES_SPREAD) /* those that attention_wide.cu has no heads for */
        return 0;
    LODE_TRY(lode_cuda_run_kernel(o, (pages > a->chains ? k->deep : k->many)[i], a->n_kv_heads, tiles, 1, LODE_ATT_FAST_THREADS, shared, a));
    return 1;
}
