/* few_pairs.c - the pairs of a row and an expert that a device takes of a step of few rows: what goes up, their products, and
 * their results on the way down.
 *
 * The host's threads wait for whoever asks the driver for all that, so it is asked for with few calls: what can be the same
 * from one layer to the next is a captured graph.  Slots are numbers in what goes up, and experts of a kind share their
 * matrices' first addresses, so a graph is for a number of pairs of a kind. */
#include "backend/cuda/aside.h"

#include <string.h>

/* ---- pairs in slots ---- */

/* Pairs of a take that are computed one after the other, a captured graph where such pairs come again. */
struct pairs {
    const struct lode_cuda_kind *kind; /* whose slots they are in */
    uint32_t first, n;
    uint32_t n_sent; /* of the take, which go up before; 0: they are there */
    enum lode_glu act;
    bool weigh_input;
};

static uint64_t x_at(const struct aside *a) { return aside_up(a->n_rows * 2 * sizeof(float), ASIDE_ALIGN); }

static int multiply(struct aside *a, const struct pairs *p) {
    const uint64_t stride = aside_row(a->o.experts.d_in);
    struct run r = a->run;
    const struct op o = {.r = &r, .in = a->job.in, .err = &a->error};
    struct lode_cuda_expert_call e = {.x = {a->in_there + x_at(a) + p->first * stride, stride},
                                      .route = {a->in_there + p->first * 2 * sizeof(float), 2 * sizeof(float)},
                                      .pairs = p->n,
                                      .n_used = 1,
                                      .x_div = 1};
    r.gate += p->first * r.ff_stride;
    r.up += p->first * r.ff_stride;
    r.h += p->first * r.ff_stride;
    r.down += p->first * r.out_stride;
    aside_set_slots(p->kind, &e);
    return lode_cuda_multiply_experts(&o, &e);
}

/* What goes up, the products, what comes down. */
static int run_plainly(struct aside *a, const struct pairs *p) {
    const struct lode_cu *cu = &a->c->cu;
    const uint64_t out = a->run.out_stride;
    if (p->n_sent)
        LODE_TRY(lode_cu_check(cu, cu->to_device(a->in_there, a->in, x_at(a) + a->n_rows * aside_row(a->o.experts.d_in),
                                                 a->run.stream),
                               "experts", &a->error));
    if (p->n == 0)
        return 0;
    LODE_TRY(multiply(a, p));
    return lode_cu_check(cu, cu->to_host(a->out + p->first * out, a->run.down + p->first * out, p->n * out, a->run.stream),
                         "experts", &a->error);
}

/* ---- graphs ---- */

void aside_drop_graphs(struct aside *a) { lode_cuda_drop_graphs(a->c, a->graphs, ASIDE_GRAPHS, NULL); }

static struct graph *find(struct aside *a, const struct pairs *p) {
    const struct graph_key key = {{(uintptr_t)p->kind, graph_two(p->first, p->n), graph_two(p->n_sent, p->act), p->weigh_input}};
    return lode_cuda_find_graph(a->c, a->graphs, ASIDE_GRAPHS, &key, &a->clock);
}

/* Pairs first .. first + n - 1 of the take; n_sent: of all that go up before them. */
static int run_pairs(struct aside *a, uint32_t first, uint32_t n, uint32_t n_sent) {
    const union lode_op_params *params = &a->job.in->p;
    const struct pairs p = {.kind = a->kept->kind, .first = first, .n = n, .n_sent = n_sent,
                            .act = params->experts.act, .weigh_input = params->experts.weigh_input};
    if (n == 0 || a->n_rows > ASIDE_GRAPH_PAIRS)
        return run_plainly(a, &p);
    struct graph *g = find(a, &p);
    if (lode_cuda_begin_graph(a->c, g, a->run.stream))
        lode_cuda_end_graph(a->c, g, a->run.stream, run_plainly(a, &p) == 0);
    return g->exec ? lode_cu_check(&a->c->cu, a->c->cu.graph_launch(g->exec, a->run.stream), "experts", &a->error)
                   : run_plainly(a, &p);
}

/* ---- experts that are brought ---- */

/* Those that are not here yet set out. */
static int send_held(struct aside *a) {
    const struct lode_cuda_kept *k = a->kept;
    struct wanted wanted[ASIDE_HALF_MOST];
    const uint32_t n = a->n_held - a->n_hits;
    for (uint32_t i = 0; i < n; i++) {
        const struct held *h = &a->held[a->n_hits + i];
        const uint32_t expert = a->job.shares[h->share].expert;
        wanted[i] = (struct wanted){.share = h->share, .expert = expert};
        lode_cuda_find_raw(k, expert, wanted[i].w);
    }
    return n ? aside_send(a, &a->half[0], wanted, n, NULL, &a->error) : 0;
}

/* They are laid in their slots when they are there. */
static int receive_held(struct aside *a) {
    const uint32_t n = a->n_held - a->n_hits;
    LODE_TRY(lode_cuda_half_wait(a->c, &a->half[0], a->run.stream, &a->error));
    for (uint32_t i = 0; i < n; i++)
        LODE_TRY(aside_lay_in_slot(a, a->run.stream, &a->half[0], i, n, a->held[a->n_hits + i].slot, &a->error));
    return lode_cuda_half_done(a->c, &a->half[0], a->run.stream, &a->error);
}

/* ---- a take ---- */

/* Its routes, which are slots, and a row of x for each pair. */
static void put_rows(struct aside *a) {
    const struct lode_value *x = &a->job.in->in[0];
    const uint64_t stride = aside_row(a->o.experts.d_in);
    size_t bytes = 0;
    lode_dtype_row_size(x->type, x->width, &bytes);
    for (uint32_t i = 0; i < a->n_held; i++) {
        const struct lode_expert_share *s = &a->job.shares[a->held[i].share];
        for (uint32_t p = 0; p < s->n; p++) {
            const struct lode_expert_pair *pair = &a->job.pairs[s->first + p];
            const uint32_t at = a->held[i].first + p;
            memcpy(a->in + at * 2 * sizeof(float), &a->held[i].slot, sizeof(uint32_t));
            memcpy(a->in + at * 2 * sizeof(float) + sizeof(float), &pair->weight, sizeof(float));
            memcpy(a->in + x_at(a) + at * stride, x->data + pair->row * x->stride, bytes);
        }
    }
}

int aside_begin_few(struct aside *a) {
    const struct lode_cu *cu = &a->c->cu;
    LODE_TRY(lode_cuda_enter(a->c, &a->error));
    LODE_TRY(send_held(a)); /* the longest way first */
    put_rows(a);
    LODE_TRY(run_pairs(a, 0, a->n_rows_hit, a->n_rows));
    if (a->n_held > a->n_hits) {
        LODE_TRY(receive_held(a));
        LODE_TRY(run_pairs(a, a->n_rows_hit, a->n_rows - a->n_rows_hit, 0));
    }
    return lode_cu_check(cu, cu->event_record(a->done, a->run.stream), "experts", &a->error);
}
