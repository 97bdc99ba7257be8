/* load_json.c - tokenizer.json, the tokenizers library's format.
 *
 * Every component that published models have is translated into the steps of tok.h; one that is
 * not known is refused by name, because leaving it out would give other ids without a word.
 */
#include "text/load.h"
#include "text/pre_table.h"
#include "text/tokenizer.h"

#include "base/alloc.h"

#include <inttypes.h>

enum { VOCAB_MAX = 1 << 24, NEST_MAX = 8 };

struct loader {
    struct lode_tokenizer *t;
    struct lode_error *err;
    struct lode_norm_step norms[16];
    uint32_t n_norms;
    bool byte_level; /* a ByteLevel pre-tokenizer: the model's text is bytes */
    bool by_rank;    /* lode_tok_load_json */
};

static int unknown(struct loader *l, const char *where, struct lode_str type) {
    return lode_fail(l->err, LODE_ERR_UNSUPPORTED, where, "\"%.*s\" is not supported",
                     (int)(type.len < 64 ? type.len : 64), type.data ? type.data : "");
}

static int invalid(struct loader *l, const char *where, const char *what) {
    return lode_fail(l->err, LODE_ERR_FORMAT, where, "%s", what);
}

/* A string's copy; empty where v is none. */
static int copy(struct loader *l, const struct lode_json *v, struct lode_str *out) {
    return lode_tok_copy(l->t, lode_json_str(v), out, l->err);
}

/* A pattern is {"String": "..."} or {"Regex": "..."}. */
static int read_pattern(struct loader *l, const struct lode_json *o, struct lode_str *text,
                        bool *regex, const char *where) {
    const struct lode_json *pattern = lode_json_get(o, "pattern");
    *regex = lode_json_is(lode_json_get(pattern, "Regex"), LODE_JSON_STRING);
    *text = lode_json_str(lode_json_get(pattern, *regex ? "Regex" : "String"));
    return text->data ? 0 : invalid(l, where, "pattern: neither String nor Regex");
}

/* A Sequence's members, in order, through one. */
static int each(struct loader *l, const struct lode_json *o, const char *key, const char *where,
                int depth, int (*one)(struct loader *, const struct lode_json *, int)) {
    const struct lode_json *list = lode_json_get(o, key);
    if (!lode_json_is(list, LODE_JSON_ARRAY) || depth >= NEST_MAX)
        return invalid(l, where, "a Sequence without its list, or nested too deeply");
    for (const struct lode_json *c = lode_json_first(list); c; c = lode_json_next(list, c))
        LODE_TRY(one(l, c, depth + 1));
    return 0;
}

/* -- normalizer ------------------------------------------------------------------------ */

static int add_norm(struct loader *l, struct lode_norm_step step) {
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

static int decode_base64(struct loader *l, struct lode_str text, struct lode_str *out) {
    char *bytes = lode_arena_alloc(&l->t->arena, text.len / 4 * 3 + 3, 1);
    if (!bytes)
        return lode_fail_nomem(l->err, "a normaliser");
    const int64_t n = lode_tok_base64(text, bytes);
    if (n < 0)
        return invalid(l, "normalizer.precompiled_charsmap", "not base64");
    *out = (struct lode_str){bytes, (size_t)n};
    return 0;
}

static int read_norm(struct loader *l, const struct lode_json *o, int depth) {
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
        return each(l, o, "normalizers", "normalizer", depth, read_norm);
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
        LODE_TRY(copy(l, lode_json_get(o, "prepend"), &step.to));
    } else if (lode_str_eqz(type, "Replace")) {
        bool regex;
        struct lode_str pattern;
        LODE_TRY(read_pattern(l, o, &pattern, &regex, "normalizer.Replace"));
        LODE_TRY(copy(l, lode_json_get(o, "content"), &step.to));
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
        return unknown(l, "normalizer", type);
    }
    return add_norm(l, step);
}

/* -- pre_tokenizer --------------------------------------------------------------------- */

static int read_behavior(struct loader *l, struct lode_str name, enum lode_split_behavior *out) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    for (int i = 0; i < 5; i++) {
        if (lode_str_eqz(name, names[i])) {
            *out = (enum lode_split_behavior)i;
            return 0;
        }
    }
    return unknown(l, "pre_tokenizer.behavior", name);
}

static int add_regex(struct loader *l, const char *pattern, enum lode_split_behavior behavior,
                     bool invert) {
    return lode_pre_add_pattern(l->t, lode_str(pattern), behavior, invert, l->err);
}

