/* Sessions: a token's logits depend on the tokens before it and on nothing else (DESIGN law 2).
 *
 * Every test compares logits bit for bit with those of the plainest way to get them: one session,
 * one thread, the whole text in one step.
 */
#include "../own_files.h"
#include "failmalloc.h"

#include "base/rng.h"
#include "kern/kern.h"
#include "lode/lode.h"
#include "model/model.h"
#include "store/file_store.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "copy_file.h"
#include "effort.h"

enum { N = 150, V = 640 };

/* gemma3: windows of 16 that rotate, two rotary tables, norms on heads; llama: plain;
 * qwen3_moe: experts; qwen3_next: recurrent layers; qwen3-Q5_0 and llama-Q4_K_M: rounded activations
 * of both kinds. */
static const char *const models[] = {"arch/gemma3",          "arch/llama",
                                     "arch/qwen3_moe",       "arch/qwen3_next",
                                     "quant/qwen3-256-Q5_0", "quant/llama-256-Q4_K_M"};
enum { N_MODELS = sizeof models / sizeof *models };

static struct lode_model *model;
static int32_t ids[N];
static float reference[N][V];

static struct lode_session *open_session(struct lode_session_opts o) {
    struct lode_session *s;
    struct lode_error err;
    o.ctx = o.ctx ? o.ctx : 256;
    if (lode_session_create(&s, model, &o, &err) < 0)
        fail_msg("%s: %s", err.where, err.text);
    return s;
}

static int keep(void *user, uint32_t pos, const float *logits) {
    memcpy(((float(*)[V])user)[pos], logits, V * sizeof *logits);
    return 0;
}

static void eval_all(struct lode_session *s, size_t n, float (*out)[V]) {
    struct lode_error err;
    if (lode_session_eval_each(s, ids, n, keep, out, &err) < 0)
        fail_msg("%s: %s", err.where, err.text);
}

static void eval(struct lode_session *s, size_t first, size_t n) {
    struct lode_error err;
    if (lode_session_eval(s, ids + first, n, &err) < 0)
        fail_msg("%s: %s", err.where, err.text);
}

static void same_as_reference(const struct lode_session *s) {
    const size_t n = lode_session_length(s);
    assert_memory_equal(lode_session_logits(s), reference[n - 1], sizeof reference[0]);
}

/* Runs a test over every model. */
static void each_model(void (*test)(void)) {
    for (size_t m = 0; m < N_MODELS; m++) {
        struct lode_error err;
        if (lode_model_load(&model, own_model(models[m]), NULL, &err) < 0)
            fail_msg("%s: %s", err.where, err.text);
        for (uint32_t i = 0; i < N; i++)
            ids[i] = (int32_t)(lode_rng_uniform(7, i, 0) * V);
        struct lode_session *s = open_session((struct lode_session_opts){.threads = 1});
        eval_all(s, N, reference);
        lode_session_free(s);
        test();
        lode_model_free(model);
    }
}

static void chunks_and_threads(void) {
    static const uint32_t batches[] = {1, 7, 64}, threads[] = {1, 2, 5};
    static float got[N][V];
    for (size_t b = 0; b < 3; b++)
        for (size_t t = 0; t < 3; t++) {
            struct lode_session *s = open_session(
                (struct lode_session_opts){.batch = batches[b], .threads = threads[t]});
            eval_all(s, N, got);
            assert_memory_equal(got, reference, sizeof got);
            lode_session_free(s);
        }
}
static void prefill_equals_decode(void **state) {
    (void)state;
    each_model(chunks_and_threads);
}

