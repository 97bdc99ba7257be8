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
        "{s:O, s:b, s:o, s:o}", "messages", t->messages, "add_generation_prompt", 1, "bos_token",
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

int prompt_chat(struct prompt *p, const struct served *m, const struct talk *t,
                const struct lode_toolcall_style *style, char **text, struct lode_error *err) {
    char *rendered = NULL;
    size_t len = 0;
    int rc = prompt_render(m, t, &rendered, &len, err);
    if (rc < 0)
        return rc;
    if (text) {
        *text = rendered;
        return 0;
    }
    p->thinking = lode_toolcall_thinks(style, rendered, len);
    rc = recall_prompt(p, m, t, rendered, len, err);
    if (rc == 1 && p->n > lode_scheduler_ctx(m->scheduler))
        rc = 0; /* what was sampled may be longer than what the template makes of it */
    if (rc == 0)
        rc = prompt_tokenize(p, m, rendered, len, LODE_TOK_PARSE, err);
    lode_chat_text_free(rendered);
    return rc < 0 ? rc : begin_with_bos(p, m, err);
}
