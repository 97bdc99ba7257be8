/* placement.c - what of a model lives where, from its headers and a budget.
 *
 * All bytes are those that will be allocated, mapped or cached; a token's reads are those of its
 * weights, each once, of its experts and of keys and values.  A token takes
 *
 *     read[VRAM] / (0.8 speed[VRAM]) + read[RAM] / (0.75 speed[RAM]) + read[DISK] / speed[DISK]
 *     + bus / speed[bus] + 20 us * borders + fork time * products on the CPU
 *     + 1.54 us * instructions on a GPU + 33 us * those of experts there
 *     + EXCHANGE_SECONDS * exchanges of GPUs that share rows, which each read their part of the VRAM's
 *
 * seconds: places work one after the other, but the disk's reading of whole layers, which takes as long
 * as the rest or longer, at 0.9 of its speed as all cores read memory besides.  Of experts the disk reads
 * many before they are asked for, while others are computed; but an eighth of what it reads is for nothing,
 * and it is slower beside computing, which together comes to the same.  Where a GPU computes experts beside the
 * CPU, what its cache has counts as read there, and of the others both get a part, so that their speeds add up.  0.75 and 0.8 are the share of plain
 * reading's speed that decoding reaches (bench/README.md: 0.65 to 0.83 of memory's).
 */
#include "backend/cuda.h"
#include "base/alloc.h"
#include "base/machine.h"
#include "engine/memory.h"
#include "engine/workers.h"
#include "model/groups.h"
#include "store/stream.h"

#include <malloc.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

/* Kinds of weights: name, and what of a tensor's name tells. */
#define KIND_LIST(X)                                                                               \
    X(EXPERTS, "experts", "_exps")                                                                 \
    X(EMBEDDING, "embedding", "token_embd.")                                                       \
    X(HEAD, "head", "output.")                                                                     \
    X(FFN, "feed-forward", ".ffn_")                                                                \
    X(ATTENTION, "attention", ".attn_")                                                            \
    X(RECURRENT, "recurrent", ".ssm_")                                                             \
    X(OTHER, "norms and others", "")

enum kind {
#define KIND(id, name, part) id,
    KIND_LIST(KIND)
#undef KIND
    KINDS
};

static const struct {
    const char *name, *part;
} kinds[KINDS] = {
#define KIND(id, name, part) {name, part},
    KIND_LIST(KIND)
#undef KIND
};

enum { LEAST_CTX = 4096, DEVICE_MARGIN = 192 << 20 /* staging of the upload, graphs, what allocations are rounded to */ };
/* A weight that is read past the page cache comes with the ends of its pages, and starts at one. */
enum { AROUND = 2 * 4096 };
enum { CANDIDATE = 8 }; /* bytes: a token and its score */
#define DEVICE_SHARE 0.8
#define IN_TURN_SHARE 0.9
/* To wait for a GPU, to copy a row and to start it again. */
#define BORDER_SECONDS 20e-6
/* What an instruction of a captured step takes on a GPU besides its bytes, and experts more than others;
 * both on an H200, where a token of Qwen3-0.6B's and of Qwen3-30B-A3B's shape took 1.01 and 3.41 ms. */
#define LAUNCH_SECONDS 1.54e-6
#define EXPERTS_SECONDS 33e-6
#define EXCHANGE_SECONDS 9e-6 /* a row between two H200s, by NCCL within a captured step */
/* Of the bus's speed, what bringing experts one by one comes to. */
#define BRING_SHARE 0.8
enum { EXPERTS_FORKS = 3 /* gate and up, down, and the choice before them */ };

struct weights { /* of a kind, at a rung */
    uint64_t size;
    double read; /* for a token */
};

struct placing {
    const struct lode_model *m;
    struct lode_session_opts opts;
    const struct lode_budget *budget;
    struct lode_placement *p;
    struct lode_split split;              /* that is being tried */
    bool beside;                          /* with a GPU that computes some of the host's experts */
    struct weights weights[KINDS][LODE_RUNGS];
    uint64_t device[LODE_PLACES];         /* bytes of weights at each place but the host */
    struct lode_needs needs;              /* for p->ctx and all sequences */
    uint64_t room[LODE_PLACES];           /* what there is at each place, within the budget */
    uint64_t free;                        /* of the host's memory, without one */
    uint64_t kv_read[LODE_RUNGS];         /* of one sequence at a full context */
    uint64_t program;
    double host_experts;                  /* bytes of experts that a token reads from memory */
    uint64_t slots_most;                  /* bytes of a cache that holds all experts */
    uint64_t around; /* what weights that stay are read with, beside experts or layers that are streamed */
};

