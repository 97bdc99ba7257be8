/* exchange.c - see exchange.h. */
#include "serve/exchange.h"

#include "base/clock.h"
#include "serve/fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

enum { ALIVE_SECONDS = 5 };

/* Random: who knows an id can ask for what was answered under it. */
void make_id(struct server *s, const char *prefix, char out[64]) {
    uint64_t r[2];
    if (getrandom(r, sizeof r, 0) != sizeof r) {
        r[0] = (uint64_t)s->started;
        r[1] = atomic_fetch_add(&s->ids, 1);
    }
    snprintf(out, 64, "%s%016llx%016llx", prefix, (unsigned long long)r[0], (unsigned long long)r[1]);
}

void sse_data(struct exchange *x, const char *event, json_t *value) {
    char *text = value ? json_text(value) : NULL;
    json_decref(value);
    if (!text)
        x->out.failed = true;
    else if (event)
        lode_buf_addf(&x->out, "event: %s\ndata: ", event);
    else
        lode_buf_addz(&x->out, "data: ");
    if (text) {
        lode_buf_addz(&x->out, text);
        lode_buf_addz(&x->out, "\n\n");
    }
    free(text);
    x->last_sent = lode_clock();
}

static void put(void *user, const struct answer_event *e) {
    struct exchange *x = user;
    x->api->put(x, e);
    x->last_sent = lode_clock();
}

int exchange_create(struct exchange **out, struct server *s, const struct api *api,
                    const json_t *body, uint64_t client, struct lode_error *err) {
    struct exchange *x = calloc(1, sizeof *x);
    *out = NULL;
    if (!x)
        return request_no_memory(err);
    x->s = s;
    x->api = api;
    x->created = time(NULL);
    x->last_sent = lode_clock();
    make_id(s, api->prefix, x->id);
    int rc = request_init(&x->r, s, body, err);
    x->r.g.client = client;
    if (rc == 0 && !x->r.m->scheduler)
        rc = field_fail(err, "model", "%s gives vectors, not text: use /v1/embeddings or /v1/rerank",
                        x->r.m->name);
    if (rc == 0 && api->state_size && !(x->state = calloc(1, api->state_size)))
        rc = request_no_memory(err);
    if (rc == 0)
        rc = api->read(x, err);
    if (rc == 0)
        rc = answers_create(&x->a, &x->r, x->r.stream ? put : NULL, x, err);
    if (rc == 0 && x->out.failed)
        rc = request_no_memory(err);
    if (rc < 0)
        exchange_free(x);
    else
        *out = x;
    return rc;
}

void exchange_free(struct exchange *x) {
    if (!x)
        return;
    answers_free(x->a);
    if (x->api->close && x->state)
        x->api->close(x);
    free(x->state);
    request_deinit(&x->r);
    lode_buf_free(&x->out);
    free(x);
}

/* A line that clients skip, where nothing else is sent for long. */
static void keep_alive(struct exchange *x) {
    struct answer_usage u;
    if (!x->r.stream || lode_clock() - x->last_sent < ALIVE_SECONDS)
        return;
    answers_usage(x->a, &u);
    if (x->api->alive)
        x->api->alive(x, &u.stats);
    else if (u.stats.place)
        lode_buf_addf(&x->out, ": place %zu in the queue\n\n", u.stats.place);
    else
        lode_buf_addf(&x->out, ": %zu of %zu prompt tokens read\n\n", u.stats.n_read,
                      u.stats.n_prompt);
    x->last_sent = lode_clock();
}

int exchange_step(struct exchange *x, int wait_ms, struct lode_error *err) {
    const int rc = answers_step(x->a, wait_ms, err);
    if (rc == ANSWER_WAITS)
        keep_alive(x);
    return rc >= 0 && x->out.failed ? request_no_memory(err) : rc;
}