static int read_metaspace(struct loader *l, const struct lode_json *o) {
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
    LODE_TRY(copy(l, lode_json_get(o, "replacement"), &step.literal));
    if (step.literal.len == 0)
        return invalid(l, "pre_tokenizer.Metaspace", "replacement is missing");
    return lode_tok_add_pre(l->t, step, l->err);
}

static int read_split(struct loader *l, const struct lode_json *o) {
    struct lode_pre_step step = {.op = LODE_PRE_SPLIT};
    struct lode_str pattern;
    bool regex;
    LODE_TRY(read_behavior(l, lode_json_str(lode_json_get(o, "behavior")), &step.behavior));
    LODE_TRY(read_pattern(l, o, &pattern, &regex, "pre_tokenizer.Split"));
    step.invert = lode_json_bool(o, "invert", false);
    if (regex)
        return lode_pre_add_pattern(l->t, pattern, step.behavior, step.invert, l->err);
    if (pattern.len == 0)
        return invalid(l, "pre_tokenizer.Split", "an empty pattern");
    LODE_TRY(lode_tok_copy(l->t, pattern, &step.literal, l->err));
    return lode_tok_add_pre(l->t, step, l->err);
}

static int read_pre(struct loader *l, const struct lode_json *o, int depth) {
    const struct lode_str type = lode_json_str(lode_json_get(o, "type"));
    if (lode_json_is(o, LODE_JSON_NULL))
        return 0;
    if (l->byte_level)
        return invalid(l, "pre_tokenizer", "a step behind ByteLevel is not supported");
    if (lode_str_eqz(type, "Sequence"))
        return each(l, o, "pretokenizers", "pre_tokenizer", depth, read_pre);
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
        LODE_TRY(copy(l, lode_json_get(o, "delimiter"), &step.literal));
        if (step.literal.len == 0)
            return invalid(l, "pre_tokenizer.CharDelimiterSplit", "delimiter is missing");
        return lode_tok_add_pre(l->t, step, l->err);
    }
    return unknown(l, "pre_tokenizer", type);
}

/* -- decoder --------------------------------------------------------------------------- */

static int read_decoder(struct loader *l, const struct lode_json *o, int depth) {
    const struct lode_str type = lode_json_str(lode_json_get(o, "type"));
    struct lode_decode_step step = {0};
    if (lode_str_eqz(type, "Sequence"))
        return each(l, o, "decoders", "decoder", depth, read_decoder);
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
            return invalid(l, "decoder.Replace", "a regular expression is not supported here");
        LODE_TRY(lode_tok_copy(l->t, pattern, &step.from, l->err));
        LODE_TRY(copy(l, lode_json_get(o, "content"), &step.to));
    } else if (lode_str_eqz(type, "Strip")) {
        step.op = LODE_DECODE_STRIP;
        LODE_TRY(copy(l, lode_json_get(o, "content"), &step.from));
        int64_t start, stop;
        if (step.from.len == 0 || !lode_json_int(lode_json_get(o, "start"), 0, 1000, &start) ||
            !lode_json_int(lode_json_get(o, "stop"), 0, 1000, &stop))
            return invalid(l, "decoder.Strip", "content, start or stop is out of range");
        step.start = (uint32_t)start;
        step.stop = (uint32_t)stop;
    } else if (lode_str_eqz(type, "Metaspace")) {
        step.op = LODE_DECODE_METASPACE;
        LODE_TRY(copy(l, lode_json_get(o, "replacement"), &step.from));
        const struct lode_str scheme = lode_json_str(lode_json_get(o, "prepend_scheme"));
        step.keep_first = scheme.data ? lode_str_eqz(scheme, "never")
                                      : !lode_json_bool(o, "add_prefix_space", true);
        if (step.from.len == 0)
            return invalid(l, "decoder.Metaspace", "replacement is missing");
    } else if (lode_str_eqz(type, "WordPiece")) {
        step.op = LODE_DECODE_WORDPIECE;
        LODE_TRY(copy(l, lode_json_get(o, "prefix"), &step.from));
        step.cleanup = lode_json_bool(o, "cleanup", true);
    } else if (lode_str_eqz(type, "BPEDecoder")) {
        step.op = LODE_DECODE_BPE;
        LODE_TRY(copy(l, lode_json_get(o, "suffix"), &step.from));
    } else {
        return unknown(l, "decoder", type);
    }
    return lode_tok_add_decode(l->t, step, l->err);
}

