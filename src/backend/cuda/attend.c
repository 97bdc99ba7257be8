/* attend.c - attention, exact: which kernels a step's rows and pages want.  All give the same bits. */
#include "backend/cuda/run.h"
#include "backend/cuda/kernels/attention/attention_shared.h"

static const struct lode_cuda_kernels *kernels(const struct op *o) { return &o->r->c->kernels; }

/* With the pages that a row may have to look at. */
static struct lode_cuda_att_args attention_args(const struct op *o, const struct lode_instr *in) {
    const union lode_op_params *p = &in->p;
    struct lode_cuda_att_args a = {.step = o->r->step,
                                   .sinks = lode_cuda_weight(o, in->parts[0].w),
                                   .scratch = o->r->scratch,
                                   .views = o->r->views,
                                   .q = lode_cuda_mat(&in->in[0]),
                                   .y = lode_cuda_mat(&in->parts[0].out),
                                   .layer = p->attention.layer,
                                   .n_heads = p->attention.n_heads,
                                   .n_kv_heads = p->attention.n_kv_heads,
                                   .head_dim = p->attention.head_dim,
                                   .head_dim_v = p->attention.head_dim_v,
                                   .window = p->attention.window,
                                   .chunk = p->attention.chunk,
                                   .max_pages = o->r->pages,
                                   .both_ways = p->attention.both_ways,
                                   .scale = p->attention.scale,
                                   .cap = p->attention.cap};
    if (a.window) { /* a window and the rows of a tile reach over at most so many */
        const uint32_t most = (a.window + 16) / LODE_KV_PAGE + 2;
        a.max_pages = a.max_pages < most ? a.max_pages : most;
    }
    if (lode_cuda_attends_fast(o, &a))
        lode_cuda_set_chains(&a, p->attention.all_kv_heads);
    return a;
}

static bool is_half(enum lode_dtype type) { return type == LODE_F16 || type == LODE_BF16; }

/* Whether rows of dim numbers of a type, `at` bytes into a page, are read as decode's kernels read them. */
static bool can_decode(enum lode_dtype type, uint32_t dim, size_t stride, size_t at) {
    const bool q8 = type == LODE_Q8_0;
    return (is_half(type) || q8) && dim % (q8 ? 32 : 16) == 0 && dim <= 256 && at % 16 == 0 &&
           (q8 ? stride == LODE_ATT_Q8_0_STRIDE(dim) : stride % 16 == 0);
}

/* A step's keys and values in an attention's layer. */
struct cache {
    const struct lode_kv_layer *layer;
    struct lode_kv_view view;
    bool readable; /* by all kernels but attention.cu's: 16 bits or Q8_0, up to 256 numbers */
};
static struct cache cache_of(const struct op *o, const struct lode_cuda_att_args *a) {
    const struct lode_kv *kv = o->step->segments[0].kv;
    struct cache c = {.layer = lode_kv_layer(kv, a->layer), .view = lode_kv_view(kv, a->layer)};
    c.readable = c.view.page_size % 16 == 0 && can_decode(c.layer->type_k, a->head_dim, c.view.k_stride, c.view.k) &&
                 can_decode(c.layer->type_v, a->head_dim_v, c.view.v_stride, c.view.v);
    return c;
}

/* Bytes of a slot of decode_walk.cu's rings. */
static uint32_t walk_slot(enum lode_dtype type, uint32_t dim, bool keys) {
    const uint32_t stride = type == LODE_Q8_0 ? LODE_ATT_Q8_0_STRIDE(dim) : keys ? LODE_WALK_KEY_STRIDE(dim) : 2 * dim;
    return (LODE_WALK_ROWS * stride + 15 + 15) / 16 * 16; /* what is no multiple of 16 begins up to 15 bytes later */
}

