/* http.c - requests: who may ask, and which route answers. */
#include "serve/http.h"

#include "base/error.h"
#include "serve/fields.h"
#include "serve/guard.h"
#include "serve/json_read.h"
#include "serve/log.h"
#include "serve/page.h"
#include "serve/reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

error_fn *http_errors(const char *path) {
    const struct route *route = find_route(path);
    return route && route->error         ? route->error
           : route && route->api         ? route->api->error
           : !strncmp(path, "/api/", 5) ? ollama_error
                                         : openai_error;
}

static char *error_text(void *user, struct http_call *x, int status, const char *text) {
    struct server *s = user;
    struct lode_error err = {.code = LODE_ERR_ARG};
    atomic_fetch_add(&s->n_errors, 1);
    snprintf(err.text, sizeof err.text, "%s", text);
    json_t *e = http_errors(x->path)(status, &err);
    char *json = e ? json_text(e) : NULL;
    json_decref(e);
    return json;
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
    json_t *body = json_read(text.data, text.len, JSON_REJECT_DUPLICATES, &why);
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
    bool beams = false;
    if (field_bool(body, "use_beam_search", &beams, err) < 0)
        return false;
    if (beams && route->api && !route->post)
        field_fail(err, "use_beam_search", "is there for /v1/completions only (/apply-template gives a chat's "
                                           "text)");
    return route->post && (beams || !route->api);
}

static void post(struct server *s, struct http_call *x, const struct route *route) {
    struct lode_error err = {0};
    const struct asker who = {http_asker_gone, &(struct waiting){s, x}};
    json_t *body = parse_body(lode_buf_str(&x->body), &err), *reply = NULL;
    if (s->o.log_prompts)
        log_body(s, x);
    const bool own = body && in_place(route, body, &err);
    if (own && !(reply = route->post(s, &who, body, &err)) && !err.code)
        err.code = LODE_ERR_NOMEM;
    if (err.code == LODE_ERR_CANCELLED)
        atomic_fetch_add(&s->n_errors, 1); /* nobody is there to be told */
    else if (err.code)
        reply_error(s, x, status_of(&err), &err);
    else if (reply)
        reply_whole(s, x, reply);
    else
        http_answer(s, x, body, route->api);
    json_decref(body);
}

static void handle(void *user, struct http_call *x) {
    struct server *s = user;
    reply_begin();
    const struct route *route = find_route(x->path);
    const bool get = !strcmp(x->method, "GET") || !strcmp(x->method, "HEAD");
    if (page_has(x->path)) {
        send_page(s, x);
    } else if (!route) {
        reply_refusal(s, x, 404, "", "there is nothing here; /v1/chat/completions answers chats");
    } else if (get && !strcmp(x->path, "/metrics")) {
        http_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", route_metrics(s));
    } else if (get && route->get) {
        reply_json(x, 200, route->get(s));
    } else if (route->item && (get || !strcmp(x->method, "DELETE"))) {
        struct lode_error err = {0};
        json_t *item = route->item(s, x->method, x->path + strlen(route->path), &err);
        if (item)
            reply_json(x, 200, item);
        else
            reply_error(s, x, status_of(&err), &err);
    } else if (strcmp(x->method, "POST") || (!route->post && !route->api)) {
        const bool posts = route->post || route->api;
        http_set(x, "Allow", posts ? "POST" : route->item ? "GET, DELETE" : "GET");
        reply_refusal(s, x, 405, "", posts ? "POST expected" : "GET expected");
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
    reply_begin();
    atomic_fetch_add(&s->requests, 1);
    if (s->loopback && !guard_is_local(host)) {
        reply_refusal(s, x, 403, "Host", "this server answers to localhost only");
        return false;
    }
    if (origin && !guard_allows_origin(s->guard, origin, host, &named)) {
        reply_refusal(s, x, 403, "Origin", "pages from elsewhere may not call this server (--cors-origin)");
        return false;
    }
    const char *coding = http_field(x, "Content-Encoding");
    if (coding && *coding && strcasecmp(coding, "identity")) {
        reply_refusal(s, x, 415, "Content-Encoding", "bodies are taken as they are: send it without");
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
        reply_refusal(s, x, 401, "Authorization", "a key is needed: Authorization: Bearer KEY");
        return false;
    }
    return true;
}

/* What needs no thread is answered at once, so that overload is told quickly and health is seen. */
static bool on_dispatch(void *user, struct http_call *x) {
    struct server *s = user;
    const struct route *route = find_route(x->path);
    if (route && route->get == health) {
        handle(s, x);
        return false;
    }
    if (!route || (!route->api && !route->computes))
        return true;
    return http_enter(s, x);
}

static void on_over(void *user, struct http_call *x) { http_leave(user, x); }

void http_serve(struct transport_opts *o, struct server *s) {
    o->head = on_head;
    o->dispatch = on_dispatch;
    o->handle = handle;
    o->over = on_over;
    o->error = error_text;
    o->user = s;
}

/* ---- without a connection ---- */

static bool never(void *user) {
    (void)user;
    return false;
}

static int ask(struct server *s, const struct api *api, const struct asker *who, json_t *body,
               json_t **reply, struct lode_error *err) {
    struct exchange *e;
    json_object_set_new(body, "stream", json_false());
    int rc = exchange_create(&e, s, api, body, 0, err);
    while (rc >= 0 && rc != ANSWER_DONE) {
        if (who->gone(who->user)) {
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
    reply_begin();
    const struct route *route = find_route(path);
    const struct asker who = {stop ? stop : never, user};
    struct lode_error err = {0};
    json_t *body = parse_body((struct lode_str){text, len}, &err), *value = NULL;
    int rc = body ? 0 : err.code, status = 200;
    *reply = NULL;
    if (rc == 0 && (!route || (!route->api && !route->post)))
        rc = lode_fail(&err, LODE_ERR_MISSING, "url", "there is nothing at %.100s", path);
    else if (rc == 0 && !in_place(route, body, &err))
        rc = err.code ? err.code : ask(s, route->api, &who, body, &value, &err);
    else if (rc == 0 && !(value = route->post(s, &who, body, &err)))
        rc = err.code ? err.code : LODE_ERR_NOMEM;
    json_decref(body);
    if (reply_starved() && rc != LODE_ERR_CANCELLED) {
        err = reply_no_memory;
        rc = err.code;
    }
    if (rc < 0 && rc != LODE_ERR_CANCELLED) {
        err.code = rc;
        status = status_of(&err);
        json_decref(value);
        value = http_errors(path)(status, &err);
    }
    if (value)
        *reply = json_text(value);
    json_decref(value);
    return status;
}
