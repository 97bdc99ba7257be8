/* Load, generate, close, with every allocation failing in turn: once, and from there on for good.
 *
 * Whatever fails, the call that met it says LODE_ERR_NOMEM and why, nothing is leaked (counted by
 * failmalloc, and under the address sanitizer by that too), nothing crashes, and the next attempt
 * gives what the first one gave.
 */
#include "../own_files.h"
#include "failmalloc.h"

#include "engine/besides.h"
#include "lode/lode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_NEW = 4 };

struct outcome {
    int32_t ids[N_NEW]; /* what greedy sampling said */
    char text[256];     /* as text */
};

/* The life of a session, from a path to text. */
static int generate(const char *path, struct outcome *out, struct lode_error *err) {
    struct lode_model *model = NULL;
    struct lode_session *session = NULL;
    struct lode_sampler *sampler = NULL;
    struct lode_detok *detok = NULL;
    struct lode_sampler_opts opts;
    int32_t ids[64];
    size_t used = 0;
    memset(out, 0, sizeof *out);

    int rc = lode_model_load(&model, path, NULL, err);
    if (rc < 0)
        goto end;
    const struct lode_tokenizer *tok = lode_model_tokenizer(model);
    const uint32_t n_vocab = lode_model_info(model)->n_vocab;
    rc = lode_session_create(
        &session, model, &(struct lode_session_opts){.ctx = 64, .batch = 16, .threads = 2}, err);
    if (rc < 0)
        goto end;
    lode_sampler_defaults(&opts);
    opts.temp = 0;
    rc = lode_sampler_create(&sampler, n_vocab, &opts, err);
    if (rc < 0)
        goto end;
    rc = lode_detok_create(&detok, tok, true, err);
    if (rc < 0)
        goto end;
    static const char prompt[] = "Once upon a time, a caf\xc3\xa9.";
    const int64_t n = lode_tokenize(tok, prompt, sizeof prompt - 1,
                                    LODE_TOK_SPECIAL | LODE_TOK_PARSE, ids, 64, err);
    if (n < 0) {
        rc = (int)n;
        goto end;
    }
    rc = lode_session_eval(session, ids, (size_t)n, err);
    for (size_t i = 0; rc == 0 && i < N_NEW; i++) {
        const char *piece;
        size_t len;
        const int32_t id = lode_sampler_next(sampler, lode_session_logits(session),
                                             lode_session_length(session));
        out->ids[i] = id;
        lode_sampler_accept(sampler, id);
        rc = lode_detok_push(detok, id, &piece, &len, err);
        if (rc == 0 && used + len < sizeof out->text) {
            memcpy(out->text + used, piece, len);
            used += len;
        }
        if (rc == 0)
            rc = lode_session_eval(session, &id, 1, err);
    }
end:
    lode_detok_free(detok);
    lode_sampler_free(sampler);
    lode_session_free(session);
    lode_model_free(model);
    return rc;
}

/* Runs with the nth allocation failing and looks at everything; false: n is past the last. */
static bool attempt(const char *path, uint64_t n, bool persistent, const struct outcome *want) {
    struct outcome out;
    struct lode_error err = {0};
    failmalloc_start(n, persistent);
    const int rc = generate(path, &out, &err);
    const struct failmalloc_stats s = failmalloc_stop();
    if (s.live != 0)
        fail_msg("allocation %llu failing%s: %lld blocks leaked", (unsigned long long)n,
                 persistent ? " for good" : "", (long long)s.live);
    if (rc == 0) {
        /* Nothing failed, or something that could be done without: but then without a trace. */
        if (memcmp(&out, want, sizeof out) != 0)
            fail_msg("allocation %llu failing%s changed the outcome in silence: \"%s\", not \"%s\"",
                     (unsigned long long)n, persistent ? " for good" : "", out.text, want->text);
    } else if (err.code != rc || !err.text[0] ||
               /* pthread_create says EAGAIN for lack of memory and of threads alike */
               (rc != LODE_ERR_NOMEM && strcmp(err.where, "threads") != 0)) {
        fail_msg("allocation %llu failing%s: %d (%s), said \"%s: %s\"", (unsigned long long)n,
                 persistent ? " for good" : "", rc, lode_error_name(rc), err.where, err.text);
    }
    return s.failed != 0;
}

