/* load_gguf.c - tokenizers from GGUF metadata, tokenizer.ggml.* (TOK-09). */
#include "text/pre_table.h"
#include "text/tokenizer.h"

#include "base/alloc.h"
#include "format/gguf.h"

#include <math.h>

#define KEY(name) "tokenizer.ggml." name

enum { VOCAB_MAX = 1 << 24 };

static int32_t id_of(const struct lode_gguf *g, const struct lode_tokenizer *t, const char *key,
                     int32_t otherwise) {
    uint32_t id;
    if (!lode_gguf_u32(g, key, &id))
        return otherwise >= 0 && (uint32_t)otherwise < t->vocab.n ? otherwise : -1;
    return id < t->vocab.n ? (int32_t)id : -1;
}

static bool flag_of(const struct lode_gguf *g, const char *key, bool otherwise) {
    lode_gguf_bool(g, key, &otherwise);
    return otherwise;
}

/* Pieces, kinds and scores.  The text of all pieces is one block. */
static int read_vocab(struct lode_tokenizer *t, const struct lode_gguf *g, bool scored,
                      struct lode_error *err) {
    const struct lode_gguf_array *tokens, *kinds = NULL, *scores = NULL;
    if (!lode_gguf_array(g, KEY("tokens"), &tokens) || tokens->type != LODE_GGUF_STR)
        return lode_gguf_fail_key(g, KEY("tokens"), "an array of strings", err);
    if (tokens->n == 0 || tokens->n > VOCAB_MAX)
        return lode_fail(err, LODE_ERR_FORMAT, KEY("tokens"), "%zu tokens; 1 to %d expected",
                         tokens->n, VOCAB_MAX);
    const bool has_kinds = lode_gguf_array(g, KEY("token_type"), &kinds);
    const bool has_scores = scored && lode_gguf_array(g, KEY("scores"), &scores);
    if ((has_kinds && kinds->n < tokens->n) || (has_scores && scores->n < tokens->n))
        return lode_fail(err, LODE_ERR_FORMAT,
                         has_kinds && kinds->n < tokens->n ? KEY("token_type") : KEY("scores"),
                         "fewer elements than the %zu tokens", tokens->n);
    if (lode_vocab_init(&t->vocab, &t->arena, (uint32_t)tokens->n, scored) < 0)
        return lode_fail_nomem(err, "the vocabulary");
    size_t size = 0;
    for (size_t i = 0; i < tokens->n; i++)
        size += tokens->strs[i].len;
    char *text = lode_arena_alloc(&t->arena, size + 1, 1);
    if (!text)
        return lode_fail_nomem(err, "the vocabulary");
    for (size_t i = 0; i < tokens->n; i++) {
        const struct lode_str s = tokens->strs[i];
        const int64_t kind = has_kinds ? lode_gguf_array_i64(kinds, i) : LODE_PIECE_NORMAL;
        memcpy(text, s.len ? s.data : "", s.len);
        t->vocab.pieces[i] = (struct lode_str){text, s.len};
        text += s.len;
        t->vocab.kinds[i] = kind >= LODE_PIECE_NORMAL && kind <= LODE_PIECE_BYTE
                                ? (uint8_t)kind
                                : LODE_PIECE_NORMAL;
        t->vocab.special[i] = kind == LODE_PIECE_CONTROL || kind == LODE_PIECE_UNKNOWN;
        if (has_scores) {
            const double score = lode_gguf_array_f64(scores, i);
            if (!isfinite(score))
                return lode_fail(err, LODE_ERR_FORMAT, KEY("scores"), "score %zu is not a number",
                                 i);
            t->vocab.scores[i] = (float)score;
        }
    }
    return 0;
}

static void index_all(struct lode_tokenizer *t) {
    for (uint32_t i = 0; i < t->vocab.n; i++)
        lode_vocab_index(&t->vocab, i);
}

/* Control and unknown tokens are found on request, user-defined ones always. */
static int read_added(struct lode_tokenizer *t, bool unknown, struct lode_error *err) {
    uint32_t n = 0;
    for (uint32_t pass = 0; pass < 2; pass++) {
        n = 0;
        for (uint32_t i = 0; i < t->vocab.n; i++) {
            const uint8_t kind = t->vocab.kinds[i];
            if (kind != LODE_PIECE_CONTROL && kind != LODE_PIECE_USER &&
                !(unknown && kind == LODE_PIECE_UNKNOWN))
                continue;
            if (t->vocab.pieces[i].len == 0 || t->vocab.pieces[i].len > LODE_TRIE_MAX_LEN)
                continue;
            if (pass)
                t->added.tokens[n] = (struct lode_added_token){
                    .text = t->vocab.pieces[i], .id = (int32_t)i, .special = t->vocab.special[i]};
            n++;
        }
        if (!pass && !(t->added.tokens = lode_arena_alloc(&t->arena, n, sizeof *t->added.tokens)))
            return lode_fail_nomem(err, "special tokens");
    }
    t->added.n = n;
    return 0;
}