static void steps_of_many(void) {
    /* Four timelines of different lengths, fed uneven pieces in the same steps. */
    struct lode_session *s[4];
    s[0] = open_session((struct lode_session_opts){.batch = 64, .threads = 2});
    for (int i = 1; i < 4; i++)
        s[i] = open_session((struct lode_session_opts){.with = s[0]});
    size_t at[4] = {0};
    for (uint64_t step = 0; at[0] < N || at[1] < N || at[2] < N || at[3] < N; step++) {
        struct lode_feed feeds[4];
        size_t n_feeds = 0;
        for (int i = 0; i < 4; i++) {
            size_t n = (size_t)(lode_rng_uniform(3, step * 4 + (uint64_t)i, 0) * 17);
            n = n < N - at[i] ? n : N - at[i];
            if (n)
                feeds[n_feeds++] = (struct lode_feed){s[i], ids + at[i], n};
            at[i] += n;
        }
        struct lode_error err;
        assert_int_equal(lode_session_step(feeds, n_feeds, &err), 0);
        for (size_t i = 0; i < n_feeds; i++)
            same_as_reference(feeds[i].session);
    }
    struct lode_error err;
    const struct lode_feed twice[2] = {{s[1], ids, 1}, {s[1], ids, 1}};
    assert_int_equal(lode_session_truncate(s[1], 0, &err), 0);
    assert_int_equal(lode_session_step(twice, 2, &err), LODE_ERR_ARG);
    for (int i = 3; i >= 0; i--)
        lode_session_free(s[i]);
}
static void sessions_in_one_step(void **state) {
    (void)state;
    each_model(steps_of_many);
}

static void rewinds(void) {
    struct lode_session *s = open_session((struct lode_session_opts){.batch = 8, .threads = 2});
    struct lode_error err;
    size_t reused;
    eval(s, 0, N);
    same_as_reference(s);
    /* Forward and back, also to where a window has forgotten what it needs. */
    static const size_t to[] = {148, 140, 90, 64, 63, 17, 1, 0};
    for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
        assert_int_equal(lode_session_truncate(s, to[i], &err), 0);
        assert_null(lode_session_logits(s));
        eval(s, to[i], 1);
        same_as_reference(s);
        eval(s, to[i] + 1, N - to[i] - 1);
        same_as_reference(s);
    }
    assert_int_equal(lode_session_sync(s, ids, N, &reused, &err), 0);
    assert_int_equal(reused, N - 1); /* the last token again, for its logits */
    same_as_reference(s);
    int32_t other[40];
    memcpy(other, ids, sizeof other);
    other[30] = (other[30] + 1) % V;
    assert_int_equal(lode_session_sync(s, other, 40, &reused, &err), 0);
    assert_int_equal(reused, 30);
    assert_int_equal(lode_session_sync(s, ids, 100, &reused, &err), 0);
    assert_int_equal(reused, 30);
    same_as_reference(s);
    lode_session_free(s);
}
static void truncate_and_sync(void **state) {
    (void)state;
    each_model(rewinds);
}

static bool after_some(void *user) { return --*(int *)user < 0; }

static void errors_and_cancels(void) {
    int left = 1 << 30;
    struct lode_session *s = open_session((struct lode_session_opts){
        .ctx = N, .batch = 8, .threads = 2, .cancel = after_some, .cancel_user = &left});
    struct lode_error err;
    eval(s, 0, 100);
    /* A context that is full says so with the numbers, and nothing is lost. */
    assert_int_equal(lode_session_eval(s, ids, 51, &err), LODE_ERR_LIMIT);
    assert_non_null(strstr(err.text, "150"));
    const int32_t bad[] = {V}, negative[] = {-1};
    assert_int_equal(lode_session_eval(s, bad, 1, &err), LODE_ERR_ARG);
    assert_int_equal(lode_session_eval(s, negative, 1, &err), LODE_ERR_ARG);
    same_as_reference(s);
    /* A cancelled evaluation leaves the timeline as it was, wherever it is stopped. */
    for (int stop = 0; stop < 140; stop += 23) {
        left = stop;
        assert_int_equal(lode_session_eval(s, ids + 100, 50, &err), LODE_ERR_CANCELLED);
        assert_int_equal(lode_session_length(s), 100);
        left = 1 << 30;
        assert_int_equal(lode_session_eval(s, ids + 100, 1, &err), 0);
        same_as_reference(s);
        assert_int_equal(lode_session_truncate(s, 100, &err), 0);
    }
    eval(s, 100, 50);
    same_as_reference(s);
    lode_session_free(s);
}
static void failures_lose_nothing(void **state) {
    (void)state;
    each_model(errors_and_cancels);
}

