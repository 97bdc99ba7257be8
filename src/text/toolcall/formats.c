/* formats.c - the ways in which models write calls, and in which they think.
 *
 * Order matters to lode_toolcall_detect: of two formats that read a template's call, the first is
 * taken, so those that need no tag come last. */
#include "text/toolcall/parser.h"

#include <string.h>

static const struct tc_params qwen = {
    .name = "<function=",
    .name_end = ">",
    .key = "<parameter=",
    .key_end = ">",
    .value = "",
    .value_end = "</parameter>",
    .end = "</function>",
    .newline = true,
};
static const struct tc_params glm = {
    .name = "",
    .name_end = "\n",
    .key = "<arg_key>",
    .key_end = "</arg_key>",
    .value = "<arg_value>",
    .value_end = "</arg_value>",
    .end = "</tool_call>",
};
static const struct tc_params minimax = {
    .name = "<invoke name=\"",
    .name_end = "\">",
    .key = "<parameter name=\"",
    .key_end = "\">",
    .value = "",
    .value_end = "</parameter>",
    .end = "</invoke>",
};
static const struct tc_params dsml = {
    .name = "<｜DSML｜invoke name=\"",
    .name_end = "\">",
    .key = "<｜DSML｜parameter name=\"",
    .key_end = "\"",
    .value = "",
    .value_end = "</｜DSML｜parameter>",
    .end = "</｜DSML｜invoke>",
    .attributes = true,
};

static const char *const deepseek_words[] = {"<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
                                             "<｜tool▁call▁end｜>", NULL};
static const char *const kimi_words[] = {"<|tool_call_begin|>", "<|tool_call_argument_begin|>",
                                         "<|tool_call_end|>", NULL};
static const char *const mistral_words[] = {"[ARGS]", "[CALL_ID]", NULL};
static const char *const harmony_words[] = {"<|constrain|>", "<|message|>", "<|return|>", NULL};
static const char *const gemma_words[] = {"<|\"|>", NULL};

