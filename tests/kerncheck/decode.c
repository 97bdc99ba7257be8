/* decode.c - products of one to eight columns by all threads, weights from memory.
 *
 *     kerncheck --decode [-t THREADS] [--isa NAME] [TYPE...]
 *
 * Matrices of 4096 numbers a row and 256 MB.  What memory gives changes within seconds where a machine
 * shares it, so each round measures plain reads, then the products, then reads again: shares and ratios are
 * of one round, printed are their medians (and quartiles).
 */
#include "decode.h"

#include "blocks.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/machine.h"
#include "base/threads.h"
#include "tensor/dtype.h"
#include "tools/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLS = 4096, PANEL = 256, ROUNDS = 9, PASSES = 8, MOST_COLUMNS = 8 };
static const size_t SIZE = (size_t)1 << 28;
static const size_t n_columns[] = {1, 4, MOST_COLUMNS};
enum { WIDTHS = sizeof n_columns / sizeof *n_columns };

struct product {
    const struct lode_kern *kern;
    enum lode_dtype type;
    size_t row, x_row, n_x; /* bytes, bytes, columns */
    const char *w;          /* (panels * PANEL, row) */
    const char *x;          /* (MOST_COLUMNS, x_row) */
    float *y;               /* (MOST_COLUMNS, panels * PANEL) */
    uint32_t panels;
};

static void multiply(void *arg, uint32_t task, uint32_t worker) {
    const struct product *p = arg;
    (void)worker;
    p->kern->mul[p->type](p->y + (size_t)task * PANEL, (size_t)p->panels * PANEL,
                          p->w + (size_t)task * PANEL * p->row, p->row, PANEL, p->x, p->x_row, p->n_x, COLS);
}

/* Seconds that a quarter of the passes undercut, as lode_machine_read_bandwidth counts. */
static double time_pass(struct lode_pool *pool, struct product *p) {
    double took[PASSES];
    for (int i = 0; i < PASSES; i++) {
        const double start = lode_clock();
        lode_pool_run(pool, multiply, p, p->panels);
        took[i] = lode_clock() - start;
    }
    qsort(took, PASSES, sizeof *took, order_doubles);
    return took[PASSES / 4];
}

static void measure(struct lode_pool *pool, struct product *p, const char *name) {
    double reads[ROUNDS + 1], share[ROUNDS], speed[ROUNDS], cost[WIDTHS][ROUNDS];
    const uint32_t threads = lode_pool_threads(pool);
    const double bytes = (double)p->panels * PANEL * (double)p->row;
    reads[0] = lode_machine_read_bandwidth(threads, 0.1, NULL);
    for (int r = 0; r < ROUNDS; r++) {
        double took[WIDTHS];
        for (int c = 0; c < WIDTHS; c++) {
            p->n_x = n_columns[c];
            took[c] = time_pass(pool, p);
            cost[c][r] = took[c] / took[0];
        }
        reads[r + 1] = lode_machine_read_bandwidth(threads, 0.1, NULL);
        speed[r] = bytes / took[0];
        share[r] = speed[r] / ((reads[r] + reads[r + 1]) / 2);
    }
    qsort(reads, ROUNDS + 1, sizeof *reads, order_doubles);
    qsort(speed, ROUNDS, sizeof *speed, order_doubles);
    qsort(share, ROUNDS, sizeof *share, order_doubles);
    for (int c = 1; c < WIDTHS; c++)
        qsort(cost[c], ROUNDS, sizeof *cost[c], order_doubles);
    printf("| %-8s | %7.1f | %7.1f | %3.0f %% (%.0f-%.0f) | %5.2f (%.2f-%.2f) | %5.2f (%.2f-%.2f) |\n", name,
           reads[ROUNDS / 2] / 1e9, speed[ROUNDS / 2] / 1e9, 100 * share[ROUNDS / 2], 100 * share[ROUNDS / 4],
           100 * share[ROUNDS - 1 - ROUNDS / 4], cost[1][ROUNDS / 2], cost[1][ROUNDS / 4],
           cost[1][ROUNDS - 1 - ROUNDS / 4], cost[2][ROUNDS / 2], cost[2][ROUNDS / 4],
           cost[2][ROUNDS - 1 - ROUNDS / 4]);
    fflush(stdout);
}