static enum lode_rung rung_of(uint32_t place) {
    return place == LODE_HOST ? LODE_RUNG_RAM : LODE_RUNG_VRAM;
}

static uint64_t at_rung(const uint64_t bytes[LODE_PLACES], enum lode_rung rung) {
    uint64_t sum = 0;
    for (uint32_t p = 0; p < LODE_PLACES; p++)
        sum += rung_of(p) == rung ? bytes[p] : 0;
    return sum;
}

/* "attn_output." is attention though it has "output." in it; "output_norm." is no head. */
static enum kind kind_of(const char *name) {
    for (int k = 0; k < OTHER; k++) {
        const char *found = strstr(name, kinds[k].part);
        if (found && (k != HEAD || found == name))
            return (enum kind)k;
    }
    return OTHER;
}

static uint64_t host_size(const struct lode_weight *w) {
    const bool widened = w->op.type != w->home->type;
    return widened ? (uint64_t)w->op.rows * w->op.cols * sizeof(float) : (uint64_t)w->size;
}

static void count_sizes(struct placing *pl) {
    const struct lode_model *m = pl->m;
    for (uint32_t i = 0; i < m->n_weights; i++) {
        const struct lode_weight *w = &m->weights[i];
        struct weights *k = pl->weights[kind_of(w->home->name)];
        pl->around += w->op.count == 1 ? AROUND : 0;
        for (uint32_t p = 0; p < m->n_places; p++) {
            const bool there = pl->split.uses[i] & 1u << p || (p == LODE_HOST && !pl->split.uses[i]);
            const uint64_t size = !there ? 0 : p == LODE_HOST ? host_size(w) : lode_cuda_weight_size(w);
            k[rung_of(p)].size += size;
            pl->device[p] += p == LODE_HOST ? 0 : size;
        }
    }
}

static void count_reads(struct placing *pl, const struct lode_plan *plan) {
    for (uint32_t i = 0; i < plan->n_instrs; i++) {
        const struct lode_plan_instr *in = &plan->instrs[i];
        const bool experts = in->op == LODE_OP_EXPERTS || in->op == LODE_OP_EXPERTS_IN;
        const bool shared = in->op == LODE_OP_LINEAR || in->op == LODE_OP_HEADS ||
                            in->op == LODE_OP_ATTENTION || in->op == LODE_OP_DELTA;
        pl->p->forks += in->place != LODE_HOST ? 0 : experts ? EXPERTS_FORKS : shared;
        pl->p->launches += in->place != LODE_HOST;
        pl->p->exchanges += in->op == LODE_OP_ALL_GATHER;
        pl->p->expert_launches += in->place != LODE_HOST && experts;
        for (uint32_t k = 0; k < in->n_parts; k++) {
            const struct lode_operand *op = plan->parts[in->first_part + k].w;
            size_t row = 0;
            if (!op || !lode_dtype_row_size(op->type, op->cols, &row))
                continue;
            /* of an embedding one row, of experts those that are used */
            const double rows = in->op == LODE_OP_EMBED ? 1
                                : op->count > 1         ? (double)op->rows * plan->experts.n_used
                                                        : (double)op->rows;
            pl->weights[kind_of(pl->m->weights[op->id].home->name)][rung_of(in->place)].read +=
                (double)row * rows * (plan->n_ranks ? plan->n_ranks : 1);
        }
    }
    for (uint32_t i = 0; i < plan->n_copies; i++) {
        const struct lode_plan_value *v = &plan->values[plan->copies[i].from];
        size_t row = 0;
        lode_dtype_row_size(v->type, v->width, &row);
        pl->p->bus += (double)row;
        pl->p->borders++;
    }
}

