/* placement.c - what of a model lives where, from its headers and a budget. */
#include "engine/placing.h"

#include "base/machine.h"
#include "engine/bring.h"
#include "model/groups.h"
#include "store/stream.h"

#include <malloc.h>
#include <math.h>

enum { LEAST_CTX = 4096, DEVICE_MARGIN = 192 << 20 /* staging of the upload, graphs, what allocations are rounded to */ };

/* Code and tables that only computing touches, about 260 KB with every architecture that was looked at, and what
 * a verb has beyond `lode plan`, 190 KB: a fault maps the program's pages around the wanted one. */
enum { COMPUTING = 448 << 10 };

/* Bytes that this process holds now: code, vocabulary, headers; and what it will besides models. */
static uint64_t program_size(void) {
    malloc_trim(0); /* what the vocabulary took while it was read would be counted twice */
    return lode_machine_resident() + COMPUTING;
}

/* The largest multiple of 256 in [low, high] at which everything is in memory; low when none is. */
static int largest_ctx(struct placing *pl, uint32_t low, uint32_t high, struct lode_error *err) {
    LODE_TRY(placing_count_sessions(pl, high, err));
    if (placing_all_fits(pl) || high <= low)
        return 0;
    uint32_t fits = low / 256, fails = (high + 255) / 256;
    while (fits + 1 < fails) {
        const uint32_t middle = fits + (fails - fits) / 2;
        LODE_TRY(placing_count_sessions(pl, middle * 256, err));
        *(placing_all_fits(pl) ? &fits : &fails) = middle;
    }
    return placing_count_sessions(pl, fits * 256 > low ? fits * 256 : low, err);
}

/* Of uses, those that find their expert in a cache with such a share of all: (1 - share)^1.75, without what
 * pow() has in memory. */
static double hits_of(double share) {
    const double missing = share < 1 ? 1 - share : 0, root = sqrt(missing);
    return 1 - missing * root * sqrt(root);
}

/* The cache that is left for experts; 0: all are in memory anyway. */
static void choose_cache(struct placing *pl) {
    struct lode_placement *p = pl->p;
    p->hit_rate = 1;
    p->expert_cache = p->layer_cache = 0;
    p->fits = placing_all_fits(pl);
    if (p->fits || !placing_fits_devices(pl))
        return;
    const uint64_t room = pl->room[LODE_HOST], fixed = placing_fixed_size(pl) + pl->around;
    /* what is left beside the layers' own matrices, and beside a token's experts without them */
    const uint64_t left = room > fixed ? room - fixed : 0;
    const uint64_t other = fixed - p->layers_size + p->expert_cache_least;
    p->fits = p->experts_size && left >= p->expert_cache_least;
    if (!p->fits && p->layers_size && other + p->layer_cache_least <= room) {
        p->fits = true;
        p->layer_cache =
            lode_layers_room(&pl->m->graphs[LODE_BODY], pl->m->source, pl->m->weights, pl->split.uses, room - other);
    }
    if (p->experts_size == 0)
        return;
    p->expert_cache = left >= p->expert_cache_least ? left : p->expert_cache_least;
    if (p->layer_cache) /* what no whole layer fits into */
        p->expert_cache += room - other - p->layer_cache;
    if (p->expert_cache > pl->slots_most)
        p->expert_cache = pl->slots_most;
    p->hit_rate = pl->budget->hit_rate > 0 ? pl->budget->hit_rate
                                           : hits_of((double)p->expert_cache / (double)pl->slots_most);
}

/* Bytes from the disk for a prompt of as many tokens as a batch has by default, and an answer of a
 * quarter of them, which is what `lode bench` takes for usual: what a batch of those that are there costs, with all
 * that it leaves or does not leave for weights.  A step of many tokens wants all experts, and all layers. */
static double disk_work(const struct placing *pl) {
    enum { PROMPT = LODE_DEFAULT_BATCH, ANSWER = PROMPT / 4 };
    const struct lode_placement *p = pl->p;
    const uint32_t batch = lode_session_batch(&pl->opts, p->ctx);
    const double steps = (PROMPT + batch - 1) / batch;
    double bytes = 0;
    if (p->layer_cache)
        bytes += (steps + ANSWER) * (double)(p->layers_size - p->layer_cache + p->layer_cache_least);
    if (p->expert_cache)
        bytes += steps * (double)(pl->slots_most - p->expert_cache) +
                 ANSWER * (1 - p->hit_rate) * pl->weights[PLACING_EXPERTS][LODE_RUNG_RAM].read;
    return p->fits ? bytes : INFINITY;
}

