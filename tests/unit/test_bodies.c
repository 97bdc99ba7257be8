/* What the server answers: an allocation that fails, wherever, fails that request alone; the same request
 * says the same before and after.
 */
#include "failmalloc.h"

#include "../serve_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct server *server;

static const struct {
    size_t api;
    const char *body;
} asked[] = {
    {0, "{\"messages\":[{\"role\":\"user\",\"content\":\"Tell me about a cat.\"}],\"seed\":3,\"max_tokens\":6,"
        "\"logprobs\":true,\"top_logprobs\":2}"},
    {0, "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"seed\":3,\"max_tokens\":30,\"stream\":true,"
        "\"tool_choice\":\"required\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,2]}},\"required\":[\"a\"],"
        "\"additionalProperties\":false}}}]}"},
    {0, "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"tool_calls\":[{\"type\":"
        "\"custom\",\"custom\":{\"name\":\"p\",\"input\":\"x\"}}]},{\"role\":\"tool\",\"content\":\"y\"}],\"seed\":3,"
        "\"max_tokens\":9,\"tools\":[{\"type\":\"custom\",\"custom\":{\"name\":\"p\",\"description\":\"P\",\"format\":"
        "{\"type\":\"grammar\",\"grammar\":{\"syntax\":\"regex\",\"definition\":\"[ab]\"}}}}]}"},
    {1, "{\"prompt\":[\"Once\",\"A dog\"],\"max_tokens\":4,\"seed\":1,\"echo\":true}"},
    {2, "{\"input\":\"Tell me about a cat.\",\"max_output_tokens\":6,\"seed\":3,\"stream\":true}"},
    {3, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"A cat?\"}]}],"
        "\"max_tokens\":6,\"seed\":3,\"stream\":true}"},
    {4, "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"options\":{\"num_predict\":6,\"seed\":3},"
        "\"format\":{\"enum\":[\"yes\",\"no\"]}}"},
};

/* What an answer says, without ids and times; NULL: it failed, *rc says why. */
static char *say(size_t i, int *rc) {
    struct exchange *x;
    struct lode_error err = {0};
    struct lode_buf all = {0};
    json_t *body = json_loads(asked[i].body, 0, NULL);
    if (!body) {
        *rc = LODE_ERR_NOMEM;
        return NULL;
    }
    *rc = exchange_create(&x, server, fixture_api(asked[i].api), body, 0, &err);
    json_decref(body);
    while (*rc >= 0 && *rc != ANSWER_DONE) {
        *rc = exchange_step(x, 50, &err);
        if (x->r.stream)
            lode_buf_clear(&x->out); /* sent */
    }
    for (size_t c = 0; *rc >= 0 && c < answers_choices(x->a); c++) {
        const struct choice *choice = answers_choice(x->a, c);
        for (size_t p = 0; p < choice->n_parts; p++)
            lode_buf_addf(&all, "[%d %s]", (int)choice->parts[p].kind, lode_buf_str(&choice->parts[p].text).data);
        lode_buf_addf(&all, "(%d)", (int)choice->finish);
    }
    if (*rc >= 0 && !x->r.stream) {
        json_t *reply = x->api->reply(x);
        if (!reply)
            *rc = LODE_ERR_NOMEM;
        json_decref(reply);
    }
    exchange_free(x);
    char *text = *rc >= 0 && !all.failed ? strdup(lode_buf_str(&all).data) : NULL;
    lode_buf_free(&all);
    return text;
}

static void without_memory(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        uint64_t failures = 0;
        int rc;
        char *want = say(i, &rc);
        assert_non_null(want);
        for (uint64_t n = 1;; n += 1 + n / 25) { /* each of the first, some of those behind them */
            failmalloc_start(n, false);
            char *got = say(i, &rc);
            const struct failmalloc_stats st = failmalloc_stop();
            if (got && strcmp(got, want))
                fail_msg("request %zu, allocation %d: %s, not %s", i, (int)n, got, want);
            if (rc < 0 && rc != LODE_ERR_NOMEM)
                fail_msg("request %zu, allocation %d: error %d", i, (int)n, rc);
            failures += got == NULL;
            free(got);
            if (st.failed == 0)
                break;
        }
        assert_true(failures > 10);
        char *again = say(i, &rc);
        assert_string_equal(again, want);
        free(again);
        free(want);
    }
}

static int open_all(void **state) {
    struct lode_error err;
    (void)state;
    if (fixture_server(&server, &err) < 0) {
        fprintf(stderr, "%s: %s\n", err.where, err.text);
        return -1;
    }
    return 0;
}

static int close_all(void **state) {
    (void)state;
    serve_close(server);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(without_memory)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
