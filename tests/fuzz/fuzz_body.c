/* fuzz_body.c - bodies of every API and route: whatever comes, an answer or an error that says why.
 *
 * The first byte says where the body goes.  Answers run for a few steps and are then left, as by
 * clients that go away.
 */
#include "../serve_fixture.h"

#include "serve/fields.h"
#include "serve/json_read.h"

static const char *const paths[] = {"/v1/embeddings", "/v1/rerank", "/tokenize", "/detokenize",
                                    "/apply-template", "/v1/messages/count_tokens",
                                    "/v1/responses/input_tokens", "/api/show", "/api/embed",
                                    "/v1/classify", "/v1/score"};

static struct server *server(void) {
    static struct server *s;
    struct lode_error err;
    if (!s && fixture_server(&s, &err) < 0) {
        fprintf(stderr, "%s: %s\n", err.where, err.text);
        abort();
    }
    return s;
}

/* An error must have words, and a shape. */
static void check_error(const struct api *api, int rc, struct lode_error *err) {
    if (!err->text[0])
        abort();
    err->code = rc;
    json_t *e = api->error(status_of(err), err);
    if (!e)
        abort();
    json_decref(e);
}

static void exchange(const struct api *api, const char *text, size_t len) {
    struct exchange *x;
    struct lode_error err = {0};
    json_t *body = json_read(text, len, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(body)) {
        json_decref(body);
        return;
    }
    int rc = exchange_create(&x, server(), api, body, 0, &err);
    json_decref(body);
    for (int i = 0; rc >= 0 && rc != ANSWER_DONE && i < 6; i++)
        rc = exchange_step(x, 20, &err);
    if (rc < 0) {
        check_error(api, rc, &err);
    } else if (rc == ANSWER_DONE && !x->r.stream) {
        json_t *reply = api->reply(x);
        if (!reply)
            abort();
        json_decref(reply);
    }
    exchange_free(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { N_APIS = 6, N_PATHS = sizeof paths / sizeof *paths };
    if (size < 1 || size > 20000)
        return 0;
    const size_t which = (size_t)(data[0] - 'a') % (N_APIS + N_PATHS);
    const char *text = (const char *)data + 1;
    if (which < N_APIS) {
        exchange(fixture_api(which), text, size - 1);
        return 0;
    }
    char *reply;
    const int status = serve_ask(server(), paths[which - N_APIS], text, size - 1, NULL, NULL, &reply);
    if (!reply || status < 200)
        abort();
    free(reply);
    return 0;
}
