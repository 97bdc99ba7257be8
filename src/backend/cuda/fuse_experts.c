/* fuse_experts.c - the experts that one row has chosen, in two launches: of the kernels that chosen.c knows, or of gemv.cu's. */
#include "backend/cuda/fuse.h"

static bool has_rounded_gemv(enum lode_dtype act) { return act != LODE_NONE && act != LODE_F32; }

/* Gate and up of the chosen experts, to y, y_stride bytes apart; false: otherwise. */
static bool set_experts_in(const struct op *o, uint32_t n, const struct chain *c, lode_dev y, uint64_t y_stride,
                           struct lode_cuda_gemv_args *a) {
    const struct lode_instr *in = c->mul;
    const struct lode_part *parts = in->parts;
    const uint32_t n_used = in->in[1].width / 2;
    *a = (struct lode_cuda_gemv_args){
        .n_parts = 2,
        .cols = parts[0].w->cols,
        .output = LODE_GEMV_GLU,
        .per_unit = 2,
        .n_used = n_used,
        .n_units = n_used * ((parts[0].w->rows + LODE_GEMV_TILE - 1) / LODE_GEMV_TILE),
        .act = in->p.experts.act,
        .weigh_input = in->p.experts.weigh_input,
        .route = address(&in->in[1]),
        .y_stride = y_stride};
    if (!has_rounded_gemv(lode_cuda_common_act(parts, 2)) || parts[0].w->rows != parts[1].w->rows ||
        !lode_cuda_set_copies(o, n, c, a))
        return false;
    lode_cuda_set_input(o, c, a);
    for (int i = 0; i < 2; i++)
        a->parts[i] = lode_cuda_gemv_part(o, &parts[i], 0);
    a->parts[0].y = y;
    return true;
}

/* The sum of their down, from x. */
static bool set_experts_out(const struct op *o, const struct chain *c, const struct lode_part *down, lode_dev x,
                            uint64_t x_stride, struct lode_cuda_gemv_args *a) {
    const struct lode_instr *in = c->mul;
    const struct lode_value *y = result_of(c->add ? c->add : in);
    const uint32_t n_used = in->in[1].width / 2;
    const enum lode_dtype act = lode_cuda_common_act(down, 1);
    uint32_t grid, shared;
    *a = (struct lode_cuda_gemv_args){.n_parts = 1,
                                      .cols = down->w->cols,
                                      .output = LODE_GEMV_SUM,
                                      .per_unit = n_used,
                                      .n_used = n_used,
                                      .n_units = (down->w->rows + LODE_GEMV_TILE - 1) / LODE_GEMV_TILE,
                                      .weigh_input = in->p.experts.weigh_input,
                                      .route = address(&in->in[1]),
                                      .x = x,
                                      .x_stride = x_stride,
                                      .n_x = n_used,
                                      .input = LODE_GEMV_ROUND};
    if (!has_rounded_gemv(act))
        return false;
    lode_cuda_set_residual(c, a);
    a->parts[0] = lode_cuda_gemv_part(o, down, 0);
    a->parts[0].y = address(y);
    return !lode_cuda_overlap(y, &in->in[1], o->n) && lode_cuda_lay_out_gemv(o, a, act == LODE_A32, &grid, &shared);
}

/* Either, by the kernels of chosen experts, or by those for all types.  choice: as lode_cuda_run_chosen_in's, in which case there are none for
 * all types.  *early: whether who comes next may read the route before it waits. */
static int run_in(const struct op *o, uint32_t n, const struct chain *c, const struct lode_part *parts, const struct op *choice,
                  bool *early, struct lode_cuda_gemv_args *a) {
    const int rc = lode_cuda_run_chosen_in(o, a, choice);
    *early = rc > 0;
    return rc || choice ? rc : lode_cuda_run_gemv(o, n, c, a, lode_cuda_common_act(parts, 2));
}
static int run_out(const struct op *o, uint32_t n, const struct chain *c, const struct lode_part *down, bool early,
                   struct lode_cuda_gemv_args *a) {
    const int rc = lode_cuda_run_chosen_out(o, a, early);
    return rc ? rc : lode_cuda_run_gemv(o, n, c, a, lode_cuda_common_act(down, 1));
}

int lode_cuda_run_chosen_experts(const struct op *o, uint32_t n, const struct chain *c, const struct op *choice) {
    const struct lode_instr *in = c->mul;
    const struct lode_part *parts = in->parts, *down = in->op == LODE_OP_EXPERTS ? &parts[2] : &parts[0];
    const struct lode_value *y = result_of(in);
    struct lode_cuda_gemv_args first, second;
    bool early;
    if (in->op == LODE_OP_EXPERTS_IN)
        return !lode_cuda_overlap(y, input_of(c), o->n) && !lode_cuda_overlap(y, &in->in[1], o->n) &&
                       set_experts_in(o, n, c, address(y), parts[0].w->rows * sizeof(float), &first)
                   ? run_in(o, n, c, parts, choice, &early, &first)
                   : 0;
    if (in->op == LODE_OP_EXPERTS_OUT)
        return !lode_cuda_writes_what_it_reads(o, c, result_of(c->add ? c->add : in)) &&
                       set_experts_out(o, c, down, address(input_of(c)), down->w->cols * sizeof(float), &second)
                   ? run_out(o, n, c, down, false, &second)
                   : 0;
    if (!set_experts_in(o, n, c, o->r->gate, o->r->ff_stride, &first) ||
        !set_experts_out(o, c, down, o->r->gate, o->r->ff_stride, &second))
        return 0;
    const struct chain none = {.n = n}; /* between the two, nothing to fetch */
    const int rc = run_in(o, n, &none, parts, choice, &early, &first);
    return rc <= 0 ? rc : run_out(o, n, c, down, early, &second);
}

int lode_cuda_run_choice(const struct op *o, uint32_t n) {
    struct op after = *o;
    struct chain c;
    after.in++;
    const struct lode_value *pairs = result_of(o->in);
    if (n < 2 || o->step->routes || !lode_cuda_find_chain(&after, n - 1, &c) || c.norm ||
        (c.mul->op != LODE_OP_EXPERTS && c.mul->op != LODE_OP_EXPERTS_IN) || !same_place(&c.mul->in[1], pairs) ||
        lode_cuda_overlap(pairs, &o->in->in[0], 1) || /* which all blocks of threads read, as long as the first one writes */
        (c.quant && lode_cuda_overlap(result_of(c.quant), &o->in->in[0], 1)) ||
        (c.mul->op == LODE_OP_EXPERTS_IN && lode_cuda_overlap(result_of(c.mul), &o->in->in[0], 1)))
        return 0;
    const int rc = lode_cuda_run_chosen_experts(&after, n - 1, &c, o);
    return rc > 0 ? (int)c.n + 1 : rc;
}
