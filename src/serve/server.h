/* server.h - what the server's files share. */
#ifndef LODE_SERVE_SERVER_H
#define LODE_SERVE_SERVER_H

#include "serve/serve.h"

#include "lode/chat.h"
#include "lode/tokenizer.h"
#include "lode/toolcall.h"

#include <jansson.h>
#include <stdatomic.h>

enum { MAX_BODY = 32 << 20, HOLD = 50 /* ms between looks at the client's socket */ };

struct server {
    struct serve_opts o;
    const struct lode_tokenizer *tokenizer;
    struct lode_template *tmpl;       /* owned; NULL: there is none */
    struct lode_toolcall_style style; /* what it speaks */
    bool loopback;
    int64_t started;      /* seconds since 1970 */
    atomic_int stopping;  /* 1: takes no new requests; 2: ends the running ones */
    atomic_uint active;   /* requests being answered */
    atomic_ullong requests, n_errors, ids;
};

/* An HTTP status for an error of the library, whose `where` is then the field. */
int status_of(const struct lode_error *err);
/* {"error": {message, type, param, code}} */
json_t *error_json(int status, const struct lode_error *err);

/* The answers of the small routes: a new reference, or NULL and *err. */
json_t *route_models(struct server *s);
json_t *route_props(struct server *s);
json_t *route_tokenize(struct server *s, const json_t *body, struct lode_error *err);
json_t *route_detokenize(struct server *s, const json_t *body, struct lode_error *err);
json_t *route_template(struct server *s, const json_t *body, struct lode_error *err);
char *route_metrics(struct server *s); /* free */

#endif
