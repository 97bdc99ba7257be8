#include "model/shard.h"

#include "base/alloc.h"
#include "model/model.h"

#include <stdio.h>

/* A product whose result is gathered at once is shared out where that saves a device the reading of so many
 * bytes: about what it reads while ranks exchange a row. */
enum { WORTH = 24 << 20 };

/* Which nodes of a graph have only a rank's columns, and what they become. */
struct sharding {
    struct lode_model *m;
    const struct lode_graph *g;
    struct lode_graph out;
    uint32_t n; /* ranks */
    bool *part;    /* owned; (n_nodes): its value is a part on each rank */
    bool *sliced;  /* owned; (n_nodes): a product that only SLICEs read, each of which becomes one */
    uint32_t *readers; /* owned; (n_nodes) */
    struct lode_node **made, **whole; /* owned; (n_nodes): of out; whole: gathered, or NULL */
};

/* The model's weights, and the ranks' parts behind them. */
struct parts {
    struct lode_weight *weights; /* owned; (n), with room for all that there will be */
    uint32_t n_old, n;
};

/* ---- what can be divided ---- */

static bool is_product(const struct sharding *s, const struct lode_node *n) {
    return n->op == LODE_OP_LINEAR || (n->op == LODE_OP_SLICE && s->sliced[n->in[0]->id]);
}

static bool divides(const struct sharding *s, uint32_t n) { return n % s->n == 0; }

/* Whether a node works on columns, head by head or each by itself, and its heads divide. */
static bool works_on_columns(const struct sharding *s, const struct lode_node *n) {
    switch (n->op) {
    case LODE_OP_ROPE:
    case LODE_OP_UNPAIR: return divides(s, n->p.rope.n_heads);
    case LODE_OP_RMS_NORM: return divides(s, n->width / n->p.rms_norm.group);
    case LODE_OP_CUT: return divides(s, n->p.cut.n_heads);
    case LODE_OP_JOIN: return divides(s, n->p.join.n_heads) && s->part[n->in[1]->id];
    case LODE_OP_HEADS: return divides(s, n->p.heads.n_heads);
    case LODE_OP_ADD:
    case LODE_OP_GLU: return divides(s, n->width) && s->part[n->in[1]->id];
    case LODE_OP_ACT:
    case LODE_OP_ROW_GATE:
    case LODE_OP_PICK:
    case LODE_OP_SCALE:
    case LODE_OP_SOFTCAP:
    case LODE_OP_TEMPERATURE: return divides(s, n->width);
    default: return false;
    }
}

static uint32_t layer_of(const struct lode_node *n) {
    return n->op == LODE_OP_KV_PUT ? n->p.kv_put.layer : n->p.attention.layer;
}

/* Pages belong to ranks as a whole: all that puts into a layer's and reads them is divided, or nothing. */
static bool agrees(const struct sharding *s, const struct lode_node *put) {
    for (uint32_t i = 0; i < s->g->n_nodes; i++) {
        const struct lode_node *n = s->g->nodes[i];
        if ((n->op == LODE_OP_KV_PUT || n->op == LODE_OP_ATTENTION) && layer_of(n) == put->p.kv_put.layer &&
            !s->part[i])
            return false;
    }
    return true;
}

/* Bytes of a product's matrix. */
static uint64_t matrix_size(const struct lode_node *n) {
    const struct lode_operand *w = n->op == LODE_OP_SLICE ? n->in[0]->w[0] : n->w[0];
    size_t row = 0;
    lode_dtype_row_size(w->type, w->cols, &row);
    return (uint64_t)row * n->width;
}

static bool all_readers_have_parts(const struct sharding *s, uint32_t id) {
    bool all = s->readers[id] > 0;
    for (uint32_t i = id + 1; all && i < s->g->n_nodes; i++)
        for (int k = 0; k < 2; k++)
            all &= !s->g->nodes[i]->in[k] || s->g->nodes[i]->in[k]->id != id || s->part[i];
    return all;
}

