/* What models write, told apart: every format, whole, byte by byte, cut in two everywhere and cut
 * at random, always with the same events and never losing a byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <jansson.h>

#include "lode/chat.h"
#include "lode/toolcall.h"

/* The events as text: "R:thinking|C:text|B:name|A:{...}|E|X:reason:text"; markup is left out. */
struct seen {
    char *said, *all; /* all: the texts of the events, joined */
    size_t n_said, n_all, n_args;
    FILE *said_f, *all_f;
    int kind;
    char args[65536];
    int64_t next_index;
};

static void seen_open(struct seen *s) {
    *s = (struct seen){.kind = -1};
    s->said_f = open_memstream(&s->said, &s->n_said);
    s->all_f = open_memstream(&s->all, &s->n_all);
    assert_non_null(s->said_f);
    assert_non_null(s->all_f);
}

static void seen_close(struct seen *s) {
    fclose(s->said_f);
    fclose(s->all_f);
    free(s->said);
    free(s->all);
}

static void check_arguments(struct seen *s) {
    json_error_t why;
    json_t *v = json_loadb(s->args, s->n_args, JSON_ALLOW_NUL, &why);
    if (!json_is_object(v))
        fail_msg("no JSON object: %.*s: %s", (int)s->n_args, s->args, why.text);
    json_decref(v);
}

static int put(void *user, const struct lode_toolcall_event *e) {
    static const char *const heads[] = {[LODE_TOOLCALL_CONTENT] = "C:",
                                        [LODE_TOOLCALL_REASONING] = "R:",
                                        [LODE_TOOLCALL_ARGUMENTS] = "A:"};
    struct seen *s = user;
    if (e->kind != LODE_TOOLCALL_BEGIN && e->kind != LODE_TOOLCALL_ARGUMENTS)
        fwrite(e->text, 1, e->len, s->all_f);
    if (e->kind == LODE_TOOLCALL_MARKUP)
        return 0;
    const bool goes_on = (int)e->kind == s->kind && e->kind != LODE_TOOLCALL_BEGIN &&
                         e->kind != LODE_TOOLCALL_END && e->kind != LODE_TOOLCALL_MALFORMED;
    if (!goes_on && s->kind >= 0)
        fputc('|', s->said_f);
    s->kind = (int)e->kind;
    switch (e->kind) {
    case LODE_TOOLCALL_BEGIN:
        assert_int_equal(e->index, s->next_index);
        assert_true(e->id[0]);
        s->next_index++;
        s->n_args = 0;
        fprintf(s->said_f, "B:%s", e->name);
        break;
    case LODE_TOOLCALL_END:
        assert_int_equal(e->index, s->next_index - 1);
        check_arguments(s);
        fputc('E', s->said_f);
        break;
    case LODE_TOOLCALL_MALFORMED:
        fprintf(s->said_f, "X:%s:%.*s", e->reason, (int)e->len, e->text);
        break;
    default:
        assert_true(e->len > 0);
        fprintf(s->said_f, "%s%.*s", goes_on ? "" : heads[e->kind], (int)e->len, e->text);
        if (e->kind == LODE_TOOLCALL_ARGUMENTS && s->n_args + e->len < sizeof s->args) {
            memcpy(s->args + s->n_args, e->text, e->len);
            s->n_args += e->len;
        }
    }
    return 0;
}

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get\",\"parameters\":{\"type\":\"object\","
    "\"$defs\":{\"D\":{\"type\":\"array\"}},\"properties\":{\"s\":{\"type\":\"string\"},"
    "\"n\":{\"type\":\"integer\"},\"b\":{\"type\":\"boolean\"},\"o\":{\"type\":\"object\"},"
    "\"l\":{\"$ref\":\"#/$defs/D\"},\"m\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]},"
    "\"e\":{\"enum\":[1,2]},\"u\":{}}}}},{\"name\":\"bare\",\"input_schema\":{}}]";

struct row {
    const char *format, *in, *out;
    bool thinking, no_tools;
};

/* Pieces end where cut is true. */
static void parse(const struct row *r, struct seen *s, bool (*cut)(void *state, size_t at),
                  void *state) {
    struct lode_toolcall *p;
    struct lode_error err = {0};
    const size_t n = strlen(r->in);
    const struct lode_toolcall_opts o = {
        .style = {r->format, strcmp(r->format, "mistral") == 0 ? "[THINK]" : "<think>"},
        .thinking = r->thinking,
        .tools = r->no_tools ? NULL : tools,
        .tools_len = sizeof tools - 1,
        .put = put,
        .user = s,
    };
    seen_open(s);
    assert_int_equal(lode_toolcall_create(&p, &o, &err), 0);
    for (size_t from = 0, at = 1; at <= n; at++) {
        if (at == n || cut(state, at)) {
            /* in memory of its own, so that reading beyond is seen */
            char *piece = malloc(at - from);
            assert_non_null(piece);
            memcpy(piece, r->in + from, at - from);
            assert_int_equal(lode_toolcall_push(p, piece, at - from, &err), 0);
            free(piece);
            from = at;
        }
    }
    assert_int_equal(lode_toolcall_finish(p, &err), 0);
    lode_toolcall_free(p);
    fflush(s->said_f);
    fflush(s->all_f);
}

