/* Experts of the host's that a GPU has or is brought, with a driver that stands in (fake_cuda.h): its kernels do
 * nothing, so it is what happens around them that is looked at.
 *
 *     whatever the cache's size, and whether memory of the host's can be registered or not, the driver's rules are kept
 *     a cache comes to have experts, and is never exceeded
 *     whichever thing is refused, and whenever the device is lost, the call that met it fails and nothing is leaked
 *     what is planned is what is taken
 */
#include "cuda_talk.h"
#include "effort.h"

struct life {
    uint64_t cache;        /* bytes */
    uint64_t expert_cache; /* experts are streamed; 0: no */
    uint32_t n_cpu_moe, bring_rows;
};

static int live(const char *name, const struct life *life, struct lode_profile *profile, struct lode_error *err) {
    struct lode_model *model = NULL;
    struct lode_session *session = NULL;
    int rc = lode_model_open(&model, path_of(name), &(struct lode_model_opts){.device = "cuda", .bring_rows = life->bring_rows}, err);
    if (rc < 0)
        return rc;
    lode_model_split(model, UINT32_MAX, life->n_cpu_moe);
    lode_model_gpu_cache(model, life->cache);
    rc = lode_model_fill(model, life->expert_cache, 0, err);
    if (rc == 0)
        rc = lode_session_create(&session, model,
                                 &(struct lode_session_opts){.ctx = CTX, .batch = BATCH, .threads = 2}, err);
    if (rc == 0)
        rc = talk(session, err);
    if (rc == 0 && profile)
        lode_model_profile(model, profile);
    lode_session_free(session);
    lode_model_free(model);
    return rc;
}

static const char *const names[] = {"qwen3_moe", "olmoe", "gpt_oss_trunc", "deepseek_v3", "qwen3_next", "phimoe"};
enum { NAMES = sizeof names / sizeof *names };

