/* http.c - connections: who may ask, which route answers, and what goes over the wire. */
#include "serve/exchange.h"

#include "base/error.h"
#include "serve/fields.h"
#include "serve/page.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

enum { IDLE_SECONDS = 60, HEADER_BYTES = 64 << 10 };

struct call { /* one request on a connection */
    struct server *s;
    error_fn *error; /* how its API says what is wrong */
    struct lode_buf body;
    int refused; /* a status; the body is not kept */
};

struct stream { /* a reply that is being written */
    struct exchange *x;
    int socket;
    struct server *s;
    bool done;
};

static bool went_away(int socket) {
    struct pollfd p = {.fd = socket, .events = POLLRDHUP};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

static int socket_of(struct MHD_Connection *conn) {
    return MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

/* ---- replies ---- */

int status_of(const struct lode_error *err) {
    switch (err->code) {
    case LODE_ERR_NOMEM:
        return 503;
    case LODE_ERR_LIMIT:
        return !strcmp(err->where, "queue") ? 503 : 400;
    case LODE_ERR_ARG:
    case LODE_ERR_FORMAT:
    case LODE_ERR_UNSUPPORTED:
        return 400;
    default:
        return 500;
    }
}

static enum MHD_Result send_text(struct MHD_Connection *conn, int status, const char *type,
                                 char *text) {
    if (!text)
        return MHD_NO;
    struct MHD_Response *r =
        MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    if (!r) {
        free(text);
        return MHD_NO;
    }
    MHD_add_response_header(r, "Content-Type", type);
    if (status == 503)
        MHD_add_response_header(r, "Retry-After", "1");
    if (status == 401)
        MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    const enum MHD_Result rc = MHD_queue_response(conn, (unsigned)status, r);
    MHD_destroy_response(r);
    return rc;
}

static enum MHD_Result send_json(struct MHD_Connection *conn, int status, json_t *value) {
    char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(value);
    return send_text(conn, status, "application/json; charset=utf-8", text);
}

static enum MHD_Result send_error(struct call *call, struct MHD_Connection *conn, int status,
                                  const struct lode_error *err) {
    atomic_fetch_add(&call->s->n_errors, 1);
    return send_json(conn, status, call->error(status, err));
}

static enum MHD_Result refuse(struct call *call, struct MHD_Connection *conn, int status,
                              const char *where, const char *text) {
    struct lode_error err = {.code = LODE_ERR_ARG};
    snprintf(err.where, sizeof err.where, "%s", where);
    snprintf(err.text, sizeof err.text, "%s", text);
    return send_error(call, conn, status, &err);
}

/* ---- answers ---- */

static void end_stream(void *user) {
    struct stream *st = user;
    exchange_free(st->x);
    atomic_fetch_sub(&st->s->active, 1);
    free(st);
}

/* An error once the head is out: an event of its own, then the end. */
static void add_error(struct stream *st, const struct lode_error *err) {
    const struct api *api = st->x->api;
    st->x->out.failed = false; /* what could not be added is lost; what is wrong may still fit */
    if (api->put_error)
        api->put_error(st->x, status_of(err), err);
    else
        sse_data(st->x, NULL, api->error(status_of(err), err));
    st->done = true;
}

static ssize_t read_stream(void *user, uint64_t pos, char *out, size_t cap) {
    struct stream *st = user;
    struct lode_buf *b = &st->x->out;
    (void)pos;
    while (b->len == 0) {
        struct lode_error err = {0};
        if (st->done)
            return MHD_CONTENT_READER_END_OF_STREAM;
        if (went_away(st->socket) || atomic_load(&st->s->stopping) > 1)
            return MHD_CONTENT_READER_END_WITH_ERROR;
        const int rc = exchange_step(st->x, HOLD, &err);
        st->done = rc == ANSWER_DONE;
        if (rc < 0) {
            err.code = rc;
            add_error(st, &err);
            if (b->failed)
                return MHD_CONTENT_READER_END_WITH_ERROR;
        }
    }
    const size_t n = b->len < cap ? b->len : cap;
    memcpy(out, b->data, n);
    memmove(b->data, b->data + n, b->len - n);
    b->len -= n;
    return (ssize_t)n;
}

static enum MHD_Result send_stream(struct server *s, struct MHD_Connection *conn,
                                   struct exchange *x) {
    struct stream *st = malloc(sizeof *st);
    struct MHD_Response *r = NULL;
    const char *type = x->api->stream_type ? x->api->stream_type : "text/event-stream; charset=utf-8";
    if (st) {
        *st = (struct stream){.x = x, .socket = socket_of(conn), .s = s};
        r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, read_stream, st, end_stream);
    }
    if (!r) {
        free(st);
        exchange_free(x);
        atomic_fetch_sub(&s->active, 1);
        return MHD_NO;
    }
    MHD_add_response_header(r, "Content-Type", type);
    MHD_add_response_header(r, "Cache-Control", "no-cache");
    MHD_add_response_header(r, "X-Accel-Buffering", "no");
    const enum MHD_Result rc = MHD_queue_response(conn, 200, r);
    MHD_destroy_response(r);
    return rc;
}

static enum MHD_Result answer(struct call *call, struct MHD_Connection *conn, const json_t *body,
                              const struct api *api) {
    struct server *s = call->s;
    struct lode_error err = {0};
    struct exchange *x;
    const int socket = socket_of(conn);
    atomic_fetch_add(&s->active, 1);
    int rc = exchange_create(&x, s, api, body, &err);
    if (rc == 0 && x->r.stream)
        return send_stream(s, conn, x);
    bool gone = false;
    while (rc >= 0 && rc != ANSWER_DONE && !gone) {
        rc = exchange_step(x, HOLD, &err);
        gone = rc != ANSWER_DONE && (went_away(socket) || atomic_load(&s->stopping) > 1);
    }
    err.code = rc < 0 ? rc : 0;
    const enum MHD_Result sent = gone     ? MHD_NO
                                 : rc < 0 ? send_error(call, conn, status_of(&err), &err)
                                          : send_json(conn, 200, api->reply(x));
    exchange_free(x);
    atomic_fetch_sub(&s->active, 1);
    return sent;
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
    const struct api *api; /* answers POST */
    bool open;             /* needs no key */
} routes[] = {
    {"/health", .get = health, .open = true},
    {"/v1/health", .get = health, .open = true},
    {"/v1/models", .get = route_models},
    {"/models", .get = route_models},
    {"/props", .get = route_props},
    {"/metrics", .get = NULL},
    {"/v1/chat/completions", .api = &openai_chat},
    {"/chat/completions", .api = &openai_chat},
    {"/v1/completions", .api = &openai_text},
    {"/completions", .api = &openai_text},
    {"/tokenize", .post = route_tokenize},
    {"/detokenize", .post = route_detokenize},
    {"/apply-template", .post = route_template},
};

static const struct route *find_route(const char *path) {
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (!strcmp(routes[i].path, path))
            return &routes[i];
    return NULL;
}

/* Equal, in a time that depends on the lengths only. */
static bool same_key(const char *a, const char *b) {
    const size_t n = strlen(a);
    unsigned diff = 0;
    if (n != strlen(b))
        return false;
    for (size_t i = 0; i < n; i++)
        diff |= (unsigned char)(a[i] ^ b[i]);
    return !diff;
}

static bool has_key(const struct server *s, struct MHD_Connection *conn) {
    const char *key = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "Authorization");
    if (key && !strncasecmp(key, "Bearer ", 7))
        key += 7;
    else
        key = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "x-api-key");
    bool found = s->o.n_keys == 0;
    for (size_t i = 0; key && i < s->o.n_keys; i++)
        found = same_key(key, s->o.keys[i]) || found;
    return found;
}

