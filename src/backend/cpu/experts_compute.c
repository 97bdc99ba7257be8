/* experts_compute.c - what the experts of a wave make of their rows, all products of one kind as one parallel region; and a row's sum of
 * it. */
#include "backend/cpu/experts.h"

#include "base/clock.h"

/* What a number is for lode_cpu_for: an eighth where it is copied, eight where there is an activation to it. */
enum { COPIED = 8, ACTIVATED = 8 };

/* A pair's numbers in a row of what lies between the halves. */
static float *between(const struct lode_value *v, const struct lode_expert_pair *p, uint32_t n) {
    return (float *)(v->data + p->row * v->stride) + (size_t)p->place * n;
}

static void gather(void *arg, uint32_t task, uint32_t worker) {
    const struct wave *w = arg;
    const uint32_t i = w->x->todo[task];
    (void)worker;
    const struct lode_value *x = &w->in->in[0];
    size_t bytes = 0;
    lode_dtype_row_size(x->type, x->width, &bytes);
    char *to = w->x->x + i * w->x->x_stride;
    const char *from = x->data + w->pairs[i].row * x->stride;
    if (lode_cpu_fast(w->cpu, w->in->parts[0].w))
        lode_cpu_round(w->cpu, to, (const float *)from, x->width);
    else
        memcpy(to, from, bytes);
}

static uint32_t panels(const struct wave *w, const struct lode_operand *op) {
    return (op->rows + w->panel - 1) / w->panel;
}

static void multiply(void *arg, uint32_t task, uint32_t worker) {
    const struct wave *w = arg;
    if (w->starts && task-- == 0) {
        w->cpu->aside->ops->start(w->cpu->aside);
        return;
    }
    const int first_kind = w->down ? DOWN : GATE;
    const uint32_t n_kinds = w->down ? 1 : 2;
    const struct lode_operand *op = part_of(w->in, first_kind)->w;
    const uint32_t n_panels = panels(w, op);
    const struct share *s = &w->x->shares[w->x->ready[task / (n_panels * n_kinds)]];
    const uint32_t kind = task / n_panels % n_kinds, first = task % n_panels * w->panel;
    const uint32_t n = op->rows - first < w->panel ? op->rows - first : w->panel;
    const struct lode_part *p = part_of(w->in, first_kind + (int)kind);
    size_t row_size = 0;
    lode_dtype_row_size(p->w->type, p->w->cols, &row_size);
    float *out = w->down ? w->x->down : kind ? w->x->up : w->x->gate;
    const uint32_t ldy = w->down ? w->x->out_stride : w->x->ff_stride;
    const size_t x_stride = w->down ? w->x->h_stride : w->x->x_stride;
    const char *x = w->down ? w->x->h : w->x->x;
    float *y = out + (size_t)s->first * ldy + first;
    lode_cpu_mul(w->cpu, worker, y, ldy, p->w, s->w[first_kind + (int)kind] + first * row_size, n,
                 x + s->first * x_stride, x_stride, s->n, lode_cpu_fast(w->cpu, p->w));
    if (p->bias_data) {
        const float *bias = (const float *)p->bias_data + (size_t)s->expert * op->rows + first;
        for (uint32_t r = 0; r < s->n; r++)
            w->cpu->kern.add(y + r * ldy, y + r * ldy, bias, n);
    }
}

/* n numbers as down's product wants them. */
static void prepare_down(const struct wave *w, char *h, const float *x, uint32_t n) {
    const struct lode_kern *k = &w->cpu->kern;
    const struct lode_operand *down = part_of(w->in, DOWN)->w;
    const enum lode_dtype act = w->cpu->float_act ? LODE_F32 : lode_dtypes[down->type].act;
    if (lode_dtype_is_rounded(act))
        (act == LODE_A32 ? k->quant_a32 : k->quant_a256)(h, x, n);
    else if (lode_cpu_fast(w->cpu, down))
        lode_cpu_round(w->cpu, h, x, n);
    else
        memcpy(h, x, n * sizeof *x);
}

static void activate(void *arg, uint32_t task, uint32_t worker) {
    const struct wave *w = arg;
    const uint32_t i = w->x->todo[task];
    (void)worker;
    const struct lode_kern *k = &w->cpu->kern;
    const uint32_t n = part_of(w->in, GATE)->w->rows;
    float *gate = w->x->gate + (size_t)i * w->x->ff_stride;
    float *up = w->x->up + (size_t)i * w->x->ff_stride;
    float *y = has(w->in, DOWN) ? gate : between(&w->in->parts[0].out, &w->pairs[i], n);
    if (w->in->p.experts.weigh_input) { /* there: products are linear, their input may be rounded */
        k->scale(gate, gate, w->pairs[i].weight, n);
        k->scale(up, up, w->pairs[i].weight, n);
    }
    lode_cpu_glu_row(k, w->in->p.experts.act, y, gate, up, n);
    if (has(w->in, DOWN))
        prepare_down(w, w->x->h + i * w->x->h_stride, y, n);
}

