/* linear.c - matrix products, the bulk of the work.
 *
 * All parts of an instruction are cut into panels of weight rows, and where these get small for the
 * kernels, a long prompt's rows into pieces too; a task multiplies a panel with a piece.  The result of
 * one (row, column) is a kernel's dot product and does not depend on the cut (kern.h).
 */
#include "backend/cpu/cpu.h"

struct job {
    struct lode_cpu *cpu;
    const struct lode_instr *in;
    uint32_t n_rows, panel;
    uint32_t piece, n_pieces; /* of the step's rows */
};

static bool widened(const struct lode_cpu *c, enum lode_dtype type) {
    const enum lode_dtype act = lode_dtypes[type].act;
    return act == LODE_NONE || (c->float_act && act != LODE_F32);
}

/* Types without a product of their own: a few rows at a time become floats. */
static void mul_widened(const struct lode_cpu *c, float *rows, float *y, size_t ldy,
                        const struct lode_operand *w, const char *data, size_t row_size, size_t n,
                        const char *x, size_t x_stride, uint32_t n_rows) {
    const size_t cols = w->cols, wide = (cols + 15) & ~(size_t)15;
    for (size_t r = 0; r < n; r += LODE_WIDEN_ROWS) {
        const size_t m = n - r < LODE_WIDEN_ROWS ? n - r : LODE_WIDEN_ROWS;
        for (size_t i = 0; i < m; i++)
            c->kern.dequant[w->type](rows + i * wide, data + (r + i) * row_size, cols);
        c->kern.mul_f32(y + r, ldy, rows, wide * sizeof(float), m, x, x_stride, n_rows, cols);
    }
}

void lode_cpu_mul(const struct lode_cpu *c, uint32_t worker, float *y, size_t ldy,
                  const struct lode_operand *w, const char *data, size_t n, const char *x,
                  size_t x_stride, uint32_t n_rows, bool fast) {
    size_t row_size = 0;
    lode_dtype_row_size(w->type, w->cols, &row_size);
    /* 8-bit floats cost more to widen than to multiply with a column or two; the bits are the same */
    const bool fp8 = w->type == LODE_E4M3 || w->type == LODE_E5M2;
    if (fast)
        lode_fast_of(c->fast, w->type)(y, ldy, data, row_size, n, x, x_stride, n_rows, w->cols);
    else if (widened(c, w->type) || (fp8 && n_rows > 4))
        mul_widened(c, (float *)lode_cpu_scratch(c, worker), y, ldy, w, data, row_size, n, x,
                    x_stride, n_rows);
    else
        c->kern.mul[w->type](y, ldy, data, row_size, n, x, x_stride, n_rows, w->cols);
}

static void run_panel(void *arg, uint32_t task, uint32_t worker) {
    const struct job *j = arg;
    const struct lode_part *part = j->in->parts;
    uint32_t panels;
    const uint32_t row = task % j->n_pieces * j->piece; /* neighbours share a panel */
    const uint32_t n_rows = j->n_rows - row < j->piece ? j->n_rows - row : j->piece;
    task /= j->n_pieces;
    while (task >= (panels = (part->w->rows + j->panel - 1) / j->panel)) {
        task -= panels;
        part++;
    }
    const struct lode_operand *w = part->w;
    const struct lode_value *in = &j->in->in[0];
    const uint32_t first = task * j->panel;
    const uint32_t n = w->rows - first < j->panel ? w->rows - first : j->panel;
    size_t row_size = 0;
    lode_dtype_row_size(w->type, w->cols, &row_size);
    const char *data = (const char *)part->w_data + first * row_size;
    const size_t ldy = part->out.stride / sizeof(float);
    float *y = (float *)part->out.data + row * ldy + first;
    const bool fast = lode_cpu_fast(j->cpu, w);
    const char *x = fast ? j->cpu->rounded : in->data;
    const size_t x_stride = fast ? j->cpu->rounded_stride : in->stride;
    lode_cpu_mul(j->cpu, worker, y, ldy, w, data, n, x + row * x_stride, x_stride, n_rows, fast);
    if (part->bias_data)
        for (uint32_t r = 0; r < n_rows; r++)
            j->cpu->kern.add(y + r * ldy, y + r * ldy, (const float *)part->bias_data + first, n);
}

static void round_row(void *arg, uint32_t row, uint32_t worker) {
    const struct job *j = arg;
    const struct lode_value *x = &j->in->in[0];
    (void)worker;
    lode_cpu_round(j->cpu, j->cpu->rounded + row * j->cpu->rounded_stride,
                   (const float *)(x->data + row * x->stride), x->width);
}