bool lode_cuda_map_memory(const struct lode_cuda *c, const struct lode_kv_view *v, uint32_t dim, uint32_t rows, struct lode_cuda_map *map) {
    /* dim 2: rows of 64 numbers, then their next 64; those that begin in one of 2^30 bytes are its own, though the box may reach into the
     * next */
    const uint64_t pitch = 2 * dim, sizes[4] = {64, (2ull << 30) / pitch, dim / 64, 1 << 19}, strides[3] = {pitch, 128, 1 << 30};
    const uint32_t box[4] = {64, rows, dim / 64, 1}, steps[4] = {1, 1, 1, 1};
    return c->cu.tensor_map && v->k_stride == pitch && v->v_stride == pitch && (uintptr_t)v->pool >= LODE_CUDA_MAP_FROM &&
           (uintptr_t)v->pool % pitch == 0 && v->page_size % pitch == 0 && v->k % pitch == 0 && v->v % pitch == 0 &&
           c->cu.tensor_map(map, LODE_CU_MAP_F16, 4, (void *)(uintptr_t)LODE_CUDA_MAP_FROM, sizes, strides, box, steps, 0,
                            LODE_CU_MAP_SWIZZLE_128, LODE_CU_MAP_PROMOTE_128, 0) == 0;
}

bool lode_cuda_map_long_rows(const struct lode_cuda *c, const struct lode_kv_view *v, uint32_t dim, struct lode_cuda_map *map) {
    enum { LINE = 128 };
    /* pages begin at lines; dim 2: rows of 64 numbers, then their next 64 */
    const uint64_t sizes[5] = {64, LODE_KV_PAGE, dim / 64, (1 << 30) / LINE, 1 << 19}, strides[4] = {2ull * dim, LINE, LINE, 1 << 30};
    const uint32_t box[5] = {64, LODE_KV_PAGE, dim / 64, 1, 1}, steps[5] = {1, 1, 1, 1, 1};
    return c->cu.tensor_map && dim % 64 == 0 && v->k_stride == 2 * dim && (uintptr_t)v->pool >= LODE_CUDA_MAP_FROM &&
           (uintptr_t)v->pool % LINE == 0 && v->page_size % LINE == 0 && v->k % LINE == 0 &&
           c->cu.tensor_map(map, LODE_CU_MAP_F16, 5, (void *)(uintptr_t)LODE_CUDA_MAP_FROM, sizes, strides, box, steps, 0,
                            LODE_CU_MAP_SWIZZLE_128, LODE_CU_MAP_PROMOTE_128, 0) == 0;
}

/* A launch of attention of one row a sequence, or few rows of some, each by itself. */
struct decode {
    struct cache cache;
    uint32_t rows;
    bool one_each;
};

uint32_t lode_cuda_blocks_by_shared(const struct lode_cuda *c, uint32_t shared) {
    return ((uint32_t)c->shared_max + 1024) / (shared + LODE_WALK_STATIC + 1024);
}

/* kernels/attention/decode_walk.cu: as many blocks as run at once, or one for each row and head: 1, or 0 where the shared
 * memory is too small for it. */
