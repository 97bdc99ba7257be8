/* http.h - what the files share that turn requests into replies: routes (http.c), answers of models
 * (http_answer.c), the server that listens (server.c). */
#ifndef LODE_SERVE_HTTP_H
#define LODE_SERVE_HTTP_H

#include "serve/exchange.h"
#include "serve/transport.h"

/* ---- http.c ---- */

/* How errors of this path's API look. */
error_fn *http_errors(const char *path);
/* Sets the functions that answer requests, of the server. */
void http_serve(struct transport_opts *o, struct server *s);

/* ---- http_answer.c ---- */

/* Answers by an API, streaming or whole; ends when the client leaves. */
void http_answer(struct server *s, struct http_call *x, const json_t *body, const struct api *api);

struct waiting { /* an asker's user */
    struct server *s;
    struct http_call *x;
};
bool http_asker_gone(void *user); /* (asker.gone) */

/* Takes a place among the requests that run or wait.  False: there is none, and the client has been
 * told. */
bool http_enter(struct server *s, struct http_call *x);
/* The request is over, whether it had a place or not: it leaves, and is logged. */
void http_leave(struct server *s, struct http_call *x);

#endif
