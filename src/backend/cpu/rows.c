/* rows.c - ops that treat every row by itself: norms, sums, activations, rotations. */
#include "backend/cpu/cpu.h"

#include "base/dmath.h"
#include "kern/expf.h"

#include <math.h>
#include <string.h>

struct row_task {
    const struct lode_cpu *cpu;
    const struct lode_instr *in; /* the one that is run */
    const struct lode_step *step;
    const struct lode_value *out;
};

typedef void row_fn(const struct row_task *t, uint32_t row, char *y, const char *a, const char *b);

struct rows_job {
    const struct lode_cpu *cpu;
    const struct lode_instr *in; /* (n), one after the other for each row */
    const struct lode_step *step;
    uint32_t n, n_rows, rows_per_task;
};

static row_fn *const row_fns[LODE_OP_COUNT]; /* below; NULL: such an op takes more than a row */

static char *row_of(const struct lode_value *v, uint32_t r) {
    return v->data ? v->data + r * v->stride : NULL;
}

/* Whose rows an instruction treats: what it makes, or reads where it makes none. */
static const struct lode_value *rows_of(const struct lode_instr *in) {
    return in->parts[0].out.data ? &in->parts[0].out : &in->in[0];
}

static void run_rows(void *arg, uint32_t task, uint32_t worker) {
    const struct rows_job *j = arg;
    (void)worker;
    const uint32_t first = task * j->rows_per_task;
    const uint32_t last =
        first + j->rows_per_task < j->n_rows ? first + j->rows_per_task : j->n_rows;
    for (uint32_t r = first; r < last; r++)
        for (uint32_t i = 0; i < j->n; i++) {
            const struct lode_instr *in = &j->in[i];
            const struct row_task t = {j->cpu, in, j->step, &in->parts[0].out};
            if (row_fns[in->op])
                row_fns[in->op](&t, r, row_of(t.out, r), row_of(&in->in[0], r), row_of(&in->in[1], r));
        }
}

void lode_cpu_row_by_row(struct lode_backend *b, const struct lode_instr *in, uint32_t n,
                         const struct lode_step *step) {
    struct lode_cpu *c = lode_cpu(b);
    struct rows_job j = {.cpu = c, .in = in, .step = step, .n = n, .n_rows = lode_value_rows(rows_of(in), step)};
    size_t width = 0;
    for (uint32_t i = 0; i < n; i++)
        width += in[i].parts[0].out.width > in[i].in[0].width ? in[i].parts[0].out.width : in[i].in[0].width;
    j.rows_per_task = j.n_rows > 4 * c->threads ? j.n_rows / (4 * c->threads) : 1;
    lode_cpu_for(c, run_rows, &j, (j.n_rows + j.rows_per_task - 1) / j.rows_per_task, j.n_rows * width);
}

/* Layers end without anybody's looking on: nothing is to be done. */
static bool unseen(const struct lode_instr *in, const struct lode_step *step) {
    return in->op == LODE_OP_TRACE && !step->trace;
}

uint32_t lode_cpu_together(const struct lode_instr *in, uint32_t n, const struct lode_step *step) {
    uint32_t i = 0;
    while (i < n && (row_fns[in[i].op] || unseen(&in[i], step)) && rows_of(&in[i])->rows == rows_of(in)->rows)
        i++;
    return i;
}

void lode_cpu_rows(struct lode_backend *b, const struct lode_instr *in, const struct lode_step *step) {
    lode_cpu_row_by_row(b, in, 1, step);
}

static const struct lode_segment *segment_of(const struct lode_step *step, uint32_t row) {
    const struct lode_segment *s = step->segments;
    while (row >= s->first_row + s->n_rows)
        s++;
    return s;
}

static uint32_t position_of(const struct lode_step *step, uint32_t row) {
    const struct lode_segment *s = segment_of(step, row);
    return s->pos + (row - s->first_row);
}

