/* guard.h - who may ask: keys, and the names under which the server is called.
 *
 * A page on the web can make a browser send requests to this machine, under a name of its own that
 * points here (DNS rebinding) or across origins.  So a server on the loopback answers to the
 * loopback's names only, and a request that a browser sends for a page comes from this server's own
 * page or from an origin that was named.  No reply ever allows all origins.
 *
 * Any thread may ask; keys may be read again meanwhile.
 */
#ifndef LODE_SERVE_GUARD_H
#define LODE_SERVE_GUARD_H

#include "lode/error.h"

#include <stdbool.h>
#include <stddef.h>

struct guard;

struct guard_opts { /* strings and lists are borrowed */
    const char *const *keys; /* (n_keys) */
    size_t n_keys;
    const char *key_file; /* one a line, # begins a comment; NULL: none */
    const char *const *origins; /* (n_origins): "https://chat.example" */
    size_t n_origins;
};

int guard_create(struct guard **out, const struct guard_opts *opts, struct lode_error *err);
void guard_free(struct guard *g);
/* Reads the file of keys again; on an error the old ones stay. */
int guard_reload(struct guard *g, struct lode_error *err);
size_t guard_keys(struct guard *g); /* how many there are; 0: all may ask */

/* authorization, api_key: those fields of the head, or NULL. */
bool guard_knows_key(struct guard *g, const char *authorization, const char *api_key);
/* Host: a name of the loopback, with or without a port.  NULL (HTTP/1.0) is. */
bool guard_is_local(const char *host);
/* Whether a page of this origin may call: the server's own, or one that was named (*named). */
bool guard_allows_origin(const struct guard *g, const char *origin, const char *host, bool *named);

#endif
