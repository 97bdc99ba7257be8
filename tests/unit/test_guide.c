/* Guides: whatever a model would say, what comes out is calls in its format that are read back, fit
 * their schemas, and end; and forms.  The model here is chance: any token that may come.
 */
#include "../own_files.h"
#include "failmalloc.h"

#include "base/buf.h"
#include "base/rng.h"
#include "lode/lode.h"
#include "serve/guide.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_TOKENS = 3000, ROUNDS = 6 };

static struct lode_model *model;
static struct forms *forms;
static const struct lode_tokenizer *tokenizer;

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get\",\"strict\":true,\"parameters\":"
    "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":99},"
    "\"unit\":{\"enum\":[\"C\",\"F\"]},\"list\":{\"type\":\"array\",\"maxItems\":2,\"items\":"
    "{\"$ref\":\"#/$defs/b\"}}},\"required\":[\"unit\"],\"additionalProperties\":false,"
    "\"$defs\":{\"b\":{\"type\":\"boolean\"}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"get_more\",\"strict\":true,\"parameters\":"
    "{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\"},\"deep\":{\"type\":\"object\","
    "\"properties\":{\"a\":{\"type\":\"string\",\"maxLength\":4}},\"required\":[\"a\"],"
    "\"additionalProperties\":false}},\"required\":[\"text\",\"deep\"],"
    "\"additionalProperties\":false}}}]";
/* The same without the text of any length, which JSON's grammar would let chance write for ever. */
static const char bounded_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get\",\"strict\":true,\"parameters\":"
    "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":99},"
    "\"unit\":{\"enum\":[\"C\",\"F\"]}},\"required\":[\"unit\"],\"additionalProperties\":false}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"get_more\",\"strict\":true,\"parameters\":"
    "{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\",\"maxLength\":6}},"
    "\"required\":[\"text\"],\"additionalProperties\":false}}}]";

static int open_model(void **state) {
    struct lode_error err;
    (void)state;
    if (lode_model_load(&model, own_file("../models/demo.gguf"), &(struct lode_model_opts){.vocab_only = true}, &err) < 0 ||
        forms_create(&forms, model, &err) < 0) {
        fprintf(stderr, "%s: %s\n", err.where, err.text);
        return -1;
    }
    tokenizer = lode_model_tokenizer(model);
    return 0;
}

static int close_model(void **state) {
    (void)state;
    forms_free(forms);
    lode_model_free(model);
    return 0;
}

/* ---- a model by chance ---- */

struct chance {
    uint64_t seed, at;
    int32_t tag[64]; /* what ends a text, as tokens */
    size_t n_tag, i_tag;
};

static double roll(struct chance *c) { return lode_rng_uniform(c->seed, c->at++, 0); }

static bool may(const uint64_t *mask, int32_t id) { return mask[id / 64] >> id % 64 & 1; }

/* Any token of the mask; within what seems to be a text, its end soon. */
static int32_t choose(struct chance *c, const uint64_t *mask) {
    const uint32_t n_vocab = lode_tokenizer_size(tokenizer);
    size_t n = 0;
    for (uint32_t i = 0; i < n_vocab; i++)
        n += may(mask, (int32_t)i);
    if (n > n_vocab / 2 && c->n_tag && (c->i_tag || roll(c) < 0.3)) {
        const int32_t id = c->tag[c->i_tag];
        c->i_tag = (c->i_tag + 1) % c->n_tag;
        if (may(mask, id))
            return id;
    }
    c->i_tag = 0;
    if (n == 0)
        return -1;
    size_t k = (size_t)(roll(c) * (double)n);
    for (uint32_t i = 0; i < n_vocab; i++)
        if (may(mask, (int32_t)i) && k-- == 0)
            return (int32_t)i;
    return -1;
}

static void add_piece(struct lode_buf *out, struct lode_detok *d, int32_t id) {
    const char *text;
    size_t len;
    struct lode_error err;
    assert_int_equal(lode_detok_push(d, id, &text, &len, &err), 0);
    lode_buf_add(out, text, len);
}

/* Writes until the guide says that it is over, or an end token comes. */
static void write_all(const struct lode_generation_guide *g, struct chance *c, const char *prefix,
                      struct lode_buf *out) {
    struct lode_detok *d;
    struct lode_error err;
    int32_t ids[256];
    bool over = false;
    assert_int_equal(lode_detok_create(&d, tokenizer, false, &err), 0);
    const int64_t n = lode_tokenize(tokenizer, prefix, strlen(prefix), LODE_TOK_PARSE, ids, 256, &err);
    size_t n_free = 0;
    for (int i = 0; i < MOST_TOKENS && !over; i++) {
        struct lode_generation_hint h = {0};
        if (g->next(g->user, &h, &err) < 0)
            fail_msg("%s: %s (after: %s)", err.where, err.text, lode_buf_str(out).data);
        over = h.over;
        if (over)
            break;
        if (i >= n && !h.mask && n_free++) /* free again behind the calls: enough was said */
            break;
        const int32_t id = i < n ? ids[i] : !h.mask ? c->tag[0] : choose(c, h.mask);
        if (id < 0)
            fail_msg("nothing may come after: %s", lode_buf_str(out).data);
        const int rc = g->accept(g->user, id, &err);
        if (rc < 0)
            fail_msg("%s: %s (after: %s)", err.where, err.text, lode_buf_str(out).data);
        assert_true(i >= n || rc == 0);
        if (rc)
            continue;
        if (lode_tokenizer_is_end(tokenizer, id))
            break;
        add_piece(out, d, id);
        over = i == MOST_TOKENS - 1;
    }
    if (over && !lode_buf_str(out).len)
        fail_msg("nothing was said");
    lode_detok_free(d);
}