static void every_size_keeps_the_rules(void **state) {
    static const uint64_t sizes[] = {0, 40000, 300000, UINT64_C(1) << 30};
    (void)state;
    for (size_t k = 0; k < NAMES; k++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (unsigned way = 0; way < 4; way++) {
                const uint64_t no_register = way % 2;
                struct lode_profile p;
                struct lode_error err;
                uint64_t uses = 0, hits = 0, bytes = 0;
                fake_cuda_reset();
                fake_cuda.no_register = no_register;
                must(live(names[k],
                          &(struct life){.cache = sizes[i], .n_cpu_moe = UINT32_MAX, .bring_rows = way < 2 ? 30 : 0}, &p, &err),
                     &err);
                no_trace_left(names[k]);
                for (uint32_t l = 0; l < p.n_layers; l++) {
                    uses += p.layers[l].gpu_uses;
                    hits += p.layers[l].gpu_hits;
                    bytes += p.layers[l].gpu_bytes;
                }
                assert_true(uses > 0 && hits <= uses);
                assert_true(p.gpu_held <= p.gpu_cache && p.gpu_cache <= sizes[i]);
                if (sizes[i] >> 30)
                    assert_true(p.gpu_held > 0);
                if (sizes[i] == 0)
                    assert_true(hits == 0 && p.gpu_held == 0);
                assert_true(bytes > 0 || no_register || sizes[i] == 0);
            }
}

static void streamed_and_split_keep_the_rules(void **state) {
    static const struct life lives[] = {
        {300000, 60000, UINT32_MAX, 0}, {300000, 60000, UINT32_MAX, 1}, {40000, 0, 1, 0}, {300000, 0, 1, 20}};
    (void)state;
    for (size_t k = 0; k < NAMES; k++)
        for (size_t i = 0; i < sizeof lives / sizeof *lives; i++) {
            struct lode_error err;
            fake_cuda_reset();
            const int rc = live(names[k], &lives[i], NULL, &err);
            if (rc != LODE_ERR_LIMIT) /* a cache in memory that is smaller than an expert */
                must(rc, &err);
            no_trace_left(names[k]);
        }
}

static void what_a_device_refuses(void **state) {
    (void)state;
    for (uint64_t no_register = 0; no_register < 2; no_register++) {
        uint64_t refused = 1;
        for (uint64_t n = 1; refused; n += effort_step(1))
            for (uint64_t on = 0; on < 2; on++) {
                struct lode_error err = {0};
                fake_cuda_reset();
                fake_cuda.no_register = no_register;
                fake_cuda.fail_at = n;
                fake_cuda.fail_on = on;
                const int rc = live("gpt_oss_trunc", &(struct life){300000, 0, UINT32_MAX, 30}, NULL, &err);
                refused = fake_cuda.n_refused;
                no_trace_left("something refused");
                if (rc < 0 && (rc != LODE_ERR_NOMEM || err.code != rc || !err.text[0]))
                    fail_msg("thing %llu refused: %d (%s), said \"%s: %s\"", (unsigned long long)n, rc,
                             lode_error_name(rc), err.where, err.text);
            }
    }
}

static void what_the_host_refuses(void **state) {
    (void)state;
    const struct life life = {.cache = 300000, .n_cpu_moe = UINT32_MAX, .bring_rows = 30};
    struct lode_error err;
    must(live("olmoe", &life, NULL, &err), &err); /* and whatever libraries set up once */
    struct failmalloc_stats s = {.failed = 1};
    for (uint64_t n = 1; s.failed; n += effort_step(1)) {
        fake_cuda_reset();
        failmalloc_start(n, false);
        const int rc = live("olmoe", &life, NULL, &err);
        s = failmalloc_stop();
        host_refused(n, rc, &err, &s);
    }
}

static void lost_at_any_call(void **state) {
    const struct life life = {.cache = 300000, .n_cpu_moe = UINT32_MAX, .bring_rows = 30};
    (void)state;
    for (uint64_t no_register = 0; no_register < 2; no_register++) {
        struct lode_error err;
        fake_cuda_reset();
        fake_cuda.no_register = no_register;
        must(live("olmoe", &life, NULL, &err), &err);
        const uint64_t all = fake_cuda.n_calls;
        for (uint64_t n = 1; n <= all; n += effort_step(7)) {
            fake_cuda_reset();
            fake_cuda.no_register = no_register;
            fake_cuda.lose_at = n;
            failmalloc_start(0, false);
            const int rc = live("olmoe", &life, NULL, &err);
            const struct failmalloc_stats s = failmalloc_stop();
            device_lost("olmoe", n, all, rc, &err, &s);
        }
    }
}

/* A device that fails in the middle of a step leaves no slot that others would take for an expert's. */
static void a_session_outlives_it(void **state) {
    struct lode_model *model;
    struct lode_session *s;
    struct lode_error err;
    (void)state;
    must(lode_model_open(&model, path_of("olmoe"), &(struct lode_model_opts){.device = "cuda", .bring_rows = 20}, &err), &err);
    lode_model_split(model, UINT32_MAX, UINT32_MAX);
    lode_model_gpu_cache(model, 300000);
    must(lode_model_fill(model, 0, 0, &err), &err);
    must(lode_session_create(&s, model, &(struct lode_session_opts){.ctx = 2 * CTX, .batch = BATCH, .threads = 2}, &err),
         &err);
    must(talk(s, &err), &err);
    const size_t length = lode_session_length(s);
    const int32_t ids[20] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    for (uint64_t n = 1, i = 0;; n++, i++) {
        fake_cuda.lose_at = fake_cuda.n_calls + n;
        const int rc = lode_session_eval(s, ids, i % 2 ? 20 : 1, &err);
        fake_cuda.lose_at = 0;
        if (rc == 0 && i % 2)
            break;
        if (rc < 0 && rc != LODE_ERR_DEVICE)
            fail_msg("lost at call %llu of a step: %d, said \"%s: %s\"", (unsigned long long)n, rc, err.where, err.text);
        if (rc == 0)
            must(lode_session_truncate(s, length, &err), &err);
        assert_int_equal(lode_session_length(s), length);
    }
    lode_session_free(s);
    lode_model_free(model);
    no_trace_left("a lost device");
}

/* The plan's VRAM is what is taken of it, whatever there is. */
static void as_planned(void **state) {
    (void)state;
    for (uint64_t mib = 230; mib < 270; mib += 2) {
        struct lode_model *model;
        struct lode_session *session;
        struct lode_placement p;
        struct lode_error err;
        const struct lode_session_opts so = {.ctx = CTX, .batch = BATCH, .threads = 2};
        const struct lode_budget b = {.vram = mib << 20};
        fake_cuda_reset();
        must(lode_model_open(&model, path_of("olmoe"), &(struct lode_model_opts){.device = "cuda"}, &err), &err);
        must(lode_plan_place(model, &so, &b, &p, &err), &err);
        assert_true(p.fits && p.size[LODE_RUNG_VRAM] <= p.budget[LODE_RUNG_VRAM]);
        lode_model_split(model, p.gpu_layers, p.cpu_experts);
        if (p.gpu_beside)
            lode_model_gpu_cache(model, p.gpu_cache);
        must(lode_model_fill(model, 0, 0, &err), &err);
        must(lode_session_create(&session, model, &so, &err), &err);
        must(talk(session, &err), &err);
        if (p.gpu_beside && fake_cuda.most_used > (mib << 20))
            fail_msg("%llu MiB were to be used, %llu were", (unsigned long long)mib,
                     (unsigned long long)fake_cuda.most_used >> 20);
        lode_session_free(session);
        lode_model_free(model);
        no_trace_left("a plan");
    }
}

int main(void) {
    if (no_devices())
        return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_size_keeps_the_rules, reset),
        cmocka_unit_test_setup(streamed_and_split_keep_the_rules, reset),
        cmocka_unit_test_setup(what_a_device_refuses, reset),
        cmocka_unit_test_setup(what_the_host_refuses, reset),
        cmocka_unit_test_setup(lost_at_any_call, reset),
        cmocka_unit_test_setup(a_session_outlives_it, reset),
        cmocka_unit_test_setup(as_planned, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
