/* request.c - see request.h. */
#include "serve/request.h"

#include "base/error.h"
#include "serve/fields.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum { MOST_PRIORITY = 1000, MOST_SECONDS = 30 * 86400 };

int request_no_memory(struct lode_error *err) {
    *err = (struct lode_error){.code = LODE_ERR_NOMEM, .text = "no memory for this request"};
    return LODE_ERR_NOMEM;
}

int request_init(struct request *r, struct server *s, const json_t *body, struct lode_error *err) {
    *r = (struct request){.s = s, .body = json_incref((json_t *)body), .n = 1, .best_of = 1};
    r->g.max_tokens = -1;
    LODE_TRY(request_model(r, err));
    return request_place(r, err);
}

void request_deinit(struct request *r) {
    for (size_t i = 0; r->prompts && i < r->n_prompts; i++)
        prompt_free(&r->prompts[i]);
    free(r->prompts);
    free(r->bias);
    free(r->breaker_ids);
    free(r->breakers);
    forms_put(r->form);
    calls_put(r->calls);
    talk_deinit(&r->talk);
    json_decref(r->body);
    if (r->m)
        server_release(r->s, r->m);
    *r = (struct request){0};
}

int request_model(struct request *r, struct lode_error *err) {
    const char *name = NULL;
    int rc = field_string(r->body, "model", &name, err);
    if (rc == 0)
        rc = server_model(r->s, name, &r->m, err);
    if (rc == 0)
        r->g.sampler = r->m->sampling;
    return rc;
}

int request_place(struct request *r, struct lode_error *err) {
    int64_t priority = 0;
    float seconds = 0;
    LODE_TRY(field_int(r->body, "priority", -MOST_PRIORITY, MOST_PRIORITY, &priority, err));
    LODE_TRY(field_real(r->body, "timeout", 0, MOST_SECONDS, &seconds, err));
    r->g.priority = (int32_t)-priority;
    r->g.deadline = (double)seconds;
    return 0;
}

int request_common(struct request *r, struct lode_error *err) {
    static const char *const limits[] = {"n_predict", "max_tokens", "max_completion_tokens"};
    json_t *stream_options = NULL;
    int rc = field_bool(r->body, "stream", &r->stream, err);
    if (rc == 0)
        rc = field_object(r->body, "stream_options", &stream_options, err);
    if (rc == 0 && stream_options)
        rc = field_bool(stream_options, "include_usage", &r->include_usage, err);
    for (size_t i = 0; rc == 0 && i < sizeof limits / sizeof *limits; i++)
        rc = field_int(r->body, limits[i], -1, INT32_MAX, &r->g.max_tokens, err);
    if (rc == 0)
        rc = field_bool(r->body, "ignore_eos", &r->g.ignore_end, err);
    if (rc == 0)
        rc = field_bool(r->body, "timings_per_token", &r->timings_per_token, err);
    return rc;
}

/* ---- sampling ---- */

static bool good_bias(const struct request *r, long id, const json_t *v) {
    return id >= 0 && (uint64_t)id < lode_model_info(r->m->model)->n_vocab &&
           (json_is_number(v) || json_is_false(v));
}

static void add_bias(struct request *r, long id, const json_t *v) {
    const float bias = json_is_false(v) ? -INFINITY : (float)json_number_value(v);
    r->bias[r->g.sampler.n_bias++] = (struct lode_logit_bias){(int32_t)id, bias};
}

