/* ollama_routes.c - what Ollama's clients ask for beside answers: which models there are, and vectors. */
#include "serve/models.h"
#include "serve/fields.h"
#include "serve/vectors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void stamp_of(time_t at, char out[32]) {
    struct tm tm;
    gmtime_r(&at, &tm);
    strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

/* 1234567890 -> "1.2B" */
static void size_name(uint64_t n, char out[16]) {
    const double v = (double)n;
    if (v >= 1e9)
        snprintf(out, 16, "%.1fB", v / 1e9);
    else
        snprintf(out, 16, "%.2fM", v / 1e6);
}

static json_t *details(const struct lode_model_info *m) {
    char size[16];
    size_name(m->n_params, size);
    return json_pack("{s:s, s:s, s:s, s:[s], s:s, s:s}", "parent_model", "", "format", "gguf",
                     "family", m->arch, "families", m->arch, "parameter_size", size,
                     "quantization_level", m->type);
}

/* Ollama's digest is a blob's; here it stands for the file's name and size, which is enough to tell
 * two models apart. */
static void digest_of(const struct lode_model_info *m, char out[65]) {
    uint64_t h = 0xcbf29ce484222325u;
    for (const char *c = m->path; *c; c++)
        h = (h ^ (unsigned char)*c) * 0x100000001b3u;
    for (int i = 0; i < 4; i++) {
        snprintf(out + 16 * i, 17, "%016llx", (unsigned long long)h);
        h = (h ^ m->size) * 0x100000001b3u + (uint64_t)i;
    }
}

static json_t *model_json(const struct served *s, time_t started) {
    const struct lode_model_info *m = lode_model_info(s->model);
    char stamp[32], digest[65];
    stamp_of(started, stamp);
    digest_of(m, digest);
    return json_pack("{s:s, s:s, s:s, s:I, s:s, s:o}", "name", s->name, "model", s->name,
                     "modified_at", stamp, "size", (json_int_t)m->size, "digest", digest, "details",
                     details(m));
}

struct model_list {
    const struct server *s;
    json_t *list;
};

static void add_tag(void *user, const struct model_view *v) {
    struct model_list *l = user;
    char stamp[32];
    stamp_of(l->s->started, stamp);
    json_array_append_new(l->list,
                          v->state == MODEL_LOADED
                              ? model_json(v->served, l->s->started)
                              : json_pack("{s:s, s:s, s:s, s:I}", "name", v->spec->name, "model",
                                          v->spec->name, "modified_at", stamp, "size",
                                          (json_int_t)v->size));
}

static void add_running(void *user, const struct model_view *v) {
    struct model_list *l = user;
    char until[32];
    if (v->state != MODEL_LOADED)
        return;
    const struct lode_model_info *m = lode_model_info(v->served->model);
    /* without a limit of idleness it stays */
    stamp_of(time(NULL) + (l->s->o.idle ? (time_t)l->s->o.idle : 10 * 365 * 86400), until);
    json_t *one = model_json(v->served, l->s->started);
    json_object_set_new(one, "expires_at", json_string(until));
    json_object_set_new(one, "size_vram", json_integer(m->on_gpu ? (json_int_t)m->size : 0));
    json_object_set_new(one, "context_length", json_integer((json_int_t)v->ctx));
    json_array_append_new(l->list, one);
}

static json_t *list_models(struct server *s, void (*add)(void *user, const struct model_view *v)) {
    struct model_list l = {.s = s, .list = json_array()};
    models_each(s->models, add, &l);
    return json_pack("{s:o}", "models", l.list);
}

json_t *route_tags(struct server *s) { return list_models(s, add_tag); }
json_t *route_ps(struct server *s) { return list_models(s, add_running); }

/* The version of Ollama whose API this is: clients look for what it has. */
json_t *route_version(struct server *s) {
    (void)s;
    return json_pack("{s:s, s:s}", "version", "0.12.6", "lode", LODE_VERSION);
}

