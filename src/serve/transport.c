/* transport.c - see transport.h: connections, and a request until it is handed to a worker. */
#include "serve/transport_parts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    SLOWEST = 16 << 10, /* bytes a second that bodies and replies get time for */
    GRACE = 10,         /* seconds that we ourselves may take to hand a reply over, on a busy machine */
    SPARE_FILES = 128,  /* descriptors that are not connections */
    NEVER = 1 << 30,    /* seconds */
};

/* ---- workers ---- */

static void set_deadline(struct transport *t, struct client *c, double deadline) {
    pthread_mutex_lock(&t->lock);
    c->deadline = deadline;
    pthread_mutex_unlock(&t->lock);
}

/* What the handler left open is closed; the client gets time to read what there is. */
static void finish(struct live *l) {
    struct transport *t = l->t;
    if (!l->ready)
        live_settle(l, NULL);
    else if (l->streams && !l->done)
        http_end(&l->x, true);
    pthread_mutex_lock(&l->lock);
    if (!l->closed)
        set_deadline(t, l->client,
                     lode_clock() + t->o.patience + GRACE + (double)l->x.n_sent / SLOWEST);
    pthread_mutex_unlock(&l->lock);
    live_let_go(l);
}

static void work(void *user, struct worker_job *job) {
    struct transport *t = user;
    struct live *l = (struct live *)((char *)job - offsetof(struct live, job));
    t->o.handle(t->o.user, &l->x);
    finish(l);
}

/* ---- connections ---- */

static struct client *client_of(struct MHD_Connection *conn) {
    return MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

static uint64_t bytes_received(int fd) {
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) ? 0 : info.tcpi_bytes_received;
}

static void on_connection(void *user, struct MHD_Connection *conn, void **context,
                          enum MHD_ConnectionNotificationCode code) {
    struct transport *t = user;
    struct client *c = *context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        c = *context = calloc(1, sizeof *c);
        if (!c)
            return; /* its requests are refused */
        c->fd = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        c->deadline = lode_clock() + t->o.patience;
        atomic_fetch_add(&t->accepted, 1);
        pthread_mutex_lock(&t->lock);
        c->next = t->clients;
        if (c->next)
            c->next->prev = c;
        t->clients = c;
        t->n_clients++;
        pthread_mutex_unlock(&t->lock);
    } else if (c) {
        pthread_mutex_lock(&t->lock);
        *(c->prev ? &c->prev->next : &t->clients) = c->next;
        if (c->next)
            c->next->prev = c->prev;
        t->n_clients--;
        pthread_mutex_unlock(&t->lock);
        free(c);
        *context = NULL;
    }
}

/* Libmicrohttpd can't be told to answer in the middle of a request, but nothing else writes there
 * then.  (Not into TLS.)  A connection that has sent nothing is closed without a word. */
static void time_out(struct transport *t, const struct client *c) {
    static const char reply[] = "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n"
                                "Content-Type: application/json\r\nContent-Length: 101\r\n\r\n"
                                "{\"error\":{\"message\":\"the request did not come in time\",\"type\":"
                                "\"invalid_request_error\",\"code\":408}}";
    if (!t->o.tls_cert && !c->answering && bytes_received(c->fd) > c->received) {
        const ssize_t sent = send(c->fd, reply, sizeof reply - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)sent;
    }
    atomic_fetch_add(&t->timed_out, 1);
}

/* Data and the end that come together are one event of epoll, of which libmicrohttpd 0.9.75 takes the data
 * only: the connection would stay until its time is over.  While a request is answered its worker looks. */
static bool left_unseen(const struct client *c, double clock) {
    return c->deadline < clock + NEVER / 2 && live_left(c->fd);
}