/* -- post_processor -------------------------------------------------------------------- */

static int put(struct loader *l, bool after, const struct lode_json *id) {
    struct lode_tokenizer *t = l->t;
    uint32_t *n = after ? &t->n_after : &t->n_before;
    int64_t v;
    if (!lode_json_int(id, 0, (int64_t)t->vocab.n - 1, &v))
        return invalid(l, "post_processor", "a special token is not in the vocabulary");
    if (*n == LODE_TOK_EXTRA_MAX)
        return invalid(l, "post_processor", "too many special tokens");
    (after ? t->after : t->before)[(*n)++] = (int32_t)v;
    return 0;
}

static int read_template(struct loader *l, const struct lode_json *o) {
    const struct lode_json *single = lode_json_get(o, "single");
    const struct lode_json *tokens = lode_json_get(o, "special_tokens");
    bool after = false;
    if (!lode_json_is(single, LODE_JSON_ARRAY))
        return invalid(l, "post_processor.TemplateProcessing", "single is missing");
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
            return invalid(l, "post_processor.TemplateProcessing", "a special token has no ids");
        for (const struct lode_json *id = lode_json_first(ids); id; id = lode_json_next(ids, id))
            LODE_TRY(put(l, after, id));
    }
    return 0;
}

static int read_post(struct loader *l, const struct lode_json *o, int depth) {
    const struct lode_str type = lode_json_str(lode_json_get(o, "type"));
    if (lode_json_is(o, LODE_JSON_NULL) || lode_str_eqz(type, "ByteLevel"))
        return 0;
    if (lode_str_eqz(type, "Sequence"))
        return each(l, o, "processors", "post_processor", depth, read_post);
    if (lode_str_eqz(type, "TemplateProcessing"))
        return read_template(l, o);
    if (lode_str_eqz(type, "BertProcessing") || lode_str_eqz(type, "RobertaProcessing")) {
        LODE_TRY(put(l, false, lode_json_at(lode_json_get(o, "cls"), 1)));
        return put(l, true, lode_json_at(lode_json_get(o, "sep"), 1));
    }
    return unknown(l, "post_processor", type);
}

/* -- vocabulary and models ------------------------------------------------------------- */

/* Ids may lie beyond the number of pieces (added tokens, gaps): how many there are in all. */
static int count_ids(struct loader *l, const struct lode_json *vocab, const struct lode_json *added,
                     uint32_t *n) {
    int64_t most = (int64_t)lode_json_count(vocab) - 1, id;
    if (lode_json_count(vocab) == 0)
        return invalid(l, "model.vocab", "is missing or empty");
    for (const struct lode_json *c = lode_json_first(vocab); c && c->key;
         c = lode_json_next(vocab, c)) {
        if (!lode_json_int(c, 0, VOCAB_MAX, &id))
            return invalid(l, "model.vocab", "an id is not a whole number from 0 to 16 million");
        most = id > most ? id : most;
    }
    for (const struct lode_json *c = lode_json_first(added); c; c = lode_json_next(added, c)) {
        if (!lode_json_int(lode_json_get(c, "id"), 0, VOCAB_MAX, &id))
            return invalid(l, "added_tokens", "an id is not a whole number from 0 to 16 million");
        most = id > most ? id : most;
    }
    /* Some leave gaps, none wide ones: a few bytes of JSON shall not claim half a gigabyte. */
    const int64_t pieces = (int64_t)lode_json_count(vocab) + lode_json_count(added);
    if (most > 8 * pieces + (1 << 16))
        return lode_fail(l->err, LODE_ERR_FORMAT, "model.vocab",
                         "id %" PRId64 " is far beyond the %" PRId64 " pieces", most, pieces);
    *n = (uint32_t)most + 1;
    return 0;
}

/* {"piece": id, ...}, or [["piece", score], ...] for unigram models.  The text of all pieces is
 * one block. */
