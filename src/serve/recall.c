#include "serve/recall.h"

#include "serve/fields.h"
#include "serve/json_read.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Stands for a message while what follows it is rendered; of a private use area, so that no
 * template looks for it and no text has it. */
#define MARK "\xee\x83\xb7" "lode" "\xee\x83\xb7"

/* ---- what a message says ---- */

static json_t *trimmed(const char *text, size_t len) {
    while (len && isspace((unsigned char)*text))
        text++, len--;
    while (len && isspace((unsigned char)text[len - 1]))
        len--;
    return json_stringn(text, len);
}

/* Without the thinking that some clients leave in front. */
static json_t *said(const char *text, size_t len) {
    json_t *all = trimmed(text, len);
    const char *s = json_string_value(all);
    const char *end = s && !strncmp(s, "<think>", 7) ? strstr(s, "</think>") : NULL;
    if (!end)
        return all;
    json_t *rest = trimmed(end + 8, strlen(end + 8));
    json_decref(all);
    return rest;
}

/* name: borrowed; arguments: an object, or its text. */
static json_t *call(const char *name, const json_t *arguments) {
    json_t *parsed = json_is_string(arguments)
                         ? json_read(json_string_value(arguments), json_string_length(arguments), 0, NULL)
                         : NULL;
    json_t *value = parsed ? parsed : json_incref((json_t *)arguments);
    return json_pack("[s?, o?]", name, value);
}

static json_t *assistant(json_t *text, json_t *calls) {
    return json_pack("{s:s, s:o, s:o}", "role", "assistant", "content", text, "calls", calls);
}

static json_t *of_assistant(const json_t *m) {
    const json_t *content = json_object_get(m, "content");
    const char *text = json_string_value(content);
    json_t *calls = json_array(), *c;
    size_t i;
    json_array_foreach(json_object_get(m, "tool_calls"), i, c) {
        const json_t *f = json_object_get(c, "function");
        json_array_append_new(calls, call(json_string_value(json_object_get(f, "name")),
                                          json_object_get(f, "arguments")));
    }
    return assistant(said(text ? text : "", text ? json_string_length(content) : 0), calls);
}

static json_t *of_other(const json_t *m) {
    json_t *copy = json_copy((json_t *)m);
    json_object_del(copy, "tool_call_id");
    json_object_del(copy, "id");
    return copy;
}

static bool is_assistant(const json_t *m) {
    const char *role = json_string_value(json_object_get(m, "role"));
    return role && !strcmp(role, "assistant");
}

/* ---- keys ---- */

/* Takes what; false: no memory. */
static bool extend(uint64_t key[2], json_t *what) {
    char *text = what ? json_text_as(what, JSON_SORT_KEYS) : NULL;
    json_decref(what);
    if (!text)
        return false;
    const XXH128_hash_t h = XXH3_128bits_withSeed(text, strlen(text), key[0]);
    key[0] = h.low64 ^ key[1];
    key[1] = h.high64;
    free(text);
    return true;
}

static bool begin(uint64_t key[2], const struct served *m, const struct talk *t) {
    key[0] = key[1] = 0;
    return extend(key, json_string(m->template)) &&
           extend(key, t->tools ? json_incref(t->tools) : json_null()) &&
           extend(key, t->kwargs ? json_incref(t->kwargs) : json_null());
}

/* ---- what was sampled ---- */

/* messages with message i changed so that MARK stands in it: in its text, or as its first call. */
static json_t *marked(const json_t *messages, size_t i, bool in_call) {
    json_t *all = json_copy((json_t *)messages);
    json_t *m = json_deep_copy(json_array_get(messages, i));
    json_t *f = json_object_get(json_array_get(json_object_get(m, "tool_calls"), 0), "function");
    json_object_del(m, "reasoning_content");
    json_object_del(m, "reasoning");
    const int rc = in_call ? f ? json_object_set_new(f, "name", json_string(MARK)) : -1
                           : json_object_set_new(m, "content", json_string(MARK));
    if (rc || json_array_set_new(all, i, m)) {
        json_decref(all);
        return NULL;
    }
    return all;
}

