/* Layers of the host's that a GPU computes in steps of many rows, with weights that are brought to it, with a driver
 * that stands in (fake_cuda.h): its kernels do nothing, so it is what happens around them that is looked at.
 *
 *     wherever a model is cut, streamed or not, the driver's rules are kept, and as much is brought as planned
 *     nothing is written over before it has gone up
 *     whichever thing is refused, and whenever the device is lost, the call that met it fails and nothing is leaked
 *     what is planned is what is taken, and without room for it nothing is brought
 */
#include "cuda_life.h"

enum { ROWS = 30 /* that bring: of talk's prompt two steps do */ };

static struct life of_layers(uint32_t gpu_layers) {
    return (struct life){.of_layers = true, .gpu_layers = gpu_layers, .bring_rows = ROWS};
}

static const char *const names[] = {"llama", "qwen3", "gemma3", "qwen3_next", "deepseek_v3", "phi3", "qwen3_moe", "lfm2"};
enum { NAMES = sizeof names / sizeof *names };

/* What lode_plan_place says of such a split. */
static struct lode_placement planned(const char *name, uint32_t gpu_layers, uint64_t vram, bool no_bring) {
    struct lode_model *model;
    struct lode_placement p;
    struct lode_error err;
    must(lode_model_open(&model, own_arch(name), &(struct lode_model_opts){.device = "cuda", .bring_rows = ROWS}, &err), &err);
    const struct lode_budget b = {.gpu_layers = gpu_layers, .vram = vram, .no_bring = no_bring};
    must(lode_plan_place(model, &life_session, &b, &p, &err), &err);
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
            struct life life = of_layers(n);
            life.no_mmap = n % 2;
            must(live(names[k], &life, &profile, &err), &err);
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
            struct life life = of_layers(1);
            life.layer_cache = cache;
            const int rc = live(names[k], &life, &profile, &err);
            no_trace_left(names[k]);
            if (rc != LODE_ERR_LIMIT) /* a cache that is smaller than two layers */
                must(rc, &err);
            if (rc == 0)
                assert_true(profile.gpu_layers > 0);
        }
}

/* The driver that stands in copies as late as it may, or at once. */
static void nothing_is_written_over(void **state) {
    const struct life life = of_layers(1);
    (void)state;
    for (size_t k = 0; k < NAMES; k++) {
        uint64_t sums[2];
        for (uint64_t at_once = 0; at_once < 2; at_once++) {
            struct lode_error err;
            fake_cuda_reset();
            fake_cuda.at_once = at_once;
            fake_cuda.no_register = k < NAMES / 2;
            must(live(names[k], &life, NULL, &err), &err);
            sums[at_once] = fake_cuda.sum_up;
            if (!at_once && fake_cuda.no_register)
                assert_true(fake_cuda.n_overlaps > 0);
        }
        assert_true(sums[0] == sums[1]);
    }
}

static void what_a_device_refuses(void **state) {
    const struct life life = of_layers(1);
    (void)state;
    for (uint64_t no_register = 0; no_register < 2; no_register++)
        refused_in_turn("qwen3", &life, no_register);
}

static void what_the_host_refuses(void **state) {
    const struct life life = of_layers(1);
    (void)state;
    host_refuses_in_turn("qwen3", &life);
}

static void lost_at_any_call(void **state) {
    const struct life life = of_layers(1);
    (void)state;
    for (uint64_t no_register = 0; no_register < 2; no_register++)
        lost_in_turn("qwen3", &life, no_register, 17);
}

static void a_session_outlives_it(void **state) {
    struct life life = of_layers(1);
    (void)state;
    life.bring_rows = 20;
    outlives_in_turn("qwen3", &life);
}

/* The plan's VRAM is what is taken of it, whatever there is. */
static void as_planned(void **state) {
    enum { STEPS = 12, MARGIN = 192 << 20 /* that plans leave to the driver */ };
    const uint64_t one = planned("qwen3", 1, 0, true).size[LODE_RUNG_VRAM] + MARGIN;
    const uint64_t all = planned("qwen3", 99, 0, true).size[LODE_RUNG_VRAM] + MARGIN;
    unsigned n_brings = 0, n_lack = 0;
    (void)state;
    for (uint64_t i = 0; i < STEPS; i++) { /* from a layer's room to that of all */
        const struct lode_budget b = {.vram = one + i * (all - one) / (STEPS - 2)};
        const struct lode_placement p = run_as_planned("qwen3", &b, ROWS);
        n_brings += p.brings;
        assert_int_equal(p.bring_lacks > 0, p.on_gpu && !p.brings && p.gpu_layers < p.n_layers);
        n_lack += p.bring_lacks > 0;
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