static bool cut_at(void *state, size_t at) { return at == *(const size_t *)state; }
static bool cut_always(void *state, size_t at) {
    (void)state;
    (void)at;
    return true;
}
static bool cut_randomly(void *state, size_t at) {
    uint64_t *x = state;
    (void)at;
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return *x >> 61 == 0;
}

static void check(const struct row *r, const char *how, struct seen *s) {
    if (strcmp(s->said, r->out) != 0)
        fail_msg("%s, %s: %s\n  expected %s\n  got      %s", r->format, how, r->in, r->out,
                 s->said);
    if (s->n_all != strlen(r->in) || memcmp(s->all, r->in, s->n_all) != 0)
        fail_msg("%s, %s: the text %s\n  came back as %s", r->format, how, r->in, s->all);
    seen_close(s);
}

#define CALL_G "B:get|A:"
static const struct row rows[] = {
    /* thinking, whatever the format */
    {"none", "hello", "C:hello", 0, 0},
    {"none", "  hello\n", "C:  hello\n", 0, 0},
    {"none", "", "", 0, 0},
    {"none", "<th", "C:<th", 0, 0},
    {"none", "<b>x</b>", "C:<b>x</b>", 0, 0},
    {"none", "\n<think>\nhm, so\n</think>\n\nyes", "R:hm, so|C:yes", 0, 0},
    {"none", "<think>\n\n</think>\n\nyes", "C:yes", 0, 0},
    {"none", "<think></think>", "", 0, 0},
    {"none", "<think>a < b </thin> c\n", "R:a < b </thin> c", 0, 0},
    {"none", "\nhm </think> a <think> b", "R:hm|C:a <think> b", 1, 0},
    {"none", "\n<think>\nhm </think> a", "R:hm|C:a", 1, 0},
    {"none", " <thin", "R:<thin", 1, 0},
    {"none", "<tool_call>\n{}", "C:<tool_call>\n{}", 0, 0},

    {"hermes", "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"s\": \"a\"}}\n</tool_call>",
     CALL_G "{\"s\": \"a\"}|E", 0, 0},
    {"hermes", "Sure. \n\n<tool_call>{\"name\":\"get\",\"arguments\":{}}</tool_call>\n\nDone.\n",
     "C:Sure.|" CALL_G "{}|E|C:Done.\n", 0, 0},
    {"hermes",
     "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"s\": \"\\u00e9 \\\"q\\\" \\\\ "
     "</tool_call> é\","
     " \"o\": {\"x\": [1, -2.5e3, true, null, {\"y\": []}]}}}\n</tool_call>\n<tool_call>\n"
     "{\"arguments\": {\"n\": 1}, \"name\": \"get\"}\n</tool_call>",
     CALL_G
     "{\"s\": \"\\u00e9 \\\"q\\\" \\\\ </tool_call> é\", \"o\": {\"x\": [1, -2.5e3, true, null, "
     "{\"y\": []}]}}|E|" CALL_G "{\"n\": 1}|E",
     0, 0},
    {"hermes", "<think>\n<tool_call>{\"name\":\"get\"}</tool_call>\n</think>\n\nno",
     "R:<tool_call>{\"name\":\"get\"}</tool_call>|C:no", 0, 0},
    {"hermes", "x</think>\n<tool_call>{\"name\":\"get\"}</tool_call>", "R:x|" CALL_G "{}|E", 1, 0},
    {"hermes", "<tool_call>{\"name\":\"get\",\"arguments\":null}</tool_call>", CALL_G "{}|E", 0, 0},
    {"hermes", "<tool_call>{\"name\":\"get\",\"arguments\":\"{\\\"n\\\": 1}\"}</tool_call>",
     CALL_G "{\"n\": 1}|E", 0, 0},
    {"hermes", "<tool_call>{\"name\":\"get\",\"arguments\":\"\"}</tool_call>", CALL_G "{}|E", 0, 0},
    {"hermes", "<tool_call>[{\"name\":\"get\"},{\"name\":\"get\"}]</tool_call>",
     CALL_G "{}|E|" CALL_G "{}|E", 0, 0},
    {"hermes", "<tool_call>{\"name\":\"get\"}\n{\"name\":\"get\"}</tool_call>",
     CALL_G "{}|E|" CALL_G "{}|E", 0, 0},
    {"hermes",
     "<tool_call>{\"type\":\"function\",\"function\":{\"name\":\"get\",\"arguments\":{\"n\":2}},"
     "\"id\":\"x\"}</tool_call>",
     CALL_G "{\"n\":2}|E", 0, 0},
    {"hermes", "<tool_call>{\"name\":\"get\",\"arguments\":{\"s\":\"a\nb\tc\"}}</tool_call>",
     CALL_G "{\"s\":\"a\\nb\\tc\"}|E", 0, 0},
    {"hermes", "<tool_call>{\"name\":\"g\\u0065t\",\"x\":[1],\"arguments\":{}}</tool_call>",
     CALL_G "{}|E", 0, 0},
    {"hermes", "a <tool_cal b <tool_call", "C:a <tool_cal b <tool_call", 0, 0},
    {"hermes", "a\n\n", "C:a\n\n", 0, 0},
    /* complete, but for the tag that may have ended the text */
    {"hermes", "<tool_call>\n{\"name\":\"get\"}\n", CALL_G "{}|E", 0, 0},
    /* malformed */
    {"hermes", "x <tool_call>\n{\"name\":\"get\",\"arguments\":{\"s\":\"a",
     "C:x|" CALL_G "{\"s\":\"a|X:unclosed:<tool_call>\n{\"name\":\"get\",\"arguments\":{\"s\":\"a",
     0, 0},
    {"hermes", "<tool_call>\n", "X:unclosed:<tool_call>\n", 0, 0},
    {"hermes", "<tool_call>\n{\"name\":\"get\",\"arguments\":{s:1}}\n</tool_call> after",
     CALL_G
     "{|X:bad_json:<tool_call>\n{\"name\":\"get\",\"arguments\":{s:1}}\n</tool_call>|C:after",
     0, 0},
    {"hermes", "<tool_call>get</tool_call><tool_call>{\"name\":\"get\"}</tool_call>",
     "X:bad_json:<tool_call>get</tool_call>|" CALL_G "{}|E", 0, 0},
    {"hermes", "<tool_call>get<tool_call>{\"name\":\"get\"}</tool_call>",
     "X:bad_json:<tool_call>get|" CALL_G "{}|E", 0, 0},
    {"hermes", "<tool_call>{\"name\":\"get\"}}</tool_call>.",
     CALL_G "{}|E|X:bad_syntax:}</tool_call>|C:.", 0, 0},
    {"hermes", "<tool_call>{\"arguments\":{}}</tool_call>",
     "X:bad_name:<tool_call>{\"arguments\":{}}</tool_call>", 0, 0},
    {"hermes", "<tool_call>{\"name\":7}</tool_call>",
     "X:bad_name:<tool_call>{\"name\":7}</tool_call>", 0, 0},
    {"hermes", "<tool_call>{\"name\":\"get\",\"arguments\":[1]}</tool_call>",
     "X:bad_arguments:<tool_call>{\"name\":\"get\",\"arguments\":[1]}</tool_call>", 0, 0},
    {"hermes", "<tool_call>[]</tool_call>", "X:no_call:<tool_call>[]</tool_call>", 0, 0},
    {"hermes", "<tool_call>{\"name\":\"get\",}</tool_call>",
     "X:bad_json:<tool_call>{\"name\":\"get\",}</tool_call>", 0, 0},

    {"qwen3-coder",
     "ok\n<tool_call>\n<function=get>\n<parameter=s>\nline 1\n  \"line\" 2\n</parameter>\n"
     "<parameter=n>\n3\n</parameter>\n<parameter=b>\nTrue\n</parameter>\n<parameter=o>\n{\"a\": "
     "[1]}\n"
     "</parameter>\n</function>\n</tool_call>",
     "C:ok|" CALL_G
     "{\"s\": \"line 1\\n  \\\"line\\\" 2\", \"n\": 3, \"b\": true, \"o\": {\"a\": [1]}}|E",
     0, 0},
    {"qwen3-coder",
     "<tool_call>\n<function=get>\n<parameter=s>\n\n</parameter>\n<parameter=m>\nnull\n</"
     "parameter>\n"
     "<parameter=e>\n2\n</parameter>\n<parameter=l>\n[1]\n</parameter>\n<parameter=u>\n5\n</"
     "parameter>\n"
     "<parameter=n>\nmany\n</parameter>\n</function>\n</tool_call>",
     CALL_G "{\"s\": \"\", \"m\": null, \"e\": 2, \"l\": [1], \"u\": \"5\", \"n\": \"many\"}|E", 0,
     0},
    {"qwen3-coder",
     "<tool_call>\n<function=get>\n<parameter=s>\n<a>\n</parameter> not "
     "yet\n</parameter>\n</function>\n"
     "</tool_call>\n<tool_call>\n<function=other>\n</function>\n</tool_call>",
     CALL_G "{\"s\": \"<a>\\n</parameter> not yet\"}|E|B:other|A:{}|E", 0, 0},
    {"qwen3-coder", "<function=get>\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>x",
     CALL_G "{\"n\": 1}|E|C:x", 0, 0},
    {"qwen3-coder", "<function=get>\n</function>\nx", CALL_G "{}|E|C:x", 0, 0},
    {"qwen3-coder", "<tool_call>\n<function=get>\n<parameter=s>\nabc",
     CALL_G "{\"s\": \"abc|X:unclosed:<tool_call>\n<function=get>\n<parameter=s>\nabc", 0, 0},
    {"qwen3-coder", "<tool_call>\n{\"name\":\"get\"}\n</tool_call>",
     "X:bad_syntax:<tool_call>\n{\"name\":\"get\"}\n</tool_call>", 0, 0},
    {"qwen3-coder", "<tool_call></tool_call>", "X:no_call:<tool_call></tool_call>", 0, 0},
    {"qwen3-coder", "<tool_call><function=a b></function></tool_call>",
     "X:bad_name:<tool_call><function=a b></function></tool_call>", 0, 0},
    {"seed",
     "<seed:tool_call>\n<function=get>\n<parameter=s>a</parameter>\n<parameter=n>3</parameter>\n"
     "</function>\n</seed:tool_call>",
     CALL_G "{\"s\": \"a\", \"n\": 3}|E", 0, 0},

    {"glm",
     "<tool_call>get\n<arg_key>s</arg_key>\n<arg_value>a\nb</arg_value>\n<arg_key>n</arg_key>\n"
     "<arg_value>-1</arg_value>\n</tool_call>\n<tool_call>bare</tool_call>",
     CALL_G "{\"s\": \"a\\nb\", \"n\": -1}|E|B:bare|A:{}|E", 0, 0},
    {"glm",
     "x</think><tool_call>get<arg_key>o</arg_key><arg_value>{\"k\": 1}</arg_value></tool_call>",
     "R:x|" CALL_G "{\"o\": {\"k\": 1}}|E", 1, 0},
    {"glm", "<tool_call>get<arg_key>s</arg_key>value</tool_call>",
     CALL_G "{\"s\": |X:bad_syntax:<tool_call>get<arg_key>s</arg_key>value</tool_call>", 0, 0},
    {"minimax",
     "<minimax:tool_call>\n<invoke name=\"get\">\n<parameter name=\"s\">a</parameter>\n</invoke>\n"
     "<invoke name=\"get\">\n</invoke>\n</minimax:tool_call>",
     CALL_G "{\"s\": \"a\"}|E|" CALL_G "{}|E", 0, 0},
    {"deepseek-dsml",
     "\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" "
     "string=\"true\">"
     "1</｜DSML｜parameter>\n<｜DSML｜parameter name=\"b\" string=\"false\">{\"x\": "
     "1}</｜DSML｜parameter>\n"
     "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
     "B:f|A:{\"a\": \"1\", \"b\": {\"x\": 1}}|E", 0, 0},

    {"mistral", "[TOOL_CALLS]get[ARGS]{\"n\": 1}[TOOL_CALLS]get[CALL_ID]abc123DEF[ARGS]{}",
     CALL_G "{\"n\": 1}|E|" CALL_G "{}|E", 0, 0},
    {"mistral",
     "[THINK]so[/THINK]Hi [TOOL_CALLS] [{\"name\": \"get\", \"arguments\": {\"s\": \"[\"}, "
     "\"id\": \"abcdefghi\"}, {\"name\": \"get\", \"arguments\": {}}]",
     "R:so|C:Hi|" CALL_G "{\"s\": \"[\"}|E|" CALL_G "{}|E", 0, 0},
    {"mistral", "[TOOL_CALLS]get{\"n\": 1}", CALL_G "{\"n\": 1}|E", 0, 0},
    {"mistral", "[TOOL_CALLS]get[ARGS]{\"n\"",
     CALL_G "{\"n\"|X:unclosed:[TOOL_CALLS]get[ARGS]{\"n\"", 0, 0},
    {"mistral", "[TOOL_CALLS]get[ARGS]none", "B:get|X:bad_arguments:[TOOL_CALLS]get[ARGS]none", 0,
     0},
    {"mistral", "[1] and [TOOL", "C:[1] and [TOOL", 0, 0},

    {"harmony",
     "<|channel|>analysis<|message|>hm\n so<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.get <|constrain|>json<|message|>{\"n\": 1}<|call|>",
     "R:hm\n so|" CALL_G "{\"n\": 1}|E", 0, 0},
    {"harmony",
     "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>"
     "Yes.<|return|>",
     "R:hm|C:Yes.", 0, 0},
    {"harmony",
     " to=functions.get<|channel|>commentary json<|message|>{}<|call|><|start|>assistant<|channel|>"
     "commentary<|message|>I did.<|end|>",
     CALL_G "{}|E|C:I did.", 0, 0},
    {"harmony", "plain text", "C:plain text", 0, 0},
    {"harmony", "<|channel|>final<|message|>a <| b", "C:a <| b", 0, 0},
    {"harmony",
     "<|channel|>commentary to=python<|message|>print(1)<|call|><|start|>assistant<|channel|>"
     "final<|message|>ok",
     "B:python|X:bad_arguments:<|channel|>commentary to=python<|message|>print(1)<|call|>|C:ok", 0,
     0},
    {"harmony", "<|channel|>commentary to=functions.get<|message|>{\"n\":",
     CALL_G "{\"n\":|X:unclosed:<|channel|>commentary to=functions.get<|message|>{\"n\":", 0, 0},
    {"harmony", "<|channel|>analysis", "X:unclosed:<|channel|>analysis", 0, 0},

    {"deepseek",
     "Go.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get<｜tool▁sep｜>{\"n\": 1}<｜tool▁call▁end｜>"
     "<｜tool▁call▁begin｜>get<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "C:Go.|" CALL_G "{\"n\": 1}|E|" CALL_G "{}|E", 0, 0},
    {"deepseek",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get\n```json\n{\"s\": "
     "\"```\"}\n```"
     "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>get\n```json\n{}\n```<"
     "｜tool▁call▁end｜>"
     "<｜tool▁calls▁end｜>",
     CALL_G "{\"s\": \"```\"}|E|" CALL_G "{}|E", 0, 0},
    {"deepseek",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
     "B:function|A:{}|E", 0, 0},
    {"deepseek", "<｜tool▁calls▁begin｜>what<｜tool▁calls▁end｜>!",
     "X:bad_syntax:<｜tool▁calls▁begin｜>what<｜tool▁calls▁end｜>|C:!", 0, 0},
    {"kimi",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.get:0<|tool_call_argument_begin|>"
     "{\"n\": 1}<|tool_call_end|><|tool_call_begin|>functions.get:1<|tool_call_argument_begin|>{}"
     "<|tool_call_end|><|tool_calls_section_end|>",
     CALL_G "{\"n\": 1}|E|" CALL_G "{}|E", 0, 0},

    {"llama3", "{\"name\": \"get\", \"parameters\": {\"n\": 1}}", CALL_G "{\"n\": 1}|E", 0, 0},
    {"llama3",
     "<|python_tag|>{\"type\": \"function\", \"name\": \"get\", \"parameters\": {}}; "
     "{\"name\": \"get\", \"parameters\": {\"n\": 2}}",
     CALL_G "{}|E|" CALL_G "{\"n\": 2}|E", 0, 0},
    {"llama3", "<|python_tag|>get.call(s=\"x\")", CALL_G "{\"s\": \"x\"}|E", 0, 0},
    {"llama3", "{\"name\": \"Bob\", \"age\": 3}", "C:{\"name\": \"Bob\", \"age\": 3}", 0, 0},
    {"llama3", "{\"name\": \"Bob\", \"parameters\": {}}",
     "C:{\"name\": \"Bob\", \"parameters\": {}}", 0, 0},
    {"llama3", "{\"name\": \"Bob\", \"parameters\": {}}", "B:Bob|A:{}|E", 0, 1},
    {"llama3", "{\"name\": \"get\"", "C:{\"name\": \"get\"", 0, 0},
    {"llama3", "[1, 2] is a list", "C:[1, 2] is a list", 0, 0},
    {"llama3", "So {\"name\": \"get\", \"parameters\": {}}",
     "C:So {\"name\": \"get\", \"parameters\": {}}", 0, 0},
    {"llama3", "{\"name\": \"get\", \"parameters\": {\"n\": 1",
     CALL_G "{\"n\": 1|X:unclosed:{\"name\": \"get\", \"parameters\": {\"n\": 1", 0, 0},

    {"pythonic", "[get(s='it\\'s', n=-3, b=True, l=[1, (2,), {'k': None}]), bare()]",
     CALL_G
     "{\"s\": \"it's\", \"n\": -3, \"b\": true, \"l\": [1, [2], {\"k\": null}]}|E|B:bare|A:{}|E",
     0, 0},
    {"pythonic", "<|python_start|>[get(s=\"a, b) \\u00e9\\n\")]<|python_end|>",
     CALL_G "{\"s\": \"a, b) \\u00e9\\n\"}|E", 0, 0},
    {"pythonic", "[link](http://x) and [get", "C:[link](http://x) and [get", 0, 0},
    {"pythonic", "[other(1)]", "C:[other(1)]", 0, 0},
    {"pythonic", "[get(1)]", "B:get|X:bad_syntax:[get(1)]", 0, 0},
    {"pythonic", "[get(s=oops)]", CALL_G "{\"s\": |X:bad_syntax:[get(s=oops)]", 0, 0},
    {"lfm2", "<|tool_call_start|>[get(s=\"x\")]<|tool_call_end|>Checking",
     CALL_G "{\"s\": \"x\"}|E|C:Checking", 0, 0},

    {"gemma4",
     "<|tool_call>call:get{s:<|\"|>a, "
     "{b}<tool_call|><|\"|>,n:3,o:{l:[1,true,<|\"|>q<|\"|>]}}<tool_call|>",
     CALL_G "{\"s\": \"a, {b}<tool_call|>\", \"n\": 3, \"o\": {\"l\": [1, true, \"q\"]}}|E", 0, 0},
    {"gemma4", "<|tool_call>call:get{}<tool_call|>", CALL_G "{}|E", 0, 0},
    {"gemma4", "<|tool_call>call:get{s}<tool_call|>",
     "B:get|X:bad_syntax:<|tool_call>call:get{s}<tool_call|>", 0, 0},

    {"command-r7b",
     "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get\", \"parameters\": "
     "{\"n\": 1}}\n]"
     "<|END_ACTION|>",
     CALL_G "{\"n\": 1}|E", 0, 0},
    {"command-r7b", "<|START_RESPONSE|>Hi.<|END_RESPONSE|>", "C:Hi.", 0, 0},
    {"apertus", "<|tools_prefix|>[{\"get\": {\"n\": 1}}, {\"bare\": {}}]<|tools_suffix|>",
     CALL_G "{\"n\": 1}|E|B:bare|A:{}|E", 0, 0},
    {"granite", "<|tool_call|>[{\"name\": \"get\", \"arguments\": {}}] x", CALL_G "{}|E|C:x", 0, 0},
    {"phi4", "<|tool_call|>[{\"name\": \"get\", \"arguments\": {}}]<|/tool_call|>", CALL_G "{}|E",
     0, 0},
    {"nemotron", "<TOOLCALL>[{\"name\": \"get\", \"arguments\": {}}]</TOOLCALL>", CALL_G "{}|E", 0,
     0},
    {"tool-calls",
     "<tool_calls>[{\"name\": \"get\", \"arguments\": {}, \"id\": \"1\"}]</tool_calls>",
     CALL_G "{}|E", 0, 0},
    {"gigachat", "<|function_call|>{\"name\": \"get\", \"arguments\": {}}", CALL_G "{}|E", 0, 0},
    {"functionary", "<function=get>{\"n\": 1}</function><function=bare>{}</function>",
     CALL_G "{\"n\": 1}|E|B:bare|A:{}|E", 0, 0},
    {"firefunction", " functools[{\"name\": \"get\", \"arguments\": {}}]", CALL_G "{}|E", 0, 0},
};

static void every_format_in_pieces(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *r = &rows[i];
        struct seen s;
        const size_t n = strlen(r->in);
        size_t at = n + 1;
        parse(r, &s, cut_at, &at);
        check(r, "whole", &s);
        parse(r, &s, cut_always, NULL);
        check(r, "byte by byte", &s);
        for (at = 1; at < n; at++) {
            char how[32];
            snprintf(how, sizeof how, "cut at %zu", at);
            parse(r, &s, cut_at, &at);
            check(r, how, &s);
        }
        for (uint64_t seed = 1; seed <= 20; seed++) {
            uint64_t x = seed;
            parse(r, &s, cut_randomly, &x);
            check(r, "cut at random", &s);
        }
    }
    print_message("%zu texts\n", sizeof rows / sizeof *rows);
    for (size_t f = 0; lode_toolcall_format(f, NULL); f++) {
        bool tested = false;
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            tested = tested || strcmp(rows[i].format, lode_toolcall_format(f, NULL)) == 0;
        if (!tested)
            fail_msg("no text tests %s", lode_toolcall_format(f, NULL));
    }
}