static bool has_part(const struct sharding *s, const struct lode_node *n) {
    const uint64_t worth = s->m->opts.split_least ? s->m->opts.split_least : WORTH;
    if (is_product(s, n))
        return !s->sliced[n->id] && divides(s, n->width) &&
               (all_readers_have_parts(s, n->id) || matrix_size(n) / s->n * (s->n - 1) >= worth);
    if (n->op == LODE_OP_EXPERTS)
        return divides(s, n->w[0]->rows) && divides(s, n->w[2]->rows) && !n->w[3] && !n->w[4] && !n->w[5];
    if (n->op == LODE_OP_KV_PUT)
        return s->part[n->in[0]->id] && s->part[n->in[1]->id] &&
               divides(s, s->m->kv[n->p.kv_put.layer].n_heads) && agrees(s, n);
    if (n->op == LODE_OP_ATTENTION) /* one head of keys serves all */
        return s->part[n->in[0]->id] && divides(s, n->p.attention.n_heads) &&
               (s->part[n->in[1]->id] || n->p.attention.n_kv_heads == 1);
    return n->in[0] && s->part[n->in[0]->id] && works_on_columns(s, n);
}

/* All that may be divided, less what cannot as something that it needs is not. */
static void find_parts(struct sharding *s) {
    const struct lode_graph *g = s->g;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < 2; k++)
            if (g->nodes[i]->in[k])
                s->readers[g->nodes[i]->in[k]->id]++;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        s->sliced[i] = g->nodes[i]->op == LODE_OP_LINEAR && s->readers[i] > 0;
        s->part[i] = true;
    }
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < 2; k++)
            if (g->nodes[i]->in[k] && g->nodes[i]->op != LODE_OP_SLICE)
                s->sliced[g->nodes[i]->in[k]->id] = false;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = 0; i < g->n_nodes; i++)
            if (s->part[i] && !has_part(s, g->nodes[i])) {
                s->part[i] = false;
                changed = true;
            }
    }
    /* where none of its slices is divided, a product stays one */
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        bool any = false;
        for (uint32_t k = i; s->sliced[i] && k < g->n_nodes; k++)
            any |= s->part[k] && g->nodes[k]->in[0] == g->nodes[i];
        s->sliced[i] &= any;
    }
}

/* ---- parts of weights ---- */

static uint32_t n_of(const struct lode_operand *w) {
    uint32_t n = 1;
    while ((w = w->next))
        n++;
    return n;
}

/* Numbers first .. first + n - 1 of a vector, or such rows of each matrix, as a weight for each of n_ranks, or one
 * for all (n_ranks 1): the first rank's operand. */
static const struct lode_operand *take(struct parts *p, const struct lode_operand *of, uint32_t first, uint32_t n,
                                       uint32_t n_ranks) {
    if (!of)
        return NULL;
    const bool vector = of->rows == 1;
    const uint32_t each = n / n_ranks, all = vector ? of->cols : of->rows;
    struct lode_operand *before = NULL;
    const struct lode_operand *result = NULL;
    /* used before, as a tied embedding's parts by head and tail are */
    for (uint32_t i = p->n_old; i < p->n; i++) {
        const struct lode_weight *w = &p->weights[i], *old = &p->weights[of->id];
        if (w->home == old->home && w->offset == old->offset + old->size / all * first &&
            (vector ? w->op.cols : w->op.rows) == each && w->op.count == of->count && n_of(&w->op) == n_ranks)
            return &w->op;
    }
    for (uint32_t r = 0; r < n_ranks; r++) {
        const uint32_t id = p->n;
        for (uint32_t e = 0; e < of->count; e++) {
            struct lode_weight *w = &p->weights[p->n];
            *w = p->weights[of->id + e];
            w->offset += w->size / all * (first + r * each);
            w->size = w->size / all * each;
            w->group = LODE_NO_GROUP;
            w->op.id = p->n++;
            *(vector ? &w->op.cols : &w->op.rows) = each;
        }
        if (before)
            before->next = &p->weights[id].op;
        else
            result = &p->weights[id].op;
        before = &p->weights[id].op;
    }
    return result;
}

