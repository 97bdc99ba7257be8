#include "text/pre_table.h"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES_END "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define WORDS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SYMBOLS " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define LLAMA3(digits) CONTRACTIONS "|" WORDS "|" digits "|" SYMBOLS "|" SPACES_END

#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
/* one capitalised or upper-case word after at most one other character, and so on */
#define CASED(upper, lower, after)                                                                 \
    "[^\\r\\n\\p{L}\\p{N}]?" upper "*" lower "+" after "|[^\\r\\n\\p{L}\\p{N}]?" upper "+" lower     \
    "*" after
#define GPT4O(after, digits)                                                                       \
    CASED(UPPER, LOWER, after) "|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES_END
#define DEEPSEEK3_WORDS                                                                            \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+" \
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES_END
#define KANA_HAN "[一-龥\xe3\x81\x80-ゟ゠-ヿ]+"
/* The same classes without Han: the complement of all other categories and Han. */
#define UPPER_NOT_HAN "[^\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{Han}]"
#define LOWER_NOT_HAN "[^\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{Han}]"
/* Cased letters; those that NFC would change are given by number. */
#define DEEPSEEK_LETTERS                                                                           \
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚ"                \
    "Ḁ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\\x{1f7d}ᾀ-ᾴᾶ-ᾼ\\x{1fbe}ῂ-ῄῆ-ῌῐ-\\x{1fd3}ῖ-\\x{1fdb}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\\x{2126}ℨ\\x{212a}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄ"                \
    "Ⰰ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
/* Triples of digits counted from the right; written as a look-ahead, done as a step. */
#define DIGIT_TRIPLES "(?=(\\d{3})+(?!\\d))"
#define DIGIT_TRIPLES_AT_BOUNDARY "\\d{1,3}(?=(?:\\d{3})*\\b)"
#define SPACES_AT_END "\\s+$"

