/* Files of settings: what is read, and that every complaint names its line. */
#include "tools/ini.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct seen {
    char text[1024];
};

static int put(void *user, const char *section, const char *key, const char *value, int line,
               struct lode_error *err) {
    struct seen *s = user;
    char one[256];
    (void)err;
    snprintf(one, sizeof one, "%d[%s]%s=%s;", line, section, key ? key : "", key ? value : "");
    strncat(s->text, one, sizeof s->text - strlen(s->text) - 1);
    return 0;
}

static void test_reads(void **state) {
    char text[] = "\xef\xbb\xbf# a comment\r\n; another\r\n\r\nport = 80 \r\n key=\n[ a b ]\n  x  =  \" y \"\n"
                  "z = 1 # not a comment\n[c]";
    struct seen s = {0};
    struct lode_error err = {0};
    (void)state;
    assert_int_equal(ini_parse(text, "f", put, &s, &err), 0);
    assert_string_equal(s.text, "4[]port=80;5[]key=;6[a b]=;7[a b]x= y ;8[a b]z=1 # not a comment;9[c]=;");
}

static void test_refuses(void **state) {
    static const char *const bad[] = {"x = 1\n[a", "x = 1\n[]", "x = 1\n[a] b", "x = 1\nhello", "x = 1\n = 2",
                                      "x = 1\ny = \"", "x = 1\ny = \"z", "x = 1\ny\x01 = 2"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[64];
        struct seen s = {0};
        struct lode_error err = {0};
        snprintf(text, sizeof text, "%s", bad[i]);
        assert_int_equal(ini_parse(text, "f.ini", put, &s, &err), LODE_ERR_FORMAT);
        assert_string_equal(err.where, "f.ini:2");
        assert_string_equal(s.text, "1[]x=1;");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reads), cmocka_unit_test(test_refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
