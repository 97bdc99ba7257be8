/* The scheduler: a request's tokens are the same alone and under any load, a request that ends early
 * or fails touches no other, and limits are kept.
 *
 * The reference of each request is the plainest way to get it: a session of its own, one token after
 * the other.
 */
#include "base/caches.h"
#include "effort.h"
#include "failmalloc.h"
#include "lode/memory.h"
#include "requests.h"

#include <pthread.h>
#include <time.h>

enum { N_CLIENTS = 6, ROUNDS = 12 };

/* gemma3: windows that rotate; llama: plain; qwen3_next: recurrent layers, checkpoints. */
static const char *const models[] = {"gemma3", "llama", "qwen3_next"};
#define EACH_MODEL(m) for (size_t m = 0; m < sizeof models / sizeof *models; m += few_do() ? 2 : 1)

/* Takes up to `most` tokens; how many of them were wrong. */
static unsigned take(struct lode_generation *g, const struct request *r, size_t most) {
    struct lode_generation_token t;
    struct lode_error err;
    unsigned wrong = 0;
    size_t n = 0;
    int rc = LODE_GENERATION_WAIT;
    while (n < most && (rc = lode_generation_next(g, &t, -1, &err)) == LODE_GENERATION_TOKEN) {
        wrong += n >= r->n_answer || t.id != r->answer[n] ||
                 memcmp(&t.logprob, &r->logprob[n], sizeof t.logprob) != 0;
        n++;
    }
    if (most > r->n_answer)
        wrong += rc != LODE_GENERATION_LIMIT || n != r->n_answer;
    return wrong;
}

struct client {
    struct lode_scheduler *s;
    uint64_t seed;
    unsigned wrong, done;
};

static void *send_many(void *user) {
    struct client *c = user;
    for (uint64_t round = 0; round < effort(ROUNDS); round++) {
        const struct request *r = &requests[(size_t)(lode_rng_uniform(c->seed, round, 0) * N_REQUESTS)];
        const struct lode_generation_opts o = opts_of(r);
        struct lode_generation *g;
        struct lode_error err;
        if (lode_generation_start(&g, c->s, &o, &err) < 0) {
            c->wrong++;
            continue;
        }
        /* every third goes away early: at once, in its prompt, or in its answer */
        const double leave = lode_rng_uniform(c->seed, round, 1);
        if (leave < 0.1)
            nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
        c->wrong += take(g, r, leave < 0.2 ? 0 : leave < 0.33 ? 3 : SIZE_MAX);
        c->done++;
        lode_generation_free(g);
    }
    return NULL;
}

static struct lode_scheduler *open_scheduler(struct lode_scheduler_opts o) {
    struct lode_scheduler *s;
    struct lode_error err;
    o.session.ctx = CTX;
    o.session.threads = 2;
    must(lode_scheduler_create(&s, model, &o, &err), &err);
    return s;
}

static void one_output_under_load(void **state) {
    (void)state;
    EACH_MODEL(m) {
        load(models[m]);
        for (uint64_t i = 0; i < N_REQUESTS; i++) {
            make_request(&requests[i], i);
            answer_alone(&requests[i]);
        }
        struct lode_scheduler *s = open_scheduler(
            (struct lode_scheduler_opts){.slots = 4, .chunk = 16, .session.batch = 40});
        struct client clients[N_CLIENTS];
        pthread_t threads[N_CLIENTS];
        for (uint64_t i = 0; i < N_CLIENTS; i++) {
            clients[i] = (struct client){.s = s, .seed = 10 * m + i};
            assert_int_equal(pthread_create(&threads[i], NULL, send_many, &clients[i]), 0);
        }
        for (size_t i = 0; i < N_CLIENTS; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(clients[i].wrong, 0);
            assert_int_equal(clients[i].done, effort(ROUNDS));
        }
        struct lode_scheduler_stats st;
        lode_scheduler_stats(s, &st);
        assert_int_equal(st.failed, 0);
        assert_int_equal(st.waiting, 0);
        assert_true(st.fed_tokens > st.steps); /* batches; prefixes: limits() */
        lode_scheduler_free(s);
        lode_model_free(model);
    }
}

