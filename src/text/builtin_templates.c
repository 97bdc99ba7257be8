/* builtin_templates.c - chat templates that need no model's file: `--chat-template NAME`.
 *
 * Each writes the format that models of its family were trained with; the names are llama.cpp's.
 * BOS is left to the tokenizer.  The two sides of a turn are written by macros of this file, where
 * a family differs from its neighbours in those alone.
 */
#include "lode/chat.h"

#include <string.h>

/* The content as text: a string, or the text parts of a list. */
#define CONTENT                                                                                    \
    "{%- macro text(m) %}{% if m.content is string %}{{ m.content }}{% else %}"                    \
    "{% for p in m.content or [] %}{{ p.text or '' }}{% endfor %}{% endif %}{% endmacro -%}\n"

#define NL "{{ '\\n' }}" /* a newline that trim_blocks leaves alone */
#define BODY "{{ text(m) }}"
#define TRIMMED "{{ text(m) | trim }}"

/* Every message between two texts that may name its role, then the opening of an answer. */
#define EACH_AS(body, before, after, open)                                                         \
    CONTENT "{%- for m in messages %}" before body after "{% endfor %}"                            \
            "{% if add_generation_prompt %}" open "{% endif %}"
#define EACH(before, after, open) EACH_AS(BODY, before, after, open)
#define EACH_TRIMMED(before, after, open) EACH_AS(TRIMMED, before, after, open)

/* Three roles with texts of their own around the content. */
#define ROLES(system, user, assistant, open)                                                       \
    CONTENT "{%- for m in messages %}{% if m.role == 'system' %}" system                           \
            "{% elif m.role == 'assistant' %}" assistant "{% else %}" user                         \
            "{% endif %}{% endfor %}{% if add_generation_prompt %}" open "{% endif %}"

/* ChatML, with tools as Hermes and Qwen have them. */
static const char chatml[] = CONTENT
    "{%- if tools %}<|im_start|>system\n"
    "{% if messages and messages[0].role == 'system' %}{{ text(messages[0]) }}" NL NL "{% endif %}"
    "# Tools\n\nYou may call one or more functions. Their signatures are within <tools></tools> "
    "tags:\n<tools>" NL "{% for t in tools %}{{ t | tojson }}" NL "{% endfor %}"
    "</tools>\n\nFor each call, answer with a JSON object of the function's name and arguments "
    "within <tool_call></tool_call> tags:\n<tool_call>\n"
    "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>" NL
    "{% endif %}"
    "{% for m in messages %}"
    "{% if m.role == 'tool' %}"
    "{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}" NL
    "<tool_response>\n{{ text(m) }}\n</tool_response>"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>" NL "{% endif %}"
    "{% elif not (tools and loop.first and m.role == 'system') %}"
    "<|im_start|>{{ m.role }}\n{{ text(m) }}"
    "{% for c in m.tool_calls or [] %}{% set f = c.function or c %}"
    "{% if m.content or not loop.first %}" NL "{% endif %}"
    "<tool_call>\n{\"name\": {{ f.name | tojson }}, \"arguments\": "
    "{{ f.arguments if f.arguments is string else f.arguments | tojson }}}\n</tool_call>"
    "{% endfor %}<|im_end|>" NL "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant" NL "{% endif %}";

/* Turns that open once for system and user together.  open, reopen: the first turn's beginning,
 * and a later one's. */
#define TURNS(open, reopen, system, user, assistant)                                               \
    CONTENT "{%- set ns = namespace(open=false, first=true) %}{% for m in messages %}"             \
            "{% if m.role != 'assistant' and not ns.open %}"                                       \
            "{% if ns.first %}" open "{% else %}" reopen "{% endif %}"                             \
            "{% set ns.open = true %}{% set ns.first = false %}{% endif %}"                        \
            "{% if m.role == 'system' %}" system "{% elif m.role == 'assistant' %}" assistant      \
            "{% set ns.open = false %}"                                                            \
            "{% else %}" user "{% endif %}{% endfor %}"