/* Tables of positions and parts have a row for each that a step may hold: the engine sees to it. */
static size_t embedded(const struct row_task *t, uint32_t r) {
    const struct lode_segment *s;
    switch (t->in->p.embed.by) {
    case LODE_BY_POSITION:
        return position_of(t->step, r);
    case LODE_BY_PART:
        s = segment_of(t->step, r);
        return r - s->first_row >= s->second;
    case LODE_BY_TOKEN:
        break;
    }
    return (size_t)t->step->tokens[r];
}

static void embed_row(const struct row_task *t, uint32_t r, char *y, const char *a, const char *b) {
    (void)a;
    (void)b;
    const struct lode_part *part = &t->in->parts[0];
    const struct lode_operand *w = part->w;
    size_t row_size = 0;
    lode_dtype_row_size(w->type, w->cols, &row_size);
    const char *src = (const char *)part->w_data + embedded(t, r) * row_size;
    t->cpu->kern.dequant[w->type]((float *)y, src, w->cols);
    if (t->in->p.embed.scale != 1.0f)
        t->cpu->kern.scale((float *)y, (float *)y, t->in->p.embed.scale, w->cols);
}

static void norm_row(const struct row_task *t, uint32_t r, char *y, const char *a, const char *b) {
    (void)r;
    (void)b;
    const uint32_t group = t->in->p.rms_norm.group;
    for (uint32_t i = 0; i < t->out->width; i += group)
        t->cpu->kern.rms_norm((float *)y + i, (const float *)a + i, t->in->parts[0].w_data, group,
                              t->in->p.rms_norm.eps);
}

static void layer_norm_row(const struct row_task *t, uint32_t r, char *y, const char *a,
                           const char *b) {
    (void)r;
    (void)b;
    const uint32_t group = t->in->p.layer_norm.group;
    for (uint32_t i = 0; i < t->out->width; i += group)
        t->cpu->kern.layer_norm((float *)y + i, (const float *)a + i, t->in->parts[0].w_data,
                                t->in->parts[0].bias_data, group, t->in->p.layer_norm.eps);
}

static void quant_row(const struct row_task *t, uint32_t r, char *y, const char *a, const char *b) {
    (void)r;
    (void)b;
    const struct lode_kern *k = &t->cpu->kern;
    (t->out->type == LODE_A32 ? k->quant_a32 : k->quant_a256)(y, (const float *)a, t->out->width);
}

static void add_row(const struct row_task *t, uint32_t r, char *y, const char *a, const char *b) {
    (void)r;
    const struct lode_kern *k = &t->cpu->kern;
    const size_t n = t->out->width;
    if (t->in->p.add.scale == 1.0f) {
        k->add((float *)y, (const float *)a, (const float *)b, n);
        return;
    }
    if (y != a)
        memmove(y, a, n * sizeof(float));
    k->axpy((float *)y, (const float *)b, t->in->p.add.scale, n);
}

static void glu_row(const struct row_task *t, uint32_t r, char *y, const char *a, const char *b) {
    (void)r;
    lode_cpu_glu_row(&t->cpu->kern, t->in->p.glu.act, (float *)y, (const float *)a,
                     (const float *)b, t->out->width);
}

static void gate_row(const struct row_task *t, uint32_t r, char *y, const char *a, const char *b) {
    (void)r;
    const float factor = 1.0f / (1.0f + lode_expf(-*(const float *)b));
    t->cpu->kern.scale((float *)y, (const float *)a, factor, t->out->width);
}

static void l2_row(const struct row_task *t, uint32_t r, char *y, const char *a, const char *b) {
    (void)r;
    (void)b;
    const union lode_op_params *p = &t->in->p;
    const struct lode_kern *k = &t->cpu->kern;
    const uint32_t group = p->l2_norm.group, n = p->l2_norm.n;
    for (uint32_t i = 0; i < n; i += group) {
        const float *x = (const float *)a + i;
        const float scale = i < p->l2_norm.n_scaled ? p->l2_norm.scale : 1.0f;
        k->scale((float *)y + i, x, scale / sqrtf(k->dot_f32(x, x, group) + p->l2_norm.eps), group);
    }
    if (y != a)
        memcpy((float *)y + n, (const float *)a + n, (t->out->width - n) * sizeof(float));
}

