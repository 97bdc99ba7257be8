/* transport.h - HTTP connections by the thousand, and a thread for each request that is being answered.
 *
 * One thread (libmicrohttpd's, over epoll) accepts, reads and writes all connections, so that a slow
 * or idle client costs some kilobytes and nobody's time.  A request that has come whole goes to a
 * worker thread, and its connection sleeps until there is something to write.  Workers start as they
 * are needed, up to a bound, and end when they were idle for a while.
 *
 * Bounded: the head of a request (HEADER_BYTES, 431), its body (413), all bodies that are being
 * received together (503), the time that a client takes to send a request (408), the bytes that wait
 * for a client that does not read.  A client that leaves is seen by http_gone, also while its
 * connection sleeps, which libmicrohttpd 0.9.75 does not report.
 *
 *     transport_create(&t, &opts, &err);     listens, and calls opts.head, .dispatch, .handle, .over
 *     transport_sweep(t);                    once a second: ends what took too long
 *     transport_quiesce(t);                  takes no new connections
 *     transport_free(t);                     what still runs sees that its client has gone
 *
 * A request's way: head (its head has come; I/O thread), dispatch (its body too; I/O thread), handle (a
 * worker), over (once, at its end).  head and dispatch return false where they have replied.
 */
#ifndef LODE_SERVE_TRANSPORT_H
#define LODE_SERVE_TRANSPORT_H

#include "base/buf.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum { TRANSPORT_HEADER_BYTES = 64 << 10, HTTP_ID = 64 };

struct transport;

struct http_call { /* one request and its reply; what may be read */
    const char *method, *path;
    char id[HTTP_ID + 1]; /* the client's X-Request-Id where it is a plain word, else one of ours */
    char peer[56];            /* address */
    struct lode_buf body;     /* from dispatch on; handle may clear it */
    int status;               /* of the reply; 0: none yet */
    uint64_t n_sent;          /* bytes of the reply's body handed over */
    double started;           /* clock when its head had come */
    void *context;            /* the handler's */
};

struct transport_opts {
    const char *host;     /* a numeric address or "localhost" */
    uint16_t port;        /* 0: any free one */
    uint32_t connections; /* at once; what the limit of open files does not allow is left out */
    uint32_t workers;     /* requests that are being answered at once; others wait for one of them */
    uint32_t patience;    /* seconds that a client gets for its request, and to begin another one */
    size_t max_body;      /* bytes */
    size_t max_bodies;    /* of all that are being received */
    const char *tls_key, *tls_cert; /* PEM text; NULL: plain HTTP */
    bool (*head)(void *user, struct http_call *x);
    bool (*dispatch)(void *user, struct http_call *x);
    void (*handle)(void *user, struct http_call *x);
    void (*over)(void *user, struct http_call *x);
    /* The body of an error's reply, malloc'd; NULL: none. */
    char *(*error)(void *user, struct http_call *x, int status, const char *text);
    void *user;
};

/* *out is set before the first callback.  LODE_ERR_IO where the address cannot be had, LODE_ERR_UNSUPPORTED for TLS that libmicrohttpd lacks. */
int transport_create(struct transport **out, const struct transport_opts *opts,
                     struct lode_error *err);
/* Whether this host is the loopback; false where it can't be found. */
bool transport_is_loopback(const char *host);
uint16_t transport_port(const struct transport *t);
void transport_sweep(struct transport *t);
void transport_quiesce(struct transport *t);
void transport_free(struct transport *t);

struct transport_stats {
    uint32_t connections, workers, busy; /* now: open, threads, threads at work */
    uint64_t accepted, timed_out;        /* connections */
    uint64_t body_bytes;                 /* of requests that are being received or answered */
};
void transport_stats(struct transport *t, struct transport_stats *out);

/* A field of the request's head, or NULL; within head and dispatch only. */
const char *http_field(const struct http_call *x, const char *name);
/* How many fields of the head have this name; within head and dispatch only. */
unsigned http_fields(const struct http_call *x, const char *name);
/* An argument of the address (?name=value), or NULL; until the reply. */
const char *http_arg(const struct http_call *x, const char *name);
/* A field of the reply's head; before the reply.  Both are copied; without memory it is left out. */
void http_set(struct http_call *x, const char *name, const char *value);

/* The whole reply; takes text (malloc'd; NULL: the connection is closed instead). */
void http_reply(struct http_call *x, int status, const char *type, char *text);
/* The same of any bytes; lasts: they outlive the server and need not be copied. */
void http_reply_data(struct http_call *x, int status, const char *type, const void *data, size_t len,
                     bool lasts);

/* A reply in pieces; worker only. */
void http_stream(struct http_call *x, const char *type);
/* False: the client has gone, or has read too little for too long. */
bool http_send(struct http_call *x, const void *data, size_t len);
/* The end of the stream; broken: the client shall see that it is not whole. */
void http_end(struct http_call *x, bool broken);
/* Whether anybody still waits for the reply; worker only. */
bool http_gone(struct http_call *x);

#endif