/* A page on the web can make a browser call this machine under a name of its own (DNS rebinding): a
 * server on the loopback answers to the loopback's names only. */
static bool knows_host(const struct server *s, struct MHD_Connection *conn) {
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    const char *host = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "Host");
    bool known = !s->loopback || !host;
    for (size_t i = 0; !known && i < sizeof names / sizeof *names; i++) {
        const size_t n = strlen(names[i]);
        known = !strncasecmp(host, names[i], n) && (!host[n] || host[n] == ':');
    }
    return known;
}

static const char *query_arg(void *user, const char *name) {
    return MHD_lookup_connection_value(user, MHD_GET_ARGUMENT_KIND, name);
}

/* The web page and what it alone asks for. */
static enum MHD_Result send_page(struct call *call, struct MHD_Connection *conn, const char *path,
                                 const char *method) {
    const struct lode_str body = lode_buf_str(&call->body);
    struct page_reply reply;
    page_answer(call->s,
                &(struct page_request){.method = method, .path = path, .arg = query_arg, .user = conn,
                                       .body = body.data, .len = body.len},
                &reply);
    const struct lode_str text = reply.fixed.len ? reply.fixed : lode_buf_str(&reply.out);
    struct MHD_Response *r = MHD_create_response_from_buffer(
        text.len, (void *)text.data, reply.fixed.len ? MHD_RESPMEM_PERSISTENT : MHD_RESPMEM_MUST_COPY);
    enum MHD_Result rc = MHD_NO;
    if (r) {
        MHD_add_response_header(r, "Content-Type", reply.type);
        for (size_t i = 0; reply.headers && reply.headers[i][0]; i++)
            MHD_add_response_header(r, reply.headers[i][0], reply.headers[i][1]);
        rc = MHD_queue_response(conn, (unsigned)reply.status, r);
        MHD_destroy_response(r);
    }
    lode_buf_free(&reply.out);
    return rc;
}