void transport_sweep(struct transport *t) {
    const double clock = lode_clock();
    pthread_mutex_lock(&t->lock);
    for (struct client *c = t->clients; c; c = c->next) {
        if (!c->ended) {
            const bool left = left_unseen(c, clock), late = !left && c->deadline < clock;
            if (late)
                time_out(t, c);
            c->ended = left || late;
        }
        /* in every sweep until it is gone: this event, too, may come together with data */
        if (c->ended)
            shutdown(c->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&t->lock);
}

/* ---- requests ---- */

static bool is_word(const char *s) {
    const size_t n = strlen(s);
    return n > 0 && n <= HTTP_ID &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:") == n;
}

static void set_peer(struct live *l) {
    const struct sockaddr *a =
        MHD_get_connection_info(l->conn, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;
    const void *bytes = a->sa_family == AF_INET6
                            ? (const void *)&((const struct sockaddr_in6 *)a)->sin6_addr
                            : &((const struct sockaddr_in *)a)->sin_addr;
    if (!inet_ntop(a->sa_family, bytes, l->x.peer, sizeof l->x.peer))
        l->x.peer[0] = 0;
}

static struct live *begin(struct transport *t, struct MHD_Connection *conn, const char *path,
                          const char *method) {
    struct live *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&l->drained, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&l->lock, NULL);
    l->t = t;
    l->conn = conn;
    l->client = client_of(conn);
    l->owners = 1;
    l->x.started = lode_clock();
    l->x.path = strdup(path);
    l->x.method = strdup(method);
    set_peer(l);
    const char *id = http_field(&l->x, "X-Request-Id");
    if (id && is_word(id))
        snprintf(l->x.id, sizeof l->x.id, "%s", id);
    else
        snprintf(l->x.id, sizeof l->x.id, "req-%08x-%llx", t->salt,
                 (unsigned long long)atomic_fetch_add(&t->ids, 1));
    return l;
}

static void refuse(struct live *l, int status, const char *text) {
    struct transport *t = l->t;
    l->refused = true;
    if (status == 503)
        http_set(&l->x, "Retry-After", "1");
    http_reply(&l->x, status, "application/json; charset=utf-8",
                   t->o.error(t->o.user, &l->x, status, text));
}

/* What the head alone tells: two ways to say where a body ends are how requests are smuggled past a
 * proxy. */
static bool admit(struct live *l) {
    struct transport *t = l->t;
    const char *length = http_field(&l->x, "Content-Length");
    const char *coding = http_field(&l->x, "Content-Encoding");
    const char *transfer = http_field(&l->x, "Transfer-Encoding");
    if (length && (transfer || http_fields(&l->x, "Content-Length") > 1)) {
        http_set(&l->x, "Connection", "close");
        refuse(l, 400, "Content-Length is given twice, or with Transfer-Encoding");
    } else if (coding && strcasecmp(coding, "identity")) {
        refuse(l, 415, "the body must not be compressed (Content-Encoding)");
    } else if (length && strtoull(length, NULL, 10) > t->o.max_body) {
        char text[80];
        snprintf(text, sizeof text, "the body is larger than %zu bytes", t->o.max_body);
        refuse(l, 413, text);
    } else if (length && atomic_load(&t->bodies) + strtoull(length, NULL, 10) > t->o.max_bodies) {
        refuse(l, 503, "the server has no room for another body now");
    } else {
        l->refused = !t->o.head(t->o.user, &l->x);
    }
    return !l->refused;
}

static enum MHD_Result queue(struct live *l) {
    struct MHD_Response *r = l->response;
    if (!r)
        return MHD_NO;
    return MHD_queue_response(l->conn, (unsigned)l->x.status, r);
}

static void take_body(struct live *l, const char *data, size_t size) {
    struct transport *t = l->t;
    struct lode_buf *b = &l->x.body;
    const size_t cap = b->cap;
    if (l->refused)
        return;
    if (b->len + size > t->o.max_body) {
        char text[80];
        snprintf(text, sizeof text, "the body is larger than %zu bytes", t->o.max_body);
        refuse(l, 413, text);
    } else if (atomic_load(&t->bodies) + size > t->o.max_bodies || !lode_buf_add(b, data, size)) {
        refuse(l, 503, "the server has no room for another body now");
    }
    atomic_fetch_add(&t->bodies, b->cap - cap);
    if (l->refused) {
        atomic_fetch_sub(&t->bodies, b->cap);
        lode_buf_free(b);
    }
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *conn, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *size, void **state) {
    struct transport *t = user;
    struct live *l = *state;
    (void)version;
    if (!l) { /* the head */
        if (!client_of(conn))
            return MHD_NO;
        l = *state = begin(t, conn, path, method);
        if (!l || !l->x.path || !l->x.method)
            return MHD_NO;
        return admit(l) ? MHD_YES : queue(l);
    }
    if (*size) { /* some of the body; a reply can be queued when it is over */
        take_body(l, data, *size);
        set_deadline(t, l->client,
                     l->x.started + t->o.patience + (double)l->x.body.len / SLOWEST);
        *size = 0;
        return MHD_YES;
    }
    set_deadline(t, l->client, lode_clock() + NEVER);
    l->client->answering = true;
    if (!l->ready && !l->refused && t->o.dispatch(t->o.user, &l->x)) {
        pthread_mutex_lock(&l->lock);
        const bool taken = workers_submit(t->workers, &l->job); /* the worker can't reply before the lock is free */
        l->asleep = taken;
        l->owners += taken;
        if (taken)
            MHD_suspend_connection(conn);
        pthread_mutex_unlock(&l->lock);
        if (taken)
            return MHD_YES;
        refuse(l, 503, "the server has no thread for this request now");
    }
    pthread_mutex_lock(&l->lock);
    const bool ready = l->ready;
    pthread_mutex_unlock(&l->lock);
    return ready ? queue(l) : MHD_NO;
}

static void on_completed(void *user, struct MHD_Connection *conn, void **state,
                         enum MHD_RequestTerminationCode why) {
    struct transport *t = user;
    struct live *l = *state;
    struct client *c = client_of(conn);
    (void)why;
    *state = NULL;
    if (c) {
        const uint64_t n = bytes_received(c->fd);
        pthread_mutex_lock(&t->lock);
        c->deadline = lode_clock() + t->o.patience;
        c->received = n;
        c->answering = false;
        pthread_mutex_unlock(&t->lock);
    }
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->closed = true;
    pthread_cond_signal(&l->drained);
    pthread_mutex_unlock(&l->lock);
    live_let_go(l);
}

/* ---- the whole ---- */

static int find_address(const char *host, uint16_t at, struct sockaddr_storage *out,
                        struct lode_error *err) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list;
    char port[8];
    snprintf(port, sizeof port, "%u", at);
    const int rc =
        getaddrinfo(strcmp(host, "localhost") ? host : "127.0.0.1", port, &hints, &list);
    if (rc) {
        *err = (struct lode_error){.code = LODE_ERR_IO};
        snprintf(err->where, sizeof err->where, "--host %.200s", host);
        snprintf(err->text, sizeof err->text, "%s", gai_strerror(rc));
        return LODE_ERR_IO;
    }
    memcpy(out, list->ai_addr, list->ai_addrlen);
    freeaddrinfo(list);
    return 0;
}

