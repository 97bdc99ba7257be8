/* Experts of the host's that a GPU has or is brought, with a driver that stands in (fake_cuda.h): its kernels do
 * nothing, so it is what happens around them that is looked at.
 *
 *     whatever the cache's size, and whether memory of the host's can be registered or not, the driver's rules are kept
 *     a cache comes to have experts, and is never exceeded
 *     whichever thing is refused, and whenever the device is lost, the call that met it fails and nothing is leaked
 *     what is planned is what is taken
 */
#include "cuda_life.h"

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
                          &(struct life){.gpu_cache = sizes[i], .n_cpu_moe = UINT32_MAX, .bring_rows = way < 2 ? 30 : 0}, &p, &err),
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
    static const struct life lives[] = {{.gpu_cache = 300000, .expert_cache = 60000, .n_cpu_moe = UINT32_MAX},
                                        {.gpu_cache = 300000, .expert_cache = 60000, .n_cpu_moe = UINT32_MAX, .bring_rows = 1},
                                        {.gpu_cache = 40000, .n_cpu_moe = 1},
                                        {.gpu_cache = 300000, .n_cpu_moe = 1, .bring_rows = 20}};
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

static const struct life cached = {.gpu_cache = 300000, .n_cpu_moe = UINT32_MAX, .bring_rows = 30};

static void what_a_device_refuses(void **state) {
    (void)state;
    for (uint64_t no_register = 0; no_register < 2; no_register++)
        refused_in_turn("gpt_oss_trunc", &cached, no_register);
}

static void what_the_host_refuses(void **state) {
    (void)state;
    host_refuses_in_turn("olmoe", &cached);
}

static void lost_at_any_call(void **state) {
    (void)state;
    for (uint64_t no_register = 0; no_register < 2; no_register++)
        lost_in_turn("olmoe", &cached, no_register, 7);
}

/* No slot is left that others would take for an expert's. */
static void a_session_outlives_it(void **state) {
    struct life life = cached;
    (void)state;
    life.bring_rows = 20;
    outlives_in_turn("olmoe", &life);
}

/* The plan's VRAM is what is taken of it, whatever the cache has. */
static void as_planned(void **state) {
    (void)state;
    for (uint64_t cache = 20000; cache < 1 << 22; cache *= 3)
        for (uint32_t n = 1; n < 4; n++) {
            const struct lode_budget b = {.vram = UINT64_C(1) << 30, .gpu_cache = cache, .cpu_experts = n < 3 ? n : UINT32_MAX};
            const struct lode_placement p = run_as_planned("olmoe", &b, 30);
            assert_true(p.gpu_beside && p.gpu_cache <= cache);
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
