/* placement.c - what of a model lives where, from its headers and a budget.
 *
 * All bytes are those that will be allocated, mapped or cached; a token's reads are those of its
 * weights, each once, of its experts and of keys and values.  A token takes
 *
 *     read[RAM] / (0.8 speed[RAM]) + read[DISK] / speed[DISK]    or read[VRAM] / (0.8 speed[VRAM])
 *
 * seconds.  0.8 is the share of plain reading's speed that decoding reaches (bench/README.md: 78 and 82 %
 * where nothing else ran).  A layer cannot go on before its experts are there, so reading and computing overlap only
 * within a layer, and little.
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
#include <unistd.h>

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

enum { LEAST_CTX = 4096 };
#define DECODE_SHARE 0.8

struct weights { /* bytes of a kind */
    uint64_t size, copied; /* copied: of them those that are read, not mapped */
    double read;           /* for a token */
};

struct placing {
    const struct lode_model *m;
    struct lode_session_opts opts;
    const struct lode_budget *budget;
    struct lode_placement *p;
    struct weights weights[KINDS];
    uint64_t kv, state, work, program; /* for p->ctx */
    uint64_t kv_read;                  /* of one sequence at a full context */
    uint64_t slots_most;               /* bytes of a cache that holds all experts */
};

/* "attn_output." is attention though it has "output." in it; "output_norm." is no head. */
static enum kind kind_of(const char *name) {
    for (int k = 0; k < OTHER; k++) {
        const char *found = strstr(name, kinds[k].part);
        if (found && (k != HEAD || found == name))
            return (enum kind)k;
    }
    return OTHER;
}

static void count_weights(struct placing *pl) {
    const struct lode_model *m = pl->m;
    for (uint32_t i = 0; i < m->n_weights; i++) {
        const struct lode_weight *w = &m->weights[i];
        struct weights *k = &pl->weights[kind_of(w->home->name)];
        const bool mapped = lode_source_data(m->source, w->home, w->offset, w->size);
        const bool widened = w->op.type != w->home->type;
        const uint64_t size =
            widened ? (uint64_t)w->op.rows * w->op.cols * sizeof(float) : (uint64_t)w->size;
        k->size += size;
        k->copied += mapped && !widened ? 0 : size;
    }
    static const enum lode_stage stages[] = {LODE_BODY, LODE_HEAD};
    for (int s = 0; s < 2; s++) {
        const struct lode_plan *plan = &m->plans[stages[s]];
        for (uint32_t i = 0; i < plan->n_parts; i++) {
            const struct lode_operand *op = plan->parts[i].w;
            size_t row = 0;
            if (op && lode_dtype_row_size(op->type, op->cols, &row))
                pl->weights[kind_of(m->weights[op->id].home->name)].read +=
                    (double)row * op->rows * (op->count > 1 ? plan->experts.n_used : 1);
        }
        for (uint32_t i = 0; i < plan->n_instrs; i++) { /* of an embedding, one row */
            const struct lode_plan_instr *in = &plan->instrs[i];
            const struct lode_operand *op = in->op == LODE_OP_EMBED ? plan->parts[in->first_part].w : NULL;
            size_t row = 0;
            if (op && lode_dtype_row_size(op->type, op->cols, &row))
                pl->weights[kind_of(m->weights[op->id].home->name)].read -=
                    (double)row * (op->rows - 1);
        }
    }
}

/* Bytes that this process holds now: code, vocabulary, headers. */
static uint64_t program_size(void) {
    unsigned long pages = 0, resident = 0;
    malloc_trim(0); /* what the vocabulary took while it was read would be counted twice */
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%lu %lu", &pages, &resident) != 2)
        resident = 0;
    if (f)
        fclose(f);
    /* and a little more, of code and tables that computing touches first */
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE) + (1 << 18);
}

/* What sessions take at a context. */
static int count_sessions(struct placing *pl, uint32_t ctx, struct lode_error *err) {
    const struct lode_model *m = pl->m;
    const uint32_t n = pl->p->parallel, batch = lode_session_batch(&pl->opts, ctx);
    struct lode_kv_layer *layers;
    LODE_TRY(lode_session_layers(m, &pl->opts, &layers, err));
    struct lode_kv_room room = {.ctx = ctx, .batch = batch, .n_seqs = n};
    int rc = lode_kv_pool_size(layers, m->hp.n_layers, &room, &pl->kv, err);
    room.n_seqs = 1;
    if (rc == 0)
        rc = lode_kv_pool_size(layers, m->hp.n_layers, &room, &pl->kv_read, err);
    lode_free(layers);
    const uint64_t block = lode_state_block(m->state, m->hp.n_layers);
    pl->state = block * (1 + LODE_STATE_CHECKPOINTS) * n;
    pl->work = lode_workers_size(m, batch, pl->opts.threads) +
               n * ((uint64_t)ctx * sizeof(int32_t) + (uint64_t)m->hp.n_vocab * sizeof(float));
    pl->p->ctx = ctx;
    return rc;
}

