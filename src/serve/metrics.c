/* metrics.c - see metrics.h. */
#include "serve/metrics.h"

#include "base/clock.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>

/* Upper bounds, ascending: a machine's first token lies between a millisecond and minutes, a prompt
 * between one token and a million. */
static const double SECONDS[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                 1,     2.5,    5,     10,   25,    60,   150, 300, INFINITY};
static const double TOKENS[] = {1,     4,     16,     64,     256,     1024,
                                4096,  16384, 65536,  262144, 1048576, INFINITY};
_Static_assert(sizeof SECONDS / sizeof *SECONDS <= METRICS_BUCKETS, "more buckets");

void metrics_init(struct metrics *m) {
    *m = (struct metrics){0};
    pthread_mutex_init(&m->lock, NULL);
}

void metrics_deinit(struct metrics *m) { pthread_mutex_destroy(&m->lock); }

static void observe(struct histogram *h, const double *bounds, double value) {
    size_t i = 0;
    while (value > bounds[i])
        i++;
    h->counts[i]++;
    h->sum += value;
}

void metrics_token(struct metrics *m, double *last) {
    const double clock = lode_clock(), before = *last;
    *last = clock;
    if (before <= 0)
        return;
    pthread_mutex_lock(&m->lock);
    observe(&m->gap, SECONDS, clock - before);
    pthread_mutex_unlock(&m->lock);
}

void metrics_generation(struct metrics *m, const struct lode_generation_stats *st) {
    pthread_mutex_lock(&m->lock);
    observe(&m->queue, SECONDS, st->queue_seconds);
    if (st->n_generated)
        observe(&m->first_token, SECONDS, st->queue_seconds + st->prompt_seconds);
    observe(&m->whole, SECONDS, st->queue_seconds + st->prompt_seconds + st->answer_seconds);
    observe(&m->prompt, TOKENS, (double)st->n_prompt);
    observe(&m->cached, TOKENS, (double)st->n_reused);
    observe(&m->generated, TOKENS, (double)st->n_generated);
    pthread_mutex_unlock(&m->lock);
}

/* ---- text ---- */

void metrics_family(struct lode_buf *b, const char *name, const char *type, const char *help) {
    lode_buf_addf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* {model_name="...",le="..."}, of which either may be missing. */
static void add_labels(struct lode_buf *b, const char *label, const char *le) {
    if (!label && !le)
        return;
    lode_buf_addz(b, label ? "{model_name=\"" : "{");
    for (const char *p = label; p && *p; p++) {
        if (*p == '\\' || *p == '"')
            lode_buf_addc(b, '\\');
        if (*p == '\n')
            lode_buf_addz(b, "\\n");
        else
            lode_buf_addc(b, *p);
    }
    if (label)
        lode_buf_addc(b, '"');
    if (le)
        lode_buf_addf(b, "%sle=\"%s\"", label ? "," : "", le);
    lode_buf_addc(b, '}');
}

void metrics_sample(struct lode_buf *b, const char *name, const char *label, double value) {
    lode_buf_addz(b, name);
    add_labels(b, label, NULL);
    lode_buf_addf(b, " %.17g\n", value);
}

void metrics_buckets(struct lode_buf *b, const char *name, const char *label, const double *bounds,
                     const uint64_t *counts, size_t n, double sum) {
    uint64_t total = 0;
    for (size_t i = 0; i <= n; i++) {
        char le[32] = "+Inf";
        total += i < n ? counts[i] : 0;
        if (i < n && isinf(bounds[i]))
            continue;
        if (i < n)
            snprintf(le, sizeof le, "%.15g", bounds[i]);
        lode_buf_addf(b, "%s_bucket", name);
        add_labels(b, label, le);
        lode_buf_addf(b, " %llu\n", (unsigned long long)total);
    }
    lode_buf_addf(b, "%s_sum", name);
    add_labels(b, label, NULL);
    lode_buf_addf(b, " %.17g\n%s_count", sum, name);
    add_labels(b, label, NULL);
    lode_buf_addf(b, " %llu\n", (unsigned long long)total);
}

void metrics_histograms(struct lode_buf *b, const char *const *labels, struct metrics *const *all,
                        size_t n) {
    static const struct {
        const char *name, *help;
        const double *bounds;
        size_t n, offset;
    } rows[] = {
#define METRICS_ROW(field, name, unit, help) \
    {"lode:" name, help, unit, sizeof unit / sizeof *unit, offsetof(struct metrics, field)},
        METRICS_HISTOGRAMS(METRICS_ROW)
#undef METRICS_ROW
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        metrics_family(b, rows[k].name, "histogram", rows[k].help);
        for (size_t i = 0; i < n; i++) {
            pthread_mutex_lock(&all[i]->lock);
            const struct histogram h = *(const struct histogram *)((const char *)all[i] + rows[k].offset);
            pthread_mutex_unlock(&all[i]->lock);
            metrics_buckets(b, rows[k].name, labels[i], rows[k].bounds, h.counts, rows[k].n, h.sum);
        }
    }
}