static int read_vocab(struct loader *l, const struct lode_json *vocab,
                      const struct lode_json *added) {
    struct lode_vocab *v = &l->t->vocab;
    const bool scored = lode_json_is(vocab, LODE_JSON_ARRAY);
    uint32_t n = 0, i = 0;
    LODE_TRY(count_ids(l, vocab, added, &n));
    if (lode_vocab_init(v, &l->t->arena, n, scored) < 0)
        return lode_fail_nomem(l->err, "the vocabulary");
    size_t size = 0;
    for (const struct lode_json *c = lode_json_first(vocab); c; c = lode_json_next(vocab, c))
        size += scored ? lode_json_str(lode_json_at(c, 0)).len : c->key_len;
    char *text = lode_arena_alloc(&l->t->arena, size + 1, 1);
    if (!text)
        return lode_fail_nomem(l->err, "the vocabulary");
    for (const struct lode_json *c = lode_json_first(vocab); c; c = lode_json_next(vocab, c), i++) {
        struct lode_str piece = {c->key, c->key_len};
        int64_t id = i;
        double score;
        if (!scored) {
            lode_json_int(c, 0, VOCAB_MAX, &id);
        } else {
            piece = lode_json_str(lode_json_at(c, 0));
            if (!piece.data || !lode_json_real(lode_json_at(c, 1), &score))
                return invalid(l, "model.vocab", "an element is not [piece, score]");
            v->scores[id] = (float)score;
        }
        memcpy(text, piece.data, piece.len);
        v->pieces[id] = (struct lode_str){text, piece.len};
        v->kinds[id] = LODE_PIECE_NORMAL;
        text += piece.len;
    }
    for (uint32_t id = 0; id < n; id++)
        if (v->kinds[id] != LODE_PIECE_NONE)
            lode_vocab_index(v, id);
    return 0;
}

/* After the model's own pieces have been put to use: the reference looks into them first when it
 * encodes, and into the added ones first when it decodes. */
static int read_added(struct loader *l, const struct lode_json *added) {
    struct lode_tokenizer *t = l->t;
    t->added.tokens =
        lode_arena_alloc_zero(&t->arena, lode_json_count(added), sizeof *t->added.tokens);
    if (!t->added.tokens)
        return lode_fail_nomem(l->err, "added tokens");
    for (const struct lode_json *c = lode_json_first(added); c; c = lode_json_next(added, c)) {
        struct lode_added_token *token = &t->added.tokens[t->added.n++];
        int64_t id = 0;
        lode_json_int(lode_json_get(c, "id"), 0, VOCAB_MAX, &id);
        LODE_TRY(copy(l, lode_json_get(c, "content"), &token->text));
        token->id = (int32_t)id;
        token->lstrip = lode_json_bool(c, "lstrip", false);
        token->rstrip = lode_json_bool(c, "rstrip", false);
        token->single_word = lode_json_bool(c, "single_word", false);
        token->special = lode_json_bool(c, "special", false);
        token->normalized = lode_json_bool(c, "normalized", !token->special);
        t->vocab.pieces[id] = token->text;
        t->vocab.special[id] = token->special;
        t->vocab.kinds[id] = token->special ? LODE_PIECE_CONTROL : LODE_PIECE_USER;
        lode_vocab_index(&t->vocab, (uint32_t)id);
    }
    return 0;
}

static int read_merges(struct loader *l, const struct lode_json *merges) {
    struct lode_bpe *b = &l->t->bpe;
    uint32_t rank = 0;
    if (!lode_json_is(merges, LODE_JSON_ARRAY) || lode_json_count(merges) > VOCAB_MAX)
        return invalid(l, "model.merges", "is missing or too long");
    if (lode_bpe_reserve(b, lode_json_count(merges)) < 0)
        return lode_fail_nomem(l->err, "merges");
    for (const struct lode_json *m = lode_json_first(merges); m;
         m = lode_json_next(merges, m), rank++) {
        struct lode_str left, right; /* TOK-05: "a b" or ["a", "b"] */
        const struct lode_str both = lode_json_str(m);
        const char *space = both.len ? memchr(both.data, ' ', both.len) : NULL;
        if (space) {
            left = (struct lode_str){both.data, (size_t)(space - both.data)};
            right = (struct lode_str){space + 1, both.len - left.len - 1};
        } else {
            left = lode_json_str(lode_json_at(m, 0));
            right = lode_json_str(lode_json_at(m, 1));
        }
        if (!left.data || !right.data)
            return lode_fail(l->err, LODE_ERR_FORMAT, "model.merges", "merge %u is not two pieces",
                             rank);
        if (lode_bpe_add(b, left, right, rank) < 0)
            return lode_fail(l->err, LODE_ERR_FORMAT, "model.merges",
                             "merge %u, or what it makes, is not in the vocabulary", rank);
    }
    return 0;
}