/* Tasks large enough that taking one costs nothing beside it, small enough that threads finish
 * together.  Multiples of 16 keep the kernels' tiles whole.  Where many rounded rows of x are prepared once for all
 * weights of a task, those are more (bench/notes/kern-amx.md). */
static void cut(struct job *j, uint32_t total, bool whole) {
    enum { LEAST_PIECE = 128, FEW = 8 };
    const bool many = j->cpu->kern.tiles && lode_dtype_is_rounded(j->in->in[0].type) && j->n_rows >= 2 * LEAST_PIECE;
    const uint32_t tasks = many ? 4 : 8, good = many ? 256 : 128, most = many ? 512 : 256; /* tasks: of a thread */
    j->piece = j->n_rows;
    for (;;) {
        j->n_pieces = j->piece ? (j->n_rows + j->piece - 1) / j->piece : 1;
        j->panel = (total / (j->cpu->threads * tasks) * j->n_pieces + 15) & ~15u;
        if (whole || j->panel >= good || j->piece < 2 * LEAST_PIECE)
            break;
        j->piece = (j->piece / 2 + 15) & ~15u;
    }
    j->panel = j->panel < 16 ? 16 : j->panel > most ? most : j->panel;
    if (j->n_rows > 1 && j->n_rows <= FEW && j->panel > good / 2 && j->panel / 16 % 2 == 0)
        j->panel -= 16; /* kern/mul_apart.h's rows lie an odd number apart */
}

void lode_cpu_linear(struct lode_backend *b, const struct lode_instr *in,
                     const struct lode_step *step) {
    struct lode_cpu *c = lode_cpu(b);
    uint32_t total = 0;
    for (uint32_t i = 0; i < in->n_parts; i++)
        total += in->parts[i].w->rows;
    struct job j = {.cpu = c, .in = in, .n_rows = lode_value_rows(&in->in[0], step)};
    bool fast = false, whole = false;
    for (uint32_t i = 0; i < in->n_parts; i++) {
        fast |= lode_cpu_fast(c, in->parts[i].w);
        whole |= widened(c, in->parts[i].w->type); /* for each piece again */
    }
    cut(&j, total, whole);
    size_t n = 0;
    for (uint32_t i = 0; i < in->n_parts; i++)
        n += (in->parts[i].w->rows + j.panel - 1) / j.panel * j.n_pieces;
    if (fast)
        lode_cpu_for(c, round_row, &j, j.n_rows, (size_t)j.n_rows * in->in[0].width);
    if (j.n_rows > 0)
        lode_cpu_for(c, run_panel, &j, n, (size_t)total * in->in[0].width);
}

/* One head's matrix, or a panel of its rows. */
static void run_head(void *arg, uint32_t task, uint32_t worker) {
    const struct job *j = arg;
    const struct lode_part *part = j->in->parts;
    const struct lode_operand *w = part->w;
    const uint32_t rows = w->rows / j->in->p.heads.n_heads, panels = (rows + j->panel - 1) / j->panel;
    const uint32_t head = task / panels, first = task % panels * j->panel;
    const uint32_t n = rows - first < j->panel ? rows - first : j->panel, row = head * rows + first;
    const struct lode_value *x = &j->in->in[0];
    size_t row_size = 0, head_size = 0;
    lode_dtype_row_size(w->type, w->cols, &row_size);
    lode_dtype_row_size(x->type, w->cols, &head_size);
    lode_cpu_mul(j->cpu, worker, (float *)part->out.data + row, part->out.stride / sizeof(float), w,
                 (const char *)part->w_data + row * row_size, n, x->data + head * head_size,
                 x->stride, j->n_rows, false);
}

void lode_cpu_heads(struct lode_backend *b, const struct lode_instr *in,
                    const struct lode_step *step) {
    struct lode_cpu *c = lode_cpu(b);
    const struct lode_operand *w = in->parts[0].w;
    struct job j = {
        .cpu = c, .in = in, .n_rows = lode_value_rows(&in->in[0], step), .panel = 64};
    const uint32_t n_heads = in->p.heads.n_heads;
    if (j.n_rows > 0)
        lode_cpu_for(c, run_head, &j, (size_t)n_heads * ((w->rows / n_heads + 63) / 64),
                     (size_t)w->rows * w->cols);
}
