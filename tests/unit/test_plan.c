/* Plans: values that are alive together never share memory.
 *
 * Each plan is run in the mind: an instruction writes its result's place, and whoever reads a place
 * must find there the value that it was compiled to read.
 */
#include "../own_files.h"
#include "base/arena.h"
#include "engine/besides.h"
#include "format/gguf.h"
#include "graph/graph.h"
#include "model/model.h"
#include "runtime/plan.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Who wrote each byte of each slot last: a number that grows with every write. */
struct memory {
    uint32_t *writer[256];
};

static size_t row_bytes(const struct lode_plan_value *v) {
    size_t n = 0;
    assert_true(lode_dtype_row_size(v->type, v->width, &n));
    return n;
}

/* Whether a value's bytes are still those that were written for it. */
static bool is_there(const struct memory *m, const uint32_t *written, const struct lode_plan *p, uint32_t value) {
    const struct lode_plan_value *v = &p->values[value];
    bool all = true;
    for (size_t b = 0; b < row_bytes(v); b++)
        all &= m->writer[v->slot][v->offset + b] == written[value];
    return all;
}

/* Who chooses experts in the launch of their gate and up reads the router's logits there. */
static void check_logits(const struct memory *m, const uint32_t *written, const struct lode_plan *p, uint32_t experts) {
    const struct lode_plan_instr *in = &p->instrs[experts];
    for (uint32_t i = 0; i < experts && (in->op == LODE_OP_EXPERTS || in->op == LODE_OP_EXPERTS_IN); i++)
        if (p->instrs[i].op == LODE_OP_ROUTE && p->parts[p->instrs[i].first_part].out == in->in[1])
            assert_true(is_there(m, written, p, p->instrs[i].in[0]));
}

/* Who has made a value, among the instructions before `before`; NULL: none has. */
static const struct lode_plan_instr *maker(const struct lode_plan *p, uint32_t value, uint32_t before) {
    for (uint32_t i = before; i-- > 0;)
        for (uint32_t k = 0; k < p->instrs[i].n_parts; k++)
            if (p->parts[p->instrs[i].first_part + k].out == value)
                return &p->instrs[i];
    return NULL;
}

/* Who makes the delta rule's gates in the launch of the convolution reads what they are made of, before it was moved together, where it lies:
 * neither's results, which are written then, are there.  Returns how many values that are. */
static int check_gates(const struct memory *m, const uint32_t *written, const struct lode_plan *p, uint32_t conv) {
    const struct lode_plan_instr *join = conv > 1 && p->instrs[conv].op == LODE_OP_CONV && p->instrs[conv - 1].op == LODE_OP_DELTA_GATES
                                             ? maker(p, p->instrs[conv - 1].in[0], conv - 1)
                                             : NULL;
    if (!join || join->op != LODE_OP_JOIN)
        return 0;
    for (int k = 0; k < 2; k++) {
        const struct lode_plan_instr *cut = maker(p, join->in[k], conv);
        assert_true(is_there(m, written, p, cut && cut->op == LODE_OP_CUT ? cut->in[0] : join->in[k]));
    }
    return 2;
}

/* Who prepares queries in attention's launch reads what they are cut from, and what turns them, while results are written. */
static int check_queries(const struct memory *m, const uint32_t *written, const struct lode_plan *p, uint32_t attention) {
    int n = 0;
    if (p->instrs[attention].op != LODE_OP_ATTENTION || attention == 0 || p->instrs[attention - 1].op != LODE_OP_KV_PUT)
        return 0;
    uint32_t value = p->instrs[attention].in[0], before = attention;
    for (const struct lode_plan_instr *in; (in = maker(p, value, before)); value = in->in[0], before = (uint32_t)(in - p->instrs)) {
        if (in->op != LODE_OP_ROPE && in->op != LODE_OP_RMS_NORM && in->op != LODE_OP_CUT)
            break;
        if (in->op != LODE_OP_RMS_NORM)
            assert_true(is_there(m, written, p, in->in[in->op == LODE_OP_ROPE]));
        n += in->op != LODE_OP_RMS_NORM;
    }
    return n;
}

/* Who brings latent attention's queries to their places in one launch, where joined ones are written, reads there q, what of it is rounded,
 * and angles; and, as a token's row is put away in the same launch, that.  join: of HEADS with what is turned. */
