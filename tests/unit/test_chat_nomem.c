/* Samplers and chat templates while the n-th allocation fails, for every n. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "failmalloc.h"
#include "lode/chat.h"
#include "lode/sampler.h"
#include "lode/toolcall.h"

static int use_template(struct lode_error *err) {
    static const char source[] =
        "{% macro m(a, b=2) %}{{ a ~ b }}{% endmacro %}{% for x in l if x %}{{ m(x) | upper }}"
        "{{ loop.last }}{% endfor %}{{ l | sort | tojson(indent=2) }}{{ '%5d|{}' % 3 }}"
        "{{ 'x' * 200000 }}{% set y %}{{ l | map('string') | join(', ') | replace('1', 'one') }}"
        "{% endset %}{{ y }}{{ '{:>5}'.format(y) }}{{ strftime_now('%Y') }}{{ [y, 1.5] }}";
    static const char vars[] = "{\"l\":[3,1,2.5]}";
    struct lode_template *t;
    char *text;
    size_t len;
    int rc = lode_template_compile(&t, source, strlen(source), err);
    if (rc < 0)
        return rc;
    rc = lode_template_render(t, vars, strlen(vars), 1, &text, &len, err);
    lode_template_free(t);
    if (rc == 0)
        lode_chat_text_free(text);
    return rc;
}

static int ignore(void *user, const struct lode_toolcall_event *e) {
    (void)user;
    (void)e;
    return 0;
}

static int use_toolcall(struct lode_error *err) {
    static const char text[] =
        "<think>hm</think><tool_call>{\"arguments\":\"{\\\"a\\\":1}\",\"name\":\"f\"}</tool_call>"
        "<tool_call>{\"name\":\"f\",\"arguments\":{\"b\":\"x\"}}</tool_call>",
                      tools[] = "[{\"name\":\"f\",\"parameters\":{}}]";
    const struct lode_toolcall_opts o = {.style = {"hermes", "<think>"},
                                         .tools = tools,
                                         .tools_len = sizeof tools - 1,
                                         .put = ignore};
    struct lode_toolcall *p;
    int rc = lode_toolcall_create(&p, &o, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; rc == 0 && i < sizeof text - 1; i += 8)
        rc =
            lode_toolcall_push(p, text + i, sizeof text - 1 - i < 8 ? sizeof text - 1 - i : 8, err);
    if (rc == 0)
        rc = lode_toolcall_finish(p, err);
    lode_toolcall_free(p);
    return rc;
}

static int use_detect(struct lode_error *err) {
    struct lode_template *t;
    struct lode_toolcall_style style;
    const char *source = lode_template_builtin("chatml");
    int rc = lode_template_compile(&t, source, strlen(source), err);
    if (rc < 0)
        return rc;
    rc = lode_toolcall_detect(&style, t, err);
    lode_template_free(t);
    return rc;
}

static int use_sampler(struct lode_error *err) {
    static const int32_t breaker[] = {1, 2, -1}, *const breakers[] = {breaker};
    static const struct lode_logit_bias bias = {1, 2};
    const float logits[4] = {1, 2, 3, 4};
    struct lode_sampler_opts o;
    struct lode_sampler *s;
    lode_sampler_defaults(&o);
    o.repeat_penalty = 1.1f, o.dry_multiplier = 1;
    o.dry_breakers = breakers, o.n_dry_breakers = 1;
    o.bias = &bias, o.n_bias = 1;
    const int rc = lode_sampler_create(&s, 4, &o, err);
    if (rc < 0) {
        assert_null(s);
        return rc;
    }
    for (uint64_t at = 0; at < 5; at++)
        lode_sampler_accept(s, lode_sampler_next(s, logits, at));
    lode_sampler_free(s);
    return 0;
}

static void each_allocation_may_fail(int (*use)(struct lode_error *err), uint64_t at_least) {
    for (int persistent = 0; persistent <= 1; persistent++) {
        for (uint64_t n = 1;; n++) {
            struct lode_error err = {0};
            failmalloc_start(n, persistent);
            const int rc = use(&err);
            const struct failmalloc_stats s = failmalloc_stop();
            assert_int_equal(s.live, 0);
            if (s.failed == 0) {
                assert_int_equal(rc, 0);
                assert_true(n > at_least);
                break;
            }
            assert_int_equal(rc, LODE_ERR_NOMEM);
            assert_non_null(strstr(err.text, "out of memory"));
        }
    }
}

static void templates(void **state) {
    (void)state;
    struct lode_error err;
    assert_int_equal(use_template(&err), 0); /* what the C library keeps, it has now */
    each_allocation_may_fail(use_template, 10);
}

static void toolcalls(void **state) {
    (void)state;
    each_allocation_may_fail(use_toolcall, 5);
    each_allocation_may_fail(use_detect, 10);
}

static void samplers(void **state) {
    (void)state;
    each_allocation_may_fail(use_sampler, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates),
        cmocka_unit_test(toolcalls),
        cmocka_unit_test(samplers),
    };
    return cmocka_run_group_tests_name("chat_nomem", tests, NULL, NULL);
}
