/* fuse_latent.c - latent attention between its products: a token's row to the cache, its queries to where they are read.
 *
 *     RMS_NORM ROPE JOIN KV_PUT                     latent.cu
 *         .. CUT CUT ROPE before, [QUANT] HEADS JOIN behind them: the same launch, and HEADS', which leaves its results where JOIN would
 *     QUANT HEADS                                   mul.cuh; steps of one row
 */
#include "backend/cuda/fuse.h"

/* What a token keeps: c, normed, beside r, turned. */
struct kept {
    const struct lode_instr *norm, *rope, *join, *put;
};
enum { KEPT = 4 };
static const struct lode_value *c_of(const struct kept *k) { return &k->norm->in[0]; }
static const struct lode_value *r_of(const struct kept *k) { return &k->rope->in[0]; }

/* Of each head what goes through the latent space's product, and what is turned; `join` has them side by side. */
struct queries {
    const struct lode_instr *plain, *part, *rope, *quant, *heads, *join; /* quant: NULL where HEADS reads floats */
    uint32_t n;                                                         /* behind what is kept */
};
enum { QUERIES_BEFORE = 3 };
static const struct lode_value *q_of(const struct queries *q) { return &q->plain->in[0]; }

static bool turns_all(const struct lode_instr *rope, uint32_t n_heads) {
    return rope->p.rope.n_heads == n_heads && 2 * rope->p.rope.n_pairs == rope->p.rope.head_dim && rope->in[1].data;
}

static bool find_kept(const struct op *o, uint32_t i, uint32_t n, struct kept *k) {
    if (!lode_cuda_is_next(o, i, n, LODE_OP_RMS_NORM) || !lode_cuda_is_next(o, i + 1, n, LODE_OP_ROPE) ||
        !lode_cuda_is_next(o, i + 2, n, LODE_OP_JOIN) || !lode_cuda_is_next(o, i + 3, n, LODE_OP_KV_PUT))
        return false;
    *k = (struct kept){&o->in[i], &o->in[i + 1], &o->in[i + 2], &o->in[i + 3]};
    const struct lode_kv_layer *l = lode_kv_layer(o->step->segments[0].kv, k->put->p.kv_put.layer);
    const struct lode_value *c = result_of(k->norm), *r = result_of(k->rope), *row = result_of(k->join);
    return k->norm->p.rms_norm.group == c->width && turns_all(k->rope, 1) && k->rope->p.rope.n_pairs <= 128 &&
           k->join->p.join.n_heads == 1 && same_place(&k->join->in[0], c) && same_place(&k->join->in[1], r) &&
           same_place(&k->put->in[0], row) && l->n_heads == 1 && l->v_in_k && l->head_dim == row->width &&
           row->width <= LODE_LATENT_NUMBERS && !lode_cuda_read_later(o, i + KEPT, n, c) && !lode_cuda_read_later(o, i + KEPT, n, r) &&
           !lode_cuda_read_later(o, i + KEPT, n, row);
}

/* Numbers that are read by fours. */
static bool by_fours(const struct lode_value *v, uint32_t at, uint32_t pitch) {
    return ((uintptr_t)v->data | v->stride) % 16 == 0 && at % 4 == 0 && pitch % 4 == 0;
}

/* `behind`: the first instruction behind what is kept. */
static bool find_queries(const struct op *o, uint32_t behind, uint32_t n, struct queries *q) {
    uint32_t i = behind;
    *q = (struct queries){.plain = &o->in[0], .part = &o->in[1], .rope = &o->in[2]};
    const struct lode_value *plain = result_of(q->plain), *part = result_of(q->part), *turned = result_of(q->rope), *x = plain;
    const uint32_t n_heads = q->plain->p.cut.n_heads, head = q_of(q)->width / n_heads;
    if (lode_cuda_is_next(o, i, n, LODE_OP_QUANT)) {
        q->quant = &o->in[i++];
        x = result_of(q->quant);
    }
    if (!lode_cuda_is_next(o, i, n, LODE_OP_HEADS) || !lode_cuda_is_next(o, i + 1, n, LODE_OP_JOIN))
        return false;
    q->heads = &o->in[i];
    q->join = &o->in[i + 1];
    q->n = i + 2 - behind;
    return q->part->p.cut.n_heads == n_heads && same_place(&q->part->in[0], q_of(q)) && turns_all(q->rope, n_heads) &&
           same_place(&q->rope->in[0], part) && (!q->quant || (same_place(&q->quant->in[0], plain) && x->type == LODE_A32)) &&
           same_place(&q->heads->in[0], x) && q->heads->p.heads.n_heads == n_heads && q->join->p.join.n_heads == n_heads &&
           same_place(&q->join->in[0], result_of(q->heads)) && same_place(&q->join->in[1], turned) &&
           by_fours(q_of(q), q->plain->p.cut.first, head) && !lode_cuda_read_later(o, i + 1, n, plain) &&
           !lode_cuda_read_later(o, i + 1, n, x) && !lode_cuda_read_later(o, i + 2, n, part) &&
           !lode_cuda_read_later(o, i + 2, n, turned) && !lode_cuda_read_later(o, i + 2, n, result_of(q->heads));
}