/* OpenAI's {"id": bias}, or llama.cpp's [[id, bias]], where false bans the token. */
static int read_bias(struct request *r, const json_t *from, struct lode_error *err) {
    json_t *map = json_object_get(from, "logit_bias"), *v;
    const size_t n = json_is_object(map) ? json_object_size(map) : json_array_size(map);
    const char *key;
    size_t i;
    if (!map || json_is_null(map))
        return 0;
    if (!json_is_object(map) && !json_is_array(map))
        return field_fail(err, "logit_bias", "an object of token ids with numbers expected");
    free(r->bias);
    r->bias = malloc((n + 1) * sizeof *r->bias);
    if (!r->bias)
        return request_no_memory(err);
    r->g.sampler.bias = r->bias;
    r->g.sampler.n_bias = 0;
    if (json_is_object(map)) {
        json_object_foreach(map, key, v) {
            char *end;
            const long id = strtol(key, &end, 10);
            if (end == key || *end || !good_bias(r, id, v))
                return field_fail(err, "logit_bias", "\"%.40s\" is no token id with a number", key);
            add_bias(r, id, v);
        }
        return 0;
    }
    json_array_foreach(map, i, v) {
        const json_t *id = json_array_get(v, 0), *bias = json_array_get(v, 1);
        if (!json_is_integer(id) || !good_bias(r, (long)json_integer_value(id), bias))
            return field_fail(err, "logit_bias", "element %zu is no token id with a number", i);
        add_bias(r, (long)json_integer_value(id), bias);
    }
    return 0;
}

/* A DRY sequence ends at any token whose text holds one of these. */
static int read_breakers(struct request *r, const json_t *from, struct lode_error *err) {
    static const char *const usual[] = {"\n", ":", "\"", "*"};
    const char *texts[64];
    size_t n_texts = 0, i;
    const uint32_t n_vocab = lode_tokenizer_size(r->m->tokenizer);
    json_t *list = NULL, *v;
    const int rc = field_array(from, "dry_sequence_breakers", &list, err);
    if (rc < 0 || r->g.sampler.dry_multiplier <= 0)
        return rc;
    if (json_array_size(list) > sizeof texts / sizeof *texts)
        return field_fail(err, "dry_sequence_breakers", "at most %zu expected",
                          sizeof texts / sizeof *texts);
    json_array_foreach(list, i, v) {
        if (!json_is_string(v) || !json_string_length(v))
            return field_fail(err, "dry_sequence_breakers", "element %zu is no text, or empty", i);
        texts[n_texts++] = json_string_value(v);
    }
    for (i = 0; !list && i < sizeof usual / sizeof *usual; i++)
        texts[n_texts++] = usual[i];
    r->breaker_ids = malloc((size_t)n_vocab * 2 * sizeof *r->breaker_ids + 1);
    r->breakers = malloc(n_vocab * sizeof *r->breakers + 1);
    if (!r->breaker_ids || !r->breakers)
        return request_no_memory(err);
    size_t n = 0;
    for (uint32_t id = 0; id < n_vocab; id++) {
        char text[256];
        const int32_t one = (int32_t)id;
        int64_t len = lode_detokenize(r->m->tokenizer, &one, 1, true, text, sizeof text, NULL);
        len = len > (int64_t)sizeof text ? (int64_t)sizeof text : len;
        bool found = false;
        for (i = 0; i < n_texts && len > 0 && !found; i++)
            found = memmem(text, (size_t)len, texts[i], strlen(texts[i])) != NULL;
        if (!found)
            continue;
        r->breaker_ids[2 * n] = one;
        r->breaker_ids[2 * n + 1] = -1;
        r->breakers[n] = r->breaker_ids + 2 * n;
        n++;
    }
    r->g.sampler.dry_breakers = r->breakers;
    r->g.sampler.n_dry_breakers = n;
    return 0;
}

/* A list of names, or llama.cpp's names joined by ';'. */
static int read_samplers(struct request *r, const json_t *from, struct lode_error *err) {
    const json_t *v = json_object_get(from, "samplers");
    size_t len = 0;
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_string(v) && !json_is_array(v))
        return field_fail(err, "samplers", "a list of names expected");
    const size_t n = json_is_string(v) ? 1 : json_array_size(v);
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_is_string(v) ? v : json_array_get(v, i));
        if (!name || len + strlen(name) + 2 > sizeof r->samplers)
            return field_fail(err, "samplers", "element %zu is no name of a sampler", i);
        len += (size_t)sprintf(r->samplers + len, "%s%s", i ? ";" : "", name);
    }
    r->g.sampler.samplers = r->samplers;
    return 0;
}

