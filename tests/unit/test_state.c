/* The state of recurrent layers: what is kept of it, and that going back gives what was there.
 *
 * A step of these tests writes the position that it ends at (and, into a checkpoint, the position
 * of that) over its block, as ops write the numbers that belong there.
 */
#include "store/state.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct lode_state_layer layers[] = {
    {.inputs = 3, .width = 40, .n_heads = 2, .dim_k = 3, .dim_v = 16},
    {0},
    {.inputs = 2, .width = 7},
};
enum {
    N_LAYERS = 3,
    MOST = 2 * LODE_STATE_EVERY + LODE_STATE_BACK, /* to be evaluated again, session.h says */
};

static const struct lode_memory *const on_host[LODE_PLACES] = {
    &lode_host_memory, &lode_host_memory, &lode_host_memory};

static struct lode_state *create(void) {
    struct lode_state *s;
    struct lode_error err;
    assert_int_equal(lode_state_create(&s, layers, N_LAYERS, on_host, &err), 0);
    return s;
}

static void write(struct lode_state *s, bool mark, float value) {
    for (uint32_t l = 0; l < N_LAYERS; l++) {
        float *inputs = lode_state_inputs(s, l, mark);
        for (uint32_t i = 0; i < layers[l].inputs * layers[l].width; i++)
            inputs[i] = value + (float)l;
        for (uint32_t h = 0; h < layers[l].n_heads; h++)
            for (uint32_t i = 0; i < layers[l].dim_k * layers[l].dim_v; i++)
                lode_state_delta(s, l, h, mark)[i] = value + (float)(l + h);
    }
}

static void holds(const struct lode_state *s, float value) {
    for (uint32_t l = 0; l < N_LAYERS; l++) {
        for (uint32_t i = 0; i < layers[l].inputs * layers[l].width; i++)
            assert_true(lode_state_inputs(s, l, false)[i] == (value ? value + (float)l : 0));
        for (uint32_t h = 0; h < layers[l].n_heads; h++)
            for (uint32_t i = 0; i < layers[l].dim_k * layers[l].dim_v; i++)
                assert_true(lode_state_delta(s, l, h, false)[i] ==
                            (value ? value + (float)(l + h) : 0));
    }
}

static void step(struct lode_state *s, uint32_t pos, uint32_t n) {
    assert_true(lode_state_at(s, pos));
    holds(s, (float)pos);
    lode_state_begin(s, pos, n);
    assert_false(lode_state_at(s, pos));
    const uint32_t mark = lode_state_mark(s);
    if (mark != UINT32_MAX) {
        assert_in_range(mark, 1, n);
        assert_int_equal((pos + mark) % LODE_STATE_EVERY, 0);
        write(s, true, (float)(pos + mark));
    }
    write(s, false, (float)(pos + n));
    lode_state_commit(s);
}

/* Rewinds, as a session does, and says how many tokens have to be evaluated again. */
static uint32_t back(struct lode_state *s, uint32_t n) {
    lode_state_truncate(s, n);
    if (lode_state_at(s, n))
        return 0;
    const uint32_t at = lode_state_rewind(s, n);
    assert_true(at <= n && lode_state_at(s, at));
    holds(s, (float)at);
    return n - at;
}

/* A chat: prompts of any length in batches of any size, answers, and cuts near the last prompt's
 * end, where little is to be done again; or anywhere, where it is still right. */
static void test_chat(void **unused) {
    (void)unused;
    static const uint32_t batches[] = {2, 7, 16, 64, 100, 512};
    for (uint32_t seed = 0; seed < 60; seed++) {
        struct lode_state *s = create();
        const uint32_t batch = batches[seed % 6];
        uint32_t pos = 0, draw = 0;
        assert_int_equal(lode_state_rewind(s, 0), 0);
        for (int turn = 0; turn < 12; turn++) {
            uint32_t left = 2 + (uint32_t)(lode_rng_uniform(seed, draw++, 0) * 700);
            uint32_t replay = 0;
            while (left) {
                const uint32_t n = left < batch ? left : batch;
                step(s, pos, n);
                pos += n;
                left -= n;
            }
            const uint32_t end = pos;
            uint32_t answer = (uint32_t)(lode_rng_uniform(seed, draw++, 0) * 900);
            while (answer--)
                step(s, pos++, 1);
            if (turn % 4 == 3) {
                pos = (uint32_t)(lode_rng_uniform(seed, draw++, 0) * pos);
                replay = back(s, pos);
            } else {
                const uint32_t cut = (uint32_t)(lode_rng_uniform(seed, draw++, 0) * 17);
                pos = end > cut ? end - cut : 0;
                replay = back(s, pos);
                assert_in_range(replay, 0, MOST);
            }
            uint32_t at = pos - replay; /* a prompt in its own right, as far as the state knows */
            while (at < pos) {
                const uint32_t n = pos - at < batch ? pos - at : batch;
                step(s, at, n);
                at += n;
            }
        }
        lode_state_free(s);
    }
}

/* A long prompt leaves checkpoints over all of it. */
static void test_spread(void **unused) {
    (void)unused;
    struct lode_state *s = create();
    lode_state_rewind(s, 0);
    for (uint32_t pos = 0; pos < 32768; pos += 512)
        step(s, pos, 512);
    assert_in_range(back(s, 32760), 0, MOST);
    assert_in_range(back(s, 32000), 0, 20000);
    assert_in_range(back(s, 30000), 0, 20000);
    lode_state_free(s);
}

/* A step that fails leaves the earlier checkpoints, and nothing of itself. */
static void test_failure(void **unused) {
    (void)unused;
    struct lode_state *s = create();
    lode_state_rewind(s, 0);
    step(s, 0, 200);
    for (uint32_t i = 0; i < 10; i++) {
        lode_state_begin(s, 200, 100);
        write(s, false, -1);
        if (lode_state_mark(s) != UINT32_MAX)
            write(s, true, -1);
        lode_state_truncate(s, 200);
        assert_false(lode_state_at(s, 200));
        const uint32_t at = lode_state_rewind(s, 200);
        assert_int_equal(at, i ? 192 : 128); /* the second way to 200 left one more */
        holds(s, (float)at);
        step(s, at, 200 - at);
    }
    lode_state_free(s);
}

static void test_save_and_restore(void **unused) {
    (void)unused;
    struct lode_state *s = create(), *other = create();
    const uint64_t size = lode_state_block(layers, N_LAYERS);
    void *block = malloc(size);
    lode_state_rewind(s, 0);
    step(s, 0, 300);
    lode_state_save(s, block);
    step(s, 300, 100);
    lode_state_restore(other, block, 300); /* another sequence goes on from there */
    step(other, 300, 1);
    assert_int_equal(back(other, 299), 299);
    lode_state_restore(s, block, 300);
    step(s, 300, 1);
    free(block);
    lode_state_free(s);
    lode_state_free(other);
    assert_int_equal(lode_state_block(&layers[1], 1), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat),
        cmocka_unit_test(test_spread),
        cmocka_unit_test(test_failure),
        cmocka_unit_test(test_save_and_restore),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