static void check_latent(const struct memory *m, const uint32_t *written, const struct lode_plan *p, uint32_t join) {
    const struct lode_plan_instr *in = &p->instrs[join];
    const struct lode_plan_instr *heads = in->op == LODE_OP_JOIN ? maker(p, in->in[0], join) : NULL;
    if (!heads || heads->op != LODE_OP_HEADS)
        return;
    const struct lode_plan_instr *quant = maker(p, heads->in[0], join), *rope = maker(p, in->in[1], join);
    const struct lode_plan_instr *cut = quant->op == LODE_OP_QUANT ? maker(p, quant->in[0], join) : quant, *row = NULL;
    assert_int_equal(cut->op, LODE_OP_CUT);
    assert_true(is_there(m, written, p, heads->in[0]));
    assert_true(is_there(m, written, p, cut->in[0]));
    assert_true(is_there(m, written, p, rope->in[1]));
    for (uint32_t i = 0; i < join; i++)
        if (p->instrs[i].op == LODE_OP_KV_PUT)
            row = maker(p, p->instrs[i].in[0], i);
    assert_int_equal(row->op, LODE_OP_JOIN);
    for (int k = 0; k < 2; k++) /* each where it was before it was normed or turned */
        assert_true(is_there(m, written, p, row->in[k]));
}

/* How many values were looked at for longer than an instruction. */
static int check(const struct lode_plan *p) {
    int n = 0;
    struct memory m = {{0}};
    uint32_t *written = calloc(p->n_values + 1, sizeof *written); /* stamp of each value's bytes */
    assert_true(p->n_slots < 256);
    for (uint32_t s = 0; s < p->n_slots; s++)
        m.writer[s] = calloc(p->slots[s].row_size, sizeof **m.writer);
    if (p->input != LODE_NO_VALUE) {
        written[p->input] = UINT32_MAX;
        for (size_t i = 0; i < row_bytes(&p->values[p->input]); i++)
            m.writer[p->values[p->input].slot][i] = UINT32_MAX;
    }
    for (uint32_t i = 0; i < p->n_instrs; i++) {
        const struct lode_plan_instr *in = &p->instrs[i];
        for (int k = 0; k < 2; k++) {
            if (in->in[k] == LODE_NO_VALUE)
                continue;
            const struct lode_plan_value *v = &p->values[in->in[k]];
            assert_true(v->offset + row_bytes(v) <= p->slots[v->slot].row_size);
            const uint32_t *w = m.writer[v->slot] + v->offset;
            for (size_t b = 1; b < row_bytes(v); b++)
                assert_int_equal(w[b], w[0]); /* one write made it whole */
            assert_int_not_equal(w[0], 0);
            if (written[in->in[k]])
                assert_int_equal(w[0], written[in->in[k]]); /* and it is still that one */
        }
        check_logits(&m, written, p, i);
        for (uint32_t part = 0; part < in->n_parts; part++) {
            const uint32_t out = p->parts[in->first_part + part].out;
            if (out == LODE_NO_VALUE)
                continue;
            const struct lode_plan_value *v = &p->values[out];
            assert_true(v->offset + row_bytes(v) <= p->slots[v->slot].row_size);
            assert_true(v->rows == p->slots[v->slot].rows);
            written[out] = i * 16 + part + 1;
            for (size_t b = 0; b < row_bytes(v); b++)
                m.writer[v->slot][v->offset + b] = written[out];
        }
        n += check_gates(&m, written, p, i) + check_queries(&m, written, p, i);
        check_latent(&m, written, p, i);
    }
    assert_int_not_equal(p->result, LODE_NO_VALUE);
    const struct lode_plan_value *r = &p->values[p->result];
    if (written[p->result])
        assert_int_equal(m.writer[r->slot][r->offset], written[p->result]);
    for (uint32_t s = 0; s < p->n_slots; s++)
        free(m.writer[s]);
    free(written);
    return n;
}

/* Its plan, which nobody needs afterwards, nor the graph. */
static void check_graph(struct lode_graph *g) {
    struct lode_error err;
    struct lode_plan p;
    assert_int_equal(lode_plan_compile(&p, g, &(struct lode_plan_opts){0}, &err), 0);
    check(&p);
    lode_plan_deinit(&p);
    lode_graph_free(g);
}

static void live_values_do_not_overlap(void **state) {
    (void)state;
    char folder[2048];
    snprintf(folder, sizeof folder, "%.2000s", own_file("data/arch"));
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    int n = 0, kept = 0;
    for (const struct dirent *d; (d = readdir(dir));)
        for (int float_act = 0; d->d_name[0] != '.' && float_act < 2; float_act++, n++) {
            char path[4096];
            snprintf(path, sizeof path, "%s/%s/model.gguf", folder, d->d_name);
            struct lode_model *m;
            struct lode_error err;
            const struct lode_model_opts o = {.float_act = float_act};
            if (lode_model_load(&m, path, &o, &err) < 0)
                fail_msg("%s: %s", err.where, err.text);
            kept += check(&m->plans[LODE_BODY]) + check(&m->plans[LODE_HEAD]);
            lode_model_free(m);
        }
    closedir(dir);
    assert_true(n > 2 && kept > 20);
}

