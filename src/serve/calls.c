/* calls.c - see calls.h. */
#include "serve/calls.h"

#include "serve/fields.h"
#include "serve/loosen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JSON_CALL .pre = "{\"name\": \"", .post = "\", \"arguments\": ", .end_call = "}"

static const struct call_syntax syntaxes[] = {
    {.format = "none", .open = "", .pre = "<tool_call>\n{\"name\": \"",
     .post = "\", \"arguments\": ", .end_call = "}\n</tool_call>", .between = "\n", .close = "",
     .trigger = "<tool_call>"},
    {.format = "hermes", .open = "", .pre = "<tool_call>\n{\"name\": \"",
     .post = "\", \"arguments\": ", .end_call = "}\n</tool_call>", .between = "\n", .close = "",
     .trigger = "<tool_call>"},
    {.format = "qwen3-coder", .tagged = true, .open = "", .pre = "<tool_call>\n<function=",
     .post = ">\n", .end_call = "</function>\n</tool_call>", .between = "\n", .close = "",
     .trigger = "<tool_call>", .sep = "", .key_pre = "<parameter=", .key_post = ">\n",
     .value_post = "\n</parameter>\n", .text_pre = "", .text_post = "\n</parameter>\n"},
    {.format = "seed", .tagged = true, .open = "", .pre = "<seed:tool_call>\n<function=",
     .post = ">\n", .end_call = "</function>\n</seed:tool_call>", .between = "\n", .close = "",
     .trigger = "<seed:tool_call>", .sep = "", .key_pre = "<parameter=", .key_post = ">",
     .value_post = "</parameter>\n", .text_pre = "", .text_post = "</parameter>\n"},
    {.format = "glm", .tagged = true, .open = "", .pre = "<tool_call>", .post = "\n",
     .end_call = "</tool_call>", .between = "\n", .close = "", .trigger = "<tool_call>", .sep = "",
     .key_pre = "<arg_key>", .key_post = "</arg_key>\n<arg_value>",
     .value_post = "</arg_value>\n", .text_pre = "", .text_post = "</arg_value>\n"},
    {.format = "minimax", .tagged = true, .open = "<minimax:tool_call>\n",
     .pre = "<invoke name=\"", .post = "\">\n", .end_call = "</invoke>\n", .between = "",
     .close = "</minimax:tool_call>", .trigger = "<minimax:tool_call>", .sep = "",
     .key_pre = "<parameter name=\"", .key_post = "\">", .value_post = "</parameter>\n",
     .text_pre = "", .text_post = "</parameter>\n"},
    {.format = "deepseek-dsml", .tagged = true, .open = "<｜DSML｜function_calls>\n",
     .pre = "<｜DSML｜invoke name=\"", .post = "\">\n", .end_call = "</｜DSML｜invoke>\n",
     .between = "", .close = "</｜DSML｜function_calls>", .trigger = "<｜DSML｜function_calls>",
     .sep = "", .key_pre = "<｜DSML｜parameter name=\"", .key_post = "\">", .typed_keys = true,
     .value_post = "</｜DSML｜parameter>\n", .text_pre = "",
     .text_post = "</｜DSML｜parameter>\n"},
    {.format = "mistral", .mark = "[ARGS]", .open = "", .pre = "[TOOL_CALLS]", .post = "[ARGS]",
     .end_call = "", .between = "", .close = "", .trigger = "[TOOL_CALLS]"},
    {.format = "mistral", .open = "[TOOL_CALLS][", JSON_CALL, .between = ", ", .close = "]",
     .trigger = "[TOOL_CALLS]"},
    {.format = "harmony", .open = "", .pre = "<|channel|>commentary to=functions.",
     .post = " <|constrain|>json<|message|>", .end_call = "<|call|>", .close = "",
     .trigger = " to=functions."},
    {.format = "deepseek", .mark = "```json", .open = "<｜tool▁calls▁begin｜>",
     .pre = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", .post = "\n```json\n",
     .end_call = "\n```<｜tool▁call▁end｜>", .between = "\n", .close = "<｜tool▁calls▁end｜>",
     .trigger = "<｜tool▁calls▁begin｜>"},
    {.format = "deepseek", .open = "<｜tool▁calls▁begin｜>", .pre = "<｜tool▁call▁begin｜>",
     .post = "<｜tool▁sep｜>", .end_call = "<｜tool▁call▁end｜>", .between = "",
     .close = "<｜tool▁calls▁end｜>", .trigger = "<｜tool▁calls▁begin｜>"},
    {.format = "kimi", .open = "<|tool_calls_section_begin|>",
     .pre = "<|tool_call_begin|>functions.", .post = ":#<|tool_call_argument_begin|>",
     .end_call = "<|tool_call_end|>", .between = "", .close = "<|tool_calls_section_end|>",
     .trigger = "<|tool_calls_section_begin|>"},
    {.format = "command-r7b", .open = "<|START_ACTION|>[\n    ",
     .pre = "{\"tool_call_id\": \"#\", \"tool_name\": \"", .post = "\", \"parameters\": ",
     .end_call = "}", .between = ",\n    ", .close = "\n]<|END_ACTION|>",
     .trigger = "<|START_ACTION|>"},
    {.format = "gemma4", .tagged = true, .open = "", .pre = "<|tool_call>call:", .post = "{",
     .end_call = "}<tool_call|>", .between = "", .close = "", .trigger = "<|tool_call>",
     .sep = ",", .key_pre = "", .key_post = ":", .value_post = "", .text_pre = "<|\"|>",
     .text_post = "<|\"|>"},
    {.format = "lfm2", .tagged = true, .open = "<|tool_call_start|>[", .pre = "", .post = "(",
     .end_call = ")", .between = ", ", .close = "]<|tool_call_end|>",
     .trigger = "<|tool_call_start|>", .sep = ", ", .key_pre = "", .key_post = "=",
     .value_post = ""},
    {.format = "apertus", .open = "<|tools_prefix|>[", .pre = "{\"", .post = "\": ",
     .end_call = "}", .between = ", ", .close = "]<|tools_suffix|>",
     .trigger = "<|tools_prefix|>"},
    {.format = "phi4", .open = "<|tool_call|>[", JSON_CALL, .between = ", ",
     .close = "]<|/tool_call|>", .trigger = "<|tool_call|>"},
    {.format = "granite", .open = "<|tool_call|>[", JSON_CALL, .between = ", ", .close = "]",
     .trigger = "<|tool_call|>"},
    {.format = "nemotron", .open = "<TOOLCALL>[", JSON_CALL, .between = ", ",
     .close = "]</TOOLCALL>", .trigger = "<TOOLCALL>"},
    {.format = "tool-calls", .open = "<tool_calls>[", JSON_CALL, .between = ", ",
     .close = "]</tool_calls>", .trigger = "<tool_calls>"},
    {.format = "gigachat", .open = "<|function_call|>", JSON_CALL, .close = "",
     .trigger = "<|function_call|>"},
    {.format = "functionary", .open = "", .pre = "<function=", .post = ">",
     .end_call = "</function>", .between = "", .close = "", .trigger = "<function="},
    {.format = "firefunction", .open = "functools[", JSON_CALL, .between = ", ", .close = "]",
     .trigger = "functools["},
    {.format = "llama3", .open = "", .pre = "{\"name\": \"", .post = "\", \"parameters\": ",
     .end_call = "}", .close = "", .trigger = "{\"name\": \""},
    {.format = "pythonic", .tagged = true, .open = "[", .pre = "", .post = "(", .end_call = ")",
     .between = ", ", .close = "]", .sep = ", ", .key_pre = "", .key_post = "=",
     .value_post = ""},
};