static int try_batch(struct placing *pl, uint32_t batch, uint32_t ctx, struct lode_error *err) {
    pl->opts.batch = batch;
    LODE_TRY(placing_count_sessions(pl, ctx, err));
    choose_cache(pl);
    return 0;
}

/* Where weights would be streamed: a batch that nobody named gives way, if what its buffers leave for weights spares
 * the disk more than reading them for more batches costs.  In the end the best, or the least where none fits. */
static int cut_batch(struct placing *pl, struct lode_error *err) {
    enum { LEAST = 64 };
    const uint32_t ctx = pl->p->ctx;
    uint32_t best = lode_session_batch(&pl->opts, ctx);
    double least = disk_work(pl);
    for (uint32_t batch = best < LODE_DEFAULT_BATCH ? best : LODE_DEFAULT_BATCH / 2; batch >= LEAST; batch /= 2) {
        LODE_TRY(try_batch(pl, batch, ctx, err));
        if (disk_work(pl) < 0.95 * least) { /* a little less is not worth the slower prompts */
            least = disk_work(pl);
            best = batch;
        }
    }
    return try_batch(pl, isfinite(least) || best < LEAST ? best : LEAST, ctx, err);
}

/* Even with all streamed that can be it does not fit: a context that nobody named gives way. */
static int cut_ctx(struct placing *pl, struct lode_error *err) {
    const uint32_t before = pl->p->ctx;
    uint32_t ctx = 0;
    LODE_TRY(placing_largest_streamed_ctx(pl, &ctx, err));
    /* the least, where that does not fit either: what is said to be needed is needed */
    LODE_TRY(placing_count_sessions(pl, ctx ? ctx : before < 256 ? before : 256, err));
    choose_cache(pl);
    return 0;
}

/* A batch reads each expert once, so larger ones read less: as many rows as cost the cache little, where
 * nobody named a number and no other sequence would wait for them. */
static int grow_batch(struct placing *pl, struct lode_error *err) {
    enum { MOST = 2048, LITTLE = 32 /* one part of the cache in so many */ };
    const struct lode_placement *p = pl->p;
    const uint64_t cache = p->expert_cache, before = placing_sessions_at(pl, LODE_HOST);
    const uint32_t named = pl->opts.batch, ctx = p->ctx;
    if (p->parallel > 1 || !p->fits || !cache || p->layer_cache)
        return 0;
    for (uint32_t batch = MOST; batch > LODE_DEFAULT_BATCH; batch /= 2) {
        if (batch > ctx)
            continue;
        LODE_TRY(try_batch(pl, batch, ctx, err));
        if (placing_sessions_at(pl, LODE_HOST) - before <= cache / LITTLE)
            return 0;
    }
    return try_batch(pl, named, ctx, err);
}

/* What nobody named, of how much is held beside weights: the context to the least that is kept for the sake of weights
 * before the batch; the context further only where nothing else would do. */
static int choose_sessions(struct placing *pl, uint32_t least, struct lode_error *err) {
    struct lode_placement *p = pl->p;
    const bool any_ctx = !pl->opts.ctx;
    const bool any_batch = !pl->opts.batch && !pl->m->hp.both_ways; /* there a text is a step */
    if (any_ctx)
        LODE_TRY(largest_ctx(pl, least, p->ctx_wanted, err));
    choose_cache(pl);
    if (any_batch && placing_fits_devices(pl) && (!p->fits || p->expert_cache || p->layer_cache)) {
        LODE_TRY(cut_batch(pl, err));
        if (any_ctx && p->fits && !p->expert_cache && !p->layer_cache) {
            LODE_TRY(largest_ctx(pl, least, p->ctx_wanted, err));
            choose_cache(pl);
        }
    }
    if (any_ctx && !p->fits && placing_fits_devices(pl))
        LODE_TRY(cut_ctx(pl, err));
    if (any_batch && lode_session_batch(&pl->opts, p->ctx) >= LODE_DEFAULT_BATCH)
        LODE_TRY(grow_batch(pl, err));
    p->batch = lode_session_batch(&pl->opts, p->ctx);
    return 0;
}

static void find_budgets(struct placing *pl) {
    struct lode_placement *p = pl->p;
    lode_places_left(pl->m, pl->room);
    /* what is held already is not to be found again; a budget does not make memory */
    pl->free = pl->room[LODE_HOST] += pl->program;
    if (pl->budget->ram && pl->budget->ram < pl->room[LODE_HOST])
        pl->room[LODE_HOST] = pl->budget->ram;
    p->budget[LODE_RUNG_RAM] = pl->room[LODE_HOST];
    for (uint32_t i = 1; i < pl->m->n_places; i++) {
        if (pl->budget->vram && pl->budget->vram < pl->room[i])
            pl->room[i] = pl->budget->vram;
        /* of that, what the driver takes beside what it is asked for */
        const uint64_t margin = pl->m->devices[i].cuda ? DEVICE_MARGIN : 0;
        p->budget[LODE_RUNG_VRAM] += pl->room[i];
        pl->room[i] -= margin < pl->room[i] ? margin : pl->room[i];
    }
}

