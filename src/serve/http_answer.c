/* http_answer.c - answers of models over a connection: their place, their stream, their line in the
 * log. */
#include "serve/http.h"

#include "base/clock.h"
#include "serve/log.h"
#include "serve/reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* ---- its place among others, and what is written about it when it is over ---- */

struct account {
    char model[64];
    size_t n_prompt, n_cached, n_answer;
    double queue, first; /* seconds */
};

static void fill_account(struct account *a, struct exchange *e) {
    struct answer_usage u;
    if (!a || !e || !e->a)
        return;
    answers_usage(e->a, &u);
    snprintf(a->model, sizeof a->model, "%s", e->r.m->name);
    a->n_prompt = u.n_prompt;
    a->n_cached = u.n_cached;
    a->n_answer = u.n_answer;
    a->queue = u.stats.queue_seconds;
    a->first = u.stats.queue_seconds + u.stats.prompt_seconds;
}

static void log_request(struct server *s, const struct http_call *x) {
    const struct account *a = x->context;
    if (!log_wants(s->log, LOG_INFO))
        return;
    json_t *v = json_pack("{s:s, s:s, s:s, s:i, s:f, s:I, s:s}", "id", x->id, "method", x->method,
                          "path", x->path, "status", x->status, "ms", (lode_clock() - x->started) * 1e3,
                          "bytes", (json_int_t)x->n_sent, "peer", x->peer);
    if (a && *a->model) {
        json_object_set_new(v, "model", json_string(a->model));
        json_object_set_new(v, "prompt_tokens", json_integer((json_int_t)a->n_prompt));
        json_object_set_new(v, "cached_tokens", json_integer((json_int_t)a->n_cached));
        json_object_set_new(v, "tokens", json_integer((json_int_t)a->n_answer));
        json_object_set_new(v, "queue_ms", json_real(a->queue * 1e3));
        json_object_set_new(v, "first_token_ms", json_real(a->first * 1e3));
    }
    log_event(s->log, x->status >= 500 ? LOG_WARNING : LOG_INFO, "request", v);
}

bool http_enter(struct server *s, struct http_call *x) {
    struct lode_error err = {.code = LODE_ERR_LIMIT};
    if (atomic_load(&s->stopping)) {
        snprintf(err.text, sizeof err.text, "the server is stopping");
        reply_error(s, x, 503, &err);
        return false;
    }
    if (atomic_load(&s->active) >= s->most_active) {
        snprintf(err.where, sizeof err.where, "queue");
        snprintf(err.text, sizeof err.text, "all places are taken: %u requests run or wait",
                 s->most_active);
        reply_error(s, x, 503, &err);
        return false;
    }
    x->context = calloc(1, sizeof(struct account));
    if (!x->context) {
        err.code = LODE_ERR_NOMEM;
        reply_error(s, x, 503, &err);
        return false;
    }
    atomic_fetch_add(&s->active, 1);
    return true;
}

void http_leave(struct server *s, struct http_call *x) {
    log_request(s, x);
    if (x->context) {
        /* the last answers count most; two at once may overwrite each other, which does no harm */
        const unsigned ms = (unsigned)((lode_clock() - x->started) * 1e3),
                       old = atomic_load(&s->answer_ms);
        if (x->status == 200)
            atomic_store(&s->answer_ms, old ? old - old / 8 + ms / 8 : ms);
        atomic_fetch_sub(&s->active, 1);
        free(x->context);
    }
}

/* ---- answers ---- */

static bool unwanted(struct server *s, struct http_call *x) {
    return http_gone(x) || atomic_load(&s->stopping) > 1;
}

bool http_asker_gone(void *user) {
    const struct waiting *w = user;
    return unwanted(w->s, w->x);
}

/* An error once the head is out. */
static void add_error(struct exchange *e, const struct lode_error *err) {
    e->out.failed = false; /* what could not be added is lost; what is wrong may still fit */
    if (e->api->put_error)
        e->api->put_error(e, status_of(err), err);
    else
        sse_data(e, NULL, e->api->error(status_of(err), err));
}

static void stream(struct server *s, struct http_call *x, struct exchange *e) {
    struct lode_error err = {0};
    http_set(x, "Cache-Control", "no-cache");
    http_set(x, "X-Accel-Buffering", "no");
    http_stream(x, e->api->stream_type ? e->api->stream_type : "text/event-stream; charset=utf-8");
    bool whole = true;
    int rc = ANSWER_MOVED;
    while (whole && rc >= 0 && rc != ANSWER_DONE) {
        rc = exchange_step(e, HOLD, &err);
        if (rc < 0) {
            err.code = rc;
            add_error(e, &err);
        }
        whole = !e->out.failed && (e->out.len == 0 || http_send(x, e->out.data, e->out.len)) &&
                (rc == ANSWER_DONE || rc < 0 || !unwanted(s, x));
        lode_buf_clear(&e->out);
    }
    http_end(x, !whole);
}

/* Who asks, as far as requests share fairly: a key, at an address.  What a body says would be
 * anybody's word. */
static uint64_t client_of(const struct http_call *x) {
    const char *key = http_field(x, "Authorization");
    if (!key)
        key = http_field(x, "x-api-key");
    return XXH3_64bits_withSeed(x->peer, strlen(x->peer), key ? XXH3_64bits(key, strlen(key)) : 0);
}

void http_answer(struct server *s, struct http_call *x, const json_t *body, const struct api *api) {
    struct lode_error err = {0};
    struct exchange *e;
    int rc = exchange_create(&e, s, api, body, client_of(x), &err);
    if (rc == 0 && e->r.stream) {
        stream(s, x, e);
        fill_account(x->context, e);
        exchange_free(e);
        return;
    }
    bool gone = false;
    while (rc >= 0 && rc != ANSWER_DONE && !gone) {
        rc = exchange_step(e, HOLD, &err);
        gone = rc != ANSWER_DONE && unwanted(s, x);
    }
    err.code = rc < 0 ? rc : 0;
    if (rc < 0)
        reply_error(s, x, status_of(&err), &err);
    else if (!gone)
        reply_whole(s, x, api->reply(e));
    fill_account(x->context, e);
    exchange_free(e);
}
