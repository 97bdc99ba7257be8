/* load_json_steps.c - the steps around the model of a tokenizer.json: normalizer, pre_tokenizer,
 * decoder, post_processor. */
#include "text/load_json.h"

#include "text/pre_table.h"

enum { NEST_MAX = 8 };

/* A pattern is {"String": "..."} or {"Regex": "..."}. */
static int read_pattern(struct lode_tok_json *l, const struct lode_json *o, struct lode_str *text,
                        bool *regex, const char *where) {
    const struct lode_json *pattern = lode_json_get(o, "pattern");
    *regex = lode_json_is(lode_json_get(pattern, "Regex"), LODE_JSON_STRING);
    *text = lode_json_str(lode_json_get(pattern, *regex ? "Regex" : "String"));
    return text->data ? 0 : lode_tok_json_invalid(l, where, "pattern: neither String nor Regex");
}

/* A Sequence's members, in order, through one. */
static int each(struct lode_tok_json *l, const struct lode_json *o, const char *key,
                const char *where, int depth,
                int (*one)(struct lode_tok_json *, const struct lode_json *, int)) {
    const struct lode_json *list = lode_json_get(o, key);
    if (!lode_json_is(list, LODE_JSON_ARRAY) || depth >= NEST_MAX)
        return lode_tok_json_invalid(l, where, "a Sequence without its list, or nested too deeply");
    for (const struct lode_json *c = lode_json_first(list); c; c = lode_json_next(list, c))
        LODE_TRY(one(l, c, depth + 1));
    return 0;
}

/* -- normalizer ------------------------------------------------------------------------ */

static int add_norm(struct lode_tok_json *l, struct lode_norm_step step) {
    if (l->n_norms == sizeof l->norms / sizeof *l->norms) {
        lode_regex_free(step.regex);
        return lode_fail(l->err, LODE_ERR_LIMIT, "normalizer", "too many steps");
    }
    l->norms[l->n_norms++] = step;
    return 0;
}

int64_t lode_tok_base64(struct lode_str text, char *out) {
    int64_t n = 0;
    uint32_t bits = 0, n_bits = 0;
    for (size_t i = 0; i < text.len && text.data[i] != '='; i++) {
        const char c = text.data[i];
        const int v = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
        if (v < 0)
            return -1;
        bits = bits << 6 | (uint32_t)v;
        n_bits += 6;
        if (n_bits >= 8)
            out[n++] = (char)(bits >> (n_bits -= 8));
    }
    return n;
}

static int decode_base64(struct lode_tok_json *l, struct lode_str text, struct lode_str *out) {
    char *bytes = lode_arena_alloc(&l->t->arena, text.len / 4 * 3 + 3, 1);
    if (!bytes)
        return lode_fail_nomem(l->err, "a normaliser");
    const int64_t n = lode_tok_base64(text, bytes);
    if (n < 0)
        return lode_tok_json_invalid(l, "normalizer.precompiled_charsmap", "not base64");
    *out = (struct lode_str){bytes, (size_t)n};
    return 0;
}