bool transport_is_loopback(const char *host) {
    struct sockaddr_storage a = {0};
    struct lode_error err;
    if (find_address(host, 0, &a, &err) < 0)
        return false;
    if (a.ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)&a)->sin_addr.s_addr) >> 24 == 127;
    return a.ss_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)&a)->sin6_addr);
}

/* As many descriptors as we may have; the connections that leaves. */
static uint32_t open_files(uint32_t wanted) {
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r))
        return wanted;
    if (r.rlim_cur < r.rlim_max) {
        r.rlim_cur = r.rlim_max;
        setrlimit(RLIMIT_NOFILE, &r);
        getrlimit(RLIMIT_NOFILE, &r);
    }
    const uint64_t room = r.rlim_cur > SPARE_FILES * 2 ? r.rlim_cur - SPARE_FILES : SPARE_FILES;
    return wanted < room ? wanted : (uint32_t)room;
}

static int listen_on(struct transport *t, struct lode_error *err) {
    struct sockaddr_storage address = {0};
    int rc = find_address(t->o.host, t->o.port, &address, err);
    if (rc < 0)
        return rc;
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)t->o.tls_key},
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)t->o.tls_cert},
        {MHD_OPTION_END, 0, NULL},
    };
    if (t->o.tls_cert && MHD_is_feature_supported(MHD_FEATURE_SSL) != MHD_YES)
        return lode_fail(err, LODE_ERR_UNSUPPORTED, "TLS", "this libmicrohttpd was built without it");
    errno = 0;
    t->daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | (t->o.tls_cert ? MHD_USE_TLS : 0) |
            (address.ss_family == AF_INET6 ? MHD_USE_IPv6 : 0),
        t->o.port, NULL, NULL, on_request, t, MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&address,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)open_files(t->o.connections),
        /* Silence is ended by the sweep, which answers.  This is for those that it can't end: of some hundreds
         * of clients that leave, libmicrohttpd 0.9.75 may forget one after its reply, which is then in neither
         * its epoll set nor its list of the ready, and only its own clock finds it. */
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)t->o.patience + 2 * GRACE, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)TRANSPORT_HEADER_BYTES, MHD_OPTION_NOTIFY_COMPLETED, on_completed, t,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, t, MHD_OPTION_ARRAY,
        t->o.tls_cert ? tls : tls + 2, MHD_OPTION_END);
    if (!t->daemon) {
        char where[240];
        snprintf(where, sizeof where, "%.200s:%u", t->o.host, t->o.port);
        return lode_fail(err, LODE_ERR_IO, where, "cannot listen there: %s; choose another --port",
                         errno           ? strerror(errno)
                         : t->o.tls_cert ? "the key or the certificate is not PEM that belongs together"
                                         : "unknown cause");
    }
    t->port = MHD_get_daemon_info(t->daemon, MHD_DAEMON_INFO_BIND_PORT)->port;
    return 0;
}