static void receive(void *arg, uint32_t task, uint32_t worker) {
    const struct wave *w = arg;
    const uint32_t i = w->x->todo[task], n = part_of(w->in, DOWN)->w->cols;
    (void)worker;
    prepare_down(w, w->x->h + i * w->x->h_stride, between(&w->in->in[0], &w->pairs[i], n), n);
}

static void combine(void *arg, uint32_t row, uint32_t worker) {
    const struct wave *w = arg;
    (void)worker;
    const struct lode_value *out = &w->in->parts[0].out;
    const uint32_t n_used = w->in->in[1].width / 2;
    for (uint32_t k = 0; k < w->x->n_of_row[row]; k++) {
        const uint32_t i = w->x->of_row[row * n_used + k];
        w->cpu->kern.axpy((float *)(out->data + row * out->stride),
                          w->x->down + (size_t)i * w->x->out_stride,
                          w->in->p.experts.weigh_input ? 1.0f : w->pairs[i].weight, out->width);
    }
}

/* What computing takes, for the choice of who does it. */
static void note_time(struct lode_experts *x, double ns, uint32_t n_shares, uint32_t n_pairs) {
    if (n_pairs <= 2 * n_shares)
        x->share_ns += (ns / n_shares - x->share_ns) / 16;
    else if (n_pairs >= 8 * n_shares)
        x->pair_ns += (ns / n_pairs - x->pair_ns) / 16;
}

/* Rows of a task.  Of experts with few pairs as few as leave threads so many tasks that none waits for another's last one; of
 * those with many, larger panels prepare these less often. */
static uint32_t panel_of(const struct wave *w, size_t pairs) {
    enum { FEW = 16, TASKS = 4, EVEN = 8, LEAST = 16 };
    const size_t rows = (size_t)w->n_ready * w->in->parts[0].w->rows;
    if (pairs < FEW * (size_t)w->n_ready) {
        uint32_t panel = 64;
        while (panel > LEAST && rows < panel * (size_t)EVEN * w->cpu->threads)
            panel /= 2;
        return panel;
    }
    return rows >= 256 * (size_t)TASKS * w->cpu->threads ? 256 : 128;
}

void lode_experts_compute(struct wave *w) {
    struct lode_cpu *c = w->cpu;
    const struct lode_instr *in = w->in;
    const uint64_t begun = lode_clock_ns();
    w->n_todo = 0;
    for (uint32_t i = 0; i < w->n_ready; i++) {
        const struct share *s = &w->x->shares[w->x->ready[i]];
        for (uint32_t k = 0; k < s->n; k++)
            w->x->todo[w->n_todo++] = s->first + k;
    }
    const size_t pairs = w->n_todo;
    w->panel = panel_of(w, pairs);
    if (has(in, GATE)) {
        const struct lode_operand *gate = part_of(in, GATE)->w;
        lode_cpu_for(c, gather, w, pairs, pairs * gate->cols / (lode_cpu_fast(c, gate) ? 1 : COPIED));
        w->down = false;
        lode_cpu_for(c, multiply, w, 2 * (size_t)w->n_ready * panels(w, gate) + w->starts, 2 * pairs * gate->rows * gate->cols);
        w->starts = false;
        lode_cpu_for(c, activate, w, pairs, pairs * gate->rows * ACTIVATED);
    }
    if (has(in, DOWN)) {
        const struct lode_operand *down = part_of(in, DOWN)->w;
        if (!has(in, GATE))
            lode_cpu_for(c, receive, w, pairs, pairs * down->cols);
        w->down = true;
        lode_cpu_for(c, multiply, w, (size_t)w->n_ready * panels(w, down), pairs * down->rows * down->cols);
    }
    note_time(w->x, (double)(lode_clock_ns() - begun), w->n_ready, w->n_todo);
}

void lode_experts_add_up(struct wave *w) {
    if (!has(w->in, DOWN))
        return;
    const uint32_t n_used = w->in->in[1].width / 2;
    memset(w->x->n_of_row, 0, w->n_rows * sizeof *w->x->n_of_row);
    for (uint32_t i = 0; i < w->n_pairs; i++) {
        const uint32_t r = w->pairs[i].row;
        w->x->of_row[r * n_used + w->x->n_of_row[r]++] = i;
    }
    lode_cpu_for(w->cpu, combine, w, w->n_rows, (size_t)w->n_pairs * part_of(w->in, DOWN)->w->rows);
}
