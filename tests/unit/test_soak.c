/* Two sessions that share workers live a long and random life: evaluated in pieces of any size, one at
 * a time and both in a step, rewound, synced to changed texts.  However they came to be where they
 * are, their logits are the bits that a fresh session gives for the same tokens in one go, and nothing
 * is allocated on the way.  Three seconds a model, two minutes with LODE_LONG.  LODE_SEED repeats a run.
 */
#include "../own_files.h"
#include "effort.h"
#include "failmalloc.h"

#include "base/rng.h"
#include "lode/lode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { CTX = 200, BATCH = 48, MOST = BATCH / 2 };

struct life {
    struct lode_model *model;
    struct lode_session *session[2];
    const char *kv; /* format of both caches */
    uint64_t seed, draws;
    uint64_t ops, compared;
    const char *last; /* the operation before a comparison */
};

static uint32_t draw(struct life *l, uint32_t below) {
    uint32_t r[4];
    lode_rng_philox(l->seed, l->draws++, r);
    return r[0] % below;
}

/* Up to MOST random ids that still fit; 0 when none does. */
static size_t draw_ids(struct life *l, const struct lode_session *s, int32_t *ids) {
    const size_t room = CTX - lode_session_length(s);
    size_t n = 1 + draw(l, draw(l, 2) ? MOST : 3);
    if (n > room)
        n = room;
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)draw(l, lode_model_info(l->model)->n_vocab);
    return n;
}

static int eval(struct life *l, struct lode_session *s, struct lode_error *err) {
    int32_t ids[MOST];
    const size_t n = draw_ids(l, s, ids);
    return n ? lode_session_eval(s, ids, n, err) : lode_session_truncate(s, 0, err);
}

static int both(struct life *l, struct lode_session *s, struct lode_error *err) {
    int32_t ids[2][MOST];
    struct lode_feed feeds[2];
    size_t n_feeds = 0;
    (void)s;
    for (int i = 0; i < 2; i++) {
        const size_t n = draw_ids(l, l->session[i], ids[i]);
        if (n)
            feeds[n_feeds++] = (struct lode_feed){l->session[i], ids[i], n};
    }
    return n_feeds ? lode_session_step(feeds, n_feeds, err) : 0;
}

static int truncate_it(struct life *l, struct lode_session *s, struct lode_error *err) {
    return lode_session_truncate(s, draw(l, (uint32_t)lode_session_length(s) + 1), err);
}

static int sync_it(struct life *l, struct lode_session *s, struct lode_error *err) {
    int32_t ids[CTX];
    size_t reused, n = lode_session_length(s);
    if (n)
        memcpy(ids, lode_session_tokens(s), n * sizeof *ids);
    n = draw(l, (uint32_t)n + 1); /* a beginning of what it is, and something new */
    for (size_t more = 1 + draw(l, 30); more && n < CTX; more--)
        ids[n++] = (int32_t)draw(l, lode_model_info(l->model)->n_vocab);
    const int rc = lode_session_sync(s, ids, n, &reused, err);
    if (rc == 0) {
        assert_true(reused < n);
        assert_int_equal(lode_session_length(s), n);
        assert_memory_equal(lode_session_tokens(s), ids, n * sizeof *ids);
    }
    return rc;
}

static const struct {
    const char *name;
    int (*run)(struct life *l, struct lode_session *s, struct lode_error *err);
} ops[] = {{"eval", eval}, {"both", both}, {"eval", eval}, {"truncate", truncate_it}, {"sync", sync_it}};

static void compare(struct life *l, struct lode_session *s) {
    const float *got = lode_session_logits(s);
    if (!got)
        return;
    struct lode_session *fresh;
    struct lode_error err;
    const struct lode_session_opts o = {.ctx = CTX, .threads = 1, .ctk = l->kv, .ctv = l->kv};
    assert_int_equal(lode_session_create(&fresh, l->model, &o, &err), 0);
    assert_int_equal(
        lode_session_eval(fresh, lode_session_tokens(s), lode_session_length(s), &err), 0);
    if (memcmp(lode_session_logits(fresh), got, lode_model_info(l->model)->n_vocab * sizeof *got))
        fail_msg("seed %llu, operation %llu (%s), %zu tokens: not the bits of a fresh session",
                 (unsigned long long)l->seed, (unsigned long long)l->ops, l->last,
                 lode_session_length(s));
    lode_session_free(fresh);
    l->compared++;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void live(const char *name, const char *kv) {
    const char *seed = getenv("LODE_SEED");
    struct life l = {.kv = kv, .seed = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL)};
    struct lode_error err;
    assert_int_equal(lode_model_load(&l.model, own_arch(name), NULL, &err), 0);
    struct lode_session_opts o = {.ctx = CTX, .batch = BATCH, .threads = 2, .ctk = kv, .ctv = kv};
    assert_int_equal(lode_session_create(&l.session[0], l.model, &o, &err), 0);
    o.with = l.session[0];
    assert_int_equal(lode_session_create(&l.session[1], l.model, &o, &err), 0);

    const double end = now() + (at_length() ? 120 : 3);
    while (now() < end) {
        struct lode_session *s = l.session[draw(&l, 2)];
        const uint32_t op = draw(&l, sizeof ops / sizeof *ops);
        failmalloc_start(0, false);
        const int rc = ops[op].run(&l, s, &err);
        const struct failmalloc_stats stats = failmalloc_stop();
        l.last = ops[op].name;
        l.ops++;
        if (rc != 0 || stats.calls != 0)
            fail_msg("seed %llu, operation %llu (%s): %d (%s), %llu allocations",
                     (unsigned long long)l.seed, (unsigned long long)l.ops, l.last, rc,
                     rc ? err.text : "", (unsigned long long)stats.calls);
        if (draw(&l, 8) == 0)
            compare(&l, s);
    }
    assert_true(l.compared > 0);
    print_message("%s: %llu operations, %llu compared, seed %llu\n", name,
                  (unsigned long long)l.ops, (unsigned long long)l.compared,
                  (unsigned long long)l.seed);
    lode_session_free(l.session[1]);
    lode_session_free(l.session[0]);
    lode_model_free(l.model);
}

static void sliding_windows(void **state) {
    (void)state;
    live("gemma3", "f16");
}
static void plain(void **state) {
    (void)state;
    live("qwen3", "q8_0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sliding_windows),
        cmocka_unit_test(plain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
