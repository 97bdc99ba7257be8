/* tls.c - see tls.h. */
#include "tls.h"

#include "out.h"

#ifdef LODE_HAVE_GNUTLS

#include <errno.h>
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK = 100 /* ms */ };

struct tls {
    int fd;
    const char *where;
    bool (*stop)(void *user);
    void *user;
    gnutls_session_t session;
    gnutls_certificate_credentials_t trusted;
};

static int fail(const struct tls *t, int rc, struct lode_error *err) {
    return tool_fail(err, rc == GNUTLS_E_MEMORY_ERROR ? LODE_ERR_NOMEM : LODE_ERR_IO, t->where,
                     "TLS: %s", gnutls_strerror(rc));
}

/* Until the descriptor can do what the session wants. */
static int wait_for(const struct tls *t, struct lode_error *err) {
    struct pollfd p = {.fd = t->fd,
                       .events = gnutls_record_get_direction(t->session) ? POLLOUT : POLLIN};
    do {
        if (t->stop && t->stop(t->user))
            return tool_fail(err, LODE_ERR_CANCELLED, t->where, "stopped");
    } while (poll(&p, 1, LOOK) <= 0);
    return 0;
}

static bool must_wait(ssize_t rc) { return rc == GNUTLS_E_AGAIN || rc == GNUTLS_E_INTERRUPTED; }

/* What is wrong with the server's certificate, in GnuTLS' words. */
static int fail_certificate(const struct tls *t, struct lode_error *err) {
    const unsigned status = gnutls_session_get_verify_cert_status(t->session);
    gnutls_datum_t text = {0};
    gnutls_certificate_verification_status_print(status, gnutls_certificate_type_get(t->session),
                                                 &text, 0);
    tool_fail(
        err, LODE_ERR_IO, t->where,
        "the server's certificate is not good: %.300s (SSL_CERT_FILE names a file of certificates "
        "to trust)",
        text.data ? (const char *)text.data : "");
    gnutls_free(text.data);
    return LODE_ERR_IO;
}

static int trust(struct tls *t, struct lode_error *err) {
    const char *file = getenv("SSL_CERT_FILE");
    int rc = gnutls_certificate_allocate_credentials(&t->trusted);
    if (rc < 0)
        return fail(t, rc, err);
    rc = file && *file
             ? gnutls_certificate_set_x509_trust_file(t->trusted, file, GNUTLS_X509_FMT_PEM)
             : gnutls_certificate_set_x509_system_trust(t->trusted);
    return rc < 0 && file
               ? tool_fail(err, LODE_ERR_IO, file, "holds no certificates: %s", gnutls_strerror(rc))
           : rc < 0 ? fail(t, rc, err)
                    : 0;
}

static int greet(struct tls *t, const char *host, struct lode_error *err) {
    int rc = gnutls_init(&t->session, GNUTLS_CLIENT | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL);
    if (rc == 0)
        rc = gnutls_set_default_priority(t->session);
    if (rc == 0)
        rc = gnutls_credentials_set(t->session, GNUTLS_CRD_CERTIFICATE, t->trusted);
    if (rc == 0) /* not for addresses: they are no names */
        rc = strspn(host, "0123456789.:") == strlen(host)
                 ? 0
                 : gnutls_server_name_set(t->session, GNUTLS_NAME_DNS, host, strlen(host));
    if (rc < 0)
        return fail(t, rc, err);
    gnutls_session_set_verify_cert(t->session, host, 0);
    gnutls_transport_set_int(t->session, t->fd);
    while (must_wait(rc = gnutls_handshake(t->session))) {
        const int waited = wait_for(t, err);
        if (waited < 0)
            return waited;
    }
    if (rc == GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR)
        return fail_certificate(t, err);
    return rc < 0 ? fail(t, rc, err) : 0;
}

int tls_open(struct tls **out, int fd, const char *host, const char *where,
             bool (*stop)(void *user), void *user, struct lode_error *err) {
    struct tls *t = calloc(1, sizeof *t);
    const int flags = fcntl(fd, F_GETFL);
    *out = NULL;
    if (!t)
        return tool_fail(err, LODE_ERR_NOMEM, where, "no memory");
    *t = (struct tls){.fd = fd, .where = where, .stop = stop, .user = user};
    int rc = flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK)
                 ? tool_fail(err, LODE_ERR_IO, where, "%s", strerror(errno))
                 : trust(t, err);
    if (rc == 0)
        rc = greet(t, host, err);
    if (rc < 0)
        tls_close(t);
    else
        *out = t;
    return rc;
}

void tls_close(struct tls *t) {
    if (!t)
        return;
    if (t->session) {
        gnutls_bye(t->session, GNUTLS_SHUT_WR); /* as far as it goes without waiting */
        gnutls_deinit(t->session);
    }
    if (t->trusted)
        gnutls_certificate_free_credentials(t->trusted);
    free(t);
}

int tls_send(struct tls *t, const char *data, size_t len, struct lode_error *err) {
    while (len) {
        const ssize_t n = gnutls_record_send(t->session, data, len);
        if (must_wait(n)) {
            const int rc = wait_for(t, err);
            if (rc < 0)
                return rc;
        } else if (n == GNUTLS_E_PUSH_ERROR || n == GNUTLS_E_PREMATURE_TERMINATION) {
            return 0; /* it may have said why */
        } else if (n < 0) {
            return fail(t, (int)n, err);
        } else {
            data += n;
            len -= (size_t)n;
        }
    }
    return 0;
}

ssize_t tls_receive(struct tls *t, char *data, size_t cap, struct lode_error *err) {
    for (;;) {
        const ssize_t n = gnutls_record_recv(t->session, data, cap);
        if (n >= 0)
            return n;
        if (!must_wait(n) && gnutls_error_is_fatal((int)n))
            return fail(t, (int)n, err);
        const int rc = must_wait(n) ? wait_for(t, err) : 0;
        if (rc < 0)
            return rc;
    }
}

#else

int tls_open(struct tls **out, int fd, const char *host, const char *where,
             bool (*stop)(void *user), void *user, struct lode_error *err) {
    (void)fd;
    (void)host;
    (void)stop;
    (void)user;
    *out = NULL;
    return tool_fail(
        err, LODE_ERR_UNSUPPORTED, where,
        "this build speaks plain HTTP only: it lacks GnuTLS (scripts/packages.sh install build)");
}

/* There is nothing to close, and nothing to send to. */
void tls_close(struct tls *t) { (void)t; }

int tls_send(struct tls *t, const char *data, size_t len, struct lode_error *err) {
    (void)data;
    (void)len;
    return tool_fail(err, LODE_ERR_ARG, "TLS", t ? "is not open" : "was not opened");
}

ssize_t tls_receive(struct tls *t, char *data, size_t cap, struct lode_error *err) {
    return tls_send(t, data, cap, err);
}

#endif