static void count_weights(struct placing *pl) {
    memset(pl->weights, 0, sizeof pl->weights);
    memset(pl->device, 0, sizeof pl->device);
    pl->around = 0;
    pl->p->bus = 0;
    pl->p->borders = pl->p->forks = pl->p->launches = pl->p->expert_launches = pl->p->exchanges = 0;
    count_sizes(pl);
    count_reads(pl, &pl->split.plans[LODE_BODY]);
    count_reads(pl, &pl->split.plans[LODE_HEAD]);
}

/* Code, tables and stack that only computing touches, about 450 KB with every architecture that was looked
 * at, and what a verb has beyond `lode plan`, 190 KB: a fault maps the program's pages around the wanted one. */
enum { COMPUTING = 640 << 10 };

/* Bytes that this process holds now: code, vocabulary, headers; and what it will besides models. */
static uint64_t program_size(void) {
    malloc_trim(0); /* what the vocabulary took while it was read would be counted twice */
    return lode_machine_resident() + COMPUTING;
}

/* What sessions take at a context. */
static int count_sessions(struct placing *pl, uint32_t ctx, struct lode_error *err) {
    const struct lode_model *m = pl->m;
    const uint32_t n = pl->p->parallel, batch = lode_session_batch(&pl->opts, ctx);
    struct lode_kv_layer *layers;
    LODE_TRY(lode_session_layers(m, &pl->opts, &layers, err));
    for (uint32_t l = 0; l < m->n_kept; l++)
        layers[l].place = pl->split.layers[l];
    struct lode_kv_room room = {.ctx = ctx, .batch = batch};
    struct lode_needs one;
    int rc = lode_session_needs(m, pl->split.plans, layers, &pl->opts, &room, &one, err);
    room.n_seqs = n;
    if (rc == 0)
        rc = lode_session_needs(m, pl->split.plans, layers, &pl->opts, &room, &pl->needs, err);
    lode_free(layers);
    for (int r = 0; r < LODE_RUNGS; r++)
        pl->kv_read[r] = at_rung(one.kv, (enum lode_rung)r);
    for (uint32_t p = 0; p < LODE_PLACES; p++)
        pl->needs.state[p] *= n;
    if (n > 1) /* a scheduler's */
        pl->needs.state[LODE_HOST] += LODE_STATES_KEPT(n) * lode_state_block(m->state, m->n_kept);
    /* of all sessions what their samplers choose from, of the others their tokens and logits */
    pl->needs.work[LODE_HOST] += n * ((uint64_t)m->hp.n_vocab * CANDIDATE);
    pl->needs.work[LODE_HOST] +=
        (n - 1) * ((uint64_t)ctx * sizeof(int32_t) + (uint64_t)m->hp.n_vocab * sizeof(float));
    pl->p->ctx = ctx;
    return rc;
}

static uint64_t sessions_at(const struct placing *pl, uint32_t place) {
    return pl->needs.kv[place] + pl->needs.state[place] + pl->needs.work[place];
}

/* Of the host's memory, but for experts. */
static uint64_t fixed_size(const struct placing *pl) {
    uint64_t sum = sessions_at(pl, LODE_HOST) + pl->program;
    for (int k = 0; k < KINDS; k++)
        sum += k == EXPERTS ? 0 : pl->weights[k][LODE_RUNG_RAM].size;
    return sum;
}

/* The place whose memory has the cache of experts; LODE_HOST: there is none. */
static uint32_t beside_at(const struct placing *pl) { return pl->split.plans[LODE_BODY].beside; }

static uint64_t cache_at(const struct placing *pl, uint32_t place) {
    return place != LODE_HOST && place == beside_at(pl) ? pl->p->gpu_cache : 0;
}

static bool fits_devices(const struct placing *pl) {
    for (uint32_t p = 1; p < pl->m->n_places; p++)
        if (pl->device[p] + cache_at(pl, p) + sessions_at(pl, p) > pl->room[p])
            return false;
    return true;
}

static bool all_fits(const struct placing *pl) {
    return fits_devices(pl) &&
           fixed_size(pl) + pl->weights[EXPERTS][LODE_RUNG_RAM].size <= pl->room[LODE_HOST];
}

