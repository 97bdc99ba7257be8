#include "runtime/plan.h"

#include "base/alloc.h"

/* The state of one compilation.  Everything is indexed by node id, what has a [place] by that and the
 * node's id; a graph has at most one QUANT value per node, place and activation layout. */
struct compiler {
    struct lode_plan *plan;
    const struct lode_graph *g;
    const struct lode_plan_opts *opts;
    uint8_t *place;     /* (n_nodes): where its value is made, and lies */
    uint32_t n_places;
    uint32_t *value[LODE_PLACES];    /* (n_nodes): value of a node, elsewhere a copy of it */
    uint32_t *quant[2][LODE_PLACES]; /* (n_nodes): its rounded twin, as A32 and as A256 */
    uint32_t *last_use; /* (n_nodes): position of the last node that reads this one's memory */
    uint32_t *origin;   /* (n_nodes): the node whose memory it is (for SLICE and TRACE, the input's) */
    uint32_t *readers;  /* (n_nodes): how many nodes read it */
    bool *done;         /* (n_nodes): already part of an earlier instruction */
    bool *released;     /* (n_nodes) */
    uint32_t n_used;    /* experts a row uses, of the EXPERTS being compiled */
};

static void grow(uint32_t *most, uint32_t v) { *most = v > *most ? v : *most; }

static bool is_view(const struct lode_node *n) {
    return n->op == LODE_OP_SLICE || n->op == LODE_OP_TRACE;
}

/* Ops whose kernels may write over their first input. */
static bool in_place(enum lode_op op) {
    return op == LODE_OP_ROPE || op == LODE_OP_UNPAIR || op == LODE_OP_ADD || op == LODE_OP_GLU ||
           op == LODE_OP_ACT || op == LODE_OP_ROW_GATE || op == LODE_OP_SCALE ||
           op == LODE_OP_TEMPERATURE || op == LODE_OP_SOFTCAP || op == LODE_OP_RMS_NORM ||
           op == LODE_OP_LAYER_NORM || op == LODE_OP_L2_NORM || op == LODE_OP_DELTA_GATES;
}

static bool is_experts(enum lode_op op) {
    return op == LODE_OP_EXPERTS || op == LODE_OP_EXPERTS_IN || op == LODE_OP_EXPERTS_OUT;
}

static void keep(struct compiler *c, const struct lode_node *x, uint32_t until) {
    if (x)
        c->last_use[c->origin[x->id]] = until;
}

/* Latent attention's queries, what of them is rounded, what a token keeps, and angles, until attention: who brings all of them to their places
 * in one launch (backend/cuda/fuse_latent.c) still reads them while rounded and joined queries are written. */
static void keep_latent(struct compiler *c, const struct lode_node *attention, uint32_t i) {
    const struct lode_node *q = attention->in[0], *row = attention->in[1]->in[0];
    if (q->op != LODE_OP_JOIN || q->in[0]->op != LODE_OP_HEADS || q->in[0]->in[0]->op != LODE_OP_CUT)
        return;
    keep(c, q->in[0]->in[0], i);
    keep(c, q->in[0]->in[0]->in[0], i);
    for (int k = 0; k < 2 && row->op == LODE_OP_JOIN; k++)
        keep(c, row->in[k], i);
    if (q->in[1]->op == LODE_OP_ROPE)
        keep(c, q->in[1]->in[1], i);
}