static void formats(void) {
    /* Whatever the cache keeps, how the text was cut does not show. */
    static const char *const names[] = {"f32", "f16", "bf16", "q8_0"};
    static float a[N][V], b[N][V];
    for (size_t k = 0; k < 4; k++)
        for (size_t v = k; v < 4; v += 3) { /* each with itself, and f32 with q8_0 */
            struct lode_session_opts o = {.ctk = names[k], .ctv = names[v], .threads = 1};
            struct lode_session *s = open_session(o);
            eval_all(s, N, a);
            lode_session_free(s);
            o.batch = 5;
            o.threads = 2;
            s = open_session(o);
            eval_all(s, N, b);
            lode_session_free(s);
            assert_memory_equal(a, b, sizeof a);
        }
}
static void kv_formats(void **state) {
    (void)state;
    each_model(formats);
    struct lode_error err;
    struct lode_session *s;
    assert_int_equal(lode_model_load(&model, own_model(models[0]), NULL, &err), 0);
    const struct lode_session_opts bad = {.ctk = "q3"};
    assert_int_equal(lode_session_create(&s, model, &bad, &err), LODE_ERR_ARG);
    assert_string_equal(err.where, "-ctk");
    lode_model_free(model);
}

static void decode_window(void) {
    struct lode_session *s = open_session((struct lode_session_opts){.batch = 16, .threads = 2});
    failmalloc_start(0, false);
    for (size_t i = 0; i < 32; i += 16)
        lode_session_eval(s, ids + i, 16, NULL);
    for (size_t i = 32; i < N; i++)
        lode_session_eval(s, ids + i, 1, NULL);
    assert_int_equal(failmalloc_stop().calls, 0);
    same_as_reference(s);
    lode_session_free(s);
}
static void nothing_allocates_in_a_step(void **state) {
    (void)state;
    each_model(decode_window);
}

struct eval_job {
    struct lode_session *s;
    float (*out)[V];
    struct lode_error err;
    int rc;
};
static void *run_eval(void *arg) {
    struct eval_job *j = arg;
    j->rc = lode_session_eval_each(j->s, ids, N, keep, j->out, &j->err);
    return NULL;
}
/* By a thread with as little stack as session.h says; sanitizers need more, and have it. */
static void eval_all_on_little_stack(struct lode_session *s, float (*out)[V]) {
    struct eval_job j = {.s = s, .out = out};
    pthread_attr_t a;
    pthread_t id;
    assert_int_equal(pthread_attr_init(&a), 0);
    assert_int_equal(pthread_attr_setstacksize(&a, SLOW ? 4 << 20 : LODE_SESSION_STACK), 0);
    assert_int_equal(pthread_create(&id, &a, run_eval, &j), 0);
    assert_int_equal(pthread_join(id, NULL), 0);
    pthread_attr_destroy(&a);
    if (j.rc < 0)
        fail_msg("%s: %s", j.err.where, j.err.text);
}

static void isas(void) {
    static float got[N][V];
    for (int isa = 0; isa < LODE_ISA_COUNT; isa++) {
        if (!lode_isa_usable((enum lode_isa)isa))
            continue;
        struct lode_model *usual = model;
        struct lode_error err;
        const struct lode_model_opts o = {.isa = lode_isa_name((enum lode_isa)isa)};
        assert_int_equal(lode_model_load(&model, lode_model_info(usual)->path, &o, &err), 0);
        static const uint32_t batches[] = {33, N};
        for (size_t b = 0; b < 2; b++) {
            struct lode_session *s = open_session((struct lode_session_opts){.batch = batches[b]});
            eval_all_on_little_stack(s, got);
            assert_memory_equal(got, reference, sizeof got);
            lode_session_free(s);
        }
        lode_model_free(model);
        model = usual;
    }
}
static void instruction_sets(void **state) {
    (void)state;
    each_model(isas);
}