/* Each text in every other format: whatever it makes of it, nothing is lost, and pieces do not
 * matter. */
static void every_text_in_every_format(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t f = 0; lode_toolcall_format(f, NULL); f++) {
            struct row r = rows[i];
            struct seen whole, pieces;
            size_t never = SIZE_MAX;
            r.format = lode_toolcall_format(f, NULL);
            parse(&r, &whole, cut_at, &never);
            parse(&r, &pieces, cut_always, NULL);
            r.out = whole.said;
            check(&r, "byte by byte", &pieces);
            char *said = strdup(whole.said);
            r.out = said;
            check(&r, "whole", &whole);
            free(said);
        }
    }
}

/* Text leaves at once unless it may be part of a tag. */
static void text_is_not_held_back(void **state) {
    (void)state;
    struct seen s;
    struct lode_toolcall *p;
    seen_open(&s);
    const struct lode_toolcall_opts o = {.style = {"hermes", "<think>"}, .put = put, .user = &s};
    assert_int_equal(lode_toolcall_create(&p, &o, NULL), 0);
    static const struct {
        const char *in, *out;
    } steps[] = {
        {"ab", "C:ab"},
        {"c<to", "C:abc"},
        {"x", "C:abc<tox"},
        {" ", "C:abc<tox"},
        {"y", "C:abc<tox y"},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"1", "C:abc<tox y|B:f|A:{\"a\":\"1"},
        {"2", "C:abc<tox y|B:f|A:{\"a\":\"12"}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        assert_int_equal(lode_toolcall_push(p, steps[i].in, strlen(steps[i].in), NULL), 0);
        fflush(s.said_f);
        assert_string_equal(s.said, steps[i].out);
    }
    lode_toolcall_free(p);
    seen_close(&s);
}

