/* A server without connections (serve_ask): every allocation of a request fails in turn, and that request
 * alone; the next one gives what it always gave.  What leaks, the address sanitizer tells.
 */
#include "../own_files.h"
#include "effort.h"
#include "failmalloc.h"

#include "lode/model.h"
#include "serve/serve.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char path[1024];

static int open_model(void *user, size_t i, struct serve_loaded *out, struct lode_error *err) {
    (void)user, (void)i;
    int rc = lode_model_load(&out->model, path, &(struct lode_model_opts){.device = "cpu"}, err);
    if (rc < 0)
        return rc;
    rc = lode_scheduler_create(&out->scheduler, out->model,
                               &(struct lode_scheduler_opts){.session = {.ctx = 256, .threads = 1}, .slots = 1},
                               err);
    if (rc < 0) {
        lode_model_free(out->model);
        return rc;
    }
    lode_sampler_defaults(&out->sampling);
    out->template = lode_model_info(out->model)->chat_template;
    return 0;
}

static void close_model(void *user, size_t i, struct serve_loaded *l) {
    (void)user, (void)i;
    lode_model_free(l->model);
}

static const struct serve_model demo = {.name = "demo", .path = path, .at_start = true};
static const struct serve_opts opts = {.models = &demo, .n_models = 1, .open = open_model, .close = close_model};

static bool never(void *user) {
    (void)user;
    return false;
}

static int ask(struct server *s, const char *url, const char *body, char **reply) {
    return serve_ask(s, url, body, strlen(body), never, NULL, reply);
}

/* What an answer says, without ids, times and counts of cached tokens: from "content" or the like on. */
static char *said(const char *reply) {
    static const char *const keys[] = {"\"content\":", "\"output\":", "\"text\":", "\"tokens\":", "\"embedding\":",
                                       "\"data\":", "\"scores\":", "\"results\":"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *at = strstr(reply, keys[i]);
        if (at)
            return strndup(at, strcspn(at, "}"));
    }
    return strdup("");
}

static const char *const requests[][2] = {
    {"/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"seed\":1,\"max_tokens\":2}"},
    {"/v1/completions", "{\"prompt\":\"Once\",\"seed\":1,\"max_tokens\":2,\"logprobs\":1}"},
    {"/v1/messages", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"temperature\":0,\"max_tokens\":2}"},
    {"/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"temperature\":0,\"max_tokens\":3,"
                             "\"response_format\":{\"type\":\"json_object\"}}"},
    {"/tokenize", "{\"content\":\"Hello, world\"}"},
    {"/v1/responses", "{\"input\":\"Hi\",\"temperature\":0,\"max_output_tokens\":2}"},
    {"/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"temperature\":0,\"max_tokens\":20,"
                             "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{"
                             "\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"boolean\"}}}}}],"
                             "\"tool_choice\":\"required\",\"timeout\":3600}"},
    {"/v1/completions", "{\"prompt\":[\"Once\",\"Twice\"],\"seed\":1,\"max_tokens\":2,\"n\":2,\"best_of\":3,\"stop\":\"x\"}"},
    {"/v1/embeddings", "{\"input\":[\"Hello\",\"world\"]}"},
    {"/v1/completions", "{\"prompt\":\"Once upon\",\"echo\":true,\"logprobs\":1,\"max_tokens\":0}"},
    {"/v1/completions", "{\"prompt\":\"Once\",\"use_beam_search\":true,\"n\":2,\"max_tokens\":2,\"echo\":true}"},
    {"/v1/classify", "{\"input\":[\"Once\",\"Two\"],\"labels\":[\" a\",\" time\"]}"},
    {"/v1/score", "{\"query\":\"Once\",\"items\":[\" a\"],\"label_token_ids\":[1,2]}"},
    {"/v1/score", "{\"text_1\":\"Once\",\"text_2\":[\"a\",\"b\"]}"},
    {"/v1/rerank", "{\"query\":\"Once\",\"documents\":[\"a\",\"b\"],\"return_documents\":true}"},
    {"/api/chat", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"stream\":false,"
                  "\"options\":{\"temperature\":0,\"num_predict\":2}}"},
    {"/api/generate", "{\"prompt\":\"Hi\",\"stream\":false,\"options\":{\"temperature\":0,\"num_predict\":2}}"},
    {"/apply-template", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}"},
};

static void test_each_allocation(void **state) {
    struct server *s;
    struct lode_error err = {0};
    (void)state;
    assert_int_equal(serve_open(&s, &opts, &err), 0);
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        const char *url = requests[i][0], *body = requests[i][1];
        char *first, *reply;
        assert_int_equal(ask(s, url, body, &first), 200);
        char *wanted = said(first);
        free(first);
        failmalloc_start(0, false);
        ask(s, url, body, &reply);
        free(reply);
        const uint64_t calls = failmalloc_stop().calls;
        const uint64_t step = at_length() ? 1 : 1 + calls / effort(150);
        unsigned failed = 0;
        for (uint64_t n = 1; n <= calls; n += step) {
            failmalloc_start(n, n % 3 == 0);
            const int status = ask(s, url, body, &reply);
            const uint64_t hit = failmalloc_stop().failed;
            failed += status != 200 || !reply;
            if (status != 200 && status != 503 && status != 500)
                fail_msg("%s: allocation %d failed: status %d: %s", url, (int)n, status, reply ? reply : "");
            if (!hit && (status != 200 || !reply))
                fail_msg("%s: nothing failed, but status %d", url, status);
            free(reply);
            const int after = ask(s, url, body, &reply);
            assert_int_equal(after, 200);
            char *text = said(reply);
            assert_string_equal(text, wanted);
            free(text);
            free(reply);
        }
        assert_true(failed > 0);
        free(wanted);
    }
    serve_close(s);
}

/* Opening fails with one error, and leaves nothing. */
static void test_open(void **state) {
    (void)state;
    failmalloc_start(0, false);
    struct server *s;
    struct lode_error err = {0};
    assert_int_equal(serve_open(&s, &opts, &err), 0);
    serve_close(s);
    const uint64_t calls = failmalloc_stop().calls;
    const uint64_t step = 1 + calls / (at_length() ? 2000 : effort(30));
    for (uint64_t n = 1; n <= calls; n += step) {
        failmalloc_start(n, false);
        const int rc = serve_open(&s, &opts, &err);
        failmalloc_stop();
        if (rc == 0)
            serve_close(s); /* it could do without */
        else
            assert_true(err.code == LODE_ERR_NOMEM || *err.text);
    }
}

int main(void) {
    snprintf(path, sizeof path, "%.900s", own_file("../models/demo.gguf"));
    const struct CMUnitTest all[] = {cmocka_unit_test(test_each_allocation), cmocka_unit_test(test_open)};
    return cmocka_run_group_tests(all, NULL, NULL);
}
