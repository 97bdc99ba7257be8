#include "store/assemble.h"

#include "base/alloc.h"

#include <pthread.h>

enum { THREADS = 2 };

struct lode_assembler {
    const struct lode_source *source; /* borrowed, as the next three */
    const struct lode_weight *weights;
    const struct lode_group *groups;
    const size_t *at;
    pthread_t threads[THREADS];
    uint32_t n_threads;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t work;
    struct lode_read *first, *last; /* by next */
    bool stop;
    struct lode_error error;
};

static int put_together(const struct lode_assembler *a, const struct lode_read *r,
                        struct lode_error *err) {
    const struct lode_group *g = &a->groups[r->tag];
    for (uint32_t i = 0; i < g->n_weights; i++) {
        const struct lode_weight *w = &a->weights[g->weights[i]];
        LODE_TRY(lode_source_read(a->source, w->home, w->offset, r->base + a->at[g->weights[i]],
                                  w->size, err));
    }
    return 0;
}

static void *work(void *arg) {
    struct lode_assembler *a = arg;
    pthread_mutex_lock(&a->lock);
    while (!a->stop) {
        struct lode_read *r = a->first;
        if (!r) {
            pthread_cond_wait(&a->work, &a->lock);
            continue;
        }
        a->first = r->next;
        if (!a->first)
            a->last = NULL;
        pthread_mutex_unlock(&a->lock);
        struct lode_error err = {0};
        const int rc = put_together(a, r, &err);
        r->fault = (struct lode_read_fault){.cause = rc < 0 ? LODE_READ_SOURCE : 0};
        if (rc < 0) {
            pthread_mutex_lock(&a->lock);
            a->error = err;
            pthread_mutex_unlock(&a->lock);
        }
        r->done(r);
        pthread_mutex_lock(&a->lock);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

int lode_assembler_create(struct lode_assembler **out, const struct lode_source *source,
                          const struct lode_weight *weights, const struct lode_group *groups,
                          const size_t *at, struct lode_error *err) {
    struct lode_assembler *a = LODE_NEW(struct lode_assembler);
    *out = a;
    if (!a)
        return lode_fail_nomem(err, "expert cache");
    *a = (struct lode_assembler){.source = source, .weights = weights, .groups = groups, .at = at};
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->work, NULL);
    while (a->n_threads < THREADS && pthread_create(&a->threads[a->n_threads], NULL, work, a) == 0)
        a->n_threads++;
    if (a->n_threads)
        return 0;
    lode_assembler_free(a);
    *out = NULL;
    return lode_fail(err, LODE_ERR_LIMIT, "experts", "no thread can be started to read them");
}

void lode_assembler_free(struct lode_assembler *a) {
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_broadcast(&a->work);
    pthread_mutex_unlock(&a->lock);
    for (uint32_t i = 0; i < a->n_threads; i++)
        pthread_join(a->threads[i], NULL);
    pthread_cond_destroy(&a->work);
    pthread_mutex_destroy(&a->lock);
    lode_free(a);
}

void lode_assembler_submit(struct lode_assembler *a, struct lode_read *read) {
    read->next = NULL;
    pthread_mutex_lock(&a->lock);
    *(a->last ? &a->last->next : &a->first) = read;
    a->last = read;
    pthread_cond_signal(&a->work);
    pthread_mutex_unlock(&a->lock);
}

int lode_assembler_fail(struct lode_assembler *a, struct lode_error *err) {
    pthread_mutex_lock(&a->lock);
    const struct lode_error error = a->error;
    pthread_mutex_unlock(&a->lock);
    if (err)
        *err = error;
    return error.code;
}