/* Llama 2 and what was trained like it. */
static const char llama2[] = TURNS("[INST] ", "[INST] ", BODY NL, BODY " [/INST]", BODY "</s>");
#define LLAMA2_SYSTEM(body) "<<SYS>>\n" body "\n<</SYS>>\n\n"
static const char llama2_sys[] =
    TURNS("[INST] ", "[INST] ", LLAMA2_SYSTEM(BODY), BODY " [/INST]", BODY "</s>");
static const char llama2_sys_bos[] =
    TURNS("[INST] ", "<s>[INST] ", LLAMA2_SYSTEM(BODY), BODY " [/INST]", BODY "</s>");
static const char llama2_sys_strip[] =
    TURNS("[INST] ", "[INST] ", LLAMA2_SYSTEM(TRIMMED), TRIMMED " [/INST]", TRIMMED "</s>");

/* Mistral's tokenizers differ in the blanks that they want around the tags. */
static const char mistral_v1[] =
    TURNS(" [INST] ", " [INST] ", BODY "\n\n", BODY " [/INST]", " " BODY "</s>");
static const char mistral_v3[] =
    TURNS("[INST] ", "[INST] ", BODY "\n\n", BODY "[/INST]", " " TRIMMED "</s>");
static const char mistral_v3_tekken[] =
    TURNS("[INST]", "[INST]", BODY "\n\n", BODY "[/INST]", BODY "</s>");

#define MISTRAL7(blank)                                                                            \
    ROLES("[SYSTEM_PROMPT]" blank BODY "[/SYSTEM_PROMPT]", "[INST]" blank BODY "[/INST]",          \
          blank BODY "</s>", "")

static const char mistral_v7[] = MISTRAL7(" ");
static const char mistral_v7_tekken[] = MISTRAL7("");

#define LLAMA_HEADER(role) "<|start_header_id|>" role "<|end_header_id|>" NL NL
static const char llama3[] =
    EACH_TRIMMED(LLAMA_HEADER("{{ m.role }}"), "<|eot_id|>", LLAMA_HEADER("assistant"));
#define LLAMA4_HEADER(role) "<|header_start|>" role "<|header_end|>" NL NL
static const char llama4[] =
    EACH_TRIMMED(LLAMA4_HEADER("{{ m.role }}"), "<|eot|>", LLAMA4_HEADER("assistant"));

/* Gemma has no system role: its text goes before the first user's. */
static const char gemma[] =
    CONTENT "{%- set ns = namespace(system='') %}{% for m in messages %}"
            "{% if m.role == 'system' or m.role == 'developer' %}"
            "{% set ns.system = ns.system ~ (text(m) | trim) ~ '\\n\\n' %}"
            "{% else %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}" NL
            "{% if m.role == 'user' %}{{ ns.system }}{% set ns.system = '' %}{% endif %}" TRIMMED
            "<end_of_turn>" NL "{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}<start_of_turn>model" NL "{% endif %}";

static const char phi3[] = EACH("<|{{ m.role }}|>" NL, "<|end|>" NL, "<|assistant|>" NL);
static const char phi4[] =
    EACH("<|im_start|>{{ m.role }}<|im_sep|>", "<|im_end|>", "<|im_start|>assistant<|im_sep|>");
static const char falcon3[] = EACH("<|{{ m.role }}|>" NL, NL, "<|assistant|>" NL);
static const char zephyr[] = EACH("<|{{ m.role }}|>" NL, "<|endoftext|>" NL, "<|assistant|>" NL);
static const char glmedge[] = EACH("<|{{ m.role }}|>" NL, "", "<|assistant|>");
static const char chatglm4[] =
    EACH("{{ '[gMASK]<sop>' if loop.first }}<|{{ m.role }}|>" NL, "", "<|assistant|>" NL);
static const char chatglm3[] =
    EACH("{{ '[gMASK]sop' if loop.first }}<|{{ m.role }}|>\n ", "", "<|assistant|>");
static const char granite[] =
    EACH("<|start_of_role|>{{ m.role }}<|end_of_role|>", "<|end_of_text|>" NL,
         "<|start_of_role|>assistant<|end_of_role|>");
static const char hunyuan_dense[] =
    ROLES(BODY "<｜hy_place▁holder▁no▁3｜>", "<｜hy_User｜>" BODY,
          "<｜hy_Assistant｜>" BODY "<｜hy_place▁holder▁no▁2｜>", "<｜hy_Assistant｜>");
