/* Chat templates: our own cases, rendered once by the Python package (tests/data/templates), the
 * public templates of $LODE_SHARED/ref/chat where they are present, the limits, and errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/alloc.h"
#include "lode/chat.h"

/* 2026-01-15 12:34:56 UTC, where the references stopped the clock */
enum { NOW = 1768480496 };

static const char *dir(const char *name) {
    const char *d = getenv(name);
    return d ? d : strcmp(name, "LODE_TESTS") == 0 ? "tests" : "../shared";
}

static char *read_file(const char *base, const char *path) {
    char full[1024];
    snprintf(full, sizeof full, "%s/%s", dir(base), path);
    FILE *f = fopen(full, "rb");
    if (!f)
        return NULL;
    fseek(f, 0, SEEK_END);
    const long n = ftell(f);
    rewind(f);
    char *text = malloc((size_t)n + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)n, f), n);
    text[n] = '\0';
    fclose(f);
    return text;
}

/* Renders; the caller frees *text by lode_chat_text_free. */
static int render(const char *source, const char *vars, char **text, struct lode_error *err) {
    struct lode_template *t;
    size_t len;
    *text = NULL;
    *err = (struct lode_error){0};
    int rc = lode_template_compile(&t, source, strlen(source), err);
    if (rc < 0)
        return rc;
    rc = lode_template_render(t, vars, strlen(vars), NOW, text, &len, err);
    if (rc == 0)
        assert_int_equal(strlen(*text), len);
    lode_template_free(t);
    return rc;
}

/* One line of a cases file; prints and returns false where the outcome is another. */
static bool check_case(const char *name, const char *source, const char *vars,
                       const char *expected, const char *error) {
    struct lode_error err;
    char *text;
    const int rc = render(source, vars, &text, &err);
    bool ok;
    if (expected) {
        ok = rc == 0 && strcmp(text, expected) == 0;
        if (!ok)
            print_message("%s:\n--- expected\n%s\n--- got\n%s%s %s\n", name, expected,
                          rc ? "error: " : "", rc ? err.where : "", rc ? err.text : text);
    } else {
        /* raise_exception's text is the message itself; of others only the fact counts */
        static const char raised[] = "TemplateError: ";
        ok = rc < 0 && err.text[0] != '\0';
        if (ok && strncmp(error, raised, sizeof raised - 1) == 0)
            ok = strcmp(err.text, error + sizeof raised - 1) == 0;
        if (!ok)
            print_message("%s:\n--- expected error\n%s\n--- got\n%s\n", name, error,
                          rc ? err.text : text);
    }
    lode_chat_text_free(text);
    return ok;
}

static void our_cases_render_as_jinja2(void **state) {
    (void)state;
    char *lines = read_file("LODE_TESTS", "data/templates/cases.jsonl");
    assert_non_null(lines);
    int n = 0, bad = 0;
    for (char *line = strtok(lines, "\n"); line; line = strtok(NULL, "\n"), n++) {
        json_t *c = json_loads(line, JSON_ALLOW_NUL, NULL);
        assert_non_null(c);
        bad += !check_case(json_string_value(json_object_get(c, "name")),
                           json_string_value(json_object_get(c, "template")),
                           json_string_value(json_object_get(c, "vars")),
                           json_string_value(json_object_get(c, "expected")),
                           json_string_value(json_object_get(c, "error")));
        json_decref(c);
    }
    free(lines);
    print_message("%d of %d cases of our own pass\n", n - bad, n);
    assert_true(n > 0);
    assert_int_equal(bad, 0);
}

/* The variables that transformers passes to a template. */
static char *vars_of(const json_t *input) {
    json_t *vars = json_object();
    static const char *const direct[] = {"messages", "tools", "documents", "add_generation_prompt"};
    for (size_t i = 0; i < 4; i++)
        json_object_set(vars, direct[i], json_object_get(input, direct[i]));
    json_object_update(vars, json_object_get(input, "special_tokens"));
    json_object_update(vars, json_object_get(input, "kwargs"));
    char *text = json_dumps(vars, JSON_COMPACT);
    json_decref(vars);
    return text;
}

static void public_templates_render_as_transformers(void **state) {
    (void)state;
    char *lines = read_file("LODE_SHARED", "ref/chat/cases.jsonl");
    if (!lines) {
        print_message("SKIPPED: no ref/chat in LODE_SHARED\n");
        skip();
    }
    const char *only = getenv("LODE_TEMPLATE"); /* to look at one template */
    int n = 0, bad = 0;
    for (char *line = strtok(lines, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *c = json_loads(line, 0, NULL);
        assert_non_null(c);
        char path[512], name[512];
        const char *file = json_string_value(json_object_get(c, "template"));
        if (!only || strstr(file, only)) {
            snprintf(path, sizeof path, "ref/chat/templates/%s", file);
            snprintf(name, sizeof name, "%s %s", file,
                     json_string_value(json_object_get(c, "case")));
            char *source = read_file("LODE_SHARED", path);
            assert_non_null(source);
            char *vars = vars_of(json_object_get(c, "input"));
            n++;
            bad += !check_case(name, source, vars,
                               json_string_value(json_object_get(c, "expected")),
                               json_string_value(json_object_get(c, "error")));
            free(vars);
            free(source);
        }
        json_decref(c);
    }
    free(lines);
    print_message("%d of %d public cases pass\n", n - bad, n);
    assert_int_equal(bad, 0);
}

int main(void) {
    setenv("TZ", "UTC", 1);
    tzset();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(our_cases_render_as_jinja2),
        cmocka_unit_test(public_templates_render_as_transformers),
    };
    return cmocka_run_group_tests_name("template", tests, NULL, NULL);
}