int lode_tok_json_norm(struct lode_tok_json *l, const struct lode_json *o, int depth) {
    static const struct {
        const char *name;
        enum lode_normal_form form;
    } forms[] = {{"NFC", LODE_NFC}, {"NFD", LODE_NFD}, {"NFKC", LODE_NFKC}, {"NFKD", LODE_NFKD}};
    const struct lode_str type = lode_json_str(lode_json_get(o, "type"));
    struct lode_norm_step step = {0};
    if (lode_json_is(o, LODE_JSON_NULL))
        return 0;
    for (size_t i = 0; i < 4; i++) {
        if (lode_str_eqz(type, forms[i].name)) {
            step.op = LODE_NORM_FORM;
            step.form = forms[i].form;
            return add_norm(l, step);
        }
    }
    if (lode_str_eqz(type, "Sequence"))
        return each(l, o, "normalizers", "normalizer", depth, lode_tok_json_norm);
    if (lode_str_eqz(type, "Lowercase")) {
        step.op = LODE_NORM_LOWER;
    } else if (lode_str_eqz(type, "StripAccents")) {
        step.op = LODE_NORM_STRIP_ACCENTS;
    } else if (lode_str_eqz(type, "Nmt")) {
        step.op = LODE_NORM_NMT;
    } else if (lode_str_eqz(type, "Strip")) {
        step.op = LODE_NORM_STRIP;
        step.left = lode_json_bool(o, "strip_left", true);
        step.right = lode_json_bool(o, "strip_right", true);
    } else if (lode_str_eqz(type, "Prepend")) {
        step.op = LODE_NORM_PREPEND;
        LODE_TRY(lode_tok_json_copy(l, lode_json_get(o, "prepend"), &step.to));
    } else if (lode_str_eqz(type, "Replace")) {
        bool regex;
        struct lode_str pattern;
        LODE_TRY(read_pattern(l, o, &pattern, &regex, "normalizer.Replace"));
        LODE_TRY(lode_tok_json_copy(l, lode_json_get(o, "content"), &step.to));
        step.op = regex ? LODE_NORM_REPLACE_REGEX : LODE_NORM_REPLACE;
        if (regex)
            LODE_TRY(lode_regex_create(&step.regex, pattern, l->err));
        else
            LODE_TRY(lode_tok_copy(l->t, pattern, &step.from, l->err));
    } else if (lode_str_eqz(type, "BertNormalizer")) {
        step.op = LODE_NORM_BERT;
        step.clean = lode_json_bool(o, "clean_text", true);
        step.cjk = lode_json_bool(o, "handle_chinese_chars", true);
        step.lower = lode_json_bool(o, "lowercase", true);
        step.strip_accents = lode_json_bool(o, "strip_accents", step.lower);
    } else if (lode_str_eqz(type, "Precompiled")) {
        struct lode_str blob;
        step.op = LODE_NORM_CHARSMAP;
        LODE_TRY(decode_base64(l, lode_json_str(lode_json_get(o, "precompiled_charsmap")), &blob));
        LODE_TRY(lode_charsmap_init(&step.map, &l->t->arena, blob, l->err));
    } else {
        return lode_tok_json_unknown(l, "normalizer", type);
    }
    return add_norm(l, step);
}

/* -- pre_tokenizer --------------------------------------------------------------------- */

static int read_behavior(struct lode_tok_json *l, struct lode_str name,
                         enum lode_split_behavior *out) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    for (int i = 0; i < 5; i++) {
        if (lode_str_eqz(name, names[i])) {
            *out = (enum lode_split_behavior)i;
            return 0;
        }
    }
    return lode_tok_json_unknown(l, "pre_tokenizer.behavior", name);
}

static int add_regex(struct lode_tok_json *l, const char *pattern,
                     enum lode_split_behavior behavior, bool invert) {
    return lode_pre_add_pattern(l->t, lode_str(pattern), behavior, invert, l->err);
}

static int read_metaspace(struct lode_tok_json *l, const struct lode_json *o) {
    struct lode_pre_step step = {.op = LODE_PRE_METASPACE};
    const struct lode_str scheme = lode_json_str(lode_json_get(o, "prepend_scheme"));
    if (scheme.data)
        step.prepend = lode_str_eqz(scheme, "always")  ? LODE_PREPEND_ALWAYS
                       : lode_str_eqz(scheme, "never") ? LODE_PREPEND_NEVER
                                                       : LODE_PREPEND_FIRST;
    else
        step.prepend =
            lode_json_bool(o, "add_prefix_space", true) ? LODE_PREPEND_ALWAYS : LODE_PREPEND_NEVER;
    step.cut = lode_json_bool(o, "split", true);
    LODE_TRY(lode_tok_json_copy(l, lode_json_get(o, "replacement"), &step.literal));
    if (step.literal.len == 0)
        return lode_tok_json_invalid(l, "pre_tokenizer.Metaspace", "replacement is missing");
    return lode_tok_add_pre(l->t, step, l->err);
}

static int read_split(struct lode_tok_json *l, const struct lode_json *o) {
    struct lode_pre_step step = {.op = LODE_PRE_SPLIT};
    struct lode_str pattern;
    bool regex;
    LODE_TRY(read_behavior(l, lode_json_str(lode_json_get(o, "behavior")), &step.behavior));
    LODE_TRY(read_pattern(l, o, &pattern, &regex, "pre_tokenizer.Split"));
    step.invert = lode_json_bool(o, "invert", false);
    if (regex)
        return lode_pre_add_pattern(l->t, pattern, step.behavior, step.invert, l->err);
    if (pattern.len == 0)
        return lode_tok_json_invalid(l, "pre_tokenizer.Split", "an empty pattern");
    LODE_TRY(lode_tok_copy(l->t, pattern, &step.literal, l->err));
    return lode_tok_add_pre(l->t, step, l->err);
}

