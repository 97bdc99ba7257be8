/* routes.c - the small routes: what the server is, and its tokenizer and template. */
#include "serve/server.h"

#include "base/buf.h"
#include "serve/fields.h"
#include "serve/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *route_models(struct server *s) {
    const struct lode_model_info *m = lode_model_info(s->model.model);
    return json_pack("{s:s, s:[{s:s, s:s, s:I, s:s, s:{s:I, s:I, s:I, s:I, s:I}}]}", "object",
                     "list", "data", "id", s->model.name, "object", "model", "created",
                     (json_int_t)s->started, "owned_by", "lode", "meta", "n_ctx_train",
                     (json_int_t)m->ctx_train, "n_ctx",
                     (json_int_t)lode_scheduler_ctx(s->model.scheduler), "n_vocab",
                     (json_int_t)m->n_vocab, "n_params", (json_int_t)m->n_params, "size",
                     (json_int_t)m->size);
}

json_t *item_models(struct server *s, const char *method, const char *id, struct lode_error *err) {
    json_t *all = route_models(s), *m, *found = NULL;
    size_t i;
    (void)method;
    json_array_foreach(json_object_get(all, "data"), i, m)
        if (!strcmp(json_string_value(json_object_get(m, "id")), id))
            found = json_incref(m);
    json_decref(all);
    if (!found) {
        *err = (struct lode_error){.code = LODE_ERR_MISSING, .where = "model"};
        snprintf(err->text, sizeof err->text, "there is no model \"%.100s\" here", id);
    }
    return found;
}

json_t *route_props(struct server *s) {
    const struct lode_sampler_opts *o = &s->model.sampling;
    return json_pack(
        "{s:{s:I, s:{s:f, s:i, s:f, s:f, s:f}}, s:I, s:s, s:s, s:o, s:s}",
        "default_generation_settings", "n_ctx", (json_int_t)lode_scheduler_ctx(s->model.scheduler),
        "params", "temperature", (double)o->temp, "top_k", (int)o->top_k, "top_p",
        (double)o->top_p, "min_p", (double)o->min_p, "repeat_penalty", (double)o->repeat_penalty,
        "total_slots", (json_int_t)lode_scheduler_slots(s->model.scheduler), "model_alias", s->model.name,
        "model_path", lode_model_info(s->model.model)->path, "chat_template",
        s->model.template ? json_string(s->model.template) : json_null(), "build_info",
        "lode " LODE_VERSION);
}

/* llama.cpp's list of slots: here any place may hold any request, so the first ones are the busy. */
json_t *route_slots(struct server *s) {
    struct lode_scheduler_stats st;
    json_t *list = json_array();
    lode_scheduler_stats(s->model.scheduler, &st);
    for (uint32_t i = 0; i < lode_scheduler_slots(s->model.scheduler); i++)
        json_array_append_new(list, json_pack("{s:I, s:I, s:b}", "id", (json_int_t)i, "n_ctx",
                                              (json_int_t)lode_scheduler_ctx(s->model.scheduler),
                                              "is_processing", i < st.running));
    return list;
}

json_t *route_tokenize(struct server *s, const json_t *body, struct lode_error *err) {
    struct request r;
    struct prompt p = {0};
    bool special = false, parse = true, pieces = false;
    const json_t *content = json_object_get(body, "content");
    int rc = request_init(&r, s, body, err);
    if (rc == 0 && !json_is_string(content))
        rc = field_fail(err, "content", "a string expected");
    if (rc == 0)
        rc = field_bool(body, "add_special", &special, err);
    if (rc == 0)
        rc = field_bool(body, "parse_special", &parse, err);
    if (rc == 0)
        rc = field_bool(body, "with_pieces", &pieces, err);
    if (rc == 0)
        rc = prompt_tokenize(&p, r.m, json_string_value(content), json_string_length(content),
                             (special ? LODE_TOK_SPECIAL : 0) | (parse ? LODE_TOK_PARSE : 0), err);
    json_t *ids = rc == 0 ? json_array() : NULL;
    for (size_t i = 0; ids && i < p.n; i++) {
        struct lode_token_info info;
        if (pieces && lode_token_info(r.m->tokenizer, p.ids[i], &info) == 0)
            json_array_append_new(ids, json_pack("{s:i, s:o}", "id", (int)p.ids[i], "piece",
                                                 json_stringn(info.piece, info.piece_len)));
        else
            json_array_append_new(ids, json_integer(p.ids[i]));
    }
    prompt_free(&p);
    request_deinit(&r);
    return ids ? json_pack("{s:o}", "tokens", ids) : NULL;
}