const struct call_syntax *call_syntax(const char *format, const char *template) {
    for (size_t i = 0; i < sizeof syntaxes / sizeof *syntaxes; i++)
        if (!strcmp(syntaxes[i].format, format ? format : "none") &&
            (!syntaxes[i].mark || (template && strstr(template, syntaxes[i].mark))))
            return &syntaxes[i];
    return NULL;
}

static int no_memory(struct lode_error *err) {
    *err = (struct lode_error){.code = LODE_ERR_NOMEM, .text = "no memory for the tools"};
    return LODE_ERR_NOMEM;
}

/* ---- one tool ---- */

struct maker {
    struct forms *forms;
    const struct call_syntax *syntax;
    const json_t *schema;
    size_t i_tool;
    bool strict;
    struct lode_error *err;
};

/* A form of JSON; *out NULL where it cannot be enforced and need not be. */
static int json_form(struct maker *k, const json_t *schema, struct form **out) {
    if (!k->strict)
        return loosened_form(k->forms, schema, out, k->err);
    char *text = json_text(schema);
    if (!text)
        return no_memory(k->err);
    const int rc = forms_get(k->forms, LODE_GRAMMAR_SCHEMA, text, strlen(text), out, k->err);
    free(text);
    if (rc == 0 || rc == LODE_ERR_NOMEM)
        return rc;
    *out = NULL;
    char where[sizeof k->err->where];
    snprintf(where, sizeof where, "tools[%zu].function.parameters%.180s", k->i_tool,
             k->err->where[0] == '#' ? k->err->where + 1 : "");
    memcpy(k->err->where, where, sizeof where);
    return rc;
}

