/* What the library holds, its limit, and caches that give memory back under pressure. */
#include "../own_files.h"
#include "lode/lode.h"
#include "tmpdir.h"

#include "base/alloc.h"
#include "base/caches.h"
#include "base/error.h"
#include "base/pressure.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void limit_is_hard(void **state) {
    (void)state;
    struct lode_memory_usage u;
    lode_memory_usage(&u);
    const uint64_t before = u.active;
    assert_int_equal(u.limit, 0);
    assert_int_equal(lode_memory_limit(before + (1 << 20)), 0);
    void *p = lode_alloc(1 << 19, 1);
    assert_non_null(p);
    assert_null(lode_alloc(1 << 20, 1));
    assert_null(lode_alloc_zero(1 << 10, 1 << 10));
    assert_null(lode_alloc_aligned(4096, 1 << 20, 1));
    assert_null(lode_realloc(p, 2 << 20, 1));
    struct lode_error err;
    assert_int_equal(lode_fail_nomem(&err, "a thing"), LODE_ERR_NOMEM);
    assert_non_null(strstr(err.text, "allowed (--ram, lode_memory_limit)")); /* it is not the machine's */
    lode_alloc_add_mapped(1 << 19); /* a mapping counts too */
    assert_null(lode_alloc(1 << 18, 1));
    lode_alloc_add_mapped(-(1 << 19));
    void *q = lode_alloc(1 << 18, 1);
    assert_non_null(q);
    lode_memory_usage(&u);
    assert_true(u.active >= before + (3 << 18) && u.active <= u.limit && u.mapped == 0);
    lode_free(q);
    lode_free(p);
    lode_memory_usage(&u);
    assert_int_equal(u.active, before);
    assert_true(u.peak >= before + (3 << 18));
    lode_memory_reset_peak();
    lode_memory_usage(&u);
    assert_int_equal(u.peak, before);
    assert_int_equal(lode_memory_limit(0), before + (1 << 20));
}

struct fake {
    uint64_t held, stayed;
    int grown;
};
static uint64_t fake_held(void *user) { return ((struct fake *)user)->held; }
static uint64_t fake_shrink(void *user, uint64_t bytes, bool stay) {
    struct fake *f = user;
    const uint64_t given = bytes < f->held ? bytes : f->held;
    f->held -= given;
    f->stayed += stay ? given : 0;
    return given;
}
static void fake_grow(void *user) { ((struct fake *)user)->grown++; }

static void caches_give_back(void **state) {
    (void)state;
    struct fake a = {.held = 1000}, b = {.held = 600};
    struct lode_cache ca = {fake_held, fake_shrink, fake_grow, &a, NULL};
    struct lode_cache cb = {fake_held, fake_shrink, fake_grow, &b, NULL};
    struct lode_memory_usage u;
    lode_cache_list(&ca);
    lode_cache_list(&cb);
    lode_memory_usage(&u);
    assert_int_equal(u.cached, 1600);
    assert_int_equal(lode_memory_trim(700), 700);
    assert_int_equal(a.held + b.held, 900);
    assert_int_equal(a.stayed + b.stayed, 0);

    struct lode_watch w = {0};
    struct lode_pressure p = {.has_stalls = true, .stalled = 5000000};
    lode_watch_look(&w, &p); /* what was before does not count */
    p.stalled = 5099999;
    lode_watch_look(&w, &p); /* less than a tenth of a second */
    assert_int_equal(a.held + b.held, 900);
    p.stalled = 5200000;
    lode_watch_look(&w, &p);
    assert_int_equal(a.held + b.held, 900 - 113);
    assert_int_equal(a.stayed + b.stayed, 113);
    for (int i = 0; i < 9; i++)
        lode_watch_look(&w, &p);
    assert_int_equal(a.grown, 0);
    lode_watch_look(&w, &p);
    assert_int_equal(a.grown + b.grown, 2);
    lode_cache_unlist(&ca);
    assert_int_equal(lode_memory_trim(UINT64_MAX), 900 - 113 - a.held);
    lode_cache_unlist(&cb);
    lode_memory_usage(&u);
    assert_int_equal(u.cached, 0);
}

