#include "model/build.h"

#include "base/alloc.h"
#include "store/weight.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

static const struct lode_arch *const archs[] = {
#define ROW(name) &lode_arch_##name,
    LODE_ARCH_LIST(ROW)
#undef ROW
};

const struct lode_arch *lode_arch_find(const char *name) {
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        if (strcmp(archs[i]->name, name) == 0)
            return archs[i];
    return NULL;
}

/* ---- weights by name ---- */

enum { MAX_TENSOR_NAME = 256 };

static const struct lode_operand *fail_weight(struct lode_build *b, int code, const char *name,
                                              const struct lode_gguf_tensor *t, uint32_t rows,
                                              uint32_t cols) {
    if (!t)
        lode_graph_fail(b->g, code, b->source->path,
                        "tensor %s (%u x %u) is missing: the file is incomplete or no %s model",
                        name, cols, rows, b->arch->name);
    else
        lode_graph_fail(b->g, code, b->source->path,
                        "tensor %s has shape %llu x %llu; %u x %u expected", name,
                        (unsigned long long)t->dims[0], (unsigned long long)t->dims[1], cols, rows);
    return NULL;
}

enum kind { MATRIX, EXPERTS, HEADS /* the matrices of EXPERTS as one */, VECTOR };

static const struct lode_operand *weight(struct lode_build *b, uint32_t rows, uint32_t cols,
                                         uint32_t count, enum kind kind, bool required,
                                         const char *name) {
    if (b->g->error.code)
        return NULL;
    const struct lode_gguf_tensor *t = lode_source_tensor(b->source, name);
    if (!t)
        return required ? fail_weight(b, LODE_ERR_MISSING, name, NULL, rows, cols) : NULL;
    if (t->dims[0] != cols || t->dims[1] != rows || t->dims[2] != count || t->dims[3] != 1)
        return fail_weight(b, LODE_ERR_FORMAT, name, t, rows, cols);
    const size_t i = (size_t)(t - b->source->tensors);
    if (kind == HEADS) {
        rows *= count;
        count = 1;
    }
    if (b->weight_of[i] == UINT32_MAX) {
        assert(b->n_weights + count <= b->cap_weights);
        b->weight_of[i] = b->n_weights;
        for (uint32_t k = 0; k < count; k++, b->n_weights++)
            b->weights[b->n_weights] = (struct lode_weight){
                {b->n_weights, kind == VECTOR ? LODE_F32 : t->type, rows, cols, count,
                 lode_source_order(b->source, t), NULL},
                t,
                t->size / count * k,
                t->size / count,
                LODE_NO_GROUP,
                false};
    }
    return &b->weights[b->weight_of[i]].op;
}

#define FORMAT_NAME(fmt)                                                                           \
    char name[MAX_TENSOR_NAME];                                                                    \
    va_list ap;                                                                                    \
    va_start(ap, fmt);                                                                             \
    vsnprintf(name, sizeof name, fmt, ap);                                                         \
    va_end(ap)

const struct lode_operand *lode_b_matrix(struct lode_build *b, uint32_t rows, uint32_t cols,
                                         const char *fmt, ...) {
    FORMAT_NAME(fmt);
    return weight(b, rows, cols, 1, MATRIX, true, name);
}

const struct lode_operand *lode_b_experts(struct lode_build *b, uint32_t rows, uint32_t cols,
                                          uint32_t count, const char *fmt, ...) {
    FORMAT_NAME(fmt);
    return weight(b, rows, cols, count, EXPERTS, true, name);
}

const struct lode_operand *lode_b_heads(struct lode_build *b, uint32_t rows, uint32_t cols,
                                        uint32_t count, const char *fmt, ...) {
    FORMAT_NAME(fmt);
    return weight(b, rows, cols, count, HEADS, true, name);
}

const struct lode_operand *lode_b_vector(struct lode_build *b, uint32_t n, const char *fmt, ...) {
    FORMAT_NAME(fmt);
    return weight(b, 1, n, 1, VECTOR, true, name);
}

const struct lode_operand *lode_b_vector_opt(struct lode_build *b, uint32_t n, const char *fmt,
                                             ...) {
    FORMAT_NAME(fmt);
    return weight(b, 1, n, 1, VECTOR, false, name);
}