int lode_tok_json_pre(struct lode_tok_json *l, const struct lode_json *o, int depth) {
    const struct lode_str type = lode_json_str(lode_json_get(o, "type"));
    if (lode_json_is(o, LODE_JSON_NULL))
        return 0;
    if (l->byte_level)
        return lode_tok_json_invalid(l, "pre_tokenizer",
                                     "a step behind ByteLevel is not supported");
    if (lode_str_eqz(type, "Sequence"))
        return each(l, o, "pretokenizers", "pre_tokenizer", depth, lode_tok_json_pre);
    if (lode_str_eqz(type, "Split"))
        return read_split(l, o);
    if (lode_str_eqz(type, "Metaspace"))
        return read_metaspace(l, o);
    if (lode_str_eqz(type, "ByteLevel")) {
        if (lode_json_bool(o, "add_prefix_space", true))
            LODE_TRY(lode_tok_add_pre(l->t, (struct lode_pre_step){.op = LODE_PRE_SPACE}, l->err));
        if (lode_json_bool(o, "use_regex", true))
            LODE_TRY(add_regex(l, LODE_TOK_GPT2_REGEX, LODE_SPLIT_ISOLATED, false));
        l->byte_level = true;
        return 0;
    }
    if (lode_str_eqz(type, "Digits"))
        return add_regex(l, "\\p{N}",
                         lode_json_bool(o, "individual_digits", false) ? LODE_SPLIT_ISOLATED
                                                                       : LODE_SPLIT_CONTIGUOUS,
                         false);
    if (lode_str_eqz(type, "Punctuation")) {
        enum lode_split_behavior behavior = LODE_SPLIT_ISOLATED;
        if (lode_json_str(lode_json_get(o, "behavior")).data)
            LODE_TRY(read_behavior(l, lode_json_str(lode_json_get(o, "behavior")), &behavior));
        return add_regex(l, LODE_TOK_PUNCT_REGEX, behavior, false);
    }
    if (lode_str_eqz(type, "Whitespace"))
        /* Rust's \\w, which has the joiners too */
        return add_regex(l, "[\\w\\x{200c}\\x{200d}]+|[^\\w\\s\\x{200c}\\x{200d}]+",
                         LODE_SPLIT_REMOVED, true);
    if (lode_str_eqz(type, "WhitespaceSplit"))
        return add_regex(l, "\\s", LODE_SPLIT_REMOVED, false);
    if (lode_str_eqz(type, "BertPreTokenizer")) {
        LODE_TRY(add_regex(l, "\\s", LODE_SPLIT_REMOVED, false));
        return add_regex(l, LODE_TOK_PUNCT_REGEX, LODE_SPLIT_ISOLATED, false);
    }
    if (lode_str_eqz(type, "CharDelimiterSplit")) {
        struct lode_pre_step step = {.op = LODE_PRE_SPLIT, .behavior = LODE_SPLIT_REMOVED};
        LODE_TRY(lode_tok_json_copy(l, lode_json_get(o, "delimiter"), &step.literal));
        if (step.literal.len == 0)
            return lode_tok_json_invalid(l, "pre_tokenizer.CharDelimiterSplit",
                                         "delimiter is missing");
        return lode_tok_add_pre(l->t, step, l->err);
    }
    return lode_tok_json_unknown(l, "pre_tokenizer", type);
}

/* -- decoder --------------------------------------------------------------------------- */