/* Whether nothing that the launch reads is what one of its instructions gives, or lies where it or HEADS writes. */
static bool are_apart(const struct op *o, const struct kept *k, const struct queries *q) {
    const struct lode_value *read[] = {q_of(q), c_of(k), r_of(k), &k->rope->in[1]};
    const struct lode_instr *gives[] = {q->plain, q->part, q->rope, q->join, q->quant};
    bool apart = !q->quant || !lode_cuda_overlap(result_of(q->join), result_of(q->quant), o->n);
    for (size_t i = 0; i < sizeof gives / sizeof *gives; i++)
        for (size_t r = 0; r < sizeof read / sizeof *read; r++)
            apart = apart && (!gives[i] || !lode_cuda_overlap(result_of(gives[i]), read[r], o->n));
    return apart;
}

/* The rows of the queries' part of the launch, and of HEADS behind it. */
static void set_queries(const struct queries *q, struct lode_cuda_latent_args *a, struct lode_cuda_heads *h) {
    const struct lode_value *x = q_of(q), *y = result_of(q->join);
    const uint32_t n_heads = q->plain->p.cut.n_heads, rank = result_of(q->heads)->width / n_heads;
    a->n_heads = n_heads;
    a->q = lode_cuda_mat(x);
    a->head = x->width / n_heads;
    a->plain_at = q->plain->p.cut.first;
    a->plain = result_of(q->plain)->width / n_heads;
    a->rope_at = q->part->p.cut.first;
    a->kind_q = q->rope->p.rope.pairs;
    a->turned_head = y->width / n_heads;
    a->turned = lode_cuda_mat(y);
    a->turned.data += rank * sizeof(float);
    if (q->quant)
        a->rounded = lode_cuda_mat(result_of(q->quant));
    *h = (struct lode_cuda_heads){.x = q->quant ? a->rounded : a->q,
                                  .y = lode_cuda_mat(y),
                                  .x_head = q->quant ? lode_cuda_numbers_size(LODE_A32, a->plain) : a->head * (uint32_t)sizeof(float),
                                  .y_head = (a->turned_head - rank) * (uint32_t)sizeof(float)};
    if (!q->quant)
        h->x.data += a->plain_at * sizeof(float);
}

int lode_cuda_run_latent(const struct op *o, uint32_t n) {
    const bool all = o->in->op == LODE_OP_CUT;
    const uint32_t at = all ? QUERIES_BEFORE : 0;
    struct kept k;
    struct queries q = {0};
    struct lode_cuda_heads h;
    if (all && (!lode_cuda_is_next(o, 1, n, LODE_OP_CUT) || !lode_cuda_is_next(o, 2, n, LODE_OP_ROPE)))
        return 0;
    if (!find_kept(o, at, n, &k))
        return 0;
    if (all && (!find_queries(o, at + KEPT, n, &q) || q.rope->p.rope.n_pairs != k.rope->p.rope.n_pairs ||
                q.rope->in[1].data != k.rope->in[1].data || !are_apart(o, &k, &q)))
        return 0;
    struct lode_cuda_latent_args a = {.step = o->r->step,
                                      .norm = lode_cuda_weight(o, k.norm->parts[0].w),
                                      .c = lode_cuda_mat(c_of(&k)),
                                      .r = lode_cuda_mat(r_of(&k)),
                                      .table = lode_cuda_mat(&k.rope->in[1]),
                                      .layer = k.put->p.kv_put.layer,
                                      .rank = c_of(&k)->width,
                                      .pairs = k.rope->p.rope.n_pairs,
                                      .kind = k.rope->p.rope.pairs,
                                      .eps = k.norm->p.rms_norm.eps};
    if (all)
        set_queries(&q, &a, &h);
    LODE_TRY(lode_cuda_run_kernel(o, o->r->c->kernels.latent, o->n, lode_cuda_up(1 + a.n_heads, LODE_LATENT_WARPS), 1,
                                  32 * LODE_LATENT_WARPS, 0, &a));
    if (!all)
        return KEPT;
    const struct op heads = {o->r, q.heads, o->step, o->err, o->n};
    LODE_TRY(lode_cuda_run_heads(&heads, &h));
    return (int)(at + KEPT + q.n);
}

int lode_cuda_run_rounded_heads(const struct op *o, uint32_t n) {
    const struct lode_instr *heads = o->in + 1;
    if (!lode_cuda_is_next(o, 1, n, LODE_OP_HEADS))
        return 0;
    const struct lode_value *x = &o->in->in[0], *rounded = result_of(o->in), *y = result_of(heads);
    const uint32_t cols = heads->parts[0].w->cols;
    if (o->n != 1 || !same_place(&heads->in[0], rounded) || cols > LODE_ROUNDED_HEAD || !by_fours(x, 0, cols) ||
        lode_cuda_overlap(y, x, 1) || lode_cuda_read_later(o, 2, n, rounded))
        return 0;
    const struct op all = {o->r, heads, o->step, o->err, 1};
    LODE_TRY(lode_cuda_run_heads(&all, &(struct lode_cuda_heads){.x = lode_cuda_mat(x), .y = lode_cuda_mat(y),
                                                                 .x_head = cols * (uint32_t)sizeof(float), .rounds = true}));
    return 2;
}
