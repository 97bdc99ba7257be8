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
#include "effort.h"
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
static bool check_case(const char *name, const char *source, const char *vars, const char *expected,
                       const char *error) {
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
            bad +=
                !check_case(name, source, vars, json_string_value(json_object_get(c, "expected")),
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

/* The template of the bundled model, as its tokenizer_config.json has it. */
static void the_demo_template_renders(void **state) {
    (void)state;
    char *config = read_file("LODE_SHARED", "models/demo/hf/tokenizer_config.json");
    if (!config) {
        print_message("SKIPPED: no models/demo in LODE_SHARED\n");
        skip();
    }
    json_t *c = json_loads(config, 0, NULL);
    const char *source = json_string_value(json_object_get(c, "chat_template"));
    assert_non_null(source);
    assert_true(
        check_case("demo", source,
                   "{\"messages\":[{\"role\":\"system\",\"content\":\"Be kind.\"},"
                   "{\"role\":\"user\",\"content\":\"1+1?\"},"
                   "{\"role\":\"assistant\",\"content\":\"<think>\\nadd\\n</think>\\n\\n2\"},"
                   "{\"role\":\"user\",\"content\":\"Thanks!\"}],"
                   "\"add_generation_prompt\":true,\"enable_thinking\":false}",
                   "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n1+1?<|im_end|>\n"
                   "<|im_start|>assistant\n2<|im_end|>\n<|im_start|>user\nThanks!<|im_end|>\n"
                   "<|im_start|>assistant\n<think>\n\n</think>\n\n",
                   NULL));
    assert_true(check_case(
        "demo with tools", source,
        "{\"tools\":[{\"name\":\"f\"}],\"messages\":[{\"role\":\"user\",\"content\":\"Go\"},"
        "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\","
        "\"arguments\":{\"a\":1}}}]},{\"role\":\"tool\",\"content\":\"ok\"}]}",
        "<|im_start|>system\n# Tools\n\nYou can call functions to help the user. Their signatures "
        "are within <tools></tools> tags:\n<tools>\n{\"name\": \"f\"}\n</tools>\n\nTo call a "
        "function, write a JSON object with its name and arguments within <tool_call></tool_call> "
        "tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n"
        "</tool_call><|im_end|>\n<|im_start|>user\nGo<|im_end|>\n<|im_start|>assistant\n"
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\nok\n</tool_response><|im_end|>\n",
        NULL));
    json_decref(c);
    free(config);
}

/* ---- limits: each of these would hang or fill the memory ---- */

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static const char *const greedy[] = {
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{{ 'a' * 1000000000000 }}",
    "{{ [1] * 9223372036854775807 }}",
    "{% set ns = namespace(s='ab') %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor "
    "%}",
    "{% set ns = namespace(l=[1]) %}{% for i in range(64) %}{% set ns.l = ns.l + ns.l %}{% endfor "
    "%}",
    "{% set ns = namespace(l=(1,)) %}{% for i in range(100) %}{% set ns.l = (ns.l, ns.l) %}"
    "{% endfor %}{{ ns.l }}",
    "{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}"
    "{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
    "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% macro f(x) %}{{ f([x]) }}{{ f([x]) }}{% endmacro %}{{ f(1) }}",
    "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "{{ range(1000000) }}",
    "{{ range(-9223372036854775807, 9223372036854775807) }}",
    "{% set s = 'x' * 100000 %}{% for i in range(100000) %}{{ s }}{% endfor %}",
    "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{{ s.replace('a', s) }}{% endfor %}",
    "{{ ('a' * 1000000).rsplit('a' + 'b' * 500000 + 'a') }}"
    "{{ ('a' * 4000000).rfind('a' + 'a' * 2000000 + 'b' + 'a' * 5) }}"
    "{% set s = 'a' * 2000000 %}{% for i in range(10000) %}{{ s.rfind(s[5:] ~ 'b' ~ s[:5]) }}"
    "{{ s[:1999999].rfind('aa' ~ 'b' ~ s[:1000000] ~ 'a') }}{% endfor %}",
    "{% set s = 'ab' * 1000000 %}{{ s.strip(s ~ 'c') }}",
    "{% set s = 'é' * 1000000 %}{% for i in range(100000) %}{{ s[999999] }}{% endfor %}",
    "{% for i in range(100000) %}{{ range(100000) | sum }}{% endfor %}",
    "{% for i in range(100000) %}{{ '%10000d' % 1 }}{{ 'x'.center(10000) }}{% endfor %}",
    "{% for i in range(100000) %}{% for j in range(100000) %}{{ 0.1 }}{% endfor %}{% endfor %}",
    "{% set s = 'aB' * 500000 %}{% for i in range(100000) %}{% set x = s.upper() %}{% endfor %}",
    "{% set s = 'aB' * 500000 %}{% for i in range(100000) %}{% set x = s is lower %}{% endfor %}",
    "{% set n = namespace(t=()) %}{% for i in range(100000) %}{% set n.t = (n.t, i) %}{% endfor %}"
    "{{ {n.t: 1} }}",
    "{% for i in range(100000) %}{{ '{:{w}}'.format(1, w=9999) }}{% endfor %}",
    "{% for i in range(100000) %}{{ ('\\t' * 100000).expandtabs(1000) }}{% endfor %}",
    "{% set s = 'ﬃ' * 300000 %}{% for i in range(100000) %}{% set x = s.upper() %}{% endfor %}",
    "{% macro m(a) %}{{ m(a) if a else '' }}{% call m(a) %}{% endcall %}{% endmacro %}{{ m(1) }}",
    "{{ 2 ** 64 }}",
    "{{ 9223372036854775807 + 1 }}",
};

static void nothing_hangs_or_fills_the_memory(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof greedy / sizeof *greedy; i += effort_step(1)) {
        struct lode_error err;
        char *text;
        const double start = seconds();
        const size_t before = lode_alloc_active();
        const int rc = render(greedy[i], "{}", &text, &err);
        const double took = seconds() - start;
        /* a tuple nested too deeply is said not to be a key: a type error, not a limit */
        if (rc != LODE_ERR_LIMIT && !strstr(err.text, "cannot be a key"))
            fail_msg("%s: returns %d %s", greedy[i], rc, err.text);
        if (took > 3)
            print_message("%.1f s: %s\n", took, greedy[i]);
        assert_true(took < 60); /* seconds at worst, minutes under sanitizers and emulation */
        assert_int_equal(lode_alloc_active(), before);
    }
    /* 256 MB of values, 64 MB of output that may be growing, the tree */
    assert_true(lode_alloc_peak() < (size_t)512 << 20);
}

/* Sources that nest, each deeper than any real template. */
static void deep_nesting_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *open, *middle, *close;
    } shapes[] = {
        {"{{ (", "1", ""},
        {"{{ [", "1", ""},
        {"{{ {'a':", "1", ""},
        {"{{ not ", "1", " }}"},
        {"{{ -", "1", " }}"},
        {"{{ 1+", "1", " }}"},
        {"{{ 1 if 1 else ", "1", " }}"},
        {"{{ x[", "1", ""},
        {"{{ f(", "1", ""},
        {"{{ x", ".y", " }}"},
        {"{{ x", "|e", " }}"},
        {"{% if 1 %}", "1", ""},
        {"{% for x in y %}", "1", ""},
        {"{% macro m() %}", "1", ""},
        {"{% set (", "a", ""},
    };
    enum { DEEP = 20000 };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const char *repeated = strstr("1+ .y |e", shapes[i].middle) ? shapes[i].middle : NULL;
        const char *open = shapes[i].open;
        size_t len = 0;
        char *source = malloc(DEEP * 20 + 100);
        assert_non_null(source);
        const char *body = strncmp(open, "{{ ", 3) == 0 ? open + 3 : open;
        if (body != open)
            len += (size_t)sprintf(source, "{{ ");
        if (repeated && *repeated != '1')
            len += (size_t)sprintf(source + len, "%s", body);
        for (int k = 0; k < DEEP; k++)
            len +=
                (size_t)sprintf(source + len, "%s", repeated && *repeated != '1' ? repeated : body);
        sprintf(source + len, "%s%s", shapes[i].middle, shapes[i].close);
        struct lode_template *t;
        struct lode_error err;
        const int rc = lode_template_compile(&t, source, strlen(source), &err);
        if (rc != LODE_ERR_LIMIT && rc != LODE_ERR_FORMAT)
            fail_msg("%s...: returns %d", open, rc);
        assert_true(strstr(err.text, "deep"));
        free(source);
    }
}

