/* prompt.c - see prompt.h. */
#include "serve/prompt.h"

#include "serve/fields.h"
#include "serve/recall.h"
#include "serve/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void prompt_free(struct prompt *p) {
    free(p->ids);
    p->ids = NULL;
}

int prompt_tokenize(struct prompt *p, const struct served *m, const char *text, size_t len,
                    int flags, struct lode_error *err) {
    size_t cap = len / 2 + 16;
    for (;;) {
        int32_t *ids = realloc(p->ids, cap * sizeof *ids);
        if (!ids)
            return request_no_memory(err);
        p->ids = ids;
        const int64_t n = lode_tokenize(m->tokenizer, text, len, flags, ids, cap, err);
        if (n < 0)
            return (int)n;
        p->n = (size_t)n;
        if (p->n <= cap)
            return 0;
        cap = p->n;
    }
}

int prompt_ids(struct prompt *p, const json_t *list, const char *field, struct lode_error *err) {
    const size_t n = json_array_size(list);
    p->ids = malloc((n + 1) * sizeof *p->ids);
    if (!p->ids)
        return request_no_memory(err);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        const json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id > INT32_MAX)
            return field_fail(err, field, "element %zu is no token id", i);
        p->ids[i] = (int32_t)id;
    }
    p->n = n;
    return 0;
}

/* ---- gaps ---- */

/* The tokens around a gap, of the models that are trained for it.  Most are given the text before, the
 * text behind, and then the middle; Codestral the text behind first. */
static const struct gap {
    const char *before, *behind, *middle; /* middle NULL: what is before comes last, and goes on */
} gaps[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},             /* Qwen2.5-Coder, CodeGemma */
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},                   /* StarCoder, Granite */
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},                   /* SantaCoder */
    {"<\xef\xbd\x9c" "fim\xe2\x96\x81" "begin\xef\xbd\x9c>",          /* DeepSeek-Coder: ｜ and ▁ */
     "<\xef\xbd\x9c" "fim\xe2\x96\x81" "hole\xef\xbd\x9c>",
     "<\xef\xbd\x9c" "fim\xe2\x96\x81" "end\xef\xbd\x9c>"},
    {"\xe2\x96\x81<PRE>", "\xe2\x96\x81<SUF>", "\xe2\x96\x81<MID>"}, /* Code Llama: ▁<PRE> */
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},          /* GLM-4 */
    {"[PREFIX]", "[SUFFIX]", NULL},                                     /* Codestral */
};

static const struct gap *find_gap(const struct lode_tokenizer *t) {
    for (size_t i = 0; i < sizeof gaps / sizeof *gaps; i++) {
        const struct gap *g = &gaps[i];
        if (lode_tokenizer_find(t, g->before) >= 0 && lode_tokenizer_find(t, g->behind) >= 0 &&
            (!g->middle || lode_tokenizer_find(t, g->middle) >= 0))
            return g;
    }
    return NULL;
}

static void add_ids(struct prompt *to, const struct prompt *from) {
    if (from->n)
        memcpy(to->ids + to->n, from->ids, from->n * sizeof *to->ids);
    to->n += from->n;
}

int prompt_around(struct prompt *p, const struct served *m, const char *suffix, size_t len,
                  struct lode_error *err) {
    const struct gap *g = find_gap(m->tokenizer);
    const int32_t bos = lode_tokenizer_bos(m->tokenizer);
    struct prompt behind = {0}, all = {0};
    if (!g)
        return field_fail(err, "suffix", "the model has no tokens for a text before and a text behind a gap");
    int rc = prompt_tokenize(&behind, m, suffix, len, 0, err);
    if (rc == 0 && !(all.ids = malloc((p->n + behind.n + 4) * sizeof *all.ids)))
        rc = request_no_memory(err);
    if (rc == 0) {
        if (bos >= 0 && lode_tokenizer_adds_bos(m->tokenizer))
            all.ids[all.n++] = bos;
        if (g->middle) {
            all.ids[all.n++] = lode_tokenizer_find(m->tokenizer, g->before);
            add_ids(&all, p);
        }
        all.ids[all.n++] = lode_tokenizer_find(m->tokenizer, g->behind);
        add_ids(&all, &behind);
        all.ids[all.n++] = lode_tokenizer_find(m->tokenizer, g->middle ? g->middle : g->before);
        if (!g->middle)
            add_ids(&all, p);
        free(p->ids);
        p->ids = all.ids;
        p->n = all.n;
    }
    prompt_free(&behind);
    return rc;
}

