/* products.c - how fast the CPU goes through a model's weights where memory does not hold it up.
 *
 * A product of one column takes as long as its kernel or as the memory that its weights come from, whichever is
 * slower: with AVX2 two cores go through 31 GB/s of Q6_K and 38 of Q4_K, and their memory gives 36 GB/s in one
 * minute and 70 in another.  Each type is tried on rows of the length that most of its bytes have, a panel a
 * thread, small enough for its own cache. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/machine.h"
#include "base/threads.h"
#include "kern/kern.h"
#include "lode/plan.h"
#include "model/model.h"

#include <string.h>

enum { PANEL_SIZE = 96 << 10, PASSES = 32, TASK_SIZE = 4 << 20 };
static const double seconds_each = 0.03, least_share = 0.02; /* of all bytes, that a type must have */

struct kind {
    double bytes;   /* that a token reads of weights of this type */
    uint32_t cols;  /* of the matrix with the most of them */
    double largest; /* bytes of that */
};

struct job {
    const struct lode_kern *kern;
    enum lode_dtype type;
    size_t row, x_row; /* bytes */
    uint32_t rows, cols, n_repeats;
    char *w; /* (threads, rows, row) */
    char *x; /* (x_row) */
    float *y; /* (threads, rows) */
};

static void count_kinds(struct kind kinds[LODE_DTYPE_COUNT], const struct lode_plan *plan) {
    for (uint32_t i = 0; i < plan->n_instrs; i++) {
        const struct lode_plan_instr *in = &plan->instrs[i];
        for (uint32_t k = 0; k < in->n_parts && in->op != LODE_OP_EMBED; k++) {
            const struct lode_operand *op = plan->parts[in->first_part + k].w;
            size_t row = 0;
            if (!op || !lode_dtype_row_size(op->type, op->cols, &row))
                continue;
            const double bytes = (double)row * (double)op->rows * (op->count > 1 ? plan->experts.n_used : 1);
            struct kind *kind = &kinds[op->type];
            kind->bytes += bytes;
            if (bytes > kind->largest) {
                kind->largest = bytes;
                kind->cols = op->cols;
            }
        }
    }
}

static void multiply(void *arg, uint32_t task, uint32_t worker) {
    const struct job *j = arg;
    (void)task;
    const size_t first = (size_t)worker * j->rows;
    for (uint32_t i = 0; i < j->n_repeats; i++)
        j->kern->mul[j->type](j->y + first, j->rows, j->w + first * j->row, j->row, j->rows, j->x, j->x_row, 1, j->cols);
}

/* What a quarter of the passes exceed, as lode_machine_read_bandwidth counts. */
static double usual_speed(struct lode_pool *pool, struct job *j) {
    double speeds[PASSES]; /* descending */
    size_t n = 0;
    const double bytes = (double)lode_pool_threads(pool) * j->n_repeats * j->rows * (double)j->row;
    const double end = lode_clock() + seconds_each;
    do {
        const double start = lode_clock();
        lode_pool_run(pool, multiply, j, lode_pool_threads(pool));
        const double v = bytes / (lode_clock() - start);
        size_t at = n++;
        for (; at > 0 && speeds[at - 1] < v; at--)
            speeds[at] = speeds[at - 1];
        speeds[at] = v;
    } while (n < PASSES && lode_clock() < end);
    return speeds[n / 4];
}

/* Bytes/s, 0 where the type has no product of its own; or an error code. */
static double try_type(struct lode_pool *pool, const struct lode_kern *kern, enum lode_dtype type, uint32_t cols,
                       struct lode_error *err) {
    const enum lode_dtype act = lode_dtypes[type].act;
    const size_t threads = lode_pool_threads(pool);
    struct job j = {.kern = kern, .type = type, .cols = cols};
    if (act == LODE_NONE || !kern->mul[type] || !lode_dtype_row_size(type, cols, &j.row) ||
        !lode_dtype_row_size(act, cols, &j.x_row))
        return 0;
    j.rows = j.row < PANEL_SIZE ? (uint32_t)(PANEL_SIZE / j.row) : 1;
    j.n_repeats = (uint32_t)(TASK_SIZE / (j.rows * j.row)) + 1;
    j.w = lode_alloc_aligned(64, threads * j.rows, j.row);
    j.x = lode_alloc_aligned(64, 1, j.x_row);
    j.y = lode_alloc_aligned(64, threads * j.rows, sizeof *j.y);
    double speed = LODE_ERR_NOMEM;
    if (j.w && j.x && j.y) { /* zeros: a kernel's time does not depend on the numbers */
        memset(j.w, 0, threads * j.rows * j.row);
        memset(j.x, 0, j.x_row);
        speed = usual_speed(pool, &j);
    } else {
        lode_fail_nomem(err, "the matrices that measure products");
    }
    lode_free_aligned(j.w);
    lode_free_aligned(j.x);
    lode_free_aligned(j.y);
    return speed;
}

double lode_model_multiply_bandwidth(const struct lode_model *m, uint32_t threads, struct lode_error *err) {
    struct kind kinds[LODE_DTYPE_COUNT] = {0};
    struct lode_kern kern;
    struct lode_pool *pool;
    count_kinds(kinds, &m->plans[LODE_BODY]);
    count_kinds(kinds, &m->plans[LODE_HEAD]);
    double all = 0, tried = 0, seconds = 0;
    for (int t = 0; t < LODE_DTYPE_COUNT; t++)
        all += kinds[t].bytes;
    lode_kern_table(&kern, m->isa);
    LODE_TRY(lode_pool_create(&pool, threads ? threads : lode_machine_default_threads(), true, err));
    int rc = 0;
    for (int t = 0; rc == 0 && t < LODE_DTYPE_COUNT; t++) {
        if (!(kinds[t].bytes > least_share * all))
            continue;
        const double speed = try_type(pool, &kern, (enum lode_dtype)t, kinds[t].cols, err);
        rc = speed < 0 ? (int)speed : 0;
        tried += speed > 0 ? kinds[t].bytes : 0;
        seconds += speed > 0 ? kinds[t].bytes / speed : 0;
    }
    lode_pool_free(pool);
    return rc < 0 ? rc : seconds > 0 ? tried / seconds : 0;
}