static void find_lifetimes(struct compiler *c) {
    for (uint32_t i = 0; i < c->g->n_nodes; i++) {
        const struct lode_node *n = c->g->nodes[i];
        c->origin[i] = is_view(n) ? c->origin[n->in[0]->id] : i;
        c->last_use[c->origin[i]] = i;
        for (int k = 0; k < 2; k++)
            if (n->in[k]) {
                keep(c, n->in[k], i);
                c->readers[n->in[k]->id]++;
            }
        /* keys and values until attention is done, and what queries are made of: who puts keys and values into the cache and attends in one
         * launch still reads them while results are written */
        const struct lode_node *put = i ? c->g->nodes[i - 1] : n;
        if (n->op == LODE_OP_ATTENTION && put->op == LODE_OP_KV_PUT) {
            for (int k = 0; k < 2; k++)
                keep(c, put->in[k], i);
            for (const struct lode_node *q = n->in[0]; q->op == LODE_OP_ROPE || q->op == LODE_OP_RMS_NORM || q->op == LODE_OP_CUT; q = q->in[0])
                keep(c, q->op == LODE_OP_ROPE ? q->in[1] : q->op == LODE_OP_CUT ? q->in[0] : NULL, i);
        }
        if (n->op == LODE_OP_ATTENTION)
            keep_latent(c, n, i);
        /* and a router's logits until gate and up of the experts: who chooses them in the same launch still reads logits while rounded rows
         * are written for others */
        if ((n->op == LODE_OP_EXPERTS || n->op == LODE_OP_EXPERTS_IN) && n->in[1]->op == LODE_OP_ROUTE)
            keep(c, n->in[1]->in[0], i);
        /* and what the delta rule's gates are made of until the convolution after them is done, or what that is cut from: who makes both in
         * one launch reads it there while both are written */
        if (n->op == LODE_OP_CONV && c->g->nodes[i - 1]->op == LODE_OP_DELTA_GATES && c->g->nodes[i - 1]->in[0]->op == LODE_OP_JOIN)
            for (int k = 0; k < 2; k++) {
                const struct lode_node *x = c->g->nodes[i - 1]->in[0]->in[k];
                keep(c, x->op == LODE_OP_CUT ? x->in[0] : x, i);
            }
    }
    if (c->g->result)
        c->last_use[c->origin[c->g->result->id]] = UINT32_MAX;
}

/* A view lies where that does whose columns it is; who reads it elsewhere copies these alone. */
static void find_places(struct compiler *c, const uint8_t *places) {
    c->n_places = 1;
    for (uint32_t i = 0; i < c->g->n_nodes; i++) {
        c->place[i] = !places ? LODE_HOST : is_view(c->g->nodes[i]) ? c->place[c->g->nodes[i]->in[0]->id]
                                                                     : places[i];
        grow(&c->n_places, c->place[i] + 1u);
    }
}

/* What follows runs at this place. */
static void enter(struct compiler *c, uint8_t place) {
    struct lode_plan *p = c->plan;
    if (p->n_cuts && p->cuts[p->n_cuts - 1].place == place)
        return;
    p->cuts[p->n_cuts++] =
        (struct lode_plan_cut){place, p->n_instrs, 0, p->n_copies, 0};
}

static size_t row_size(const struct lode_plan_value *v) {
    size_t bytes = 0;
    lode_dtype_row_size(v->type, v->width, &bytes);
    bytes = (bytes + 63) & ~(size_t)63;
    return bytes % 1024 ? bytes : bytes + 64;
}

/* The free slot that fits best: the smallest that is large enough, else the largest, which grows;
 * a new one when none is free.  before: it is written before the present part begins, so nothing of
 * that part may have had it. */
static uint32_t take_slot(struct lode_plan *p, size_t size, enum lode_rows rows, uint8_t place,
                          bool before) {
    uint32_t best = p->n_slots;
    for (uint32_t i = 0; i < p->n_slots; i++) {
        const struct lode_plan_slot *s = &p->slots[i];
        if (s->busy || s->rows != rows || s->place != place || (before && s->last_cut == p->n_cuts))
            continue;
        if (best == p->n_slots) {
            best = i;
            continue;
        }
        const size_t have = p->slots[best].row_size;
        if (have < size ? s->row_size > have : s->row_size >= size && s->row_size < have)
            best = i;
    }
    if (best == p->n_slots)
        p->slots[p->n_slots++] = (struct lode_plan_slot){.rows = rows, .place = place};
    struct lode_plan_slot *s = &p->slots[best];
    s->row_size = s->row_size > size ? s->row_size : size;
    s->busy = true;
    s->last_cut = p->n_cuts;
    return best;
}

