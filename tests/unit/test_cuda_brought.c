/* Layers of the host's that a GPU computes in steps of many rows, with weights that are brought to it, with a driver
 * that stands in (fake_cuda.h): its kernels do nothing, so it is what happens around them that is looked at.
 *
 *     wherever a model is cut, streamed or not, the driver's rules are kept, and as much is brought as planned
 *     nothing is written over before it has gone up
 *     whichever thing is refused, and whenever the device is lost, the call that met it fails and nothing is leaked
 *     what is planned is what is taken, and without room for it nothing is brought
 */
#include "cuda_talk.h"
#include "effort.h"

struct life {
    uint32_t gpu_layers;
    uint64_t layer_cache; /* layers are streamed; 0: no */
    bool no_mmap;
};

enum { ROWS = 30 /* that bring: of talk's prompt two steps do */ };

static int live(const char *name, const struct life *life, struct lode_profile *profile, struct lode_error *err) {
    struct lode_model *model = NULL;
    struct lode_session *session = NULL;
    const struct lode_model_opts mo = {.device = "cuda", .bring_rows = ROWS, .no_mmap = life->no_mmap};
    int rc = lode_model_open(&model, path_of(name), &mo, err);
    if (rc < 0)
        return rc;
    lode_model_split(model, life->gpu_layers, 0);
    lode_model_bring(model);
    rc = lode_model_fill(model, 0, life->layer_cache, err);
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

static const char *const names[] = {"llama", "qwen3", "gemma3", "qwen3_next", "deepseek_v3", "phi3", "qwen3_moe", "lfm2"};
enum { NAMES = sizeof names / sizeof *names };

/* What lode_plan_place says of such a split. */
static struct lode_placement planned(const char *name, uint32_t gpu_layers, uint64_t vram, bool no_bring) {
    struct lode_model *model;
    struct lode_placement p;
    struct lode_error err;
    must(lode_model_open(&model, path_of(name), &(struct lode_model_opts){.device = "cuda", .bring_rows = ROWS}, &err), &err);
    const struct lode_budget b = {.gpu_layers = gpu_layers, .vram = vram, .no_bring = no_bring};
    must(lode_plan_place(model, &(struct lode_session_opts){.ctx = CTX, .batch = BATCH, .threads = 2}, &b, &p, &err), &err);
    lode_model_free(model);
    return p;
}

static void every_cut_keeps_the_rules(void **state) {
    (void)state;
    for (size_t k = 0; k < NAMES; k++) {
        const uint32_t n_layers = planned(names[k], 1, 0, false).n_layers;
        for (uint32_t n = 1; n <= n_layers + 1; n++) {
            const struct lode_placement p = planned(names[k], n, 0, false);
            struct lode_profile profile;
            struct lode_error err;
            fake_cuda_reset();
            fake_cuda.no_register = k % 2;
            must(live(names[k], &(struct life){.gpu_layers = n, .no_mmap = n % 2}, &profile, &err), &err);
            no_trace_left(names[k]);
            assert_int_equal(profile.gpu_layers, 2 * p.bring_size);
            assert_int_equal(p.brings, n < n_layers);
            assert_int_equal(p.brings, p.bring_size > 0);
            assert_false(planned(names[k], n, 0, true).brings);
        }
    }
}

static void streamed_layers_keep_the_rules(void **state) {
    (void)state;
    for (size_t k = 0; k < NAMES; k++)
        for (uint64_t cache = 1 << 14; cache < 1 << 21; cache *= 4) {
            struct lode_profile profile;
            struct lode_error err;
            fake_cuda_reset();
            const int rc = live(names[k], &(struct life){.gpu_layers = 1, .layer_cache = cache}, &profile, &err);
            no_trace_left(names[k]);
            if (rc != LODE_ERR_LIMIT) /* a cache that is smaller than two layers */
                must(rc, &err);
            if (rc == 0)
                assert_true(profile.gpu_layers > 0);
        }
}

/* The driver that stands in copies as late as it may, or at once. */
static void nothing_is_written_over(void **state) {
    (void)state;
    for (size_t k = 0; k < NAMES; k++) {
        uint64_t sums[2];
        for (uint64_t at_once = 0; at_once < 2; at_once++) {
            struct lode_error err;
            fake_cuda_reset();
            fake_cuda.at_once = at_once;
            fake_cuda.no_register = k < NAMES / 2;
            must(live(names[k], &(struct life){.gpu_layers = 1}, NULL, &err), &err);
            sums[at_once] = fake_cuda.sum_up;
            if (!at_once && fake_cuda.no_register)
                assert_true(fake_cuda.n_overlaps > 0);
        }
        assert_true(sums[0] == sums[1]);
    }
}

static void what_a_device_refuses(void **state) {
    uint64_t refused = 1;
    (void)state;
    for (uint64_t n = 1; refused; n += effort_step(1))
        for (uint64_t on = 0; on < 2; on++) {
            struct lode_error err = {0};
            fake_cuda_reset();
            fake_cuda.fail_at = n;
            fake_cuda.fail_on = on;
            fake_cuda.no_register = on;
            const int rc = live("qwen3", &(struct life){.gpu_layers = 1}, NULL, &err);
            refused = fake_cuda.n_refused;
            no_trace_left("something refused");
            if (rc < 0 && (rc != LODE_ERR_NOMEM || err.code != rc || !err.text[0]))
                fail_msg("thing %llu refused: %d (%s), said \"%s: %s\"", (unsigned long long)n, rc, lode_error_name(rc),
                         err.where, err.text);
        }
}

static void what_the_host_refuses(void **state) {
    const struct life life = {.gpu_layers = 1};
    struct lode_error err;
    (void)state;
    must(live("qwen3", &life, NULL, &err), &err); /* and whatever libraries set up once */
    struct failmalloc_stats s = {.failed = 1};
    for (uint64_t n = 1; s.failed; n += effort_step(1)) {
        fake_cuda_reset();
        failmalloc_start(n, false);
        const int rc = live("qwen3", &life, NULL, &err);
        s = failmalloc_stop();
        host_refused(n, rc, &err, &s);
    }
}

static void lost_at_any_call(void **state) {
    const struct life life = {.gpu_layers = 1};
    struct lode_error err;
    (void)state;
    fake_cuda_reset();
    must(live("qwen3", &life, NULL, &err), &err);
    const uint64_t all = fake_cuda.n_calls;
    for (uint64_t n = 1; n <= all; n += effort_step(17)) {
        fake_cuda_reset();
        fake_cuda.lose_at = n;
        fake_cuda.no_register = n % 2;
        failmalloc_start(0, false);
        const int rc = live("qwen3", &life, NULL, &err);
        const struct failmalloc_stats s = failmalloc_stop();
        device_lost("qwen3", n, all, rc, &err, &s);
    }
}

/* A device that fails in the middle of a step, and works again, fails that step alone. */
static void a_session_outlives_it(void **state) {
    struct lode_model *model;
    struct lode_session *s;
    struct lode_error err;
    (void)state;
    must(lode_model_open(&model, path_of("qwen3"), &(struct lode_model_opts){.device = "cuda", .bring_rows = 20}, &err), &err);
    lode_model_split(model, 1, 0);
    lode_model_bring(model);
    must(lode_model_fill(model, 0, 0, &err), &err);
    must(lode_session_create(&s, model, &(struct lode_session_opts){.ctx = 2 * CTX, .batch = BATCH, .threads = 2}, &err),
         &err);
    must(talk(s, &err), &err);
    const size_t length = lode_session_length(s);
    const int32_t ids[20] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    for (uint64_t n = 1;; n++) {
        fake_cuda.lose_at = fake_cuda.n_calls + n;
        const int rc = lode_session_eval(s, ids, 20, &err);
        fake_cuda.lose_at = 0;
        if (rc == 0)
            break;
        if (rc != LODE_ERR_DEVICE)
            fail_msg("lost at call %llu of a step: %d, said \"%s: %s\"", (unsigned long long)n, rc, err.where, err.text);
        assert_int_equal(lode_session_length(s), length);
    }
    lode_session_free(s);
    lode_model_free(model);
    no_trace_left("a lost device");
}

/* The plan's VRAM is what is taken of it, whatever there is. */
static void as_planned(void **state) {
    enum { STEPS = 12, MARGIN = 192 << 20 /* that plans leave to the driver */ };
    const uint64_t one = planned("qwen3", 1, 0, true).size[LODE_RUNG_VRAM] + MARGIN;
    const uint64_t all = planned("qwen3", 99, 0, true).size[LODE_RUNG_VRAM] + MARGIN;
    unsigned n_brings = 0, n_lack = 0;
    (void)state;
    for (uint64_t i = 0; i < STEPS; i++) { /* from a layer's room to that of all */
        const uint64_t vram = one + i * (all - one) / (STEPS - 2);
        struct lode_model *model;
        struct lode_session *session;
        struct lode_placement p;
        struct lode_error err;
        const struct lode_session_opts so = {.ctx = CTX, .batch = BATCH, .threads = 2};
        const struct lode_budget b = {.vram = vram};
        fake_cuda_reset();
        must(lode_model_open(&model, path_of("qwen3"), &(struct lode_model_opts){.device = "cuda", .bring_rows = ROWS}, &err), &err);
        must(lode_plan_place(model, &so, &b, &p, &err), &err);
        assert_true(p.fits && p.size[LODE_RUNG_VRAM] <= p.budget[LODE_RUNG_VRAM]);
        n_brings += p.brings;
        assert_int_equal(p.bring_lacks > 0, p.on_gpu && !p.brings && p.gpu_layers < p.n_layers);
        n_lack += p.bring_lacks > 0;
        lode_model_split(model, p.gpu_layers, p.cpu_experts);
        if (p.brings)
            lode_model_bring(model);
        must(lode_model_fill(model, 0, 0, &err), &err);
        must(lode_session_create(&session, model, &so, &err), &err);
        must(talk(session, &err), &err);
        if (fake_cuda.most_used > vram)
            fail_msg("%llu bytes were to be used, %llu were", (unsigned long long)vram,
                     (unsigned long long)fake_cuda.most_used);
        lode_session_free(session);
        lode_model_free(model);
        no_trace_left("a plan");
    }
    assert_true(n_brings > 0 && n_lack > 0);
}

int main(void) {
    if (no_devices())
        return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_cut_keeps_the_rules, reset),
        cmocka_unit_test_setup(streamed_layers_keep_the_rules, reset),
        cmocka_unit_test_setup(nothing_is_written_over, reset),
        cmocka_unit_test_setup(what_a_device_refuses, reset),
        cmocka_unit_test_setup(what_the_host_refuses, reset),
        cmocka_unit_test_setup(lost_at_any_call, reset),
        cmocka_unit_test_setup(a_session_outlives_it, reset),
        cmocka_unit_test_setup(as_planned, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