static const char hunyuan_moe[] = ROLES("<|startoftext|>" BODY "<|extra_4|>",
                                        "<|startoftext|>" BODY "<|extra_0|>", BODY "<|eos|>", "");
static const char megrez[] = EACH("<|role_start|>{{ m.role }}<|role_end|>", "<|turn_end|>",
                                  "<|role_start|>assistant<|role_end|>");
static const char grok2[] =
    ROLES("System: " TRIMMED "<|separator|>\n\n", "Human: " TRIMMED "<|separator|>\n\n",
          "Assistant: " BODY "<|separator|>\n\n", "Assistant:");
static const char vicuna[] =
    ROLES(BODY "\n\n", "USER: " BODY NL, "ASSISTANT: " BODY "</s>" NL, "ASSISTANT:");
static const char vicuna_orca[] =
    ROLES("SYSTEM: " BODY NL, "USER: " BODY NL, "ASSISTANT: " BODY "</s>" NL, "ASSISTANT:");
static const char openchat[] =
    ROLES(BODY "<|end_of_turn|>", "GPT4 Correct User: " BODY "<|end_of_turn|>",
          "GPT4 Correct Assistant: " BODY "<|end_of_turn|>", "GPT4 Correct Assistant:");
static const char monarch[] =
    EACH("{{ '<s>' if not loop.first }}{{ m.role }}" NL, "</s>" NL, "<s>assistant" NL);
static const char orion[] =
    CONTENT "{%- set ns = namespace(system='') %}{% for m in messages %}"
            "{% if m.role == 'system' %}{% set ns.system = ns.system ~ text(m) ~ '\\n\\n' %}"
            "{% elif m.role == 'assistant' %}" BODY "</s>"
            "{% else %}Human: {{ ns.system }}" BODY "\n\nAssistant: </s>{% set ns.system = '' %}"
            "{% endif %}{% endfor %}";
static const char minicpm[] = ROLES(TRIMMED, "<用户>" TRIMMED "<AI>", TRIMMED, "");
static const char rwkv_world[] = ROLES("System: " TRIMMED "\n\n", "User: " TRIMMED "\n\n",
                                       "Assistant: " TRIMMED "\n\n", "Assistant:");
static const char smolvlm[] =
    "<|im_start|>" ROLES(BODY "\n\n", "User: " BODY "<end_of_utterance>" NL,
                         "Assistant: " BODY "<end_of_utterance>" NL, "Assistant:");

static const char deepseek[] = ROLES(BODY, "### Instruction:\n" BODY NL,
                                     "### Response:\n" BODY "\n<|EOT|>" NL, "### Response:" NL);
static const char deepseek2[] = ROLES(BODY "\n\n", "User: " BODY "\n\n",
                                      "Assistant: " BODY "<｜end▁of▁sentence｜>", "Assistant:");
static const char deepseek3[] =
    ROLES(BODY "\n\n", "<｜User｜>" BODY, "<｜Assistant｜>" BODY "<｜end▁of▁sentence｜>",
          "<｜Assistant｜>");

#define COHERE(role, body) "<|START_OF_TURN_TOKEN|><|" role "_TOKEN|>" body "<|END_OF_TURN_TOKEN|>"
static const char command_r[] =
    ROLES(COHERE("SYSTEM", TRIMMED), COHERE("USER", TRIMMED), COHERE("CHATBOT", TRIMMED),
          "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>");

static const char exaone3[] = ROLES("[|system|]" TRIMMED "[|endofturn|]" NL, "[|user|]" TRIMMED NL,
                                    "[|assistant|]" TRIMMED "[|endofturn|]" NL, "[|assistant|]");
static const char exaone4[] = EACH_TRIMMED(
    "[|{{ m.role }}|]", "{{ '' if m.role == 'user' else '[|endofturn|]' }}" NL, "[|assistant|]");

static const char kimi_k2[] = ROLES("<|im_system|>system<|im_middle|>" BODY "<|im_end|>",
                                    "<|im_user|>user<|im_middle|>" BODY "<|im_end|>",
                                    "<|im_assistant|>assistant<|im_middle|>" BODY "<|im_end|>",
                                    "<|im_assistant|>assistant<|im_middle|>");