/* What GGUF names as ends, and what is put around a text. */
static void read_ends(struct lode_tokenizer *t, const struct lode_gguf *g, int32_t bos, int32_t eos,
                      bool add_bos, bool add_eos, bool add_sep) {
    t->bos = id_of(g, t, KEY("bos_token_id"), bos);
    t->eos = id_of(g, t, KEY("eos_token_id"), eos);
    int32_t sep = id_of(g, t, KEY("seperator_token_id"), -1); /* sic */
    if (sep < 0)
        sep = id_of(g, t, KEY("separator_token_id"), t->eos);
    lode_tok_add_end(t, t->eos);
    lode_tok_add_end(t, id_of(g, t, KEY("eot_token_id"), -1));
    lode_tok_add_end(t, id_of(g, t, KEY("eom_token_id"), -1));
    if (flag_of(g, KEY("add_bos_token"), add_bos) && t->bos >= 0)
        t->before[t->n_before++] = t->bos;
    if (flag_of(g, KEY("add_sep_token"), add_sep) && sep >= 0)
        t->after[t->n_after++] = sep;
    else if (flag_of(g, KEY("add_eos_token"), add_eos) && t->eos >= 0)
        t->after[t->n_after++] = t->eos;
}

static int add_norm(struct lode_tokenizer *t, struct lode_norm_step step, struct lode_error *err) {
    struct lode_norm_step *s = LODE_ARENA_NEW(&t->arena, struct lode_norm_step);
    if (!s)
        return lode_fail_nomem(err, "a normaliser");
    *s = step;
    t->norm = (struct lode_norm){s, 1};
    return 0;
}

/* A merge is two pieces with a space between; the first may be a space itself. */
static int read_merges(struct lode_tokenizer *t, const struct lode_gguf *g,
                       struct lode_error *err) {
    const struct lode_gguf_array *merges;
    if (!lode_gguf_array(g, KEY("merges"), &merges) || merges->type != LODE_GGUF_STR)
        return lode_gguf_fail_key(g, KEY("merges"), "an array of strings", err);
    if (merges->n > VOCAB_MAX || lode_bpe_reserve(&t->bpe, (uint32_t)merges->n) < 0)
        return lode_fail_nomem(err, "merges");
    for (size_t i = 0; i < merges->n; i++) {
        const struct lode_str m = merges->strs[i];
        const char *space = m.len > 2 ? memchr(m.data + 1, ' ', m.len - 2) : NULL;
        if (!space)
            return lode_fail(err, LODE_ERR_FORMAT, KEY("merges"), "merge %zu is not two pieces", i);
        const struct lode_str left = {m.data, (size_t)(space - m.data)};
        const struct lode_str right = {space + 1, m.len - left.len - 1};
        /* merges of pieces that the vocabulary lacks never apply: llama.cpp keeps them too */
        if (lode_bpe_add(&t->bpe, left, right, (uint32_t)i) == LODE_ERR_LIMIT)
            return lode_fail(err, LODE_ERR_INTERNAL, KEY("merges"), "the table of merges is full");
    }
    return 0;
}

/* Files from before tokenizer.ggml.pre: families that can be told by their special tokens (the
 * fallback for Llama 3 of TOK-09); "default" for the rest, as in llama.cpp. */
static struct lode_str guess_pre(const struct lode_tokenizer *t) {
    static const char *const marks[][2] = {
        {"<|begin_of_text|>", "llama-bpe"},
        {"<|im_start|>", "qwen2"},
        {"<fim_prefix>", "starcoder"},
        {"<\xef\xbd\x9c"
         "begin\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
         "deepseek-llm"},
    };
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (lode_tokenizer_find(t, marks[i][0]) >= 0)
            return lode_str(marks[i][1]);
    return LODE_STR("default");
}

