/* Tokens that a device draws, and steps that are begun before they are asked for: the CPU stands in for the
 * device, with a backend that draws (the real one's logits by lode_draw_few) and knows the tokens that it drew.
 * Whatever sessions and schedulers do with it, what is said is what is said without. */
#include "base/rng.h"
#include "effort.h"
#include "engine/sampler_impl.h"
#include "engine/sched.h"
#include "engine/session_impl.h"
#include "requests.h"

enum { ROWS = 8 };

/* The thread sanitizer, twenty times as slow, has nothing to see in what one thread does. */
static void for_one_thread(void) {
#ifdef __SANITIZE_THREAD__
    if (!at_length())
        skip();
#endif
}

/* ---- the device ---- */

static struct {
    const struct lode_backend_ops *real;
    struct lode_backend_ops ops;
    int32_t last[ROWS], told[2][ROWS];
    uint64_t n_draws, n_ahead; /* steps; of those, with tokens that it drew */
    bool fails;                /* whatever is asked of it */
} device;

static int device_begin(struct lode_backend *b, const struct lode_step *step, struct lode_error *err) {
    bool ahead = false;
    for (uint32_t i = 0; i < step->n_rows; i++) {
        int32_t *token = (int32_t *)&step->tokens[i]; /* the workers' own */
        ahead = ahead || *token < 0;
        *token = *token < 0 ? device.last[-1 - *token] : *token;
    }
    device.n_ahead += ahead;
    if (device.fails)
        return lode_fail(err, LODE_ERR_DEVICE, "device", "it is lost");
    return device.real->begin ? device.real->begin(b, step, err) : 0;
}

static int device_draw(struct lode_backend *b, const struct lode_value *v, uint32_t n, const struct lode_draw *draws,
                       struct lode_error *err) {
    size_t stride;
    const char *rows = device.real->read(b, v, n, &stride, err);
    const int at = (int)(device.n_draws++ % 2);
    assert_true(n <= ROWS);
    for (uint32_t r = 0; r < n; r++) {
        const float *x = (const float *)(rows + r * stride);
        struct lode_draw_room room = {.n = 0};
        for (int32_t i = 0; i < (int32_t)v->width; i++) { /* into its place among the best */
            const uint64_t key = lode_key_of(x[i], i);
            uint32_t k = room.n < draws[r].n ? room.n++ : room.n;
            for (; k > 0 && lode_key_of(room.logit[k - 1], room.id[k - 1]) > key; k--)
                if (k < room.n) {
                    room.logit[k] = room.logit[k - 1];
                    room.id[k] = room.id[k - 1];
                }
            if (k < room.n) {
                room.logit[k] = x[i];
                room.id[k] = i;
            }
        }
        device.last[r] = device.told[at][r] = lode_draw_few(&draws[r], &room);
    }
    return at;
}

static int device_drawn(struct lode_backend *b, int draw, uint32_t n, int32_t *ids, struct lode_error *err) {
    (void)b;
    if (device.fails)
        return lode_fail(err, LODE_ERR_DEVICE, "device", "it is lost");
    memcpy(ids, device.told[draw], n * sizeof *ids);
    return 0;
}

/* Before the workers' first step. */
static void stand_in(struct lode_workers *w) {
    struct lode_backend *b = w->backends[LODE_HOST];
    memset(&device, 0, sizeof device);
    device.real = b->ops;
    device.ops = *b->ops;
    device.ops.begin = device_begin;
    device.ops.draw = device_draw;
    device.ops.drawn = device_drawn;
    b->ops = &device.ops;
    w->flies = true;
}

/* ---- sessions ---- */

static const char *const models[] = {"qwen3", "gemma3", "qwen3_next"};

static struct lode_session *open_session(struct lode_session *with) {
    struct lode_session *s;
    struct lode_error err;
    must(lode_session_create(&s, model, &(struct lode_session_opts){.ctx = CTX, .threads = 1, .batch = 160, .with = with},
                             &err),
         &err);
    return s;
}