static const struct lode_pre_entry table[] = {
    {"default", {"[\\p{P}\\$\\+<=>\\^~\\|]+", LODE_TOK_GPT2_REGEX, "\\p{N}+", "[0-9][0-9][0-9]"}, 0},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     {LLAMA3("\\p{N}{1,3}")}, LODE_PRE_IGNORE_MERGES | LODE_PRE_ADD_BOS},
    {"dbrx smaug-bpe glm4 chatglm-bpe", {LLAMA3("\\p{N}{1,3}")}, 0},
    {"qwen2 deepseek-r1-qwen megrez kormo f2llmv2", {LLAMA3("\\p{N}")}, LODE_PRE_NFC},
    {"stablelm2 hunyuan solar-open grok-2", {LLAMA3("\\p{N}")}, 0},
    {"qwen35",
     {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|"
      SPACES_END}, LODE_PRE_NFC},
    {"ufakzeka", {WORDS "|\\p{N}|" SYMBOLS "|" SPACES_END}, 0},
    {"laguna", {"[^\\n]+|[\\n]+", LLAMA3("\\p{N}")}, 0},
    {"minicpm5", {"\\p{N}{1,3}", LLAMA3("\\p{N}+")}, LODE_PRE_IGNORE_MERGES},
    {"gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum exaone4 jais "
     "trillion granite-docling", {LODE_TOK_GPT2_REGEX}, 0},
    {"mpt olmo modern-bert", {LODE_TOK_GPT2_REGEX}, LODE_PRE_NFC},
    {"jina-v1-en jina-v2-code roberta-bpe", {LODE_TOK_GPT2_REGEX}, LODE_PRE_ADD_SEP},
    {"starcoder refact smollm codeshell exaone minerva-7b mellum2",
     {"\\p{N}", LODE_TOK_GPT2_REGEX}, 0},
    {"command-r", {"\\p{N}", LODE_TOK_GPT2_REGEX}, LODE_PRE_NFC},
    {"falcon", {"[\\p{P}\\$\\+<=>\\^~\\|`]+", LODE_TOK_GPT2_REGEX, "[0-9][0-9][0-9]"}, 0},
    {"chameleon",
     {"<sentinel:[0-9]+>|(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )", "\\p{N}",
      LODE_TOK_PUNCT_REGEX, LODE_TOK_GPT2_REGEX}, LODE_PRE_ADD_BOS},
    {"gpt-4o llama4 kanana2 talkie minimax-m2", {GPT4O(CONTRACTIONS "?", "\\p{N}{1,3}")}, 0},
    {"granite-embed-multi-97m", {GPT4O(CONTRACTIONS "?", "\\p{N}{1,3}")}, LODE_PRE_IGNORE_MERGES},
    {"tekken", {GPT4O("", "\\p{N}")}, LODE_PRE_IGNORE_MERGES | LODE_PRE_ADD_BOS},
    {"tiny_aya cohere2moe",
     {DIGIT_TRIPLES_AT_BOUNDARY, GPT4O(CONTRACTIONS "?", "\\p{N}{1,3}")}, 0},
    {"youtu",
     {"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|" KANA_HAN,
      GPT4O(CONTRACTIONS "?", "\\p{N}")}, LODE_PRE_IGNORE_MERGES},
    {"deepseek-llm",
     {"[\\r\\n]", "\\s?[" DEEPSEEK_LETTERS "]+", "\\s?[!-/:-~！-／：-～‘-‟\xe3\x80\x80-。]+|" "(?<!\\s)\\s++$",
      "[一-龥ࠀ-一가-퟿]+", "\\p{N}+"}, 0},
    {"deepseek-coder", {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+", "\\p{N}"}, 0},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4", {"\\p{N}{1,3}", KANA_HAN, DEEPSEEK3_WORDS}, 0},
    {"spark2_5",
     {"\\p{N}{1,3}", KANA_HAN,
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
      "| ?[\\p{P}\\p{S}]+|[\\r\\n]|\\s+(?!\\S)|\\s+", "\\p{N}"}, 0},
    {"afmoe",
     {"\\p{N}+", DIGIT_TRIPLES,
      "[一-鿿㐀-䶿\\x{f900}-\xef\xab\xbf\xe3\x81\x80-ゟ゠-ヿ･-ﾟ⼀-\xe2\xbf\x9f"
      "เ-\xe0\xb9\xbf\xe0\xba\x80-\xe0\xbb\xbfក-\xe1\x9f\xbfက-႟ꩠ-ꩿꧠ-\xea\xa7\xbf가-\xed\x9e\xafᄀ-ᇿ]+",
      DEEPSEEK3_WORDS}, 0},
    {"poro-chat bloom gpt3-finnish", {" ?[^(\\s|.,!?…。，、।۔،)]+"}, 0},
    {"viking", {" ?[^(\\s|.,!?…。，、।۔،)]+", "\\p{N}"}, 0},
    {"superbpe", {"\\p{N}+", DIGIT_TRIPLES}, 0},
    {"jais-2",
     {CONTRACTIONS "|" WORDS "|\\p{N}{1,3}|" SYMBOLS "|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)"
      "|\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)"
      "|\\s{1,2}(?!\\S)|\\s{1}"}, 0},
    {"bailingmoe bailingmoe2 llada-moe",
     {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
      "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}, 0},
    {"seed-coder",
     {CONTRACTIONS "|" WORDS "|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES_END}, 0},
    /* (?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+ in one loop that keeps nothing to go back to */
    {"exaone-moe",
     {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}(?:[\\p{L}\\p{M}]++| (?=\\p{L}))*+|\\p{N}"
      "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}, 0},
    {"kimi-k2",
     {"[\\p{Han}]+|" CASED(UPPER_NOT_HAN, LOWER_NOT_HAN, CONTRACTIONS "?") "|\\p{N}{1,3}|" SYMBOLS
      "|" SPACES_END}, 0},
    {"gemma4 granite-embed-multi-311m sarvam-moe", {NULL}, LODE_PRE_CHARS},
};

const struct lode_pre_entry *lode_pre_entry_at(size_t i) {
    return i < sizeof table / sizeof *table ? &table[i] : NULL;
}

const struct lode_pre_entry *lode_pre_find(struct lode_str name) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const char *p = table[i].names;
        while (*p) {
            const size_t len = strcspn(p, " ");
            if (name.len == len && memcmp(p, name.data, len) == 0)
                return &table[i];
            p += len + (p[len] == ' ');
        }
    }
    return NULL;
}

int lode_pre_add_pattern(struct lode_tokenizer *t, struct lode_str pattern,
                         enum lode_split_behavior behavior, bool invert, struct lode_error *err) {
    struct lode_pre_step step = {.op = LODE_PRE_SPLIT, .behavior = behavior, .invert = invert};
    const bool isolated = behavior == LODE_SPLIT_ISOLATED && !invert;
    if (isolated && lode_str_eqz(pattern, DIGIT_TRIPLES)) {
        step.op = LODE_PRE_DIGITS;
        return lode_tok_add_pre(t, step, err);
    }
    if (isolated && lode_str_eqz(pattern, DIGIT_TRIPLES_AT_BOUNDARY)) {
        step.op = LODE_PRE_DIGITS;
        step.boundary = true;
        return lode_tok_add_pre(t, step, err);
    }
    /* At each space of a long row this looks at all the others.  Where lines have been cut apart
     * already, $ is the end and a row that reaches it does so from its first space. */
    if (isolated && t->pre.cuts_lines && lode_str_eqz(pattern, SPACES_AT_END))
        pattern = LODE_STR("(?<!\\s)\\s++$");
    LODE_TRY(lode_regex_create(&step.regex, pattern, err));
    t->pre.cuts_lines = t->pre.cuts_lines || (isolated && (lode_str_eqz(pattern, "[\r\n]") ||
                                                           lode_str_eqz(pattern, "[\\r\\n]")));
    return lode_tok_add_pre(t, step, err);
}
