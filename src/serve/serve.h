/* serve.h - a model over HTTP, in OpenAI's shapes.
 *
 * serve_run loads nothing itself: it is given a model and a scheduler, listens, and returns when it
 * is told to stop.  Connections cost no threads (transport.h); each request that is being answered
 * has one, which starts a generation and writes what comes; the scheduler's thread alone touches
 * sessions.  What a client sends is checked field by field (fields.h); a client that goes away
 * cancels its request.
 */
#ifndef LODE_SERVE_SERVE_H
#define LODE_SERVE_SERVE_H

#include "serve/guard.h"

#include "lode/scheduler.h"

enum { SERVE_STOP = 's', SERVE_RELOAD = 'r' }; /* bytes of control_fd */

struct serve_opts {
    struct lode_model *model;
    struct lode_scheduler *scheduler;  /* serve_run frees it */
    const char *host;                  /* a numeric address or "localhost" */
    uint16_t port;                     /* 0: any free one */
    const char *name;                  /* of the model, for clients */
    const char *template;              /* Jinja source; NULL: the model has none */
    struct lode_sampler_opts sampling; /* where a request says nothing; its pointers outlive */
    struct guard_opts guard;           /* who may ask */
    const char *chats;    /* the file of the page's chats; NULL: none are kept */
    bool chats_asked;     /* it was named by the user: without it the server does not start */
    uint64_t chats_size;  /* bytes that it may have; 0: 1 GiB */
    const char *tls_key, *tls_cert;    /* PEM text; NULL: plain HTTP */
    uint32_t connections; /* at once; 0: 16384, or what the limit of open files allows */
    uint32_t queue;       /* requests that may wait, as the scheduler was told */
    uint32_t patience;    /* seconds that a client gets to send a request; 0: 60 */
    size_t max_body;      /* bytes; 0: 32 MiB */
    uint32_t drain;       /* seconds that running requests get once told to stop */
    int control_fd;       /* SERVE_STOP: stop, any byte after: do not wait for running requests;
                             SERVE_RELOAD: read the keys again */
    void (*ready)(void *user, uint16_t port);
    void (*note)(void *user, const char *text); /* what the user should know; NULL: nobody listens */
    /* The keys were read again: rc and err as of guard_reload. */
    void (*reloaded)(void *user, int rc, size_t n_keys, const struct lode_error *err);
    void *user;
};

/* LODE_ERR_IO where the address cannot be had. */
int serve_run(const struct serve_opts *opts, struct lode_error *err);

#endif