int request_sampling(struct request *r, const json_t *from, struct lode_error *err) {
    struct lode_sampler_opts *o = &r->g.sampler;
    const struct {
        const char *name;
        double low, high;
        float *out;
    } reals[] = {
        {"temperature", 0, 100, &o->temp},
        {"dynatemp_range", 0, 100, &o->dynatemp_range},
        {"dynatemp_exponent", 0, 100, &o->dynatemp_exponent},
        {"top_p", 0, 1, &o->top_p},
        {"min_p", 0, 1, &o->min_p},
        {"typical_p", 0, 1, &o->typical_p},
        {"top_n_sigma", -1, 1000, &o->top_n_sigma},
        {"xtc_probability", 0, 1, &o->xtc_probability},
        {"xtc_threshold", 0, 1, &o->xtc_threshold},
        {"repeat_penalty", 0.01, 100, &o->repeat_penalty},
        {"repetition_penalty", 0.01, 100, &o->repeat_penalty},
        {"presence_penalty", -100, 100, &o->presence_penalty},
        {"frequency_penalty", -100, 100, &o->frequency_penalty},
        {"dry_multiplier", 0, 100, &o->dry_multiplier},
        {"dry_base", 0, 100, &o->dry_base},
        {"mirostat_tau", 0, 100, &o->mirostat_tau},
        {"mirostat_eta", 0, 100, &o->mirostat_eta},
    };
    const struct {
        const char *name;
        int64_t low, high;
        int32_t *out;
    } counts[] = {
        {"top_k", -1, INT32_MAX, &o->top_k},
        {"min_keep", 0, INT32_MAX, &o->min_keep},
        {"repeat_last_n", -1, INT32_MAX, &o->repeat_last_n},
        {"dry_allowed_length", 0, INT32_MAX, &o->dry_allowed_length},
        {"dry_penalty_last_n", -1, INT32_MAX, &o->dry_penalty_last_n},
        {"mirostat", 0, 2, &o->mirostat},
    };
    int64_t seed = -1;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof reals / sizeof *reals; i++)
        rc = field_real(from, reals[i].name, reals[i].low, reals[i].high, reals[i].out, err);
    for (size_t i = 0; rc == 0 && i < sizeof counts / sizeof *counts; i++) {
        int64_t v = *counts[i].out;
        rc = field_int(from, counts[i].name, counts[i].low, counts[i].high, &v, err);
        *counts[i].out = (int32_t)v;
    }
    if (rc == 0)
        rc = field_int(from, "seed", INT64_MIN, INT64_MAX, &seed, err);
    if (rc == 0)
        rc = read_samplers(r, from, err);
    if (rc == 0)
        rc = read_breakers(r, from, err);
    if (rc == 0)
        rc = read_bias(r, from, err);
    o->seed = (uint64_t)seed;
    if (seed == -1 && getrandom(&o->seed, sizeof o->seed, 0) != sizeof o->seed)
        o->seed = (uint64_t)time(NULL);
    return rc;
}

int request_stops(struct request *r, const json_t *from, const char *name, struct lode_error *err) {
    const json_t *v = json_object_get(from, name);
    const size_t n = json_is_string(v) ? 1 : json_array_size(v);
    if (!v || json_is_null(v))
        return 0;
    if ((!json_is_string(v) && !json_is_array(v)) || n > MAX_STOPS)
        return field_fail(err, name, "a string or a list of at most %d expected", MAX_STOPS);
    r->n_stops = 0;
    for (size_t i = 0; i < n; i++) {
        const char *s = json_string_value(json_is_string(v) ? v : json_array_get(v, i));
        if (!s || !*s)
            return field_fail(err, name, "element %zu is no text, or empty", i);
        r->stops[r->n_stops++] = s;
    }
    return 0;
}

/* ---- prompts ---- */

int request_prompts(struct request *r, size_t n, struct lode_error *err) {
    r->prompts = calloc(n, sizeof *r->prompts);
    if (!r->prompts)
        return request_no_memory(err);
    r->n_prompts = n;
    return 0;
}

/* ---- forms ---- */

