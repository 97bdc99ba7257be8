/* recur.c - layers that carry a state from token to token: launches of kernels/recur.cu. */
#include "backend/cuda/run.h"

enum { DELTA_COLUMNS = 32 }; /* of a block of threads */

/* Bytes from the beginning of a block of states to what p points at, in any sequence's. */
static uint64_t within(const struct op *o, const float *p) {
    return (uint64_t)((const char *)p -
                      (const char *)lode_state_begins(o->step->segments[0].state, o->r->base.place, false));
}

int lode_cuda_run_conv(const struct op *o, const struct lode_instr *norm, const struct lode_cuda_gates_args *gates) {
    const struct lode_part *p = &o->in->parts[0];
    const struct lode_state *state = o->step->segments[0].state;
    struct lode_cuda_conv_args a = {.step = o->r->step,
                                    .w = lode_cuda_weight(o, p->w),
                                    .x = lode_cuda_mat(&o->in->in[0]),
                                    .y = lode_cuda_mat(norm ? &norm->parts[0].out : &p->out),
                                    .at = within(o, lode_state_inputs(state, o->in->p.conv.layer, false)),
                                    .w_stride = lode_cuda_row_size(p->w->type, p->w->cols),
                                    .width = o->in->in[0].width,
                                    .taps = o->in->p.conv.taps,
                                    .silu = o->in->p.conv.silu,
                                    .group = LODE_CUDA_CONV_COLUMNS,
                                    .scale = 1};
    if (norm) {
        a.group = norm->p.l2_norm.group;
        a.n = norm->p.l2_norm.n;
        a.n_scaled = norm->p.l2_norm.n_scaled;
        a.scale = norm->p.l2_norm.scale;
        a.eps = norm->p.l2_norm.eps;
    }
    a.groups = lode_cuda_divisor(LODE_CUDA_CONV_COLUMNS / a.group);
    a.columns = a.groups.by * a.group;
    a.blocks = lode_cuda_up(a.width, a.columns);
    const uint32_t rows = lode_cuda_rows_of_longest(o->step);
    uint32_t blocks = a.blocks;
    if (gates) {
        a.gates = *gates;
        blocks += lode_cuda_up((rows < LODE_CUDA_CONV_ROWS ? rows : LODE_CUDA_CONV_ROWS) * gates->n_heads.by, LODE_CUDA_CONV_COLUMNS);
    }
    return lode_cuda_run_kernel(o, o->r->c->kernels.conv, blocks, lode_cuda_up(rows, LODE_CUDA_CONV_ROWS), o->step->n_segments,
                                LODE_CUDA_CONV_COLUMNS, 0, &a);
}

struct lode_cuda_gates_args lode_cuda_gates_args(const struct op *o) {
    const struct lode_part *p = &o->in->parts[0];
    const struct lode_cuda_mat x = lode_cuda_mat(&o->in->in[0]);
    const struct lode_cuda_divisor one = lode_cuda_divisor(1);
    return (struct lode_cuda_gates_args){.a = lode_cuda_weight(o, p->w),
                                         .dt = lode_cuda_weight(o, p->bias),
                                         .alpha = {x, 0, 2, one},
                                         .beta = {x, 1, 2, one},
                                         .y = lode_cuda_mat(&p->out),
                                         .n_heads = lode_cuda_divisor(p->out.width / 2)};
}

int lode_cuda_run_delta_gates(const struct op *o, const struct lode_cuda_gates_args *a) {
    const struct lode_cuda_gates_args plain = lode_cuda_gates_args(o);
    a = a ? a : &plain;
    return lode_cuda_run_kernel(o, o->r->c->kernels.delta_gates, o->n, lode_cuda_up(a->n_heads.by, 128), 1, 128, 0, a);
}

/* Whether all rows can be read n bytes at a time. */
static bool is_whole(struct lode_cuda_mat m, uint32_t n) { return m.data % n == 0 && m.stride % n == 0; }

int lode_cuda_run_delta(const struct op *o) {
    const union lode_op_params *p = &o->in->p;
    const struct lode_cuda_kernels *k = &o->r->c->kernels;
    const struct lode_cuda_recur_args a = {.step = o->r->step,
                                           .x = lode_cuda_mat(&o->in->in[0]),
                                           .gates = lode_cuda_mat(&o->in->in[1]),
                                           .y = lode_cuda_mat(&o->in->parts[0].out),
                                           .at = within(o, lode_state_delta(o->step->segments[0].state, p->delta.layer, 0, false)),
                                           .n_k_heads = p->delta.n_k_heads,
                                           .n_heads = p->delta.n_heads,
                                           .dim_k = p->delta.dim_k,
                                           .dim_v = p->delta.dim_v,
                                           .tiled = p->delta.tiled};
    const uint32_t blocks = a.n_heads * ((a.dim_v - 1) / DELTA_COLUMNS + 1), segments = o->step->n_segments;
    void *kernel = a.dim_k == 128 ? k->delta_128 : a.dim_k == 64 ? k->delta_64 : NULL;
    if (kernel && is_whole(a.x, 16) && is_whole(a.gates, 8))
        return lode_cuda_run_kernel(o, kernel, blocks, segments, 1, DELTA_COLUMNS, 0, &a);
    return lode_cuda_run_kernel(o, k->delta_any, blocks, segments, 1, DELTA_COLUMNS, 3 * a.dim_k * (uint32_t)sizeof(float), &a);
}
