#include "engine/keeper.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum { JOBS = 4, WAITING = 1 << 14 };

/* What the thread writes: its own copy, so that nothing that moves on has to wait for it. */
struct job {
    enum { IDLE, READY, WRITTEN } state; /* under the lock */
    struct lode_disk_entry entry;
    char *bytes; /* owned; (size of all parts) */
    int rc;
};

struct lode_keeper {
    struct lode_disk *disk;
    struct lode_prefix *prefix;
    struct lode_kv_pool *pool;
    uint32_t n_groups;
    size_t pages_size, state_block;
    char *bytes; /* owned; (the larger of the two): where files are read to */
    struct {
        struct lode_prefix_node *node;
        XXH128_hash_t key;
        enum lode_disk_kind kind;
    } *waiting; /* owned; (WAITING), a ring */
    uint32_t first, n_waiting;
    struct job jobs[JOBS];
    uint32_t next_job, next_done; /* handed over and taken back in turn */
    pthread_t thread;
    bool has_lock, has_thread, stop;
    pthread_mutex_t lock;
    pthread_cond_t work;
    void (*wake)(void *user);
    void *user;
    struct lode_keeper_stats stats;
};

/* ---- the thread ---- */

static void *write_jobs(void *user) {
    struct lode_keeper *k = user;
    pthread_mutex_lock(&k->lock);
    for (uint32_t i = 0;; i = (i + 1) % JOBS) {
        struct job *job = &k->jobs[i];
        while (job->state != READY && !k->stop)
            pthread_cond_wait(&k->work, &k->lock);
        if (job->state != READY)
            break;
        pthread_mutex_unlock(&k->lock);
        const int rc = lode_disk_write(k->disk, &job->entry);
        pthread_mutex_lock(&k->lock);
        job->rc = rc;
        job->state = WRITTEN;
        pthread_mutex_unlock(&k->lock);
        k->wake(k->user); /* takes a lock that is held when ours is taken */
        pthread_mutex_lock(&k->lock);
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

/* ---- life ---- */

static int start(struct lode_keeper *k, struct lode_error *err) {
    if (pthread_mutex_init(&k->lock, NULL))
        return lode_fail_nomem(err, "prefixes on disk");
    k->has_lock = true;
    pthread_cond_init(&k->work, NULL);
    const int rc = pthread_create(&k->thread, NULL, write_jobs, k);
    if (rc)
        return lode_fail(err, LODE_ERR_LIMIT, "prefixes on disk", "cannot start a thread: %s",
                         strerror(rc));
    k->has_thread = true;
    return 0;
}

int lode_keeper_create(struct lode_keeper **out, const struct lode_keeper_opts *o,
                       struct lode_error *err) {
    *out = NULL;
    struct lode_keeper *k = LODE_NEW(struct lode_keeper);
    if (!k)
        return lode_fail_nomem(err, "prefixes on disk");
    k->prefix = o->prefix;
    k->pool = o->pool;
    k->wake = o->wake;
    k->user = o->user;
    k->state_block = o->state_block;
    k->n_groups = lode_kv_pool_groups(o->pool);
    for (uint32_t g = 0; g < k->n_groups; g++)
        k->pages_size += lode_kv_pool_group(o->pool, g)->page_size;
    int rc = k->n_groups <= LODE_DISK_MAX_PARTS
                 ? 0
                 : lode_fail(err, LODE_ERR_UNSUPPORTED, "--cache-dir",
                             "the model's layers have %u kinds of windows, at most %d expected",
                             k->n_groups, LODE_DISK_MAX_PARTS);
    const size_t most = k->pages_size > k->state_block ? k->pages_size : k->state_block;
    k->bytes = lode_alloc(most, 1);
    k->waiting = lode_alloc_zero(WAITING, sizeof *k->waiting);
    bool ok = k->bytes && k->waiting;
    for (int i = 0; i < JOBS; i++)
        ok = (k->jobs[i].bytes = lode_alloc(most, 1)) && ok;
    if (rc == 0 && !ok)
        rc = lode_fail_nomem(err, "prefixes on disk");
    if (rc == 0)
        rc = lode_disk_open(&k->disk, o->path, o->max_bytes, o->identity, err);
    if (rc == 0)
        rc = start(k, err);
    if (rc < 0)
        lode_keeper_free(k, 0);
    else
        *out = k;
    return rc;
}

void lode_keeper_free(struct lode_keeper *k, double seconds) {
    if (!k)
        return;
    for (const double end = lode_clock() + seconds; k->has_thread && lode_keeper_turn(k) && lode_clock() < end;)
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    if (k->has_thread) {
        pthread_mutex_lock(&k->lock);
        k->stop = true;
        pthread_cond_signal(&k->work);
        pthread_mutex_unlock(&k->lock);
        pthread_join(k->thread, NULL);
    }
    if (k->has_lock) {
        pthread_mutex_destroy(&k->lock);
        pthread_cond_destroy(&k->work);
    }
    lode_disk_close(k->disk);
    for (int i = 0; i < JOBS; i++)
        lode_free(k->jobs[i].bytes);
    lode_free(k->bytes);
    lode_free(k->waiting);
    lode_free(k);
}

/* ---- to the disk ---- */

void lode_keeper_save(struct lode_keeper *k, struct lode_prefix_node *node, enum lode_disk_kind kind) {
    if (lode_disk_has(k->disk, lode_prefix_key(node), kind))
        return;
    if (k->n_waiting == WAITING) {
        k->stats.dropped++;
        return;
    }
    const uint32_t at = (k->first + k->n_waiting++) % WAITING;
    k->waiting[at].node = node;
    k->waiting[at].key = lode_prefix_key(node);
    k->waiting[at].kind = kind;
}

static struct lode_disk_entry describe(const struct lode_keeper *k, XXH128_hash_t key,
                                       enum lode_disk_kind kind, const int32_t *tokens) {
    struct lode_disk_entry e = {.key = key, .kind = kind, .n_parts = 1, .sizes = {k->state_block}};
    memcpy(e.tokens, tokens, sizeof e.tokens);
    if (kind == LODE_DISK_PAGES) {
        e.n_parts = k->n_groups;
        for (uint32_t g = 0; g < k->n_groups; g++)
            e.sizes[g] = lode_kv_pool_group(k->pool, g)->page_size;
    }
    return e;
}

/* A copy of what the first in line has; false: there is nothing any more. */
static bool copy_job(struct lode_keeper *k, struct job *job) {
    const uint32_t at = k->first;
    const struct lode_prefix_node *node = k->waiting[at].node;
    const enum lode_disk_kind kind = k->waiting[at].kind;
    k->first = (k->first + 1) % WAITING;
    k->n_waiting--;
    if (!lode_prefix_is(node, k->waiting[at].key))
        return false;
    job->entry = describe(k, lode_prefix_key(node), kind, lode_prefix_tokens(node));
    char *to = job->bytes;
    if (kind == LODE_DISK_STATE) {
        const void *state = lode_prefix_state_of(k->prefix, node);
        if (!state)
            return false;
        job->entry.parts[0] = memcpy(to, state, k->state_block);
        return true;
    }
    for (uint32_t g = 0; g < k->n_groups; to += job->entry.sizes[g++]) {
        const uint32_t page = lode_prefix_page(k->prefix, node, g);
        if (page == LODE_KV_NONE || job->entry.sizes[g] == 0)
            continue;
        if (lode_kv_page_read(k->pool, g, page, to, NULL) < 0)
            return false;
        job->entry.parts[g] = to;
    }
    return true;
}

bool lode_keeper_turn(struct lode_keeper *k) {
    pthread_mutex_lock(&k->lock);
    for (struct job *job; (job = &k->jobs[k->next_done])->state == WRITTEN;) {
        if (job->rc == 0)
            lode_disk_add(k->disk, job->entry.key, job->entry.kind, lode_disk_size(&job->entry));
        k->stats.written += job->rc == 0;
        k->stats.errors += job->rc < 0;
        job->state = IDLE;
        k->next_done = (k->next_done + 1) % JOBS;
    }
    while (k->n_waiting && k->jobs[k->next_job].state == IDLE) {
        if (!copy_job(k, &k->jobs[k->next_job])) {
            k->stats.dropped++;
            continue;
        }
        k->jobs[k->next_job].state = READY;
        k->next_job = (k->next_job + 1) % JOBS;
        pthread_cond_signal(&k->work);
    }
    const bool more = k->n_waiting || k->jobs[k->next_done].state != IDLE;
    pthread_mutex_unlock(&k->lock);
    return more;
}

/* ---- from the disk ---- */

/* The page that ends with `key` into the tree; NULL: it cannot be had, or there is no room. */
static struct lode_prefix_node *fetch_page(struct lode_keeper *k, struct lode_prefix_node *at,
                                           XXH128_hash_t key, const int32_t *tokens) {
    uint32_t pages[LODE_DISK_MAX_PARTS];
    void *places[LODE_DISK_MAX_PARTS];
    struct lode_disk_entry e = describe(k, key, LODE_DISK_PAGES, tokens);
    char *to = k->bytes;
    for (uint32_t g = 0; g < k->n_groups; to += e.sizes[g++]) {
        places[g] = to;
        pages[g] = LODE_KV_NONE;
    }
    int rc = lode_disk_read(k->disk, &e, places);
    k->stats.errors += rc < 0;
    for (uint32_t g = 0; rc == 0 && g < k->n_groups; g++) {
        if (!e.parts[g] && e.sizes[g] > 0)
            continue;
        if (lode_prefix_reclaim(k->prefix, g, 1))
            pages[g] = lode_kv_page_take(k->pool, g);
        if (pages[g] == LODE_KV_NONE)
            rc = LODE_ERR_LIMIT;
        else if (e.sizes[g] > 0)
            rc = lode_kv_page_write(k->pool, g, pages[g], places[g], NULL);
    }
    if (rc == 0) {
        k->stats.read++;
        return lode_prefix_put(k->prefix, at, tokens, pages);
    }
    for (uint32_t g = 0; g < k->n_groups; g++)
        if (pages[g] != LODE_KV_NONE)
            lode_kv_page_drop(k->pool, g, pages[g]);
    return NULL;
}

static bool fetch_state(struct lode_keeper *k, struct lode_prefix_node *node) {
    struct lode_disk_entry e =
        describe(k, lode_prefix_key(node), LODE_DISK_STATE, lode_prefix_tokens(node));
    void *const place = k->bytes;
    if (!lode_disk_has(k->disk, e.key, e.kind))
        return false;
    if (lode_disk_read(k->disk, &e, &place) < 0 || !e.parts[0]) {
        k->stats.errors++;
        return false;
    }
    void *copy = lode_prefix_state(k->prefix, node);
    if (!copy)
        return false;
    memcpy(copy, place, k->state_block);
    k->stats.read++;
    return true;
}

/* Whether pages that a step at position n can see are missing from the node. */
static bool lacks_pages(const struct lode_keeper *k, const struct lode_prefix_node *node, uint32_t n) {
    for (uint32_t g = 0; g < k->n_groups; g++)
        if (lode_prefix_page(k->prefix, node, g) == LODE_KV_NONE &&
            lode_prefix_depth(node) > lode_kv_oldest(k->pool, g, n))
            return true;
    return false;
}

/* How many pages from the beginning on are in the tree or on the disk; of a model with recurrent
 * layers, up to the last that has its state. */
static uint32_t reach(const struct lode_keeper *k, const int32_t *tokens, uint32_t n) {
    const struct lode_prefix_node *node = lode_prefix_root(k->prefix);
    XXH128_hash_t key = lode_prefix_key(node);
    uint32_t depth = 0, good = 0;
    while ((depth + 1) * LODE_KV_PAGE <= n) {
        node = node ? lode_prefix_child(k->prefix, node, tokens + depth * LODE_KV_PAGE) : NULL;
        key = lode_prefix_next_key(key, tokens + depth * LODE_KV_PAGE);
        if (!node && !lode_disk_has(k->disk, key, LODE_DISK_PAGES))
            break;
        depth++;
        if (!k->state_block || lode_disk_has(k->disk, key, LODE_DISK_STATE) ||
            (node && lode_prefix_state_of(k->prefix, node)))
            good = depth;
    }
    return good;
}

bool lode_keeper_fetch(struct lode_keeper *k, const int32_t *tokens, uint32_t n, double seconds) {
    const uint32_t want = reach(k, tokens, n);
    const double end = lode_clock() + seconds;
    struct lode_prefix_node *at = lode_prefix_root(k->prefix);
    bool done = true;
    while (lode_prefix_depth(at) < want) {
        const int32_t *next = tokens + lode_prefix_depth(at) * LODE_KV_PAGE;
        struct lode_prefix_node *node = lode_prefix_child(k->prefix, at, next);
        const XXH128_hash_t key = lode_prefix_next_key(lode_prefix_key(at), next);
        if ((!node || lacks_pages(k, node, want * LODE_KV_PAGE)) &&
            lode_disk_has(k->disk, key, LODE_DISK_PAGES)) {
            if (lode_clock() > end) {
                done = false;
                break;
            }
            struct lode_prefix_node *fetched = fetch_page(k, at, key, next);
            node = fetched ? fetched : node;
        }
        if (!node)
            break;
        lode_prefix_advance(k->prefix, node); /* pinned while the rest comes */
        at = node;
    }
    struct lode_prefix_node *last = at;
    while (done && k->state_block && lode_prefix_depth(last) > 0 &&
           !lode_prefix_state_of(k->prefix, last) && !fetch_state(k, last))
        last = lode_prefix_parent(last);
    lode_prefix_unpin(k->prefix, at);
    return done;
}

/* ---- words ---- */

static struct lode_disk_entry words_entry(const uint64_t key[2], size_t n) {
    return (struct lode_disk_entry){.key = {.low64 = key[0], .high64 = key[1]},
                                    .kind = LODE_DISK_WORDS,
                                    .n_parts = 1,
                                    .sizes = {n * sizeof(int32_t)}};
}

void lode_keeper_put_words(struct lode_keeper *k, const uint64_t key[2], const int32_t *tokens, size_t n) {
    struct lode_disk_entry e = words_entry(key, n);
    e.parts[0] = tokens;
    if (lode_disk_has(k->disk, e.key, e.kind))
        return;
    const int rc = lode_disk_write(k->disk, &e);
    k->stats.written += rc == 0;
    k->stats.errors += rc < 0;
    if (rc == 0)
        lode_disk_add(k->disk, e.key, e.kind, lode_disk_size(&e));
}

int32_t *lode_keeper_get_words(struct lode_keeper *k, const uint64_t key[2], size_t *n) {
    struct lode_disk_entry e = words_entry(key, 0);
    e.sizes[0] = (size_t)lode_disk_content(k->disk, e.key, e.kind);
    void *const tokens = e.sizes[0] ? lode_alloc(e.sizes[0], 1) : NULL;
    if (!tokens)
        return NULL;
    if (lode_disk_read(k->disk, &e, &tokens) < 0 || !e.parts[0]) {
        k->stats.errors++;
        lode_free(tokens);
        return NULL;
    }
    k->stats.read++;
    *n = e.sizes[0] / sizeof(int32_t);
    return tokens;
}

void lode_keeper_stats(const struct lode_keeper *k, struct lode_keeper_stats *out) {
    *out = k->stats;
    lode_disk_stats(k->disk, &out->disk);
}