static int run_walk(const struct op *o, const struct lode_cuda_decode_args *d, const struct decode *s) {
    const struct lode_kv_layer *l = s->cache.layer;
    const struct lode_kv_view *v = &s->cache.view;
    const struct lode_cuda *c = o->r->c;
    const struct lode_cuda_att_args *a = &d->att;
    const uint32_t group = a->n_heads / a->n_kv_heads, rows = s->rows;
    const int i = group > 4 ? 3 : group > 2 ? 2 : (int)group - 1;
    const uint32_t heads = 1u << i, x = a->n_kv_heads * ((group + heads - 1) / heads);
    const uint32_t dim = a->head_dim > a->head_dim_v ? a->head_dim : a->head_dim_v;
    struct lode_cuda_walk_args args = {.decode = *d};
    if (l->type_k != l->type_v || a->head_dim_v > 128)
        return 0;
    const bool panels = l->type_k != LODE_Q8_0 && a->head_dim == LODE_WALK_PANELS && a->head_dim_v == LODE_WALK_PANELS &&
                        v->k_stride == 2 * LODE_WALK_PANELS && v->v_stride == v->k_stride &&
                        (c->major < 9 || (v->k < v->v && lode_cuda_map_memory(c, v, LODE_WALK_PANELS, LODE_WALK_ROWS, &args.rows)));
    const uint32_t of_k = panels ? LODE_WALK_ROWS * 256 : walk_slot(l->type_k, a->head_dim, true),
                   of_v = panels ? of_k : walk_slot(l->type_v, a->head_dim_v, false);
    args.slot_size = of_k > of_v ? of_k : of_v;
    const uint32_t shared = LODE_WALK_SLOTS_AT(heads, a->head_dim, dim) + LODE_WALK_WARPS * LODE_WALK_SLOTS * args.slot_size;
    if (shared > lode_cuda_room(o->r->c))
        return 0;
    uint32_t at_once = lode_cuda_blocks_by_shared(c, shared);
    at_once = (at_once < LODE_WALK_BLOCKS ? at_once : LODE_WALK_BLOCKS) * (uint32_t)c->multiprocessors;
    const uint32_t z = lode_cuda_blocks_for(a->max_pages, at_once / (x * rows));
    /* a second part delays queries, which pays where pairs have more to do than their first page */
    enum { PAGES = 3 };
    const bool much = rows > 1 || a->max_pages >= PAGES * z * LODE_WALK_WARPS / 2;
    args.early = !s->one_each ? 0 : much && l->type_k != LODE_Q8_0 ? 2 : 1;
    const enum lode_cuda_walk walk = l->type_k == LODE_F16    ? panels ? LODE_CUDA_WALK_f16_128 : LODE_CUDA_WALK_f16
                                     : l->type_k == LODE_BF16 ? panels ? LODE_CUDA_WALK_bf16_128 : LODE_CUDA_WALK_bf16
                                                              : LODE_CUDA_WALK_q8_0;
    LODE_TRY(lode_cuda_run_kernel(o, c->kernels.walk[walk][i], x, rows, z, 32 * LODE_WALK_WARPS, shared, &args));
    return 1;
}

/* How many query heads share a block of decode.cu, as a power of two: few while there are multiprocessors for all. */
static int decode_heads(uint32_t group, uint64_t pages, uint32_t multiprocessors) {
    int i = group > 4 ? 3 : group > 2 ? 2 : (int)group - 1;
    while (i > 0 && pages * ((group + (1u << i) / 2 - 1) / ((1u << i) / 2)) <= multiprocessors)
        i--;
    return i;
}

/* kernels/attention/decode.cu.  1: a block of threads had all pages of a row's head, as where there are few and multiprocessors for all such
 * blocks; 0: what pages give is in the scratch. */