const struct tc_format tc_formats[] = {
    {.name = "none", .about = "text without calls"},
    {.name = "hermes",
     .about = "Hermes, Qwen 2.5 and 3: JSON in <tool_call>",
     .read = tc_json_call,
     .tags = {.open = {"<tool_call>"}, .close = "</tool_call>"},
     .marks = {"<tool_call>", "arguments"}},
    {.name = "seed",
     .about = "Seed-OSS: a tag for each parameter in <seed:tool_call>",
     .read = tc_params_call,
     .tags = {.open = {"<seed:tool_call>"}, .close = "</seed:tool_call>"},
     .params = &qwen,
     .marks = {"<seed:tool_call>"}},
    {.name = "qwen3-coder",
     .about = "Qwen3-Coder, Qwen 3.5, Nemotron 3: a tag for each parameter in <tool_call>",
     .read = tc_params_call,
     .tags = {.open = {"<tool_call>", "<function="}, .close = "</tool_call>"},
     .params = &qwen,
     .marks = {"<tool_call>", "<parameter="}},
    {.name = "glm",
     .about = "GLM 4.5 and later: <arg_key> and <arg_value> in <tool_call>",
     .read = tc_params_call,
     .tags = {.open = {"<tool_call>"}, .close = "</tool_call>"},
     .params = &glm,
     .marks = {"<tool_call>", "<arg_key>"}},
    {.name = "mistral",
     .about = "Mistral: [TOOL_CALLS] before a JSON list, or name[ARGS]{...}",
     .read = tc_mistral_call,
     .tags = {.open = {"[TOOL_CALLS]"}},
     .words = mistral_words,
     .marks = {"[TOOL_CALLS]"}},
    {.name = "harmony",
     .about = "gpt-oss: messages in channels",
     .read = tc_harmony,
     .whole = true,
     .tags = {.open = {"<|start|>", "<|channel|>", "<|end|>"}, .close = "<|call|>"},
     .words = harmony_words,
     .marks = {"<|channel|>", "<|message|>"}},
    {.name = "deepseek",
     .about = "DeepSeek V3, R1 and V3.1: <｜tool▁call▁begin｜>",
     .read = tc_deepseek_call,
     .tags = {.open = {"<｜tool▁calls▁begin｜>"}, .close = "<｜tool▁calls▁end｜>"},
     .words = deepseek_words,
     .marks = {"<｜tool▁call▁begin｜>"}},
    {.name = "deepseek-dsml",
     .about = "DeepSeek V3.2: <｜DSML｜invoke>",
     .read = tc_params_call,
     .tags = {.open = {"<｜DSML｜function_calls>"}, .close = "</｜DSML｜function_calls>"},
     .params = &dsml,
     .marks = {"<｜DSML｜"}},
    {.name = "kimi",
     .about = "Kimi K2: <|tool_call_begin|>functions.name:0",
     .read = tc_kimi_call,
     .tags = {.open = {"<|tool_calls_section_begin|>"}, .close = "<|tool_calls_section_end|>"},
     .words = kimi_words,
     .marks = {"<|tool_calls_section_begin|>"}},
    {.name = "minimax",
     .about = "MiniMax M2: <invoke> in <minimax:tool_call>",
     .read = tc_params_call,
     .tags = {.open = {"<minimax:tool_call>"}, .close = "</minimax:tool_call>"},
     .params = &minimax,
     .marks = {"<minimax:tool_call>"}},
    {.name = "command-r7b",
     .about = "Command R7B and later: a JSON list in <|START_ACTION|>",
     .read = tc_json_call,
     .tags = {.open = {"<|START_ACTION|>"},
              .close = "<|END_ACTION|>",
              .drop = {"<|START_RESPONSE|>", "<|END_RESPONSE|>"}},
     .marks = {"<|START_ACTION|>"}},
    {.name = "gemma4",
     .about = "Gemma 4: <|tool_call>call:name{...}",
     .read = tc_gemma_call,
     .tags = {.open = {"<|tool_call>"}, .close = "<tool_call|>"},
     .words = gemma_words,
     .marks = {"<|tool_call>", "call:"}},
    {.name = "lfm2",
     .about = "LFM2: Python in <|tool_call_start|>",
     .read = tc_python_call,
     .tags = {.open = {"<|tool_call_start|>"}, .close = "<|tool_call_end|>"},
     .marks = {"<|tool_list_start|>"}},
    {.name = "apertus",
     .about = "Apertus: [{\"name\": {...}}] in <|tools_prefix|>",
     .read = tc_key_call,
     .tags = {.open = {"<|tools_prefix|>"}, .close = "<|tools_suffix|>"},
     .marks = {"<|tools_prefix|>"}},
    {.name = "phi4",
     .about = "Phi-4 mini: a JSON list in <|tool_call|>",
     .read = tc_json_call,
     .tags = {.open = {"<|tool_call|>"}, .close = "<|/tool_call|>"},
     .marks = {"<|/tool_call|>"}},
    {.name = "granite",
     .about = "Granite 3: a JSON list behind <|tool_call|>",
     .read = tc_json_call,
     .tags = {.open = {"<|tool_call|>"}},
     .marks = {"<|tool_call|>"}},
    {.name = "nemotron",
     .about = "Nemotron 2: a JSON list in <TOOLCALL>",
     .read = tc_json_call,
     .tags = {.open = {"<TOOLCALL>"}, .close = "</TOOLCALL>"},
     .marks = {"<TOOLCALL>"}},
    {.name = "tool-calls",
     .about = "Apriel, Hunyuan: a JSON list in <tool_calls>",
     .read = tc_json_call,
     .tags = {.open = {"<tool_calls>"},
              .close = "</tool_calls>",
              .drop = {"[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]"}},
     .marks = {"<tool_calls>"}},
    {.name = "gigachat",
     .about = "GigaChat 3: JSON behind <|function_call|>",
     .read = tc_json_call,
     .tags = {.open = {"<|function_call|>"}},
     .marks = {"<|function_call|>"}},
    {.name = "functionary",
     .about = "Functionary 3.1: <function=name>{...}</function>",
     .read = tc_functionary_call,
     .tags = {.open = {"<function="}, .close = "</function>"},
     .marks = {"<function="}},
    {.name = "firefunction",
     .about = "FireFunction 2: functools[...]",
     .read = tc_json_call,
     .tags = {.open = {"functools"}},
     .marks = {"functools"}},
    {.name = "llama3",
     .about = "Llama 3.1 and 3.2: JSON as the answer, or behind <|python_tag|>",
     .read = tc_llama_call,
     .tags = {.open = {"<|python_tag|>"}, .bare = true},
     .marks = {"\"parameters\":", "<|eot_id|>"}},
    {.name = "pythonic",
     .about = "Llama 3.2 and 4: [name(a=1)] as the answer, or in <|python_start|>",
     .read = tc_python_call,
     .tags = {.open = {"<|python_start|>"}, .close = "<|python_end|>", .bare = true},
     .marks = {"<|python_start|>"}},
    {0},
};

const char *const tc_thinks[][2] = {
    {"[THINK]", "[/THINK]"},
    {"<seed:think>", "</seed:think>"},
    {"<|START_THINKING|>", "<|END_THINKING|>"},
    {"<|inner_prefix|>", "<|inner_suffix|>"},
    {"<|channel>thought", "<channel|>"},
    {"<think>", "</think>"},
    {NULL, NULL},
};

const struct tc_format *tc_find_format(const char *name) {
    for (const struct tc_format *f = tc_formats; f->name; f++)
        if (strcmp(f->name, name) == 0)
            return f;
    return NULL;
}

const char *lode_toolcall_format(size_t i, const char **about) {
    const size_t n = sizeof tc_formats / sizeof *tc_formats - 1;
    if (about)
        *about = i < n ? tc_formats[i].about : NULL;
    return i < n ? tc_formats[i].name : NULL;
}
