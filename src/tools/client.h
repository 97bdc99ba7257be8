/* client.h - one HTTP/1.1 request to a server, and its reply as it comes.
 *
 * Plain, or by TLS (tls.h) where the address begins with https://.
 */
#ifndef LODE_TOOLS_CLIENT_H
#define LODE_TOOLS_CLIENT_H

#include "lode/error.h"

#include <stdbool.h>
#include <stddef.h>

struct client_reply {
    int status;
    bool events; /* a stream of server-sent events */
};

/* Called with the body's bytes as they come; the reply's head is there.  Non-zero ends it (the call
 * returns it). */
typedef int client_put_fn(void *user, const struct client_reply *reply, const char *data, size_t len);

/* method: "GET" or "POST"; url: http[s]://host[:port][/prefix]; path is put behind its prefix ("/v1" at
 * the end of one and the beginning of the other meets once).  body: JSON, or NULL.  key: sent as a
 * Bearer; NULL: none.  stop (may be NULL) is asked some times a second; true ends with
 * LODE_ERR_CANCELLED. */
int client_ask(const char *method, const char *url, const char *path, const char *key,
               const char *body, client_put_fn *put, bool (*stop)(void *user), void *user,
               struct client_reply *reply, struct lode_error *err);

#endif