static int run_pages(const struct op *o, const struct lode_cuda_decode_args *d, uint32_t rows) {
    const struct lode_cuda_kernels *k = kernels(o);
    const struct lode_cuda_att_args *a = &d->att;
    const uint32_t group = a->n_heads / a->n_kv_heads;
    const uint32_t multiprocessors = (uint32_t)o->r->c->multiprocessors;
    enum { HEADS = 4 }; /* of a block with several pages, at most: eight take too many registers */
    const uint64_t heads_of_rows = (uint64_t)a->n_kv_heads * rows;
    const bool several = a->max_pages <= LODE_DECODE_PAGES && heads_of_rows <= multiprocessors &&
                         a->max_pages * LODE_DECODE_PAGE(HEADS, a->head_dim, a->head_dim_v, false) <= lode_cuda_room(o->r->c);
    const bool whole = a->head_dim_v <= a->head_dim && (a->max_pages == 1 || several);
    int i = decode_heads(group, whole ? heads_of_rows : heads_of_rows * a->max_pages, multiprocessors);
    i = whole && a->max_pages > 1 && 1 << i > HEADS ? 2 : i;
    const uint32_t heads = 1u << i, n = whole ? a->max_pages : 1;
    void *const kernel[4] = {k->decode_1, k->decode_2, k->decode_4, k->decode_8};
    const uint32_t parts = (group + heads - 1) / heads;
    struct lode_cuda_page_args p = {.decode = *d,
                                    .whole = whole,
                                    .group = group,
                                    .parts = lode_cuda_divisor(parts),
                                    .each = lode_cuda_divisor(a->head_dim_v / (heads < 4 ? heads : 4)),
                                    .k_pieces = lode_cuda_divisor(a->head_dim / 8),
                                    .v_pieces = lode_cuda_divisor(a->head_dim_v / 8)};
    p.keys_here = n * LODE_DECODE_PAGE(heads, a->head_dim, a->head_dim_v, true) <= lode_cuda_room(o->r->c);
    p.page_bytes = LODE_DECODE_PAGE(heads, a->head_dim, a->head_dim_v, p.keys_here);
    LODE_TRY(lode_cuda_run_kernel(o, kernel[i], a->n_kv_heads * parts, rows, whole ? 1 : a->max_pages,
                                  LODE_DECODE_THREADS * n, n * p.page_bytes, &p));
    return whole;
}

/* Whether a block of threads of decode_short.cu can prepare all that it sees of a step's own rows: a warp has a head in
 * registers, and not more of them after each other than take as long as a launch. */
static bool prepares_several(const struct lode_cuda_att_args *a, const struct lode_cuda_prepare_args *p, uint32_t rows) {
    enum { MOST = 8 };
    const bool q = !p->pairs_q || LODE_TURNS_IN_REGISTERS(a->head_dim, p->pairs_q, p->norms_q, p->kind_q);
    const bool k = !p->pairs_k || LODE_TURNS_IN_REGISTERS(a->head_dim, p->pairs_k, p->norms_k, p->kind_k);
    return rows <= MOST && q && k;
}

int lode_cuda_size_of_heads(const struct lode_cuda_att_args *a) {
    return a->head_dim != a->head_dim_v ? 0 : a->head_dim == 128 ? 2 : a->head_dim == 64 ? 1 : 0;
}

/* kernels/attention/decode_short.cu: a block of threads has a query head and all its pages, where there are few and all blocks run at
 * once: 1, or 0 where they do not. */
static int run_short(const struct op *o, const struct lode_cuda_decode_args *d, const struct decode *s) {
    const struct lode_cuda_att_args *a = &d->att;
    const uint32_t shared = LODE_SHORT_SHARED(a->head_dim, a->head_dim_v, a->max_pages);
    const uint64_t blocks = (uint64_t)a->n_heads * s->rows, by_threads = LODE_SHORT_PAGES / a->max_pages,
                   by_shared = lode_cuda_blocks_by_shared(o->r->c, shared), at_once = by_threads < by_shared ? by_threads : by_shared;
    const bool f16 = s->cache.layer->type_k == LODE_F16;
    if (a->max_pages > LODE_SHORT_PAGES || s->cache.layer->type_k != s->cache.layer->type_v || !is_half(s->cache.layer->type_k) ||
        shared > lode_cuda_room(o->r->c) || blocks > at_once * (uint64_t)o->r->c->multiprocessors)
        return 0;
    const struct lode_cuda_short_args args = {.decode = *d,
                                              .group = lode_cuda_divisor(a->n_heads / a->n_kv_heads),
                                              .k_pieces = lode_cuda_divisor(a->head_dim / 8),
                                              .v_pieces = lode_cuda_divisor(a->head_dim_v / 8)};
    const int size = lode_cuda_size_of_heads(a);
    void *const kernel = !s->one_each && d->prepares ? kernels(o)->several[!f16][size] : kernels(o)->brief[!f16][size];
    if (!kernel)
        return 0;
    LODE_TRY(lode_cuda_run_kernel(o, kernel, a->n_heads, s->rows, 1, LODE_SHORT_THREADS * a->max_pages, shared, &args));
    return 1;
}