static uint32_t add_value(struct compiler *c, uint32_t width, enum lode_dtype type,
                          enum lode_rows rows, uint8_t place, bool before) {
    struct lode_plan_value *v = &c->plan->values[c->plan->n_values];
    *v = (struct lode_plan_value){.width = width, .type = type, .rows = rows};
    v->slot = take_slot(c->plan, row_size(v), rows, place, before);
    return c->plan->n_values++;
}

/* A node's value where the present part can read it. */
static uint32_t value_here(struct compiler *c, const struct lode_node *n) {
    struct lode_plan *p = c->plan;
    struct lode_plan_cut *cut = &p->cuts[p->n_cuts - 1];
    uint32_t *here = &c->value[cut->place][n->id];
    const uint32_t home = c->value[c->place[n->id]][n->id];
    if (*here == LODE_NO_VALUE && home != LODE_NO_VALUE) {
        *here = add_value(c, n->width, n->type, n->rows, cut->place, true);
        p->copies[p->n_copies++] = (struct lode_plan_copy){*here, home};
        cut->n_copies++;
    }
    return *here;
}

static struct lode_plan_instr *add_instr(struct compiler *c, enum lode_op op,
                                         const union lode_op_params *p, uint32_t a, uint32_t b) {
    struct lode_plan_instr *in = &c->plan->instrs[c->plan->n_instrs++];
    struct lode_plan_cut *cut = &c->plan->cuts[c->plan->n_cuts - 1];
    *in = (struct lode_plan_instr){.op = op, .p = *p, .in = {a, b},
                                   .first_part = c->plan->n_parts, .place = cut->place};
    cut->n_instrs++;
    return in;
}

/* What a product with w of the rows of an instruction at a place reads them as: LODE_A32 or A256, rounded, or
 * LODE_F32. */
static enum lode_dtype act_of(const struct compiler *c, enum lode_op op, uint8_t place, const struct lode_operand *w) {
    const enum lode_dtype act = lode_dtypes[w->type].act;
    if (c->opts->float_act || !lode_dtype_is_rounded(act) ||
        (op == LODE_OP_LINEAR && c->opts->takes_floats && c->opts->takes_floats(c->opts->user, place, w)))
        return LODE_F32;
    return act;
}

static void add_part(struct compiler *c, struct lode_plan_instr *in, const struct lode_operand *w,
                     const struct lode_operand *bias, uint32_t out) {
    c->plan->parts[c->plan->n_parts++] = (struct lode_plan_part){.w = w, .bias = bias, .out = out};
    in->n_parts++;
    const struct lode_operand *each[2] = {w, bias};
    for (int i = 0; i < 2; i++) {
        size_t row = 0;
        if (!each[i] || !lode_dtype_row_size(each[i]->type, each[i]->cols, &row))
            continue;
        /* of an embedding, a step reads the rows of its tokens only, of experts those chosen */
        const uint64_t rows =
            in->op == LODE_OP_EMBED ? 1 : (uint64_t)each[i]->rows * (each[i]->count > 1 ? c->n_used : 1);
        c->plan->weight_bytes += rows * row;
        if (in->op == LODE_OP_LINEAR || in->op == LODE_OP_HEADS || is_experts(in->op)) {
            const bool rounded = act_of(c, in->op, in->place, each[i]) != LODE_F32;
            *(rounded ? &c->plan->int_macs : &c->plan->float_macs) += rows * each[i]->cols;
        }
        grow(&c->plan->max_cols, each[i]->cols);
    }
}

/* Gives back the slots of values, and of their rounded twins, that nothing after node `now`
 * reads. */
static void let_go(struct lode_plan *p, uint32_t value) {
    struct lode_plan_slot *s = &p->slots[p->values[value].slot];
    s->busy = false;
    s->last_cut = p->n_cuts;
}

static void release(struct compiler *c, uint32_t now) {
    for (uint32_t i = 0; i <= now; i++) {
        if (c->released[i] || c->last_use[c->origin[i]] > now)
            continue;
        c->released[i] = true;
        for (uint32_t at = 0; at < c->n_places; at++) {
            const bool own = c->origin[i] == i || at != c->place[i]; /* not the memory of another */
            const uint32_t gone[3] = {own ? c->value[at][i] : LODE_NO_VALUE, c->quant[0][at][i],
                                      c->quant[1][at][i]};
            for (int k = 0; k < 3; k++)
                if (gone[k] != LODE_NO_VALUE)
                    let_go(c->plan, gone[k]);
        }
    }
}