int transport_create(struct transport **out, const struct transport_opts *opts,
                     struct lode_error *err) {
    struct transport *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t)
        return lode_fail(err, LODE_ERR_NOMEM, "", "no memory for the server");
    t->o = *opts;
    t->quiesced = -1;
    if (getrandom(&t->salt, sizeof t->salt, 0) != sizeof t->salt)
        t->salt = (uint32_t)time(NULL);
    pthread_mutex_init(&t->lock, NULL);
    *out = t;
    int rc = workers_create(&t->workers, opts->workers, work, t, err);
    if (rc == 0)
        rc = listen_on(t, err);
    if (rc < 0) {
        transport_free(t);
        *out = NULL;
    }
    return rc;
}

uint16_t transport_port(const struct transport *t) { return t->port; }

/* The daemon's thread may still name the socket to its epoll set: it may not be closed, and its number given to something
 * else, before that thread has ended. */
void transport_quiesce(struct transport *t) {
    t->quiesced = MHD_quiesce_daemon(t->daemon);
    if (t->quiesced >= 0)
        shutdown(t->quiesced, SHUT_RDWR);
}

void transport_free(struct transport *t) {
    if (!t)
        return;
    /* No connection may sleep when the daemon ends: the workers wake theirs on their way out. */
    atomic_store(&t->ending, true);
    if (t->workers)
        workers_stop(t->workers);
    if (t->daemon)
        MHD_stop_daemon(t->daemon);
    if (t->quiesced >= 0)
        close(t->quiesced);
    workers_free(t->workers);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

void transport_stats(struct transport *t, struct transport_stats *out) {
    *out = (struct transport_stats){.accepted = atomic_load(&t->accepted),
                                    .timed_out = atomic_load(&t->timed_out),
                                    .body_bytes = atomic_load(&t->bodies)};
    workers_count(t->workers, &out->workers, &out->busy);
    pthread_mutex_lock(&t->lock);
    out->connections = t->n_clients;
    pthread_mutex_unlock(&t->lock);
}