/* Rows whose parts fit the scratch: 1, or 0 where there is no kernel for them. */
static int run_rows(const struct op *o, const struct lode_cuda_decode_args *d, const struct decode *s) {
    enum { FEW_PAGES = 4 };                  /* a multiprocessor, of all heads: up to so many a page a block is quicker */
    enum { WALK_HEADS = 2 };                 /* of so many query heads, and from half a page a multiprocessor on: two warps a page */
    const struct lode_cuda_att_args *a = &d->att;
    const uint32_t group = a->n_heads / a->n_kv_heads;
    const uint64_t pages = (uint64_t)a->n_kv_heads * s->rows * a->max_pages;
    const uint64_t multiprocessors = (uint64_t)o->r->c->multiprocessors;
    const bool halves = is_half(s->cache.layer->type_k) && is_half(s->cache.layer->type_v);
    const bool few = halves && pages <= FEW_PAGES * multiprocessors;
    const bool walks = !few || (s->one_each && 2 * pages > multiprocessors && pages * group > WALK_HEADS * multiprocessors);
    if (!s->one_each && few && s->rows > LODE_FEW_ROWS)
        return 0;
    int fast, walked = 0, is_short = lode_cuda_run_short_fast(o, d);
    if (is_short != 0)
        return is_short;
    LODE_TRY(fast = lode_cuda_run_decode_fast(o, d));
    is_short = fast ? 0 : run_short(o, d, s);
    if (is_short != 0)
        return is_short;
    if (!fast && walks)
        LODE_TRY(walked = run_walk(o, d, s));
    if (!fast && !walked) {
        if (s->one_each ? !halves : !few)
            return 0;
        const int whole = run_pages(o, d, s->rows);
        if (whole)
            return whole;
    }
    if (a->max_pages > 1 || walked || !fast)
        LODE_TRY(lode_cuda_merge_parts(o, a, s->rows));
    return 1;
}

/* Keys and values in 16 bits or Q8_0, heads of up to 256 numbers; one row of each sequence, or few rows of some. */
int lode_cuda_run_decode(const struct op *o, const struct lode_instr *attention,
                         const struct lode_cuda_prepare_args *prepared) {
    struct lode_cuda_decode_args d = {.att = attention_args(o, attention)};
    const struct lode_cuda_att_args *a = &d.att;
    const uint32_t rows = o->step->n_rows;
    struct decode s = {cache_of(o, a), rows, o->step->n_segments == rows};
    const uint64_t at_once = LODE_CUDA_SCRATCH / lode_cuda_parts_size(a);
    const bool fast = lode_cuda_attends_fast(o, a);
    enum { MOST_ROWS = 47 }; /* if they are not one a sequence: more are quicker in tiles */
    if ((!s.one_each && rows > MOST_ROWS) || a->both_ways || !s.cache.readable ||
        a->head_dim_v % 16 || a->max_pages > 65535 || rows > 65535 ||
        at_once == 0 || (at_once < rows && fast) || (prepared && s.cache.layer->v_in_k))
        return 0;
    if (prepared) {
        d.heads = *prepared;
        d.prepares = 1;
    }
    /* of several rows of a sequence each needs the others' keys, which are only there when all are prepared */
    if (!s.one_each && prepared && !prepares_several(a, prepared, rows))
        return 0;
    if (!s.one_each && fast)
        return lode_cuda_run_short_fast(o, &d);
    if (!s.one_each && prepared)
        return run_short(o, &d, &s);
    for (uint32_t first = 0; first < rows; first += s.rows) {
        s.rows = rows - first < at_once ? rows - first : (uint32_t)at_once;
        d.att.first_row = first;
        const int done = run_rows(o, &d, &s);
        if (done <= 0)
            return done;
    }
    return 1;
}