static void count_groups(struct placing *pl) {
    struct lode_placement *p = pl->p;
    const struct lode_model *m = pl->m;
    uint64_t least = 0, all = 0;
    p->experts_size = m->n_groups ? pl->weights[PLACING_EXPERTS][LODE_RUNG_RAM].size : 0;
    p->expert_cache_least = pl->slots_most = 0;
    if (p->experts_size) {
        lode_stream_sizes(m->source, m->weights, m->groups, m->n_groups, &least, &all);
        /* a token's experts of one layer at once, so that they are read side by side */
        p->expert_cache_least = least * m->hp.n_experts_used;
        pl->slots_most = all;
        /* of those on the host */
        const double sizes = (double)p->experts_size + (double)pl->weights[PLACING_EXPERTS][LODE_RUNG_VRAM].size;
        if (pl->weights[PLACING_EXPERTS][LODE_RUNG_VRAM].size)
            pl->slots_most = (uint64_t)((double)all * ((double)p->experts_size / sizes));
    }
    p->layers_size = lode_layers_size(&m->graphs[LODE_BODY], m->source, m->weights, pl->split.uses);
    p->layer_cache_least = p->layers_size ? lode_layers_room(&m->graphs[LODE_BODY], m->source, m->weights, pl->split.uses, 0) : 0;
}

/* What is brought for steps of many tokens, and for how many that is quicker. */
static void reckon_bringing(struct placing *pl) {
    struct lode_placement *p = pl->p;
    const double bus = pl->budget->bus_speed;
    const struct lode_bringing b = lode_bringing(pl->split.plans);
    p->brings = b.bytes > 0;
    p->bring_size = b.bytes;
    if (!p->brings || bus <= 0)
        return;
    const uint32_t rows = lode_bring_rows(&b, bus, lode_product_speed(pl->m, b.type, b.cols, pl->opts.threads));
    p->bring_seconds = lode_bring_seconds(&b, bus, 0);
    p->bring_rows = rows == UINT32_MAX ? 0 : rows;
}

static int place(struct placing *pl, struct lode_error *err) {
    struct lode_placement *p = pl->p;
    const struct lode_model *m = pl->m;
    p->n_layers = m->hp.n_layers;
    p->ctx_wanted = pl->opts.ctx ? pl->opts.ctx : m->hp.ctx_train;
    const uint32_t least = p->ctx_wanted < LEAST_CTX ? p->ctx_wanted : LEAST_CTX;
    /* a context that nobody named gives way to the model, which is first laid out for the least */
    LODE_TRY(placing_choose_split(pl, pl->opts.ctx ? p->ctx_wanted : least, err));
    p->on_gpu = pl->split.n_gpu_layers > 0;
    p->gpu_beside = placing_beside_at(pl) != LODE_HOST;
    if (p->gpu_beside) {
        const double all = (double)m->beside.all / m->beside.n_layers * p->cpu_experts;
        p->gpu_hit_rate = hits_of((double)p->gpu_cache / all);
        p->upload_seconds = pl->budget->bus_speed > 0 ? (all - (double)p->gpu_cache) / pl->budget->bus_speed : 0;
    }
    reckon_bringing(pl);
    count_groups(pl);
    LODE_TRY(choose_sessions(pl, least, err));
    return placing_give_advice(pl, err);
}

int lode_plan_place(const struct lode_model *m, const struct lode_session_opts *opts,
                    const struct lode_budget *budget, struct lode_placement *out,
                    struct lode_error *err) {
    static const struct lode_budget none;
    struct placing pl = {.m = m, .budget = budget ? budget : &none, .p = out};
    if (opts)
        pl.opts = *opts;
    *out = (struct lode_placement){.parallel = pl.budget->parallel ? pl.budget->parallel : 1};
    if (m->n_weights == 0)
        return lode_fail(err, LODE_ERR_ARG, m->info.path, "only its vocabulary is loaded");
    pl.program = program_size();
    find_budgets(&pl);
    pl.program += pl.budget->own;
    const int rc = place(&pl, err);
    if (rc == 0) {
        placing_fill_rows(&pl);
        placing_predict(&pl);
    }
    lode_split_free(&pl.split);
    return rc;
}
