/* metrics_route.c - GET /metrics: what all models, connections and steps have counted. */
#include "serve/metrics.h"
#include "serve/models.h"
#include "serve/responses.h"
#include "serve/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct all {
    struct model_view *v; /* (n) */
    size_t n;
};

static void add_view(void *user, const struct model_view *v) {
    struct all *a = user;
    a->v[a->n++] = *v;
}

/* Where a value lies in the statistics, and how to read it. */
#define NUMBER(field) offsetof(struct lode_scheduler_stats, field), IS(field)
#define IS(field)                                                                                  \
    _Generic(((struct lode_scheduler_stats *)0)->field, uint32_t: 4, uint64_t: 8, double: 0)

static const struct row {
    const char *name, *type;
    size_t offset;
    int kind;
    bool labelled; /* by model; else the sum of all */
    const char *help;
} rows[] = {
    /* llama.cpp's */
    {"llamacpp:prompt_tokens_total", "counter", 0, -1, false, "Prompt tokens that were evaluated."},
    {"llamacpp:tokens_predicted_total", "counter", NUMBER(generated_tokens), false, "Tokens generated."},
    {"llamacpp:requests_processing", "gauge", NUMBER(running), false, "Requests that run."},
    {"llamacpp:requests_deferred", "gauge", NUMBER(waiting), false, "Requests that wait in the queue."},
    {"llamacpp:n_decode_total", "counter", NUMBER(steps), false, "Steps of the models."},
    /* vLLM's and the seeds' (OBS-05, OBS-06) under our own name */
    {"lode:num_requests_running", "gauge", NUMBER(running), true, "Requests that run."},
    {"lode:num_requests_waiting", "gauge", NUMBER(waiting), true, "Requests that wait in the queue."},
    {"lode:prompt_tokens_total", "counter", NUMBER(prompt_tokens), true, "Prompt tokens, reused ones included."},
    {"lode:generation_tokens_total", "counter", NUMBER(generated_tokens), true, "Tokens generated."},
    {"lode:reused_tokens_total", "counter", NUMBER(reused_tokens), false,
     "Prompt tokens that had been read before."},
    {"lode:step_tokens_total", "counter", NUMBER(fed_tokens), false, "Tokens evaluated in steps."},
    {"lode:step_seconds_total", "counter", NUMBER(seconds), false, "Time spent in steps."},
    {"lode:kv_tokens", "gauge", NUMBER(kv_used), false, "Tokens that running requests hold."},
    {"lode:kv_tokens_max", "gauge", NUMBER(kv_size), false, "Tokens that all pages can hold."},
    {"lode:kv_pages", "gauge", NUMBER(pages), true, "Pages of keys and values."},
    {"lode:kv_pages_free", "gauge", NUMBER(free_pages), true, "Pages that neither requests nor prefixes hold."},
    {"lode:prefix_cache_bytes", "gauge", NUMBER(cached_bytes), true, "Bytes that kept prefixes take."},
    {"lode:prefix_evictions_total", "counter", NUMBER(evictions), true, "Pages of prefixes that gave way."},
    {"lode:recall_bytes", "gauge", NUMBER(recall_bytes), true, "Bytes that remembered answers take."},
    {"lode:cache_dir_bytes", "gauge", NUMBER(disk.bytes), true, "Bytes that prefixes take on disk."},
    {"lode:cache_dir_entries", "gauge", NUMBER(disk.entries), true, "Pages and states of prefixes on disk."},
    {"lode:cache_dir_foreign_entries", "gauge", NUMBER(disk.foreign), true,
     "Those of another model, numerics, device or format, which are not used."},
    {"lode:cache_dir_corrupt_total", "counter", NUMBER(disk.corrupt), true, "Damaged ones, deleted."},
    {"lode:cache_dir_evictions_total", "counter", NUMBER(disk.evicted), true, "Those that gave way."},
    {"lode:cache_dir_writes_total", "counter", NUMBER(disk.written), true, "Those that were written."},
    {"lode:cache_dir_reads_total", "counter", NUMBER(disk.read), true, "Those that were read."},
    {"lode:cache_dir_errors_total", "counter", NUMBER(disk.errors), true, "Those that could not be."},
    {"lode:expert_uses_total", "counter", NUMBER(expert_uses), true, "Uses of experts, and layers, that are streamed."},
    {"lode:expert_hits_total", "counter", NUMBER(expert_hits), true, "Those that found theirs in memory."},
    {"lode:expert_read_bytes_total", "counter", NUMBER(expert_bytes), true, "Bytes of experts read from the disk."},
    {"lode:gpu_expert_uses_total", "counter", NUMBER(gpu_expert_uses), true,
     "Uses of the CPU's experts that a GPU may have."},
    {"lode:gpu_expert_hits_total", "counter", NUMBER(gpu_expert_hits), true, "Those that found theirs in its memory."},
    {"lode:gpu_expert_bytes_total", "counter", NUMBER(gpu_expert_bytes), true, "Bytes of experts brought to it."},
    {"lode:preemptions_total", "counter", NUMBER(preemptions), true, "Requests that gave way to others."},
    {"lode:recomputed_tokens_total", "counter", NUMBER(recomputed_tokens), true,
     "Tokens that were read again because a request gave way."},
    {"lode:requests_finished_total", "counter", NUMBER(finished), false, "Generations that came to their end."},
    {"lode:requests_cancelled_total", "counter", NUMBER(cancelled), false,
     "Generations ended by a stop text or by a client that went away."},
    {"lode:requests_failed_total", "counter", NUMBER(failed), false, "Generations that failed."},
    {"lode:requests_refused_total", "counter", NUMBER(refused), false,
     "Generations refused because the queue was full."},
    {"lode:requests_expired_total", "counter", NUMBER(expired), false,
     "Generations whose deadline passed, which count as failed too."},
};