/* The largest multiple of 256 in [low, high] at which everything is in memory; low when none is. */
static int largest_ctx(struct placing *pl, uint32_t low, uint32_t high, struct lode_error *err) {
    LODE_TRY(count_sessions(pl, high, err));
    if (all_fits(pl) || high <= low)
        return 0;
    uint32_t fits = low / 256, fails = (high + 255) / 256;
    while (fits + 1 < fails) {
        const uint32_t middle = fits + (fails - fits) / 2;
        LODE_TRY(count_sessions(pl, middle * 256, err));
        *(all_fits(pl) ? &fits : &fails) = middle;
    }
    return count_sessions(pl, fits * 256 > low ? fits * 256 : low, err);
}

/* ---- what GPUs have ---- */

/* Lays the model out, and counts for a context. */
static int try_split(struct placing *pl, uint32_t gpu_layers, uint32_t cpu_experts, uint32_t ctx,
                     struct lode_error *err) {
    lode_split_free(&pl->split);
    LODE_TRY(lode_split_make(&pl->split, pl->m, gpu_layers, cpu_experts, pl->beside, err));
    pl->p->gpu_layers = gpu_layers;
    pl->p->cpu_experts = cpu_experts;
    count_weights(pl);
    return count_sessions(pl, ctx, err);
}

/* The most layers whose place on the GPUs fits, their experts on the CPU or not. */
static int most_layers(struct placing *pl, uint32_t cpu_experts, uint32_t ctx, struct lode_error *err) {
    uint32_t fits = 0, fails = pl->m->hp.n_layers + 2;
    while (fits + 1 < fails) {
        const uint32_t middle = fits + (fails - fits) / 2;
        LODE_TRY(try_split(pl, middle, cpu_experts, ctx, err));
        *(fits_devices(pl) ? &fits : &fails) = middle;
    }
    return try_split(pl, fits, fits ? cpu_experts : 0, ctx, err);
}

/* All if it fits.  Else experts leave first, layer by layer: a token reads few of them, so they lose
 * least by slower memory; then whole layers. */
static int choose_layers(struct placing *pl, uint32_t ctx, struct lode_error *err) {
    const uint32_t n = pl->m->hp.n_layers, all = pl->budget->gpu_layers ? pl->budget->gpu_layers : n + 1;
    const uint32_t given = pl->budget->cpu_experts < n ? pl->budget->cpu_experts : n;
    LODE_TRY(try_split(pl, all, given, ctx, err));
    if (fits_devices(pl) || (pl->budget->gpu_layers && (given || !pl->m->n_expert_groups)))
        return 0; /* what was asked for is not changed; what does not fit is said */
    if (!pl->m->n_expert_groups || given)
        return most_layers(pl, given, ctx, err);
    LODE_TRY(try_split(pl, all, n, ctx, err));
    if (!fits_devices(pl))
        return pl->budget->gpu_layers ? 0 : most_layers(pl, n, ctx, err);
    uint32_t fits = n, fails = 0;
    while (fails + 1 < fits) {
        const uint32_t middle = fails + (fits - fails) / 2;
        LODE_TRY(try_split(pl, all, middle, ctx, err));
        *(fits_devices(pl) ? &fits : &fails) = middle;
    }
    return try_split(pl, all, fits, ctx, err);
}

/* A GPU computes experts beside the host, unless the host was named for them or nothing is on a GPU.  Its memory has
 * whole layers' experts and a cache of the others: a layer whose experts are all there waits for nobody, a byte of
 * the cache has more of what is used.  Where most experts would be the CPU's, all are, and the cache has the room;
 * else what is left of it (bench/notes/cuda.md has the reckoning). */
