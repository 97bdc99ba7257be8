/* Embedders: what `lode embed` (tests/verb_embed.py) does not reach.  Every allocation of a life fails
 * in turn, a run allocates nothing, and bad texts are refused before anything is computed.
 */
#include "../own_files.h"
#include "failmalloc.h"

#include "lode/lode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char query[] = "a tiny model", document[] = "with random weights";

static const char *path_of(const char *name) { return own_file("data/%s", name); }

/* From a path to a pair's score. */
static int score(const char *path, float *out, struct lode_error *err) {
    struct lode_model *model = NULL;
    struct lode_embedder *e = NULL;
    int32_t ids[64];
    size_t second = 0;
    int rc = lode_model_load(&model, path, NULL, err);
    if (rc == 0)
        rc = lode_embed_create(&e, model, &(struct lode_embed_opts){.ctx = 64, .threads = 2}, err);
    const int64_t n = rc < 0 ? rc : lode_embed_pair(model, query, sizeof query - 1, document,
                                                    sizeof document - 1, ids, 64, &second, err);
    rc = n < 0 ? (int)n : 0;
    if (rc == 0) {
        const struct lode_embed_text text = {ids, (size_t)n, second};
        rc = lode_embed_run(e, &text, 1, out, err);
    }
    lode_embed_free(e);
    lode_model_free(model);
    return rc;
}

static bool attempt(const char *path, uint64_t n, bool persistent, float want) {
    float got = 0;
    struct lode_error err = {0};
    failmalloc_start(n, persistent);
    const int rc = score(path, &got, &err);
    const struct failmalloc_stats s = failmalloc_stop();
    if (s.live != 0)
        fail_msg("allocation %llu: %lld blocks leaked", (unsigned long long)n, (long long)s.live);
    if (rc == 0)
        assert_memory_equal(&got, &want, sizeof got);
    else if (err.code != rc || !err.text[0] ||
             (rc != LODE_ERR_NOMEM && strcmp(err.where, "threads") != 0))
        fail_msg("allocation %llu: %d, said \"%s: %s\"", (unsigned long long)n, rc, err.where,
                 err.text);
    return s.failed != 0;
}

static void test_every_allocation(void **state) {
    const char *path = path_of(*state);
    float want, again;
    struct lode_error err = {0};
    if (score(path, &want, &err) < 0)
        fail_msg("%s: %s", err.where, err.text);
    failmalloc_start(0, false);
    assert_int_equal(score(path, &again, &err), 0);
    const struct failmalloc_stats all = failmalloc_stop();
    assert_memory_equal(&again, &want, sizeof want);
    assert_int_equal(all.live, 0);
    uint64_t n = 1;
    for (; attempt(path, n, false, want); n++)
        attempt(path, n, true, want);
    assert_true(n > all.calls);
}

static void test_run_allocates_nothing(void **state) {
    struct lode_model *model;
    struct lode_embedder *e;
    struct lode_error err = {0};
    assert_int_equal(lode_model_load(&model, path_of(*state), NULL, &err), 0);
    assert_int_equal(lode_embed_create(&e, model, NULL, &err), 0);
    int32_t ids[40];
    for (int i = 0; i < 40; i++)
        ids[i] = 5 + i;
    struct lode_embed_text texts[20];
    for (size_t i = 0; i < 20; i++)
        texts[i] = (struct lode_embed_text){ids + i, 40 - i, 0};
    const size_t width = lode_embed_width(e);
    float *v = calloc(20 * width, sizeof *v), *one = calloc(width, sizeof *one);
    assert_true(v && one);
    failmalloc_start(0, false);
    const int rc = lode_embed_run(e, texts, 20, v, &err);
    const struct failmalloc_stats s = failmalloc_stop();
    assert_int_equal(rc, 0);
    assert_int_equal(s.calls, 0);
    for (size_t i = 0; i < 20; i++) { /* each alone gives the same bits */
        assert_int_equal(lode_embed_run(e, texts + i, 1, one, &err), 0);
        assert_memory_equal(one, v + i * width, width * sizeof *one);
    }

    const struct lode_embed_text bad[] = {{ids, 0, 0}, {ids, 3, 4}, {(int32_t[]){1 << 20}, 1, 0}};
    for (size_t i = 0; i < 3; i++) {
        memset(&err, 0, sizeof err);
        assert_int_equal(lode_embed_run(e, bad + i, 1, one, &err), LODE_ERR_ARG);
        assert_true(err.text[0] != 0);
    }
    struct lode_embed_text both[] = {texts[0], {ids, lode_embed_ctx(e) + 1u, 0}};
    assert_int_equal(lode_embed_run(e, both, 2, v, &err), LODE_ERR_LIMIT);
    assert_int_equal(lode_embed_run(e, texts, 1, one, &err), 0); /* and goes on */
    free(v);
    free(one);
    lode_embed_free(e);
    lode_model_free(model);
}

static void test_zeros_stay(void **state) {
    (void)state;
    float zeros[3] = {0, 0, 0};
    for (int p = -1; p < 4; p++)
        lode_embed_normalize(zeros, 3, p);
    assert_true(zeros[0] == 0 && zeros[1] == 0 && zeros[2] == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_every_allocation, "encoders/bert_rank/model.gguf"),
        cmocka_unit_test_prestate(test_every_allocation, "encoders/xlm_roberta_rank/hf"),
        cmocka_unit_test_prestate(test_run_allocates_nothing, "encoders/nomic_bert/hf"),
        cmocka_unit_test_prestate(test_run_allocates_nothing, "encoders/bert/model.gguf"),
        cmocka_unit_test_prestate(test_run_allocates_nothing, "arch/openelm/hf"),
        cmocka_unit_test(test_zeros_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