/* One panel of valid numbers, again and again. */
static void fill(struct kc *t, struct product *p, char *w) {
    const size_t panel = PANEL * p->row;
    if (lode_dtypes[p->type].act != LODE_NONE && lode_dtypes[p->type].act != LODE_F32)
        blocks_fill(t, p->type, w, panel, BLOCKS_FINITE);
    else
        for (size_t i = 0; i < panel; i += 2) { /* finite in F16 and BF16 */
            const uint16_t v = (uint16_t)((kc_bits(t) & 0x83ff) | 0x3800);
            memcpy(w + i, &v, sizeof v);
        }
    for (uint32_t i = 1; i < p->panels; i++)
        memcpy(w + i * panel, w, panel);
}

static int measure_type(struct kc *t, struct lode_pool *pool, enum lode_dtype type) {
    struct product p = {.kern = t->now, .type = type};
    const enum lode_dtype act = lode_dtypes[type].act;
    lode_dtype_row_size(type, COLS, &p.row);
    lode_dtype_row_size(act == LODE_NONE ? LODE_F32 : act, COLS, &p.x_row);
    p.panels = (uint32_t)(SIZE / (PANEL * p.row));
    char *w = lode_alloc_large(p.panels, PANEL * p.row); /* as files lie in the page cache */
    char *x = lode_alloc_aligned(64, MOST_COLUMNS, p.x_row);
    p.y = lode_alloc_aligned(64, (size_t)p.panels * PANEL * MOST_COLUMNS, sizeof *p.y);
    p.w = w, p.x = x;
    if (w && x && p.y) {
        memset(x, 0, MOST_COLUMNS * p.x_row); /* a kernel's time does not depend on the numbers */
        fill(t, &p, w);
        measure(pool, &p, lode_dtypes[type].name);
    }
    const bool ok = w && x && p.y;
    lode_free_aligned(w);
    lode_free_aligned(x);
    lode_free_aligned(p.y);
    return ok ? 0 : -1;
}

int kc_decode(struct kc *t, uint32_t threads, char **names, int n) {
    static const enum lode_dtype usual[] = {LODE_Q4_0,   LODE_Q4_K, LODE_Q5_K,  LODE_Q6_K, LODE_IQ4_XS,
                                            LODE_Q8_0, LODE_MXFP4,  LODE_F16, LODE_BF16};
    struct lode_pool *pool;
    struct lode_error err;
    if (lode_pool_create(&pool, threads ? threads : lode_machine_default_threads(), true, &err) < 0)
        return -1;
    printf("%s, %u threads, %d numbers a row; medians (and quartiles) of %d rounds\n\n", t->now->isa,
           lode_pool_threads(pool), COLS, ROUNDS);
    printf("| type | reads, GB/s | one column, GB/s | of reads | 4 columns / 1 | 8 / 1 |\n"
           "| --- | --- | --- | --- | --- | --- |\n");
    int rc = 0;
    for (size_t i = 0; n == 0 && i < sizeof usual / sizeof *usual && rc == 0; i++)
        rc = measure_type(t, pool, usual[i]);
    for (int i = 0; i < n && rc == 0; i++) {
        const enum lode_dtype type = lode_dtype_from_name((struct lode_str){names[i], strlen(names[i])});
        const bool has = type != LODE_NONE && t->now->mul[type];
        rc = has ? measure_type(t, pool, type) : -1;
        if (!has)
            fprintf(stderr, "kerncheck: no products with %s\n", names[i]);
    }
    lode_pool_free(pool);
    return rc;
}
