/* metrics.h - what the server counts, as Prometheus reads it.
 *
 * Each model has a struct metrics, which outlives its being unloaded.  Any thread may add.
 */
#ifndef LODE_SERVE_METRICS_H
#define LODE_SERVE_METRICS_H

#include "base/buf.h"

#include "lode/scheduler.h"

#include <pthread.h>

/* field, name behind "lode:", unit's buckets, meaning */
#define METRICS_HISTOGRAMS(X)                                                                      \
    X(first_token, "time_to_first_token_seconds", SECONDS, "From a request to its first token.")   \
    X(gap, "inter_token_latency_seconds", SECONDS, "Between two tokens of an answer.")             \
    X(queue, "request_queue_time_seconds", SECONDS, "From a request to the step that begins it.")  \
    X(whole, "e2e_request_latency_seconds", SECONDS, "From a request to its last token.")          \
    X(prompt, "request_prompt_tokens", TOKENS, "Tokens of a request's prompt.")                    \
    X(cached, "request_cached_tokens", TOKENS, "Those of them that were not evaluated again.")     \
    X(generated, "request_generation_tokens", TOKENS, "Tokens of an answer.")

enum { METRICS_BUCKETS = 20 };

struct histogram {
    uint64_t counts[METRICS_BUCKETS]; /* the last: above all bounds */
    double sum;
};

struct metrics {
    pthread_mutex_t lock;
#define METRICS_FIELD(field, name, unit, help) struct histogram field;
    METRICS_HISTOGRAMS(METRICS_FIELD)
#undef METRICS_FIELD
};

void metrics_init(struct metrics *m);
void metrics_deinit(struct metrics *m);

/* A token was taken; *last is the clock of the one before (0: none), and becomes its own. */
void metrics_token(struct metrics *m, double *last);
/* A generation is over, or cancelled. */
void metrics_generation(struct metrics *m, const struct lode_generation_stats *st);

/* ---- text ---- */

/* "# HELP", "# TYPE" of a family; type: counter, gauge, histogram. */
void metrics_family(struct lode_buf *b, const char *name, const char *type, const char *help);
/* One sample of it; label: of model_name, NULL: none. */
void metrics_sample(struct lode_buf *b, const char *name, const char *label, double value);
/* The samples of a histogram: counts of n buckets up to and with their bounds; nothing lies above. */
void metrics_buckets(struct lode_buf *b, const char *name, const char *label, const double *bounds,
                     const uint64_t *counts, size_t n, double sum);
/* One family of METRICS_HISTOGRAMS after the other, each with all models'. */
void metrics_histograms(struct lode_buf *b, const char *const *labels, struct metrics *const *all,
                        size_t n);

#endif
