/* fuse_recur.c - what comes before the delta rule in one launch: [[CUT CUT] JOIN] DELTA_GATES CONV [L2_NORM], or what there is of it.
 *
 * The gates' two numbers a head come from a product's rows, from where CUT and JOIN only move them; they are read where they lie.  Blocks of
 * threads that make gates, and those that have columns of the convolution, write while others still read: no value that is written may lie
 * where one is read. */
#include "backend/cuda/fuse.h"

/* [[CUT CUT] JOIN] DELTA_GATES: n instructions, 0: there are none; the values that their numbers lie in. */
struct gates {
    uint32_t n;
    struct lode_cuda_gates_args args;
    const struct lode_value *from[2], *y;
};

/* v's numbers where they lie in *from: v, or what one of the first n_cuts instructions cuts it from. */
static struct lode_cuda_numbers numbers_of(const struct op *o, uint32_t n_cuts, const struct lode_value *v, const struct lode_value **from) {
    for (uint32_t i = 0; i < n_cuts; i++) {
        const struct lode_instr *cut = &o->in[i];
        const uint32_t heads = cut->p.cut.n_heads;
        if (!same_place(result_of(cut), v))
            continue;
        *from = &cut->in[0];
        return (struct lode_cuda_numbers){lode_cuda_mat(*from), cut->p.cut.first, (*from)->width / heads, lode_cuda_divisor(v->width / heads)};
    }
    *from = v;
    return (struct lode_cuda_numbers){lode_cuda_mat(v), 0, 1, lode_cuda_divisor(1)};
}

/* Whether y may be written by blocks of which others still read x. */
static bool is_apart(const struct op *o, const struct lode_value *y, const struct lode_value *x) { return !lode_cuda_overlap(y, x, o->n); }

static struct gates find_gates(const struct op *o, uint32_t n) {
    struct gates g = {0};
    uint32_t n_cuts = 0;
    while (n_cuts < 2 && lode_cuda_is_next(o, n_cuts, n, LODE_OP_CUT))
        n_cuts++;
    const bool joined = lode_cuda_is_next(o, n_cuts, n, LODE_OP_JOIN);
    const uint32_t at = n_cuts + joined;
    if (n_cuts == 1 || (n_cuts && !joined) || !lode_cuda_is_next(o, at, n, LODE_OP_DELTA_GATES))
        return g;
    struct op gates = *o;
    gates.in += at;
    g.args = lode_cuda_gates_args(&gates);
    g.y = result_of(gates.in);
    if (!joined) {
        g.from[0] = g.from[1] = &gates.in->in[0];
        g.n = 1;
        return g;
    }
    const struct lode_instr *join = gates.in - 1;
    const uint32_t heads = g.args.n_heads.by;
    if (join->p.join.n_heads != heads || join->in[0].width != heads || join->in[1].width != heads ||
        !same_place(&gates.in->in[0], result_of(join)) ||
        (!same_place(result_of(join), g.y) && lode_cuda_read_later(o, at + 1, n, result_of(join))))
        return g;
    for (uint32_t i = 0; i < n_cuts; i++)
        if (lode_cuda_read_later(o, at, n, result_of(&o->in[i])))
            return g;
    g.args.alpha = numbers_of(o, n_cuts, &join->in[0], &g.from[0]);
    g.args.beta = numbers_of(o, n_cuts, &join->in[1], &g.from[1]);
    if (is_apart(o, g.y, g.from[0]) && is_apart(o, g.y, g.from[1]))
        g.n = at + 1;
    return g;
}

/* The L2_NORM of what a convolution gives, if it is next and its groups are parts of a block's columns; else NULL. */
static const struct lode_instr *find_norm(const struct op *conv, uint32_t n) {
    const struct lode_value *x = result_of(conv->in);
    if (!lode_cuda_is_next(conv, 1, n, LODE_OP_L2_NORM))
        return NULL;
    const struct lode_instr *norm = conv->in + 1;
    return same_place(&norm->in[0], x) && norm->p.l2_norm.group <= LODE_CUDA_CONV_COLUMNS &&
                   (same_place(result_of(norm), x) || (!lode_cuda_read_later(conv, 2, n, x) && is_apart(conv, result_of(norm), &conv->in->in[0])))
               ? norm
               : NULL;
}

int lode_cuda_run_before_delta(const struct op *o, uint32_t n) {
    const struct gates g = find_gates(o, n);
    struct op conv = *o;
    conv.in += g.n;
    if (g.n == 0 && o->in->op != LODE_OP_CONV)
        return 0;
    if (lode_cuda_is_next(o, g.n, n, LODE_OP_CONV) && o->n == o->step->n_rows) {
        const struct lode_instr *norm = find_norm(&conv, n - g.n);
        const struct lode_value *x = &conv.in->in[0], *y = result_of(norm ? norm : conv.in);
        const bool together = g.n && is_apart(o, y, g.from[0]) && is_apart(o, y, g.from[1]) && is_apart(o, g.y, x) && is_apart(o, g.y, y);
        if (together || (!g.n && norm)) {
            LODE_TRY(lode_cuda_run_conv(&conv, norm, together ? &g.args : NULL));
            return (int)(g.n + 1 + (norm != NULL));
        }
    }
    if (g.n < 2)
        return 0;
    LODE_TRY(lode_cuda_run_delta_gates(o, &g.args));
    return (int)g.n;
}