static int choose_split(struct placing *pl, uint32_t ctx, struct lode_error *err) {
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
    if (beside_at(pl) == LODE_HOST || (!fits_devices(pl) && !b->gpu_cache)) { /* all fits, or not even buffers do */
        pl->beside = false;
        pl->p->gpu_cache = 0;
        return choose_layers(pl, ctx, err);
    }
    if (b->gpu_cache)
        return 0;
    if (!b->cpu_experts && pl->p->cpu_experts > n / 2 && pl->p->cpu_experts < n)
        LODE_TRY(try_split(pl, pl->p->gpu_layers, n, ctx, err));
    const uint32_t at = beside_at(pl);
    const uint64_t used = pl->device[at] + sessions_at(pl, at);
    const uint64_t all = pl->m->beside.all / pl->m->beside.n_layers * pl->p->cpu_experts;
    const uint64_t left = pl->room[at] > used ? pl->room[at] - used : 0;
    pl->p->gpu_cache = left < all ? left : all;
    return 0;
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
    p->fits = all_fits(pl);
    if (p->fits || !fits_devices(pl))
        return;
    pl->program += pl->around;
    const uint64_t room = pl->room[LODE_HOST], fixed = fixed_size(pl);
    /* what is left beside the layers' own matrices, and beside a token's experts without them */
    const uint64_t left = room > fixed ? room - fixed : 0;
    const uint64_t other = fixed - p->layers_size + p->expert_cache_least;
    p->fits = p->experts_size && left >= p->expert_cache_least;
    if (!p->fits && p->layers_size && other + p->layer_cache_least <= room) {
        p->fits = true;
        p->layer_cache =
            lode_layers_room(&pl->m->graphs[LODE_BODY], pl->m->source, pl->m->weights, room - other);
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

/* A batch reads each expert once, so larger ones read less: as many rows as cost the cache little, where
 * nobody named a number and no other sequence would wait for them. */
static int choose_batch(struct placing *pl, struct lode_error *err) {
    enum { MOST = 2048, LITTLE = 32 /* one part of the cache in so many */ };
    struct lode_placement *p = pl->p;
    const uint64_t cache = p->expert_cache, before = sessions_at(pl, LODE_HOST);
    const bool may = !pl->opts.batch && p->parallel == 1 && p->fits && cache && !p->layer_cache;
    p->batch = lode_session_batch(&pl->opts, p->ctx);
    for (uint32_t batch = MOST; may && batch > LODE_DEFAULT_BATCH; batch /= 2) {
        if (batch > p->ctx)
            continue;
        pl->opts.batch = batch;
        LODE_TRY(count_sessions(pl, p->ctx, err));
        if (sessions_at(pl, LODE_HOST) - before <= cache / LITTLE) {
            p->batch = batch;
            pl->program -= pl->around; /* which choosing adds */
            choose_cache(pl);
            return 0;
        }
    }
    if (may) {
        pl->opts.batch = 0;
        LODE_TRY(count_sessions(pl, p->ctx, err));
    }
    return 0;
}

/* ---- the table ---- */

static struct lode_placement_row *add_row(struct placing *pl, const char *name, const uint64_t size[LODE_RUNGS],
                                          const double read[LODE_RUNGS]) {
    struct lode_placement *p = pl->p;
    if (size[LODE_RUNG_VRAM] + size[LODE_RUNG_RAM] == 0)
        return NULL;
    struct lode_placement_row *row = &p->rows[p->n_rows++];
    *row = (struct lode_placement_row){.name = name};
    for (int r = 0; r < LODE_RUNG_DISK; r++) {
        row->size[r] = size[r];
        row->read[r] = read[r];
    }
    return row;
}

static struct lode_placement_row *add_kind(struct placing *pl, enum kind k) {
    const struct weights *w = pl->weights[k];
    return add_row(pl, kinds[k].name,
                   (uint64_t[LODE_RUNGS]){w[LODE_RUNG_VRAM].size, w[LODE_RUNG_RAM].size},
                   (double[LODE_RUNGS]){w[LODE_RUNG_VRAM].read, w[LODE_RUNG_RAM].read});
}

static void add_places(struct placing *pl, const char *name, const uint64_t bytes[LODE_PLACES],
                       double read_share) {
    const uint64_t v = at_rung(bytes, LODE_RUNG_VRAM), r = at_rung(bytes, LODE_RUNG_RAM);
    add_row(pl, name, (uint64_t[LODE_RUNGS]){v, r},
            (double[LODE_RUNGS]){read_share * (double)v, read_share * (double)r});
}

/* The first layers stay in what is left beside two of the largest; the others are read for each
 * token.  Each kind has its part in that. */
static void stream_row(const struct placing *pl, struct lode_placement_row *row) {
    const struct lode_placement *p = pl->p;
    double all = 0;
    for (int k = FFN; k <= RECURRENT; k++)
        all += (double)pl->weights[k][LODE_RUNG_RAM].size;
    const double part = (double)row->size[LODE_RUNG_RAM] / all;
    const uint64_t away = (uint64_t)ceil(part * (double)(p->layers_size - p->layer_cache));
    row->size[LODE_RUNG_RAM] -= away;
    row->size[LODE_RUNG_DISK] = away;
    row->read[LODE_RUNG_DISK] = (double)away + part * (double)p->layer_cache_least;
}

static void fill_rows(struct placing *pl) {
    struct lode_placement *p = pl->p;
    for (int k = EMBEDDING; k < KINDS; k++) {
        struct lode_placement_row *row = add_kind(pl, (enum kind)k);
        if (row && p->layer_cache && k >= FFN && k <= RECURRENT)
            stream_row(pl, row);
    }
    const uint64_t on_host = pl->weights[EXPERTS][LODE_RUNG_RAM].size;
    struct lode_placement_row *row = add_kind(pl, EXPERTS);
    if (row && p->gpu_beside) {
        const double hits = p->gpu_hit_rate * row->read[LODE_RUNG_RAM];
        row->size[LODE_RUNG_VRAM] += p->gpu_cache;
        row->read[LODE_RUNG_VRAM] += hits;
        row->read[LODE_RUNG_RAM] -= hits;
    }
    pl->host_experts = row ? row->read[LODE_RUNG_RAM] : 0;
    if (row && p->expert_cache) {
        row->size[LODE_RUNG_RAM] = p->expert_cache;
        row->size[LODE_RUNG_DISK] = on_host > p->expert_cache ? on_host - p->expert_cache : 0;
        row->read[LODE_RUNG_DISK] = (1 - p->hit_rate) * row->read[LODE_RUNG_RAM];
    }
    add_places(pl, "KV cache", pl->needs.kv, 0);
    /* a token reads and writes one of a sequence's blocks */
    add_places(pl, "recurrent state", pl->needs.state,
               2.0 / (1 + LODE_STATE_CHECKPOINTS) / pl->p->parallel);
    add_places(pl, "activations, buffers", pl->needs.work, 0);
    add_row(pl, "program, vocabulary", (uint64_t[LODE_RUNGS]){0, pl->program}, (double[LODE_RUNGS]){0});
    p->n_gpus = pl->m->n_places - 1;
    for (uint32_t i = 0; i < p->n_gpus; i++) {
        p->gpu_size[i] = pl->device[1 + i] + sessions_at(pl, 1 + i);
        p->gpu_room[i] = pl->room[1 + i];
    }
    for (uint32_t i = 0; i < p->n_rows; i++)
        for (int r = 0; r < LODE_RUNGS; r++) {
            p->size[r] += p->rows[i].size[r];
            p->read[r] += p->rows[i].read[r];
        }
    for (int r = 0; r < LODE_RUNGS; r++)
        p->read_full[r] = p->read[r] + (double)pl->kv_read[r];
}

/* ranks: GPUs that read at the same time. */
static double seconds(const struct placing *pl, uint32_t ranks, const double read[LODE_RUNGS]) {
    const struct lode_placement *p = pl->p;
    const struct lode_budget *b = pl->budget;
    const double speeds[LODE_RUNGS] = {DEVICE_SHARE * b->vram_speed * (ranks ? ranks : 1), LODE_PLAN_RAM_SHARE * b->ram_speed, b->disk_speed};
    double sum = p->borders * BORDER_SECONDS + p->forks * b->fork_time + p->launches * LAUNCH_SECONDS +
                 p->expert_launches * EXPERTS_SECONDS + p->exchanges * EXCHANGE_SECONDS;
    for (int r = 0; r < LODE_RUNGS; r++)
        if (read[r] > 0 && speeds[r] <= 0)
            return 0;
    for (int r = 0; r < LODE_RUNG_DISK; r++)
        sum += read[r] > 0 ? read[r] / speeds[r] : 0;
    if (p->gpu_beside && !p->expert_cache && b->bus_speed > 0) { /* read from both ends */
        const double host = speeds[LODE_RUNG_RAM];
        sum -= pl->host_experts / host - pl->host_experts / (host + BRING_SHARE * b->bus_speed);
    }
    const bool replayed = b->waits > 0 && p->expert_cache && !p->layer_cache;
    const double disk = replayed                   ? b->waits
                        : read[LODE_RUNG_DISK] > 0 ? read[LODE_RUNG_DISK] / speeds[LODE_RUNG_DISK]
                                                   : 0;
    /* which layer comes next is known, and it is read meanwhile; which experts, is not */
    sum = p->layer_cache && !p->expert_cache ? fmax(sum, disk / IN_TURN_SHARE)
                                             : sum + disk;
    return sum + (b->bus_speed > 0 ? p->bus / b->bus_speed : 0);
}

static void predict(struct placing *pl) {
    struct lode_placement *p = pl->p;
    const uint32_t ranks = pl->m->n_ranks;
    const double empty = seconds(pl, ranks, p->read), full = seconds(pl, ranks, p->read_full);
    if (empty > 0 && full > 0) {
        p->tokens_per_second = 1 / empty;
        p->tokens_per_second_full = 1 / full;
    }
}

/* ---- advice ---- */

__attribute__((format(printf, 2, 3))) static void advise(struct lode_placement *p, const char *fmt,
                                                         ...) {
    const size_t n = strlen(p->advice);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p->advice + n, sizeof p->advice - n, fmt, ap);
    va_end(ap);
}

static double mib(uint64_t bytes) { return (double)bytes / 0x1p20; }

/* With all streamed that can be. */
static uint64_t least_size(const struct placing *pl) {
    const struct lode_placement *p = pl->p;
    const uint64_t streamed =
        p->layers_size > p->layer_cache_least ? p->layers_size - p->layer_cache_least : 0;
    return fixed_size(pl) - streamed + (p->experts_size ? p->expert_cache_least : 0);
}

/* What was asked for is more than a GPU has. */
static int advise_devices(struct placing *pl) {
    for (uint32_t p = 1; p < pl->m->n_places; p++) {
        const uint64_t need = pl->device[p] + cache_at(pl, p) + sessions_at(pl, p);
        if (need > pl->room[p])
            advise(pl->p, "%u layers on the GPU need %.0f MiB there, %.0f MiB more than there are: %s\n", pl->split.n_gpu_layers,
                   mib(need), mib(need - pl->room[p]),
                   pl->m->n_ranks ? "-sm layer, where some may be on the CPU, or a smaller context"
                                  : "a smaller -ngl or --vram-experts, or --n-cpu-moe, or leave them out");
    }
    return 0;
}

/* With more memory on the GPUs they would do more. */
static void advise_more(struct placing *pl) {
    uint64_t left = 0;
    for (int k = 0; k < KINDS; k++)
        left += pl->weights[k][LODE_RUNG_RAM].size;
    advise(pl->p, "%.0f MiB more of GPU memory would have all of the model there\n",
           mib(left + pl->needs.kv[LODE_HOST] + pl->needs.state[LODE_HOST]));
}

/* A KV format of 16 bits a number, which is the default. */
static bool is_wide(const char *format) { return !format || strcmp(format, "f16") == 0 || strcmp(format, "bf16") == 0; }

/* The pages that a program has of its own files differ by some windows of 64 KiB from one start to the
 * next, with its addresses: what is told to be enough has to be enough next time as well. */
#define OTHER_STARTS ((uint64_t)1 << 20)

static int give_advice(struct placing *pl, struct lode_error *err) {
    struct lode_placement *p = pl->p;
    const struct lode_placement chosen = *p;
    const uint64_t room = pl->room[LODE_HOST], kv = pl->needs.kv[LODE_HOST];
    const uint64_t need = least_size(pl), sessions = sessions_at(pl, LODE_HOST);
    if (!fits_devices(pl))
        return advise_devices(pl);
    if (p->gpu_layers && p->fits && (p->cpu_experts || p->gpu_layers <= pl->m->hp.n_layers))
        advise_more(pl);
    if (p->fits && p->layer_cache) {
        advise(p, "%.0f MiB more would keep the layers' own matrices in memory: each token reads what "
                  "is missing of them\n", mib(p->layers_size - p->layer_cache));
        return 0;
    }
    if (p->fits && p->expert_cache) {
        advise(p, "%.0f MiB more would keep all experts in memory\n",
               mib(pl->slots_most - p->expert_cache));
        return 0;
    }
    if (p->fits)
        return 0;
    const uint64_t told = need + OTHER_STARTS;
    if (told <= pl->free)
        advise(p, "--ram %.0fM is the least for these settings: %.0f MiB more\n",
               ceil(mib(told)), mib(told - room));
    else
        advise(p, "these settings need %.0f MiB, %.0f MiB more than are free\n",
               ceil(mib(told)), mib(told - pl->free));
    const uint64_t weights = need - sessions;
    if (weights > room) {
        advise(p, "weights that stay in memory alone take %.0f MiB: take a model of fewer bits "
                  "(lode convert --type)\n", mib(weights));
        return 0;
    }
    if (kv > pl->needs.work[LODE_HOST] && is_wide(pl->opts.ctk) && is_wide(pl->opts.ctv))
        advise(p, "-ctk q8_0 -ctv q8_0 saves about %.0f MiB of KV cache\n", mib(kv) * 15 / 32);
    if (p->parallel > 1)
        advise(p, "--parallel 1 saves %.0f MiB\n", mib(kv - pl->kv_read[LODE_RUNG_RAM]));
    /* the largest context at which it fits, experts streamed as far as need be */
    uint32_t fits = 0, fails = (p->ctx + 255) / 256;
    while (fits + 1 < fails) {
        const uint32_t middle = fits + (fails - fits) / 2;
        LODE_TRY(count_sessions(pl, middle * 256, err));
        *(least_size(pl) <= room ? &fits : &fails) = middle;
    }
    if (fits)
        advise(p, "-c %u is the largest context that fits\n", fits * 256);
    else
        advise(p, "-b 64 makes the buffers smaller\n");
    p->ctx = chosen.ctx;
    return count_sessions(pl, chosen.ctx, err);
}

/* ---- */

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
    p->experts_size = m->n_groups ? pl->weights[EXPERTS][LODE_RUNG_RAM].size : 0;
    p->expert_cache_least = pl->slots_most = 0;
    if (p->experts_size) {
        lode_stream_sizes(m->source, m->weights, m->groups, m->n_groups, &least, &all);
        /* a token's experts of one layer at once, so that they are read side by side */
        p->expert_cache_least = least * m->hp.n_experts_used;
        pl->slots_most = all;
        /* of those on the host */
        const double sizes = (double)p->experts_size + (double)pl->weights[EXPERTS][LODE_RUNG_VRAM].size;
        if (pl->weights[EXPERTS][LODE_RUNG_VRAM].size)
            pl->slots_most = (uint64_t)((double)all * ((double)p->experts_size / sizes));
    }
    p->layers_size = p->layer_cache_least = 0;
    if (p->gpu_layers == 0) { /* with layers on a GPU, those of the host stay in memory */
        p->layers_size = lode_layers_size(&m->graphs[LODE_BODY], m->source, m->weights);
        p->layer_cache_least = lode_layers_room(&m->graphs[LODE_BODY], m->source, m->weights, 0);
    }
}

