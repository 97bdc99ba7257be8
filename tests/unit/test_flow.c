/* test_flow.c - stop texts in a stream, however it is cut into pieces. */
#include "serve/flow.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct seen {
    char text[512];
    int stop_after; /* calls; negative: never */
};

static int put(void *user, const char *text, size_t len) {
    struct seen *s = user;
    strncat(s->text, text, len);
    return s->stop_after >= 0 && s->stop_after-- == 0 ? 7 : 0;
}

static const char *const stops[] = {"END", "User:"};

static const struct {
    const char *in, *text;
    bool stopped;
} rows[] = {
    {"hello", "hello", false},
    {"  hello\n", "  hello\n", false},
    {"", "", false},
    {"<think>x</think>", "<think>x</think>", false},
    {"one END two", "one ", true},
    {"one EN", "one EN", false},
    {"UserEND User: x", "User", true},
    {"END", "", true},
    {"EENEND", "EEN", true},
    {"User END: User:", "User ", true},
};

static void test_pieces(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t piece = 1; piece <= 8; piece++) {
            struct seen s = {.stop_after = -1};
            struct flow f;
            const size_t n = strlen(rows[i].in);
            flow_init(&f, stops, 2, put, &s);
            for (size_t at = 0; at < n; at += piece)
                assert_int_equal(flow_push(&f, rows[i].in + at, n - at < piece ? n - at : piece),
                                 0);
            assert_int_equal(flow_finish(&f), 0);
            flow_deinit(&f);
            assert_string_equal(s.text, rows[i].text);
            assert_int_equal(f.stopped, rows[i].stopped);
        }
}

/* Text leaves at once unless it may begin a stop text. */
static void test_prompt(void **state) {
    (void)state;
    struct seen s = {.stop_after = -1};
    struct flow f;
    flow_init(&f, stops, 2, put, &s);
    flow_push(&f, "abcE", 4);
    assert_string_equal(s.text, "abc");
    flow_push(&f, "x", 1);
    assert_string_equal(s.text, "abcEx");
    flow_deinit(&f);
}

static void test_put_stops(void **state) {
    (void)state;
    struct seen s = {.stop_after = 0};
    struct flow f;
    flow_init(&f, NULL, 0, put, &s);
    assert_int_equal(flow_push(&f, "abc", 3), 7);
    flow_deinit(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_prompt),
        cmocka_unit_test(test_put_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