uint32_t lode_cuda_attention_tiles(const struct op *o, uint32_t group, uint32_t rows) {
    uint32_t tiles = 0;
    for (uint32_t i = 0; i < o->step->n_segments; i++)
        tiles += (o->step->segments[i].n_rows * group + rows - 1) / rows;
    return tiles;
}

/* attention_large's rows of a block: 64 are quicker, where there is room, unless the block that sees most would take much longer than all
 * blocks do together. */
static uint32_t large_rows(const struct op *o, const struct lode_cuda_att_args *a) {
    const uint32_t group = a->n_heads / a->n_kv_heads;
    uint64_t most = 0, all = 0; /* a block's pages; twice those of all blocks of a head of keys */
    for (uint32_t i = 0; i < o->step->n_segments; i++) {
        const struct lode_segment *s = &o->step->segments[i];
        const uint64_t first = s->pos / LODE_KV_PAGE + 1, last = (s->pos + s->n_rows - 1) / LODE_KV_PAGE + 1;
        most = last > most ? last : most;
        all += (s->n_rows * group + 63) / 64 * (first + last);
    }
    const uint64_t at_once = 2 * (uint64_t)o->r->c->multiprocessors;
    const bool alone = 4 * most * at_once > 3 * all * a->n_kv_heads; /* half as much again */
    return alone || LODE_LARGE_SHARED(64) > lode_cuda_room(o->r->c) ? 32 : 64;
}

/* kernels/attention/attention_large.cu: of the forms that it could take these were compared with the definition on a GPU. */
static bool takes_large(const struct op *o, const struct lode_cuda_att_args *a, const struct cache *c) {
    return c->readable && a->head_dim == 128 && a->head_dim_v == 128 && c->layer->type_k == LODE_F16 &&
           c->layer->type_v == LODE_F16 && !a->window && !a->chunk && !a->both_ways && a->cap == 0 && !a->sinks &&
           LODE_LARGE_SHARED(32) <= lode_cuda_room(o->r->c);
}

/* kernels/attention/attention_ring.cu: heads of 128 or 64 numbers in 16 bits or Q8_0, where blocks of 128 rows are enough for the multiprocessors
 * (three of four, where attention_large is the other way; from one of nine on it is quicker than rows by sixteens) and on
 * average at least half full: 1, or 0 where they are not. */
static int run_attention_ring(const struct op *o, const struct lode_cuda_att_args *a, const struct cache *c, bool large) {
    const uint32_t group = a->n_heads / a->n_kv_heads, rows = o->step->n_rows, dim = a->head_dim;
    const uint32_t tiles = lode_cuda_attention_tiles(o, group, LODE_RING_ROWS);
    const uint64_t blocks = (uint64_t)tiles * a->n_kv_heads, multiprocessors = (uint64_t)o->r->c->multiprocessors;
    void *const kernel = o->r->c->kernels.ring[dim == 64];
    const uint32_t shared = LODE_RING_SHARED(dim);
    const bool enough = large ? 4 * blocks >= 3 * multiprocessors : 9 * blocks >= multiprocessors;
    if ((dim != 128 && dim != 64) || a->head_dim_v != dim || !kernel || !enough || 2ull * rows * group < (uint64_t)tiles * LODE_RING_ROWS ||
        !c->readable || shared > lode_cuda_room(o->r->c))
        return 0;
    /* all blocks at once take as long as the one that sees most: then each has a half that sees little beside it */
    const bool halves = blocks <= multiprocessors && !a->window && !a->chunk && !a->both_ways;
    const struct lode_cuda_ring_args args = {.att = *a, .halves = halves};
    LODE_TRY(lode_cuda_run_kernel(o, kernel, a->n_kv_heads, tiles, 1, LODE_RING_THREADS, shared, &args));
    return 1;
}