/* Waits for prefixes to take no room, or some. */
static void await_cached(struct lode_scheduler *s, bool some) {
    struct lode_scheduler_stats st = {0};
    for (int i = 0; i < 2000; i++) {
        lode_scheduler_stats(s, &st);
        if ((st.cached_bytes > 0) == some)
            return;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    fail_msg("%llu bytes are kept", (unsigned long long)st.cached_bytes);
}

static void answer_all(struct lode_scheduler *s) {
    for (uint64_t i = 0; i < 3; i++) {
        const struct lode_generation_opts o = opts_of(&requests[i]);
        struct lode_generation *g;
        struct lode_error err;
        must(lode_generation_start(&g, s, &o, &err), &err);
        assert_int_equal(take(g, &requests[i], SIZE_MAX), 0);
        lode_generation_free(g);
    }
}

/* Pages that a request runs on cannot go; they do when it is over. */
static void shrink_while_running(struct lode_scheduler *s) {
    const struct lode_generation_opts o = opts_of(&requests[1]);
    struct lode_generation *g;
    struct lode_error err;
    must(lode_generation_start(&g, s, &o, &err), &err);
    assert_int_equal(take(g, &requests[1], 1), 0);
    lode_caches_shrink(UINT64_MAX, true);
    lode_generation_free(g);
}

/* Memory that is short takes what prefixes hold; answers stay what they are. */
static void prefixes_give_way(void **state) {
    (void)state;
    EACH_MODEL(m) {
        load(models[m]);
        for (uint64_t i = 0; i < 3; i++) {
            make_request(&requests[i], i);
            answer_alone(&requests[i]);
        }
        struct lode_scheduler *s = open_scheduler((struct lode_scheduler_opts){.slots = 2});
        answer_all(s);
        await_cached(s, true);
        assert_true(lode_memory_trim(UINT64_MAX) > 0);
        await_cached(s, false);
        answer_all(s); /* with room, they are kept again */
        await_cached(s, true);
        assert_true(lode_caches_shrink(UINT64_MAX, true) > 0);
        await_cached(s, false);
        answer_all(s);
        await_cached(s, false);
        for (int i = 0; i < 17; i++) {
            lode_caches_grow();
            if (i % (int)effort_step(1) == 16 % (int)effort_step(1))
                answer_all(s);
        }
        await_cached(s, true);
        shrink_while_running(s);
        await_cached(s, false);
        lode_scheduler_free(s);
        lode_model_free(model);
    }
}

static void limits(void **state) {
    (void)state;
    load("llama");
    for (uint64_t i = 0; i < 3; i++)
        make_request(&requests[i], i);
    struct lode_scheduler *s = open_scheduler((struct lode_scheduler_opts){.slots = 1, .queue = 2});
    struct lode_generation *g[4];
    struct lode_generation_stats st;
    struct lode_generation_token t;
    struct lode_error err;
    /* nobody reads the first: it stops when its ring is full, and holds its slot */
    struct lode_generation_opts o = opts_of(&requests[0]);
    o.max_tokens = -1;
    must(lode_generation_start(&g[0], s, &o, &err), &err);
    assert_int_equal(lode_generation_next(g[0], &t, -1, &err), LODE_GENERATION_TOKEN);
    o = opts_of(&requests[1]);
    must(lode_generation_start(&g[1], s, &o, &err), &err);
    must(lode_generation_start(&g[2], s, &o, &err), &err);
    assert_int_equal(lode_generation_start(&g[3], s, &o, &err), LODE_ERR_LIMIT);
    assert_string_equal(err.where, "queue");
    lode_generation_stats(g[2], &st);
    assert_int_equal(st.place, 2);
    assert_int_equal(lode_generation_next(g[2], &t, 1, &err), LODE_GENERATION_WAIT);
    lode_generation_free(g[1]); /* from the middle of the queue */
    lode_generation_stats(g[2], &st);
    assert_int_equal(st.place, 1);
    int rc;
    while ((rc = lode_generation_next(g[0], &t, -1, &err)) == LODE_GENERATION_TOKEN)
        ;
    assert_int_equal(rc, LODE_GENERATION_FULL);
    lode_generation_stats(g[0], &st); /* the last token needs no room of its own */
    assert_int_equal(st.n_prompt + st.n_generated, CTX + 1);
    lode_generation_free(g[0]);
    while ((rc = lode_generation_next(g[2], &t, -1, &err)) == LODE_GENERATION_TOKEN)
        ;
    assert_int_equal(rc, LODE_GENERATION_LIMIT);
    lode_generation_free(g[2]);
    must(lode_generation_start(&g[2], s, &o, &err), &err); /* again: all but its last token is there */
    while ((rc = lode_generation_next(g[2], &t, -1, &err)) == LODE_GENERATION_TOKEN)
        ;
    lode_generation_stats(g[2], &st);
    assert_int_equal(st.n_reused, st.n_prompt - 1);
    lode_generation_free(g[2]);

    /* what does not fit */
    static int32_t many[CTX + 1];
    o.prompt = many;
    o.n_prompt = CTX + 1;
    assert_int_equal(lode_generation_start(&g[0], s, &o, &err), LODE_ERR_LIMIT);
    assert_string_equal(err.where, "context");
    o.n_prompt = 0;
    assert_int_equal(lode_generation_start(&g[0], s, &o, &err), LODE_ERR_ARG);
    many[0] = -1;
    o.n_prompt = 1;
    assert_int_equal(lode_generation_start(&g[0], s, &o, &err), LODE_ERR_ARG);
    lode_scheduler_free(s);
    lode_model_free(model);
}

/* An allocation that fails is that request's own failure: one that runs beside it says the same. */
static void without_memory(void **state) {
    (void)state;
    load("llama");
    for (uint64_t i = 0; i < 2; i++) {
        make_request(&requests[i], i);
        answer_alone(&requests[i]);
    }
    struct lode_scheduler *s = open_scheduler((struct lode_scheduler_opts){.slots = 2});
    const struct lode_generation_opts o = opts_of(&requests[0]), beside = opts_of(&requests[1]);
    uint64_t failures = 0;
    for (uint64_t n = 1;; n++) {
        struct lode_generation *g, *neighbour;
        struct lode_error err;
        must(lode_generation_start(&neighbour, s, &beside, &err), &err);
        failmalloc_start(n, false);
        const int rc = lode_generation_start(&g, s, &o, &err);
        const struct failmalloc_stats st = failmalloc_stop();
        if (rc < 0) {
            assert_int_equal(rc, LODE_ERR_NOMEM);
            assert_int_equal(st.live, 0);
            failures++;
        } else {
            assert_int_equal(take(g, &requests[0], SIZE_MAX), 0);
        }
        lode_generation_free(g);
        assert_int_equal(take(neighbour, &requests[1], SIZE_MAX), 0);
        lode_generation_free(neighbour);
        if (st.failed == 0)
            break;
    }
    assert_true(failures > 3);
    lode_scheduler_free(s);

    failures = 0;
    for (uint64_t n = 1;; n++) { /* and the scheduler itself */
        struct lode_error err;
        failmalloc_start(n, false);
        const int rc = lode_scheduler_create(
            &s, model,
            &(struct lode_scheduler_opts){.slots = 2, .session = {.ctx = 64, .threads = 1}}, &err);
        lode_scheduler_free(rc < 0 ? NULL : s);
        const struct failmalloc_stats st = failmalloc_stop();
        assert_int_equal(st.live, 0);
        if (st.failed == 0)
            break;
        failures += rc < 0; /* not each: looking at the machine may do without */
    }
    assert_true(failures > 10);
    lode_model_free(model);
}

/* Even ids, no id twice in a row (said only once it was chosen), five of them. */
enum { MASK_WORDS = 4096 };
struct evens {
    uint64_t mask[MASK_WORDS];
    int32_t last;
    int taken, refused, freed, fail_at;
};

static int evens_next(void *user, struct lode_generation_hint *out, struct lode_error *err) {
    struct evens *e = user;
    if (e->fail_at && e->taken == e->fail_at) {
        *err = (struct lode_error){.code = LODE_ERR_NOMEM, .text = "no memory"};
        return LODE_ERR_NOMEM;
    }
    *out = (struct lode_generation_hint){.mask = e->mask, .greedy = true, .over = e->taken == 5};
    return 0;
}

static int evens_accept(void *user, int32_t id, struct lode_error *err) {
    struct evens *e = user;
    (void)err;
    if (id == e->last) {
        e->mask[id / 64] &= ~((uint64_t)1 << id % 64);
        e->refused++;
        return 1;
    }
    if (e->last >= 0)
        e->mask[e->last / 64] |= (uint64_t)1 << e->last % 64;
    e->last = id;
    e->taken++;
    return 0;
}

static void evens_free(void *user) { ((struct evens *)user)->freed++; }

static void guided(void **state) {
    (void)state;
    static struct evens e;
    struct lode_generation_token t;
    struct lode_error err;
    load("llama");
    make_request(&requests[0], 0);
    struct lode_scheduler *s = open_scheduler((struct lode_scheduler_opts){.slots = 2});
    for (int fail_at = 0; fail_at < 4; fail_at += 3) {
        struct lode_generation *g;
        struct lode_generation_opts o = opts_of(&requests[0]);
        e = (struct evens){.last = -1, .fail_at = fail_at};
        memset(e.mask, 0x55, sizeof e.mask);
        o.max_tokens = -1;
        o.guide = (struct lode_generation_guide){evens_next, evens_accept, evens_free, &e};
        must(lode_generation_start(&g, s, &o, &err), &err);
        int rc, n = 0, last = -1;
        while ((rc = lode_generation_next(g, &t, -1, &err)) == LODE_GENERATION_TOKEN) {
            assert_int_equal(t.id % 2, 0);
            assert_int_not_equal(t.id, last);
            last = t.id;
            n++;
        }
        assert_int_equal(rc, fail_at ? LODE_ERR_NOMEM : LODE_GENERATION_ENDED);
        assert_int_equal(n, fail_at ? fail_at : 5);
        lode_generation_free(g);
        assert_int_equal(e.freed, 1);
        o.n_prompt = 0; /* refused: freed all the same */
        assert_int_equal(lode_generation_start(&g, s, &o, &err), LODE_ERR_ARG);
        assert_int_equal(e.freed, 2);
    }
    lode_scheduler_free(s);
    lode_model_free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_output_under_load),
        cmocka_unit_test(prefixes_give_way),
        cmocka_unit_test(limits),
        cmocka_unit_test(guided),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
