/* The allocation counter itself: what it counts, what it fails, and that it reaches other people's
 * libraries. */
#include "failmalloc.h"

#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include <cmocka.h>

/* Kept where the optimiser cannot pair a malloc with its free and drop both. */
static void *volatile held[8];

static void take_all(void) {
    void *p = NULL;
    held[0] = malloc(10);
    held[1] = calloc(3, 5);
    held[2] = realloc(NULL, 7);
    held[3] = aligned_alloc(64, 128);
    held[4] = posix_memalign(&p, 64, 100) == 0 ? p : NULL;
    held[5] = wcsdup(L"through the C library");
}

static int drop_all(void) {
    int n = 0;
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) {
        n += held[i] != NULL;
        free(held[i]);
        held[i] = NULL;
    }
    return n;
}

static void test_counts(void **state) {
    (void)state;
    failmalloc_start(0, false);
    struct failmalloc_stats s = failmalloc_stop();
    assert_int_equal(s.calls, 0);

    failmalloc_start(0, false);
    take_all();
    s = failmalloc_stop();
    assert_int_equal(s.calls, 6);
    assert_int_equal(s.failed, 0);
    assert_int_equal(s.live, 6);
    assert_int_equal(drop_all(), 6);

    failmalloc_start(0, false);
    take_all();
    drop_all();
    free(NULL);
    assert_int_equal(failmalloc_stop().live, 0);
}

static void test_fails_one(void **state) {
    (void)state;
    for (int n = 1; n <= 7; n++) {
        failmalloc_start((uint64_t)n, false);
        take_all();
        const struct failmalloc_stats s = failmalloc_stop();
        assert_int_equal(s.calls, 6);
        assert_int_equal(s.failed, n <= 6);
        for (int i = 0; i < 6; i++)
            assert_int_equal(held[i] == NULL, i == n - 1);
        drop_all();
    }
}

static void test_fails_persistently(void **state) {
    (void)state;
    failmalloc_start(3, true);
    take_all();
    const struct failmalloc_stats s = failmalloc_stop();
    assert_int_equal(s.failed, 4);
    assert_int_equal(drop_all(), 2);
    take_all(); /* and everything works again after it */
    assert_int_equal(drop_all(), 6);
}

static void test_realloc_keeps_the_block(void **state) {
    (void)state;
    held[0] = malloc(4);
    memcpy(held[0], "abc", 4);
    failmalloc_start(1, false);
    held[1] = realloc(held[0], 1000);
    const struct failmalloc_stats s = failmalloc_stop();
    assert_null(held[1]);
    assert_int_equal(s.live, 0);
    assert_string_equal(held[0], "abc");
    assert_int_equal(drop_all(), 1);
}

/* A JSON library that we did not write runs out of memory at every place it can, and loses none. */
static void test_reaches_other_libraries(void **state) {
    (void)state;
    json_decref(json_loads("[1]", 0, NULL)); /* whatever it sets up once */
    uint64_t n = 1;
    for (;; n++) {
        failmalloc_start(n, false);
        json_t *j = json_loads("{\"a\": [1, 2.5, \"three\", null], \"b\": {}}", 0, NULL);
        json_decref(j);
        const struct failmalloc_stats s = failmalloc_stop();
        assert_int_equal(s.live, 0);
        if (!s.failed) {
            assert_non_null(j);
            break;
        }
    }
    assert_in_range(n, 5, 1000);
}

static void *worker(void *arg) {
    for (int i = 0; i < 1000; i++) {
        *(void *volatile *)arg = malloc(8);
        free(*(void *volatile *)arg);
    }
    return NULL;
}

static void test_counts_all_threads(void **state) {
    (void)state;
    pthread_t t[4];
    void *slot[4];
    failmalloc_start(0, false);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, worker, &slot[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    const struct failmalloc_stats s = failmalloc_stop();
    assert_true(s.calls >= 4000); /* starting a thread allocates as well */
    assert_true(s.calls < 4100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_fails_one),
        cmocka_unit_test(test_fails_persistently),
        cmocka_unit_test(test_realloc_keeps_the_block),
        cmocka_unit_test(test_reaches_other_libraries),
        cmocka_unit_test(test_counts_all_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
