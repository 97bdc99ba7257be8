/* Cache policies: by hand where a few steps show the idea, and against slow models of each. */
#include "policy_model.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "store/trial.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct lode_error err;

static struct lode_policy *make(const char *name, uint64_t capacity) {
    struct lode_policy *p;
    assert_int_equal(
        lode_policy_create(&p, name, &(struct lode_policy_shape){2, 8, capacity}, &err), 0);
    return p;
}

/* Uses id, which takes one byte; returns who had to go, or -1. */
static int use(struct lode_policy *p, uint32_t id) {
    uint32_t gone = UINT32_MAX;
    if (lode_policy_holds(p, id)) {
        lode_policy_touch(p, id);
        return -1;
    }
    lode_policy_visit(p, id);
    if (lode_policy_used(p) + 1 > lode_policy_capacity(p))
        assert_true(lode_policy_victim(p, &gone));
    lode_policy_admit(p, id, 1, false);
    return gone == UINT32_MAX ? -1 : (int)gone;
}

static void lru_drops_the_oldest(void **state) {
    (void)state;
    struct lode_policy *p = make("lru", 3);
    for (uint32_t id = 0; id < 3; id++)
        assert_int_equal(use(p, id), -1);
    use(p, 0);
    assert_int_equal(use(p, 3), 1);
    lode_policy_pin(p, 2);
    assert_int_equal(use(p, 4), 0); /* 2 is older, and pinned */
    lode_policy_unpin(p, 2);
    assert_int_equal(use(p, 5), 2);
    lode_policy_free(p);
}

static void slru_keeps_what_was_used_twice(void **state) {
    (void)state;
    struct lode_policy *p = make("slru", 5);
    for (uint32_t id = 0; id < 4; id++) {
        use(p, id);
        use(p, id);
    }
    for (uint32_t id = 8; id < 16; id++) /* a burst of strangers drives out only its own */
        assert_int_equal(use(p, id), id == 8 ? -1 : (int)id - 1);
    for (uint32_t id = 0; id < 4; id++)
        assert_true(lode_policy_holds(p, id));
    lode_policy_free(p);
}

static void s3fifo_lets_ghosts_in(void **state) {
    (void)state;
    struct lode_policy *p = make("s3fifo", 4);
    for (uint32_t id = 0; id < 4; id++)
        use(p, id);
    assert_int_equal(use(p, 4), 0);
    assert_int_equal(use(p, 0), 1); /* a ghost: now in the main queue */
    assert_int_equal(use(p, 5), 2);
    assert_int_equal(use(p, 6), 3);
    assert_true(lode_policy_holds(p, 0));
    lode_policy_free(p);
}

static void lfu_forgets_old_fame(void **state) {
    (void)state;
    struct lode_policy *p = make("lfu", 2);
    for (int i = 0; i < 100; i++)
        use(p, 0);
    assert_int_equal(use(p, 1), -1);
    assert_int_equal(use(p, 2), 1);
    /* 99 uses are less than 5 once the count was halved five times: each after 16 x 16 uses */
    for (int i = 0; i < 5 * 256; i++)
        use(p, i % 2 ? 3 : 4);
    assert_false(lode_policy_holds(p, 0));
    lode_policy_free(p);
}

/* What is guessed for the next layer stays until that layer has been; a guess that came to nothing is no use
 * of an expert, one that came true is one. */