/* ---- chats ---- */

static json_t *token_text(const struct lode_tokenizer *t, int32_t id) {
    struct lode_token_info info;
    if (id < 0 || lode_token_info(t, id, &info) < 0)
        return json_string("");
    return json_stringn(info.piece, info.piece_len);
}

static int variables(const struct served *m, const struct talk *t, char **out,
                     struct lode_error *err) {
    json_t *vars = json_pack(
        "{s:O, s:b, s:o, s:o}", "messages", t->messages, "add_generation_prompt",
        !t->goes_on, "bos_token",
        token_text(m->tokenizer, lode_tokenizer_bos(m->tokenizer)), "eos_token",
        token_text(m->tokenizer, lode_tokenizer_eos(m->tokenizer)));
    bool whole = vars != NULL;
    if (t->tools && m->style.format && strcmp(m->style.format, "none"))
        whole = !json_object_set(vars, "tools", t->tools) && whole;
    if (t->kwargs)
        whole = !json_object_update(vars, t->kwargs) && whole;
    *out = whole ? json_text(vars) : NULL;
    json_decref(vars);
    return *out ? 0 : request_no_memory(err);
}

/* Most templates write the BOS token; where one does not, the model still wants it. */
static int begin_with_bos(struct prompt *p, const struct served *m, struct lode_error *err) {
    const int32_t bos = lode_tokenizer_bos(m->tokenizer);
    if (bos < 0 || !lode_tokenizer_adds_bos(m->tokenizer) || (p->n && p->ids[0] == bos))
        return 0;
    int32_t *ids = realloc(p->ids, (p->n + 1) * sizeof *ids);
    if (!ids)
        return request_no_memory(err);
    memmove(ids + 1, ids, p->n++ * sizeof *ids);
    ids[0] = bos;
    p->ids = ids;
    return 0;
}

int prompt_render(const struct served *m, const struct talk *t, char **text, size_t *len,
                struct lode_error *err) {
    char *vars = NULL;
    if (!m->tmpl)
        return field_fail(err, "messages", "this model has no chat template: use /v1/completions, "
                                           "or start the server with --chat-template");
    int rc = variables(m, t, &vars, err);
    if (rc == 0)
        rc = lode_template_render(m->tmpl, vars, strlen(vars), 0, text, len, err);
    free(vars);
    return rc;
}

/* Cuts what a template makes of a chat behind the words of its last message. */
static int cut_behind(const struct talk *t, const char *rendered, size_t *len, struct lode_error *err) {
    const json_t *last = json_array_get(t->messages, json_array_size(t->messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    const char *words = json_string_value(json_object_get(last, "content")), *found = NULL;
    if (!role || strcmp(role, "assistant") || !words || json_object_get(last, "tool_calls"))
        return field_fail(err, "continue_final_message", "the last message is not an assistant's text");
    size_t n = strlen(words);
    while (n && strchr(" \t\r\n", words[n - 1])) /* templates take it away, too */
        n--;
    for (const char *at = rendered; n && (at = memmem(at, *len - (size_t)(at - rendered), words, n)); at++)
        found = at;
    if (!found)
        return field_fail(err, "messages", "the model's template does not write the last message as it is, so "
                                           "that nothing can go on from it");
    *len = (size_t)(found - rendered) + n;
    return 0;
}

int prompt_chat(struct prompt *p, const struct served *m, const struct talk *t,
                const struct lode_toolcall_style *style, char **text, struct lode_error *err) {
    char *rendered = NULL;
    size_t len = 0;
    int rc = prompt_render(m, t, &rendered, &len, err);
    if (rc < 0)
        return rc;
    if (t->goes_on)
        rc = cut_behind(t, rendered, &len, err);
    if (rc == 0 && text) {
        rendered[len] = 0;
        *text = rendered;
        return 0;
    }
    if (rc < 0) {
        lode_chat_text_free(rendered);
        return rc;
    }
    p->thinking = lode_toolcall_thinks(style, rendered, len);
    rc = t->goes_on ? 0 : recall_prompt(p, m, t, rendered, len, err);
    if (rc == 1 && p->n > lode_scheduler_ctx(m->scheduler))
        rc = 0; /* what was sampled may be longer than what the template makes of it */
    if (rc == 0)
        rc = prompt_tokenize(p, m, rendered, len, LODE_TOK_PARSE, err);
    lode_chat_text_free(rendered);
    return rc < 0 ? rc : begin_with_bos(p, m, err);
}