/* All ways to make a piece of two others, at the rank that its id is. */
static int add_ranks(struct loader *l) {
    const struct lode_vocab *v = &l->t->vocab;
    struct lode_bpe *b = &l->t->bpe;
    uint32_t n = 0;
    for (int pass = 0; pass < 2; pass++) { /* to count, then to add */
        if (pass && lode_bpe_reserve(b, n) < 0)
            return lode_fail_nomem(l->err, "merges");
        for (uint32_t id = 0; id < v->n; id++) {
            const struct lode_str s = v->pieces[id];
            for (size_t i = 1; i < s.len; i++) {
                if (((unsigned char)s.data[i] & 0xc0) == 0x80 || /* within a character */
                    lode_vocab_find(v, s.data, i) < 0 ||
                    lode_vocab_find(v, s.data + i, s.len - i) < 0)
                    continue;
                n += !pass;
                if (pass && lode_bpe_add(b, (struct lode_str){s.data, i},
                                         (struct lode_str){s.data + i, s.len - i},
                                         id) == LODE_ERR_LIMIT)
                    return lode_fail(l->err, LODE_ERR_INTERNAL, "model", "the merges are too many");
            }
        }
        if (n > VOCAB_MAX)
            return invalid(l, "model.vocab", "its pieces can be made in too many ways");
    }
    return 0;
}

static int32_t unk_id(const struct loader *l, const struct lode_json *model) {
    const struct lode_str unk = lode_json_str(lode_json_get(model, "unk_token"));
    return unk.data ? lode_vocab_find(&l->t->vocab, unk.data, unk.len) : -1;
}

static int read_bpe(struct loader *l, const struct lode_json *model) {
    struct lode_bpe *b = &l->t->bpe;
    const struct lode_json *prefix = lode_json_get(model, "continuing_subword_prefix");
    const struct lode_json *suffix = lode_json_get(model, "end_of_word_suffix");
    l->t->kind = "bpe";
    l->t->model = LODE_TOK_BPE;
    double dropout;
    if (lode_json_real(lode_json_get(model, "dropout"), &dropout) && dropout != 0)
        return invalid(l, "model.dropout", "dropout makes ids a matter of chance; not supported");
    lode_bpe_init(b, l->byte_level ? LODE_BPE_BYTES : LODE_BPE_CHARS, &l->t->vocab);
    LODE_TRY(copy(l, prefix, &b->prefix));
    LODE_TRY(copy(l, suffix, &b->suffix));
    if (b->prefix.len > 16 || b->suffix.len > 16 ||
        (l->byte_level && (b->prefix.len || b->suffix.len)))
        return invalid(l, "model", "this subword prefix or suffix is not supported");
    b->unk = unk_id(l, model);
    b->fuse_unk = lode_json_bool(model, "fuse_unk", false);
    b->byte_fallback = lode_json_bool(model, "byte_fallback", false);
    b->ignore_merges = lode_json_bool(model, "ignore_merges", false);
    return l->by_rank ? add_ranks(l) : read_merges(l, lode_json_get(model, "merges"));
}

static int read_unigram(struct loader *l, const struct lode_json *model) {
    int64_t unk;
    const bool has_unk =
        lode_json_int(lode_json_get(model, "unk_id"), 0, (int64_t)l->t->vocab.n - 1, &unk);
    if (l->byte_level)
        return invalid(l, "pre_tokenizer", "ByteLevel with a Unigram model is not supported");
    if (!l->t->vocab.scores)
        return invalid(l, "model.vocab", "a Unigram model needs a list of [piece, score]");
    l->t->kind = "unigram";
    l->t->model = LODE_TOK_UNIGRAM;
    return lode_unigram_init(&l->t->unigram, &l->t->vocab, has_unk ? (int32_t)unk : -1,
                             lode_json_bool(model, "byte_fallback", false), true, l->err);
}

static int read_wordpiece(struct loader *l, const struct lode_json *model) {
    struct lode_wordpiece *w = &l->t->wordpiece;
    const struct lode_json *max = lode_json_get(model, "max_input_chars_per_word");
    int64_t chars = 100;
    if (l->byte_level)
        return invalid(l, "pre_tokenizer", "ByteLevel with a WordPiece model is not supported");
    if (max && !lode_json_int(max, 0, LODE_WORDPIECE_MAX_CHARS, &chars))
        return invalid(l, "model.max_input_chars_per_word", "out of range, 0 to 1000");
    l->t->kind = "wordpiece";
    l->t->model = LODE_TOK_WORDPIECE;
    *w = (struct lode_wordpiece){.vocab = &l->t->vocab,
                                 .prefix = LODE_STR("##"),
                                 .max_chars = (uint32_t)chars,
                                 .unk = unk_id(l, model)};
    const struct lode_json *prefix = lode_json_get(model, "continuing_subword_prefix");
    if (lode_json_is(prefix, LODE_JSON_STRING))
        LODE_TRY(copy(l, prefix, &w->prefix));
    if (w->prefix.len > LODE_WORDPIECE_MAX_PREFIX)
        return invalid(l, "model.continuing_subword_prefix", "longer than 32 bytes");
    return 0;
}