static double value_of(const struct row *r, const struct lode_scheduler_stats *st) {
    const char *at = (const char *)st + r->offset;
    if (r->kind == -1)
        return (double)(st->prompt_tokens - st->reused_tokens + st->recomputed_tokens);
    return r->kind == 4 ? *(const uint32_t *)at : r->kind == 8 ? (double)*(const uint64_t *)at : *(const double *)at;
}

static void add_rows(struct lode_buf *b, const struct all *a) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *r = &rows[i];
        double sum = 0;
        metrics_family(b, r->name, r->type, r->help);
        for (size_t k = 0; k < a->n; k++) {
            sum += value_of(r, &a->v[k].stats);
            if (r->labelled)
                metrics_sample(b, r->name, a->v[k].spec->name, value_of(r, &a->v[k].stats));
        }
        if (!r->labelled)
            metrics_sample(b, r->name, NULL, sum);
    }
}

static void add_models(struct lode_buf *b, const struct all *a) {
    static const char *const names[] = {"lode:model_loaded", "lode:model_bytes", "lode:kv_cache_usage_ratio"};
    static const char *const helps[] = {"Whether the model is loaded.", "Memory that it takes or needs.",
                                        "Share of the pages that requests or prefixes hold."};
    for (size_t i = 0; i < 3; i++) {
        metrics_family(b, names[i], "gauge", helps[i]);
        for (size_t k = 0; k < a->n; k++) {
            const struct model_view *v = &a->v[k];
            const double share = v->stats.pages ? 1 - (double)v->stats.free_pages / v->stats.pages : 0;
            metrics_sample(b, names[i], v->spec->name,
                           i == 0 ? v->state == MODEL_LOADED : i == 1 ? (double)v->size : share);
        }
    }
    metrics_family(b, "lode:forms_bytes", "gauge", "Bytes that compiled schemas and grammars, and their masks, take.");
    for (size_t k = 0; k < a->n; k++)
        metrics_sample(b, "lode:forms_bytes", a->v[k].spec->name, (double)a->v[k].forms);
    metrics_family(b, "lode:model_loads_total", "counter", "Times that the model was loaded.");
    for (size_t k = 0; k < a->n; k++)
        metrics_sample(b, "lode:model_loads_total", a->v[k].spec->name, (double)a->v[k].loads);
}

