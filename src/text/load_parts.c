/* load_parts.c - tokenizers that lie in parts: vocab.json with merges.txt, or a file of tokens and
 * ranks as tiktoken has them ("BASE64 RANK" a line).
 *
 * Such files do not say how text is cut into words: the class of the tokenizer or the type of the
 * model does.  What is known is written as a tokenizer.json, which load_json.c reads; only that the
 * rank of a merge is that of what it makes (tiktoken) can't be said there. */
#include "text/load.h"
#include "text/pre_table.h"

#include "base/utf8.h"

#include <stdio.h>

enum { RANKS_MAX = 1 << 22, PIECE_MAX = 1024 /* bytes; published ones have 128 at most */ };

/* ---- how text is cut ---- */

/* By tokenizer_class, which says it exactly, or by model_type. */
static const struct {
    const char *words, *pre; /* words: each between spaces */
} kinds[] = {
    {" Qwen2Tokenizer Qwen2TokenizerFast QWenTokenizer ", "qwen2"},
    {" GPT2Tokenizer GPT2TokenizerFast CodeGenTokenizer CodeGenTokenizerFast GPTNeoXTokenizer "
     "GPTNeoXTokenizerFast ",
     "gpt-2"},
    {" CohereTokenizer CohereTokenizerFast ", "command-r"},
    {" TikTokenTokenizer ", "kimi-k2"},
    {" ChatGLM4Tokenizer ", "glm4"},
    {" qwen qwen2 qwen2_moe qwen2_vl qwen2_5_vl qwen3 qwen3_moe qwen3_next qwen3_vl ", "qwen2"},
    {" qwen3_5 qwen3_5_moe qwen3_5_text qwen3_5_moe_text ", "qwen35"},
    {" llama mllama ", "llama-bpe"},
    {" llama4 llama4_text ", "llama4"},
    {" gpt2 gpt_neo gpt_neox codegen phi ", "gpt-2"},
    {" starcoder2 gpt_bigcode ", "starcoder"},
    {" kimi_k2 ", "kimi-k2"},
    {" glm glm4 glm4_moe glm4_moe_lite chatglm ", "glm4"},
    {" gpt_oss ", "gpt-4o"},
    {" deepseek_v3 ", "deepseek-v3"},
    {" cohere cohere2 ", "command-r"},
    {" exaone4 ", "exaone4"},
};

static bool has_word(const char *words, struct lode_str word) {
    for (const char *p = words; word.len && *p;) {
        p += strspn(p, " ");
        const size_t n = strcspn(p, " ");
        if (n == word.len && memcmp(p, word.data, n) == 0)
            return true;
        p += n;
    }
    return false;
}

static const struct lode_pre_entry *find_kind(const struct lode_json *config,
                                              const struct lode_json *model) {
    struct lode_str words[3] = {lode_json_str(lode_json_get(config, "tokenizer_class"))};
    words[1] = lode_json_str(lode_json_get(lode_json_get(model, "text_config"), "model_type"));
    words[2] = lode_json_str(lode_json_get(model, "model_type"));
    for (int w = 0; w < 3; w++)
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            if (has_word(kinds[i].words, words[w]))
                return lode_pre_find(lode_str(kinds[i].pre));
    return NULL;
}

/* ---- writing JSON ---- */

static void put_string(struct lode_buf *b, struct lode_str s) {
    lode_buf_addc(b, '"');
    for (size_t i = 0; i < s.len; i++) {
        const unsigned char c = (unsigned char)s.data[i];
        if (c < 0x20)
            lode_buf_addf(b, "\\u%04x", c);
        else {
            if (c == '"' || c == '\\')
                lode_buf_addc(b, '\\');
            lode_buf_addc(b, (char)c);
        }
    }
    lode_buf_addc(b, '"');
}

