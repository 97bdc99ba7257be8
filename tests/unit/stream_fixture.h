/* stream_fixture.h - models whose experts are read when they are used, and the same model in memory to hold
 * them against. */
#ifndef STREAM_FIXTURE_H
#define STREAM_FIXTURE_H

#include "../own_files.h"
#include "failmalloc.h"

#include "base/rng.h"
#include "kern/kern.h"
#include "lode/lode.h"
#include "model/model.h"
#include "store/policy.h"
#include "store/stream.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N = 40, V = 640 /* the largest vocabulary */ };

static int32_t ids[N];
static uint32_t n_vocab;
static float reference[N][V];

/* How a store is made. */
struct how {
    double share;       /* of all experts, that the cache holds */
    const char *policy;
    struct lode_reader_opts reader;
};

static const char *path_of(const char *name) {
    return name[0] == '/' ? name : own_arch(name);
}

static int make_stream(struct lode_store **out, void *user, const struct lode_model *m,
                       struct lode_error *err) {
    const struct how *how = user;
    uint64_t least, most;
    lode_stream_sizes(m->source, m->weights, m->groups, m->n_expert_groups, &least, &most);
    const double budget = how->share * (double)most;
    return lode_stream_create(out, m->source, m->weights, m->n_weights, m->groups, 0, m->n_expert_groups,
                              &(struct lode_stream_opts){
                                  .budget = budget > (double)least ? (uint64_t)budget : least,
                                  .policy = how->policy,
                                  .reader = how->reader},
                              err);
}

static int keep(void *user, uint32_t pos, const float *logits) {
    memcpy(((float(*)[V])user)[pos], logits, n_vocab * sizeof *logits);
    return 0;
}

static int eval(const struct lode_model *m, uint32_t batch, uint32_t threads, float (*out)[V],
                struct lode_error *err) {
    struct lode_session *s;
    const struct lode_session_opts o = {.ctx = 64, .batch = batch, .threads = threads};
    LODE_TRY(lode_session_create(&s, (struct lode_model *)(uintptr_t)m, &o, err));
    const int rc = lode_session_eval_each(s, ids, N, keep, out, err);
    lode_session_free(s);
    return rc;
}

static struct lode_model *load(const char *name, struct how *how) {
    struct lode_model *m;
    struct lode_error err;
    const int rc = how ? lode_model_load_with(&m, path_of(name), NULL, make_stream, how, &err)
                       : lode_model_load(&m, path_of(name), NULL, &err);
    if (rc < 0)
        fail_msg("%s: %s", err.where, err.text);
    return m;
}

static void make_reference(const char *name) {
    struct lode_error err;
    struct lode_model *m = load(name, NULL);
    n_vocab = lode_model_info(m)->n_vocab;
    assert_true(n_vocab <= V);
    memset(reference, 0, sizeof reference);
    for (int i = 0; i < N; i++)
        ids[i] = (int32_t)(lode_rng_uniform(3, (uint64_t)i, 0) * n_vocab);
    if (eval(m, N, 1, reference, &err) < 0)
        fail_msg("%s: %s", err.where, err.text);
    lode_model_free(m);
}

static void same(const struct lode_model *m, uint32_t batch, uint32_t threads) {
    static float got[N][V];
    struct lode_error err;
    memset(got, 0, sizeof got);
    if (eval(m, batch, threads, got, &err) < 0)
        fail_msg("%s: %s", err.where, err.text);
    assert_memory_equal(got, reference, sizeof got);
}


#endif