/* What a token takes besides its weights is run with a model's stand-in: of every architecture that gives tokens, and types of
 * blocks, with few rows and with all, whose bytes are at least the few's. */
static void besides_in(const char *root, const char *kind, int *n) {
    char folder[2048];
    snprintf(folder, sizeof folder, "%s/%s", root, kind);
    DIR *dir = opendir(folder);
    for (const struct dirent *d; dir && (d = readdir(dir));) {
        char path[4096];
        struct lode_model *m;
        struct lode_error err;
        struct lode_besides few, all;
        const struct lode_model_opts on_cpu = {.device = "cpu"};
        snprintf(path, sizeof path, "%s/%s/model.gguf", folder, d->d_name);
        if (d->d_name[0] == '.' || lode_model_open(&m, path, &on_cpu, &err) < 0)
            continue;
        if (!m->arch->encoder && !m->hp.both_ways) {
            if (lode_besides_measure(m, 2, false, 0, &few, &err) < 0 || lode_besides_measure(m, 2, true, 0, &all, &err) < 0)
                fail_msg("%s: %s", err.where, err.text);
            assert_true(few.seconds > 0 && few.bytes > 0 && !few.whole);
            assert_true(all.seconds > 0 && all.bytes >= few.bytes && all.whole);
            ++*n;
        }
        lode_model_free(m);
    }
    if (dir)
        closedir(dir);
}

static void besides_of_every_architecture(void **state) {
    (void)state;
    const char *shared = getenv("LODE_SHARED");
    char root[2048];
    int n = 0;
    snprintf(root, sizeof root, "%.2000s", own_file("data"));
    besides_in(root, "arch", &n);
    besides_in(root, "quant", &n);
    snprintf(root, sizeof root, "%s/ref", shared ? shared : "");
    besides_in(root, "arch", &n);
    besides_in(root, "quant_models", &n);
    assert_true(n > 2);
}

static bool all_but_q6_k(const void *user, uint8_t place, const struct lode_operand *w) {
    const struct lode_operand *known = user;
    return place == LODE_HOST && (w == known || w->type != LODE_Q6_K);
}

static void rounded_twins_are_shared(void **state) {
    (void)state;
    struct lode_graph g = {0};
    struct lode_error err;
    const struct lode_operand q4k = {0, LODE_Q4_K, 256, 256, 1, NULL, NULL}, q6k = {1, LODE_Q6_K, 256, 256, 1, NULL, NULL},
                              q8 = {2, LODE_Q8_0, 256, 256, 1, NULL, NULL};
    struct lode_node *x = lode_g_input(&g, 256, LODE_ROWS_ALL);
    struct lode_node *a = lode_g_linear(&g, x, &q4k, NULL);
    struct lode_node *b = lode_g_linear(&g, x, &q6k, NULL);
    struct lode_node *c = lode_g_linear(&g, x, &q8, NULL);
    g.result = lode_g_add(&g, lode_g_add(&g, a, b, 1), c, 1);
    struct lode_plan p;
    assert_int_equal(lode_plan_compile(&p, &g, &(struct lode_plan_opts){0}, &err), 0);
    check(&p);
    /* QUANT A256, LINEAR of two, QUANT A32, LINEAR of one, ADD, ADD */
    static const enum lode_op ops[] = {LODE_OP_QUANT,  LODE_OP_LINEAR, LODE_OP_QUANT,
                                       LODE_OP_LINEAR, LODE_OP_ADD,    LODE_OP_ADD};
    assert_int_equal(p.n_instrs, 6);
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(p.instrs[i].op, ops[i]);
    assert_int_equal(p.instrs[1].n_parts, 2);
    lode_plan_deinit(&p);
    /* float activations: no QUANT */
    assert_int_equal(lode_plan_compile(&p, &g, &(struct lode_plan_opts){.float_act = true}, &err), 0);
    assert_int_equal(p.n_instrs, 3);
    lode_plan_deinit(&p);
    /* of some: LINEAR of one, QUANT A256, LINEAR of one, LINEAR of one, ADD, ADD */
    const struct lode_plan_opts some = {.takes_floats = all_but_q6_k, .user = &q8};
    assert_int_equal(lode_plan_compile(&p, &g, &some, &err), 0);
    check(&p);
    assert_int_equal(p.n_instrs, 6);
    assert_int_equal(p.instrs[0].op, LODE_OP_LINEAR);
    assert_int_equal(p.instrs[1].op, LODE_OP_QUANT);
    assert_int_equal(p.values[p.instrs[0].in[0]].type, LODE_F32);
    assert_int_equal(p.values[p.instrs[2].in[0]].type, LODE_A256);
    assert_int_equal(p.instrs[3].in[0], p.instrs[0].in[0]);
    lode_plan_deinit(&p);
    lode_graph_free(&g);
}