static enum MHD_Result post(struct call *call, struct MHD_Connection *conn,
                            const struct route *route) {
    struct server *s = call->s;
    struct lode_error err = {0};
    json_error_t why;
    const struct lode_str text = lode_buf_str(&call->body);
    json_t *body = json_loadb(text.data, text.len, JSON_REJECT_DUPLICATES, &why), *reply = NULL;
    enum MHD_Result rc;
    if (!body) {
        snprintf(err.text, sizeof err.text, "the body is not JSON: line %d: %s", why.line, why.text);
        err.code = LODE_ERR_FORMAT;
    } else if (!json_is_object(body)) {
        snprintf(err.text, sizeof err.text, "the body is not a JSON object");
        err.code = LODE_ERR_FORMAT;
    } else if (!route->api && !(reply = route->post(s, body, &err)) && !err.code) {
        err.code = LODE_ERR_NOMEM;
    }
    if (err.code)
        rc = send_error(call, conn, status_of(&err), &err);
    else
        rc = reply ? send_json(conn, 200, reply) : answer(call, conn, body, route->api);
    json_decref(body);
    return rc;
}

/* What can be said before the body has come: 0, or a status. */
static int admit(const struct server *s, struct MHD_Connection *conn, const char *path) {
    const struct route *route = find_route(path);
    const char *length = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "Content-Length");
    if (!knows_host(s, conn))
        return 403;
    if (!(route && route->open) && !page_is_open(path) && !has_key(s, conn))
        return 401;
    if (length && strtoull(length, NULL, 10) > MAX_BODY)
        return 413;
    return 0;
}

static enum MHD_Result respond(struct call *call, struct MHD_Connection *conn, const char *path,
                               const char *method) {
    struct server *s = call->s;
    const struct route *route = find_route(path);
    const bool get = !strcmp(method, "GET") || !strcmp(method, "HEAD");
    if (call->refused == 403)
        return refuse(call, conn, 403, "Host", "this server answers to localhost only");
    if (call->refused == 401)
        return refuse(call, conn, 401, "Authorization", "a key is needed: Authorization: Bearer KEY");
    if (call->refused == 413)
        return refuse(call, conn, 413, "", "the body is larger than 32 MiB");
    if (page_has(path))
        return send_page(call, conn, path, method);
    if (!strncmp(path, "/v1/models/", 11) && !strcmp(path + 11, s->model.name) && get) {
        json_t *all = route_models(s);
        json_t *one = json_incref(json_array_get(json_object_get(all, "data"), 0));
        json_decref(all);
        return send_json(conn, 200, one);
    }
    if (!route)
        return refuse(call, conn, 404, "", "there is nothing here; /v1/chat/completions answers chats");
    if (get && !strcmp(path, "/metrics"))
        return send_text(conn, 200, "text/plain; version=0.0.4; charset=utf-8", route_metrics(s));
    if (get && route->get)
        return send_json(conn, 200, route->get(s));
    if (strcmp(method, "POST") || (!route->post && !route->api))
        return refuse(call, conn, 405, "",
                      route->post || route->api ? "POST expected" : "GET expected");
    if (atomic_load(&s->stopping)) {
        const struct lode_error err = {.code = LODE_ERR_LIMIT, .text = "the server is stopping"};
        return send_error(call, conn, 503, &err);
    }
    /* an answer may take longer than an idle connection is kept */
    MHD_set_connection_option(conn, MHD_CONNECTION_OPTION_TIMEOUT, 0U);
    return post(call, conn, route);
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *conn, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *size, void **state) {
    struct server *s = user;
    struct call *call = *state;
    (void)version;
    if (!call) {
        call = *state = calloc(1, sizeof *call);
        if (!call)
            return MHD_NO;
        const struct route *route = find_route(path);
        call->s = s;
        call->error = route && route->api ? route->api->error : openai_error;
        atomic_fetch_add(&s->requests, 1);
        call->refused = admit(s, conn, path);
        /* not worth reading on */
        return call->refused ? respond(call, conn, path, method) : MHD_YES;
    }
    if (*size) {
        if (call->body.len + *size > MAX_BODY)
            call->refused = 413;
        else if (!call->refused && !lode_buf_add(&call->body, data, *size))
            return MHD_NO;
        *size = 0;
        return MHD_YES;
    }
    return respond(call, conn, path, method);
}

