/* workers.c - see workers.h. */
#include "serve/workers.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdlib.h>

/* STACK: a step that such a thread computes takes 300 KiB (AMX packs its columns there), and what the thread
 * sanitizer keeps of a thread another 800. */
enum { IDLE_SECONDS = 10, STACK = 2 << 20 };

struct workers {
    uint32_t most;
    void (*run)(void *user, struct worker_job *job);
    void *user;

    pthread_mutex_t lock; /* for all below */
    pthread_cond_t work, fewer;
    struct worker_job *jobs, **end;
    uint32_t n_jobs, n_threads, n_idle;
    bool stopping;
};

static void *work(void *user) {
    struct workers *w = user;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        const struct timespec end = lode_clock_after(IDLE_SECONDS * 1000);
        int rc = 0;
        while (!w->jobs && !w->stopping && rc == 0) {
            w->n_idle++;
            rc = pthread_cond_timedwait(&w->work, &w->lock, &end);
            w->n_idle--;
        }
        struct worker_job *job = w->jobs;
        if (!job)
            break;
        w->jobs = job->next;
        if (!w->jobs)
            w->end = &w->jobs;
        w->n_jobs--;
        pthread_mutex_unlock(&w->lock);
        w->run(w->user, job);
        pthread_mutex_lock(&w->lock);
    }
    w->n_threads--;
    pthread_cond_signal(&w->fewer);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void start_thread(struct workers *w) {
    pthread_attr_t a;
    pthread_t id;
    pthread_attr_init(&a);
    pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&a, STACK);
    w->n_threads += pthread_create(&id, &a, work, w) == 0;
    pthread_attr_destroy(&a);
}

bool workers_submit(struct workers *w, struct worker_job *job) {
    pthread_mutex_lock(&w->lock);
    if (!w->stopping && w->n_idle <= w->n_jobs && w->n_threads < w->most)
        start_thread(w);
    const bool good = !w->stopping && w->n_threads > 0;
    if (good) {
        job->next = NULL;
        *w->end = job;
        w->end = &job->next;
        w->n_jobs++;
        pthread_cond_signal(&w->work);
    }
    pthread_mutex_unlock(&w->lock);
    return good;
}

int workers_create(struct workers **out, uint32_t most, void (*run)(void *user, struct worker_job *job),
                   void *user, struct lode_error *err) {
    struct workers *w = calloc(1, sizeof *w);
    pthread_condattr_t attr;
    *out = w;
    if (!w)
        return lode_fail(err, LODE_ERR_NOMEM, "", "no memory for threads");
    *w = (struct workers){.most = most, .run = run, .user = user};
    w->end = &w->jobs;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->work, &attr);
    pthread_cond_init(&w->fewer, &attr);
    pthread_condattr_destroy(&attr);
    return 0;
}

void workers_stop(struct workers *w) {
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_cond_broadcast(&w->work);
    while (w->n_threads)
        pthread_cond_wait(&w->fewer, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

void workers_free(struct workers *w) {
    if (!w)
        return;
    pthread_cond_destroy(&w->work);
    pthread_cond_destroy(&w->fewer);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

void workers_count(struct workers *w, uint32_t *threads, uint32_t *busy) {
    pthread_mutex_lock(&w->lock);
    *threads = w->n_threads;
    *busy = w->n_threads - w->n_idle;
    pthread_mutex_unlock(&w->lock);
}