/* x is rounded for the experts, and for others, when their router's logits have been read. */
static void logits_stay_until_experts_are_chosen(void **state) {
    (void)state;
    struct lode_graph g = {0};
    const struct lode_operand router = {0, LODE_F32, 128, 256, 1, NULL, NULL}, experts = {1, LODE_Q4_K, 256, 256, 128, NULL, NULL},
                              shared = {129, LODE_Q4_K, 256, 256, 1, NULL, NULL};
    const struct lode_operand *const w[LODE_MAX_WEIGHTS] = {&experts, &experts, &experts};
    const union lode_op_params route = {.route = {.n_used = 4, .gating = LODE_GATE_SIGMOID, .scale = 1}};
    struct lode_node *x = lode_g_input(&g, 256, LODE_ROWS_ALL);
    struct lode_node *pairs = lode_g_route(&g, lode_g_linear(&g, x, &router, NULL), NULL, &route);
    struct lode_node *y = lode_g_experts(&g, x, pairs, w, LODE_GLU_SILU, false);
    g.result = lode_g_add(&g, y, lode_g_linear(&g, x, &shared, NULL), 1);
    check_graph(&g);
}

/* Nothing of what latent attention's queries and rows come from is written over until they are all in their places, whatever the products'
 * rows are rounded to, and with the last reader of the angles. */
static void latent_rows_stay_until_queries_are_joined(void **state) {
    (void)state;
    enum { HEADS = 4, RANK = 512, ROPE = 64, PLAIN = 192, D = 256 };
    static const enum lode_dtype types[] = {LODE_Q8_0, LODE_BF16};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct lode_graph g = {0};
        const struct lode_operand all = {0, LODE_Q8_0, HEADS * (PLAIN + ROPE), D, 1, NULL, NULL}, row = {1, LODE_Q8_0, RANK + ROPE, D, 1, NULL, NULL},
                                  k_b = {2, types[i], HEADS * RANK, PLAIN, 1, NULL, NULL};
        const union lode_op_params att = {.attention = {.n_heads = HEADS, .n_kv_heads = 1, .head_dim = RANK + ROPE, .head_dim_v = RANK, .scale = 1}};
        struct lode_node *table = lode_g_rope_table(&g, 0, ROPE / 2), *x = lode_g_input(&g, D, LODE_ROWS_ALL);
        struct lode_node *q = lode_g_linear(&g, x, &all, NULL), *kept = lode_g_linear(&g, x, &row, NULL);
        struct lode_node *qc = lode_g_cut(&g, q, HEADS, 0, PLAIN);
        struct lode_node *qr = lode_g_rope(&g, lode_g_cut(&g, q, HEADS, PLAIN, ROPE), table, HEADS, true);
        struct lode_node *c = lode_g_rms_norm(&g, lode_g_slice(&g, kept, 0, RANK), NULL, 1e-6f, 0);
        kept = lode_g_join(&g, c, lode_g_rope(&g, lode_g_slice(&g, kept, RANK, ROPE), table, 1, true), 1);
        struct lode_node *put = lode_g_kv_put(&g, kept, kept, 0);
        g.result = lode_g_attention(&g, lode_g_join(&g, lode_g_heads(&g, qc, &k_b, HEADS), qr, HEADS), put, NULL, &att);
        check_graph(&g);
    }
}

static void errors_stick(void **state) {
    (void)state;
    struct lode_graph g = {0};
    struct lode_error err;
    const struct lode_operand w = {0, LODE_F32, 8, 16, 1, NULL, NULL};
    struct lode_node *x = lode_g_input(&g, 8, LODE_ROWS_ALL);
    assert_null(lode_g_linear(&g, x, &w, NULL)); /* 16 columns meet rows of 8 */
    assert_null(lode_g_add(&g, x, x, 1));
    assert_int_equal(lode_graph_error(&g, &err), LODE_ERR_FORMAT);
    assert_string_equal(err.where, "LINEAR");
    struct lode_plan p;
    assert_int_equal(lode_plan_compile(&p, &g, &(struct lode_plan_opts){0}, &err), LODE_ERR_FORMAT);
    lode_graph_free(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(live_values_do_not_overlap),
        cmocka_unit_test(besides_of_every_architecture),
        cmocka_unit_test(rounded_twins_are_shared),
        cmocka_unit_test(logits_stay_until_experts_are_chosen),
        cmocka_unit_test(latent_rows_stay_until_queries_are_joined),
        cmocka_unit_test(errors_stick),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