/* How many weights take makes at most. */
static uint32_t count_parts(const struct sharding *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->g->n_nodes; i++) {
        const struct lode_node *x = s->g->nodes[i];
        const struct lode_node *has = is_product(s, x) && x->op == LODE_OP_SLICE ? x->in[0] : x;
        for (int k = 0; k < LODE_MAX_WEIGHTS; k++)
            n += has->w[k] && (s->part[i] || has != x) ? has->w[k]->count * s->n : 0;
    }
    return n;
}

/* ---- the graph of a rank ---- */

/* The value of a node, all of it or, where it has but a part and that will do, that. */
static struct lode_node *value(struct sharding *s, const struct lode_node *n, bool part) {
    if (!n)
        return NULL;
    if (!s->part[n->id] || part)
        return s->made[n->id];
    if (!s->whole[n->id])
        s->whole[n->id] = lode_g_all_gather(&s->out, s->made[n->id], s->n, 1);
    return s->whole[n->id];
}

static struct lode_node *make_product(struct sharding *s, struct parts *p, const struct lode_node *n) {
    const bool slice = n->op == LODE_OP_SLICE;
    const struct lode_node *of = slice ? n->in[0] : n;
    const uint32_t first = slice ? n->p.slice.first : 0, ranks = s->part[n->id] ? s->n : 1;
    struct lode_node *x = value(s, of->in[0], false);
    struct lode_node *y = lode_g_copy(&s->out, of, x, NULL);
    if (!y || (ranks == 1 && !slice))
        return y;
    y->w[0] = take(p, of->w[0], first, n->width, ranks);
    y->w[1] = take(p, of->w[1], first, n->width, ranks);
    y->width = n->width / ranks;
    return y;
}

static struct lode_node *make_experts(struct sharding *s, struct parts *p, const struct lode_node *n) {
    const bool weigh = n->p.experts.weigh_input;
    struct lode_node *x = value(s, n->in[0], false), *route = value(s, n->in[1], false);
    struct lode_node *h = lode_g_experts_in(&s->out, x, route, take(p, n->w[0], 0, n->w[0]->rows, s->n),
                                            take(p, n->w[1], 0, n->w[1]->rows, s->n), n->p.experts.act, weigh);
    h = lode_g_all_gather(&s->out, h, s->n, n->in[1]->width / 2);
    return lode_g_experts_out(&s->out, h, route, take(p, n->w[2], 0, n->w[2]->rows, s->n), weigh);
}

/* What a rank does of its columns. */
static struct lode_node *make_part(struct sharding *s, struct parts *p, const struct lode_node *n) {
    struct lode_node *b = n->op == LODE_OP_ROPE || n->op == LODE_OP_ROW_GATE ? value(s, n->in[1], false)
                                                                            : value(s, n->in[1], true);
    struct lode_node *y = lode_g_copy(&s->out, n, value(s, n->in[0], true), b);
    if (!y)
        return NULL;
    y->width = n->width / s->n;
    switch (n->op) {
    case LODE_OP_ROPE:
    case LODE_OP_UNPAIR: y->p.rope.n_heads /= s->n; break;
    case LODE_OP_CUT: y->p.cut.n_heads /= s->n; break;
    case LODE_OP_JOIN: y->p.join.n_heads /= s->n; break;
    case LODE_OP_HEADS:
        y->p.heads.n_heads /= s->n;
        y->w[0] = take(p, n->w[0], 0, n->w[0]->rows, s->n);
        break;
    case LODE_OP_ATTENTION:
        y->p.attention.n_heads /= s->n;
        y->p.attention.n_kv_heads /= s->part[n->in[1]->id] ? s->n : 1;
        y->w[0] = take(p, n->w[0], 0, n->w[0] ? n->w[0]->cols : 0, s->n);
        break;
    default: break;
    }
    return y;
}

