/* guard.c - see guard.h. */
#include "serve/guard.h"

#include "base/error.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_KEY = 1024, MAX_KEYS = 100000 };

struct guard {
    struct guard_opts o;
    pthread_rwlock_t lock; /* for what is below */
    char **keys;           /* (n): owned, of the file */
    size_t n;
};

static void free_keys(char **keys, size_t n) {
    for (size_t i = 0; i < n; i++)
        free(keys[i]);
    free(keys);
}

static int add_key(char ***keys, size_t *n, const char *line, const char *file, int at,
                   struct lode_error *err) {
    const char *end = line + strcspn(line, "\r\n");
    while (line < end && (*line == ' ' || *line == '\t'))
        line++;
    while (end > line && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    if (line == end || *line == '#')
        return 0;
    if (end - line > MAX_KEY || *n == MAX_KEYS)
        return lode_fail(err, LODE_ERR_LIMIT, file, "line %d: at most %d keys of %d bytes", at,
                         MAX_KEYS, MAX_KEY);
    char **more = realloc(*keys, (*n + 1) * sizeof *more);
    if (more)
        *keys = more;
    char *key = more ? strndup(line, (size_t)(end - line)) : NULL;
    if (!key)
        return lode_fail(err, LODE_ERR_NOMEM, file, "no memory for the keys");
    (*keys)[(*n)++] = key;
    return 0;
}

int guard_reload(struct guard *g, struct lode_error *err) {
    const char *file = g->o.key_file;
    char **keys = NULL, *line = NULL;
    size_t n = 0, cap = 0;
    int rc = 0, at = 0;
    if (!file)
        return 0;
    FILE *f = fopen(file, "re");
    if (!f)
        return lode_fail(err, LODE_ERR_IO, file, "cannot be opened: %s", strerror(errno));
    while (rc == 0 && getline(&line, &cap, f) >= 0)
        rc = add_key(&keys, &n, line, file, ++at, err);
    if (rc == 0 && ferror(f))
        rc = lode_fail(err, LODE_ERR_IO, file, "cannot be read: %s", strerror(errno));
    /* An empty file must not open the door to everybody. */
    if (rc == 0 && n == 0)
        rc = lode_fail(err, LODE_ERR_FORMAT, file, "holds no key; leave --api-key-file away to let all in");
    fclose(f);
    free(line);
    if (rc < 0) {
        free_keys(keys, n);
        return rc;
    }
    pthread_rwlock_wrlock(&g->lock);
    char **old = g->keys;
    const size_t n_old = g->n;
    g->keys = keys;
    g->n = n;
    pthread_rwlock_unlock(&g->lock);
    free_keys(old, n_old);
    return 0;
}

int guard_create(struct guard **out, const struct guard_opts *opts, struct lode_error *err) {
    struct guard *g = calloc(1, sizeof *g);
    *out = NULL;
    if (!g)
        return lode_fail(err, LODE_ERR_NOMEM, "", "no memory for the server");
    g->o = *opts;
    pthread_rwlock_init(&g->lock, NULL);
    const int rc = guard_reload(g, err);
    if (rc < 0)
        guard_free(g);
    else
        *out = g;
    return rc;
}

void guard_free(struct guard *g) {
    if (!g)
        return;
    free_keys(g->keys, g->n);
    pthread_rwlock_destroy(&g->lock);
    free(g);
}

size_t guard_keys(struct guard *g) {
    pthread_rwlock_rdlock(&g->lock);
    const size_t n = g->n + g->o.n_keys;
    pthread_rwlock_unlock(&g->lock);
    return n;
}

/* Equal, in a time that depends on the lengths only. */
static bool same_key(const char *a, const char *b) {
    const size_t n = strlen(a);
    volatile unsigned diff = 0;
    if (n != strlen(b))
        return false;
    for (size_t i = 0; i < n; i++)
        diff |= (unsigned char)(a[i] ^ b[i]);
    return !diff;
}

bool guard_knows_key(struct guard *g, const char *authorization, const char *api_key) {
    const char *key = api_key;
    if (authorization && !strncasecmp(authorization, "Bearer ", 7))
        key = authorization + 7;
    pthread_rwlock_rdlock(&g->lock);
    bool found = g->n + g->o.n_keys == 0;
    for (size_t i = 0; key && i < g->n; i++)
        found = same_key(key, g->keys[i]) || found;
    for (size_t i = 0; key && i < g->o.n_keys; i++)
        found = same_key(key, g->o.keys[i]) || found;
    pthread_rwlock_unlock(&g->lock);
    return found;
}

bool guard_is_local(const char *host) {
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    bool known = !host;
    for (size_t i = 0; !known && i < sizeof names / sizeof *names; i++) {
        const size_t n = strlen(names[i]);
        known = !strncasecmp(host, names[i], n) &&
                (!host[n] || (host[n] == ':' && strspn(host + n + 1, "0123456789") == strlen(host + n + 1)));
    }
    return known;
}

bool guard_allows_origin(const struct guard *g, const char *origin, const char *host, bool *named) {
    *named = false;
    for (size_t i = 0; i < g->o.n_origins; i++)
        *named = *named || !strcasecmp(origin, g->o.origins[i]);
    const char *rest = strstr(origin, "://");
    return *named || (rest && host && !strcasecmp(rest + 3, host));
}