/* In double precision, a handful of numbers a row: the decay of a state that keeps for thousands of
 * tokens is a number near 1. */
static void delta_gates_row(const struct row_task *t, uint32_t r, char *y, const char *a,
                            const char *b) {
    (void)r;
    (void)b;
    const float *rate = t->in->parts[0].w_data, *dt = t->in->parts[0].bias_data;
    const float *in = (const float *)a;
    float *out = (float *)y;
    for (uint32_t h = 0; h < t->out->width / 2; h++) {
        const double x = (double)in[2 * h] + (double)dt[h];
        const double softplus = x > 30 ? x : lode_log(1 + lode_exp(x));
        out[2 * h] = (float)lode_exp((double)rate[h] * softplus);
        out[2 * h + 1] = 1.0f / (1.0f + lode_expf(-in[2 * h + 1]));
    }
}

static void act_row(const struct row_task *t, uint32_t r, char *y, const char *a, const char *b) {
    (void)r;
    (void)b;
    const struct lode_kern *k = &t->cpu->kern;
    switch (t->in->p.act.act) {
    case LODE_ACT_GELU:
        k->gelu((float *)y, (const float *)a, t->out->width);
        break;
    case LODE_ACT_GELU_ERF:
        k->gelu_erf((float *)y, (const float *)a, t->out->width);
        break;
    case LODE_ACT_RELU2:
        k->relu2((float *)y, (const float *)a, t->out->width);
        break;
    }
}

static void scale_row(const struct row_task *t, uint32_t r, char *y, const char *a, const char *b) {
    (void)r;
    (void)b;
    t->cpu->kern.scale((float *)y, (const float *)a, t->in->p.scale.scale, t->out->width);
}

static void cap_row(const struct row_task *t, uint32_t r, char *y, const char *a, const char *b) {
    (void)r;
    (void)b;
    t->cpu->kern.softcap((float *)y, (const float *)a, t->in->p.softcap.cap, t->out->width);
}

static void gather_row(const struct row_task *t, uint32_t r, char *y, const char *a, const char *b) {
    (void)r;
    (void)b;
    const uint32_t *order = t->in->p.gather.of->order;
    for (uint32_t i = 0; i < t->out->width; i++)
        ((float *)y)[i] = ((const float *)a)[order[i]];
}

static void cut_row(const struct row_task *t, uint32_t r, char *y, const char *a, const char *b) {
    (void)r;
    (void)b;
    const uint32_t n = t->in->p.cut.n_heads, width = t->out->width / n;
    const uint32_t whole = t->in->in[0].width / n;
    for (uint32_t h = 0; h < n; h++)
        memcpy((float *)y + h * width, (const float *)a + h * whole + t->in->p.cut.first,
               width * sizeof(float));
}

static void join_row(const struct row_task *t, uint32_t r, char *y, const char *a, const char *b) {
    (void)r;
    const uint32_t n = t->in->p.join.n_heads;
    const size_t size_a = t->in->in[0].width / n * sizeof(float);
    const size_t size_b = t->in->in[1].width / n * sizeof(float);
    for (uint32_t h = 0; h < n; h++, y += size_a + size_b) {
        memcpy(y, a + h * size_a, size_a);
        memcpy(y + size_a, b + h * size_b, size_b);
    }
}

void lode_cpu_pick(struct lode_backend *b, const struct lode_instr *in,
                   const struct lode_step *step) {
    (void)b;
    const struct lode_value *out = &in->parts[0].out;
    for (uint32_t i = 0; i < step->n_out; i++) /* ascending: a row never moves over a later one */
        memmove(out->data + i * out->stride, in->in[0].data + step->out_rows[i] * in->in[0].stride,
                out->width * sizeof(float));
}

void lode_cpu_trace(struct lode_backend *b, const struct lode_instr *in,
                    const struct lode_step *step) {
    (void)b;
    if (step->trace)
        step->trace(step->trace_user, in->p.trace.layer, step, (const float *)in->in[0].data,
                    in->in[0].stride, in->in[0].rows == LODE_ROWS_OUT);
}