static void path_of(char path[1024], const char *name) {
    snprintf(path, 1024, "%.1000s", own_model(name));
}

/* What a plan measures of a model: its products, and what a token takes besides. */
static void test_measures(void **state) {
    char path[1024];
    struct lode_model *m;
    struct lode_error err = {0};
    path_of(path, *state);
    assert_int_equal(lode_model_open(&m, path, NULL, &err), 0);
    for (uint64_t n = 1;; n++) {
        failmalloc_start(n, false);
        const double speed = lode_model_multiply_bandwidth(m, 2, &err);
        const struct failmalloc_stats s = failmalloc_stop();
        assert_int_equal(s.live, 0);
        if (s.failed == 0) {
            assert_true(speed > 1e5 && speed < 1e13);
            break;
        }
        assert_true(speed > 0 || (err.code == (int)speed && err.text[0]));
    }
    struct lode_besides besides;
    for (uint64_t n = 1;; n++) {
        failmalloc_start(n, false);
        const int rc = lode_besides_measure(m, 2, true, 1e-3, &besides, &err);
        const struct failmalloc_stats s = failmalloc_stop();
        assert_int_equal(s.live, 0);
        if (s.failed == 0) {
            assert_int_equal(rc, 0);
            break;
        }
        assert_true(rc == 0 || (err.code == rc && err.text[0]));
    }
    /* a model of a cache's size, of which it has all: the plan's bytes, but for the embedding's other rows */
    assert_true(besides.whole && besides.seconds > 1e-7 && besides.seconds < 10 && besides.bytes > 1e4);
    lode_model_free(m);
    struct lode_placement p = {.forks = 10};
    struct lode_budget b = {.ram_speed = 10e9, .multiply_speed = 100e9, .fork_time = 1e-6, .besides = besides};
    assert_true(lode_plan_ram_pace(&b) == besides.bytes / besides.seconds && lode_plan_besides(&p, &b) == 0);
    b.besides = (struct lode_besides){.seconds = 3e-3, .bytes = 1e8};
    assert_true(lode_plan_ram_pace(&b) == LODE_PLAN_RAM_SHARE_APART * 10e9 && lode_plan_besides(&p, &b) == 3e-3 - 1e-3);
    b.besides.bytes = 0.2995e9; /* less than sharing takes cannot be */
    assert_true(lode_plan_besides(&p, &b) == 10 * 1e-6);
    const struct lode_budget slow = {.ram_speed = 10e9, .multiply_speed = 100e9}, few = {.ram_speed = 100e9, .multiply_speed = 10e9};
    assert_true(lode_plan_ram_pace(&slow) == LODE_PLAN_RAM_SHARE * 10e9);
    assert_true(lode_plan_ram_pace(&few) == LODE_PLAN_MULTIPLY_SHARE * 10e9);
    assert_true(lode_plan_ram_pace(&(struct lode_budget){.ram_speed = 10e9}) == LODE_PLAN_RAM_SHARE * 10e9);
}

static void test_every_allocation(void **state) {
    char path[1024];
    path_of(path, *state);
    struct outcome want;
    struct lode_error err = {0};
    const int rc = generate(path, &want, &err); /* and whatever libraries set up once */
    if (rc < 0)
        fail_msg("%s: %s", err.where, err.text);

    failmalloc_start(0, false);
    struct outcome again;
    assert_int_equal(generate(path, &again, &err), 0);
    const struct failmalloc_stats all = failmalloc_stop();
    assert_memory_equal(&again, &want, sizeof want);
    assert_int_equal(all.live, 0);
    assert_true(all.calls > 0);

    uint64_t n = 1;
    for (; attempt(path, n, false, &want); n++) {
        attempt(path, n, true, &want);
        attempt(path, 0, false, &want); /* and it works again */
    }
    assert_true(n > all.calls);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_every_allocation, "arch/qwen3"),
        cmocka_unit_test_prestate(test_every_allocation, "arch/gemma3"),
        cmocka_unit_test_prestate(test_every_allocation, "arch/phi3_longrope"),
        cmocka_unit_test_prestate(test_every_allocation, "arch/qwen3_5"),
        cmocka_unit_test_prestate(test_every_allocation, "quant/llama-256-Q4_K_M"),
        cmocka_unit_test_prestate(test_measures, "quant/llama-256-Q4_K_M"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
