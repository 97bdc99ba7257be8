/* test_flow.c - thinking, answer and stop texts in a stream, however it is cut into pieces. */
#include "tools/flow.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct seen {
    char text[512], thinking[512];
    int stop_after; /* calls; negative: never */
};

static int put(void *user, bool thinking, const char *text, size_t len) {
    struct seen *s = user;
    strncat(thinking ? s->thinking : s->text, text, len);
    return s->stop_after >= 0 && s->stop_after-- == 0 ? 7 : 0;
}

static const char *const stops[] = {"END", "User:"};

static const struct {
    enum flow_state start;
    const char *in, *thinking, *text;
    enum flow_state end;
} rows[] = {
    {FLOW_START, "hello", "", "hello", FLOW_ANSWER},
    {FLOW_START, "  hello\n", "", "  hello\n", FLOW_ANSWER},
    {FLOW_START, "", "", "", FLOW_START},
    {FLOW_START, "<th", "", "<th", FLOW_ANSWER},
    {FLOW_START, "<b>x</b>", "", "<b>x</b>", FLOW_ANSWER},
    {FLOW_START, "\n<think>\nhm, so\n</think>\n\nyes", "hm, so", "yes", FLOW_ANSWER},
    {FLOW_START, "<think>\n\n</think>\n\nyes", "", "yes", FLOW_ANSWER},
    {FLOW_START, "<think></think>", "", "", FLOW_BETWEEN},
    {FLOW_START, "<think>a < b </thin> c", "a < b </thin> c", "", FLOW_THINKING},
    {FLOW_OPENED, "\nhm </think> a <think> b", "hm", "a <think> b", FLOW_ANSWER},
    {FLOW_ANSWER, "<think>x</think>", "", "<think>x</think>", FLOW_ANSWER},
    {FLOW_START, "one END two", "", "one ", FLOW_STOPPED},
    {FLOW_START, "one EN", "", "one EN", FLOW_ANSWER},
    {FLOW_START, "UserEND User: x", "", "User", FLOW_STOPPED},
    {FLOW_START, "END", "", "", FLOW_STOPPED},
    {FLOW_START, "<think>END</think>go END", "END", "go ", FLOW_STOPPED},
    {FLOW_ANSWER, "EENEND", "", "EEN", FLOW_STOPPED},
};

static void test_pieces(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t piece = 1; piece <= 8; piece++) {
            struct seen s = {.stop_after = -1};
            struct flow f;
            const size_t n = strlen(rows[i].in);
            flow_init(&f, rows[i].start, stops, 2, put, &s);
            for (size_t at = 0; at < n; at += piece)
                assert_int_equal(flow_push(&f, rows[i].in + at, n - at < piece ? n - at : piece),
                                 0);
            assert_int_equal(flow_finish(&f), 0);
            flow_deinit(&f);
            assert_string_equal(s.thinking, rows[i].thinking);
            assert_string_equal(s.text, rows[i].text);
            assert_int_equal(f.state, rows[i].end);
        }
}

/* Text leaves at once unless it may begin a stop text. */
static void test_prompt(void **state) {
    (void)state;
    struct seen s = {.stop_after = -1};
    struct flow f;
    flow_init(&f, FLOW_ANSWER, stops, 2, put, &s);
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
    flow_init(&f, FLOW_ANSWER, NULL, 0, put, &s);
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