json_t *route_show(struct server *s, const struct asker *who, const json_t *body,
                   struct lode_error *err) {
    (void)who;
    struct request r;
    json_t *reply = NULL;
    if (request_init(&r, s, body, err) == 0) {
        const struct lode_model_info *m = lode_model_info(r.m->model);
        const char *format = r.m->style.format;
        char stamp[32], key[80];
        stamp_of(s->started, stamp);
        json_t *able = r.m->scheduler ? json_pack("[s, s]", "completion", "embedding")
                                      : json_pack("[s]", "embedding");
        if (format && strcmp(format, "none"))
            json_array_append_new(able, json_string("tools"));
        if (r.m->template && r.m->style.think && strstr(r.m->template, r.m->style.think))
            json_array_append_new(able, json_string("thinking"));
        json_t *info = json_pack("{s:s, s:I, s:s}", "general.architecture", m->arch,
                                 "general.parameter_count", (json_int_t)m->n_params,
                                 "general.basename", m->name);
        const struct {
            const char *name;
            uint64_t value;
        } numbers[] = {{"context_length", m->ctx_train}, {"embedding_length", m->d_model},
                       {"block_count", m->n_layers}, {"attention.head_count", m->n_heads},
                       {"attention.head_count_kv", m->n_kv_heads}};
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
            snprintf(key, sizeof key, "%.40s.%s", m->arch, numbers[i].name);
            json_object_set_new(info, key, json_integer((json_int_t)numbers[i].value));
        }
        reply = json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:s}", "modelfile", "", "parameters", "",
                          "template", r.m->template ? r.m->template : "", "details", details(m),
                          "model_info", info, "capabilities", able, "modified_at", stamp);
    }
    request_deinit(&r);
    return reply;
}

/* ---- vectors ---- */

json_t *route_ollama_embed(struct server *s, const struct asker *who, const json_t *body,
                           struct lode_error *err) {
    struct request r;
    struct vector_job job = {0};
    uint32_t dimensions = 0;
    bool cut = false;
    json_t *list = NULL, *reply = NULL;
    int rc = request_init(&r, s, body, err);
    if (rc == 0)
        rc = field_bool(body, "truncate", &cut, err);
    if (rc == 0)
        rc = vector_job_input(&job, &r, json_object_get(body, "input"), "input", cut, err);
    if (rc == 0)
        rc = vector_job_run(&job, &r, who, err);
    if (rc == 0)
        rc = vector_dimensions(&job, body, &dimensions, err);
    list = rc == 0 ? json_array() : NULL;
    for (size_t i = 0; list && i < job.n; i++)
        if (json_array_append_new(list, vector_json(&job, i, dimensions, false))) {
            json_decref(list);
            list = NULL;
        }
    if (list)
        reply = json_pack("{s:s, s:o, s:i, s:i, s:I}", "model", r.m->name, "embeddings", list,
                          "total_duration", 0, "load_duration", 0, "prompt_eval_count",
                          (json_int_t)job.n_tokens);
    vector_job_deinit(&job);
    request_deinit(&r);
    return reply;
}

/* The older one: one text, one vector. */
json_t *route_ollama_embedding(struct server *s, const struct asker *who, const json_t *body,
                               struct lode_error *err) {
    struct request r;
    struct vector_job job = {0};
    const char *text = NULL;
    int rc = request_init(&r, s, body, err);
    if (rc == 0)
        rc = field_string(body, "prompt", &text, err);
    if (rc == 0 && (!text || !*text))
        rc = field_fail(err, "prompt", "a text expected");
    if (rc == 0)
        rc = vector_job_init(&job, 1, err);
    if (rc == 0)
        rc = vector_job_text(&job, &r, text, strlen(text), false, err);
    if (rc == 0)
        rc = vector_job_run(&job, &r, who, err);
    json_t *reply = rc == 0 ? json_pack("{s:o}", "embedding", vector_json(&job, 0, 0, false)) : NULL;
    vector_job_deinit(&job);
    request_deinit(&r);
    return reply;
}