static void special_tokens_are_wanted(void **state) {
    (void)state;
    static const struct {
        const char *format, *piece;
        bool wanted;
    } pieces[] = {{"hermes", "<tool_call>", true},   {"hermes", "</think>", true},
                  {"hermes", "<|im_end|>", false},   {"harmony", "<|message|>", true},
                  {"harmony", "<|start|>", true},    {"deepseek", "<｜tool▁sep｜>", true},
                  {"none", "<｜tool▁sep｜>", false}, {"none", "<think>", true},
                  {"mistral", "[ARGS]", true},       {"mistral", "</s>", false},
                  {"gemma4", "<|\"|>", true},        {"llama3", "<|python_tag|>", true}};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        struct lode_toolcall *p;
        const struct lode_toolcall_opts o = {.style = {pieces[i].format, "<think>"}, .put = put};
        assert_int_equal(lode_toolcall_create(&p, &o, NULL), 0);
        assert_int_equal(lode_toolcall_wants(p, pieces[i].piece, strlen(pieces[i].piece)),
                         pieces[i].wanted);
        lode_toolcall_free(p);
    }
}

static int stop(void *user, const struct lode_toolcall_event *e) {
    (void)user;
    (void)e;
    return 7;
}

static void put_can_stop(void **state) {
    (void)state;
    struct lode_toolcall *p;
    struct lode_error err;
    const struct lode_toolcall_opts o = {.put = stop}, bad = {.style = {"none of these", NULL}},
                                    bad_tools = {.tools = "[", .tools_len = 1};
    assert_int_equal(lode_toolcall_create(&p, &o, NULL), 0);
    assert_int_equal(lode_toolcall_push(p, "a", 1, NULL), LODE_ERR_CANCELLED);
    assert_int_equal(lode_toolcall_push(p, "a", 1, &err), LODE_ERR_ARG);
    lode_toolcall_free(p);
    assert_int_equal(lode_toolcall_create(&p, &bad, &err), LODE_ERR_ARG);
    assert_null(p);
    assert_true(lode_toolcall_create(&p, &bad_tools, &err) < 0);
    assert_null(p);
}