static uint64_t fixed_size(const struct placing *pl) {
    uint64_t sum = pl->kv + pl->state + pl->work + pl->program;
    for (int k = 0; k < KINDS; k++)
        sum += k == EXPERTS ? 0 : pl->weights[k].size;
    return sum;
}

static bool all_fits(const struct placing *pl, uint64_t room) {
    return fixed_size(pl) + pl->weights[EXPERTS].size <= room;
}

/* The largest multiple of 256 in [low, high] at which everything is in memory; low when none is. */
static int largest_ctx(struct placing *pl, uint32_t low, uint32_t high, uint64_t room,
                       struct lode_error *err) {
    LODE_TRY(count_sessions(pl, high, err));
    if (all_fits(pl, room) || high <= low)
        return 0;
    uint32_t fits = low / 256, fails = (high + 255) / 256;
    while (fits + 1 < fails) {
        const uint32_t middle = fits + (fails - fits) / 2;
        LODE_TRY(count_sessions(pl, middle * 256, err));
        *(all_fits(pl, room) ? &fits : &fails) = middle;
    }
    return count_sessions(pl, fits * 256 > low ? fits * 256 : low, err);
}

/* The cache that is left for experts; 0: all are in memory anyway. */
static void choose_cache(struct placing *pl) {
    struct lode_placement *p = pl->p;
    const uint64_t room = p->budget[LODE_RUNG_RAM], fixed = fixed_size(pl);
    p->hit_rate = 1;
    p->fits = all_fits(pl, room);
    if (p->fits)
        return;
    /* what is left beside the layers' own matrices, and beside a token's experts without them */
    const uint64_t left = room > fixed ? room - fixed : 0;
    const uint64_t other = fixed - p->layers_size + p->expert_cache_least;
    p->fits = p->experts_size && left >= p->expert_cache_least;
    if (!p->fits && p->layers_size && other + p->layer_cache_least <= room) {
        p->fits = true;
        p->layer_cache =
            lode_layers_room(&pl->m->graphs[LODE_BODY], pl->m->weights, room - other);
    }
    if (p->experts_size == 0)
        return;
    p->expert_cache = left >= p->expert_cache_least ? left : p->expert_cache_least;
    if (p->layer_cache) /* what no whole layer fits into */
        p->expert_cache += room - other - p->layer_cache;
    if (p->expert_cache > pl->slots_most)
        p->expert_cache = pl->slots_most;
    const double share = (double)p->expert_cache / (double)pl->slots_most;
    p->hit_rate = pl->budget->hit_rate > 0 ? pl->budget->hit_rate : 1 - pow(1 - share, 1.75);
}

/* ---- the table ---- */

static struct lode_placement_row *add_row(struct placing *pl, const char *name, uint64_t size,
                                          double read) {
    struct lode_placement *p = pl->p;
    const enum lode_rung rung = p->on_gpu ? LODE_RUNG_VRAM : LODE_RUNG_RAM;
    if (size == 0)
        return NULL;
    struct lode_placement_row *row = &p->rows[p->n_rows++];
    *row = (struct lode_placement_row){.name = name};
    row->size[rung] = size;
    row->read[rung] = read;
    return row;
}

/* The first layers stay in what is left beside two of the largest; the others are read for each
 * token.  Each kind has its part in that. */
static void stream_row(const struct placing *pl, struct lode_placement_row *row) {
    const struct lode_placement *p = pl->p;
    double all = 0;
    for (int k = FFN; k <= RECURRENT; k++)
        all += (double)pl->weights[k].size;
    const double part = (double)row->size[LODE_RUNG_RAM] / all;
    const uint64_t away = (uint64_t)ceil(part * (double)(p->layers_size - p->layer_cache));
    row->size[LODE_RUNG_RAM] -= away;
    row->size[LODE_RUNG_DISK] = away;
    row->read[LODE_RUNG_DISK] = (double)away + part * (double)p->layer_cache_least;
}

static void fill_rows(struct placing *pl) {
    struct lode_placement *p = pl->p;
    for (int k = EMBEDDING; k < KINDS; k++) {
        struct lode_placement_row *row =
            add_row(pl, kinds[k].name, pl->weights[k].size, pl->weights[k].read);
        if (row && p->layer_cache && k >= FFN && k <= RECURRENT)
            stream_row(pl, row);
    }
    const struct weights *x = &pl->weights[EXPERTS];
    struct lode_placement_row *row = add_row(pl, kinds[EXPERTS].name, x->size, x->read);
    if (row && p->expert_cache) {
        row->size[LODE_RUNG_RAM] = p->expert_cache;
        row->size[LODE_RUNG_DISK] = x->size > p->expert_cache ? x->size - p->expert_cache : 0;
        row->read[LODE_RUNG_DISK] = (1 - p->hit_rate) * x->read;
    }
    add_row(pl, "KV cache", pl->kv, 0);
    const uint64_t block = lode_state_block(pl->m->state, pl->m->hp.n_layers);
    add_row(pl, "recurrent state", pl->state, 2.0 * (double)block);
    add_row(pl, "activations, buffers", pl->work, 0);
    row = add_row(pl, "program, vocabulary", pl->program, 0);
    if (row && p->on_gpu) {
        row->size[LODE_RUNG_RAM] = row->size[LODE_RUNG_VRAM];
        row->size[LODE_RUNG_VRAM] = 0;
    }
    for (uint32_t i = 0; i < p->n_rows; i++)
        for (int r = 0; r < LODE_RUNGS; r++) {
            p->size[r] += p->rows[i].size[r];
            p->read[r] += p->rows[i].read[r];
        }
    p->read_full = p->read[p->on_gpu ? LODE_RUNG_VRAM : LODE_RUNG_RAM] + (double)pl->kv_read;
}

