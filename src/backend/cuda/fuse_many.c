/* fuse_many.c - products of more rows: the norm, the product and what comes after it, of --numerics tensor and fast and of Hopper's
 * exact ones; of weights that meet BF16 or blocks of 32 with what makes their rows, which then need not be read again to be rounded. */
#include "backend/cuda/fuse.h"

/* What comes after the product of a chain, of many rows; false: nothing that could be done with it. */
static bool find_after(const struct op *o, const struct chain *c, struct lode_cuda_after *after) {
    const struct lode_part *parts = c->mul->parts;
    if (!c->glu && !c->add)
        return false;
    const struct lode_value *y = result_of(c->glu ? c->glu : c->add), *res = residual_of(c);
    if (lode_cuda_writes_what_it_reads(o, c, y) || (c->glu && parts[0].w->rows != parts[1].w->rows))
        return false;
    *after = (struct lode_cuda_after){.y = lode_cuda_mat(y)};
    after->end.output = c->glu ? LODE_GEMV_GLU : LODE_GEMV_ADD;
    if (c->glu)
        after->end.act = c->glu->p.glu.act;
    if (c->add) {
        after->end.residual = address(res);
        after->end.residual_stride = res->stride;
        after->end.product_first = same_place(&c->add->in[0], result_of(c->mul));
        after->end.scale = c->add->p.add.scale;
    }
    return true;
}

static bool is_wide(const struct op *o, const struct chain *c) {
    const struct lode_instr *mul = c->mul;
    return mul->op == LODE_OP_LINEAR && mul->n_parts <= LODE_CUDA_PARTS &&
           lode_cuda_wide_parts(o, mul->parts, mul->n_parts) == mul->n_parts;
}

/* ---- rows that are rounded where they are made ---- */

/* The product of many rows, and what comes after it, that is the only one to read what the instructions before `from` give, `made`: that
 * may then be rounded where it is made, to tiles, `used` bytes of the scratch behind which are free.  *after: NULL where nothing
 * comes after it. */
struct reader {
    struct op o; /* its own */
    struct chain c;
    bool fast; /* one of fast.c, or of wide.c */
    struct lode_cuda_after end;
    const struct lode_cuda_after *after;
    struct lode_cuda_tiles tiles;
};
/* Whether nobody but the chain's product reads what it reads, nor the same rounded. */
static bool is_only_reader(const struct op *o, const struct chain *c, uint32_t n) {
    const uint32_t behind = (uint32_t)(c->mul - o->in) + 1;
    return !lode_cuda_read_later(o, behind, n, input_of(c)) && !(c->quant && lode_cuda_read_later(o, behind, n, result_of(c->quant)));
}
static bool find_reader(const struct op *o, uint32_t from, uint32_t n, const struct lode_value *made, uint64_t used,
                        struct reader *r) {
    r->o = (struct op){o->r, o->in + from, o->step, o->err, o->n};
    if (from == n || !lode_cuda_find_chain(&r->o, n - from, &r->c) || r->c.norm || r->c.mul->n_parts != 1 ||
        !same_place(input_of(&r->c), made) || lode_value_rows(result_of(r->c.mul), o->step) != o->n ||
        !is_only_reader(o, &r->c, n) || o->n <= lode_cuda_most_few(&r->o, &r->c))
        return false;
    const struct lode_part *part = r->c.mul->parts;
    r->fast = lode_cuda_is_fast_chain(&r->o, &r->c);
    if (r->fast ? !lode_cuda_fast_tiles(&r->o, part, o->n, used, &r->tiles)
                : !r->c.quant || !is_wide(&r->o, &r->c) || !lode_cuda_wide_tiles(&r->o, part, o->n, used, &r->tiles))
        return false;
    r->after = find_after(&r->o, &r->c, &r->end) ? &r->end : NULL;
    return r->after || (!r->c.glu && !r->c.add);
}
static int run_reader(const struct reader *r) {
    const struct lode_part *part = r->c.mul->parts;
    return r->fast ? lode_cuda_run_fast_rounded(&r->o, part, &r->tiles, r->o.n, r->after)
                   : lode_cuda_run_wide_rounded(&r->o, part, &r->tiles, r->o.n, r->after);
}

