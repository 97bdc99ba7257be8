/* reply.c - see reply.h. */
#include "serve/reply.h"

#include "serve/fields.h"
#include "serve/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int status_of(const struct lode_error *err) {
    switch (err->code) {
    case LODE_ERR_NOMEM:
        return 503;
    case LODE_ERR_MISSING:
        return 404;
    case LODE_ERR_LIMIT:
        return !strcmp(err->where, "queue") ? 503 : !strcmp(err->where, "deadline") ? 408 : 400;
    case LODE_ERR_ARG:
    case LODE_ERR_FORMAT:
    case LODE_ERR_UNSUPPORTED:
        return 400;
    default:
        return 500;
    }
}

static _Thread_local bool starved;

static void *json_memory(size_t size) {
    void *p = malloc(size);
    starved = starved || !p;
    return p;
}

void reply_setup(void) { json_set_alloc_funcs(json_memory, free); }
void reply_begin(void) { starved = false; }
bool reply_starved(void) { return starved; }

const struct lode_error reply_no_memory = {.code = LODE_ERR_NOMEM,
                                           .text = "no memory for this request"};

void reply_json(struct http_call *x, int status, json_t *value) {
    char *text = value ? json_text(value) : NULL;
    json_decref(value);
    http_reply(x, status, "application/json; charset=utf-8", text);
}

/* When a place may be free: what an answer took of late, 1 to 60 s. */
static void set_retry(struct server *s, struct http_call *x) {
    char text[16];
    const unsigned ms = atomic_load(&s->answer_ms), seconds = ms / 1000 + 1;
    snprintf(text, sizeof text, "%u", seconds > 60 ? 60 : seconds);
    http_set(x, "Retry-After", text);
}

void reply_error(struct server *s, struct http_call *x, int status, const struct lode_error *err) {
    atomic_fetch_add(&s->n_errors, 1);
    if (starved) {
        starved = false;
        err = &reply_no_memory;
        status = 503;
    }
    if (status == 503 || status == 429)
        set_retry(s, x);
    if (status == 401)
        http_set(x, "WWW-Authenticate", "Bearer");
    reply_json(x, status, http_errors(x->path)(status, err));
}

void reply_refusal(struct server *s, struct http_call *x, int status, const char *where,
                   const char *text) {
    struct lode_error err = {.code = LODE_ERR_ARG};
    snprintf(err.where, sizeof err.where, "%s", where);
    snprintf(err.text, sizeof err.text, "%s", text);
    reply_error(s, x, status, &err);
}

/* A reply, if all of it could be made. */
void reply_whole(struct server *s, struct http_call *x, json_t *value) {
    if (!starved) {
        reply_json(x, 200, value);
        return;
    }
    json_decref(value);
    reply_error(s, x, 503, &reply_no_memory);
}