const struct lode_operand *lode_b_vectors_opt(struct lode_build *b, uint32_t count, uint32_t n,
                                              const char *fmt, ...) {
    FORMAT_NAME(fmt);
    return weight(b, count, n, 1, VECTOR, false, name);
}

const struct lode_operand *lode_b_vectors(struct lode_build *b, uint32_t count, uint32_t n,
                                          const char *fmt, ...) {
    FORMAT_NAME(fmt);
    return weight(b, count, n, 1, VECTOR, true, name);
}

bool lode_b_has(const struct lode_build *b, const char *name) {
    return lode_source_tensor(b->source, name) != NULL;
}

const float *lode_b_floats(struct lode_build *b, const char *name, uint32_t n) {
    const struct lode_gguf_tensor *t = lode_source_tensor(b->source, name);
    if (!t || b->g->error.code)
        return NULL;
    if (t->type != LODE_F32 || t->size != n * sizeof(float)) {
        lode_graph_fail(b->g, LODE_ERR_FORMAT, b->source->path,
                        "tensor %s: %u numbers of type F32 expected", name, n);
        return NULL;
    }
    float *copy = LODE_ARENA_ARRAY(&b->g->arena, float, n);
    struct lode_error err = {0};
    if (!copy || lode_source_read(b->source, t, 0, copy, t->size, &err) < 0) {
        lode_graph_fail(b->g, copy ? err.code : LODE_ERR_NOMEM, copy ? err.where : name, "%s",
                        copy ? err.text : "out of memory");
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++)
        if (!(copy[i] > 0 && copy[i] <= 1e30f)) {
            lode_graph_fail(b->g, LODE_ERR_FORMAT, name, "number %u is %g; more than 0 expected", i,
                            (double)copy[i]);
            return NULL;
        }
    return copy;
}

const float *lode_b_layer_floats(struct lode_build *b, const char *name, uint32_t l, uint32_t n) {
    char full[MAX_TENSOR_NAME];
    snprintf(full, sizeof full, "blk.%u.%s", l, name);
    return lode_b_floats(b, full, n);
}

/* ---- the whole model ---- */

static void build_body(struct lode_build *b, struct lode_graph *g) {
    const struct lode_hparams *hp = &b->hp;
    for (uint32_t i = 0; i < hp->n_ropes; i++)
        b->rope_tables[i] = lode_g_rope_table(g, i, hp->ropes[i].n_pairs);
    const struct lode_operand *table =
        lode_b_matrix(b, hp->n_vocab, hp->d_model, "token_embd.weight");
    struct lode_node *x = lode_g_embed(g, table, hp->embed_scale);
    if (b->arch->embed)
        x = b->arch->embed(b, x);
    x = lode_g_trace(g, x, 0);
    for (uint32_t l = 0; l < hp->n_layers && x; l++)
        x = lode_g_trace(g, b->arch->layer(b, x, l), l + 1);
    g->result = x;
}

static struct lode_node *final_norm(struct lode_build *b, struct lode_node *x) {
    const struct lode_hparams *hp = &b->hp;
    if (b->arch->encoder)
        return x;
    const char *norm = lode_b_has(b, "token_embd_norm.weight") && !lode_b_has(b, "output_norm.weight")
                           ? "token_embd_norm.weight" /* lfm2's, though it is the last */
                           : "output_norm.weight";
    const struct lode_operand *w = lode_b_vector(b, hp->d_model, "%s", norm);
    return hp->layer_norm
               ? lode_g_layer_norm(b->g, x, w, lode_b_vector_opt(b, hp->d_model, "output_norm.bias"),
                                   hp->norm_eps, 0)
               : lode_g_rms_norm(b->g, x, w, hp->norm_eps, 0);
}

/* project(tanh(dense(x))), or without the dense layer; files without a classifier may still have
 * that one, BERT's pooler. */
static struct lode_node *classify(struct lode_build *b, struct lode_node *x) {
    const uint32_t d = b->hp.d_model;
    const struct lode_gguf_tensor *t = lode_source_tensor(b->source, "cls.output.weight");
    if (!t || t->dims[1] == 0 || t->dims[1] > 65536)
        return x;
    if (lode_b_has(b, "cls.weight")) {
        x = lode_g_linear(b->g, x, lode_b_matrix(b, d, d, "cls.weight"),
                          lode_b_vector_opt(b, d, "cls.bias"));
        x = lode_g_softcap(b->g, x, 1.0f); /* tanh */
    }
    b->hp.n_scores = (uint32_t)t->dims[1];
    return lode_g_linear(b->g, x, lode_b_matrix(b, b->hp.n_scores, d, "cls.output.weight"),
                         lode_b_vector_opt(b, b->hp.n_scores, "cls.output.bias"));
}

