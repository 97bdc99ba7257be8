/* serve_fixture.h - a server without connections over a small model, for tests of what it answers. */
#ifndef LODE_TESTS_SERVE_FIXTURE_H
#define LODE_TESTS_SERVE_FIXTURE_H

#include "own_files.h"

#include "lode/lode.h"
#include "serve/exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fixture_open(void *user, size_t i, struct serve_loaded *out, struct lode_error *err) {
    static const char *const names[] = {"chatml"};
    (void)user, (void)i;
    *out = (struct serve_loaded){0};
    int rc = lode_model_load(&out->model, own_file("../models/demo.gguf"), NULL, err);
    if (rc < 0)
        return rc;
    out->template = lode_model_info(out->model)->chat_template;
    if (!out->template)
        out->template = lode_template_builtin(names[0]);
    lode_sampler_defaults(&out->sampling);
    return lode_scheduler_create(&out->scheduler, out->model,
                                 &(struct lode_scheduler_opts){
                                     .slots = 2, .session = {.ctx = 512, .threads = 1}},
                                 err);
}

static void fixture_close(void *user, size_t i, struct serve_loaded *l) {
    (void)user, (void)i;
    lode_model_free(l->model);
}

static int fixture_server(struct server **out, struct lode_error *err) {
    static const struct serve_model model = {.name = "demo", .path = "demo", .at_start = true};
    return serve_open(out,
                      &(struct serve_opts){.models = &model, .n_models = 1, .open = fixture_open,
                                           .close = fixture_close, .host = "127.0.0.1", .control_fd = -1},
                      err);
}

/* An API by number; NULL behind the last. */
static const struct api *fixture_api(size_t i) {
    const struct api *const apis[] = {&openai_chat, &openai_text, &openai_responses,
                                      &anthropic_messages, &ollama_chat, &ollama_generate};
    return i < sizeof apis / sizeof *apis ? apis[i] : NULL;
}

#endif