/* A character iterates to itself, so map can be told to map for ever. */
static void built_ins_recurse_within_limits(void **state) {
    (void)state;
    enum { DEEP = 50000 };
    char *source = malloc(DEEP * 6 + 100), *text;
    assert_non_null(source);
    struct lode_error err;
    size_t len = (size_t)sprintf(source, "{{ 'a' | map(");
    for (int i = 0; i < DEEP; i++)
        len += (size_t)sprintf(source + len, "'map',");
    sprintf(source + len, "'list') }}");
    assert_int_equal(render(source, "{}", &text, &err), LODE_ERR_LIMIT);
    assert_non_null(strstr(err.text, "recurses"));
    free(source);
}

static void deep_json_is_refused(void **state) {
    (void)state;
    static char vars[100000];
    struct lode_error err;
    char *text;
    memset(vars, '[', sizeof vars - 1);
    assert_int_equal(render("x", vars, &text, &err), LODE_ERR_ARG);
    static const char *const bad[] = {"",
                                      "[]",
                                      "{",
                                      "{\"a\":}",
                                      "{\"a\" 1}",
                                      "{\"a\":1,}",
                                      "{\"a\":01}",
                                      "{} x",
                                      "{\"a\":1.}",
                                      "{'a':1}",
                                      "{\"a\":nul}",
                                      "{\"a\":\"\n\"}",
                                      "{\"a\":\"\\x\"}",
                                      "{\"a\":\"\xff\"}",
                                      "{\"a\":[1 2]}",
                                      "{1:2}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(render("x", bad[i], &text, &err), LODE_ERR_ARG);
        assert_non_null(strstr(err.text, "not "));
    }
}