json_t *route_detokenize(struct server *s, const json_t *body, struct lode_error *err) {
    struct request r;
    struct prompt p = {0};
    json_t *list = NULL, *reply = NULL;
    int rc = request_init(&r, s, body, err);
    if (rc == 0)
        rc = field_array(body, "tokens", &list, err);
    if (rc == 0 && !list)
        rc = field_fail(err, "tokens", "a list of token ids expected");
    if (rc == 0)
        rc = prompt_ids(&p, list, "tokens", err);
    int64_t n = rc == 0 ? lode_detokenize(r.m->tokenizer, p.ids, p.n, false, NULL, 0, err) : -1;
    char *text = n >= 0 ? malloc((size_t)n + 1) : NULL;
    if (text) {
        n = lode_detokenize(r.m->tokenizer, p.ids, p.n, false, text, (size_t)n, err);
        reply = json_pack("{s:o}", "content", json_stringn(text, (size_t)n));
    }
    free(text);
    prompt_free(&p);
    request_deinit(&r);
    return reply;
}

json_t *route_template(struct server *s, const json_t *body, struct lode_error *err) {
    struct request r;
    struct prompt p = {0};
    char *text = NULL;
    int rc = request_init(&r, s, body, err);
    if (rc == 0)
        rc = talk_read(&r.talk, r.body, err);
    if (rc == 0)
        rc = request_tools(&r, err);
    if (rc == 0)
        rc = prompt_chat(&p, r.m, &r.talk, &r.style, &text, err);
    json_t *reply = text ? json_pack("{s:s}", "prompt", text) : NULL;
    lode_chat_text_free(text);
    request_deinit(&r);
    return reply;
}

/* ---- metrics ---- */

static void metric(struct lode_buf *b, const char *name, const char *type, double value,
                   const char *help) {
    lode_buf_addf(b, "# HELP %s %s\n# TYPE %s %s\n%s %.17g\n", name, help, name, type, name, value);
}

char *route_metrics(struct server *s) {
    struct lode_scheduler_stats st;
    struct lode_buf b = {0};
    lode_scheduler_stats(s->model.scheduler, &st);
    const struct {
        const char *name, *type;
        double value;
        const char *help;
    } rows[] = {
        {"llamacpp:prompt_tokens_total", "counter", (double)(st.prompt_tokens - st.reused_tokens),
         "Prompt tokens of started requests that were not found in a slot."},
        {"llamacpp:tokens_predicted_total", "counter", (double)st.generated_tokens,
         "Tokens generated."},
        {"llamacpp:requests_processing", "gauge", st.running, "Requests that run."},
        {"llamacpp:requests_deferred", "gauge", st.waiting, "Requests that wait in the queue."},
        {"llamacpp:n_decode_total", "counter", (double)st.steps, "Steps of the model."},
        {"lode:reused_tokens_total", "counter", (double)st.reused_tokens,
         "Prompt tokens of started requests that a slot already had."},
        {"lode:step_tokens_total", "counter", (double)st.fed_tokens, "Tokens evaluated in steps."},
        {"lode:step_seconds_total", "counter", st.seconds, "Time spent in steps."},
        {"lode:kv_tokens", "gauge", (double)st.kv_used, "Tokens that the slots hold."},
        {"lode:kv_tokens_max", "gauge", (double)st.kv_size, "Tokens that the slots can hold."},
        {"lode:requests_finished_total", "counter", (double)st.finished,
         "Generations that came to their end."},
        {"lode:requests_cancelled_total", "counter", (double)st.cancelled,
         "Generations ended by a stop text or by a client that went away."},
        {"lode:requests_failed_total", "counter", (double)st.failed, "Generations that failed."},
        {"lode:requests_refused_total", "counter", (double)st.refused,
         "Generations refused because the queue was full."},
        {"lode:http_requests_total", "counter", (double)atomic_load(&s->requests),
         "HTTP requests."},
        {"lode:http_errors_total", "counter", (double)atomic_load(&s->n_errors),
         "HTTP requests answered with an error."},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        metric(&b, rows[i].name, rows[i].type, rows[i].value, rows[i].help);
    char *text = b.failed ? NULL : strndup(lode_buf_str(&b).data, b.len);
    lode_buf_free(&b);
    return text;
}