static int place(struct placing *pl, struct lode_error *err) {
    struct lode_placement *p = pl->p;
    const struct lode_model *m = pl->m;
    p->n_layers = m->hp.n_layers;
    p->ctx_wanted = pl->opts.ctx ? pl->opts.ctx : m->hp.ctx_train;
    const uint32_t least = p->ctx_wanted < LEAST_CTX ? p->ctx_wanted : LEAST_CTX;
    /* a context that nobody named gives way to the model, which is first laid out for the least */
    LODE_TRY(choose_split(pl, pl->opts.ctx ? p->ctx_wanted : least, err));
    if (!pl->opts.ctx)
        LODE_TRY(largest_ctx(pl, least, p->ctx_wanted, err));
    p->on_gpu = pl->split.n_gpu_layers > 0;
    p->gpu_beside = beside_at(pl) != LODE_HOST;
    if (p->gpu_beside) {
        const double all = (double)m->beside.all / m->beside.n_layers * p->cpu_experts;
        p->gpu_hit_rate = hits_of((double)p->gpu_cache / all);
        p->upload_seconds = pl->budget->bus_speed > 0 ? (all - (double)p->gpu_cache) / pl->budget->bus_speed : 0;
    }
    count_groups(pl);
    choose_cache(pl);
    LODE_TRY(choose_batch(pl, err));
    LODE_TRY(give_advice(pl, err));
    if (pl->budget->ram > pl->free)
        advise(p, "the budget is more than the %.0f MiB that are free: these count\n", mib(pl->free));
    return 0;
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
        fill_rows(&pl);
        predict(&pl);
    }
    lode_split_free(&pl.split);
    return rc;
}
