/* chain.c - what of a plan belongs together around a product, and what of it a fused launch must leave behind. */
#include "backend/cuda/fuse.h"

static size_t row_bytes(const struct lode_value *v) { return lode_cuda_numbers_size(v->type, v->width); }

bool lode_cuda_overlap(const struct lode_value *a, const struct lode_value *b, uint32_t n) {
    const uintptr_t p = (uintptr_t)a->data, q = (uintptr_t)b->data;
    if (!p || !q)
        return false;
    if (a->stride == b->stride && (p < q ? q - p : p - q) < a->stride)
        return p < q ? q - p < row_bytes(a) : p - q < row_bytes(b);
    return p < q + b->stride * n && q < p + a->stride * n;
}

bool lode_cuda_read_later(const struct op *o, uint32_t from, uint32_t n, const struct lode_value *v) {
    const struct lode_instr *in = o->in;
    const uint32_t rows = o->n;
    for (uint32_t i = from; i < n; i++) {
        if (lode_cuda_overlap(v, &in[i].in[0], rows) || lode_cuda_overlap(v, &in[i].in[1], rows))
            return true;
        for (uint32_t k = 0; k < in[i].n_parts; k++) {
            const struct lode_value *out = &in[i].parts[k].out;
            if (lode_cuda_overlap(v, out, rows)) /* memory is given away only when nobody reads what was in it */
                return false;
        }
    }
    return false;
}

bool lode_cuda_find_chain(const struct op *o, uint32_t n, struct chain *c) {
    *c = (struct chain){0};
    uint32_t i = 0;
    const struct lode_value *x = &o->in->in[0];
    if (lode_cuda_is_next(o, i, n, LODE_OP_RMS_NORM)) {
        if (o->in[i].p.rms_norm.group != x->width)
            return false;
        c->norm = &o->in[i++];
        x = result_of(c->norm);
    }
    if (lode_cuda_is_next(o, i, n, LODE_OP_QUANT) && same_place(&o->in[i].in[0], x)) {
        c->quant = &o->in[i++];
        x = result_of(c->quant);
    }
    if (!lode_cuda_is_next(o, i, n, LODE_OP_LINEAR) && !(i < n && lode_cuda_is_experts(o->in[i].op) && !c->norm))
        return false;
    c->mul = &o->in[i];
    if (!same_place(&c->mul->in[0], x))
        return false;
    const struct lode_value *y = result_of(c->mul);
    const uint32_t n_parts = c->mul->n_parts;
    i++;
    if (lode_cuda_is_next(o, i, n, LODE_OP_GLU) && c->mul->op == LODE_OP_LINEAR && n_parts == 2 &&
        same_place(&o->in[i].in[0], y) && same_place(&o->in[i].in[1], &c->mul->parts[1].out)) {
        c->glu = &o->in[i++];
        if (!same_place(result_of(c->glu), y) && lode_cuda_read_later(o, i, n, y))
            return false;
        if (!same_place(result_of(c->glu), &c->mul->parts[1].out) &&
            lode_cuda_read_later(o, i, n, &c->mul->parts[1].out))
            return false;
    } else if (lode_cuda_is_next(o, i, n, LODE_OP_ADD) && (n_parts == 1 || c->mul->op == LODE_OP_EXPERTS) &&
               same_place(&o->in[i].in[0], y) != same_place(&o->in[i].in[1], y)) {
        c->add = &o->in[i++];
        if (!same_place(result_of(c->add), y) && lode_cuda_read_later(o, i, n, y))
            c->add = NULL, i--;
    }
    c->n = i;
    return true;
}

bool lode_cuda_set_copies(const struct op *o, uint32_t n, const struct chain *c, struct lode_cuda_gemv_args *a) {
    const uint32_t after = (uint32_t)(c->mul - o->in);
    if (c->norm && lode_cuda_read_later(o, after + (c->quant != NULL ? 0 : 1), n, result_of(c->norm))) {
        if (lode_cuda_overlap(result_of(c->norm), input_of(c), o->n))
            return false;
        a->x_out = address(result_of(c->norm));
    }
    if (c->quant && lode_cuda_read_later(o, after + 1, n, result_of(c->quant))) {
        if (lode_cuda_overlap(result_of(c->quant), input_of(c), o->n))
            return false;
        a->q_out = address(result_of(c->quant));
    }
    return true;
}

