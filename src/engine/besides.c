/* besides.c - what a token takes on the CPU besides going through its weights.
 *
 * Norms, rounding, rotation, attention of a few positions, routing, recurrent states, and that threads share each
 * product: 1.3 of 15 ms of Qwen3-0.6B on two cores.  It is not estimated but run: a session of the same model, whose
 * products have as few rows as all threads can share, and whose weights are zeros that lie in the cores' own cache.
 * Of a model that the last cache holds, the session has all of it, and the time is that of a token: memory has no
 * part in it. */
#include "engine/besides.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/machine.h"
#include "engine/rows.h"
#include "engine/session_impl.h"

#include <string.h>

enum {
    PART_SIZE = 192 << 10, /* bytes of a matrix, that a core's own cache holds */
    TILE_ROWS = 16,        /* of the kernels */
    BLOCK = 256,           /* columns that any type's blocks divide */
    UP = 1, DOWN = 2,      /* parts of experts */
    WARM = 4,              /* tokens that do not count yet */
    ROUND = 60,            /* after so many the timeline begins anew */
};
static const double seconds_all = 0.06; /* of measuring */

/* A weight's bytes: expert k of n has those of k + turn, as no two tokens go to the same experts. */
struct place {
    size_t first, size;
    uint32_t k, n;
};

/* A model's stand-in: the same in all, but for the weights. */
struct stand_in {
    struct lode_model model;
    struct lode_store store;
    struct lode_plan_part *parts[LODE_STAGES]; /* owned: the plans', */
    struct lode_operand *cut[LODE_STAGES];     /* owned: and their weights, with fewer rows unless `whole` */
    bool whole;
    char *zeros; /* owned; (size) */
    size_t size;
    struct place *at; /* owned; (n_weights) where each lies; NULL: all where zeros begin */
    uint32_t turn;    /* tokens so far */
};

static int pin(struct lode_store *s, uint32_t id, const void **data, struct lode_error *err) {
    const struct stand_in *in = (struct stand_in *)((char *)s - offsetof(struct stand_in, store));
    (void)err;
    const struct place *p = in->at ? &in->at[id] : NULL;
    *data = in->zeros + (p ? p->first + (p->k + in->turn) % p->n * p->size : 0);
    return LODE_READY;
}

static void unpin(struct lode_store *s, uint32_t id) { (void)s, (void)id; }

static uint64_t news(struct lode_store *s, uint32_t id) {
    (void)s, (void)id;
    return 0;
}

static void wait_for_news(struct lode_store *s, uint64_t seen, uint32_t id) { (void)s, (void)seen, (void)id; }

static int verify(struct lode_store *s, struct lode_error *err) {
    (void)s, (void)err;
    return 0;
}

static const struct lode_store_ops zero_ops = {
    .pin = pin, .look = pin, .unpin = unpin, .news = news, .wait = wait_for_news, .verify = verify};

static size_t size_of(const struct lode_operand *w) {
    size_t row = 0;
    return lode_dtype_row_size(w->type, w->cols, &row) ? row * w->rows : 0;
}

/* So many rows that the kernels' tiles are whole and all threads have some. */
static uint32_t rows_of(const struct lode_operand *w, uint32_t threads, uint32_t whole) {
    const size_t row = size_of(w) / w->rows;
    const size_t fit = PART_SIZE / (row + 1) / whole * whole, least = (size_t)whole * threads;
    const size_t rows = fit > least ? fit : least;
    return rows < w->rows ? (uint32_t)rows : w->rows;
}

/* Part k of an instruction with fewer rows, where those are independent of each other.  `gate`: of experts, the first
 * matrix so cut, as many rows of which the others have, and the last one columns. */
static struct lode_operand cut_part(const struct lode_operand *w, enum lode_op op, uint32_t k,
                                    const struct lode_operand *gate, uint32_t threads) {
    struct lode_operand cut = *w;
    if (op == LODE_OP_LINEAR)
        cut.rows = rows_of(w, threads, TILE_ROWS);
    if (op == LODE_OP_EMBED)
        cut.rows = 1;
    if (op == LODE_OP_EXPERTS && k == 0)
        cut.rows = rows_of(w, 1, BLOCK);
    if (op == LODE_OP_EXPERTS && k == UP)
        cut.rows = gate->rows;
    if (op == LODE_OP_EXPERTS && k == DOWN) {
        cut.cols = gate->rows;
        cut.rows = rows_of(&cut, threads, TILE_ROWS);
    }
    return cut;
}