static void put_pre(struct lode_buf *b, const struct lode_pre_entry *kind) {
    if (kind->flags & LODE_PRE_NFC)
        lode_buf_addz(b, "\"normalizer\":{\"type\":\"NFC\"},");
    lode_buf_addz(b, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[");
    for (size_t i = 0; i < sizeof kind->patterns / sizeof *kind->patterns && kind->patterns[i];
         i++) {
        lode_buf_addz(b, "{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":");
        put_string(b, lode_str(kind->patterns[i]));
        lode_buf_addz(b, "}},");
    }
    lode_buf_addz(b, "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},"
                     "\"decoder\":{\"type\":\"ByteLevel\"},");
}

/* ---- tokens beside the vocabulary ---- */

static void put_added(struct lode_buf *b, struct lode_str text, int64_t id, bool special,
                      const struct lode_json *more) {
    lode_buf_addf(b, "%s{\"id\":%lld,\"special\":%s", b->data[b->len - 1] == '[' ? "" : ",",
                  (long long)id, special ? "true" : "false");
    static const char *const flags[] = {"lstrip", "rstrip", "single_word"};
    for (size_t i = 0; i < 3; i++)
        if (lode_json_bool(more, flags[i], false))
            lode_buf_addf(b, ",\"%s\":true", flags[i]);
    lode_buf_addf(b, ",\"normalized\":%s,\"content\":",
                  lode_json_bool(more, "normalized", !special) ? "true" : "false");
    put_string(b, text);
    lode_buf_addc(b, '}');
}

/* Those that tiktoken files of these families leave to their program's source: names, then numbered
 * ones up to `n` in all. */
static const struct {
    const char *pre, *names, *numbered;
    int first, n;
} built_in[] = {
    {"llama-bpe",
     "<|begin_of_text|> <|end_of_text|> <|reserved_special_token_0|> <|reserved_special_token_1|> "
     "<|finetune_right_pad_id|> <|reserved_special_token_2|> <|start_header_id|> "
     "<|end_header_id|> <|eom_id|> <|eot_id|> <|python_tag|>",
     "<|reserved_special_token_%d|>", 3, 256},
    {"qwen2", "<|endoftext|> <|im_start|> <|im_end|>", "<|extra_%d|>", 0, 208},
};

static void put_built_in(struct lode_buf *b, const struct lode_pre_entry *kind, int64_t id) {
    for (size_t i = 0; i < sizeof built_in / sizeof *built_in; i++) {
        if (lode_pre_find(lode_str(built_in[i].pre)) != kind)
            continue;
        int n = 0, number = built_in[i].first;
        for (const char *p = built_in[i].names; *p; n++, id++) {
            const size_t len = strcspn(p, " ");
            put_added(b, (struct lode_str){p, len}, id, true, NULL);
            p += len + (p[len] == ' ');
        }
        for (; n < built_in[i].n; n++, id++, number++) {
            char text[48];
            snprintf(text, sizeof text, "%.*s%d|>", (int)strcspn(built_in[i].numbered, "%"),
                     built_in[i].numbered, number);
            put_added(b, lode_str(text), id, true, NULL);
        }
    }
}

/* Whether special_tokens_map.json or tokenizer_config.json name it. */
static bool is_special(const struct lode_json *config, struct lode_str text) {
    static const char *const keys[] = {"bos_token", "eos_token", "pad_token", "unk_token"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const struct lode_json *v = lode_json_get(config, keys[i]);
        if (lode_str_eq(
                lode_json_str(lode_json_is(v, LODE_JSON_OBJECT) ? lode_json_get(v, "content") : v),
                text))
            return true;
    }
    const struct lode_json *list = lode_json_get(config, "additional_special_tokens");
    for (const struct lode_json *c = lode_json_first(list); c; c = lode_json_next(list, c))
        if (lode_str_eq(lode_json_str(c), text))
            return true;
    return false;
}

/* tokenizer_config.json's added_tokens_decoder {"ID": {"content": ...}}, else added_tokens.json
 * {"TEXT": ID}, else what the family has built in, from id `next` on. */
static int put_added_tokens(struct lode_buf *b, const struct lode_json *config,
                            const struct lode_json *added, const struct lode_pre_entry *kind,
                            int64_t next, struct lode_error *err) {
    const struct lode_json *list = lode_json_get(config, "added_tokens_decoder");
    lode_buf_addz(b, "\"added_tokens\":[");
    if (b->failed)
        return lode_fail_nomem(err, "a tokenizer");
    for (const struct lode_json *c = lode_json_first(list); c; c = lode_json_next(list, c)) {
        const struct lode_str text = lode_json_str(lode_json_get(c, "content"));
        char number[16];
        int64_t id;
        snprintf(number, sizeof number, "%.*s", (int)(c->key_len < 15 ? c->key_len : 15), c->key);
        const struct lode_json digits = {
            .type = LODE_JSON_NUMBER, .text = number, .n = (uint32_t)strlen(number), .skip = 1};
        if (!text.data || !lode_json_int(&digits, 0, INT32_MAX, &id))
            return lode_fail(err, LODE_ERR_FORMAT, "tokenizer_config.json",
                             "added_tokens_decoder: ids with their content expected");
        put_added(b, text, id, lode_json_bool(c, "special", false), c);
    }
    for (const struct lode_json *c = lode_json_first(added); !list && c;
         c = lode_json_next(added, c)) {
        const struct lode_str text = {c->key, c->key_len};
        int64_t id;
        if (!c->key || !lode_json_int(c, 0, INT32_MAX, &id))
            return lode_fail(err, LODE_ERR_FORMAT, "added_tokens.json",
                             "an object of tokens with their ids expected");
        put_added(b, text, id, is_special(config, text), NULL);
    }
    if (!list && !added && next >= 0)
        put_built_in(b, kind, next);
    lode_buf_addz(b, "],");
    return b->failed ? lode_fail_nomem(err, "a tokenizer") : 0;
}

/* ---- vocabularies ---- */

/* The next line without its end; false: none is left. */
static bool next_line(struct lode_str *rest, struct lode_str *line) {
    if (rest->len == 0)
        return false;
    const char *end = memchr(rest->data, '\n', rest->len);
    const size_t n = end ? (size_t)(end - rest->data) : rest->len;
    *line = (struct lode_str){rest->data, n};
    *rest = (struct lode_str){rest->data + n + (end != NULL), rest->len - n - (end != NULL)};
    if (line->len && line->data[line->len - 1] == '\r')
        line->len--;
    return true;
}

static int put_merges(struct lode_buf *b, struct lode_str merges, struct lode_error *err) {
    struct lode_str line;
    lode_buf_addz(b, "\"merges\":[");
    for (bool first = true, any = false; next_line(&merges, &line); first = false) {
        if (line.len == 0 || (first && lode_str_starts(line, LODE_STR("#version"))))
            continue;
        if (!lode_utf8_valid(line.data, line.len))
            return lode_fail(err, LODE_ERR_FORMAT, "merges.txt", "it is not UTF-8");
        lode_buf_addz(b, any ? "," : "");
        put_string(b, line);
        any = true;
    }
    lode_buf_addz(b, "]");
    return 0;
}

/* A token's bytes in GPT-2's alphabet. */
static void put_piece(struct lode_buf *b, const char *bytes, size_t n) {
    lode_buf_addc(b, '"');
    for (size_t i = 0; i < n; i++) {
        char out[4];
        const uint32_t cp = lode_byte_char((uint8_t)bytes[i]);
        if (cp == '"' || cp == '\\')
            lode_buf_addc(b, '\\');
        lode_buf_add(b, out, lode_utf8_encode(cp, out));
    }
    lode_buf_addc(b, '"');
}

/* "BASE64 RANK" a line; *next: the id behind the last. */
static int put_ranks(struct lode_buf *b, struct lode_str text, int64_t *next,
                     struct lode_error *err) {
    char bytes[PIECE_MAX];
    struct lode_str line;
    uint32_t n_lines = 0;
    *next = 0;
    lode_buf_addz(b, "\"vocab\":{");
    for (; next_line(&text, &line); n_lines++) {
        const char *space = line.len ? memchr(line.data, ' ', line.len) : NULL;
        const size_t n_text = space ? (size_t)(space - line.data) : 0;
        int64_t rank = 0, n = -1;
        if (line.len == 0 && text.len == 0)
            break;
        if (n_text && n_text <= PIECE_MAX / 3 * 4)
            n = lode_tok_base64((struct lode_str){line.data, n_text}, bytes);
        const struct lode_json digits = {.type = LODE_JSON_NUMBER,
                                         .text = space ? space + 1 : "",
                                         .n = (uint32_t)(line.len - n_text - (space != NULL)),
                                         .skip = 1};
        if (n <= 0 || digits.n == 0 || n_lines == RANKS_MAX ||
            !lode_json_int(&digits, 0, RANKS_MAX, &rank))
            return lode_fail(err, LODE_ERR_FORMAT, "tokenizer.model",
                             "line %u is not a token of at most %d bytes in base64 and its rank",
                             n_lines + 1, PIECE_MAX);
        lode_buf_addz(b, n_lines ? "," : "");
        put_piece(b, bytes, (size_t)n);
        lode_buf_addf(b, ":%lld", (long long)rank);
        *next = rank >= *next ? rank + 1 : *next;
    }
    lode_buf_addz(b, "}");
    return 0;
}

bool lode_tok_is_ranks(struct lode_str text) {
    struct lode_str line;
    char bytes[PIECE_MAX];
    if (text.len > 4096)
        text.len = 4096;
    if (!next_line(&text, &line))
        return false;
    const char *space = memchr(line.data, ' ', line.len);
    const size_t n = space ? (size_t)(space - line.data) : 0;
    if (n == 0 || n > PIECE_MAX / 3 * 4 || n + 1 == line.len ||
        lode_tok_base64((struct lode_str){line.data, n}, bytes) <= 0)
        return false;
    for (size_t i = n + 1; i < line.len; i++)
        if (line.data[i] < '0' || line.data[i] > '9')
            return false;
    return true;
}

/* ---- all of it ---- */

/* A token before each text, where the family wants it and it is known. */
static void put_bos(struct lode_buf *b, const struct lode_json *config,
                    const struct lode_json *added, const struct lode_pre_entry *kind) {
    const struct lode_json *bos = lode_json_get(config, "bos_token"), *root = added;
    struct lode_str name =
        lode_json_str(lode_json_is(bos, LODE_JSON_OBJECT) ? lode_json_get(bos, "content") : bos);
    if (!lode_json_bool(config, "add_bos_token", (kind->flags & LODE_PRE_ADD_BOS) != 0))
        return;
    if (!name.data)
        name = LODE_STR("<|begin_of_text|>");
    for (const struct lode_json *c = lode_json_first(root); c; c = lode_json_next(root, c)) {
        int64_t id;
        if (!lode_str_eq(lode_json_str(lode_json_get(c, "content")), name) ||
            !lode_json_int(lode_json_get(c, "id"), 0, INT32_MAX, &id))
            continue;
        lode_buf_addz(b, "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
                         "{\"SpecialToken\":{\"id\":\"bos\"}},{\"Sequence\":{\"id\":\"A\"}}],"
                         "\"special_tokens\":{\"bos\":{\"ids\":[");
        lode_buf_addf(b, "%lld]}}},", (long long)id);
        return;
    }
}

struct docs {
    struct lode_json_doc config, model, added, vocab;
};

static int parse(struct lode_json_doc *doc, struct lode_str text, const char *name,
                 struct lode_error *err) {
    if (!text.len)
        return 0;
    LODE_TRY(lode_json_parse(doc, text, name, err));
    return lode_json_is(doc->nodes, LODE_JSON_OBJECT)
               ? 0
               : lode_fail(err, LODE_ERR_FORMAT, name, "a JSON object expected");
}

static int write_json(struct lode_buf *b, const struct lode_tok_parts *p, const struct docs *d,
                      struct lode_error *err) {
    const struct lode_pre_entry *kind = find_kind(d->config.nodes, d->model.nodes);
    struct lode_buf vocab = {0}, list = {0};
    struct lode_json_doc added = {0};
    int64_t next = -1;
    int rc = 0;
    if (!kind)
        return lode_fail(err, LODE_ERR_UNSUPPORTED, p->ranks.len ? "tokenizer.model" : "vocab.json",
                         "neither tokenizer_class in tokenizer_config.json nor model_type in "
                         "config.json is one whose way to cut text is known: a tokenizer.json "
                         "would say it");
    if (p->ranks.len)
        rc = put_ranks(&vocab, p->ranks, &next, err);
    if (rc == 0)
        rc = put_added_tokens(&list, d->config.nodes, d->added.nodes, kind, next, err);
    if (rc == 0) { /* to look into: [..] behind the key */
        const struct lode_str text = {list.data + strlen("\"added_tokens\":"),
                                      list.len - strlen("\"added_tokens\":") - 1};
        rc = lode_json_parse(&added, text, "added tokens", err);
    }
    if (rc == 0) {
        lode_buf_addc(b, '{');
        put_pre(b, kind);
        put_bos(b, d->config.nodes, added.nodes, kind);
        lode_buf_add(b, list.data, list.len);
        lode_buf_addf(b, "\"model\":{\"type\":\"BPE\",\"ignore_merges\":%s,",
                      p->ranks.len || kind->flags & LODE_PRE_IGNORE_MERGES ? "true" : "false");
        if (p->ranks.len) {
            lode_buf_add(b, vocab.data, vocab.len);
        } else {
            lode_buf_addz(b, "\"vocab\":");
            lode_buf_add(b, p->vocab.data, p->vocab.len);
            lode_buf_addc(b, ',');
            rc = put_merges(b, p->merges, err);
        }
        lode_buf_addz(b, "}}");
    }
    if (rc == 0 && (b->failed || vocab.failed))
        rc = lode_fail_nomem(err, "a tokenizer");
    lode_json_free(&added);
    lode_buf_free(&vocab);
    lode_buf_free(&list);
    return rc;
}

int lode_tokenizer_from_parts(struct lode_tokenizer **out, const struct lode_tok_parts *p,
                              struct lode_error *err) {
    struct docs d = {0};
    struct lode_buf json = {0};
    *out = NULL;
    int rc = parse(&d.config, p->config, "tokenizer_config.json", err);
    if (rc == 0)
        rc = parse(&d.model, p->model_config, "config.json", err);
    if (rc == 0)
        rc = parse(&d.added, p->added, "added_tokens.json", err);
    if (rc == 0) /* for it goes into another document as it is */
        rc = parse(&d.vocab, p->vocab, "vocab.json", err);
    lode_json_free(&d.vocab);
    if (rc == 0)
        rc = write_json(&json, p, &d, err);
    lode_json_free(&d.config);
    lode_json_free(&d.model);
    lode_json_free(&d.added);
    if (rc == 0)
        rc = lode_tok_load_json(out, lode_buf_str(&json), p->config, p->generation,
                                p->ranks.len > 0, err);
    lode_buf_free(&json);
    return rc;
}
