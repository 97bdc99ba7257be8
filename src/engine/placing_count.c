/* placing_count.c - see placing.h. */
#include "engine/placing.h"

#include "backend/cuda.h"
#include "base/alloc.h"

#include <string.h>

static const char *const name_parts[] = {
#define KIND(id, name, part) part,
    PLACING_KINDS(KIND)
#undef KIND
};

/* A weight that is read past the page cache comes with the ends of its pages, and starts at one. */
enum { AROUND = 2 * 4096 };
enum { CANDIDATE = 8 }; /* bytes: a token and its score */
enum { EXPERTS_FORKS = 3 /* gate and up, down, and the choice before them */ };

static enum lode_rung rung_of(uint32_t place) {
    return place == LODE_HOST ? LODE_RUNG_RAM : LODE_RUNG_VRAM;
}

uint64_t placing_at_rung(const uint64_t bytes[LODE_PLACES], enum lode_rung rung) {
    uint64_t sum = 0;
    for (uint32_t p = 0; p < LODE_PLACES; p++)
        sum += rung_of(p) == rung ? bytes[p] : 0;
    return sum;
}

/* "attn_output." is attention though it has "output." in it; "output_norm." is no head. */
static enum placing_kind kind_of(const char *name) {
    for (int k = 0; k < PLACING_OTHER; k++) {
        const char *found = strstr(name, name_parts[k]);
        if (found && (k != PLACING_HEAD || found == name))
            return (enum placing_kind)k;
    }
    return PLACING_OTHER;
}

static uint64_t host_size(const struct lode_weight *w) {
    const bool widened = w->op.type != w->home->type;
    return widened ? (uint64_t)w->op.rows * w->op.cols * sizeof(float) : (uint64_t)w->size;
}

static void count_sizes(struct placing *pl) {
    const struct lode_model *m = pl->m;
    for (uint32_t i = 0; i < m->n_weights; i++) {
        const struct lode_weight *w = &m->weights[i];
        struct placing_weights *k = pl->weights[kind_of(w->home->name)];
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

void placing_count_weights(struct placing *pl) {
    memset(pl->weights, 0, sizeof pl->weights);
    memset(pl->device, 0, sizeof pl->device);
    pl->around = 0;
    pl->p->bus = 0;
    pl->p->borders = pl->p->forks = pl->p->launches = pl->p->expert_launches = pl->p->exchanges = 0;
    count_sizes(pl);
    count_reads(pl, &pl->split.plans[LODE_BODY]);
    count_reads(pl, &pl->split.plans[LODE_HEAD]);
}

int placing_count_sessions(struct placing *pl, uint32_t ctx, struct lode_error *err) {
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
        pl->kv_read[r] = placing_at_rung(one.kv, (enum lode_rung)r);
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

uint64_t placing_sessions_at(const struct placing *pl, uint32_t place) {
    return pl->needs.kv[place] + pl->needs.state[place] + pl->needs.work[place];
}

uint64_t placing_fixed_size(const struct placing *pl) {
    uint64_t sum = placing_sessions_at(pl, LODE_HOST) + pl->program;
    for (int k = 0; k < PLACING_N_KINDS; k++)
        sum += k == PLACING_EXPERTS ? 0 : pl->weights[k][LODE_RUNG_RAM].size;
    return sum;
}

uint64_t placing_least_size(const struct placing *pl) {
    const struct lode_placement *p = pl->p;
    const uint64_t streamed = p->layers_size > p->layer_cache_least ? p->layers_size - p->layer_cache_least : 0;
    return placing_fixed_size(pl) + pl->around - streamed + (p->experts_size ? p->expert_cache_least : 0);
}

int placing_largest_streamed_ctx(struct placing *pl, uint32_t *out, struct lode_error *err) {
    uint32_t fits = 0, fails = (pl->p->ctx + 255) / 256;
    while (fits + 1 < fails) {
        const uint32_t middle = fits + (fails - fits) / 2;
        LODE_TRY(placing_count_sessions(pl, middle * 256, err));
        *(placing_least_size(pl) <= pl->room[LODE_HOST] ? &fits : &fails) = middle;
    }
    *out = fits * 256;
    return 0;
}

uint32_t placing_beside_at(const struct placing *pl) { return pl->split.plans[LODE_BODY].beside; }

uint64_t placing_cache_at(const struct placing *pl, uint32_t place) {
    return place != LODE_HOST && place == placing_beside_at(pl) ? pl->p->gpu_cache : 0;
}

bool placing_fits_devices(const struct placing *pl) {
    for (uint32_t p = 1; p < pl->m->n_places; p++)
        if (pl->device[p] + placing_cache_at(pl, p) + placing_sessions_at(pl, p) > pl->room[p])
            return false;
    return true;
}

bool placing_all_fits(const struct placing *pl) {
    const uint64_t around = pl->m->opts.direct ? pl->around : 0;
    const uint64_t experts = pl->weights[PLACING_EXPERTS][LODE_RUNG_RAM].size;
    return placing_fits_devices(pl) && placing_fixed_size(pl) + around + experts <= pl->room[LODE_HOST];
}