/* Steps of many rows: 1, or 0 where the step or the format is none that there is a kernel for. */
static int run_attention_many(const struct op *o, const struct lode_cuda_att_args *a) {
    enum { TILE = 64 }; /* attention_tile's */
    const struct cache c = cache_of(o, a);
    const bool wide = a->head_dim_v > 128, large = takes_large(o, a, &c);
    const int ring = run_attention_ring(o, a, &c, large);
    if (ring)
        return ring;
    const uint32_t group = a->n_heads / a->n_kv_heads;
    const uint32_t dim = a->head_dim > a->head_dim_v ? a->head_dim : a->head_dim_v;
    const uint32_t tiles = lode_cuda_attention_tiles(o, group, TILE);
    /* with blocks for a third of the multiprocessors (attention_large: a sixth) still quicker than rows by sixteens with all of them */
    if ((large ? 6 : 3) * tiles * a->n_kv_heads < (uint32_t)o->r->c->multiprocessors || !c.readable)
        return 0;
    if (large) {
        const uint32_t rows = large_rows(o, a);
        LODE_TRY(lode_cuda_run_kernel(o, rows == 64 ? kernels(o)->attention_large : kernels(o)->attention_large_32,
                                      a->n_kv_heads, lode_cuda_attention_tiles(o, group, rows), 1, LODE_LARGE_THREADS,
                                      LODE_LARGE_SHARED(rows), a));
        return 1;
    }
    const uint32_t ld = (dim + 31) / 32 * 32 + 16; /* carve's */
    const uint32_t shared = 4 * ((TILE + LODE_KV_PAGE) * ld + LODE_KV_PAGE * (TILE + 4) + 7 * TILE);
    if (shared > lode_cuda_room(o->r->c))
        return 0;
    LODE_TRY(lode_cuda_run_kernel(o, wide ? kernels(o)->attention_tile_256 : kernels(o)->attention_tile, a->n_kv_heads, tiles, 1,
                                  256, shared, a));
    return 1;
}

int lode_cuda_run_attention_rounded(const struct op *o, const struct lode_cuda_tiles *tiles) {
    struct lode_cuda_att_args a = attention_args(o, o->in);
    a.tiles = *tiles;
    return lode_cuda_run_attention_fast(o, &a);
}

int lode_cuda_run_attention(const struct op *o) {
    const int decoded = lode_cuda_run_decode(o, o->in, NULL);
    if (decoded != 0)
        return decoded < 0 ? decoded : 0;
    struct lode_cuda_att_args a = attention_args(o, o->in);
    const int fast = lode_cuda_run_attention_fast(o, &a);
    if (fast != 0)
        return fast < 0 ? fast : 0;
    const int many = run_attention_many(o, &a);
    if (many != 0)
        return many < 0 ? many : 0;
    const uint32_t rows = o->step->n_rows, pages = a.max_pages, tiles = lode_cuda_attention_tiles(o, a.n_heads / a.n_kv_heads, 16);
    const uint32_t shared = lode_cuda_attention_shared(o->r->c, a.head_dim, a.head_dim_v, &a.kv_rows);
    const bool few = tiles * a.n_kv_heads < 4 * (uint32_t)o->r->c->multiprocessors;
    if (pages > 1 && pages <= 65535 && few && rows * lode_cuda_parts_size(&a) <= LODE_CUDA_SCRATCH) {
        LODE_TRY(lode_cuda_run_kernel(o, kernels(o)->attention_page, a.n_kv_heads, tiles, pages,
                                      256, shared, &a));
        return lode_cuda_run_kernel(o, kernels(o)->attention_merge, a.n_heads, rows, 1,
                                    a.head_dim_v <= 64    ? 64
                                    : a.head_dim_v <= 128 ? 128
                                                          : 256,
                                    0, &a);
    }
    return lode_cuda_run_kernel(o, kernels(o)->attention_walk, a.n_kv_heads, tiles, 1, 256, shared,
                                &a);
}