/* What the template writes after message i, which ends with the text `end`: *rest, within rendered. */
static bool find_rest(const struct served *m, const struct talk *t, size_t i, bool in_call,
                      const char *end, const char *rendered, size_t len, const char **rest) {
    char *text = NULL;
    size_t n = 0;
    bool found = false;
    struct talk other = *t;
    other.messages = marked(t->messages, i, in_call);
    struct lode_error err;
    if (other.messages && prompt_render(m, &other, &text, &n, &err) == 0) {
        const char *mark = memmem(text, n, MARK, sizeof MARK - 1);
        const char *at = mark ? memmem(mark, n - (size_t)(mark - text), end, strlen(end)) : NULL;
        if (at) { /* and nothing else depends on the message */
            const size_t left = n - (size_t)(at - text) - strlen(end);
            *rest = rendered + len - left;
            found = left <= len && !memcmp(*rest, text + n - left, left);
        }
        lode_chat_text_free(text);
    }
    json_decref(other.messages);
    return found;
}

/* Tokens of the timeline and of what is rendered after it. */
static int join(struct prompt *p, const struct served *m, int32_t *known, size_t n, const char *rest,
                size_t len, struct lode_error *err) {
    int rc = prompt_tokenize(p, m, rest, len, LODE_TOK_PARSE, err);
    int32_t *ids = rc == 0 ? realloc(known, (n + p->n) * sizeof *ids) : NULL;
    if (!ids) {
        free(known);
        return rc < 0 ? rc : request_no_memory(err);
    }
    memcpy(ids + n, p->ids, p->n * sizeof *ids);
    free(p->ids);
    p->ids = ids;
    p->n += n;
    return 1;
}

static int recall_at(struct prompt *p, const struct served *m, const struct talk *t, size_t i,
                     const uint64_t key[2], const char *rendered, size_t len, struct lode_error *err) {
    struct lode_token_info end;
    const char *rest;
    const size_t n = m->scheduler ? lode_scheduler_recall(m->scheduler, key, NULL, 0) : 0;
    int32_t *known = n ? malloc(n * sizeof *known) : NULL;
    if (!known || lode_scheduler_recall(m->scheduler, key, known, n) != n ||
        lode_token_info(m->tokenizer, known[n - 1], &end) < 0 || end.piece_len == 0) {
        free(known);
        return 0;
    }
    char *text = strndup(end.piece, end.piece_len);
    const bool found = text && (find_rest(m, t, i, false, text, rendered, len, &rest) ||
                                find_rest(m, t, i, true, text, rendered, len, &rest));
    free(text);
    if (found)
        return join(p, m, known, n, rest, len - (size_t)(rest - rendered), err);
    free(known);
    return 0;
}

int recall_prompt(struct prompt *p, const struct served *m, const struct talk *t,
                  const char *rendered, size_t len, struct lode_error *err) {
    const size_t n = json_array_size(t->messages);
    uint64_t(*keys)[2] = malloc((n + 1) * sizeof *keys);
    int rc = 0;
    bool ok = keys && begin(keys[0], m, t);
    for (size_t i = 0; ok && i < n; i++) {
        const json_t *message = json_array_get(t->messages, i);
        memcpy(keys[i + 1], keys[i], sizeof *keys);
        ok = extend(keys[i + 1], is_assistant(message) ? of_assistant(message) : of_other(message));
    }
    if (ok)
        memcpy(p->key, keys[n], sizeof p->key);
    for (size_t i = n; ok && rc == 0 && i-- > 0;)
        if (is_assistant(json_array_get(t->messages, i)))
            rc = recall_at(p, m, t, i, keys[i + 1], rendered, len, err);
    free(keys);
    p->has_key = ok;
    return rc;
}

void recall_answer(const struct prompt *p, const struct choice *c, struct lode_generation *g) {
    uint64_t key[2] = {p->key[0], p->key[1]};
    json_t *text = choice_text(c, PART_TEXT), *calls = json_array();
    bool whole = p->has_key && text && calls;
    for (size_t i = 0; i < c->n_parts; i++) {
        const struct part *part = &c->parts[i];
        whole = whole && !part->broken;
        if (part->kind != PART_CALL)
            continue;
        json_t *arguments = json_stringn(lode_buf_str(&part->text).data, part->text.len);
        json_array_append_new(calls, call(part->name, arguments));
        json_decref(arguments);
    }
    json_t *message = text ? assistant(said(json_string_value(text), json_string_length(text)), calls)
                           : NULL;
    if (!text)
        json_decref(calls);
    json_decref(text);
    if (extend(key, message) && whole) /* without memory for it, it is read anew */
        lode_generation_remember(g, key, NULL);
}