static void on_completed(void *user, struct MHD_Connection *conn, void **state,
                         enum MHD_RequestTerminationCode why) {
    struct call *call = *state;
    (void)user, (void)why;
    if (!call)
        return;
    MHD_set_connection_option(conn, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)IDLE_SECONDS);
    lode_buf_free(&call->body);
    free(call);
    *state = NULL;
}

/* ---- the server ---- */

static int find_address(const struct serve_opts *o, struct sockaddr_storage *out,
                        struct lode_error *err) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list;
    char port[8];
    snprintf(port, sizeof port, "%u", o->port);
    const int rc = getaddrinfo(strcmp(o->host, "localhost") ? o->host : "127.0.0.1", port, &hints, &list);
    if (rc) {
        *err = (struct lode_error){.code = LODE_ERR_IO};
        snprintf(err->where, sizeof err->where, "--host %.200s", o->host);
        snprintf(err->text, sizeof err->text, "%s", gai_strerror(rc));
        return LODE_ERR_IO;
    }
    memcpy(out, list->ai_addr, list->ai_addrlen);
    freeaddrinfo(list);
    return 0;
}

static bool is_loopback(const struct sockaddr_storage *a) {
    if (a->ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
    return a->ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

/* Until stop_fd says so, and then until the running requests are done, or drain is over. */
static void wait_for_end(struct server *s, struct MHD_Daemon *d) {
    struct pollfd p = {.fd = s->o.stop_fd, .events = POLLIN};
    char byte;
    while (poll(&p, 1, -1) < 0 && errno == EINTR)
        ;
    if (read(s->o.stop_fd, &byte, 1) < 0)
        return;
    atomic_store(&s->stopping, 1);
    const int socket = MHD_quiesce_daemon(d);
    if (socket >= 0)
        close(socket);
    const time_t end = time(NULL) + s->o.drain;
    while (atomic_load(&s->active) && time(NULL) < end && poll(&p, 1, HOLD) <= 0)
        ;
    atomic_store(&s->stopping, 2);
}

static int listen_and_serve(struct server *s, struct lode_error *err) {
    struct sockaddr_storage address = {0};
    int rc = find_address(&s->o, &address, err);
    if (rc < 0)
        return rc;
    s->loopback = is_loopback(&address);
    LODE_TRY(page_init(s, err));
    errno = 0;
    struct MHD_Daemon *d = MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
            MHD_USE_ITC | (address.ss_family == AF_INET6 ? MHD_USE_IPv6 : 0),
        s->o.port, NULL, NULL, on_request, s, MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&address,
        MHD_OPTION_CONNECTION_LIMIT, s->o.connections ? s->o.connections : 512U,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)HEADER_BYTES, MHD_OPTION_NOTIFY_COMPLETED, on_completed, s, MHD_OPTION_END);
    if (!d) {
        *err = (struct lode_error){.code = LODE_ERR_IO};
        snprintf(err->where, sizeof err->where, "%.200s:%u", s->o.host, s->o.port);
        snprintf(err->text, sizeof err->text, "cannot listen there: %s; choose another --port",
                 errno ? strerror(errno) : "unknown cause");
        return LODE_ERR_IO;
    }
    if (s->o.ready)
        s->o.ready(s->o.user, MHD_get_daemon_info(d, MHD_DAEMON_INFO_BIND_PORT)->port);
    wait_for_end(s, d);
    MHD_stop_daemon(d);
    return 0;
}

int serve_run(const struct serve_opts *opts, struct lode_error *err) {
    struct server s = {.o = *opts,
                       .model = {.name = opts->name,
                                 .model = opts->model,
                                 .scheduler = opts->scheduler,
                                 .template = opts->template,
                                 .sampling = opts->sampling},
                       .started = time(NULL)};
    int rc = served_init(&s.model, err);
    if (rc == 0)
        rc = listen_and_serve(&s, err);
    page_deinit(&s);
    /* a request that was cut off may hold a form until its step is done */
    lode_scheduler_free(opts->scheduler);
    served_deinit(&s.model);
    return rc;
}
