/* Route traces: the file, the optimum against all choices, the default policy against the others. */
#include "failmalloc.h"
#include "lode/lode.h"
#include "tmpdir.h"

#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct lode_error err;

static struct lode_trace *synth(struct lode_trace_synth how) {
    struct lode_trace *t;
    assert_int_equal(lode_trace_synthesise(&t, &how, &err), 0);
    return t;
}

static char *slurp(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *data = malloc(1 << 20);
    *n = fread(data, 1, 1 << 20, f);
    fclose(f);
    return data;
}

static void as_written(void **state) {
    (void)state;
    char *path = tmp_path("a.trace");
    const uint64_t sizes[3] = {0, 70, 90};
    const struct lode_trace_shape shape = {3, 6, 2, 1234, sizes, "a model"};
    const uint32_t experts[2] = {1, 5};
    const float weights[2] = {0.25f, 0.75f};
    struct lode_trace *t, *back;
    assert_int_equal(lode_trace_create(&t, &shape, 4, &err), 0);
    for (uint32_t pos = 0; pos < 4; pos++) {
        if (pos == 2)
            lode_trace_begin(t, 2); /* a second text */
        for (uint32_t l = 0; l < 4; l++)
            lode_trace_put(t, l, pos % 2, experts, weights, 2); /* layers 0 and 3: left out */
    }
    assert_int_equal(lode_trace_bytes(t), 6 * (70 + 90));
    assert_int_equal(lode_trace_write(t, path, &err), 0);
    size_t n;
    char *data = slurp(path, &n);
    assert_int_equal(n, 24 + 8 + 24 + 7 + 4 * (4 + 2 * 12));
    assert_int_equal(data[63 + 2 * 28], 0); /* the position of token 2 */
    assert_int_equal(lode_trace_parse(&back, data, n, "here", &err), 0);
    assert_string_equal(lode_trace_shape(back)->name, "a model");
    assert_int_equal(lode_trace_shape(back)->other_bytes, 1234);
    assert_int_equal(lode_trace_n_tokens(back), 4);
    assert_int_equal(lode_trace_write(back, path, &err), 0);
    size_t again;
    char *same = slurp(path, &again);
    assert_int_equal(again, n);
    assert_memory_equal(same, data, n);
    lode_trace_free(back);

    for (size_t cut = 0; cut < n; cut++) /* every prefix is refused, or has fewer tokens */
        if (lode_trace_parse(&back, data, cut, "here", &err) == 0) {
            assert_int_equal((cut - 63) % 28, 0);
            lode_trace_free(back);
        }
    data[63 + 28 + 4] = 6; /* an expert that there is not */
    assert_int_equal(lode_trace_parse(&back, data, n, "here", &err), LODE_ERR_FORMAT);
    assert_non_null(strstr(err.text, "token 1"));
    free(data);
    free(same);
    lode_trace_free(t);
    free(path);
}

/* --- the optimum ---------------------------------------------------------------------------- */

enum { L = 2, E = 4, K = 2 };

/* The fewest reads from token `i`, layer `l` on, with `held` (a bit an id) in a cache of `room`: every
 * way to make room is tried. */
static unsigned fewest(const struct lode_trace *t, uint8_t (*used)[L], size_t i, int l,
                       unsigned held, int room, unsigned char (*memo)[L][256]) {
    if (i == lode_trace_n_tokens(t))
        return 0;
    unsigned char *known = &memo[i][l][held];
    if (*known)
        return *known - 1u;
    const unsigned need = (unsigned)used[i][l] << (l * E), missing = need & ~held;
    unsigned best = 1000;
    for (unsigned gone = 0; gone < 256; gone++) { /* what goes: any part of the others */
        if ((gone & held & ~need) != gone)
            continue;
        const unsigned then = (held & ~gone) | need;
        if (__builtin_popcount(then) > room)
            continue;
        const unsigned n = fewest(t, used, l + 1 < L ? i : i + 1, (l + 1) % L, then, room, memo);
        best = n < best ? n : best;
    }
    best += (unsigned)__builtin_popcount(missing);
    *known = (unsigned char)(best + 1);
    return best;
}

