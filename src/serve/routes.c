/* routes.c - the small routes: what the server is, and its tokenizer and template. */
#include "serve/server.h"

#include "base/buf.h"
#include "serve/fields.h"
#include "serve/models.h"
#include "serve/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *state_name(enum model_state state) {
    static const char *const names[] = {[MODEL_UNLOADED] = "unloaded",
                                        [MODEL_LOADING] = "loading",
                                        [MODEL_LOADED] = "loaded",
                                        [MODEL_UNLOADING] = "unloading"};
    return names[state];
}

struct model_list {
    const struct server *s;
    json_t *list;
};

static void add_model(void *user, const struct model_view *v) {
    struct model_list *l = user;
    json_t *aliases = json_array(), *meta = json_pack("{s:I}", "size", (json_int_t)v->size);
    for (size_t i = 0; i < v->spec->n_aliases; i++)
        json_array_append_new(aliases, json_string(v->spec->aliases[i]));
    if (v->state == MODEL_LOADED) {
        const struct lode_model_info *m = lode_model_info(v->served->model);
        json_decref(meta);
        meta = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "n_ctx_train", (json_int_t)m->ctx_train,
                         "n_ctx", (json_int_t)v->ctx, "n_vocab", (json_int_t)m->n_vocab, "n_params",
                         (json_int_t)m->n_params, "size", (json_int_t)m->size, "memory",
                         (json_int_t)v->size);
    }
    const time_t started = (time_t)l->s->started;
    char stamp[32];
    struct tm tm;
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&started, &tm));
    /* "type", "display_name" and "created_at" are Anthropic's */
    json_array_append_new(
        l->list, json_pack("{s:s, s:s, s:I, s:s, s:s, s:s, s:s, s:o, s:{s:s}, s:o}", "id", v->spec->name, "object",
                           "model", "created", (json_int_t)started, "owned_by", "lode", "type", "model",
                           "display_name", v->spec->name, "created_at", stamp, "aliases", aliases, "status",
                           "value", state_name(v->state), "meta", meta));
}

json_t *route_models(struct server *s) {
    struct model_list l = {.s = s, .list = json_array()};
    models_each(s->models, add_model, &l);
    return json_pack("{s:s, s:o, s:b}", "object", "list", "data", l.list, "has_more", false);
}

json_t *item_models(struct server *s, const char *method, const char *id, struct lode_error *err) {
    json_t *all = route_models(s), *found = NULL, *v, *alias;
    size_t i, k;
    (void)method;
    json_array_foreach(json_object_get(all, "data"), i, v) {
        bool is = !strcmp(json_string_value(json_object_get(v, "id")), id);
        json_array_foreach(json_object_get(v, "aliases"), k, alias)
            is = is || !strcmp(json_string_value(alias), id);
        if (is && !found)
            found = json_incref(v);
    }
    json_decref(all);
    if (!found) {
        *err = (struct lode_error){.code = LODE_ERR_MISSING, .where = "model"};
        snprintf(err->text, sizeof err->text, "there is no model \"%.100s\" here", id);
    }
    return found;
}

json_t *route_props(struct server *s) {
    struct served *m;
    struct lode_error err;
    if (server_model(s, NULL, &m, &err) < 0)
        return json_pack("{s:s, s:s}", "build_info", "lode " LODE_VERSION, "error", err.text);
    const struct lode_sampler_opts *o = &m->sampling;
    json_t *reply = json_pack(
        "{s:{s:I, s:{s:f, s:i, s:f, s:f, s:f}}, s:I, s:s, s:s, s:o, s:s}",
        "default_generation_settings", "n_ctx", (json_int_t)lode_scheduler_ctx(m->scheduler),
        "params", "temperature", (double)o->temp, "top_k", (int)o->top_k, "top_p",
        (double)o->top_p, "min_p", (double)o->min_p, "repeat_penalty", (double)o->repeat_penalty,
        "total_slots", (json_int_t)lode_scheduler_slots(m->scheduler), "model_alias", m->name,
        "model_path", lode_model_info(m->model)->path, "chat_template",
        m->template ? json_string(m->template) : json_null(), "build_info",
        "lode " LODE_VERSION);
    server_release(s, m);
    return reply;
}

/* llama.cpp's list of slots: here any place may hold any request, so the first ones are the busy. */
static void add_slots(void *user, const struct model_view *v) {
    json_t *list = user;
    for (uint32_t i = 0; i < v->slots && v->state == MODEL_LOADED; i++) {
        struct lode_slot_info k;
        lode_scheduler_slot(v->served->scheduler, i, &k);
        json_array_append_new(
            list, json_pack("{s:I, s:I, s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:i, s:I}", "id",
                            (json_int_t)json_array_size(list), "n_ctx", (json_int_t)v->ctx,
                            "is_processing", k.running, "model", v->spec->name, "id_task",
                            k.running ? (json_int_t)k.number : -1, "n_prompt_tokens",
                            (json_int_t)k.n_prompt, "n_prompt_tokens_processed",
                            (json_int_t)(k.n_read > k.n_reused ? k.n_read - k.n_reused : 0), "n_prompt_tokens_cache",
                            (json_int_t)k.n_reused, "n_decoded", (json_int_t)k.n_generated, "priority",
                            -(int)k.priority, "preemptions", (json_int_t)k.n_preempted));
    }
}

json_t *route_slots(struct server *s) {
    json_t *list = json_array();
    models_each(s->models, add_slots, list);
    return list;
}

/* A token's bytes: as text, or as a list of numbers where they are none by themselves. */
static json_t *piece_json(const struct lode_tokenizer *t, int32_t id) {
    static const char no_text[] = "\xef\xbf\xbd";
    struct lode_token_info info = {0};
    char text[512];
    const int64_t n = lode_detokenize(t, &id, 1, false, text, sizeof text, NULL);
    unsigned byte;
    if (lode_token_info(t, id, &info) == 0 && info.byte && sscanf(info.piece, "<0x%2x>", &byte) == 1 &&
        byte > 127)
        return json_pack("[i]", (int)byte);
    if (n < 0 || (size_t)n > sizeof text || memmem(text, (size_t)n, no_text, 3))
        return json_stringn(info.piece, info.piece_len);
    return json_stringn(text, (size_t)n);
}

json_t *route_tokenize(struct server *s, const struct asker *who, const json_t *body,
                       struct lode_error *err) {
    (void)who;
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
        if (pieces)
            json_array_append_new(ids, json_pack("{s:i, s:o}", "id", (int)p.ids[i], "piece",
                                                 piece_json(r.m->tokenizer, p.ids[i])));
        else
            json_array_append_new(ids, json_integer(p.ids[i]));
    }
    prompt_free(&p);
    request_deinit(&r);
    return ids ? json_pack("{s:o}", "tokens", ids) : NULL;
}

json_t *route_detokenize(struct server *s, const struct asker *who, const json_t *body,
                         struct lode_error *err) {
    (void)who;
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

json_t *route_template(struct server *s, const struct asker *who, const json_t *body,
                       struct lode_error *err) {
    (void)who;
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