/* Texts that would take quadratic time if what is held back were looked at again and again. */
static void time_is_linear(void **state) {
    (void)state;
    static const char *const shapes[][3] = {
        {"hermes", "x", " "},
        {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"", "x"},
        {"hermes", "<tool_call>{\"arguments\":{\"a\":\"", "x"},
        {"hermes", "<tool_call>no", "<tool_cal"},
        {"hermes", "<tool_call>{\"name\":\"f\"}", " "},
        {"qwen3-coder", "<function=f>\n<parameter=a>\n", "x\n"},
        {"qwen3-coder", "<function=f>\n<parameter=a>\nx</parameter>", " "},
        {"qwen3-coder", "<function=f>\n<parameter=a>\n", "</parameter>"},
        {"qwen3-coder", "<function=f>\n<parameter=n>\n", "1"},
        {"deepseek", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}", " "},
        {"deepseek", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}```", " "},
        {"pythonic", "[f(a='", "x"},
        {"pythonic", "[f(a=", " "},
        {"pythonic", "[f(a", " "},
        {"gemma4", "<|tool_call>call:f{a:<|\"|>", "x"},
        {"harmony", "<|channel|>analysis<|message|>", " "},
        {"harmony", "", " "},
        {"llama3", "", " "},
        {"llama3", "{\"name\":\"", "x"},
        {"none", "<think>", " "},
    };
    enum { N = 200000 };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct seen s;
        struct lode_toolcall *p;
        seen_open(&s);
        const struct lode_toolcall_opts o = {
            .style = {shapes[i][0], "<think>"}, .put = put, .user = &s};
        const clock_t start = clock();
        assert_int_equal(lode_toolcall_create(&p, &o, NULL), 0);
        assert_int_equal(lode_toolcall_push(p, shapes[i][1], strlen(shapes[i][1]), NULL), 0);
        for (int k = 0; k < N; k++)
            assert_int_equal(lode_toolcall_push(p, shapes[i][2], strlen(shapes[i][2]), NULL), 0);
        lode_toolcall_finish(p, NULL);
        lode_toolcall_free(p);
        const double took = (double)(clock() - start) / CLOCKS_PER_SEC;
        /* quadratic: N^2 / 2 bytes looked at again, 20 s at 1 ns each; linear: some hundredths */
        if (took > 20)
            fail_msg("%s %s: %.1f s", shapes[i][0], shapes[i][1], took);
        fflush(s.all_f);
        assert_int_equal(s.n_all, strlen(shapes[i][1]) + N * strlen(shapes[i][2]));
        seen_close(&s);
    }
}

static void nesting_is_bounded(void **state) {
    (void)state;
    enum { DEEP = 5000 };
    static const char *const shapes[][4] = {
        {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":", "[", "too_deep"},
        {"pythonic", "[f(a=", "[", "unclosed"},
        {"gemma4", "<|tool_call>call:f{a:", "[", "unclosed"},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char *text = malloc(DEEP * 2 + 200);
        assert_non_null(text);
        size_t n = (size_t)sprintf(text, "%s", shapes[i][1]);
        for (int k = 0; k < DEEP; k++)
            text[n++] = '[';
        if (i)
            for (int k = 0; k < DEEP; k++)
                text[n++] = ']';
        strcpy(text + n, i == 1 ? ")]" : i == 2 ? "}<tool_call|>" : "");
        struct row r = {shapes[i][0], text, NULL, false, true};
        struct seen s;
        size_t never = SIZE_MAX;
        parse(&r, &s, cut_at, &never);
        assert_non_null(strstr(s.said, i ? "X:bad_syntax" : "X:too_deep"));
        seen_close(&s);
        free(text);
    }
}

/* ---- which format a template speaks ---- */

static void check_style(const char *source, const char *format, const char *think) {
    struct lode_template *t;
    struct lode_toolcall_style style;
    struct lode_error err = {0};
    if (lode_template_compile(&t, source, strlen(source), &err) < 0)
        fail_msg("%s: %s", err.where, err.text);
    assert_int_equal(lode_toolcall_detect(&style, t, &err), 0);
    lode_template_free(t);
    if (strcmp(style.format, format) != 0 || strcmp(style.think, think) != 0)
        fail_msg("%.200s: %s %s, expected %s %s", source, style.format, style.think, format, think);
}

#define EACH_CALL(text)                                                                            \
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}" text   \
    "{% endfor %}{% endfor %}"

static void formats_are_found(void **state) {
    (void)state;
    check_style("{{ messages[0].content }}", "none", "<think>");
    check_style(lode_template_builtin("chatml"), "hermes", "<think>");
    check_style(EACH_CALL("<tool_call>{{ c.function | tojson }}</tool_call>[THINK]"), "hermes",
                "[THINK]");
    check_style(
        EACH_CALL(
            "<tool_call>{{ c.function.name }}\n{% for k, v in c.function.arguments.items() %}"
            "<arg_key>{{ k }}</arg_key><arg_value>{{ v }}</arg_value>{% endfor %}</tool_call>"),
        "glm", "<think>");
    check_style(
        EACH_CALL("<tool_call>\n<function={{ c.function.name }}>\n"
                  "{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>\n{{ v }}\n"
                  "</parameter>\n{% endfor %}</function>\n</tool_call>"),
        "qwen3-coder", "<think>");
    check_style(
        EACH_CALL("[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}</s>"),
        "mistral", "<think>");
    /* wants its arguments as a string */
    check_style(
        EACH_CALL("{{ '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + c.type + '<｜tool▁sep｜>' + "
                  "c.function.name + '\\n```json\\n' + c.function.arguments + "
                  "'\\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>' }}"),
        "deepseek", "<think>");
    check_style(EACH_CALL("{\"name\": \"{{ c.function.name }}\", \"parameters\": "
                          "{{ c.function.arguments | tojson }}}<eot>"),
                "llama3", "<think>");
    check_style(
        EACH_CALL("[{{ c.function.name }}({% for k, v in c.function.arguments.items() %}{{ k }}="
                  "'{{ v }}'{% endfor %})]<|eot|>"),
        "pythonic", "<think>");
    /* writes no call, but says how one is written */
    check_style("{{ messages[0].content }}Call as [TOOL_CALLS].", "mistral", "<think>");
    check_style("{{ raise_exception('no') }}{# <|channel|> <|message|> #}", "harmony", "<think>");

    const struct lode_toolcall_style style = {"hermes", "<think>"};
    assert_true(lode_toolcall_thinks(&style, "a<think>\n", 9));
    assert_false(lode_toolcall_thinks(&style, "<think>\n</think>\n\n", 19));
    assert_false(lode_toolcall_thinks(&style, "think>", 6));
}