/* One answer after the other's request, some of whose samplers a device can draw for. */
static void a_session_says_the_same(void **state) {
    (void)state;
    for_one_thread();
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        struct lode_error err;
        load(models[k]);
        const uint32_t n_vocab = lode_model_info(model)->n_vocab;
        struct lode_session *s = open_session(NULL);
        stand_in(s->workers);
        for (uint64_t i = 0; i < N_REQUESTS; i++) {
            struct request *r = &requests[i];
            struct lode_sampler *sampler;
            int32_t id;
            make_request(r, i);
            answer_alone(r);
            must(lode_sampler_create(&sampler, n_vocab, &r->sampler, &err), &err);
            lode_session_want(s, 0);
            must(lode_session_sync(s, r->prompt, r->n_prompt, NULL, &err), &err);
            assert_false(lode_session_drawn(s, &id));
            for (size_t j = 0; j < r->n_prompt; j++)
                lode_sampler_accept(sampler, r->prompt[j]);
            for (size_t j = 0; j < r->n_answer; j++) {
                id = lode_session_sample(s, sampler);
                assert_int_equal(id, r->answer[j]);
                lode_sampler_accept(sampler, id);
                lode_session_draw(s, sampler, true); /* to the end and beyond it */
                must(lode_session_eval(s, &id, 1, &err), &err);
                assert_int_equal(lode_session_drawn(s, &id), i % 2 == 0); /* without penalties */
                assert_true(!lode_session_drawn(s, &id) || !lode_session_logits(s));
                if (j % 7 == 6) { /* somebody goes back a few tokens and comes again */
                    const size_t n = lode_session_length(s), back = j % 3;
                    must(lode_session_truncate(s, n - 1 - back, &err), &err);
                    must(lode_session_eval(s, lode_session_tokens(s) + n - 1 - back, 1 + back, &err), &err);
                }
            }
            lode_sampler_free(sampler);
        }
        assert_true(device.n_draws > 50);
        assert_true(models[k] == models[2] ? device.n_ahead == 0 : device.n_ahead > 50);
        lode_session_free(s);
        lode_model_free(model);
    }
}

/* Some go on, some wait, some begin anew, some say something else than what was drawn. */
static void sessions_come_and_go(void **state) {
    (void)state;
    for_one_thread();
    enum { N = 6 };
    for (size_t k = 0; k < 2; k++) {
        struct lode_session *s[N], *alone;
        struct lode_sampler *sampler[N];
        struct lode_sampler_opts o;
        struct lode_error err;
        load(models[k]);
        const uint32_t n_vocab = lode_model_info(model)->n_vocab;
        for (int i = 0; i < N; i++)
            s[i] = open_session(i ? s[0] : NULL);
        alone = open_session(NULL);
        stand_in(s[0]->workers);
        for (int i = 0; i < N; i++) {
            lode_sampler_defaults(&o);
            o.temp = i % 3 ? 1 : 0;
            o.seed = (uint64_t)i;
            must(lode_sampler_create(&sampler[i], n_vocab, &o, &err), &err);
        }
        for (uint64_t round = 0; round < 400; round++) {
            struct lode_feed feeds[N];
            int32_t ids[N][5];
            int n = 0;
            for (int i = 0; i < N; i++) {
                const double what = lode_rng_uniform(3, round * N + (uint64_t)i, 0);
                const bool begins = !lode_session_length(s[i]) || what < 0.02 || lode_session_length(s[i]) > CTX - 8;
                if (begins)
                    must(lode_session_truncate(s[i], what < 0.01 ? lode_session_length(s[i]) / 2 : 0, &err), &err);
                else if (what < 0.06)
                    continue;
                const bool has = lode_session_drawn(s[i], &ids[i][0]);
                for (int j = has && what > 0.08 ? 1 : 0; j < 5; j++)
                    ids[i][j] = (int32_t)(lode_rng_uniform(4 + (uint64_t)j, round * N + (uint64_t)i, 1) * n_vocab);
                feeds[n++] = (struct lode_feed){s[i], ids[i], has ? 1 : 5};
                lode_session_draw(s[i], sampler[i], what < 0.9);
            }
            if (round % 50 < 2) /* somebody wants to see logits */
                lode_session_want(feeds[0].session, 0);
            must(lode_session_step(feeds, (size_t)n, &err), &err);
            if (round % 20 != 19 && round % 50 > 1)
                continue;
            for (int i = 0; i < n; i++) { /* what a session of its own says */
                int32_t id, drawn;
                struct lode_session *x = feeds[i].session;
                must(lode_session_sync(alone, lode_session_tokens(x), lode_session_length(x), NULL, &err), &err);
                for (int j = 0; j < N; j++)
                    if (s[j] == x) {
                        id = lode_sampler_next(sampler[j], lode_session_logits(alone), lode_session_length(alone));
                        assert_int_equal(lode_session_sample(x, sampler[j]), id);
                        assert_true(!lode_session_drawn(x, &drawn) || drawn == id);
                    }
            }
        }
        assert_true(device.n_ahead > 60);
        for (int i = N; i-- > 0;) {
            lode_sampler_free(sampler[i]);
            lode_session_free(s[i]);
        }
        lode_session_free(alone);
        lode_model_free(model);
    }
}