static int any_json(struct maker *k, const char *text, struct form **out) {
    return forms_get(k->forms, LODE_GRAMMAR_SCHEMA, text, strlen(text), out, k->err);
}

/* A text is written as it is; *choices: those that "enum" or "const" give. */
static bool is_text(const json_t *schema, const json_t **choices) {
    const char *type = json_string_value(json_object_get(schema, "type"));
    const json_t *list = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");
    *choices = one ? one : list;
    if (type ? strcmp(type, "string") != 0 : !*choices)
        return false;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_string(json_array_get(list, i)))
            return false;
    return !one || json_is_string(one);
}

/* The keyword that rules a text further, which between tags cannot be held; NULL: none. */
static const char *text_rule(const json_t *schema) {
    static const char *const rules[] = {"pattern", "minLength", "maxLength", "format", "not",
                                        "allOf",   "anyOf",     "oneOf",     "if",     "$ref"};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (json_object_get(schema, rules[i]))
            return rules[i];
    return NULL;
}

static int text_param(struct maker *k, struct call_param *p, const json_t *choices) {
    const size_t n = json_is_string(choices) ? 1 : json_array_size(choices);
    p->text = true;
    if (!n)
        return 0;
    p->choices = calloc(n, sizeof *p->choices);
    if (!p->choices)
        return no_memory(k->err);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_is_string(choices) ? choices : json_array_get(choices, i);
        if (!(p->choices[i] = strdup(json_string_value(v))))
            return no_memory(k->err);
        p->n_choices++;
    }
    return 0;
}

/* A parameter's schema alone, with what it may refer to. */
static int json_param(struct maker *k, struct call_param *p, const json_t *schema) {
    static const char *const shared[] = {"$defs", "definitions", "$schema"};
    json_t *alone = json_is_object(schema) ? json_copy((json_t *)schema) : json_incref((json_t *)schema);
    int rc = 0;
    for (size_t i = 0; json_is_object(alone) && i < sizeof shared / sizeof *shared; i++) {
        json_t *v = json_object_get(k->schema, shared[i]);
        if (v && json_object_set(alone, shared[i], v))
            rc = no_memory(k->err);
    }
    if (rc == 0)
        rc = json_form(k, alone, &p->form);
    if (rc == 0 && !p->form)
        rc = any_json(k, "{}", &p->form);
    json_decref(alone);
    return rc;
}

static bool requires(const json_t *schema, const char *name) {
    const json_t *list = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_is_string(json_array_get(list, i)) &&
            !strcmp(json_string_value(json_array_get(list, i)), name))
            return true;
    return false;
}