bool lode_cuda_writes_what_it_reads(const struct op *o, const struct chain *c, const struct lode_value *y) {
    const struct lode_value *res = residual_of(c);
    return lode_cuda_overlap(y, input_of(c), o->n) || (res && !same_place(y, res) && lode_cuda_overlap(y, res, o->n));
}

void lode_cuda_set_input(const struct op *o, const struct chain *c, struct lode_cuda_gemv_args *a) {
    a->x = address(input_of(c));
    a->n_x = 1;
    a->input = c->norm ? LODE_GEMV_NORM : c->quant ? LODE_GEMV_ROUND : LODE_GEMV_AS_IS;
    if (c->norm) {
        a->norm = lode_cuda_weight(o, c->norm->parts[0].w);
        a->eps = c->norm->p.rms_norm.eps;
    }
}

void lode_cuda_set_residual(const struct chain *c, struct lode_cuda_gemv_args *a) {
    if (c->add) {
        a->residual = address(residual_of(c));
        a->product_first = same_place(&c->add->in[0], result_of(c->mul));
        a->scale = c->add->p.add.scale;
    }
}

enum lode_dtype lode_cuda_common_act(const struct lode_part *parts, uint32_t n) {
    const enum lode_dtype first = parts[0].w->type;
    for (uint32_t i = 0; i < n; i++) {
        const enum lode_dtype type = parts[i].w->type;
        if (!lode_cuda_layouts[type].gemv || lode_dtypes[type].act != lode_dtypes[first].act ||
            (lode_cuda_layouts[first].plain && type != first))
            return LODE_NONE;
    }
    return lode_cuda_layouts[first].plain ? LODE_F32 : lode_dtypes[first].act;
}

bool lode_cuda_all_few(const struct lode_part *parts, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const struct lode_cuda_layout *l = &lode_cuda_layouts[parts[i].w->type];
        if (!l->few || l->family != lode_cuda_layouts[parts[0].w->type].family)
            return false;
    }
    return true;
}

struct lode_cuda_gemv_part lode_cuda_gemv_part(const struct op *o, const struct lode_part *p, uint32_t first) {
    return (struct lode_cuda_gemv_part){.w = lode_cuda_weight(o, p->w),
                                        .bias = lode_cuda_weight(o, p->bias),
                                        .y = address(&p->out),
                                        .expert_size = lode_cuda_expert_size(o, p->w),
                                        .rows = p->w->rows,
                                        .type = p->w->type,
                                        .w_stride =
                                            (uint32_t)lode_cuda_row_size(p->w->type, p->w->cols),
                                        .first_unit = first};
}

bool lode_cuda_set_parts(const struct op *o, const struct chain *c, uint32_t tile, struct lode_cuda_gemv_args *a) {
    const struct lode_part *parts = c->mul->parts;
    lode_cuda_set_residual(c, a);
    for (uint32_t i = 0; i < a->n_parts; i++) {
        a->parts[i] = lode_cuda_gemv_part(o, &parts[i], a->n_units);
        a->n_units += (parts[i].w->rows + tile - 1) / tile;
        if (!c->glu && !c->add && lode_cuda_writes_what_it_reads(o, c, &parts[i].out))
            return false;
    }
    if (c->glu || c->add) {
        const struct lode_value *y = result_of(c->glu ? c->glu : c->add);
        if (lode_cuda_writes_what_it_reads(o, c, y))
            return false;
        a->parts[0].y = address(y);
    }
    a->output = c->glu ? LODE_GEMV_GLU : c->add ? LODE_GEMV_ADD : LODE_GEMV_STORE;
    if (c->glu) {
        if (parts[0].w->rows != parts[1].w->rows)
            return false;
        a->per_unit = 2;
        a->n_units /= 2;
        a->act = c->glu->p.glu.act;
    }
    return true;
}

bool lode_cuda_is_fast_chain(const struct op *o, const struct chain *c) {
    const struct lode_instr *mul = c->mul;
    return mul->op == LODE_OP_LINEAR && !c->quant && mul->n_parts <= LODE_CUDA_PARTS &&
           lode_cuda_fast_parts(o, mul->parts, mul->n_parts, mul->in[0].type) == mul->n_parts;
}