int request_form_of(struct request *r, enum lode_grammar_kind kind, const char *text,
                    const char *field, struct lode_error *err) {
    struct lode_error why = {0};
    if (r->form)
        return field_fail(err, field, "the answer has another form already: one can be held");
    const int rc = forms_get(r->m->forms, kind, text, strlen(text), &r->form, &why);
    if (rc == 0)
        return 0;
    *err = why;
    err->code = rc;
    if (rc == LODE_ERR_NOMEM)
        return rc;
    const bool path = *why.where == '#'; /* "#/properties/a/uniqueItems" stays with the field */
    snprintf(err->where, sizeof err->where, "%.60s%.180s", field, path ? why.where : "");
    snprintf(err->text, sizeof err->text, "%.100s%s%.600s", path ? "" : why.where,
             path || !*why.where ? "" : ": ", why.text);
    return rc;
}

int request_schema(struct request *r, const json_t *schema, const char *field,
                   struct lode_error *err) {
    if (!json_is_object(schema) && !json_is_boolean(schema))
        return field_fail(err, field, "a JSON Schema expected");
    char *text = json_text(schema);
    if (!text)
        return request_no_memory(err);
    const int rc = request_form_of(r, LODE_GRAMMAR_SCHEMA, text, field, err);
    free(text);
    return rc;
}

#define ANY_OBJECT "{\"type\": \"object\"}"

/* OpenAI's, and llama.cpp's with the schema beside the type. */
static int read_response_format(struct request *r, struct lode_error *err) {
    json_t *format = NULL;
    const char *type = NULL;
    int rc = field_object(r->body, "response_format", &format, err);
    if (rc < 0 || !format)
        return rc;
    type = json_string_value(json_object_get(format, "type"));
    const json_t *bare = json_object_get(format, "schema");
    if (type && !strcmp(type, "text"))
        return 0;
    if (type && !strcmp(type, "json_object"))
        return bare ? request_schema(r, bare, "response_format.schema", err)
                    : request_form_of(r, LODE_GRAMMAR_SCHEMA, ANY_OBJECT, "response_format", err);
    if (!type || strcmp(type, "json_schema"))
        return field_fail(err, "response_format", "its type must be \"text\", \"json_object\" or "
                                                  "\"json_schema\"");
    const json_t *schema = json_object_get(json_object_get(format, "json_schema"), "schema");
    return request_schema(r, schema ? schema : bare, "response_format.json_schema.schema", err);
}

int request_form(struct request *r, struct lode_error *err) {
    const struct {
        const char *name;
        enum lode_grammar_kind kind;
    } texts[] = {{"grammar", LODE_GRAMMAR_GBNF}, {"regex", LODE_GRAMMAR_REGEX}};
    int rc = read_response_format(r, err);
    const json_t *schema = json_object_get(r->body, "json_schema");
    if (rc == 0 && schema && !json_is_null(schema))
        rc = request_schema(r, schema, "json_schema", err);
    for (size_t i = 0; rc == 0 && i < sizeof texts / sizeof *texts; i++) {
        const char *text = NULL;
        rc = field_string(r->body, texts[i].name, &text, err);
        if (rc == 0 && text && *text)
            rc = request_form_of(r, texts[i].kind, text, texts[i].name, err);
    }
    return rc;
}

/* ---- a chat ---- */

int request_tools(struct request *r, struct lode_error *err) {
    struct talk *t = &r->talk;
    const bool none = !r->m->style.format || !strcmp(r->m->style.format, "none");
    int rc = 0;
    r->style = r->m->style;
    if (none) { /* its template would leave calls and results out */
        rc = talk_tools_as_text(t, err);
        if (rc == 0 && t->tools)
            r->style.format = "hermes";
    }
    if (rc < 0 || !t->tools || t->choice == TOOLS_NONE) {
        json_decref(t->tools);
        t->tools = NULL;
        return rc;
    }
    const struct call_syntax *x = call_syntax(r->style.format, r->m->template);
    if (!x)
        return field_fail(err, "tools", "calls of the format \"%s\" cannot be held", r->style.format);
    return calls_create(&r->calls, r->m->forms, x, t->tools, t->choice, t->only, !t->one_call, err);
}

int request_talk(struct request *r, struct lode_error *err) {
    r->chat = true;
    int rc = request_tools(r, err);
    if (rc == 0)
        rc = request_prompts(r, 1, err);
    return rc < 0 ? rc
                  : prompt_chat(&r->prompts[0], r->m, &r->talk, &r->style, NULL, err);
}
