/* tls.h - TLS over a connection to a server, whose certificate must be good for its name.
 *
 * Certificates are trusted as the system trusts them, or as the file says that SSL_CERT_FILE names.
 * Without GnuTLS at build time open fails and says so; nothing else can be called then.
 *
 *     tls_open(&t, fd, "host", url, stop, user, &err);
 *     tls_send(t, data, len, &err);
 *     while ((n = tls_receive(t, buf, sizeof buf, &err)) > 0) ...
 *     tls_close(t);                                      the descriptor stays open
 */
#ifndef LODE_TOOLS_TLS_H
#define LODE_TOOLS_TLS_H

#include "lode/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct tls;

/* fd: connected, becomes non-blocking; where: for errors, borrowed.  stop (may be NULL) is asked
 * some times a second while it waits, here and below; true: LODE_ERR_CANCELLED. */
int tls_open(struct tls **out, int fd, const char *host, const char *where,
             bool (*stop)(void *user), void *user, struct lode_error *err);
void tls_close(struct tls *t);
int tls_send(struct tls *t, const char *data, size_t len, struct lode_error *err);
/* How many bytes came (at least one); 0: the server has ended; negative: an error. */
ssize_t tls_receive(struct tls *t, char *data, size_t cap, struct lode_error *err);

#endif