static int load_bpe(struct lode_tokenizer *t, const struct lode_gguf *g, struct lode_str pre,
                    struct lode_error *err) {
    t->kind = "bpe";
    t->model = LODE_TOK_BPE;
    LODE_TRY(read_vocab(t, g, false, err));
    index_all(t);
    if (!pre.data)
        pre = guess_pre(t);
    const struct lode_pre_entry *entry = lode_pre_find(pre);
    if (!entry)
        return lode_fail(
            err, LODE_ERR_UNSUPPORTED, KEY("pre"),
            "unknown pre-tokenizer \"%.*s\"; its regular expression is not in the file",
            (int)(pre.len < 64 ? pre.len : 64), pre.data);
    const bool chars = entry->flags & LODE_PRE_CHARS;
    lode_bpe_init(&t->bpe, chars ? LODE_BPE_CHARS : LODE_BPE_BYTES, &t->vocab);
    LODE_TRY(read_merges(t, g, err));
    t->bpe.ignore_merges = entry->flags & LODE_PRE_IGNORE_MERGES;
    LODE_TRY(read_added(t, false, err));
    for (size_t i = 0; i < 5 && entry->patterns[i]; i++)
        LODE_TRY(
            lode_pre_add_pattern(t, lode_str(entry->patterns[i]), LODE_SPLIT_ISOLATED, false, err));
    read_ends(t, g, -1, -1, entry->flags & LODE_PRE_ADD_BOS, false,
              entry->flags & LODE_PRE_ADD_SEP);
    if (entry->flags & LODE_PRE_NFC)
        LODE_TRY(add_norm(t, (struct lode_norm_step){.op = LODE_NORM_FORM, .form = LODE_NFC}, err));
    if (!chars)
        return lode_tok_add_decode(t, (struct lode_decode_step){.op = LODE_DECODE_BYTES}, err);
    t->bpe.byte_fallback = t->bpe.fuse_unk = true;
    t->bpe.unk = id_of(g, t, KEY("unknown_token_id"), -1);
    LODE_TRY(add_norm(t,
                      (struct lode_norm_step){.op = LODE_NORM_REPLACE,
                                              .from = LODE_STR(" "),
                                              .to = LODE_STR(LODE_TOK_META)},
                      err));
    LODE_TRY(lode_tok_add_decode(t,
                                 (struct lode_decode_step){.op = LODE_DECODE_REPLACE,
                                                           .from = LODE_STR(LODE_TOK_META),
                                                           .to = LODE_STR(" ")},
                                 err));
    LODE_TRY(
        lode_tok_add_decode(t, (struct lode_decode_step){.op = LODE_DECODE_BYTE_FALLBACK}, err));
    return lode_tok_add_decode(t, (struct lode_decode_step){.op = LODE_DECODE_FUSE}, err);
}

/* sentencepiece, both models: "llama" joins by score, "t5" is unigram. */
static int load_spm(struct lode_tokenizer *t, const struct lode_gguf *g, bool unigram,
                    struct lode_error *err) {
    t->kind = unigram ? "unigram" : "spm";
    LODE_TRY(read_vocab(t, g, true, err));
    index_all(t);
    LODE_TRY(read_added(t, true, err));
    read_ends(t, g, unigram ? -1 : 1, unigram ? 1 : 2, !unigram, unigram, false);
    const int32_t unk = id_of(g, t, KEY("unknown_token_id"), unigram ? 2 : 0);
    struct lode_norm_step norm = {.op = LODE_NORM_SPM, .escape = true};
    norm.add_prefix = flag_of(g, KEY("add_space_prefix"), true);
    norm.remove_extra = flag_of(g, KEY("remove_extra_whitespaces"), false);
    const struct lode_gguf_array *map;
    if (lode_gguf_array(g, KEY("precompiled_charsmap"), &map) &&
        (map->type == LODE_GGUF_U8 || map->type == LODE_GGUF_I8))
        LODE_TRY(
            lode_charsmap_init(&norm.map, &t->arena, (struct lode_str){map->raw, map->n}, err));
    LODE_TRY(add_norm(t, norm, err));
    if (unigram) {
        t->model = LODE_TOK_UNIGRAM;
        LODE_TRY(lode_unigram_init(&t->unigram, &t->vocab, unk, true, false, err));
    } else {
        t->model = LODE_TOK_BPE;
        lode_bpe_init(&t->bpe, LODE_BPE_SCORES, &t->vocab);
        t->bpe.unk = unk;
        t->bpe.fuse_unk = true;
        t->bpe.byte_fallback = lode_vocab_bytes(&t->vocab, t->bpe.byte_id);
    }
    return lode_tok_add_decode(t,
                               (struct lode_decode_step){.op = LODE_DECODE_SPM,
                                                         .drop_space = norm.add_prefix,
                                                         .drop_spaces = norm.remove_extra},
                               err);
}

