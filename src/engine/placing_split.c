/* placing_split.c - which layers, and which experts, devices have. */
#include "engine/placing.h"

/* Lays the model out, and counts for a context. */
static int try_split(struct placing *pl, uint32_t gpu_layers, uint32_t cpu_experts, uint32_t ctx,
                     struct lode_error *err) {
    lode_split_free(&pl->split);
    LODE_TRY(lode_split_make(&pl->split, pl->m, gpu_layers, cpu_experts, pl->beside, pl->brings, err));
    pl->p->gpu_layers = gpu_layers;
    pl->p->cpu_experts = cpu_experts;
    placing_count_weights(pl);
    return placing_count_sessions(pl, ctx, err);
}

/* The most layers whose place on the GPUs fits, their experts on the CPU or not. */
static int most_layers(struct placing *pl, uint32_t cpu_experts, uint32_t ctx, struct lode_error *err) {
    uint32_t fits = 0, fails = pl->m->hp.n_layers + 2;
    while (fits + 1 < fails) {
        const uint32_t middle = fits + (fails - fits) / 2;
        LODE_TRY(try_split(pl, middle, cpu_experts, ctx, err));
        *(placing_fits_devices(pl) ? &fits : &fails) = middle;
    }
    return try_split(pl, fits, fits ? cpu_experts : 0, ctx, err);
}

/* All if it fits.  Else experts leave first, layer by layer: a token reads few of them, so they lose
 * least by slower memory; then whole layers. */
static int choose_layers(struct placing *pl, uint32_t ctx, struct lode_error *err) {
    const uint32_t n = pl->m->hp.n_layers, all = pl->budget->gpu_layers ? pl->budget->gpu_layers : n + 1;
    const uint32_t given = pl->budget->cpu_experts < n ? pl->budget->cpu_experts : n;
    LODE_TRY(try_split(pl, all, given, ctx, err));
    if (placing_fits_devices(pl) || (pl->budget->gpu_layers && (given || !pl->m->n_expert_groups)))
        return 0; /* what was asked for is not changed; what does not fit is said */
    if (!pl->m->n_expert_groups || given)
        return most_layers(pl, given, ctx, err);
    LODE_TRY(try_split(pl, all, n, ctx, err));
    if (!placing_fits_devices(pl))
        return pl->budget->gpu_layers ? 0 : most_layers(pl, n, ctx, err);
    uint32_t fits = n, fails = 0;
    while (fails + 1 < fits) {
        const uint32_t middle = fails + (fits - fails) / 2;
        LODE_TRY(try_split(pl, all, middle, ctx, err));
        *(placing_fits_devices(pl) ? &fits : &fails) = middle;
    }
    return try_split(pl, all, fits, ctx, err);
}

static int choose(struct placing *pl, uint32_t ctx, struct lode_error *err);

/* Bytes that the device which lacks most does. */
static uint64_t most_lacking(const struct placing *pl) {
    uint64_t most = 0;
    for (uint32_t p = 1; p < pl->m->n_places; p++) {
        const uint64_t need = pl->device[p] + placing_cache_at(pl, p) + placing_sessions_at(pl, p);
        most = need > pl->room[p] && need - pl->room[p] > most ? need - pl->room[p] : most;
    }
    return most;
}

/* The buffers that weights are brought by take less than a layer, but where not even they fit, none are. */
int placing_choose_split(struct placing *pl, uint32_t ctx, struct lode_error *err) {
    const struct lode_model *m = pl->m;
    bool may = m->opts.bring_rows > 0;
    for (uint32_t p = 1; p < m->n_places; p++)
        may |= m->devices[p].cuda != NULL;
    pl->brings = may && !pl->budget->no_bring && !m->n_ranks;
    pl->p->bring_lacks = 0;
    LODE_TRY(choose(pl, ctx, err));
    if (!pl->brings || (placing_fits_devices(pl) && pl->split.n_gpu_layers))
        return 0;
    if (!pl->split.n_gpu_layers) /* not even one and the buffers fit */
        LODE_TRY(try_split(pl, 1, m->hp.n_layers, ctx, err));
    const uint64_t lacks = most_lacking(pl);
    pl->brings = false;
    LODE_TRY(choose(pl, ctx, err));
    if (pl->split.n_gpu_layers && placing_fits_devices(pl))
        pl->p->bring_lacks = lacks;
    return 0;
}

/* A GPU computes experts beside the host, unless the host was named for them or nothing is on a GPU.  Its memory has
 * whole layers' experts and a cache of the others: a layer whose experts are all there waits for nobody, a byte of
 * the cache has more of what is used.  Where most experts would be the CPU's, all are, and the cache has the room;
 * else what is left of it (bench/notes/cuda.md has the reckoning). */
static int choose(struct placing *pl, uint32_t ctx, struct lode_error *err) {
    const struct lode_budget *b = pl->budget;
    const uint32_t n = pl->m->hp.n_layers;
    if (pl->m->n_places == 1)
        return try_split(pl, 0, 0, ctx, err);
    if (pl->m->n_ranks) /* all or nothing */
        return try_split(pl, b->gpu_layers ? b->gpu_layers : n + 1, b->cpu_experts < n ? b->cpu_experts : n, ctx, err);
    pl->beside = b->gpu_cache != LODE_NO_GPU_CACHE && (b->gpu_cache || !b->cpu_experts) && pl->m->beside.n_layers;
    pl->p->gpu_cache = !pl->beside ? 0 : b->gpu_cache < pl->m->beside.all ? b->gpu_cache : pl->m->beside.all;
    LODE_TRY(choose_layers(pl, ctx, err));
    if (!pl->beside)
        return 0;
    if (placing_beside_at(pl) == LODE_HOST || (!placing_fits_devices(pl) && !b->gpu_cache)) { /* all fits, or not even buffers do */
        pl->beside = false;
        pl->p->gpu_cache = 0;
        return choose_layers(pl, ctx, err);
    }
    if (b->gpu_cache)
        return 0;
    if (!b->cpu_experts && pl->p->cpu_experts > n / 2 && pl->p->cpu_experts < n)
        LODE_TRY(try_split(pl, pl->p->gpu_layers, n, ctx, err));
    const uint32_t at = placing_beside_at(pl);
    const uint64_t used = pl->device[at] + placing_sessions_at(pl, at);
    const uint64_t all = pl->m->beside.all / pl->m->beside.n_layers * pl->p->cpu_experts;
    const uint64_t left = pl->room[at] > used ? pl->room[at] - used : 0;
    pl->p->gpu_cache = left < all ? left : all;
    return 0;
}
