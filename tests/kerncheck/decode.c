/* decode.c - what decoding reads by all threads, from memory: products of one to eight columns, and
 * keys and values (decode_kv.c).
 *
 *     kerncheck --decode [-t THREADS] [--isa NAME] [TYPE | kv_TYPE...]
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
static double time_pass(struct lode_pool *pool, const struct kc_pass *p) {
    double took[PASSES];
    for (int i = 0; i < PASSES; i++) {
        const double start = lode_clock();
        lode_pool_run(pool, p->task, p->arg, p->tasks);
        took[i] = lode_clock() - start;
    }
    qsort(took, PASSES, sizeof *took, order_doubles);
    return took[PASSES / 4];
}

static struct kc_quartiles quartiles(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, order_doubles);
    return (struct kc_quartiles){v[n / 2], v[n / 4], v[n - 1 - n / 4]};
}

void kc_rounds(struct kc_rounds *out, struct lode_pool *pool, const struct kc_pass p[static KC_PASSES]) {
    double reads[ROUNDS + 1], speed[KC_PASSES][ROUNDS], share[KC_PASSES][ROUNDS], cost[KC_PASSES][ROUNDS];
    const uint32_t threads = lode_pool_threads(pool);
    reads[0] = lode_machine_read_bandwidth(threads, 0.1, NULL);
    for (int r = 0; r < ROUNDS; r++) {
        double took[KC_PASSES];
        for (int c = 0; c < KC_PASSES; c++)
            took[c] = time_pass(pool, &p[c]);
        reads[r + 1] = lode_machine_read_bandwidth(threads, 0.1, NULL);
        for (int c = 0; c < KC_PASSES; c++) {
            cost[c][r] = took[c] / took[0];
            speed[c][r] = p[c].bytes / took[c];
            share[c][r] = speed[c][r] / ((reads[r] + reads[r + 1]) / 2);
        }
    }
    for (int c = 0; c < KC_PASSES; c++) {
        out->cost[c] = quartiles(cost[c], ROUNDS);
        out->speed[c] = quartiles(speed[c], ROUNDS);
        out->share[c] = quartiles(share[c], ROUNDS);
    }
    out->reads = quartiles(reads, ROUNDS + 1);
}

static void measure(struct lode_pool *pool, const struct product *p, const char *name) {
    static const size_t n_columns[KC_PASSES] = {1, 4, MOST_COLUMNS};
    const double bytes = (double)p->panels * PANEL * (double)p->row;
    struct product of[KC_PASSES];
    struct kc_pass pass[KC_PASSES];
    struct kc_rounds got;
    for (int c = 0; c < KC_PASSES; c++) {
        of[c] = *p;
        of[c].n_x = n_columns[c];
        pass[c] = (struct kc_pass){multiply, &of[c], p->panels, bytes};
    }
    kc_rounds(&got, pool, pass);
    const struct kc_quartiles share = got.share[0], of_4 = got.cost[1], of_8 = got.cost[2];
    printf("| %-8s | %7.1f | %7.1f | %3.0f %% (%.0f-%.0f) | %5.2f (%.2f-%.2f) | %5.2f (%.2f-%.2f) |\n", name,
           got.reads.median / 1e9, got.speed[0].median / 1e9, 100 * share.median, 100 * share.low,
           100 * share.high, of_4.median, of_4.low, of_4.high, of_8.median, of_8.low, of_8.high);
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

static int measure_type(struct kc *t, struct lode_pool *pool, enum lode_dtype type, bool head) {
    struct product p = {.kern = t->now, .type = type};
    const enum lode_dtype act = lode_dtypes[type].act;
    lode_dtype_row_size(type, COLS, &p.row);
    lode_dtype_row_size(act == LODE_NONE ? LODE_F32 : act, COLS, &p.x_row);
    p.panels = (uint32_t)(KC_DECODE_SIZE / (PANEL * p.row));
    char *w = lode_alloc_large(p.panels, PANEL * p.row); /* as files lie in the page cache */
    char *x = lode_alloc_aligned(64, MOST_COLUMNS, p.x_row);
    p.y = lode_alloc_aligned(64, (size_t)p.panels * PANEL * MOST_COLUMNS, sizeof *p.y);
    p.w = w, p.x = x;
    if (head)
        puts("\n| type | reads, GB/s | one column, GB/s | of reads | 4 columns / 1 | 8 / 1 |\n"
             "| --- | --- | --- | --- | --- | --- |");
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

static const char KV[] = "kv_";

static bool is_kv(const char *name) { return strncmp(name, KV, sizeof KV - 1) == 0; }

static int measure_named(struct kc *t, struct lode_pool *pool, const char *name, bool head) {
    const bool kv = is_kv(name);
    const char *of = kv ? name + sizeof KV - 1 : name;
    const enum lode_dtype type = lode_dtype_from_name((struct lode_str){of, strlen(of)});
    if (type == LODE_NONE || !(kv ? t->now->kv_score[type] != NULL : t->now->mul[type] != NULL)) {
        fprintf(stderr, "kerncheck: no %s %s\n", kv ? "keys and values of type" : "products with", of);
        return -1;
    }
    return kv ? kc_decode_kv(t, pool, type, head) : measure_type(t, pool, type, head);
}

int kc_decode(struct kc *t, uint32_t threads, char **names, int n) {
    static const char *const usual[] = {"q4_0",  "q4_k", "q5_k", "q6_k",   "iq4_xs",  "q8_0",
                                        "mxfp4", "f16",  "bf16", "kv_f16", "kv_q8_0"};
    struct lode_pool *pool;
    struct lode_error err;
    if (lode_pool_create(&pool, threads ? threads : lode_machine_default_threads(), true, &err) < 0)
        return -1;
    printf("%s, %u threads, %d numbers a row; medians (and quartiles) of %d rounds\n", t->now->isa,
           lode_pool_threads(pool), COLS, ROUNDS);
    int rc = 0;
    const int many = n ? n : (int)(sizeof usual / sizeof *usual);
    for (int i = 0; i < many && rc == 0; i++) {
        const char *name = n ? names[i] : usual[i], *before = i == 0 ? NULL : n ? names[i - 1] : usual[i - 1];
        rc = measure_named(t, pool, name, !before || is_kv(before) != is_kv(name));
    }
    lode_pool_free(pool);
    return rc;
}