/* The value that product n reads: its input's own, or its rounded twin, made on first use.  Twins live as
 * long as their node. */
static uint32_t activation(struct compiler *c, const struct lode_node *n) {
    const struct lode_node *x = n->in[0];
    const uint8_t place = c->plan->cuts[c->plan->n_cuts - 1].place;
    const enum lode_dtype act = act_of(c, n->op, place, n->w[0]);
    if (act == LODE_F32)
        return value_here(c, x);
    /* views share their origin's lifetime, not its columns: each has twins of its own */
    uint32_t *twin = &c->quant[act == LODE_A256][place][x->id];
    if (*twin == LODE_NO_VALUE) {
        const uint32_t plain = value_here(c, x);
        *twin = add_value(c, x->width, act, x->rows, place, false);
        const union lode_op_params none = {0};
        struct lode_plan_instr *in = add_instr(c, LODE_OP_QUANT, &none, plain, LODE_NO_VALUE);
        add_part(c, in, NULL, NULL, *twin);
    }
    return *twin;
}

static void compile_linear(struct compiler *c, uint32_t i) {
    const struct lode_node *first = c->g->nodes[i];
    const uint8_t place = c->place[i];
    enter(c, place);
    const uint32_t x = activation(c, first);
    struct lode_plan_instr *in = add_instr(c, LODE_OP_LINEAR, &first->p, x, LODE_NO_VALUE);
    /* Products of the same value that follow at once join: one fork and join for all of them. */
    for (uint32_t j = i; j < c->g->n_nodes; j++) {
        const struct lode_node *n = c->g->nodes[j];
        if (n->op != LODE_OP_LINEAR || n->in[0] != first->in[0] || c->place[j] != place ||
            (j > i && activation(c, n) != x))
            break;
        c->value[place][j] = add_value(c, n->width, LODE_F32, n->rows, place, false);
        add_part(c, in, n->w[0], n->w[1], c->value[place][j]);
        c->done[j] = true;
    }
}

static void compile_experts(struct compiler *c, uint32_t i) {
    const struct lode_node *n = c->g->nodes[i];
    const uint8_t place = c->place[i];
    enter(c, place);
    /* what lies between the halves is rounded expert by expert, by the second */
    const uint32_t x = n->op == LODE_OP_EXPERTS_OUT ? value_here(c, n->in[0]) : activation(c, n);
    const uint32_t pairs = value_here(c, n->in[1]);
    const uint32_t out = c->value[place][i] = add_value(c, n->width, n->type, n->rows, place, false);
    c->n_used = n->in[1]->width / 2;
    struct lode_plan_instr *in = add_instr(c, n->op, &n->p, x, pairs);
    struct lode_expert_sizes *e = &c->plan->experts;
    const struct lode_operand *down = n->op == LODE_OP_EXPERTS_OUT ? n->w[0] : n->w[2];
    const bool whole = n->op == LODE_OP_EXPERTS;
    for (int k = 0; k < (whole ? 3 : lode_ops[n->op].n_weights); k++)
        add_part(c, in, n->w[k], whole ? n->w[3 + k] : NULL, k ? LODE_NO_VALUE : out);
    grow(&e->n, n->w[0]->count);
    grow(&e->n_used, c->n_used);
    if (n->op != LODE_OP_EXPERTS_OUT) {
        grow(&e->d_in, n->w[0]->cols);
        grow(&e->d_ff, n->w[0]->rows);
    }
    if (down) {
        grow(&e->d_ff, down->cols);
        grow(&e->d_out, down->rows);
    }
}