static int tagged_params(struct maker *k, struct call_tool *t) {
    json_t *properties = json_object_get(k->schema, "properties"), *v;
    const char *key;
    int rc = 0;
    if (k->strict) { /* as a whole it must be one that can be enforced, too */
        struct form *whole;
        rc = json_form(k, k->schema, &whole);
        if (rc < 0)
            return rc;
        forms_put(whole);
    }
    if (!json_is_object(properties) || !json_object_size(properties))
        return 0;
    t->params = calloc(json_object_size(properties), sizeof *t->params);
    if (!t->params)
        return no_memory(k->err);
    json_object_foreach(properties, key, v) {
        struct call_param *p = &t->params[t->n_params++];
        const json_t *choices;
        p->required = requires(k->schema, key);
        if (!(p->name = strdup(key)))
            return no_memory(k->err);
        const bool text = k->syntax->text_post && is_text(v, &choices);
        if (text && k->strict && text_rule(v)) {
            char where[128];
            snprintf(where, sizeof where, "tools[%zu].function.parameters/properties/%.60s",
                     k->i_tool, key);
            return field_fail(k->err, where, "\"%s\" cannot be held in the way in which this model "
                                             "writes calls (%s)", text_rule(v), k->syntax->format);
        }
        if (text)
            rc = text_param(k, p, choices);
        else
            rc = json_param(k, p, v);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int add_tool(struct maker *k, struct calls *c, const json_t *function) {
    struct call_tool *t = &c->tools[c->n_tools++];
    const json_t *schema = json_object_get(function, "parameters");
    json_t *nothing = NULL;
    if (!(t->name = strdup(json_string_value(json_object_get(function, "name")))))
        return no_memory(k->err);
    if (!json_is_object(schema) || !json_object_size(schema))
        schema = nothing = json_pack("{s:s}", "type", "object");
    if (!schema)
        return no_memory(k->err);
    k->schema = schema;
    int rc = k->syntax->tagged ? tagged_params(k, t) : json_form(k, schema, &t->form);
    if (rc == 0 && !k->syntax->tagged && !t->form)
        rc = any_json(k, "{\"type\": \"object\"}", &t->form);
    json_decref(nothing);
    return rc;
}

int calls_create(struct calls **out, struct forms *forms, const struct call_syntax *syntax,
                 const json_t *tools, enum tool_choice choice, const char *only, bool several,
                 struct lode_error *err) {
    struct calls *c = calloc(1, sizeof *c);
    const size_t n = json_array_size(tools);
    struct maker k = {.forms = forms, .syntax = syntax, .err = err};
    int rc = 0;
    *out = NULL;
    if (!c)
        return no_memory(err);
    *c = (struct calls){.holders = 1, .syntax = syntax, .choice = choice, .several = several};
    c->tools = calloc(n + 1, sizeof *c->tools);
    if (!c->tools)
        rc = no_memory(err);
    for (k.i_tool = 0; rc == 0 && k.i_tool < n; k.i_tool++)
        c->strict = c->strict || json_is_true(json_object_get(json_object_get(
                                     json_array_get(tools, k.i_tool), "function"), "strict"));
    /* nothing is held to them otherwise: their schemas need not be compiled */
    const bool held = choice == TOOLS_REQUIRED || c->strict;
    for (k.i_tool = 0; rc == 0 && held && k.i_tool < n; k.i_tool++) {
        const json_t *f = json_object_get(json_array_get(tools, k.i_tool), "function");
        k.strict = json_is_true(json_object_get(f, "strict"));
        if (!only || !strcmp(only, json_string_value(json_object_get(f, "name"))))
            rc = add_tool(&k, c, f);
    }
    if (rc < 0)
        calls_put(c);
    else
        *out = c;
    return rc;
}

void calls_hold(struct calls *c) { atomic_fetch_add(&c->holders, 1); }

void calls_put(struct calls *c) {
    if (!c || atomic_fetch_sub(&c->holders, 1) > 1)
        return;
    for (size_t i = 0; i < c->n_tools; i++) {
        struct call_tool *t = &c->tools[i];
        for (size_t k = 0; k < t->n_params; k++) {
            struct call_param *p = &t->params[k];
            for (size_t j = 0; j < p->n_choices; j++)
                free(p->choices[j]);
            free(p->choices);
            free(p->name);
            forms_put(p->form);
        }
        free(t->params);
        free(t->name);
        forms_put(t->form);
    }
    free(c->tools);
    free(c);
}
