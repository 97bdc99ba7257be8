/* recur.c - layers that carry a state from token to token: launches of kernels/recur.cu. */
#include "backend/cuda/run.h"

enum { CONV_COLUMNS = 128, DELTA_COLUMNS = 32 }; /* of a block of threads */

/* Bytes from the beginning of a block of states to what p points at, in any sequence's. */
static uint64_t within(const struct op *o, const float *p) {
    return (uint64_t)((const char *)p -
                      (const char *)lode_state_begins(o->step->segments[0].state, o->r->base.place, false));
}

static struct lode_cuda_recur_args recur_args(const struct op *o) {
    const struct lode_part *p = &o->in->parts[0];
    return (struct lode_cuda_recur_args){.step = o->r->step, .w = lode_cuda_weight(o, p->w),
                                         .bias = lode_cuda_weight(o, p->bias),
                                         .x = lode_cuda_mat(&o->in->in[0]),
                                         .gates = lode_cuda_mat(&o->in->in[1]),
                                         .y = lode_cuda_mat(&p->out)};
}

int lode_cuda_run_conv(const struct op *o) {
    const struct lode_operand *w = o->in->parts[0].w;
    const struct lode_state *state = o->step->segments[0].state;
    struct lode_cuda_recur_args a = recur_args(o);
    uint32_t rows = 1;
    a.at = within(o, lode_state_inputs(state, o->in->p.conv.layer, false));
    a.w_stride = lode_cuda_row_size(w->type, w->cols);
    a.width = o->in->in[0].width;
    a.taps = o->in->p.conv.taps;
    a.silu = o->in->p.conv.silu;
    for (uint32_t i = 0; i < o->step->n_segments; i++)
        rows = o->step->segments[i].n_rows > rows ? o->step->segments[i].n_rows : rows;
    return lode_cuda_run_kernel(o, o->r->c->kernels.conv, (a.width - 1) / CONV_COLUMNS + 1,
                                (rows - 1) / LODE_CUDA_CONV_ROWS + 1, o->step->n_segments,
                                CONV_COLUMNS, 0, &a);
}

int lode_cuda_run_delta_gates(const struct op *o) {
    struct lode_cuda_recur_args a = recur_args(o);
    a.n_heads = o->in->parts[0].out.width / 2;
    return lode_cuda_run_kernel(o, o->r->c->kernels.delta_gates, o->n, (a.n_heads - 1) / 128 + 1, 1,
                                128, 0, &a);
}

/* Whether all rows can be read n bytes at a time. */
static bool is_whole(struct lode_cuda_mat m, uint32_t n) { return m.data % n == 0 && m.stride % n == 0; }

int lode_cuda_run_delta(const struct op *o) {
    const union lode_op_params *p = &o->in->p;
    const struct lode_cuda_kernels *k = &o->r->c->kernels;
    struct lode_cuda_recur_args a = recur_args(o);
    a.at = within(o, lode_state_delta(o->step->segments[0].state, p->delta.layer, 0, false));
    a.n_k_heads = p->delta.n_k_heads;
    a.n_heads = p->delta.n_heads;
    a.dim_k = p->delta.dim_k;
    a.dim_v = p->delta.dim_v;
    a.tiled = p->delta.tiled;
    const uint32_t blocks = a.n_heads * ((a.dim_v - 1) / DELTA_COLUMNS + 1), segments = o->step->n_segments;
    void *kernel = a.dim_k == 128 ? k->delta_128 : a.dim_k == 64 ? k->delta_64 : NULL;
    if (kernel && is_whole(a.x, 16) && is_whole(a.gates, 8))
        return lode_cuda_run_kernel(o, kernel, blocks, segments, 1, DELTA_COLUMNS, 0, &a);
    return lode_cuda_run_kernel(o, k->delta_any, blocks, segments, 1, DELTA_COLUMNS, 3 * a.dim_k * (uint32_t)sizeof(float), &a);
}