static void compile_node(struct compiler *c, uint32_t i) {
    const struct lode_node *n = c->g->nodes[i];
    const uint8_t place = c->place[i];
    if (n->op == LODE_OP_INPUT) {
        c->value[place][i] = c->plan->input = add_value(c, n->width, n->type, n->rows, place, false);
        return;
    }
    if (is_view(n)) {
        const uint32_t of = c->value[place][n->in[0]->id];
        struct lode_plan_value v = c->plan->values[of];
        v.width = n->width;
        v.offset += n->op == LODE_OP_SLICE ? n->p.slice.first * (uint32_t)sizeof(float) : 0;
        c->plan->values[c->plan->n_values] = v;
        c->value[place][i] = c->plan->n_values++;
        if (n->op == LODE_OP_TRACE) {
            enter(c, place);
            add_part(c, add_instr(c, n->op, &n->p, of, LODE_NO_VALUE), NULL, NULL, LODE_NO_VALUE);
        }
        return;
    }
    enter(c, place);
    const uint32_t a = n->op == LODE_OP_HEADS ? activation(c, n)
                       : n->in[0]             ? value_here(c, n->in[0])
                                              : LODE_NO_VALUE;
    const uint32_t b = n->in[1] ? value_here(c, n->in[1]) : LODE_NO_VALUE;
    uint32_t out = LODE_NO_VALUE;
    if (in_place(n->op) && c->place[n->in[0]->id] == place &&
        (c->last_use[c->origin[n->in[0]->id]] == i ||
         (n->in[0]->op == LODE_OP_SLICE && c->readers[n->in[0]->id] == 1))) {
        /* Nothing reads these columns after this node: keep their memory, which now lives as long
         * as the node does. */
        out = a;
        const uint32_t origin = c->origin[n->in[0]->id];
        c->origin[i] = origin;
        if (c->last_use[i] > c->last_use[origin])
            c->last_use[origin] = c->last_use[i];
        for (uint32_t j = i + 1; j < c->g->n_nodes; j++)
            if (c->origin[j] == i)
                c->origin[j] = origin;
    } else if (n->width) {
        out = add_value(c, n->width, n->type, n->rows, place, false);
    }
    c->value[place][i] = out;
    add_part(c, add_instr(c, n->op, &n->p, a, b), n->w[0], n->w[1], out);
    if (n->op == LODE_OP_ATTENTION) {
        const uint32_t dim = n->p.attention.head_dim > n->p.attention.head_dim_v
                                 ? n->p.attention.head_dim
                                 : n->p.attention.head_dim_v;
        const uint32_t heads = n->p.attention.n_heads / n->p.attention.n_kv_heads;
        grow(&c->plan->max_heads, heads);
        grow(&c->plan->max_head_dim, dim);
    }
}

static bool allocate(struct compiler *c) {
    struct lode_plan *p = c->plan;
    /* a node: itself and two twins at each place; 3 parts; a part at most */
    const uint32_t n = c->g->n_nodes, n_values = (3 * c->n_places + 1) * n + 1;
    p->cuts = LODE_NEW_ARRAY(struct lode_plan_cut, n + 1);
    p->copies = LODE_NEW_ARRAY(struct lode_plan_copy, c->n_places * n + 1);
    p->instrs = LODE_NEW_ARRAY(struct lode_plan_instr, n_values);
    p->parts = LODE_NEW_ARRAY(struct lode_plan_part, n_values);
    p->values = LODE_NEW_ARRAY(struct lode_plan_value, n_values);
    p->slots = LODE_NEW_ARRAY(struct lode_plan_slot, n_values);
    bool ok = p->cuts && p->copies;
    for (uint32_t at = 0; at < c->n_places; at++) {
        uint32_t **all[3] = {&c->value[at], &c->quant[0][at], &c->quant[1][at]};
        for (int k = 0; k < 3; k++) {
            *all[k] = LODE_NEW_ARRAY(uint32_t, n);
            ok = ok && *all[k];
            for (uint32_t i = 0; ok && i < n; i++)
                (*all[k])[i] = LODE_NO_VALUE;
        }
    }
    c->last_use = LODE_NEW_ARRAY(uint32_t, n);
    c->origin = LODE_NEW_ARRAY(uint32_t, n);
    c->readers = LODE_NEW_ARRAY(uint32_t, n);
    c->done = LODE_NEW_ARRAY(bool, n);
    c->released = LODE_NEW_ARRAY(bool, n);
    return ok && p->instrs && p->parts && p->values && p->slots && c->last_use && c->origin &&
           c->readers && c->done && c->released;
}