static void temperature_row(const struct row_task *t, uint32_t r, char *y, const char *a,
                            const char *b) {
    (void)b;
    const double steps = (position_of(t->step, r) + UINT64_C(1)) / t->in->p.temperature.floor;
    const float factor = (float)(1 + (double)t->in->p.temperature.coef * lode_log(1 + steps));
    t->cpu->kern.scale((float *)y, (const float *)a, factor, t->out->width);
}

/* cos and sin of every pair at the row's position: (n_pairs, 2). */
static void table_row(const struct row_task *t, uint32_t r, char *y, const char *a, const char *b) {
    (void)a;
    (void)b;
    const struct lode_rope *rope = &segment_of(t->step, r)->ropes[t->in->p.rope_table.spec];
    const double pos = position_of(t->step, r);
    float *cs = (float *)y;
    for (uint32_t i = 0; i < rope->n_pairs; i++) {
        double sn, cn;
        lode_sincos(pos * rope->freq[i], &sn, &cn);
        cs[2 * i] = (float)(cn * rope->scale);
        cs[2 * i + 1] = (float)(sn * rope->scale);
    }
}

/* (2i, 2i + 1) of every head to (i, i + n): a piece of the upper half waits on the stack while the
 * lower moves down, so that a row can be turned in place. */
static void unpair(float *x, size_t stride, size_t n_heads, size_t n) {
    enum { PIECE = 256 };
    float wait[PIECE];
    for (size_t h = 0; h < n_heads; h++, x += stride)
        for (size_t first = 0; first < n; first += PIECE) {
            /* Before: x[0 .. first) lower, then pairs first .. n, then the upper numbers so far. */
            const size_t some = n - first < PIECE ? n - first : PIECE;
            float *pairs = x + first;
            for (size_t i = 0; i < some; i++) {
                wait[i] = pairs[2 * i + 1];
                pairs[i] = pairs[2 * i];
            }
            memmove(pairs + some, pairs + 2 * some, (2 * n - first - 2 * some) * sizeof *x);
            memcpy(x + 2 * n - some, wait, some * sizeof *x);
        }
}

static void rope_row(const struct row_task *t, uint32_t r, char *y, const char *a, const char *b) {
    (void)r;
    const size_t stride = t->in->p.rope.head_dim, n = t->in->p.rope.n_pairs;
    if (y != a)
        memcpy(y, a, t->out->width * sizeof(float));
    if (t->in->p.rope.pairs)
        unpair((float *)y, stride, t->in->p.rope.n_heads, n);
    if (b) /* UNPAIR has no table */
        t->cpu->kern.rope_half((float *)y, stride, t->in->p.rope.n_heads, (const float *)b, n);
}

static void put_row(const struct row_task *t, uint32_t r, char *y, const char *k, const char *v) {
    (void)y;
    const struct lode_segment *s = segment_of(t->step, r);
    const uint32_t layer = t->in->p.kv_put.layer, pos = position_of(t->step, r);
    const struct lode_kv_layer *l = lode_kv_layer(s->kv, layer);
    size_t stride;
    for (uint32_t h = 0; h < l->n_heads; h++) {
        char *at = lode_kv_k(s->kv, layer, h, pos / LODE_KV_PAGE, &stride);
        t->cpu->kern.kv_put[l->type_k](at + pos % LODE_KV_PAGE * stride,
                                       (const float *)k + h * l->head_dim, l->head_dim);
        if (l->v_in_k)
            continue;
        at = lode_kv_v(s->kv, layer, h, pos / LODE_KV_PAGE, &stride);
        t->cpu->kern.kv_put[l->type_v](at + pos % LODE_KV_PAGE * stride,
                                       (const float *)v + h * l->head_dim_v, l->head_dim_v);
    }
}

static row_fn *const row_fns[LODE_OP_COUNT] = {
#define ROW_FN(op, fn) [LODE_OP_##op] = fn,
    LODE_CPU_ROW_OPS(ROW_FN)
#undef ROW_FN
};