static void predict(struct placing *pl) {
    struct lode_placement *p = pl->p;
    const struct lode_budget *b = pl->budget;
    const double speed = p->on_gpu ? b->vram_speed : b->ram_speed;
    const double read = p->read[p->on_gpu ? LODE_RUNG_VRAM : LODE_RUNG_RAM];
    const bool disk = p->read[LODE_RUNG_DISK] > 0;
    if (speed <= 0 || (disk && b->disk_speed <= 0))
        return;
    const double wait = disk ? p->read[LODE_RUNG_DISK] / b->disk_speed : 0;
    p->tokens_per_second = 1 / (read / (DECODE_SHARE * speed) + wait);
    p->tokens_per_second_full = 1 / (p->read_full / (DECODE_SHARE * speed) + wait);
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

static int give_advice(struct placing *pl, struct lode_error *err) {
    struct lode_placement *p = pl->p;
    const struct lode_placement chosen = *p;
    const uint64_t room = p->budget[LODE_RUNG_RAM];
    const uint64_t need = least_size(pl);
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
    advise(p, "--ram %.0fM is the least for these settings: %.0f MiB more\n", ceil(mib(need)),
           mib(need - room));
    const uint64_t weights = need - pl->kv - pl->state - pl->work;
    if (weights > room) {
        advise(p, "weights that stay in memory alone take %.0f MiB: take a model of fewer bits "
                  "(lode convert --type)\n", mib(weights));
        return 0;
    }
    if (!pl->opts.ctk && !pl->opts.ctv && pl->kv > pl->work)
        advise(p, "-ctk q8_0 -ctv q8_0 saves about %.0f MiB of KV cache\n", mib(pl->kv) * 15 / 32);
    if (p->parallel > 1)
        advise(p, "--parallel 1 saves %.0f MiB\n", mib(pl->kv - pl->kv_read));
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
    struct lode_machine machine;
    lode_machine_probe(&machine);
    struct lode_placement *p = pl->p;
    p->budget[LODE_RUNG_VRAM] = pl->budget->vram;
    /* what is held already is not to be found again */
    p->budget[LODE_RUNG_RAM] =
        pl->budget->ram ? pl->budget->ram : machine.ram_left + pl->program;
}

static int place(struct placing *pl, struct lode_error *err) {
    struct lode_placement *p = pl->p;
    const struct lode_model *m = pl->m;
    count_weights(pl);
    p->experts_size = m->n_groups ? pl->weights[EXPERTS].size : 0;
    if (m->n_groups) {
        uint64_t least;
        lode_stream_sizes(m->source, m->weights, m->groups, m->n_groups, &least, &pl->slots_most);
        /* a token's experts of one layer at once, so that they are read side by side */
        p->expert_cache_least = least * m->hp.n_experts_used;
    }
    p->layers_size = lode_layers_size(&m->graphs[LODE_BODY], m->weights);
    p->layer_cache_least = lode_layers_room(&m->graphs[LODE_BODY], m->weights, 0);
    p->ctx_wanted = pl->opts.ctx ? pl->opts.ctx : m->hp.ctx_train;
    /* a GPU has all of a model or nothing */
    LODE_TRY(count_sessions(pl, p->ctx_wanted, err));
    p->on_gpu = p->budget[LODE_RUNG_VRAM] &&
                fixed_size(pl) - pl->program + pl->weights[EXPERTS].size <= p->budget[LODE_RUNG_VRAM];
    if (p->on_gpu) {
        p->fits = true;
        p->hit_rate = 1;
        return 0;
    }
    const uint32_t least = p->ctx_wanted < LEAST_CTX ? p->ctx_wanted : LEAST_CTX;
    if (!pl->opts.ctx)
        LODE_TRY(largest_ctx(pl, least, p->ctx_wanted, p->budget[LODE_RUNG_RAM], err));
    choose_cache(pl);
    return give_advice(pl, err);
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
    LODE_TRY(place(&pl, err));
    fill_rows(&pl);
    predict(&pl);
    return 0;
}
