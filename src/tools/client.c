/* client.c - see client.h. */
#include "client.h"

#include "out.h"
#include "tls.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEAD_BYTES = 64 << 10, LOOK = 100 /* ms */ };

struct link { /* a connection, and what has come and is not used yet */
    int fd;
    struct tls *tls;   /* owned; NULL: plain */
    const char *where; /* for errors */
    char *in;          /* (HEAD_BYTES), owned */
    size_t len;
    bool (*stop)(void *user);
    void *user;
};

struct target {
    char host[256], port[8], prefix[1024];
    bool tls;
};

static int split_url(struct target *t, const char *url, const char *path, struct lode_error *err) {
    const char *at = url;
    *t = (struct target){.port = "80", .tls = !strncasecmp(at, "https://", 8)};
    if (t->tls) {
        snprintf(t->port, sizeof t->port, "443");
        at += 8;
    } else if (!strncasecmp(at, "http://", 7)) {
        at += 7;
    }
    const bool v6 = *at == '[';
    const char *end = v6 ? strchr(at, ']') : at + strcspn(at, ":/");
    if (!end || end == at || (size_t)(end - at) >= sizeof t->host)
        return tool_fail(err, LODE_ERR_ARG, url, "http://host:port expected");
    snprintf(t->host, sizeof t->host, "%.*s", (int)(end - at - v6), at + v6);
    at = end + v6;
    if (*at == ':') {
        const size_t n = strspn(++at, "0123456789");
        if (n == 0 || n > 5 || (at[n] && at[n] != '/'))
            return tool_fail(err, LODE_ERR_ARG, url, "the port is a number: http://host:port expected");
        snprintf(t->port, sizeof t->port, "%.*s", (int)n, at);
        at += n;
    }
    size_t n = strlen(at);
    while (n && at[n - 1] == '/')
        n--;
    if (n >= 3 && !strncmp(at + n - 3, "/v1", 3) && !strncmp(path, "/v1/", 4))
        n -= 3;
    if (n > 512 || strlen(path) > 500)
        return tool_fail(err, LODE_ERR_ARG, url, "is too long");
    snprintf(t->prefix, sizeof t->prefix, "%.*s%.500s", (int)n, at, path);
    return 0;
}

static int dial(struct link *l, const struct target *t, struct lode_error *err) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list;
    int rc = getaddrinfo(t->host, t->port, &hints, &list), cause = 0;
    if (rc)
        return tool_fail(err, LODE_ERR_IO, l->where, "%s", gai_strerror(rc));
    l->fd = -1;
    for (const struct addrinfo *a = list; a && l->fd < 0; a = a->ai_next) {
        l->fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (l->fd >= 0 && connect(l->fd, a->ai_addr, a->ai_addrlen)) {
            cause = errno;
            close(l->fd);
            l->fd = -1;
        }
    }
    freeaddrinfo(list);
    return l->fd >= 0 ? 0
                      : tool_fail(err, LODE_ERR_IO, l->where, "nobody answers there: %s; is lode serve running?",
                                  strerror(cause));
}