static struct lode_node *logits(struct lode_build *b, struct lode_node *x) {
    const struct lode_hparams *hp = &b->hp;
    const char *name = lode_b_has(b, "output.weight") ? "output.weight" : "token_embd.weight";
    x = lode_g_linear(b->g, x, lode_b_matrix(b, hp->n_vocab, hp->d_model, "%s", name),
                      lode_b_vector_opt(b, hp->n_vocab, "output.bias"));
    if (hp->logit_scale != 1.0f)
        x = lode_g_scale(b->g, x, hp->logit_scale);
    if (hp->logit_cap > 0)
        x = lode_g_softcap(b->g, x, hp->logit_cap);
    return x;
}

static void build_stage(struct lode_build *b, struct lode_graph *g, enum lode_stage stage) {
    b->g = g;
    if (stage == LODE_BODY) {
        build_body(b, g);
        return;
    }
    struct lode_node *x = final_norm(b, lode_g_input(g, b->hp.d_model, LODE_ROWS_OUT));
    if (stage == LODE_HEAD)
        x = b->arch->encoder ? classify(b, x) : logits(b, x);
    g->result = x;
}

static int check_used(const struct lode_build *b, struct lode_error *err) {
    for (size_t i = 0; i < b->source->n_tensors; i++) {
        const char *name = b->source->tensors[i].name;
        if (b->weight_of[i] == UINT32_MAX && strncmp(name, "rope_", 5) != 0)
            return lode_fail(err, LODE_ERR_UNSUPPORTED, b->source->path,
                             "architecture '%.60s' is not known, and no standard decoder: such a "
                             "model has no use for tensor %.100s",
                             b->source->arch, name);
    }
    return 0;
}

/* An order of columns is only known to products. */
static int check_orders(const struct lode_graph *g, struct lode_error *err) {
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < LODE_MAX_WEIGHTS; k++) {
            const struct lode_node *n = g->nodes[i];
            if (n->w[k] && n->w[k]->order && (n->op != LODE_OP_LINEAR || k > 0))
                return lode_fail(err, LODE_ERR_UNSUPPORTED, lode_ops[n->op].name,
                                 "a matrix whose columns are in another order (desc_act) can not be "
                                 "used here");
        }
    return 0;
}

int lode_build_model(struct lode_build *b, struct lode_graph graphs[LODE_STAGES],
                     struct lode_error *err) {
    const size_t n = b->source->n_tensors;
    b->g = &graphs[LODE_BODY];
    LODE_TRY(lode_hparams_read(b, err));
    size_t cap = n; /* a weight a tensor, but each expert of a tensor is one */
    for (size_t i = 0; i < n && b->hp.n_experts; i++)
        cap += b->source->tensors[i].dims[2] == b->hp.n_experts ? b->hp.n_experts - 1 : 0;
    b->cap_weights = cap < UINT32_MAX / 2 ? (uint32_t)cap : 0;
    b->weights = LODE_NEW_ARRAY(struct lode_weight, b->cap_weights);
    b->weight_of = LODE_NEW_ARRAY(uint32_t, n);
    if (!b->cap_weights || !b->weights || !b->weight_of)
        return lode_fail_nomem(err, "table of weights");
    memset(b->weight_of, 0xff, n * sizeof *b->weight_of);
    if (b->arch->setup)
        b->arch->setup(b);
    b->kv = LODE_NEW_ARRAY(struct lode_kv_layer, b->hp.n_layers);
    b->state = LODE_NEW_ARRAY(struct lode_state_layer, b->hp.n_layers);
    if (!b->kv || !b->state)
        return lode_fail_nomem(err, "table of layers");
    for (int i = 0; i < LODE_STAGES; i++) {
        build_stage(b, &graphs[i], (enum lode_stage)i);
        LODE_TRY(lode_graph_error(&graphs[i], err));
        LODE_TRY(check_orders(&graphs[i], err));
    }
    return b->arch->all_used ? check_used(b, err) : 0;
}
