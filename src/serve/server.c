/* server.c - the server's life: what it is made of, listening, and the end. */
#include "serve/http.h"

#include "base/error.h"
#include "serve/guard.h"
#include "serve/log.h"
#include "serve/models.h"
#include "serve/page.h"
#include "serve/reply.h"
#include "serve/responses.h"

#include "lode/memory.h"

#include <poll.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
    PATIENCE = 60, /* seconds that a client gets to send a request */
    CONNECTIONS = 16384,
    MAX_BODIES = 256 << 20,
    SPARE_WORKERS = 16, /* beyond the answers: for the small routes */
    SWEEP = 1000,       /* ms */
    TRIM = 30,          /* sweeps */
};

/* Until control_fd says so, and then until the running requests are done, or drain is over. */
static void wait_for_end(struct server *s, struct transport *t) {
    struct pollfd p = {.fd = s->o.control_fd, .events = POLLIN};
    struct lode_error err;
    char byte = 0;
    uint32_t sweeps = 0;
    while (byte != SERVE_STOP) {
        const int n = poll(&p, 1, SWEEP);
        transport_sweep(t);
        models_sweep(s->models);
        /* What requests have freed lies between pieces that stay, compiled forms and kept answers: malloc gives
         * such pages back when it is told to, and else grows to the sum of all bad moments. */
        if (++sweeps % TRIM == 0)
            lode_memory_trim(0);
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
    struct transport_opts to = {
        .host = o->host,
        .port = o->port,
        .connections = o->connections ? o->connections : CONNECTIONS,
        .workers = s->most_active + SPARE_WORKERS,
        .patience = o->patience ? o->patience : PATIENCE,
        .max_body = o->max_body ? o->max_body : MAX_BODY,
        .max_bodies = MAX_BODIES,
        .tls_key = o->tls_key,
        .tls_cert = o->tls_cert,
    };
    http_serve(&to, s);
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
    reply_setup();
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