static struct lode_node *make(struct sharding *s, struct parts *p, const struct lode_node *n) {
    if (s->sliced[n->id])
        return NULL; /* its slices are made instead */
    if (is_product(s, n))
        return make_product(s, p, n);
    if (!s->part[n->id])
        return lode_g_copy(&s->out, n, value(s, n->in[0], false), value(s, n->in[1], false));
    return n->op == LODE_OP_EXPERTS ? make_experts(s, p, n) : make_part(s, p, n);
}

/* Weights that lie elsewhere now. */
static void move_operands(struct lode_graph *g, const struct parts *p) {
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        struct lode_node *n = g->nodes[i];
        for (int k = 0; k < LODE_MAX_WEIGHTS; k++)
            n->w[k] = n->w[k] ? &p->weights[n->w[k]->id].op : NULL;
        if (n->op == LODE_OP_GATHER)
            n->p.gather.of = &p->weights[n->p.gather.of->id].op;
    }
}

/* The order of a product's columns lies with the matrix that the ranks have. */
static void follow_orders(struct lode_graph *g) {
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t k = i + 1; g->nodes[i]->op == LODE_OP_GATHER && k < g->n_nodes; k++)
            if (g->nodes[k]->op == LODE_OP_LINEAR && g->nodes[k]->in[0] == g->nodes[i])
                g->nodes[i]->p.gather.of = g->nodes[k]->w[0];
}

static int shard_graph(struct sharding *s, struct parts *p, struct lode_graph *g, struct lode_error *err) {
    s->out.arena = g->arena; /* which settings may lie in as well */
    g->arena = (struct lode_arena){0};
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        s->made[i] = make(s, p, g->nodes[i]);
        if (s->out.error.code)
            break;
    }
    s->out.result = g->result ? value(s, g->result, false) : NULL;
    LODE_TRY(lode_graph_error(&s->out, err));
    follow_orders(&s->out);
    lode_graph_free(g);
    *g = s->out;
    s->out = (struct lode_graph){0};
    return 0;
}

/* ---- the model ---- */

static void shard_free(struct sharding *s) {
    lode_graph_free(&s->out);
    lode_free(s->part);
    lode_free(s->sliced);
    lode_free(s->readers);
    lode_free(s->made);
    lode_free(s->whole);
}

static int shard_init(struct sharding *s, struct lode_model *m, const struct lode_graph *g, struct lode_error *err) {
    *s = (struct sharding){.m = m, .g = g, .n = m->n_places - 1,
                           .part = LODE_NEW_ARRAY(bool, g->n_nodes),
                           .sliced = LODE_NEW_ARRAY(bool, g->n_nodes),
                           .readers = LODE_NEW_ARRAY(uint32_t, g->n_nodes),
                           .made = LODE_NEW_ARRAY(struct lode_node *, g->n_nodes),
                           .whole = LODE_NEW_ARRAY(struct lode_node *, g->n_nodes)};
    if (!s->part || !s->sliced || !s->readers || !s->made || !s->whole)
        return lode_fail_nomem(err, "split by rows");
    find_parts(s);
    return 0;
}

