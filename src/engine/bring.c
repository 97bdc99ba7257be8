#include "engine/bring.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/machine.h"

#include <math.h>

#define BUS_SHARE 0.8 /* of the bus's speed, what weights come to that are copied on their way */
#define BORDER_SECONDS 20e-6
enum { LEAST_ROWS = 16 /* steps of fewer are a token or a few, whose time is the memory's */ };

static void count_copies(const struct lode_plan *p, double sign, struct lode_bringing *b) {
    for (uint32_t i = 0; i < p->n_copies; i++) {
        b->row_bytes += sign * (double)lode_plan_row_size(p, p->copies[i].from);
        b->borders += sign;
    }
}

struct lode_bringing lode_bringing(const struct lode_plan *plans) {
    const struct lode_plan *p = &plans[LODE_MANY];
    struct lode_bringing b = {0};
    uint64_t of[LODE_DTYPE_COUNT] = {0};
    if (p->n_instrs == 0)
        return b;
    for (uint32_t i = 0; i < p->n_parts; i++) {
        const struct lode_operand *w = p->parts[i].w;
        size_t row = 0;
        if (!p->parts[i].brought)
            continue;
        lode_dtype_row_size(w->type, w->cols, &row);
        b.bytes += (uint64_t)row * w->rows;
        b.macs += (uint64_t)w->rows * w->cols;
        of[w->type] += (uint64_t)w->rows * w->cols;
        if (of[w->type] > of[b.type] || !b.cols) {
            b.type = w->type;
            b.cols = w->cols;
        }
    }
    count_copies(p, 1, &b);
    count_copies(&plans[LODE_BODY], -1, &b);
    return b;
}

/* A few milliseconds of one thread, whose cache has all of it, as tiles of a large product have theirs. */
double lode_product_speed(const struct lode_model *m, enum lode_dtype type, uint32_t cols, uint32_t threads) {
    enum { ROWS = 64, X = 64, TIMES = 4 };
    struct lode_kern kern;
    lode_kern_table(&kern, m->isa);
    type = kern.mul[type] && !m->opts.float_act ? type : LODE_F32; /* others are widened, and multiplied as that */
    const enum lode_dtype act = type == LODE_F32 ? LODE_F32 : lode_dtypes[type].act;
    size_t row = 0, x_row = 0;
    cols = (cols < 4096 ? cols : 4096) / 256 * 256;
    cols = cols ? cols : 256;
    lode_dtype_row_size(type, cols, &row);
    lode_dtype_row_size(act, cols, &x_row);
    char *w = lode_alloc_zero(ROWS, row), *x = lode_alloc_zero(X, x_row);
    float *y = LODE_NEW_ARRAY(float, ROWS * X);
    double best = 0;
    for (int i = 0; w && x && y && i < TIMES; i++) {
        const uint64_t begun = lode_clock_ns();
        kern.mul[type](y, ROWS, w, row, ROWS, x, x_row, X, cols);
        const double speed = 1e9 * ROWS * X * cols / (double)(lode_clock_ns() - begun + 1);
        best = speed > best ? speed : best;
    }
    lode_free(w);
    lode_free(x);
    lode_free(y);
    return best * (threads ? threads : lode_machine_default_threads());
}

double lode_bring_seconds(const struct lode_bringing *b, double bus, uint32_t rows) {
    return ((double)b->bytes + rows * b->row_bytes) / (BUS_SHARE * bus) + b->borders * BORDER_SECONDS;
}

uint32_t lode_bring_rows(const struct lode_bringing *b, double bus, double speed) {
    if (!b->bytes || !(bus > 0) || !(speed > 0))
        return UINT32_MAX;
    const double saved = (double)b->macs / speed - b->row_bytes / (BUS_SHARE * bus);
    const double rows = ceil(lode_bring_seconds(b, bus, 0) / saved);
    return saved <= 0 || rows >= (double)UINT32_MAX ? UINT32_MAX : rows < LEAST_ROWS ? LEAST_ROWS : (uint32_t)rows;
}

uint32_t lode_bring_least_rows(const struct lode_model *m, const struct lode_plan *plans, uint32_t threads) {
    const struct lode_bringing b = lode_bringing(plans);
    return lode_bring_rows(&b, m->bus_speed, b.bytes ? lode_product_speed(m, b.type, b.cols, threads) : 0);
}