/* A device that fails under a step, or under the one after it: the session is where it was. */
static void what_fails_is_forgotten(void **state) {
    struct lode_sampler *sampler;
    struct lode_error err;
    int32_t id = 3, none, first[20];
    (void)state;
    load("qwen3");
    struct lode_session *s = open_session(NULL);
    stand_in(s->workers);
    must(lode_sampler_create(&sampler, lode_model_info(model)->n_vocab, NULL, &err), &err);
    for (int time = 0; time < 2; time++) {
        must(lode_session_truncate(s, 0, &err), &err);
        id = 3;
        for (int i = 0; i < 20; i++) {
            lode_session_draw(s, sampler, true);
            if (time && i % 3 == 2) {
                device.fails = true;
                assert_int_equal(lode_session_eval(s, &id, 1, &err), LODE_ERR_DEVICE);
                device.fails = false;
                assert_int_equal(lode_session_length(s), i);
                assert_false(lode_session_drawn(s, &none) || lode_session_logits(s));
            }
            must(lode_session_eval(s, &id, 1, &err), &err);
            id = lode_session_sample(s, sampler);
            if (time)
                assert_int_equal(id, first[i]);
            else
                first[i] = id;
        }
    }
    lode_sampler_free(sampler);
    lode_session_free(s);
    lode_model_free(model);
}

/* ---- a scheduler ---- */

static void requests_are_answered_the_same(void **state) {
    (void)state;
    for (uint32_t slots = 1; slots <= 4; slots += 3) {
        struct lode_scheduler *s;
        struct lode_generation *g[N_REQUESTS];
        struct lode_error err;
        load("gemma3");
        must(lode_scheduler_create(&s, model,
                                   &(struct lode_scheduler_opts){.slots = slots, .session = {.ctx = CTX, .threads = 1}},
                                   &err),
             &err);
        pthread_mutex_lock(&s->lock);
        stand_in(s->workers);
        pthread_mutex_unlock(&s->lock);
        for (uint64_t i = 0; i < N_REQUESTS; i++) {
            struct request *r = &requests[i];
            make_request(r, i);
            r->sampler.presence_penalty = i == 4 ? 0.5f : 0; /* which nothing can be drawn beside */
            answer_alone(r);
        }
        for (int i = 0; i < N_REQUESTS; i++) {
            const struct request *r = &requests[i];
            struct lode_generation_opts o = opts_of(r);
            o.logprobs = i == 7;
            must(lode_generation_start(&g[i], s, &o, &err), &err);
        }
        for (int i = 0; i < N_REQUESTS; i++) {
            struct lode_generation_token t;
            size_t n = 0;
            int rc;
            while ((rc = lode_generation_next(g[i], &t, -1, &err)) == LODE_GENERATION_TOKEN)
                assert_int_equal(t.id, requests[i].answer[n++]);
            must(rc, &err);
            assert_int_equal(n, requests[i].n_answer);
            lode_generation_free(g[i]);
        }
        lode_scheduler_free(s);
        assert_true(device.n_draws > 0 && (slots > 1 || device.n_ahead > 20));
        lode_model_free(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_says_the_same),
        cmocka_unit_test(sessions_come_and_go),
        cmocka_unit_test(what_fails_is_forgotten),
        cmocka_unit_test(requests_are_answered_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