static int send_all(struct link *l, const char *data, size_t len, struct lode_error *err) {
    if (l->tls)
        return tls_send(l->tls, data, len, err);
    while (len) {
        const ssize_t n = send(l->fd, data, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
            return 0; /* it may have said why */
        if (n < 0)
            return tool_fail(err, LODE_ERR_IO, l->where, "%s", strerror(errno));
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

/* More bytes behind those that are there: 1, 0 at the end, or an error. */
static int more(struct link *l, struct lode_error *err) {
    struct pollfd p = {.fd = l->fd, .events = POLLIN};
    if (l->tls) {
        const ssize_t n = tls_receive(l->tls, l->in + l->len, HEAD_BYTES - l->len, err);
        l->len += n > 0 ? (size_t)n : 0;
        return n < 0 ? (int)n : n > 0;
    }
    for (;;) {
        if (l->stop && l->stop(l->user))
            return tool_fail(err, LODE_ERR_CANCELLED, l->where, "stopped");
        const int ready = poll(&p, 1, LOOK);
        if (ready <= 0)
            continue;
        const ssize_t n = recv(l->fd, l->in + l->len, HEAD_BYTES - l->len, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return tool_fail(err, LODE_ERR_IO, l->where, "%s", strerror(errno));
        l->len += (size_t)n;
        return n > 0;
    }
}

static void used(struct link *l, size_t n) {
    memmove(l->in, l->in + n, l->len - n);
    l->len -= n;
}

static int cut_short(const struct link *l, struct lode_error *err) {
    return tool_fail(err, LODE_ERR_IO, l->where, "the server ended before its reply did");
}

/* A line up to CRLF, NUL-terminated in place; its whole length in *len. */
static int read_line(struct link *l, char **line, size_t *len, struct lode_error *err) {
    for (;;) {
        char *end = memchr(l->in, '\n', l->len);
        if (end) {
            *len = (size_t)(end - l->in) + 1;
            *line = l->in;
            *end = 0;
            if (end > l->in && end[-1] == '\r')
                end[-1] = 0;
            return 0;
        }
        if (l->len == HEAD_BYTES)
            return tool_fail(err, LODE_ERR_FORMAT, l->where, "a line of the reply's head is too long");
        const int rc = more(l, err);
        if (rc <= 0)
            return rc < 0 ? rc : cut_short(l, err);
    }
}

struct framing {
    bool chunked;
    long long length; /* -1: until the connection ends */
};

static int read_head(struct link *l, struct client_reply *r, struct framing *f,
                     struct lode_error *err) {
    char *line;
    size_t len;
    *f = (struct framing){.length = -1};
    int rc = read_line(l, &line, &len, err);
    if (rc < 0)
        return rc;
    if (strncmp(line, "HTTP/1.", 7) || sscanf(line + 8, " %d", &r->status) != 1)
        return tool_fail(err, LODE_ERR_FORMAT, l->where, "this is no HTTP server");
    for (;;) {
        used(l, len);
        rc = read_line(l, &line, &len, err);
        if (rc < 0)
            return rc;
        if (!*line)
            break;
        if (!strncasecmp(line, "Content-Length:", 15))
            f->length = strtoll(line + 15, NULL, 10);
        else if (!strncasecmp(line, "Transfer-Encoding:", 18) && strcasestr(line, "chunked"))
            f->chunked = true;
        else if (!strncasecmp(line, "Content-Type:", 13))
            r->events = strcasestr(line, "text/event-stream");
    }
    used(l, len);
    return 0;
}

/* n bytes of the body; -1: all until the end. */
static int pass_on(struct link *l, const struct client_reply *r, long long n, client_put_fn *put,
                   struct lode_error *err) {
    while (n) {
        int rc = l->len ? 1 : more(l, err);
        if (rc <= 0)
            return rc < 0 ? rc : n < 0 ? 0 : cut_short(l, err);
        const size_t take = n > 0 && (unsigned long long)n < l->len ? (size_t)n : l->len;
        rc = put(l->user, r, l->in, take);
        if (rc)
            return rc;
        used(l, take);
        n -= n > 0 ? (long long)take : 0;
    }
    return 0;
}

static int read_chunks(struct link *l, const struct client_reply *r, client_put_fn *put,
                       struct lode_error *err) {
    for (;;) {
        char *line, *end;
        size_t len;
        int rc = read_line(l, &line, &len, err);
        if (rc < 0)
            return rc;
        const long long n = strtoll(line, &end, 16);
        if (end == line || n < 0)
            return tool_fail(err, LODE_ERR_FORMAT, l->where, "a chunk without a length");
        used(l, len);
        if (n == 0)
            return 0;
        rc = pass_on(l, r, n, put, err);
        if (rc == 0)
            rc = read_line(l, &line, &len, err);
        if (rc)
            return rc;
        used(l, len);
    }
}

int client_ask(const char *method, const char *url, const char *path, const char *key,
               const char *body, client_put_fn *put, bool (*stop)(void *user), void *user,
               struct client_reply *reply, struct lode_error *err) {
    struct target t;
    struct link l = {.fd = -1, .where = url, .stop = stop, .user = user, .in = malloc(HEAD_BYTES)};
    struct framing f;
    char *head = NULL;
    *reply = (struct client_reply){0};
    int rc = l.in ? split_url(&t, url, path, err) : tool_fail(err, LODE_ERR_NOMEM, url, "no memory");
    if (rc == 0)
        rc = dial(&l, &t, err);
    if (rc == 0 && t.tls)
        rc = tls_open(&l.tls, l.fd, t.host, url, stop, user, err);
    const bool v6 = rc == 0 && strchr(t.host, ':');
    const int n = rc < 0 ? -1
                         : asprintf(&head,
                                    "%s %s HTTP/1.1\r\nHost: %s%s%s:%s\r\nConnection: close\r\n"
                                    "Content-Type: application/json\r\nContent-Length: %zu\r\n%s%s%s\r\n",
                                    method, t.prefix, v6 ? "[" : "", t.host, v6 ? "]" : "", t.port, body ? strlen(body) : 0,
                                    key ? "Authorization: Bearer " : "", key ? key : "", key ? "\r\n" : "");
    if (rc == 0 && n < 0) {
        head = NULL;
        rc = tool_fail(err, LODE_ERR_NOMEM, url, "no memory");
    }
    if (rc == 0)
        rc = send_all(&l, head, (size_t)n, err);
    if (rc == 0 && body)
        rc = send_all(&l, body, strlen(body), err);
    if (rc == 0)
        rc = read_head(&l, reply, &f, err);
    if (rc == 0)
        rc = f.chunked ? read_chunks(&l, reply, put, err) : pass_on(&l, reply, f.length, put, err);
    tls_close(l.tls);
    if (l.fd >= 0)
        close(l.fd);
    free(head);
    free(l.in);
    return rc;
}
