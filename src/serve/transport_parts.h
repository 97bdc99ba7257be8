/* transport_parts.h - what transport.c (connections) and http_call.c (requests and their replies) share.
 *
 * A call has two owners, its connection and, once dispatched, its worker; who lets go last frees
 * it.  Its lock guards what both touch.  A connection sleeps (is suspended) in two places: when its
 * request has come whole, and when a stream has nothing to write; each time `asleep` is set under the
 * lock, and the worker wakes it under the lock, so that no wake is lost and none comes too late.
 * A call's lock is taken before the transport's.
 */
#ifndef LODE_SERVE_TRANSPORT_PARTS_H
#define LODE_SERVE_TRANSPORT_PARTS_H

#include "serve/transport.h"
#include "base/clock.h"
#include "serve/workers.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

struct client { /* a connection */
    struct client *next, *prev;
    int fd;
    double deadline;   /* clock; far away while a request is answered */
    uint64_t received; /* bytes when it began to wait for a request */
    bool ended;        /* shut down by the sweep */
    atomic_bool answering; /* its request has come whole, the reply is not over */
};

struct live { /* a call with what is nobody else's business */
    struct http_call x; /* first: handlers know this part */
    struct transport *t;
    struct MHD_Connection *conn;
    struct client *client;
    struct worker_job job;
    struct lode_buf fields; /* of the reply's head: name, NUL, value, NUL, ... */
    bool refused; /* replied before the body: what still comes is dropped */

    pthread_mutex_t lock;
    pthread_cond_t drained;
    int owners;
    bool closed;  /* the connection has let go of it */
    bool asleep;
    bool ready;   /* response is to be queued, or with none the connection to be closed */
    bool streams, done, broken;
    struct MHD_Response *response;
    struct lode_buf out;
    size_t at; /* of out: what the connection has taken */
};

struct transport {
    struct transport_opts o;
    struct MHD_Daemon *daemon;
    int quiesced; /* the socket that it listened on, which takes nothing any more; -1: it still listens */
    struct workers *workers; /* owned */
    uint16_t port;
    atomic_bool ending;
    atomic_ullong ids, bodies, accepted, timed_out;
    uint32_t salt; /* of ids */

    pthread_mutex_t lock; /* for all below */
    struct client *clients;
    uint32_t n_clients;
};

static inline struct live *live_of(const struct http_call *x) { return (struct live *)x; }

/* Whether the other side has closed. */
bool live_left(int fd);
/* One owner less; the last one's frees it. */
void live_let_go(struct live *l);
/* The reply is there: response, or NULL to close the connection. */
void live_settle(struct live *l, struct MHD_Response *response);

#endif