static void guesses_stay_and_do_not_count(void **state) {
    (void)state;
#define TRY_GUESS(policy, about)                                                                   \
    {                                                                                              \
        struct lode_policy *p = make(#policy, 6);                                                  \
        for (int round = 0; round < 8; round++) /* 0, 1 and 8, 9: each layer's, each round */      \
            for (uint32_t id = 0; id < 4; id++)                                                    \
                use(p, id % 2 + (id / 2) * 8);                                                     \
        use(p, 0);                                                                                 \
        lode_policy_admit(p, 12, 1, true);                                                         \
        lode_policy_expect(p, 8);                                                                  \
        lode_policy_touch(p, 12); /* it comes true */                                              \
        assert_int_equal(lode_policy_used(p), 5);                                                  \
        lode_policy_admit(p, 13, 1, true);                                                         \
        lode_policy_pin(p, 13);                                                                    \
        lode_policy_touch(p, 13); /* while it is being read */                                     \
        for (int i = 0; i < 5; i++) { /* all can leave but what is pinned */                       \
            uint32_t gone;                                                                         \
            assert_true(lode_policy_victim(p, &gone));                                             \
            assert_int_not_equal(gone, 13);                                                        \
        }                                                                                          \
        uint32_t none;                                                                             \
        assert_false(lode_policy_victim(p, &none));                                                \
        lode_policy_unpin(p, 13);                                                                  \
        assert_true(lode_policy_victim(p, &none));                                                 \
        assert_int_equal(lode_policy_used(p), 0);                                                  \
        lode_policy_free(p);                                                                       \
    }
    LODE_POLICY_LIST(TRY_GUESS)
#undef TRY_GUESS
    struct lode_policy *p = make("next", 4);
    for (int round = 0; round < 20; round++) { /* 0 and 1 always; 8 always, 9 now and then */
        use(p, 0);
        use(p, 1);
        use(p, 8);
        if (round % 4 == 0)
            use(p, 9);
    }
    assert_true(lode_policy_holds(p, 9));
    use(p, 0);
    lode_policy_expect(p, 9); /* the next layer's router says so: without, it would be the first to go */
    assert_int_not_equal(use(p, 2), 9);
    assert_true(lode_policy_holds(p, 9));
    use(p, 8); /* its layer comes, and goes without it */
    use(p, 0);
    assert_int_equal(use(p, 3) == 9 || use(p, 4) == 9, true);
    lode_policy_free(p);
}

/* Where each expert has been used in each round, the one that its layer passes over goes. */
static void who_was_passed_over_goes(void **state) {
    (void)state;
    struct lode_policy *p = make("next", 2);
    for (int round = 0; round < 20; round++) {
        use(p, 0);
        use(p, 8);
    }
    assert_int_equal(use(p, 1), 0); /* not 8, whose turn comes */
    assert_int_equal(use(p, 8), -1);
    lode_policy_visit(p, 0);
    lode_policy_expect(p, 1); /* it is known to be wanted in this very visit */
    assert_int_equal(use(p, 2), 8);
    assert_int_equal(use(p, 1), -1);
    lode_policy_free(p);
}

/* Whether a visit's end is told or found when the next begins, the same leave. */
static void a_visit_may_be_ended(void **state) {
    (void)state;
#define TRY(name, about)                                                                           \
    {                                                                                              \
        struct lode_policy *told = make(#name, 5), *found = make(#name, 5);                        \
        for (uint64_t i = 0; i < 4000; i++) {                                                      \
            for (uint32_t k = 0; k < 3; k++) {                                                     \
                const double u = lode_rng_uniform(4, 3 * i + k, 0);                                 \
                const uint32_t id = (uint32_t)(i % 2 * 8 + (k < 2 ? u * 3 + k : u * 8));           \
                assert_int_equal(use(told, id), use(found, id));                                   \
            }                                                                                      \
            lode_policy_end_visit(told);                                                           \
            if (i % 3 == 0)                                                                        \
                lode_policy_end_visit(told); /* once is enough */                                  \
        }                                                                                          \
        lode_policy_free(told);                                                                    \
        lode_policy_free(found);                                                                   \
    }
    LODE_POLICY_LIST(TRY)
#undef TRY
}

/* --- chances -------------------------------------------------------------------------------- */

enum { EXPERTS = 16, VISITS = 1500 };

static double uniform(uint64_t visit, uint32_t e) { return lode_rng_uniform(9, visit * EXPERTS + e, 0); }

/* Experts that stay as they are nine times of ten, beside a layer of which the e-th is used in e + 0.5 of 16
 * visits.  Over the last 1000 visits, 8000 experts in use and as many not: means are within 0.02 (three standard
 * errors are 0.01), and errors of single chances that do not change are what 32 to 512 visits allow:
 * sqrt(0.25 / 64), a bit more or less. */
static void chances_are_learned(void **state) {
    (void)state;
    struct lode_chances *c = lode_chances_create(2, EXPERTS);
    assert_non_null(c);
    bool sticky[EXPERTS] = {false}, steady[EXPERTS];
    float ahead[EXPERTS][LODE_CHANCES_AHEAD];
    double sum[2] = {0}, off = 0, n[2] = {0};
    for (uint64_t i = 0; i < VISITS; i++) {
        for (uint32_t e = 0; e < EXPERTS; e++) {
            sticky[e] ^= uniform(2 * i, e) < 0.1;
            steady[e] = uniform(2 * i + 1, e) < (e + 0.5) / EXPERTS;
        }
        lode_chances_visit(c, 0, sticky, ahead);
        for (uint32_t e = 0; e < EXPERTS && i >= 500; e++) {
            sum[sticky[e]] += (double)ahead[e][0];
            n[sticky[e]]++;
        }
    }
    assert_true(fabs(sum[1] / n[1] - 0.9) < 0.02 && fabs(sum[0] / n[0] - 0.1) < 0.02);
    lode_chances_free(c);
    c = lode_chances_create(1, EXPERTS);
    assert_non_null(c);
    for (uint64_t i = 0; i < VISITS; i++) {
        for (uint32_t e = 0; e < EXPERTS; e++)
            steady[e] = uniform(2 * i + 1, e) < (e + 0.5) / EXPERTS;
        lode_chances_visit(c, 0, steady, ahead);
        for (uint32_t e = 0; e < EXPERTS && i >= 500; e++)
            off += fabs((double)ahead[e][0] - (e + 0.5) / EXPERTS) / (EXPERTS * (VISITS - 500));
    }
    if (!(off < 0.0625))
        fail_msg("off by %g on average", off);
    lode_chances_free(c);
}

/* Whatever is used, all or nothing, they are chances. */
static void chances_stay_chances(void **state) {
    (void)state;
    for (uint32_t part = 0; part <= 4; part++) {
        struct lode_chances *c = lode_chances_create(3, EXPERTS);
        assert_non_null(c);
        bool used[EXPERTS];
        float ahead[EXPERTS][LODE_CHANCES_AHEAD];
        for (uint64_t i = 0; i < 600; i++) {
            for (uint32_t e = 0; e < EXPERTS; e++)
                used[e] = uniform(i, e) * 4 < part;
            lode_chances_visit(c, i % 3, used, ahead);
            for (uint32_t e = 0; e < EXPERTS; e++)
                for (int h = 0; h < LODE_CHANCES_AHEAD; h++)
                    assert_true(ahead[e][h] >= 1e-5f && ahead[e][h] <= 1);
        }
        assert_true(part != 4 || ahead[0][0] > 0.99f);
        assert_true(part != 0 || ahead[0][0] < 0.01f);
        lode_chances_free(c);
    }
}

static void nothing_to_drop(void **state) {
    (void)state;
#define TRY(name, about)                                                                           \
    {                                                                                              \
        struct lode_policy *p = make(#name, 2);                                                    \
        uint32_t id;                                                                               \
        assert_false(lode_policy_victim(p, &id));                                                  \
        use(p, 0);                                                                                 \
        use(p, 1);                                                                                 \
        lode_policy_pin(p, 0);                                                                     \
        lode_policy_pin(p, 1);                                                                     \
        lode_policy_pin(p, 1);                                                                     \
        lode_policy_unpin(p, 1);                                                                   \
        assert_false(lode_policy_victim(p, &id));                                                  \
        lode_policy_unpin(p, 1);                                                                   \
        assert_true(lode_policy_victim(p, &id));                                                   \
        assert_int_equal(id, 1);                                                                   \
        assert_int_equal(lode_policy_used(p), 1);                                                  \
        lode_policy_unpin(p, 0);                                                                   \
        lode_policy_remove(p, 0);                                                                  \
        assert_int_equal(lode_policy_used(p), 0);                                                  \
        lode_policy_free(p);                                                                       \
    }
    LODE_POLICY_LIST(TRY)
#undef TRY
}

static void refused(void **state) {
    (void)state;
    struct lode_policy *p;
    assert_int_equal(lode_policy_create(&p, "mru", &(struct lode_policy_shape){1, 1, 1}, &err),
                     LODE_ERR_ARG);
    assert_non_null(strstr(err.text, "s3fifo"));
    assert_int_equal(lode_policy_create(&p, NULL, &(struct lode_policy_shape){0, 8, 1}, &err),
                     LODE_ERR_LIMIT);
    assert_int_equal(
        lode_policy_create(&p, NULL, &(struct lode_policy_shape){1 << 16, 1 << 16, 1}, &err),
        LODE_ERR_LIMIT);
    assert_null(p);
}

/* Random operations, on the policy and on its slow model. */
static void as_the_slow_models(void **state) {
    (void)state;
    enum { N = 8192, ROUNDS = 40 };
    static uint8_t data[N];
    for (uint64_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < N; i += 2) {
            uint32_t r[4];
            lode_rng_philox(round, i, r);
            const uint32_t often = r[1] % SLOW_IDS * (r[2] % 5) / 4; /* uses, mostly of few ids */
            data[i] = (uint8_t)(r[3] % 4 < round % 4 ? 5 * SLOW_IDS + often : r[0]);
            data[i + 1] = (uint8_t)(r[0] >> 8);
        }
#define TRY(name, about)                                                                           \
    {                                                                                              \
        const char *why = policy_drive(#name, data, N);                                            \
        if (why)                                                                                   \
            fail_msg("round %d: %s", (int)round, why);                                             \
    }
        LODE_POLICY_LIST(TRY)
#undef TRY
    }
}

/* n layers that take as long as said with guesses and without; how many had none. */
static uint32_t run_layers(struct lode_trial *t, uint32_t n, uint64_t with, uint64_t without) {
    uint32_t n_off = 0;
    for (uint32_t i = 0; i < n; i++) {
        n_off += t->off;
        lode_trial_add(t, t->off ? without : with);
    }
    return n_off;
}

/* Whether guesses pay is found out, and again when it has changed; what finding out costs is bounded. */
static void guesses_that_pay(void **state) {
    (void)state;
    enum { TRIED = LODE_TRIAL_PART * LODE_TRIAL_PARTS, ROUND = TRIED + LODE_TRIAL_BETWEEN };
    struct lode_trial t = LODE_TRIAL;
    assert_int_equal(run_layers(&t, LODE_TRIAL_FIRST, 100000, 10000), 0);
    assert_int_equal(run_layers(&t, TRIED, 100000, 96000), TRIED / 2);
    assert_false(t.off); /* not enough of a difference */
    assert_int_equal(run_layers(&t, LODE_TRIAL_BETWEEN, 100000, 0), 0);
    t.left++; /* a layer for which the disk stood still for a second */
    lode_trial_add(&t, 1000000000);
    assert_int_equal(run_layers(&t, ROUND, 100000, 94000), TRIED / 2 + LODE_TRIAL_BETWEEN);
    assert_int_equal(run_layers(&t, 10 * ROUND, 80000, 100000), 10 * (TRIED / 2));
    assert_int_equal(run_layers(&t, ROUND, 0, 0), TRIED / 2); /* all is in memory */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lru_drops_the_oldest),
        cmocka_unit_test(slru_keeps_what_was_used_twice),
        cmocka_unit_test(s3fifo_lets_ghosts_in),
        cmocka_unit_test(lfu_forgets_old_fame),
        cmocka_unit_test(guesses_stay_and_do_not_count),
        cmocka_unit_test(who_was_passed_over_goes),
        cmocka_unit_test(a_visit_may_be_ended),
        cmocka_unit_test(chances_are_learned),
        cmocka_unit_test(chances_stay_chances),
        cmocka_unit_test(nothing_to_drop),
        cmocka_unit_test(refused),
        cmocka_unit_test(as_the_slow_models),
        cmocka_unit_test(guesses_that_pay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
