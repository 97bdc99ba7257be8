/* http_call.c - see transport.h: a request's head, its reply, whole or in pieces. */
#include "serve/transport_parts.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { BACKLOG = 4 << 20 /* bytes that wait for a client before its request pauses */ };

void live_let_go(struct live *l) {
    struct transport *t = l->t;
    pthread_mutex_lock(&l->lock);
    const bool last = --l->owners == 0;
    pthread_mutex_unlock(&l->lock);
    if (!last)
        return;
    t->o.over(t->o.user, &l->x);
    if (l->response)
        MHD_destroy_response(l->response);
    atomic_fetch_sub(&t->bodies, l->x.body.cap);
    lode_buf_free(&l->x.body);
    lode_buf_free(&l->out);
    lode_buf_free(&l->fields);
    pthread_cond_destroy(&l->drained);
    pthread_mutex_destroy(&l->lock);
    free((char *)l->x.method);
    free((char *)l->x.path);
    free(l);
}

/* With the lock held. */
static void wake(struct live *l) {
    if (l->asleep && !l->closed) {
        l->asleep = false;
        MHD_resume_connection(l->conn);
    }
}

const char *http_field(const struct http_call *x, const char *name) {
    return MHD_lookup_connection_value(live_of(x)->conn, MHD_HEADER_KIND, name);
}

struct field_count {
    const char *name;
    unsigned n;
};

static enum MHD_Result count_field(void *user, enum MHD_ValueKind kind, const char *name,
                                   const char *value) {
    struct field_count *c = user;
    (void)kind, (void)value;
    c->n += !strcasecmp(name, c->name);
    return MHD_YES;
}

unsigned http_fields(const struct http_call *x, const char *name) {
    struct field_count c = {.name = name};
    MHD_get_connection_values(live_of(x)->conn, MHD_HEADER_KIND, count_field, &c);
    return c.n;
}

const char *http_arg(const struct http_call *x, const char *name) {
    return MHD_lookup_connection_value(live_of(x)->conn, MHD_GET_ARGUMENT_KIND, name);
}

void http_set(struct http_call *x, const char *name, const char *value) {
    struct live *l = live_of(x);
    const size_t before = l->fields.len;
    if (!lode_buf_add(&l->fields, name, strlen(name) + 1) ||
        !lode_buf_add(&l->fields, value, strlen(value) + 1))
        l->fields.len = before;
}

static void add_fields(struct live *l, struct MHD_Response *r, const char *type) {
    MHD_add_response_header(r, "Content-Type", type);
    MHD_add_response_header(r, "X-Request-Id", l->x.id);
    MHD_add_response_header(r, "request-id", l->x.id); /* where Anthropic's clients look */
    for (size_t at = 0; at < l->fields.len;) {
        const char *name = l->fields.data + at, *value = name + strlen(name) + 1;
        MHD_add_response_header(r, name, value);
        at = (size_t)(value - l->fields.data) + strlen(value) + 1;
    }
}

void live_settle(struct live *l, struct MHD_Response *response) {
    pthread_mutex_lock(&l->lock);
    l->response = response;
    l->ready = true;
    wake(l);
    pthread_mutex_unlock(&l->lock);
}

void http_reply_data(struct http_call *x, int status, const char *type, const void *data, size_t len,
                     bool lasts) {
    struct live *l = live_of(x);
    struct MHD_Response *r = MHD_create_response_from_buffer(
        len, (void *)data, lasts ? MHD_RESPMEM_PERSISTENT : MHD_RESPMEM_MUST_COPY);
    if (r)
        add_fields(l, r, type);
    x->status = r ? status : 0;
    x->n_sent = len;
    live_settle(l, r);
}

void http_reply(struct http_call *x, int status, const char *type, char *text) {
    if (text)
        http_reply_data(x, status, type, text, strlen(text), false);
    else
        live_settle(live_of(x), NULL);
    free(text);
}

/* The connection's side of a stream. */
static ssize_t read_out(void *user, uint64_t pos, char *out, size_t cap) {
    struct live *l = user;
    ssize_t n = 0;
    (void)pos;
    pthread_mutex_lock(&l->lock);
    const size_t left = l->out.len - l->at;
    if (left) {
        n = (ssize_t)(left < cap ? left : cap);
        memcpy(out, l->out.data + l->at, (size_t)n);
        l->at += (size_t)n;
        if (l->at == l->out.len) {
            lode_buf_clear(&l->out);
            l->at = 0;
        }
        pthread_cond_signal(&l->drained);
    } else if (l->done) {
        n = l->broken ? MHD_CONTENT_READER_END_WITH_ERROR : MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        l->asleep = true;
        MHD_suspend_connection(l->conn);
    }
    pthread_mutex_unlock(&l->lock);
    return n;
}

void http_stream(struct http_call *x, const char *type) {
    struct live *l = live_of(x);
    struct MHD_Response *r =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, read_out, l, NULL);
    if (r)
        add_fields(l, r, type);
    l->streams = true;
    x->status = r ? 200 : 0;
    live_settle(l, r);
}

bool live_left(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

bool http_gone(struct http_call *x) {
    struct live *l = live_of(x);
    pthread_mutex_lock(&l->lock); /* while it is held the descriptor cannot become another's */
    const bool gone = l->closed || atomic_load(&l->t->ending) || live_left(l->client->fd);
    pthread_mutex_unlock(&l->lock);
    return gone;
}

/* Until less than BACKLOG waits; false when the client took nothing for too long. */
static bool wait_drained(struct live *l) {
    size_t before = l->at;
    double end = lode_clock() + l->t->o.patience;
    while (!l->closed && !atomic_load(&l->t->ending) && l->out.len - l->at > BACKLOG) {
        const struct timespec t = lode_clock_after(1000);
        pthread_cond_timedwait(&l->drained, &l->lock, &t);
        if (l->at != before) {
            before = l->at;
            end = lode_clock() + l->t->o.patience;
        } else if (lode_clock() > end) {
            return false;
        }
    }
    return !l->closed && !atomic_load(&l->t->ending);
}

bool http_send(struct http_call *x, const void *data, size_t len) {
    struct live *l = live_of(x);
    pthread_mutex_lock(&l->lock);
    if (l->at > BACKLOG / 2) { /* what has been taken leaves */
        memmove(l->out.data, l->out.data + l->at, l->out.len - l->at);
        l->out.len -= l->at;
        l->at = 0;
    }
    const bool good = x->status && wait_drained(l) && lode_buf_add(&l->out, data, len);
    if (good) {
        x->n_sent += len;
        wake(l);
    }
    pthread_mutex_unlock(&l->lock);
    return good;
}

void http_end(struct http_call *x, bool broken) {
    struct live *l = live_of(x);
    pthread_mutex_lock(&l->lock);
    l->done = true;
    l->broken = broken;
    wake(l);
    pthread_mutex_unlock(&l->lock);
}