/* ---- a store that delivers late and out of order ---- */

struct late {
    struct lode_store base;
    struct lode_store *real;
    uint32_t n;
    uint8_t *state; /* owned; (n): 0 away, 1 on its way, 2 here */
    uint32_t *pins; /* owned; (n) */
    uint64_t draws;
    uint64_t waits;
};

static int late_look(struct lode_store *s, uint32_t id, const void **data, struct lode_error *err) {
    struct late *l = (struct late *)s;
    assert_true(l->pins[id] > 0);
    return l->state[id] == 2 ? l->real->ops->look(l->real, id, data, err) : LODE_PENDING;
}

static int late_pin(struct lode_store *s, uint32_t id, const void **data, struct lode_error *err) {
    struct late *l = (struct late *)s;
    l->pins[id]++;
    if (l->state[id] == 0)
        l->state[id] = 1;
    return late_look(s, id, data, err);
}

static void late_unpin(struct lode_store *s, uint32_t id) {
    struct late *l = (struct late *)s;
    assert_true(l->pins[id] > 0);
    if (--l->pins[id] == 0)
        l->state[id] = 0; /* evicted at once */
}

static uint64_t late_news(struct lode_store *s, uint32_t why) {
    (void)why;
    return ((struct late *)s)->waits;
}

static void late_wait(struct lode_store *s, uint64_t seen, uint32_t why) {
    (void)why;
    struct late *l = (struct late *)s;
    assert_int_equal(seen, l->waits);
    l->waits++;
    for (;;) { /* a random one of those on their way */
        const uint32_t id = (uint32_t)(lode_rng_uniform(11, l->draws++, 0) * l->n);
        if (l->state[id] == 1) {
            l->state[id] = 2;
            return;
        }
    }
}

static int late_verify(struct lode_store *s, struct lode_error *err) {
    struct late *l = (struct late *)s;
    for (uint32_t i = 0; i < l->n; i++)
        assert_int_equal(l->pins[i], 0); /* every pin was given back */
    return l->real->ops->verify(l->real, err);
}

static void late_free(struct lode_store *s) {
    struct late *l = (struct late *)s;
    l->real->ops->free(l->real);
    free(l->state);
    free(l->pins);
    free(l);
}

static const struct lode_store_ops late_ops = {.pin = late_pin,
                                               .look = late_look,
                                               .unpin = late_unpin,
                                               .news = late_news,
                                               .wait = late_wait,
                                               .verify = late_verify,
                                               .free = late_free};

static int make_late(struct lode_store **out, void *user, const struct lode_model *m,
                     struct lode_error *err) {
    struct late *l = calloc(1, sizeof *l);
    l->base.ops = &late_ops;
    l->n = m->n_weights;
    l->state = calloc(l->n, 1);
    l->pins = calloc(l->n, sizeof *l->pins);
    *(struct late **)user = l;
    *out = &l->base;
    return lode_file_store_create(&l->real, m->source, m->weights, m->n_weights,
                                  &(struct lode_file_store_opts){0}, err);
}

static void late(void) {
    struct lode_model *usual = model;
    struct lode_error err;
    struct late *store;
    assert_int_equal(lode_model_load_with(&model, lode_model_info(usual)->path, NULL, make_late,
                                          &store, &err),
                     0);
    struct lode_session *s = open_session((struct lode_session_opts){.batch = 64, .threads = 2});
    static float got[N][V];
    eval_all(s, N, got);
    assert_memory_equal(got, reference, sizeof got);
    assert_true(store->waits > 20);
    lode_session_free(s);
    lode_model_free(model);
    model = usual;
}
static void weights_that_arrive_late(void **state) {
    (void)state;
    each_model(late);
}

/* ---- turns of a chat over a recurrent model ---- */