static void free_scratch(struct compiler *c) {
    void *scratch[] = {c->place, c->last_use, c->origin, c->readers, c->done, c->released};
    for (size_t i = 0; i < sizeof scratch / sizeof *scratch; i++)
        lode_free(scratch[i]);
    for (uint32_t at = 0; at < c->n_places; at++) {
        lode_free(c->value[at]);
        lode_free(c->quant[0][at]);
        lode_free(c->quant[1][at]);
    }
}

int lode_plan_compile(struct lode_plan *plan, const struct lode_graph *g, const struct lode_plan_opts *opts,
                      struct lode_error *err) {
    *plan = (struct lode_plan){.input = LODE_NO_VALUE, .result = LODE_NO_VALUE};
    struct compiler c = {.plan = plan, .g = g, .opts = opts};
    LODE_TRY(lode_graph_error(g, err));
    int rc = 0;
    c.place = LODE_NEW_ARRAY(uint8_t, g->n_nodes);
    if (c.place)
        find_places(&c, opts->places);
    if (c.place && allocate(&c)) {
        find_lifetimes(&c);
        for (uint32_t i = 0; i < g->n_nodes; i++) {
            if (!c.done[i]) {
                if (g->nodes[i]->op == LODE_OP_LINEAR)
                    compile_linear(&c, i);
                else if (is_experts(g->nodes[i]->op))
                    compile_experts(&c, i);
                else
                    compile_node(&c, i);
            }
            release(&c, i);
        }
        plan->result = g->result ? c.value[c.place[g->result->id]][g->result->id] : LODE_NO_VALUE;
    } else {
        rc = lode_fail_nomem(err, "plan");
    }
    free_scratch(&c);
    if (rc < 0)
        lode_plan_deinit(plan);
    return rc;
}

void lode_plan_deinit(struct lode_plan *plan) {
    lode_free(plan->instrs);
    lode_free(plan->parts);
    lode_free(plan->values);
    lode_free(plan->slots);
    lode_free(plan->cuts);
    lode_free(plan->copies);
    *plan = (struct lode_plan){0};
}

uint64_t lode_plan_buffer_size(const struct lode_plan *plan, uint32_t place, uint32_t max_rows,
                               uint32_t max_out) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->n_slots; i++)
        if (lode_plan_at(plan, plan->slots[i].place, place))
            bytes += (uint64_t)plan->slots[i].row_size *
                     (plan->slots[i].rows == LODE_ROWS_ALL ? max_rows : max_out);
    return bytes;
}

size_t lode_plan_row_size(const struct lode_plan *plan, uint32_t value) {
    size_t bytes = 0;
    if (value != LODE_NO_VALUE)
        lode_dtype_row_size(plan->values[value].type, plan->values[value].width, &bytes);
    return bytes;
}

size_t lode_plan_longest_copy(const struct lode_plan *plan) {
    size_t most = 0;
    for (uint32_t i = 0; i < plan->n_copies; i++) {
        const size_t n = lode_plan_row_size(plan, plan->copies[i].from);
        most = n > most ? n : most;
    }
    return most;
}

struct lode_cost lode_plan_part_cost(const struct lode_plan *plan,
                                     const struct lode_plan_instr *in,
                                     const struct lode_plan_part *part) {
    uint64_t bytes_in = 0, bytes_out = 0;
    size_t row = 0;
    for (int i = 0; i < 2; i++)
        if (in->in[i] != LODE_NO_VALUE &&
            lode_dtype_row_size(plan->values[in->in[i]].type, plan->values[in->in[i]].width, &row))
            bytes_in += row;
    uint32_t width = 0;
    if (part->out != LODE_NO_VALUE) {
        width = plan->values[part->out].width;
        lode_dtype_row_size(plan->values[part->out].type, width, &row);
        bytes_out = row;
    }
    const struct lode_operand *w[2] = {part->w, part->bias};
    return lode_op_cost(in->op, &in->p, w, width, bytes_in, bytes_out);
}
