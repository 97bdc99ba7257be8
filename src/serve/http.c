/* http.c - requests: who may ask, which route answers, and what goes over the wire. */
#include "serve/exchange.h"

#include "base/error.h"
#include "serve/fields.h"
#include "serve/guard.h"
#include "serve/log.h"
#include "serve/models.h"
#include "serve/page.h"
#include "serve/responses.h"
#include "serve/transport.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    PATIENCE = 60,       /* seconds that a client gets to send a request */
    CONNECTIONS = 16384,
    MAX_BODIES = 256 << 20,
    SPARE_WORKERS = 16,  /* beyond the answers: for the small routes */
    SWEEP = 1000,        /* ms */
};

#define JSON_TYPE "application/json; charset=utf-8"

/* ---- replies ---- */

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

/* Set when JSON finds no memory while this thread works on a request: what was made of it may lack
 * something or look malformed, and neither may be taken for what was sent. */
static _Thread_local bool starved;

static void *json_memory(size_t size) {
    void *p = malloc(size);
    starved = starved || !p;
    return p;
}

static const struct lode_error no_memory = {.code = LODE_ERR_NOMEM, .text = "no memory for this request"};

static void send_json(struct http_call *x, int status, json_t *value) {
    char *text = value ? json_text(value) : NULL;
    json_decref(value);
    http_reply(x, status, JSON_TYPE, text);
}

static error_fn *errors_of(const char *path); /* the shape that its API gives them */

/* When a place may be free: what an answer took of late, 1 to 60 s. */
static void set_retry(struct server *s, struct http_call *x) {
    char text[16];
    const unsigned ms = atomic_load(&s->answer_ms), seconds = ms / 1000 + 1;
    snprintf(text, sizeof text, "%u", seconds > 60 ? 60 : seconds);
    http_set(x, "Retry-After", text);
}

static void send_error(struct server *s, struct http_call *x, int status,
                       const struct lode_error *err) {
    atomic_fetch_add(&s->n_errors, 1);
    if (starved) {
        starved = false;
        err = &no_memory;
        status = 503;
    }
    if (status == 503 || status == 429)
        set_retry(s, x);
    if (status == 401)
        http_set(x, "WWW-Authenticate", "Bearer");
    send_json(x, status, errors_of(x->path)(status, err));
}

static void refuse(struct server *s, struct http_call *x, int status, const char *where,
                   const char *text) {
    struct lode_error err = {.code = LODE_ERR_ARG};
    snprintf(err.where, sizeof err.where, "%s", where);
    snprintf(err.text, sizeof err.text, "%s", text);
    send_error(s, x, status, &err);
}

/* A reply, if all of it could be made. */
static void send_whole(struct server *s, struct http_call *x, json_t *value) {
    if (!starved) {
        send_json(x, 200, value);
        return;
    }
    json_decref(value);
    send_error(s, x, 503, &no_memory);
}

static char *error_text(void *user, struct http_call *x, int status, const char *text) {
    struct server *s = user;
    struct lode_error err = {.code = LODE_ERR_ARG};
    atomic_fetch_add(&s->n_errors, 1);
    snprintf(err.text, sizeof err.text, "%s", text);
    json_t *e = errors_of(x->path)(status, &err);
    char *json = e ? json_text(e) : NULL;
    json_decref(e);
    return json;
}

/* ---- what is written about a request when it is over ---- */