static void count_tokens(void *user, uint32_t layer, uint32_t pos, const float *x, size_t n) {
    (void)pos;
    (void)x;
    (void)n;
    *(size_t *)user += layer == 0;
}

/* A prompt, an answer token by token, and the next prompt, which is equal up to a few tokens before
 * the answer: what is evaluated again is bounded (session.h), and the logits are a new session's. */
static void turns_cost_little(void **state) {
    (void)state;
    enum { PROMPT = 300, ANSWER = 200, MARKUP = 12, MORE = 40, MOST = 144 };
    struct lode_error err;
    int32_t text[PROMPT + ANSWER], next[PROMPT + MORE];
    size_t evaluated = 0, reused;
    assert_int_equal(lode_model_load(&model, own_model("arch/qwen3_next"), NULL, &err), 0);
    for (uint32_t i = 0; i < PROMPT + ANSWER; i++)
        text[i] = (int32_t)(lode_rng_uniform(5, i, 0) * V);
    memcpy(next, text, sizeof next);
    for (uint32_t i = PROMPT - MARKUP; i < PROMPT + MORE; i++)
        next[i] = (text[i] + 1) % V;
    static const uint32_t batches[] = {16, 64, 512};
    for (size_t b = 0; b < 3; b++) {
        struct lode_session *s = open_session((struct lode_session_opts){
            .ctx = 512, .batch = batches[b], .trace = count_tokens, .trace_user = &evaluated});
        struct lode_session *fresh = open_session((struct lode_session_opts){.ctx = 512});
        assert_int_equal(lode_session_sync(s, text, PROMPT, &reused, &err), 0);
        for (uint32_t i = PROMPT; i < PROMPT + ANSWER; i++)
            assert_int_equal(lode_session_eval(s, text + i, 1, &err), 0);
        evaluated = 0;
        assert_int_equal(lode_session_sync(s, next, PROMPT + MORE, &reused, &err), 0);
        assert_int_equal(reused, PROMPT - MARKUP);
        assert_in_range(evaluated, MARKUP + MORE, MARKUP + MORE + MOST);
        assert_int_equal(lode_session_eval(fresh, next, PROMPT + MORE, &err), 0);
        assert_memory_equal(lode_session_logits(s), lode_session_logits(fresh), V * sizeof(float));
        lode_session_free(fresh);
        lode_session_free(s);
    }
    lode_model_free(model);
}

/* ---- a file that shrinks while it is mapped ---- */

static void shrunk_file_is_an_error_of_the_step(void **state) {
    (void)state;
    struct lode_error err;
    char path[] = "/tmp/lode-test-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    copy_file(own_model("arch/llama"), path);
    assert_int_equal(lode_install_sigbus_handler(&err), 0);
    assert_int_equal(lode_model_load(&model, path, NULL, &err), 0);
    struct lode_session *s = open_session((struct lode_session_opts){.threads = 2});
    for (uint32_t i = 0; i < N; i++)
        ids[i] = (int32_t)i;
    eval(s, 0, 3);
    assert_int_equal(ftruncate(fd, 8192), 0);
    assert_int_equal(lode_session_eval(s, ids, 3, &err), LODE_ERR_IO);
    assert_non_null(strstr(err.where, path));
    assert_int_equal(lode_session_length(s), 3); /* nothing was lost */
    lode_session_free(s);
    lode_model_free(model);
    close(fd);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefill_equals_decode),
        cmocka_unit_test(sessions_in_one_step),
        cmocka_unit_test(truncate_and_sync),
        cmocka_unit_test(failures_lose_nothing),
        cmocka_unit_test(kv_formats),
        cmocka_unit_test(nothing_allocates_in_a_step),
        cmocka_unit_test(instruction_sets),
        cmocka_unit_test(weights_that_arrive_late),
        cmocka_unit_test(turns_cost_little),
        cmocka_unit_test(shrunk_file_is_an_error_of_the_step),
    };
    return cmocka_run_group_tests_name("session", tests, NULL, NULL);
}