static void belady_is_the_optimum(void **state) {
    (void)state;
    enum { TOKENS = 14 };
    static unsigned char memo[TOKENS][L][256];
    for (uint64_t seed = 0; seed < 12; seed++) {
        const uint64_t sizes[L] = {10, 10};
        const struct lode_trace_shape shape = {L, E, K, 0, sizes, ""};
        struct lode_trace *t;
        uint8_t used[TOKENS][L];
        assert_int_equal(lode_trace_create(&t, &shape, TOKENS, &err), 0);
        for (uint32_t i = 0; i < TOKENS; i++)
            for (uint32_t l = 0; l < L; l++) {
                uint32_t r[4], ids[K];
                lode_rng_philox(seed, i * L + l, r);
                ids[0] = r[0] % (E - 1);
                ids[1] = ids[0] + 1 + r[1] % (E - 1 - ids[0]);
                lode_trace_put(t, l, i, ids, (const float[K]){0.5f, 0.5f}, K);
                used[i][l] = (uint8_t)(1 << ids[0] | 1 << ids[1]);
            }
        for (int room = K; room <= L * E; room++) {
            struct lode_replay r;
            memset(memo, 0, sizeof memo);
            assert_int_equal(lode_trace_replay(t, "belady", 10 * (uint64_t)room, &r, &err), 0);
            assert_int_equal(r.bytes_read, 10 * fewest(t, used, 0, 0, 0, room, memo));
            assert_int_equal(r.uses, TOKENS * L * K);
            assert_int_equal(r.bytes_used - r.bytes_read, 10 * r.hits);
            for (const char *const *p = lode_trace_policies(); *p; p++) {
                struct lode_replay other;
                assert_int_equal(lode_trace_replay(t, *p, 10 * (uint64_t)room, &other, &err), 0);
                assert_true(other.bytes_read >= r.bytes_read);
                assert_int_equal(other.first_reads, r.first_reads);
            }
        }
        struct lode_replay r;
        assert_int_equal(lode_trace_replay(t, "lru", 19, &r, &err), LODE_ERR_LIMIT);
        assert_int_equal(lode_trace_replay(t, "clock", 100, &r, &err), LODE_ERR_ARG);
        lode_trace_free(t);
    }
}

/* The default is at least 0.98 x the best of the policies, whatever the skew and the drift. */
static void default_is_near_the_best(void **state) {
    (void)state;
    static const struct lode_trace_synth hows[] = {
        {8, 32, 4, 600, 100, 1, 0.8, 0.002, 0.2}, {8, 32, 4, 600, 100, 2, 1.2, 0.02, 0},
        {8, 32, 4, 600, 100, 3, 0.4, 0.05, 0.5},  {8, 32, 4, 600, 100, 4, 1.0, 0, 0},
        {6, 64, 6, 500, 100, 5, 1.0, 0.2, 0.3},   {6, 64, 6, 500, 100, 6, 0.0, 0, 0.6},
    };
    for (size_t i = 0; i < sizeof hows / sizeof *hows; i++) {
        struct lode_trace *t = synth(hows[i]);
        for (int percent = 25; percent < 100; percent += 25) {
            const uint64_t capacity = lode_trace_bytes(t) * (uint64_t)percent / 100;
            struct lode_replay r, own;
            assert_int_equal(lode_trace_replay(t, NULL, capacity, &own, &err), 0);
            for (const char *const *p = lode_trace_policies(); *p; p++) {
                assert_int_equal(lode_trace_replay(t, *p, capacity, &r, &err), 0);
                if ((double)own.hits < 0.98 * (double)r.hits)
                    fail_msg("trace %zu, %d %%: %llu hits, %s has %llu", i, percent,
                             (unsigned long long)own.hits, *p, (unsigned long long)r.hits);
            }
        }
        lode_trace_free(t);
    }
}

static void synthetic_ones_are_lawful(void **state) {
    (void)state;
    struct lode_trace *t;
    /* so steep that one expert of 64 has nearly all chances, and yet 8 different ones are drawn */
    t = synth((struct lode_trace_synth){2, 64, 8, 50, 10, 1, 8, 0.1, 0.9});
    struct lode_replay r;
    assert_int_equal(lode_trace_replay(t, "lru", 10 * 8, &r, &err), 0);
    assert_int_equal(r.uses, 50 * 2 * 8);
    lode_trace_free(t);
    assert_int_equal(
        lode_trace_synthesise(&t, &(struct lode_trace_synth){1, 4, 5, 1, 1, 1, 1, 0, 0}, &err),
        LODE_ERR_ARG);
    assert_null(t);
}

static void each_allocation_may_fail(void **state) {
    (void)state;
    char *path = tmp_path("b.trace");
    const struct lode_trace_synth how = {2, 8, 2, 6, 100, 1, 1, 0.1, 0.2};
    for (uint64_t n = 1;; n++) {
        struct lode_trace *t = NULL, *back = NULL;
        struct lode_replay r;
        unlink(path); /* a sanitizer's realpath allocates, uncounted, where there is a file */
        failmalloc_start(n, false);
        int rc = lode_trace_synthesise(&t, &how, &err);
        if (rc == 0)
            rc = lode_trace_write(t, path, &err);
        if (rc == 0)
            rc = lode_trace_open(&back, path, &err);
        if (rc == 0)
            rc = lode_trace_replay(back, "belady", 800, &r, &err);
        for (const char *const *p = lode_trace_policies(); rc == 0 && *p; p++)
            rc = lode_trace_replay(back, *p, 800, &r, &err);
        lode_trace_free(t);
        lode_trace_free(back);
        const struct failmalloc_stats s = failmalloc_stop();
        assert_int_equal(s.live, 0);
        if (s.failed == 0) {
            assert_int_equal(rc, 0);
            break;
        }
        assert_true(rc == LODE_ERR_NOMEM || rc == LODE_ERR_IO);
    }
    free(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_written),
        cmocka_unit_test(belady_is_the_optimum),
        cmocka_unit_test(default_is_near_the_best),
        cmocka_unit_test(synthetic_ones_are_lawful),
        cmocka_unit_test(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, tmp_clean);
}