/* What the public templates speak. */
static void public_templates_are_known(void **state) {
    (void)state;
    static const struct {
        const char *file, *format, *think;
    } known[] = {
        {"Apertus-8B-Instruct", "apertus", "<|inner_prefix|>"},
        {"Bielik-11B-v3.0-Instruct", "hermes", "<think>"},
        {"ByteDance-Seed-OSS", "seed", "<seed:think>"},
        {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "command-r7b", "<|START_THINKING|>"},
        {"GLM-4.7-Flash", "glm", "<think>"},
        {"GLM-5.2", "glm", "<think>"},
        {"GigaChat3.1-10B-A1.8B", "gigachat", "<think>"},
        {"HuggingFaceTB-SmolLM3-3B", "none", "<think>"},
        {"Kimi-K2-Thinking", "kimi", "<think>"},
        {"LFM2-8B-A1B", "lfm2", "<think>"},
        {"MiMo-VL", "hermes", "<think>"},
        {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "qwen3-coder", "<think>"},
        {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes", "<think>"},
        {"Qwen-QwQ-32B", "hermes", "<think>"},
        {"Qwen-Qwen2.5-7B-Instruct", "hermes", "<think>"},
        {"Qwen3-Coder", "qwen3-coder", "<think>"},
        {"Qwen3.5-4B", "qwen3-coder", "<think>"},
        {"StepFun3.5-Flash", "qwen3-coder", "<think>"},
        {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek", "<think>"},
        {"deepseek-ai-DeepSeek-V3.1", "deepseek", "<think>"},
        {"deepseek-ai-DeepSeek-V3.2", "deepseek-dsml", "<think>"},
        {"fireworks-ai-llama-3-firefunction-v2", "firefunction", "<think>"},
        {"google-gemma-2-2b-it", "none", "<think>"},
        {"google-gemma-4-31B-it", "gemma4", "<|channel>thought"},
        {"ibm-granite-granite-3.3-2B-Instruct", "granite", "<think>"},
        {"llama-cpp-rwkv-world", "none", "<think>"},
        {"meetkai-functionary-medium-v3.1", "functionary", "<think>"},
        {"meta-llama-Llama-3.1-8B-Instruct", "llama3", "<think>"},
        {"meta-llama-Llama-3.2-3B-Instruct", "llama3", "<think>"},
        {"microsoft-Phi-3.5-mini-instruct", "none", "<think>"},
        {"mistralai-Ministral-3-14B-Reasoning-2512", "mistral", "[THINK]"},
        {"moonshotai-Kimi-K2", "kimi", "<think>"},
        {"openai-gpt-oss-120b", "harmony", "<think>"},
        {"unsloth-Apriel-1.5", "tool-calls", "<think>"},
        {"unsloth-mistral-Devstral-Small-2507", "mistral", "<think>"},
    };
    const char *shared = getenv("LODE_SHARED");
    size_t n = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/ref/chat/templates/%s.jinja", shared ? shared : "../shared",
                 known[i].file);
        FILE *f = fopen(path, "rb");
        if (!f)
            continue;
        static char source[1 << 20];
        const size_t len = fread(source, 1, sizeof source - 1, f);
        source[len] = '\0';
        fclose(f);
        struct lode_template *t;
        struct lode_toolcall_style style;
        assert_int_equal(lode_template_compile(&t, source, len, NULL), 0);
        assert_int_equal(lode_toolcall_detect(&style, t, NULL), 0);
        lode_template_free(t);
        if (strcmp(style.format, known[i].format) != 0 || strcmp(style.think, known[i].think) != 0)
            fail_msg("%s: %s %s, expected %s %s", known[i].file, style.format, style.think,
                     known[i].format, known[i].think);
        n++;
    }
    if (n == 0) {
        print_message("SKIPPED: no ref/chat in LODE_SHARED\n");
        skip();
    }
    print_message("%zu templates\n", n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_in_pieces),
        cmocka_unit_test(every_text_in_every_format),
        cmocka_unit_test(text_is_not_held_back),
        cmocka_unit_test(special_tokens_are_wanted),
        cmocka_unit_test(put_can_stop),
        cmocka_unit_test(time_is_linear),
        cmocka_unit_test(nesting_is_bounded),
        cmocka_unit_test(formats_are_found),
        cmocka_unit_test(public_templates_are_known),
    };
    return cmocka_run_group_tests_name("toolcall", tests, NULL, NULL);
}
