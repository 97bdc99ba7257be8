#include "store/sums.h"

#include "base/alloc.h"
#include "base/threads.h"
#include "format/packed.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { THREADS = 8 /* some wait for the disk where a mapping's pages are not there yet */ };

struct piece { /* of a record: one weight's bytes */
    struct lode_place at;
    uint32_t id;
};

struct checking {
    const struct lode_source *source;
    const struct lode_weight *weights;
    const struct lode_sums_opts *opts;
    struct piece *pieces; /* owned; (n): by file, record and place in it */
    uint32_t *first;      /* owned; (n_records + 1): of pieces */
    uint32_t n, n_records;
    pthread_mutex_t lock; /* of the next two */
    struct lode_error error;
    int rc;
};

int lode_sums_fail(const char *path, const char *what, uint64_t at, struct lode_error *err) {
    return lode_fail(err, LODE_ERR_IO, path,
                     "%s at byte %" PRIu64 " is damaged: its checksum is not the one in the "
                     "manifest; pack the model again",
                     what, at);
}

static int by_place(const void *a, const void *b) {
    const struct piece *x = a, *y = b;
    const int file = x->at.file == y->at.file ? 0 : strcmp(x->at.file->path, y->at.file->path);
    if (file || x->at.record != y->at.record)
        return file ? file : x->at.record < y->at.record ? -1 : 1;
    return (x->at.offset > y->at.offset) - (x->at.offset < y->at.offset);
}

static bool same_record(const struct piece *a, const struct piece *b) {
    return a->at.file == b->at.file && a->at.record == b->at.record;
}

static int list(struct checking *c, uint32_t n_weights, struct lode_error *err) {
    c->pieces = LODE_NEW_ARRAY(struct piece, n_weights);
    c->first = LODE_NEW_ARRAY(uint32_t, (size_t)n_weights + 1);
    if (!c->pieces || !c->first)
        return lode_fail_nomem(err, "checksums");
    for (uint32_t i = 0; i < n_weights; i++) {
        const struct lode_weight *w = &c->weights[i];
        struct piece *p = &c->pieces[c->n];
        p->id = i;
        if (w->group - c->opts->skip_first >= c->opts->n_skip &&
            lode_source_place(c->source, w->home, w->offset, w->size, &p->at) && p->at.record_size)
            c->n++;
    }
    qsort(c->pieces, c->n, sizeof *c->pieces, by_place);
    for (uint32_t i = 0; i < c->n; i++)
        if (i == 0 || !same_record(&c->pieces[i - 1], &c->pieces[i]))
            c->first[c->n_records++] = i;
    c->first[c->n_records] = c->n;
    return 0;
}

static int add_bytes(struct checking *c, const struct piece *p, XXH3_state_t *sum,
                     struct lode_error *err) {
    const struct lode_weight *w = &c->weights[p->id];
    const void *data = c->opts->data ? c->opts->data[p->id] : NULL;
    void *own = NULL;
    int rc = 0;
    if (!data)
        data = lode_source_data(c->source, w->home, w->offset, w->size);
    if (!data) {
        data = own = lode_alloc(w->size, 1);
        rc = own ? lode_source_read(c->source, w->home, w->offset, own, w->size, err)
                 : lode_fail_nomem(err, w->home->name);
    }
    if (rc == 0)
        XXH3_64bits_update(sum, data, w->size);
    lode_free(own);
    return rc;
}

static int fail(const struct checking *c, const struct piece *p, struct lode_error *err) {
    const struct lode_weight *w = &c->weights[p->id];
    char what[LODE_GGUF_MAX_NAME + 32];
    unsigned layer = 0;
    LODE_TRY(lode_source_check(c->source, err)); /* mapped bytes that are not there at all */
    const bool in_layer = sscanf(w->home->name, "blk.%u.", &layer) == 1;
    if (in_layer && w->home->dims[2] > 1 && strstr(w->home->name, "_exps.weight"))
        snprintf(what, sizeof what, "expert %zu of layer %u", w->offset / w->size, layer);
    else
        snprintf(what, sizeof what, in_layer ? "%s of layer %u" : "%s", w->home->name, layer);
    return lode_sums_fail(p->at.file->path, what, p->at.record, err);
}

/* One record: its weights in order, with zeros between them.  One that weights do not make up wholly
 * (a tensor that the model does not have) cannot be compared. */
static int check_record(struct checking *c, const struct piece *p, uint32_t n, XXH3_state_t *sum,
                        struct lode_error *err) {
    static const char zeros[LODE_PACKED_SLICE];
    uint64_t at = p->at.record;
    XXH3_64bits_reset(sum);
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t begin = p[i].at.offset;
        if (begin < at) /* the same bytes as two weights */
            continue;
        if (begin - at >= sizeof zeros)
            return 0;
        XXH3_64bits_update(sum, zeros, (size_t)(begin - at));
        LODE_TRY(add_bytes(c, &p[i], sum, err));
        at = begin + c->weights[p[i].id].size;
    }
    if (at != p->at.record + p->at.record_size || XXH3_64bits_digest(sum) == p->at.sum)
        return 0;
    return fail(c, p, err);
}

static void check_task(void *arg, uint32_t task, uint32_t worker) {
    struct checking *c = arg;
    struct lode_error err = {0};
    (void)worker;
    pthread_mutex_lock(&c->lock);
    const bool over = c->rc < 0;
    pthread_mutex_unlock(&c->lock);
    if (over)
        return;
    XXH3_state_t *sum = XXH3_createState();
    const int rc = sum ? check_record(c, c->pieces + c->first[task],
                                      c->first[task + 1] - c->first[task], sum, &err)
                       : lode_fail_nomem(&err, "checksums");
    XXH3_freeState(sum);
    pthread_mutex_lock(&c->lock);
    if (rc < 0 && c->rc == 0) {
        c->rc = rc;
        c->error = err;
    }
    pthread_mutex_unlock(&c->lock);
}

int lode_sums_check(const struct lode_source *source, const struct lode_weight *weights,
                    uint32_t n_weights, const struct lode_sums_opts *opts, struct lode_error *err) {
    struct checking c = {.source = source, .weights = weights, .opts = opts};
    struct lode_pool *pool;
    int rc = list(&c, n_weights, err);
    if (rc == 0 && c.n_records)
        rc = lode_pool_create(&pool, THREADS, false, err);
    if (rc == 0 && c.n_records) {
        pthread_mutex_init(&c.lock, NULL);
        lode_pool_run(pool, check_task, &c, c.n_records);
        lode_pool_free(pool);
        pthread_mutex_destroy(&c.lock);
        rc = c.rc;
        if (rc < 0 && err)
            *err = c.error;
    }
    lode_free(c.pieces);
    lode_free(c.first);
    return rc;
}