int lode_tok_json_decoder(struct lode_tok_json *l, const struct lode_json *o, int depth) {
    const struct lode_str type = lode_json_str(lode_json_get(o, "type"));
    struct lode_decode_step step = {0};
    if (lode_str_eqz(type, "Sequence"))
        return each(l, o, "decoders", "decoder", depth, lode_tok_json_decoder);
    if (lode_str_eqz(type, "ByteLevel")) {
        step.op = LODE_DECODE_BYTES;
    } else if (lode_str_eqz(type, "ByteFallback")) {
        step.op = LODE_DECODE_BYTE_FALLBACK;
    } else if (lode_str_eqz(type, "Fuse")) {
        step.op = LODE_DECODE_FUSE;
    } else if (lode_str_eqz(type, "Replace")) {
        bool regex;
        struct lode_str pattern;
        step.op = LODE_DECODE_REPLACE;
        LODE_TRY(read_pattern(l, o, &pattern, &regex, "decoder.Replace"));
        if (regex)
            return lode_tok_json_invalid(l, "decoder.Replace",
                                         "a regular expression is not supported here");
        LODE_TRY(lode_tok_copy(l->t, pattern, &step.from, l->err));
        LODE_TRY(lode_tok_json_copy(l, lode_json_get(o, "content"), &step.to));
    } else if (lode_str_eqz(type, "Strip")) {
        step.op = LODE_DECODE_STRIP;
        LODE_TRY(lode_tok_json_copy(l, lode_json_get(o, "content"), &step.from));
        int64_t start, stop;
        if (step.from.len == 0 || !lode_json_int(lode_json_get(o, "start"), 0, 1000, &start) ||
            !lode_json_int(lode_json_get(o, "stop"), 0, 1000, &stop))
            return lode_tok_json_invalid(l, "decoder.Strip",
                                         "content, start or stop is out of range");
        step.start = (uint32_t)start;
        step.stop = (uint32_t)stop;
    } else if (lode_str_eqz(type, "Metaspace")) {
        step.op = LODE_DECODE_METASPACE;
        LODE_TRY(lode_tok_json_copy(l, lode_json_get(o, "replacement"), &step.from));
        const struct lode_str scheme = lode_json_str(lode_json_get(o, "prepend_scheme"));
        step.keep_first = scheme.data ? lode_str_eqz(scheme, "never")
                                      : !lode_json_bool(o, "add_prefix_space", true);
        if (step.from.len == 0)
            return lode_tok_json_invalid(l, "decoder.Metaspace", "replacement is missing");
    } else if (lode_str_eqz(type, "WordPiece")) {
        step.op = LODE_DECODE_WORDPIECE;
        LODE_TRY(lode_tok_json_copy(l, lode_json_get(o, "prefix"), &step.from));
        step.cleanup = lode_json_bool(o, "cleanup", true);
    } else if (lode_str_eqz(type, "BPEDecoder")) {
        step.op = LODE_DECODE_BPE;
        LODE_TRY(lode_tok_json_copy(l, lode_json_get(o, "suffix"), &step.from));
    } else {
        return lode_tok_json_unknown(l, "decoder", type);
    }
    return lode_tok_add_decode(l->t, step, l->err);
}

/* -- post_processor -------------------------------------------------------------------- */

static int put(struct lode_tok_json *l, bool after, const struct lode_json *id) {
    struct lode_tokenizer *t = l->t;
    uint32_t *n = after ? &t->n_after : &t->n_before;
    int64_t v;
    if (!lode_json_int(id, 0, (int64_t)t->vocab.n - 1, &v))
        return lode_tok_json_invalid(l, "post_processor",
                                     "a special token is not in the vocabulary");
    if (*n == LODE_TOK_EXTRA_MAX)
        return lode_tok_json_invalid(l, "post_processor", "too many special tokens");
    (after ? t->after : t->before)[(*n)++] = (int32_t)v;
    return 0;
}

static int read_template(struct lode_tok_json *l, const struct lode_json *o) {
    const struct lode_json *single = lode_json_get(o, "single");
    const struct lode_json *tokens = lode_json_get(o, "special_tokens");
    bool after = false;
    if (!lode_json_is(single, LODE_JSON_ARRAY))
        return lode_tok_json_invalid(l, "post_processor.TemplateProcessing", "single is missing");
    for (const struct lode_json *item = lode_json_first(single); item;
         item = lode_json_next(single, item)) {
        if (lode_json_get(item, "Sequence")) {
            after = true;
            continue;
        }
        const struct lode_str name =
            lode_json_str(lode_json_get(lode_json_get(item, "SpecialToken"), "id"));
        const struct lode_json *ids = lode_json_get(lode_json_getn(tokens, name), "ids");
        if (!lode_json_count(ids))
            return lode_tok_json_invalid(l, "post_processor.TemplateProcessing",
                                         "a special token has no ids");
        for (const struct lode_json *id = lode_json_first(ids); id; id = lode_json_next(ids, id))
            LODE_TRY(put(l, after, id));
    }
    return 0;
}

int lode_tok_json_post(struct lode_tok_json *l, const struct lode_json *o, int depth) {
    const struct lode_str type = lode_json_str(lode_json_get(o, "type"));
    if (lode_json_is(o, LODE_JSON_NULL) || lode_str_eqz(type, "ByteLevel"))
        return 0;
    if (lode_str_eqz(type, "Sequence"))
        return each(l, o, "processors", "post_processor", depth, lode_tok_json_post);
    if (lode_str_eqz(type, "TemplateProcessing"))
        return read_template(l, o);
    if (lode_str_eqz(type, "BertProcessing") || lode_str_eqz(type, "RobertaProcessing")) {
        LODE_TRY(put(l, false, lode_json_at(lode_json_get(o, "cls"), 1)));
        return put(l, true, lode_json_at(lode_json_get(o, "sep"), 1));
    }
    return lode_tok_json_unknown(l, "post_processor", type);
}