static const char seed_oss[] =
    EACH("<seed:bos>{{ m.role }}" NL, "<seed:eos>", "<seed:bos>assistant" NL);
static const char bailing[] = ROLES("<role>SYSTEM</role>" BODY, "<role>HUMAN</role>" BODY,
                                    "<role>ASSISTANT</role>" BODY, "<role>ASSISTANT</role>");
static const char yandex[] = ROLES(BODY "\n\n", " Пользователь: " BODY "\n\n",
                                   " Ассистент: " BODY "\n\n", " Ассистент:[SEP]");

/* Harmony: every message names its channel; system texts are the developer's. */
static const char gpt_oss[] =
    CONTENT "{%- for m in messages %}{% if m.role == 'assistant' %}"
            "<|start|>assistant<|channel|>final<|message|>" BODY "<|end|>"
            "{% elif m.role == 'system' or m.role == 'developer' %}"
            "<|start|>developer<|message|># Instructions\n\n" BODY "<|end|>"
            "{% else %}<|start|>{{ m.role }}<|message|>" BODY "<|end|>{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}<|start|>assistant{% endif %}";

/* The name, and the array that holds its text. */
#define BUILTIN_LIST(X)                                                                            \
    X("bailing", bailing)                                                                          \
    X("chatglm3", chatglm3)                                                                        \
    X("chatglm4", chatglm4)                                                                        \
    X("chatml", chatml)                                                                            \
    X("command-r", command_r)                                                                      \
    X("deepseek", deepseek)                                                                        \
    X("deepseek2", deepseek2)                                                                      \
    X("deepseek3", deepseek3)                                                                      \
    X("exaone3", exaone3)                                                                          \
    X("exaone4", exaone4)                                                                          \
    X("falcon3", falcon3)                                                                          \
    X("gemma", gemma)                                                                              \
    X("glmedge", glmedge)                                                                          \
    X("gpt-oss", gpt_oss)                                                                          \
    X("granite", granite)                                                                          \
    X("grok-2", grok2)                                                                             \
    X("hunyuan-dense", hunyuan_dense)                                                              \
    X("hunyuan-moe", hunyuan_moe)                                                                  \
    X("kimi-k2", kimi_k2)                                                                          \
    X("llama2", llama2)                                                                            \
    X("llama2-sys", llama2_sys)                                                                    \
    X("llama2-sys-bos", llama2_sys_bos)                                                            \
    X("llama2-sys-strip", llama2_sys_strip)                                                        \
    X("llama3", llama3)                                                                            \
    X("llama4", llama4)                                                                            \
    X("megrez", megrez)                                                                            \
    X("minicpm", minicpm)                                                                          \
    X("mistral-v1", mistral_v1)                                                                    \
    X("mistral-v3", mistral_v3)                                                                    \
    X("mistral-v3-tekken", mistral_v3_tekken)                                                      \
    X("mistral-v7", mistral_v7)                                                                    \
    X("mistral-v7-tekken", mistral_v7_tekken)                                                      \
    X("monarch", monarch)                                                                          \
    X("openchat", openchat)                                                                        \
    X("orion", orion)                                                                              \
    X("phi3", phi3)                                                                                \
    X("phi4", phi4)                                                                                \
    X("rwkv-world", rwkv_world)                                                                    \
    X("seed_oss", seed_oss)                                                                        \
    X("smolvlm", smolvlm)                                                                          \
    X("vicuna", vicuna)                                                                            \
    X("vicuna-orca", vicuna_orca)                                                                  \
    X("yandex", yandex)                                                                            \
    X("zephyr", zephyr)

static const char *const names[] = {
#define NAME(name, text) name,
    BUILTIN_LIST(NAME)
#undef NAME
        NULL,
};

static const char *const texts[] = {
#define TEXT(name, text) text,
    BUILTIN_LIST(TEXT)
#undef TEXT
};

const char *const *lode_template_names(void) { return names; }

const char *lode_template_builtin(const char *name) {
    for (size_t i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0)
            return texts[i];
    return NULL;
}
