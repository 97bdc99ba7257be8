#include "base/caches.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/pressure.h"
#include "lode/memory.h"

#include <malloc.h>
#include <pthread.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct lode_cache *first;

void lode_cache_list(struct lode_cache *c) {
    pthread_mutex_lock(&lock);
    c->next = first;
    first = c;
    pthread_mutex_unlock(&lock);
}

void lode_cache_unlist(struct lode_cache *c) {
    pthread_mutex_lock(&lock);
    for (struct lode_cache **at = &first; *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            break;
        }
    pthread_mutex_unlock(&lock);
}

uint64_t lode_caches_held(void) {
    uint64_t sum = 0;
    pthread_mutex_lock(&lock);
    for (struct lode_cache *c = first; c; c = c->next)
        sum += c->held(c->user);
    pthread_mutex_unlock(&lock);
    return sum;
}

uint64_t lode_caches_shrink(uint64_t bytes, bool stay) {
    uint64_t sum = 0;
    pthread_mutex_lock(&lock);
    for (struct lode_cache *c = first; c && sum < bytes; c = c->next)
        sum += c->shrink(c->user, bytes - sum, stay);
    pthread_mutex_unlock(&lock);
    return sum;
}

void lode_caches_grow(void) {
    pthread_mutex_lock(&lock);
    for (struct lode_cache *c = first; c; c = c->next)
        c->grow(c->user);
    pthread_mutex_unlock(&lock);
}

/* --- the watch over pressure ---------------------------------------------------------------- */

static struct {
    pthread_mutex_t starting; /* of start and stop */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool on, stop;
} watch = {.starting = PTHREAD_MUTEX_INITIALIZER,
           .lock = PTHREAD_MUTEX_INITIALIZER,
           .changed = PTHREAD_COND_INITIALIZER};

static void *watch_pressure(void *user) {
    struct lode_watch w = {0};
    (void)user;
    pthread_mutex_lock(&watch.lock);
    while (!watch.stop) {
        struct lode_pressure now;
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&watch.changed, &watch.lock, &until);
        if (watch.stop || !lode_pressure_read("", &now))
            continue;
        pthread_mutex_unlock(&watch.lock);
        lode_watch_look(&w, &now);
        pthread_mutex_lock(&watch.lock);
    }
    pthread_mutex_unlock(&watch.lock);
    return NULL;
}

static int start_watch(struct lode_error *err) {
    struct lode_pressure now;
    if (!lode_pressure_read("", &now))
        return lode_fail(err, LODE_ERR_UNSUPPORTED, "memory pressure",
                         "the kernel tells none: /proc/pressure/memory is missing, and so is a "
                         "control group's memory.events");
    watch.stop = false;
    if (pthread_create(&watch.thread, NULL, watch_pressure, NULL) != 0)
        return lode_fail(err, LODE_ERR_LIMIT, "memory pressure", "no thread can be started");
    watch.on = true;
    return 0;
}

int lode_memory_watch(bool on, struct lode_error *err) {
    int rc = 0;
    pthread_mutex_lock(&watch.starting);
    if (on && !watch.on) {
        rc = start_watch(err);
    } else if (!on && watch.on) {
        pthread_mutex_lock(&watch.lock);
        watch.stop = true;
        pthread_cond_signal(&watch.changed);
        pthread_mutex_unlock(&watch.lock);
        pthread_join(watch.thread, NULL);
        watch.on = false;
    }
    pthread_mutex_unlock(&watch.starting);
    return rc;
}

/* --- the interface ------------------------------------------------------------------------- */

void lode_memory_usage(struct lode_memory_usage *out) {
    *out = (struct lode_memory_usage){.active = lode_alloc_active(),
                                      .peak = lode_alloc_peak(),
                                      .mapped = lode_alloc_mapped(),
                                      .cached = lode_caches_held(),
                                      .limit = lode_alloc_limit()};
}

void lode_memory_reset_peak(void) { lode_alloc_reset_peak(); }

uint64_t lode_memory_limit(uint64_t bytes) {
    const uint64_t before = lode_alloc_limit();
    lode_alloc_set_limit(bytes > SIZE_MAX ? SIZE_MAX : (size_t)bytes);
    return before;
}

uint64_t lode_memory_trim(uint64_t bytes) {
    const uint64_t given = lode_caches_shrink(bytes, false);
    malloc_trim(0);
    return given;
}
