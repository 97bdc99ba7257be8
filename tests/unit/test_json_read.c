/* serve: JSON with integers of any length. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "serve/json_read.h"

static json_t *read_text(const char *text) { return json_read(text, strlen(text), JSON_DECODE_ANY, NULL); }

static void long_integers_are_the_nearest_real(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double value;
    } reals[] = {{"18446744073709551615", 18446744073709551615.0},
                 {"-9223372036854775809", -9223372036854775809.0},
                 {"123456789012345678901234567890", 123456789012345678901234567890.0},
                 {"1000000000000000000000000000000000000000000", 1e42}};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        json_t *v = read_text(reals[i].text);
        assert_true(json_is_real(v));
        assert_true(json_real_value(v) == reals[i].value);
        json_decref(v);
    }
}

static void all_else_is_as_it_was(void **state) {
    (void)state;
    json_t *v = read_text("{\"18446744073709551615\": [9223372036854775807, -9223372036854775808, 1234567890123456789.5, "
                          "12345678901234567890e2, 0.12345678901234567890, 1E-12345678901234567890, 99999999999999999999],"
                          " \"t\": \"a \\\" 18446744073709551615 \\\\\", \"n\": 7, \"x\": [true, null]}");
    assert_non_null(v);
    const json_t *list = json_object_get(v, "18446744073709551615");
    assert_int_equal(json_array_size(list), 7);
    assert_true(json_is_integer(json_array_get(list, 0)) && json_is_integer(json_array_get(list, 1)));
    assert_int_equal(json_integer_value(json_array_get(list, 0)), INT64_MAX);
    assert_int_equal(json_integer_value(json_array_get(list, 1)), INT64_MIN);
    assert_true(json_real_value(json_array_get(list, 3)) == 12345678901234567890e2);
    assert_true(json_real_value(json_array_get(list, 6)) == 1e20);
    assert_string_equal(json_string_value(json_object_get(v, "t")), "a \" 18446744073709551615 \\");
    assert_int_equal(json_integer_value(json_object_get(v, "n")), 7);
    json_decref(v);
}

static void what_is_not_json_stays_so(void **state) {
    (void)state;
    static const char *const texts[] = {"",
                                        "01234567890123456789",
                                        "[99999999999999999999",
                                        "[99999999999999999999 1]",
                                        "--99999999999999999999",
                                        "[99999999999999999999, \"a",
                                        "[99999999999999999999, \"a\\",
                                        "[99999999999999999999, 1e999]",
                                        "99999999999999999999-1"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_error_t why;
        assert_null(json_read(texts[i], strlen(texts[i]), JSON_DECODE_ANY, &why));
        assert_true(why.text[0]);
    }
    /* larger than any double */
    char huge[500];
    memset(huge, '9', sizeof huge);
    assert_null(json_read(huge, sizeof huge, JSON_DECODE_ANY, NULL));
    /* duplicates are still refused */
    assert_null(json_read("{\"a\": 99999999999999999999, \"a\": 1}", 35, JSON_REJECT_DUPLICATES, NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_integers_are_the_nearest_real),
        cmocka_unit_test(all_else_is_as_it_was),
        cmocka_unit_test(what_is_not_json_stays_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