/* GGUF marks the pieces that begin a word with U+2581 and leaves the others bare; BERT's own
 * vocabulary is the other way round, and everything here follows that. */
static int respell_wordpiece(struct lode_tokenizer *t, struct lode_error *err) {
    for (uint32_t i = 0; i < t->vocab.n; i++) {
        struct lode_str *p = &t->vocab.pieces[i];
        if (t->vocab.kinds[i] != LODE_PIECE_NORMAL)
            continue;
        /* the mark alone cannot begin a word: it is the piece for the mark itself inside one */
        if (lode_str_starts(*p, LODE_STR(LODE_TOK_META)) && p->len > 3) {
            p->data += 3;
            p->len -= 3;
        } else {
            char *s = lode_arena_alloc(&t->arena, p->len + 2, 1);
            if (!s)
                return lode_fail_nomem(err, "the vocabulary");
            memcpy(s, "##", 2);
            memcpy(s + 2, p->data, p->len);
            *p = (struct lode_str){s, p->len + 2};
        }
    }
    return 0;
}

static int load_wordpiece(struct lode_tokenizer *t, const struct lode_gguf *g,
                          struct lode_error *err) {
    t->kind = "wordpiece";
    t->model = LODE_TOK_WORDPIECE;
    LODE_TRY(read_vocab(t, g, false, err));
    LODE_TRY(respell_wordpiece(t, err));
    index_all(t);
    LODE_TRY(read_added(t, true, err));
    read_ends(t, g, 101, -1, true, false, true);
    struct lode_norm_step norm = {.op = LODE_NORM_BERT, .clean = true, .cjk = true};
    norm.lower = flag_of(g, KEY("normalizer.lowercase"), true);
    norm.strip_accents = flag_of(g, KEY("normalizer.strip_accents"), norm.lower);
    LODE_TRY(add_norm(t, norm, err));
    LODE_TRY(lode_pre_add_pattern(t, LODE_STR("\\s"), LODE_SPLIT_REMOVED, false, err));
    LODE_TRY(
        lode_pre_add_pattern(t, LODE_STR(LODE_TOK_PUNCT_REGEX), LODE_SPLIT_ISOLATED, false, err));
    t->wordpiece = (struct lode_wordpiece){.vocab = &t->vocab,
                                           .prefix = LODE_STR("##"),
                                           .max_chars = 100,
                                           .unk = id_of(g, t, KEY("unknown_token_id"), 100)};
    return lode_tok_add_decode(t,
                               (struct lode_decode_step){.op = LODE_DECODE_WORDPIECE,
                                                         .from = LODE_STR("##"),
                                                         .cleanup = true},
                               err);
}

int lode_tokenizer_from_gguf(struct lode_tokenizer **out, const struct lode_gguf *g,
                             struct lode_error *err) {
    *out = NULL;
    struct lode_str model, pre = {0};
    if (!lode_gguf_str(g, KEY("model"), &model))
        return lode_gguf_fail_key(g, KEY("model"), "the kind of tokenizer", err);
    lode_gguf_str(g, KEY("pre"), &pre);
    struct lode_tokenizer *t = lode_tok_new();
    int rc;
    if (!t)
        rc = lode_fail_nomem(err, "a tokenizer");
    else if (lode_str_eqz(model, "gpt2"))
        rc = load_bpe(t, g, pre, err);
    else if (lode_str_eqz(model, "gemma4"))
        rc = load_bpe(t, g, LODE_STR("gemma4"), err);
    else if (lode_str_eqz(model, "llama") || lode_str_eqz(model, "t5"))
        rc = load_spm(t, g, lode_str_eqz(model, "t5"), err);
    else if (lode_str_eqz(model, "bert"))
        rc = load_wordpiece(t, g, err);
    else
        rc = lode_fail(err, LODE_ERR_UNSUPPORTED, KEY("model"),
                       "tokenizer \"%.*s\" is not one of gpt2, llama, t5, bert, gemma4",
                       (int)(model.len < 64 ? model.len : 64), model.data);
    if (rc == 0)
        rc = lode_tok_finish(t, err);
    if (rc < 0) {
        lode_tokenizer_free(t);
        return rc;
    }
    *out = t;
    return 0;
}
