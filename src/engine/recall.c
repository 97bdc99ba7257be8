#include "engine/recall.h"

#include "base/alloc.h"

#include <pthread.h>
#include <string.h>

enum { BUCKETS = 1024 };

struct entry {
    struct entry *chain, *newer, *older;
    uint64_t key[2];
    size_t n;
    int32_t tokens[]; /* (n) */
};

struct lode_recall {
    pthread_mutex_t lock;
    struct entry *buckets[BUCKETS];
    struct entry *newest, *oldest;
    uint64_t bytes, max_bytes;
};

static uint64_t size_of(size_t n) { return sizeof(struct entry) + (uint64_t)n * sizeof(int32_t); }

int lode_recall_create(struct lode_recall **out, uint64_t max_bytes, struct lode_error *err) {
    *out = NULL;
    struct lode_recall *r = LODE_NEW(struct lode_recall);
    if (!r)
        return lode_fail_nomem(err, "recall");
    if (pthread_mutex_init(&r->lock, NULL)) {
        lode_free(r);
        return lode_fail_nomem(err, "recall");
    }
    r->max_bytes = max_bytes;
    *out = r;
    return 0;
}

static void unlist(struct lode_recall *r, struct entry *e) {
    *(e->newer ? &e->newer->older : &r->newest) = e->older;
    *(e->older ? &e->older->newer : &r->oldest) = e->newer;
}

static void list(struct lode_recall *r, struct entry *e) {
    e->newer = NULL;
    e->older = r->newest;
    *(r->newest ? &r->newest->newer : &r->oldest) = e;
    r->newest = e;
}

static struct entry **place(struct lode_recall *r, const uint64_t key[2]) {
    struct entry **at = &r->buckets[key[0] % BUCKETS];
    while (*at && ((*at)->key[0] != key[0] || (*at)->key[1] != key[1]))
        at = &(*at)->chain;
    return at;
}

static void drop(struct lode_recall *r, struct entry *e) {
    *place(r, e->key) = e->chain;
    unlist(r, e);
    r->bytes -= size_of(e->n);
    lode_free(e);
}

void lode_recall_free(struct lode_recall *r) {
    if (!r)
        return;
    while (r->oldest)
        drop(r, r->oldest);
    pthread_mutex_destroy(&r->lock);
    lode_free(r);
}

int lode_recall_put(struct lode_recall *r, const uint64_t key[2], const int32_t *tokens, size_t n,
                    struct lode_error *err) {
    const uint64_t size = size_of(n);
    if (size > r->max_bytes)
        return 0;
    struct entry *e = lode_alloc((size_t)size, 1);
    if (!e)
        return lode_fail_nomem(err, "recall");
    *e = (struct entry){.key = {key[0], key[1]}, .n = n};
    memcpy(e->tokens, tokens, n * sizeof *tokens);
    pthread_mutex_lock(&r->lock);
    if (*place(r, key))
        drop(r, *place(r, key));
    while (r->bytes + size > r->max_bytes)
        drop(r, r->oldest);
    e->chain = r->buckets[key[0] % BUCKETS];
    r->buckets[key[0] % BUCKETS] = e;
    list(r, e);
    r->bytes += size;
    pthread_mutex_unlock(&r->lock);
    return 0;
}

size_t lode_recall_get(struct lode_recall *r, const uint64_t key[2], int32_t *out, size_t cap) {
    pthread_mutex_lock(&r->lock);
    struct entry *e = *place(r, key);
    const size_t n = e ? e->n : 0;
    if (e) {
        if (cap)
            memcpy(out, e->tokens, (n < cap ? n : cap) * sizeof *out);
        unlist(r, e);
        list(r, e);
    }
    pthread_mutex_unlock(&r->lock);
    return n;
}

uint64_t lode_recall_bytes(struct lode_recall *r) {
    pthread_mutex_lock(&r->lock);
    const uint64_t bytes = r->bytes;
    pthread_mutex_unlock(&r->lock);
    return bytes;
}