/* ---- reading back ---- */

struct reader {
    struct lode_buf args;
    char name[64];
    size_t n_calls, n_bad;
    json_t *tools;
    const char *what;
};

static void check_args(struct reader *r) {
    struct lode_grammar *g;
    struct lode_error err;
    bool accepted = false;
    size_t at, i;
    json_t *tool;
    const json_t *schema = NULL;
    json_array_foreach(r->tools, i, tool) {
        const json_t *f = json_object_get(tool, "function");
        if (!strcmp(json_string_value(json_object_get(f, "name")), r->name))
            schema = json_object_get(f, "parameters");
    }
    if (!schema)
        fail_msg("%s: there is no tool %s", r->what, r->name);
    char *text = json_dumps(schema, JSON_COMPACT);
    assert_int_equal(lode_grammar_compile(&g, LODE_GRAMMAR_SCHEMA, text, strlen(text), &err), 0);
    const struct lode_str args = lode_buf_str(&r->args);
    assert_int_equal(lode_grammar_check(g, args.data, args.len, &accepted, &at, &err), 0);
    if (!accepted)
        fail_msg("%s: %s(%.*s) does not fit at byte %zu", r->what, r->name, (int)args.len, args.data, at);
    lode_grammar_free(g);
    free(text);
}

static int on_event(void *user, const struct lode_toolcall_event *e) {
    struct reader *r = user;
    switch (e->kind) {
    case LODE_TOOLCALL_BEGIN:
        snprintf(r->name, sizeof r->name, "%s", e->name);
        lode_buf_clear(&r->args);
        break;
    case LODE_TOOLCALL_ARGUMENTS:
        lode_buf_add(&r->args, e->text, e->len);
        break;
    case LODE_TOOLCALL_END:
        check_args(r);
        r->n_calls++;
        break;
    case LODE_TOOLCALL_MALFORMED:
        r->n_bad++;
        fail_msg("%s: %s: %.*s", r->what, e->reason, (int)e->len, e->text);
        break;
    default:
        break;
    }
    return 0;
}

static size_t read_back(const char *format, const char *tools, const struct lode_buf *text) {
    char what[64];
    snprintf(what, sizeof what, "%s", format);
    struct reader r = {.tools = json_loads(tools, 0, NULL), .what = what};
    struct lode_toolcall *p;
    struct lode_error err;
    const struct lode_toolcall_opts o = {.style = {.format = format},
                                         .tools = tools,
                                         .tools_len = strlen(tools),
                                         .put = on_event,
                                         .user = &r};
    assert_int_equal(lode_toolcall_create(&p, &o, &err), 0);
    assert_int_equal(lode_toolcall_push(p, lode_buf_str(text).data, text->len, &err), 0);
    assert_int_equal(lode_toolcall_finish(p, &err), 0);
    lode_toolcall_free(p);
    lode_buf_free(&r.args);
    json_decref(r.tools);
    return r.n_calls;
}

static void one_round(const char *format, const struct call_syntax *x, enum tool_choice choice,
                      uint64_t seed) {
    const bool harmony = !strcmp(format, "harmony");
    const char *tools = x->tagged && x->text_post ? tools_text : bounded_text;
    const char *end = harmony ? "<|end|>" : x->text_post ? x->text_post : "";
    struct chance c = {.seed = seed};
    struct calls *calls;
    struct lode_generation_guide g;
    struct lode_error err = {0};
    struct lode_buf out = {0};
    char prefix[200];
    json_t *list = json_loads(tools, 0, NULL);
    assert_non_null(list);
    if (calls_create(&calls, forms, x, list, choice, NULL, seed % 2, &err) < 0)
        fail_msg("%s: %s: %s", format, err.where, err.text);
    json_decref(list);
    const struct guide_opts o = {.forms = forms, .tokenizer = tokenizer, .style = {.format = format},
                                 .calls = calls, .tools = tools};
    assert_int_equal(guide_create(&g, &o, &err), 0);
    /* the tag behind a newline, without it */
    snprintf(prefix, sizeof prefix, "a%s", end);
    c.n_tag = (size_t)lode_tokenize(tokenizer, *end ? end : "a", *end ? strlen(end) : 1, 0, c.tag, 64, &err);
    if (!*end)
        c.n_tag = 0;
    /* in AUTO a call begins within an answer, where its format allows that */
    const bool bare = !strcmp(format, "llama3") || !strcmp(format, "pythonic");
    snprintf(prefix, sizeof prefix, "%s%s", bare || harmony ? "" : "Well. ",
             harmony ? "<|channel|>commentary to=functions." : x->trigger ? x->trigger : "[get(");
    write_all(&g, &c, choice == TOOLS_AUTO ? prefix : "", &out);
    g.free(g.user);
    calls_put(calls);
    const size_t n = read_back(format, tools, &out);
    if (n == 0 || (seed % 2 == 0 && choice == TOOLS_REQUIRED && n != 1))
        fail_msg("%s, %d, seed %d: %zu calls in: %s", format, choice, (int)seed, n, lode_buf_str(&out).data);
    lode_buf_free(&out);
}