static int cut_plan(struct stand_in *s, int stage, uint32_t threads, double *bytes, struct lode_error *err) {
    struct lode_plan *plan = &s->model.plans[stage];
    struct lode_plan_part *parts = s->parts[stage] = LODE_NEW_ARRAY(struct lode_plan_part, plan->n_parts);
    struct lode_operand *cut = s->cut[stage] = LODE_NEW_ARRAY(struct lode_operand, plan->n_parts);
    if (!parts || !cut)
        return lode_fail_nomem(err, "plan");
    memcpy(parts, plan->parts, plan->n_parts * sizeof *parts);
    plan->parts = parts;
    for (uint32_t i = 0; i < plan->n_instrs; i++) {
        const struct lode_plan_instr *in = &plan->instrs[i];
        for (uint32_t k = 0; k < in->n_parts; k++) {
            const uint32_t at = in->first_part + k;
            const struct lode_operand *w = parts[at].w;
            if (!w)
                continue;
            cut[at] = s->whole && in->op != LODE_OP_EMBED ? *w : cut_part(w, in->op, k, &cut[in->first_part], threads);
            parts[at].w = &cut[at];
            const size_t size = size_of(&cut[at]);
            s->size = size > s->size && !s->whole ? size : s->size;
            *bytes += (double)size * (w->count > 1 ? plan->experts.n_used : 1);
        }
    }
    return 0;
}

static int run(struct stand_in *s, struct lode_session *session, double enough, double *seconds,
               struct lode_error *err) {
    const int32_t token = 0;
    double start = 0, now = 0;
    uint32_t n = 0; /* tokens that count */
    for (uint32_t at = 0; n == 0 || now < start + enough; at++) {
        if (at == ROUND)
            at = lode_session_rewind(session, 0);
        s->turn++;
        LODE_TRY(lode_session_eval(session, &token, 1, err));
        n += start > 0;
        now = lode_clock();
        if (start == 0 && s->turn == WARM)
            start = now;
    }
    *seconds = (now - start) / n;
    return 0;
}

/* Each weight has its own bytes, as in the model. */
static int lay_out(struct stand_in *s, struct lode_error *err) {
    const struct lode_weight *w = s->model.weights;
    s->at = LODE_NEW_ARRAY(struct place, s->model.n_weights);
    if (!s->at)
        return lode_fail_nomem(err, "weights");
    for (uint32_t i = 0; i < s->model.n_weights;) {
        const uint32_t n = w[i].op.count > 1 ? w[i].op.count : 1; /* the first of so many experts */
        const size_t size = (size_of(&w[i].op) + 63) & ~(size_t)63;
        for (uint32_t k = 0; k < n; k++)
            s->at[i++] = (struct place){s->size, size, k, n};
        s->size += n * size;
    }
    return 0;
}

static int measure(struct stand_in *s, uint32_t threads, double enough, struct lode_besides *out,
                   struct lode_error *err) {
    const uint32_t shared = threads ? threads : lode_machine_default_threads();
    double aside = 0; /* bytes of a stage that gives no tokens */
    if (s->whole)
        LODE_TRY(lay_out(s, err));
    for (int i = 0; i < LODE_STAGES; i++)
        LODE_TRY(cut_plan(s, i, shared, i == LODE_TAIL ? &aside : &out->bytes, err));
    s->zeros = lode_alloc_aligned(64, 1, s->size);
    if (!s->zeros)
        return lode_fail_nomem(err, "weights");
    memset(s->zeros, 0, s->size);
    struct lode_session *session;
    const struct lode_session_opts opts = {.ctx = 256, .batch = 1, .threads = threads};
    LODE_TRY(lode_session_open(&session, &s->model, &opts, err));
    const int rc = run(s, session, enough, &out->seconds, err);
    lode_session_free(session);
    return rc;
}

int lode_besides_measure(const struct lode_model *m, uint32_t threads, bool whole, double seconds,
                         struct lode_besides *out, struct lode_error *err) {
    *out = (struct lode_besides){.whole = whole};
    struct stand_in s = {.model = *m, .store.ops = &zero_ops, .whole = whole};
    s.model.store = &s.store;
    const int rc = measure(&s, threads, seconds, out, err);
    for (int i = 0; i < LODE_STAGES; i++) {
        lode_free(s.parts[i]);
        lode_free(s.cut[i]);
    }
    lode_free_aligned(s.zeros);
    lode_free(s.at);
    return rc;
}

int lode_model_besides(const struct lode_model *m, uint32_t threads, struct lode_besides *out,
                       struct lode_error *err) {
    struct lode_machine machine;
    *out = (struct lode_besides){0};
    if (m->n_places > 1 || m->arch->encoder || m->hp.both_ways)
        return 0;
    lode_machine_probe(&machine);
    /* its zeros are never more than a quarter of what may still be taken */
    const bool whole = m->info.size <= machine.cache_l3 && m->info.size <= machine.ram_left / 4;
    const int rc = lode_besides_measure(m, threads, whole, seconds_all, out, err);
    if (rc == LODE_ERR_LIMIT) /* not even a short context has room now: what the plan will say, with its numbers */
        *out = (struct lode_besides){0};
    return rc == LODE_ERR_LIMIT ? 0 : rc;
}