struct account {
    char model[64];
    size_t n_prompt, n_cached, n_answer;
    double queue, first; /* seconds */
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

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
    json_t *v = json_pack("{s:s, s:s, s:s, s:i, s:f, s:I, s:s}", "id", x->id, "method", x->method, "path",
                          x->path, "status", x->status, "ms", (now() - x->started) * 1e3, "bytes",
                          (json_int_t)x->n_sent, "peer", x->peer);
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

/* ---- answers ---- */

static bool unwanted(struct server *s, struct http_call *x) {
    return http_gone(x) || atomic_load(&s->stopping) > 1;
}

struct waiting { /* an asker's user */
    struct server *s;
    struct http_call *x;
};

static bool is_gone(void *user) {
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

/* Who asks, as far as requests share fairly: a key, at an address.  What a body says would be anybody's
 * word. */
static uint64_t client_of(const struct http_call *x) {
    const char *key = http_field(x, "Authorization");
    if (!key)
        key = http_field(x, "x-api-key");
    return XXH3_64bits_withSeed(x->peer, strlen(x->peer), key ? XXH3_64bits(key, strlen(key)) : 0);
}

static void answer(struct server *s, struct http_call *x, const json_t *body,
                   const struct api *api) {
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
        send_error(s, x, status_of(&err), &err);
    else if (!gone)
        send_whole(s, x, api->reply(e));
    fill_account(x->context, e);
    exchange_free(e);
}

/* ---- routes ---- */

typedef json_t *get_fn(struct server *s);

static json_t *health(struct server *s) {
    return json_pack("{s:s}", "status", atomic_load(&s->stopping) ? "stopping" : "ok");
}

static const struct route {
    const char *path;
    get_fn *get;
    route_fn *post;
    const struct api *api; /* answers POST, but for what post does in its place (in_place) */
    item_fn *item;         /* path ends in '/': GET and DELETE of what stands behind it */
    error_fn *error;       /* NULL: the API's, or OpenAI's */
    bool open;             /* needs no key */
    bool computes;         /* as answers do: it has its turn among them, or is refused */
} routes[] = {
    {"/health", .get = health, .open = true},
    {"/v1/health", .get = health, .open = true},
    {"/v1/models", .get = route_models},
    {"/models", .get = route_models},
    {"/v1/models/", .item = item_models},
    {"/props", .get = route_props},
    {"/metrics", .get = NULL},
    {"/v1/chat/completions", .api = &openai_chat},
    {"/chat/completions", .api = &openai_chat},
    {"/v1/completions", .api = &openai_text, .post = route_beams},
    {"/completions", .api = &openai_text, .post = route_beams},
    {"/v1/responses", .api = &openai_responses},
    {"/responses", .api = &openai_responses},
    {"/v1/responses/input_tokens", .post = route_input_tokens},
    {"/v1/responses/", .item = item_responses},
    {"/v1/messages", .api = &anthropic_messages},
    {"/v1/messages/count_tokens", .post = route_count_tokens, .error = anthropic_error},
    {"/v1/embeddings", .post = route_embeddings, .computes = true},
    {"/embeddings", .post = route_embeddings, .computes = true},
    {"/v1/rerank", .post = route_rerank, .computes = true},
    {"/rerank", .post = route_rerank, .computes = true},
    {"/v1/classify", .post = route_classify, .computes = true},
    {"/classify", .post = route_classify, .computes = true},
    {"/v1/score", .post = route_score, .computes = true},
    {"/score", .post = route_score, .computes = true},
    {"/slots", .get = route_slots},
    {"/api/chat", .api = &ollama_chat},
    {"/api/generate", .api = &ollama_generate},
    {"/api/tags", .get = route_tags},
    {"/api/ps", .get = route_ps},
    {"/api/version", .get = route_version},
    {"/api/show", .post = route_show, .error = ollama_error},
    {"/api/embed", .post = route_ollama_embed, .computes = true, .error = ollama_error},
    {"/api/embeddings", .post = route_ollama_embedding, .computes = true, .error = ollama_error},
    {"/tokenize", .post = route_tokenize},
    {"/detokenize", .post = route_detokenize},
    {"/apply-template", .post = route_template},
};

static const struct route *find_route(const char *path) {
    const struct route *prefix = NULL;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const struct route *r = &routes[i];
        if (!strcmp(r->path, path))
            return r;
        if (r->item && !strncmp(r->path, path, strlen(r->path)))
            prefix = r;
    }
    return prefix;
}

static error_fn *errors_of(const char *path) {
    const struct route *route = find_route(path);
    return route && route->error         ? route->error
           : route && route->api         ? route->api->error
           : !strncmp(path, "/api/", 5) ? ollama_error
                                         : openai_error;
}

static const char *query_arg(void *user, const char *name) { return http_arg(user, name); }

/* The web page and what it alone asks for. */
static void send_page(struct server *s, struct http_call *x) {
    const struct lode_str body = lode_buf_str(&x->body);
    struct page_reply reply;
    page_answer(s,
                &(struct page_request){.method = x->method, .path = x->path, .arg = query_arg, .user = x,
                                       .body = body.data, .len = body.len},
                &reply);
    const struct lode_str text = reply.fixed.len ? reply.fixed : lode_buf_str(&reply.out);
    for (size_t i = 0; reply.headers && reply.headers[i][0]; i++)
        http_set(x, reply.headers[i][0], reply.headers[i][1]);
    http_reply_data(x, reply.status, reply.type, text.data, text.len, reply.fixed.len > 0);
    lode_buf_free(&reply.out);
}

/* A JSON object: a new reference, or NULL and *err. */
static json_t *parse_body(struct lode_str text, struct lode_error *err) {
    json_error_t why;
    json_t *body = json_loadb(text.data, text.len, JSON_REJECT_DUPLICATES, &why);
    if (json_is_object(body))
        return body;
    if (body)
        lode_fail(err, LODE_ERR_FORMAT, "", "the body is not a JSON object");
    else
        lode_fail(err, LODE_ERR_FORMAT, "", "the body is not JSON: line %d: %s", why.line, why.text);
    json_decref(body);
    return NULL;
}

static void log_body(struct server *s, const struct http_call *x) {
    const struct lode_str text = lode_buf_str(&x->body);
    json_t *v = json_stringn(text.data, text.len);
    log_event(s->log, LOG_INFO, "body",
              json_pack("{s:s, s:o}", "id", x->id, "text", v ? v : json_string("(no UTF-8 text)")));
}

/* Whether the route's own function answers, and not its API: a search of the likeliest is no generation. */
static bool in_place(const struct route *route, const json_t *body, struct lode_error *err) {
    const bool beams = json_is_true(json_object_get(body, "use_beam_search"));
    if (beams && route->api && !route->post)
        field_fail(err, "use_beam_search", "is there for /v1/completions only (/apply-template gives a chat's "
                                           "text)");
    return route->post && (beams || !route->api);
}

static void post(struct server *s, struct http_call *x, const struct route *route) {
    struct lode_error err = {0};
    const struct asker who = {is_gone, &(struct waiting){s, x}};
    json_t *body = parse_body(lode_buf_str(&x->body), &err), *reply = NULL;
    if (s->o.log_prompts)
        log_body(s, x);
    const bool own = body && in_place(route, body, &err);
    if (own && !(reply = route->post(s, &who, body, &err)) && !err.code)
        err.code = LODE_ERR_NOMEM;
    if (err.code == LODE_ERR_CANCELLED)
        atomic_fetch_add(&s->n_errors, 1); /* nobody is there to be told */
    else if (err.code)
        send_error(s, x, status_of(&err), &err);
    else if (reply)
        send_whole(s, x, reply);
    else
        answer(s, x, body, route->api);
    json_decref(body);
}

static void handle(void *user, struct http_call *x) {
    struct server *s = user;
    starved = false;
    const struct route *route = find_route(x->path);
    const bool get = !strcmp(x->method, "GET") || !strcmp(x->method, "HEAD");
    if (page_has(x->path)) {
        send_page(s, x);
    } else if (!route) {
        refuse(s, x, 404, "", "there is nothing here; /v1/chat/completions answers chats");
    } else if (get && !strcmp(x->path, "/metrics")) {
        http_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", route_metrics(s));
    } else if (get && route->get) {
        send_json(x, 200, route->get(s));
    } else if (route->item && (get || !strcmp(x->method, "DELETE"))) {
        struct lode_error err = {0};
        json_t *item = route->item(s, x->method, x->path + strlen(route->path), &err);
        if (item)
            send_json(x, 200, item);
        else
            send_error(s, x, status_of(&err), &err);
    } else if (strcmp(x->method, "POST") || (!route->post && !route->api)) {
        refuse(s, x, 405, "", route->post || route->api ? "POST expected" : "GET expected");
    } else {
        post(s, x, route);
    }
}

/* ---- who may ask ---- */

/* A browser's question before a request across origins. */
static bool preflight(struct http_call *x) {
    http_set(x, "Access-Control-Allow-Methods", "GET, POST, DELETE");
    http_set(x, "Access-Control-Allow-Headers",
                 "Authorization, Content-Type, X-Api-Key, X-Request-Id, anthropic-version, anthropic-beta");
    http_set(x, "Access-Control-Max-Age", "600");
    http_reply(x, 204, "text/plain", strdup(""));
    return false;
}

static bool on_head(void *user, struct http_call *x) {
    struct server *s = user;
    const struct route *route = find_route(x->path);
    const char *host = http_field(x, "Host"), *origin = http_field(x, "Origin");
    bool named = false;
    starved = false;
    atomic_fetch_add(&s->requests, 1);
    if (s->loopback && !guard_is_local(host)) {
        refuse(s, x, 403, "Host", "this server answers to localhost only");
        return false;
    }
    if (origin && !guard_allows_origin(s->guard, origin, host, &named)) {
        refuse(s, x, 403, "Origin", "pages from elsewhere may not call this server (--cors-origin)");
        return false;
    }
    if (named) {
        http_set(x, "Access-Control-Allow-Origin", origin);
        http_set(x, "Vary", "Origin");
        if (!strcmp(x->method, "OPTIONS"))
            return preflight(x);
    }
    if (!(route && route->open) && !page_is_open(x->path) &&
        !guard_knows_key(s->guard, http_field(x, "Authorization"),
                                                    http_field(x, "x-api-key"))) {
        refuse(s, x, 401, "Authorization", "a key is needed: Authorization: Bearer KEY");
        return false;
    }
    return true;
}

/* What needs no thread is answered at once, so that overload is told quickly and health is seen. */
static bool on_dispatch(void *user, struct http_call *x) {
    struct server *s = user;
    const struct route *route = find_route(x->path);
    struct lode_error err = {.code = LODE_ERR_LIMIT};
    if (route && route->get == health) {
        handle(s, x);
        return false;
    }
    if (!route || (!route->api && !route->computes))
        return true;
    if (atomic_load(&s->stopping)) {
        snprintf(err.text, sizeof err.text, "the server is stopping");
        send_error(s, x, 503, &err);
        return false;
    }
    if (atomic_load(&s->active) >= s->most_active) {
        snprintf(err.where, sizeof err.where, "queue");
        snprintf(err.text, sizeof err.text, "all places are taken: %u requests run or wait",
                 s->most_active);
        send_error(s, x, 503, &err);
        return false;
    }
    x->context = calloc(1, sizeof(struct account));
    if (!x->context) {
        err.code = LODE_ERR_NOMEM;
        send_error(s, x, 503, &err);
        return false;
    }
    atomic_fetch_add(&s->active, 1);
    return true;
}

static void on_over(void *user, struct http_call *x) {
    struct server *s = user;
    log_request(s, x);
    if (x->context) {
        /* the last answers count most; two at once may overwrite each other, which does no harm */
        const unsigned ms = (unsigned)((now() - x->started) * 1e3), old = atomic_load(&s->answer_ms);
        if (x->status == 200)
            atomic_store(&s->answer_ms, old ? old - old / 8 + ms / 8 : ms);
        atomic_fetch_sub(&s->active, 1);
        free(x->context);
    }
}

/* ---- the server ---- */

/* Until control_fd says so, and then until the running requests are done, or drain is over. */
static void wait_for_end(struct server *s, struct transport *t) {
    struct pollfd p = {.fd = s->o.control_fd, .events = POLLIN};
    struct lode_error err;
    char byte = 0;
    while (byte != SERVE_STOP) {
        const int n = poll(&p, 1, SWEEP);
        transport_sweep(t);
        models_sweep(s->models);
        if (n > 0 && read(s->o.control_fd, &byte, 1) == 1 && byte == SERVE_RELOAD) {
            log_reopen(s->log);
            const int rc = guard_reload(s->guard, &err);
            log_event(s->log, rc < 0 ? LOG_ERROR : LOG_INFO, "reload",
                      json_pack("{s:I, s:s}", "keys", (json_int_t)guard_keys(s->guard), "error",
                                rc < 0 ? err.text : ""));
            s->o.reloaded(s->o.user, rc, guard_keys(s->guard), &err);
        }
    }
    atomic_store(&s->stopping, 1);
    transport_quiesce(t);
    const time_t end = time(NULL) + s->o.drain;
    while (atomic_load(&s->active) && time(NULL) < end && poll(&p, 1, HOLD) <= 0)
        ;
    atomic_store(&s->stopping, 2);
}

static int listen_and_serve(struct server *s, struct lode_error *err) {
    const struct serve_opts *o = &s->o;
    const struct transport_opts to = {
        .host = o->host,
        .port = o->port,
        .connections = o->connections ? o->connections : CONNECTIONS,
        .workers = s->most_active + SPARE_WORKERS,
        .patience = o->patience ? o->patience : PATIENCE,
        .max_body = o->max_body ? o->max_body : MAX_BODY,
        .max_bodies = MAX_BODIES,
        .tls_key = o->tls_key,
        .tls_cert = o->tls_cert,
        .head = on_head,
        .dispatch = on_dispatch,
        .handle = handle,
        .over = on_over,
        .error = error_text,
        .user = s,
    };
    s->loopback = transport_is_loopback(o->host);
    int rc = page_init(s, err);
    if (rc == 0)
        rc = transport_create(&s->transport, &to, err);
    if (rc < 0)
        return rc;
    if (o->ready)
        o->ready(o->user, transport_port(s->transport), models_first_kind(s->models));
    wait_for_end(s, s->transport);
    transport_free(s->transport);
    return 0;
}

int serve_open(struct server **out, const struct serve_opts *opts, struct lode_error *err) {
    struct server *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return lode_fail(err, LODE_ERR_NOMEM, "", "no memory for the server");
    json_set_alloc_funcs(json_memory, free);
    s->o = *opts;
    s->started = time(NULL);
    s->most_active = opts->most_active ? opts->most_active : 64;
    int rc = log_open(&s->log, &opts->log, err);
    if (rc == 0)
        rc = guard_create(&s->guard, &opts->guard, err);
    if (rc == 0)
        rc = responses_store_create(&s->responses, err);
    if (rc == 0)
        rc = models_create(&s->models, s, err);
    if (rc < 0)
        serve_close(s);
    else
        *out = s;
    return rc;
}

void serve_close(struct server *s) {
    if (!s)
        return;
    page_deinit(s);
    models_free(s->models);
    responses_store_free(s->responses);
    guard_free(s->guard);
    log_close(s->log);
    free(s);
}

int serve_run(struct server *s, struct lode_error *err) { return listen_and_serve(s, err); }

/* ---- without a connection ---- */

static int ask(struct server *s, const struct api *api, json_t *body, bool (*stop)(void *user), void *user,
               json_t **reply, struct lode_error *err) {
    struct exchange *e;
    json_object_set_new(body, "stream", json_false());
    int rc = exchange_create(&e, s, api, body, 0, err);
    while (rc >= 0 && rc != ANSWER_DONE) {
        if (stop(user)) {
            exchange_free(e);
            return LODE_ERR_CANCELLED;
        }
        rc = exchange_step(e, HOLD, err);
    }
    *reply = rc < 0 ? NULL : api->reply(e);
    exchange_free(e);
    return rc < 0 ? rc : 0;
}

int serve_ask(struct server *s, const char *path, const char *text, size_t len, bool (*stop)(void *user),
              void *user, char **reply) {
    starved = false;
    const struct route *route = find_route(path);
    struct lode_error err = {0};
    json_t *body = parse_body((struct lode_str){text, len}, &err), *value = NULL;
    int rc = body ? 0 : err.code, status = 200;
    *reply = NULL;
    if (rc == 0 && (!route || (!route->api && !route->post)))
        rc = lode_fail(&err, LODE_ERR_MISSING, "url", "there is nothing at %.100s", path);
    else if (rc == 0 && !in_place(route, body, &err))
        rc = err.code ? err.code : ask(s, route->api, body, stop, user, &value, &err);
    else if (rc == 0 && !(value = route->post(s, &(struct asker){stop, user}, body, &err)))
        rc = err.code ? err.code : LODE_ERR_NOMEM;
    json_decref(body);
    if (starved && rc != LODE_ERR_CANCELLED) {
        err = no_memory;
        rc = err.code;
    }
    if (rc < 0 && rc != LODE_ERR_CANCELLED) {
        err.code = rc;
        status = status_of(&err);
        json_decref(value);
        value = errors_of(path)(status, &err);
    }
    if (value)
        *reply = json_text(value);
    json_decref(value);
    return status;
}
