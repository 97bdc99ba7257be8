/* pressure.c - what prefixes take, given back when memory is short (lode/memory.h).
 *
 * Whoever asks is any thread.  The tree of prefixes may be looked at with the scheduler's lock, but a step,
 * which runs without it, takes pages from the pool.  So what is asked is noted, and done before the next
 * step: within a step's time, at once where nothing runs.
 */
#include "engine/sched.h"

static uint64_t held(void *user) {
    struct lode_scheduler *s = user;
    pthread_mutex_lock(&s->lock);
    const uint64_t bytes = lode_prefix_idle(s->prefix);
    pthread_mutex_unlock(&s->lock);
    return bytes;
}

static uint64_t shrink(void *user, uint64_t bytes, bool stay) {
    struct lode_scheduler *s = user;
    pthread_mutex_lock(&s->lock);
    const uint64_t idle = lode_prefix_idle(s->prefix);
    const uint64_t left = idle > s->give ? idle - s->give : 0; /* the rest is on its way */
    const uint64_t n = bytes < left ? bytes : left;
    s->give += n;
    if (stay) /* also of what runs now, once it does not any more */
        s->give_for_good = bytes < UINT64_MAX - s->give_for_good ? s->give_for_good + bytes : UINT64_MAX;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
    return n;
}

static void grow(void *user) {
    struct lode_scheduler *s = user;
    pthread_mutex_lock(&s->lock);
    s->grow = true;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

void lode_sched_list(struct lode_scheduler *s) {
    s->cache = (struct lode_cache){.held = held, .shrink = shrink, .grow = grow, .user = s};
    lode_cache_list(&s->cache);
    s->listed = true;
}

void lode_sched_unlist(struct lode_scheduler *s) {
    if (s->listed)
        lode_cache_unlist(&s->cache);
    s->listed = false;
}

void lode_sched_give(struct lode_scheduler *s) {
    if (s->grow)
        lode_prefix_grow(s->prefix);
    if (s->give || s->give_for_good)
        lode_prefix_shrink(s->prefix, s->give, s->give_for_good);
    s->give = s->give_for_good = 0;
    s->grow = false;
}