/* The tiles that gate and up of such weights can leave. */
static enum lode_cuda_tile_kind gated_tiles(const struct op *o, const struct lode_operand *gate, bool fast) {
    if (fast)
        return gate->type == LODE_BF16 ? LODE_TILES_PANELS : LODE_TILES_NONE;
    return o->r->c->kernels.wide_glu_rounded[gate->type] ? LODE_TILES_SPREAD : LODE_TILES_NONE;
}
/* A product of many rows, by fast.c or wide.c: what these return. */
static int run_product(const struct op *o, const struct lode_instr *mul, bool fast, const struct lode_cuda_wide_x *x,
                       const struct lode_cuda_after *after) {
    return fast ? lode_cuda_run_fast(o, mul->parts, mul->n_parts, x->x, o->n, x->norm, after)
                : lode_cuda_run_wide(o, mul->parts, mul->n_parts, x, o->n, after);
}
/* Gate and up with the product of what they give.  Returns the instructions, 0 for none. */
static int run_gated(const struct op *o, uint32_t n, const struct chain *c, bool fast, const struct lode_cuda_wide_x *x,
                     const struct lode_cuda_after *glu) {
    const struct lode_operand *gate = c->mul->parts[0].w;
    const uint64_t used = fast ? lode_cuda_fast_size(gate->cols, o->n) : lode_cuda_wide_gated_size(gate, o->n);
    struct reader next;
    if (gated_tiles(o, gate, fast) == LODE_TILES_NONE || !find_reader(o, c->n, n, result_of(c->glu), used, &next) ||
        next.tiles.kind != gated_tiles(o, gate, fast))
        return 0;
    struct lode_cuda_after rounded = {.end = glu->end};
    rounded.end.tiles = next.tiles;
    const int rc = run_product(o, c->mul, fast, x, &rounded);
    if (rc <= 0)
        return rc;
    LODE_TRY(run_reader(&next));
    return (int)(c->n + next.c.n);
}

int lode_cuda_run_attended(const struct op *o, uint32_t n) {
    struct reader next;
    if (o->n <= LODE_FEW_ROWS || o->step->n_segments == o->n || !find_reader(o, 1, n, result_of(o->in), 0, &next))
        return 0;
    const int rc = lode_cuda_run_attention_rounded(o, &next.tiles);
    if (rc <= 0)
        return rc;
    LODE_TRY(run_reader(&next));
    return (int)(1 + next.c.n);
}

/* ---- a product of many rows, with what it can be launched with ---- */

int lode_cuda_run_many_rows(const struct op *o, uint32_t n, const struct chain *c) {
    const struct lode_instr *mul = c->mul;
    const bool fast = lode_cuda_is_fast_chain(o, c);
    struct lode_cuda_gemv_args copies = {0};
    struct lode_cuda_after after;
    if ((!fast && !is_wide(o, c)) ||
        (c->norm && c->norm->parts[0].out.width * 4 > lode_cuda_room(o->r->c)) ||
        !lode_cuda_set_copies(o, n, c, &copies) || copies.q_out)
        return 0;
    const struct lode_cuda_norm norm = {.weight = c->norm ? lode_cuda_weight(o, c->norm->parts[0].w) : 0,
                                        .eps = c->norm ? c->norm->p.rms_norm.eps : 0,
                                        .copy = {copies.x_out, copies.x_out ? result_of(c->norm)->stride : 0}};
    const struct lode_cuda_norm *before = c->norm ? &norm : NULL;
    const struct lode_cuda_wide_x x = {lode_cuda_mat(input_of(c)), c->quant != NULL, before};
    if (find_after(o, c, &after)) {
        const int both = c->glu ? run_gated(o, n, c, fast, &x, &after) : 0;
        if (both != 0)
            return both;
        const int all = run_product(o, mul, fast, &x, &after);
        if (all != 0)
            return all < 0 ? all : (int)c->n;
    }
    if (!before && !c->quant)
        return 0;
    for (uint32_t i = 0; i < mul->n_parts; i++) /* what is normed or rounded in pieces is still read */
        if (lode_cuda_overlap(&mul->parts[i].out, input_of(c), o->n))
            return 0;
    const int some = run_product(o, mul, fast, &x, NULL);
    return some > 0 ? (int)(mul - o->in) + 1 : some;
}