/* Steps by the requests that shared them: the scheduler counts 1, 2 to 3, 4 to 7, ... */
static void add_batches(struct lode_buf *b, const struct all *a) {
    metrics_family(b, "lode:batch_requests", "histogram", "Requests that shared a step.");
    for (size_t k = 0; k < a->n; k++) {
        const struct lode_scheduler_stats *st = &a->v[k].stats;
        double bounds[LODE_SCHEDULER_BATCHES];
        for (size_t i = 0; i < LODE_SCHEDULER_BATCHES; i++)
            bounds[i] = (double)((2ull << i) - 1);
        /* the sum is not counted: each step at its bucket's lower end */
        double sum = 0;
        for (size_t i = 0; i < LODE_SCHEDULER_BATCHES; i++)
            sum += (double)st->batches[i] * (double)(1ull << i);
        metrics_buckets(b, "lode:batch_requests", a->v[k].spec->name, bounds, st->batches,
                        LODE_SCHEDULER_BATCHES, sum);
    }
}

static void add_server(struct lode_buf *b, struct server *s, const struct all *a) {
    struct transport_stats t = {0};
    double tokens = 0, running = 0, waiting = 0;
    const double up = difftime(time(NULL), (time_t)s->started);
    if (s->transport)
        transport_stats(s->transport, &t);
    for (size_t k = 0; k < a->n; k++) {
        tokens += (double)a->v[k].stats.generated_tokens;
        running += a->v[k].stats.running;
        waiting += a->v[k].stats.waiting;
    }
    const struct {
        const char *name, *type;
        double value;
        const char *help;
    } lines[] = {
        {"lode:http_requests_total", "counter", (double)atomic_load(&s->requests), "HTTP requests."},
        {"lode:http_errors_total", "counter", (double)atomic_load(&s->n_errors),
         "HTTP requests answered with an error."},
        {"lode:http_requests_in_flight", "gauge", (double)atomic_load(&s->active), "Answers that run or wait."},
        {"lode:http_connections", "gauge", t.connections, "Open connections."},
        {"lode:http_connections_total", "counter", (double)t.accepted, "Connections that were accepted."},
        {"lode:http_timeouts_total", "counter", (double)t.timed_out, "Connections ended for being too slow."},
        {"lode:http_workers", "gauge", t.workers, "Threads that answer requests."},
        {"lode:http_body_bytes", "gauge", (double)t.body_bytes, "Bodies of requests that are held."},
        {"lode:responses_bytes", "gauge", (double)responses_bytes(s->responses),
         "Bytes that stored responses take."},
        {"lode:uptime_seconds", "gauge", up, "Since the server began."},
        /* the seeds' (OBS-04 to OBS-06) */
        {"sharpi_tokens_per_second", "gauge", up > 0 ? tokens / up : 0, "Tokens generated by time since the start."},
        {"sharpi_queue_depth", "gauge", waiting, "Requests that wait."},
        {"sharpi_active_requests", "gauge", running, "Requests that run."},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        metrics_family(b, lines[i].name, lines[i].type, lines[i].help);
        metrics_sample(b, lines[i].name, NULL, lines[i].value);
    }
}

char *route_metrics(struct server *s) {
    struct lode_buf b = {0};
    struct all a = {.v = calloc(s->o.n_models, sizeof *a.v)};
    const char **labels = calloc(s->o.n_models, sizeof *labels);
    struct metrics **all = calloc(s->o.n_models, sizeof *all);
    char *text = NULL;
    if (a.v && labels && all) {
        models_each(s->models, add_view, &a);
        for (size_t i = 0; i < a.n; i++) {
            labels[i] = a.v[i].spec->name;
            all[i] = a.v[i].metrics;
        }
        add_rows(&b, &a);
        add_models(&b, &a);
        add_batches(&b, &a);
        metrics_histograms(&b, labels, all, a.n);
        add_server(&b, s, &a);
        text = b.failed ? NULL : strndup(lode_buf_str(&b).data, b.len);
    }
    lode_buf_free(&b);
    free(a.v);
    free(labels);
    free(all);
    return text;
}