static void errors_name_the_line(void **state) {
    (void)state;
    struct lode_error err;
    char *text;
    assert_int_equal(render("a\n{% if x %}\n\n{{ y.z }}{% endif %}", "{\"x\":1}", &text, &err),
                     LODE_ERR_FORMAT);
    assert_string_equal(err.where, "chat template line 4");
    assert_string_equal(err.text, "'y' is undefined");
    assert_int_equal(render("a\n\n{% fi %}", "{}", &text, &err), LODE_ERR_FORMAT);
    assert_string_equal(err.where, "chat template line 3");
    assert_int_equal(render("{{ raise_exception('Only \\'one\\'') }}", "{}", &text, &err),
                     LODE_ERR_ARG);
    assert_string_equal(err.text, "Only 'one'");
    assert_int_equal(render("\xff", "{}", &text, &err), LODE_ERR_FORMAT);
    assert_int_equal(render("{% include 'x' %}", "{}", &text, &err), LODE_ERR_UNSUPPORTED);
}

/* A template is shared: what one rendering sets, another does not see. */
static void renderings_are_apart(void **state) {
    (void)state;
    static const char source[] = "{{ x }}{% set x = 2 %}{% set ns = namespace(a=x) %}{{ ns.a }}";
    struct lode_template *t;
    struct lode_error err;
    assert_int_equal(lode_template_compile(&t, source, strlen(source), &err), 0);
    for (int i = 0; i < 3; i++) {
        char *text;
        size_t len;
        assert_int_equal(lode_template_render(t, "{\"x\":1}", 7, 0, &text, &len, &err), 0);
        assert_string_equal(text, "12");
        lode_chat_text_free(text);
    }
    lode_template_free(t);
    lode_template_free(NULL);
    lode_chat_text_free(NULL);
}

/* A rendering may take JINJA_MAX_STEPS (32 million) steps: 40000 messages have 800 each, and would
 * need more than 800 million in all if a message cost steps for every one before it. */
static void long_conversations_take_linear_time(void **state) {
    (void)state;
    enum { N = 40000 };
    static const char *const names[] = {"chatml", "llama3", "gemma", "mistral-v3", "gpt-oss"};
    char *input = malloc((size_t)N * 100), *text;
    assert_non_null(input);
    size_t n = (size_t)sprintf(input, "[{\"role\":\"system\",\"content\":\"s\"}");
    for (int i = 0; i < N; i++)
        n += (size_t)sprintf(input + n,
                             ",{\"role\":\"%s\",\"content\":\"number %d, of some length\"}",
                             i % 2 ? "assistant" : "user", i);
    strcpy(input + n++, "]");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct lode_template *t;
        struct lode_error err = {0};
        const char *source = lode_template_builtin(names[i]);
        size_t len;
        assert_int_equal(lode_template_compile(&t, source, strlen(source), &err), 0);
        if (lode_template_render_chat(t, input, n, NULL, 0, NOW, &text, &len, &err) < 0)
            fail_msg("%s: %s", names[i], err.text);
        assert_non_null(strstr(text, "number 39999"));
        lode_chat_text_free(text);
        lode_template_free(t);
    }
    free(input);
}

int main(void) {
    setenv("TZ", "UTC", 1);
    tzset();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(our_cases_render_as_jinja2),
        cmocka_unit_test(public_templates_render_as_transformers),
        cmocka_unit_test(the_demo_template_renders),
        cmocka_unit_test(nothing_hangs_or_fills_the_memory),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(built_ins_recurse_within_limits),
        cmocka_unit_test(deep_json_is_refused),
        cmocka_unit_test(errors_name_the_line),
        cmocka_unit_test(renderings_are_apart),
        cmocka_unit_test(long_conversations_take_linear_time),
    };
    return cmocka_run_group_tests_name("template", tests, NULL, NULL);
}
