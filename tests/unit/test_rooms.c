/* The memory of a cache: kinds of rooms, what each may be given, and what is left when many are busy. */
#include "store/rooms.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

enum { PAGE = 4096 };

static struct lode_error err;

static uint64_t bytes_of(const struct lode_rooms *r) {
    uint64_t all = 0;
    for (uint32_t i = 0; i < r->n_kinds; i++)
        all += (uint64_t)r->kinds[i].n * r->kinds[i].size;
    return all;
}

/* Half of the groups of 70 pages, half of 60: two kinds, the same share of each. */
static void two_kinds(void **state) {
    (void)state;
    enum { N = 400 };
    size_t sizes[N];
    uint64_t all = 0;
    for (int i = 0; i < N; i++)
        all += sizes[i] = (i % 2 ? 70 : 60) * PAGE;
    for (int percent = 10; percent <= 100; percent += 15) {
        struct lode_rooms r;
        const uint64_t budget = all * (uint64_t)percent / 100;
        assert_int_equal(lode_rooms_make(&r, sizes, N, budget, &err), 0);
        assert_int_equal(r.n_kinds, 2);
        assert_true(bytes_of(&r) <= budget);
        assert_true(bytes_of(&r) + 60 * PAGE > budget); /* nothing that would hold another is left */
        assert_true(r.kinds[0].n <= r.kinds[1].n + 3 && r.kinds[1].n <= r.kinds[0].n + 3);
        lode_rooms_free(&r);
    }
}

/* Sizes that are nearly one are one kind; a budget for few rooms makes them all of the largest size; more
 * sizes than kinds share the last. */
static void few_kinds(void **state) {
    (void)state;
    size_t sizes[40];
    struct lode_rooms r;
    for (int i = 0; i < 40; i++)
        sizes[i] = (size_t)(640 + i % 5) * PAGE;
    assert_int_equal(lode_rooms_make(&r, sizes, 40, 20 * 644 * PAGE, &err), 0);
    assert_int_equal(r.n_kinds, 1);
    assert_int_equal(r.n, 20);
    lode_rooms_free(&r);
    for (int i = 0; i < 40; i++)
        sizes[i] = (size_t)(i % 2 ? 100 : 50) * PAGE;
    assert_int_equal(lode_rooms_make(&r, sizes, 40, 5 * 100 * PAGE + 1, &err), 0);
    assert_int_equal(r.n_kinds, 1);
    assert_int_equal(r.n, 5);
    lode_rooms_free(&r);
    uint64_t all = 0;
    for (int i = 0; i < 40; i++)
        all += sizes[i] = (size_t)(10 + 10 * i) * PAGE;
    assert_int_equal(lode_rooms_make(&r, sizes, 40, all, &err), 0);
    assert_int_equal(r.n_kinds, LODE_ROOM_KINDS);
    assert_int_equal(r.n, 40); /* a room for each */
    for (int i = 40; i-- > 0;)
        assert_int_not_equal(lode_rooms_take(&r, sizes[i]), LODE_NO_ROOM);
    assert_false(lode_rooms_has(&r, PAGE));
    lode_rooms_free(&r);
}

/* At random: a room is never given twice, holds what is asked for, keeps its bytes; and what cannot be had
 * is exactly what all rooms that would do have been taken for, or are busy. */
static void taking_and_giving(void **state) {
    (void)state;
    enum { N = 200, SMALL = 3 * PAGE, LARGE = 5 * PAGE };
    size_t sizes[N];
    struct lode_rooms r;
    bool taken[N] = {0}, busy[N] = {0};
    for (int i = 0; i < N; i++)
        sizes[i] = i % 3 ? SMALL : LARGE;
    assert_int_equal(lode_rooms_make(&r, sizes, N, (N / 3 * LARGE + N / 3 * 2 * SMALL) / 2, &err), 0);
    assert_int_equal(r.n_kinds, 2);
    for (uint64_t step = 0; step < 20000; step++) {
        const double x = lode_rng_uniform(5, step, 0);
        const size_t size = lode_rng_uniform(5, step, 1) < 0.5 ? SMALL : LARGE;
        const uint32_t i = (uint32_t)(lode_rng_uniform(6, step, 0) * r.n);
        const bool is_large = r.kind[i] == 0;
        uint32_t n_free = 0, n_idle = 0;
        for (uint32_t k = 0; k < r.n; k++) {
            const bool fits = r.kind[k] == 0 || size == SMALL;
            n_free += fits && !taken[k];
            n_idle += fits && !busy[k];
        }
        assert_int_equal(lode_rooms_has(&r, size), n_free > 0);
        assert_int_equal(lode_rooms_may_have(&r, size), n_idle > 0);
        if (x < 0.5) {
            const uint32_t room = lode_rooms_take(&r, size);
            assert_int_equal(room == LODE_NO_ROOM, n_free == 0);
            if (room == LODE_NO_ROOM)
                continue;
            assert_false(taken[room]);
            assert_true(lode_rooms_size(&r, room) >= size);
            taken[room] = true;
            memset(lode_rooms_at(&r, room), (int)(room & 0xff), lode_rooms_size(&r, room));
        } else if (taken[i]) {
            const unsigned char *at = (unsigned char *)lode_rooms_at(&r, i);
            for (size_t k = 0; k < (is_large ? LARGE : SMALL); k += 511)
                assert_int_equal(at[k], i & 0xff);
            if (x < 0.7) {
                busy[i] = !busy[i];
                lode_rooms_set_busy(&r, i, busy[i]);
            } else if (!busy[i]) {
                lode_rooms_give(&r, i);
                taken[i] = false;
                if (x < 0.75) {
                    lode_rooms_release(&r, i);
                    assert_int_equal(lode_rooms_at(&r, i)[17], 0);
                }
            }
        }
    }
    lode_rooms_free(&r);
}

/* All memory at once: no page is missing, and it is given back as ever. */
static void touched(void **state) {
    (void)state;
    enum { LARGE = 5 * PAGE };
    struct lode_rooms r;
    size_t sizes[40];
    static unsigned char there[20 * LARGE / 4096];
    for (int i = 0; i < 40; i++)
        sizes[i] = LARGE;
    assert_int_equal(lode_rooms_make(&r, sizes, 40, 20 * (uint64_t)LARGE, &err), 0);
    assert_int_equal(lode_rooms_touch(&r, &err), 0);
    assert_true(r.bytes <= 20 * (uint64_t)LARGE && r.bytes / 4096 <= sizeof there);
    assert_int_equal(mincore(r.memory, r.bytes, there), 0);
    for (size_t i = 0; i < r.bytes / 4096; i++)
        assert_true(there[i] & 1);
    lode_rooms_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_kinds),
        cmocka_unit_test(few_kinds),
        cmocka_unit_test(taking_and_giving),
        cmocka_unit_test(touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