static void calls_of_every_format(void **state) {
    static const char *const templates[] = {NULL, "[ARGS] ```json"};
    const char *format;
    (void)state;
    for (size_t i = 1; (format = lode_toolcall_format(i, NULL)); i++)
        for (size_t t = 0; t < 2; t++) {
            const struct call_syntax *x = call_syntax(format, templates[t]);
            if (!x)
                fail_msg("no syntax for %s", format);
            if (t && x == call_syntax(format, NULL))
                continue;
            for (uint64_t seed = 0; seed < ROUNDS; seed++) {
                one_round(format, x, TOOLS_REQUIRED, seed);
                one_round(format, x, TOOLS_AUTO, seed);
            }
        }
}

/* Thinking is free and comes first; the form begins behind it, and the answer ends with it. */
static void forms_behind_thinking(void **state) {
    struct lode_error err;
    struct form *form, *same;
    (void)state;
    assert_int_equal(forms_get(forms, LODE_GRAMMAR_REGEX, "[ab]{3}", 7, &form, &err), 0);
    assert_int_equal(forms_get(forms, LODE_GRAMMAR_REGEX, "[ab]{3}", 7, &same, &err), 0);
    assert_ptr_equal(form, same);
    forms_put(same);
    for (uint64_t seed = 0; seed < 10; seed++) {
        struct lode_generation_guide g;
        struct lode_buf out = {0};
        struct chance c = {.seed = seed};
        const struct guide_opts o = {.forms = forms, .tokenizer = tokenizer, .thinking = true,
                                     .style = {.think = "<think>"}, .form = form};
        assert_int_equal(guide_create(&g, &o, &err), 0);
        write_all(&g, &c, "some thoughts, no form</think>", &out);
        const char *answer = strstr(lode_buf_str(&out).data, "</think>") + 8;
        assert_int_equal(strspn(answer, "ab"), 3);
        assert_int_equal(strlen(answer), 3);
        g.free(g.user);
        lode_buf_free(&out);
    }
    forms_put(form);
    assert_int_equal(forms_get(forms, LODE_GRAMMAR_SCHEMA, "{\"not\":{}}", 10, &form, &err), LODE_ERR_ARG);
}

/* An allocation that fails is an error, and nothing is lost. */
static void without_memory(void **state) {
    struct lode_error err = {0};
    uint64_t failures = 0;
    (void)state;
    const struct call_syntax *x = call_syntax("qwen3-coder", NULL);
    json_t *list = json_loads(tools_text, 0, NULL);
    struct form *warm; /* the vocabulary is made once, and kept */
    assert_int_equal(forms_get(forms, LODE_GRAMMAR_SCHEMA, "{}", 2, &warm, &err), 0);
    for (uint64_t n = 1;; n++) {
        struct forms *own;
        struct calls *calls = NULL;
        struct lode_generation_guide g = {0};
        failmalloc_start(n, false);
        int rc = forms_create(&own, model, &err);
        if (rc == 0)
            rc = calls_create(&calls, own, x, list, TOOLS_REQUIRED, NULL, true, &err);
        const struct guide_opts o = {.forms = own, .tokenizer = tokenizer,
                                     .style = {.format = "qwen3-coder"}, .calls = calls,
                                     .tools = tools_text};
        if (rc == 0)
            rc = guide_create(&g, &o, &err);
        struct chance c = {.seed = 1};
        for (int i = 0; rc == 0 && i < 40; i++) {
            struct lode_generation_hint h = {0};
            rc = g.next(g.user, &h, &err);
            const int32_t id = rc == 0 && !h.over && h.mask ? choose(&c, h.mask) : -1;
            if (id < 0)
                break;
            rc = g.accept(g.user, id, &err);
            rc = rc > 0 ? 0 : rc;
        }
        if (g.free)
            g.free(g.user);
        calls_put(calls);
        if (own)
            forms_free(own);
        const struct failmalloc_stats st = failmalloc_stop();
        assert_true(st.live <= 0); /* what libraries had kept from before may go */
        if (rc < 0 && rc != LODE_ERR_NOMEM)
            fail_msg("allocation %d: %s: %s", (int)n, err.where, err.text);
        failures += rc < 0;
        if (st.failed == 0)
            break;
        n += n / 30; /* every one of the first, then one in thirty of those before it */
    }
    assert_true(failures > 30);
    forms_put(warm);
    json_decref(list);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_of_every_format),
        cmocka_unit_test(forms_behind_thinking),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
