/* recur.c - layers that carry a state from token to token.
 *
 * A sequence's rows are worked off in order, by one task for each share of columns or heads, so
 * that the share's state stays near from row to row; tasks split the state and never the sequence,
 * and what a row gives does not depend on how many of them there are, or on which rows share its
 * step. Where the step leaves a checkpoint (store/state.h), each task copies its share in passing.
 */
#include "backend/cpu/cpu.h"

#include "base/dmath.h"
#include "kern/expf.h"

#include <math.h>

struct job {
    const struct lode_cpu *cpu;
    const struct lode_instr *in;
    const struct lode_step *step;
    uint32_t share;  /* columns of a task */
    uint32_t shares; /* tasks of a segment */
};

static const float *in_row(const struct job *j, const struct lode_segment *seg, uint32_t r) {
    const struct lode_value *x = &j->in->in[0];
    return (const float *)(x->data + (size_t)(seg->first_row + r) * x->stride);
}

static float *out_row(const struct job *j, const struct lode_segment *seg, uint32_t r) {
    const struct lode_value *y = &j->in->parts[0].out;
    return (float *)(y->data + (size_t)(seg->first_row + r) * y->stride);
}

static void run_segments(struct lode_backend *b, struct job *j, lode_pool_fn *fn, size_t work) {
    lode_cpu_for(lode_cpu(b), fn, j, (size_t)j->step->n_segments * j->shares, work);
}

/* ---- convolution ---- */

enum { CONV_COLUMNS = 256 }; /* of a task: their weights stay in the nearest cache */

/* Input i of n_rows new ones and the `inputs` before them (i counted from the oldest of these). */
static const float *input(const struct job *j, const struct lode_segment *seg, const float *before,
                          uint32_t inputs, uint32_t i) {
    return i < inputs ? before + (size_t)i * j->in->in[0].width : in_row(j, seg, i - inputs);
}

/* The last inputs after n rows. */
static void keep_inputs(const struct job *j, const struct lode_segment *seg, const float *before,
                        float *kept, uint32_t inputs, uint32_t n, uint32_t first,
                        uint32_t columns) {
    for (uint32_t i = 0; i < inputs; i++) /* ascending: kept may be before */
        memmove(kept + (size_t)i * j->in->in[0].width + first,
                input(j, seg, before, inputs, n + i) + first, columns * sizeof(float));
}

static void conv_task(void *arg, uint32_t task, uint32_t worker) {
    const struct job *j = arg;
    (void)worker;
    const struct lode_segment *seg = &j->step->segments[task / j->shares];
    const uint32_t taps = j->in->p.conv.taps, inputs = taps - 1, layer = j->in->p.conv.layer;
    const uint32_t first = task % j->shares * j->share, width = j->in->in[0].width;
    const uint32_t columns = width - first < j->share ? width - first : j->share;
    float *before = lode_state_inputs(seg->state, layer, false);
    const float *w = (const float *)j->in->parts[0].w_data + (size_t)first * taps;
    for (uint32_t r = 0; r < seg->n_rows; r++) {
        const float *x[LODE_MAX_TAPS];
        for (uint32_t t = 0; t < taps; t++)
            x[t] = input(j, seg, before, inputs, r + t) + first;
        j->cpu->kern.conv_row(out_row(j, seg, r) + first, x, w, taps, columns, j->in->p.conv.silu);
    }
    const uint32_t mark = lode_state_mark(seg->state);
    if (mark != UINT32_MAX)
        keep_inputs(j, seg, before, lode_state_inputs(seg->state, layer, true), inputs, mark, first,
                    columns);
    keep_inputs(j, seg, before, before, inputs, seg->n_rows, first, columns);
}

void lode_cpu_conv(struct lode_backend *b, const struct lode_instr *in,
                   const struct lode_step *step) {
    const uint32_t width = in->in[0].width;
    struct job j = {lode_cpu(b), in, step, CONV_COLUMNS, (width - 1) / CONV_COLUMNS + 1};
    run_segments(b, &j, conv_task, (size_t)step->n_rows * width * in->p.conv.taps);
}

/* ---- delta rule ---- */

static void delta_task(void *arg, uint32_t task, uint32_t worker) {
    const struct job *j = arg;
    (void)worker;
    const struct lode_instr *in = j->in;
    const struct lode_segment *seg = &j->step->segments[task / j->shares];
    const uint32_t dim_k = in->p.delta.dim_k, dim_v = in->p.delta.dim_v;
    const uint32_t n_k = in->p.delta.n_k_heads, n_heads = in->p.delta.n_heads;
    const uint32_t head = task % j->shares * j->share / dim_v;
    const uint32_t first = task % j->shares * j->share % dim_v;
    const uint32_t key = in->p.delta.tiled ? head % n_k : head / (n_heads / n_k);
    const size_t ldx = in->in[0].stride / sizeof(float), ldg = in->in[1].stride / sizeof(float);
    const size_t ldo = in->parts[0].out.stride / sizeof(float), part = (size_t)first * dim_k;
    const uint32_t layer = in->p.delta.layer, mark = lode_state_mark(seg->state);
    float *s = lode_state_delta(seg->state, layer, head, false) + part;
    const float *gates =
        (const float *)(in->in[1].data + (size_t)seg->first_row * in->in[1].stride) + 2 * head;
    /* up to where a checkpoint is left, and from there on */
    for (uint32_t r = 0, end; r < seg->n_rows; r = end) {
        end = mark > r && mark < seg->n_rows ? mark : seg->n_rows;
        const float *x = in_row(j, seg, r);
        j->cpu->kern.delta_rule(out_row(j, seg, r) + head * dim_v + first, ldo, s, x + key * dim_k,
                                x + (n_k + key) * dim_k, x + 2 * n_k * dim_k + head * dim_v + first,
                                ldx, gates + r * ldg, ldg, end - r, dim_k, j->share);
        if (end == mark)
            memcpy(lode_state_delta(seg->state, layer, head, true) + part, s,
                   (size_t)j->share * dim_k * sizeof *s);
    }
}

void lode_cpu_delta(struct lode_backend *b, const struct lode_instr *in,
                    const struct lode_step *step) {
    const struct lode_cpu *c = lode_cpu(b);
    const uint32_t heads = in->p.delta.n_heads, dim_v = in->p.delta.dim_v;
    /* whole heads where there are enough of them for every thread to end at the same time */
    const bool whole = dim_v % 64 != 0 || (size_t)step->n_segments * heads >= 4 * c->threads;
    const uint32_t share = whole ? dim_v : 64;
    struct job j = {c, in, step, share, heads * (dim_v / share)};
    run_segments(b, &j, delta_task, (size_t)step->n_rows * heads * dim_v * in->p.delta.dim_k);
}