static int read_model(struct loader *l, const struct lode_json *model) {
    struct lode_str type = lode_json_str(lode_json_get(model, "type"));
    if (!type.data) /* old files leave it to the reader */
        type = lode_json_get(model, "merges") ? LODE_STR("BPE")
               : lode_json_is(lode_json_get(model, "vocab"), LODE_JSON_ARRAY)
                   ? LODE_STR("Unigram")
                   : LODE_STR("WordPiece");
    if (lode_str_eqz(type, "BPE"))
        return read_bpe(l, model);
    if (lode_str_eqz(type, "Unigram"))
        return read_unigram(l, model);
    if (lode_str_eqz(type, "WordPiece"))
        return read_wordpiece(l, model);
    return unknown(l, "model.type", type);
}

static int load(struct loader *l, const struct lode_json *root, struct lode_str config,
                struct lode_str generation) {
    struct lode_tokenizer *t = l->t;
    const struct lode_json *model = lode_json_get(root, "model");
    const struct lode_json *added = lode_json_get(root, "added_tokens");
    const struct lode_json *decoder = lode_json_get(root, "decoder");
    const struct lode_json *o;
    if (!lode_json_is(model, LODE_JSON_OBJECT))
        return invalid(l, "tokenizer.json", "has no \"model\" object");
    if ((o = lode_json_get(root, "normalizer")))
        LODE_TRY(read_norm(l, o, 0));
    if ((o = lode_json_get(root, "pre_tokenizer")))
        LODE_TRY(read_pre(l, o, 0));
    LODE_TRY(read_vocab(l, lode_json_get(model, "vocab"), added));
    LODE_TRY(read_model(l, model));
    LODE_TRY(read_added(l, added));
    if ((o = lode_json_get(root, "post_processor")))
        LODE_TRY(read_post(l, o, 0));
    if (decoder && !lode_json_is(decoder, LODE_JSON_NULL))
        LODE_TRY(read_decoder(l, decoder, 0));
    else
        LODE_TRY(lode_tok_add_decode(t, (struct lode_decode_step){.op = LODE_DECODE_JOIN}, l->err));
    /* add_bos_token and the like are in the post-processor already */
    struct lode_tok_adds adds;
    return lode_tok_read_config(t, config, generation, &adds, l->err);
}

int lode_tokenizer_from_json(struct lode_tokenizer **out, struct lode_str json,
                             struct lode_str config, struct lode_str generation,
                             struct lode_error *err) {
    return lode_tok_load_json(out, json, config, generation, false, err);
}

int lode_tok_load_json(struct lode_tokenizer **out, struct lode_str json, struct lode_str config,
                       struct lode_str generation, bool by_rank, struct lode_error *err) {
    struct lode_json_doc doc;
    *out = NULL;
    LODE_TRY(lode_json_parse(&doc, json, "tokenizer.json", err));
    struct loader l = {.t = lode_tok_new(), .by_rank = by_rank, .err = err};
    int rc = l.t ? load(&l, doc.nodes, config, generation) : lode_fail_nomem(err, "a tokenizer");
    lode_json_free(&doc);
    if (l.t) { /* the steps move in even when something failed, to be freed in one place */
        l.t->norm.steps = lode_arena_alloc(&l.t->arena, l.n_norms, sizeof *l.norms);
        if (l.t->norm.steps) {
            memcpy(l.t->norm.steps, l.norms, l.n_norms * sizeof *l.norms);
            l.t->norm.n = l.n_norms;
        } else {
            for (uint32_t i = 0; i < l.n_norms; i++)
                lode_regex_free(l.norms[i].regex);
            rc = rc < 0 ? rc : lode_fail_nomem(err, "a tokenizer");
        }
    }
    if (rc == 0)
        rc = lode_tok_finish(l.t, err);
    if (rc < 0) {
        lode_tokenizer_free(l.t);
        return rc;
    }
    *out = l.t;
    return 0;
}