static void put(const char *root, const char *name, const char *text) {
    char command[512];
    snprintf(command, sizeof command, "mkdir -p \"$(dirname %s%s)\"", root, name);
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command, "%s%s", root, name);
    FILE *f = fopen(command, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void pressure_is_read(void **state) {
    (void)state;
    const char *root = tmp_dir();
    struct lode_pressure p;
    assert_false(lode_pressure_read(root, &p));
    put(root, "/proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234\n"
                                       "full avg10=0.00 avg60=0.00 avg300=0.00 total=99\n");
    assert_true(lode_pressure_read(root, &p));
    assert_int_equal(p.stalled, 1234);
    assert_false(p.has_events);
    put(root, "/proc/self/cgroup", "1:name=x:/y\n0::/a/b\n");
    put(root, "/sys/fs/cgroup/a/b/memory.pressure", "some avg10=0.00 total=77\nfull total=1\n");
    assert_true(lode_pressure_read(root, &p));
    assert_int_equal(p.stalled, 77);
    assert_false(p.has_events);
}

/* A group's counters, in files as the kernel has them, with and without stalls beside them. */
static void events_press(void **state) {
    (void)state;
    char root[4096];
    snprintf(root, sizeof root, "%s/events", tmp_dir());
    struct fake a = {.held = 8000};
    struct lode_cache ca = {fake_held, fake_shrink, fake_grow, &a, NULL};
    struct lode_pressure p;
    struct lode_watch w = {0};
    static const struct {
        const char *events, *around; /* of the group, of the one that it lies in */
        uint64_t files;
        bool stalls, pressed;
    } looks[] = {
        {"low 0\nhigh 0\nmax 5\noom 0\noom_kill 0\n", "max 7\n", 0, false, false}, /* from before */
        {"low 9\nhigh 0\nmax 5\noom 0\noom_kill 9\n", "max 7\n", 0, false, false}, /* others' affair */
        {"high 0\nmax 6\noom 0\n", "max 7\n", 9000, false, true},
        {"high 0\nmax 6\noom 0\n", "max 8\n", 9000, false, true},
        {"high 1\nmax 6\noom 0\n", "max 8\n", 9000, false, true},
        {"high 1\nmax 6\noom 0\n", "max 8\n", 9000, true, false},
        {"high 1\nmax 9\noom 0\n", "max 8\n", 625, true, false}, /* files can be taken back */
        {"high 1\nmax 10\noom 0\n", "max 8\n", 624, true, true},
        {"high 1\nmax 10\noom 0\n", "max 8\n", 0, true, false},
        {"high 1\nmax 11\noom 1\n", "max 8\n", 9000, true, true},
    };
    put(root, "/proc/self/cgroup", "1:name=x:/y\n0::/a/b\n");
    put(root, "/sys/fs/cgroup/a/b/memory.current", "10000\n");
    lode_cache_list(&ca);
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        char stat[128];
        const uint64_t held = a.held;
        snprintf(stat, sizeof stat, "anon 77\nfile 5\ninactive_file %u\nactive_file %u\nslab 3\n",
                 (unsigned)looks[i].files / 2, (unsigned)(looks[i].files - looks[i].files / 2));
        put(root, "/sys/fs/cgroup/a/b/memory.events", looks[i].events);
        put(root, "/sys/fs/cgroup/a/memory.events", looks[i].around);
        put(root, "/sys/fs/cgroup/a/b/memory.stat", stat);
        if (looks[i].stalls)
            put(root, "/sys/fs/cgroup/a/b/memory.pressure", "some avg10=0.00 total=77\n");
        assert_true(lode_pressure_read(root, &p));
        assert_true(p.has_events && p.has_stalls == looks[i].stalls);
        assert_int_equal(p.files, looks[i].files);
        assert_int_equal(p.used, 10000);
        lode_watch_look(&w, &p);
        if (a.held != held - (looks[i].pressed ? (held + 7) / 8 : 0))
            fail_msg("look %zu: %u of %u are held", i, (unsigned)a.held, (unsigned)held);
    }
    assert_int_equal(a.stayed, 8000 - a.held);
    lode_cache_unlist(&ca);
}

static void the_watch_stops(void **state) {
    (void)state;
    struct lode_error err;
    for (int i = 0; i < 3; i++) {
        const int rc = lode_memory_watch(true, &err);
        assert_true(rc == 0 || rc == LODE_ERR_UNSUPPORTED);
        assert_true(lode_memory_watch(true, &err) == rc);
        assert_int_equal(lode_memory_watch(false, &err), 0);
    }
}

/* Experts taken away in the middle of steps, and a budget that shrinks and grows, change no bit. */
static bool trim_now(void *user) {
    unsigned *n = user;
    if (++*n % 3 == 0)
        lode_caches_shrink(1 << 12, *n % 2);
    if (*n % 7 == 0)
        lode_caches_grow();
    return false;
}

static float *last_logits(uint64_t expert_cache, bool trim, uint32_t *n_vocab) {
    struct lode_model *m;
    struct lode_session *s;
    struct lode_error err;
    unsigned n = 0;
    assert_int_equal(
        lode_model_open(&m, own_file("data/arch/qwen3_moe"), &(struct lode_model_opts){.device = "cpu"}, &err), 0);
    struct lode_session_opts o = {.ctx = 128, .threads = 2};
    assert_int_equal(lode_session_create(&s, m, &o, &err), LODE_ERR_ARG); /* no weights yet */
    assert_int_equal(lode_model_fill(m, expert_cache, 0, &err), 0);
    if (trim) {
        o.cancel = trim_now;
        o.cancel_user = &n;
    }
    assert_int_equal(lode_session_create(&s, m, &o, &err), 0);
    *n_vocab = lode_model_info(m)->n_vocab;
    for (int32_t i = 0; i < 60; i++) {
        const int32_t token = i * 37 % (int32_t)*n_vocab;
        assert_int_equal(lode_session_eval(s, &token, 1, &err), 0);
    }
    struct lode_memory_usage u;
    lode_memory_usage(&u);
    assert_true(expert_cache ? u.cached <= expert_cache : u.cached == 0);
    float *copy = malloc(*n_vocab * sizeof *copy);
    memcpy(copy, lode_session_logits(s), *n_vocab * sizeof *copy);
    lode_session_free(s);
    lode_model_free(m);
    assert_true(!trim || n > 100);
    return copy;
}

static void trimming_changes_nothing(void **state) {
    (void)state;
    struct lode_memory_usage before, after;
    uint32_t n;
    lode_memory_usage(&before);
    float *whole = last_logits(0, false, &n), *trimmed = last_logits(128 << 10, true, &n);
    assert_memory_equal(whole, trimmed, n * sizeof *whole);
    free(whole);
    free(trimmed);
    lode_memory_usage(&after);
    assert_int_equal(after.active, before.active);
    assert_int_equal(after.mapped, before.mapped);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limit_is_hard),
        cmocka_unit_test(caches_give_back),
        cmocka_unit_test(pressure_is_read), cmocka_unit_test(events_press),
        cmocka_unit_test(the_watch_stops),
        cmocka_unit_test(trimming_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, tmp_clean);
}
