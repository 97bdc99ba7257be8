/* serve.h - a model over HTTP, in OpenAI's shapes.
 *
 * serve_run loads nothing itself: it is given a model and a scheduler, listens, and returns when it
 * is told to stop.  Each connection has a thread of its own, which reads the request, starts a
 * generation and writes what comes; the scheduler's thread alone touches sessions.  What a client
 * sends is checked field by field (fields.h); a client that goes away cancels its request.
 */
#ifndef LODE_SERVE_SERVE_H
#define LODE_SERVE_SERVE_H

#include "lode/scheduler.h"

struct serve_opts {
    struct lode_model *model;
    struct lode_scheduler *scheduler;  /* serve_run frees it */
    const char *host;                  /* a numeric address or "localhost" */
    uint16_t port;                     /* 0: any free one */
    const char *name;                  /* of the model, for clients */
    const char *template;              /* Jinja source; NULL: the model has none */
    struct lode_sampler_opts sampling; /* where a request says nothing; its pointers outlive */
    const char *const *keys;           /* (n_keys): who does not have one is refused; 0: all may */
    size_t n_keys;
    const char *chats;    /* the file of the page's chats; NULL: none are kept */
    bool chats_asked;     /* it was named by the user: without it the server does not start */
    uint64_t chats_size;  /* bytes that it may have; 0: 1 GiB */
    uint32_t connections; /* at once; 0: 512 */
    uint32_t drain;       /* seconds that running requests get once told to stop */
    int stop_fd;          /* readable: stop; a second byte: do not wait for running requests */
    void (*ready)(void *user, uint16_t port);
    void (*note)(void *user, const char *text); /* what the user should know; NULL: nobody listens */
    void *user;
};

/* LODE_ERR_IO where the address cannot be had. */
int serve_run(const struct serve_opts *opts, struct lode_error *err);

#endif