/* Each rank has all layers, of keys and values its heads. */
static int shard_caches(struct lode_model *m, const struct sharding *body, struct lode_error *err) {
    const uint32_t layers = m->hp.n_layers, n = body->n * layers;
    struct lode_kv_layer *kv = LODE_NEW_ARRAY(struct lode_kv_layer, n);
    struct lode_state_layer *state = LODE_NEW_ARRAY(struct lode_state_layer, n);
    if (!kv || !state) {
        lode_free(kv);
        lode_free(state);
        return lode_fail_nomem(err, "table of layers");
    }
    for (uint32_t i = 0; i < n; i++) {
        kv[i] = m->kv[i % layers];
        state[i] = m->state[i % layers];
        kv[i].place = state[i].place = (uint8_t)(1 + i / layers);
    }
    for (uint32_t i = 0; i < body->g->n_nodes; i++)
        for (uint32_t r = 0; body->g->nodes[i]->op == LODE_OP_KV_PUT && body->part[i] && r < body->n; r++) {
            const uint32_t l = body->g->nodes[i]->p.kv_put.layer;
            kv[r * layers + l].n_heads = m->kv[l].n_heads / body->n;
        }
    lode_free(m->kv);
    lode_free(m->state);
    m->kv = kv;
    m->state = state;
    m->n_kept = n;
    return 0;
}

/* What every rank computes as a whole though there is much of it. */
static void note_whole(struct lode_model *m, const struct sharding *s) {
    uint32_t attention = 0, recurrent = 0, experts = 0;
    for (uint32_t i = 0; i < s->g->n_nodes; i++) {
        const enum lode_op op = s->g->nodes[i]->op;
        attention += op == LODE_OP_ATTENTION && !s->part[i];
        recurrent += op == LODE_OP_DELTA || op == LODE_OP_CONV;
        experts += op == LODE_OP_EXPERTS && !s->part[i];
    }
    if (attention + recurrent + experts)
        snprintf(m->device_note, sizeof m->device_note,
                 "what cannot be shared out equally by rows every one of the %u GPUs computes:%s%s%s", s->n,
                 attention ? " attention of some layers (its heads, or a norm over all of them);" : "",
                 recurrent ? " recurrent layers;" : "", experts ? " experts;" : "");
}

static int shard(struct lode_model *m, struct sharding s[LODE_STAGES], struct parts *p, struct lode_error *err) {
    uint64_t n = m->n_weights;
    for (int i = 0; i < LODE_STAGES; i++) {
        LODE_TRY(shard_init(&s[i], m, &m->graphs[i], err));
        n += count_parts(&s[i]);
    }
    if (n > UINT32_MAX / 2)
        return lode_fail(err, LODE_ERR_LIMIT, "--split-mode", "%llu parts of matrices are too many",
                         (unsigned long long)n);
    *p = (struct parts){.weights = LODE_NEW_ARRAY(struct lode_weight, n), .n_old = m->n_weights,
                        .n = m->n_weights};
    if (!p->weights)
        return lode_fail_nomem(err, "table of weights");
    memcpy(p->weights, m->weights, m->n_weights * sizeof *p->weights);
    note_whole(m, &s[LODE_BODY]);
    LODE_TRY(shard_caches(m, &s[LODE_BODY], err));
    for (int i = 0; i < LODE_STAGES; i++)
        move_operands(&m->graphs[i], p);
    lode_free(m->weights);
    m->weights = p->weights;
    m->n_weights = p->n_old;
    for (int i = 0; i < LODE_STAGES; i++) {
        LODE_TRY(shard_graph(&s[i], p, &m->graphs[i], err));
        m->n_weights = p->n;
        lode_plan_deinit(&m->plans[i]);
        const struct lode_plan_opts plan = {.float_act = m->opts.float_act};
        LODE_TRY(lode_plan_compile(&m->plans[i], &m->graphs[i], &plan, err));
    }
    m->n_ranks = s[LODE_BODY].n;
    return 0;
}

int lode_shard_model(struct lode_model *m, struct lode_error *err) {
    struct sharding s[LODE_STAGES] = {0};
    struct parts p = {0};
    const int rc = shard(m, s, &p, err);
    for (int i = 0; i < LODE_STAGES; i++)
        shard_free(&s[i]);
    if (p.weights != m->weights)
        lode_free(p.weights);
    return rc;
}
