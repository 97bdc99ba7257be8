/* load_json.c - tokenizer.json, the tokenizers library's format.
 *
 * Every component that published models have is translated into the steps of tok.h; one that is
 * not known is refused by name, because leaving it out would give other ids without a word.
 */
#include "text/load_json.h"

#include "base/alloc.h"
#include "text/pre_table.h"

#include <inttypes.h>

enum { VOCAB_MAX = 1 << 24 };

int lode_tok_json_unknown(struct lode_tok_json *l, const char *where, struct lode_str type) {
    return lode_fail(l->err, LODE_ERR_UNSUPPORTED, where, "\"%.*s\" is not supported",
                     (int)(type.len < 64 ? type.len : 64), type.data ? type.data : "");
}

int lode_tok_json_invalid(struct lode_tok_json *l, const char *where, const char *what) {
    return lode_fail(l->err, LODE_ERR_FORMAT, where, "%s", what);
}

int lode_tok_json_copy(struct lode_tok_json *l, const struct lode_json *v, struct lode_str *out) {
    return lode_tok_copy(l->t, lode_json_str(v), out, l->err);
}

/* -- vocabulary and models ------------------------------------------------------------- */

/* Ids may lie beyond the number of pieces (added tokens, gaps): how many there are in all. */
static int count_ids(struct lode_tok_json *l, const struct lode_json *vocab,
                     const struct lode_json *added, uint32_t *n) {
    int64_t most = (int64_t)lode_json_count(vocab) - 1, id;
    if (lode_json_count(vocab) == 0)
        return lode_tok_json_invalid(l, "model.vocab", "is missing or empty");
    for (const struct lode_json *c = lode_json_first(vocab); c && c->key;
         c = lode_json_next(vocab, c)) {
        if (!lode_json_int(c, 0, VOCAB_MAX, &id))
            return lode_tok_json_invalid(l, "model.vocab",
                                         "an id is not a whole number from 0 to 16 million");
        most = id > most ? id : most;
    }
    for (const struct lode_json *c = lode_json_first(added); c; c = lode_json_next(added, c)) {
        if (!lode_json_int(lode_json_get(c, "id"), 0, VOCAB_MAX, &id))
            return lode_tok_json_invalid(l, "added_tokens",
                                         "an id is not a whole number from 0 to 16 million");
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
static int read_vocab(struct lode_tok_json *l, const struct lode_json *vocab,
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
                return lode_tok_json_invalid(l, "model.vocab", "an element is not [piece, score]");
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
static int read_added(struct lode_tok_json *l, const struct lode_json *added) {
    struct lode_tokenizer *t = l->t;
    t->added.tokens =
        lode_arena_alloc_zero(&t->arena, lode_json_count(added), sizeof *t->added.tokens);
    if (!t->added.tokens)
        return lode_fail_nomem(l->err, "added tokens");
    for (const struct lode_json *c = lode_json_first(added); c; c = lode_json_next(added, c)) {
        struct lode_added_token *token = &t->added.tokens[t->added.n++];
        int64_t id = 0;
        lode_json_int(lode_json_get(c, "id"), 0, VOCAB_MAX, &id);
        LODE_TRY(lode_tok_json_copy(l, lode_json_get(c, "content"), &token->text));
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

static int read_merges(struct lode_tok_json *l, const struct lode_json *merges) {
    struct lode_bpe *b = &l->t->bpe;
    uint32_t rank = 0;
    if (!lode_json_is(merges, LODE_JSON_ARRAY) || lode_json_count(merges) > VOCAB_MAX)
        return lode_tok_json_invalid(l, "model.merges", "is missing or too long");
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
static int add_ranks(struct lode_tok_json *l) {
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
                if (pass &&
                    lode_bpe_add(b, (struct lode_str){s.data, i},
                                 (struct lode_str){s.data + i, s.len - i}, id) == LODE_ERR_LIMIT)
                    return lode_fail(l->err, LODE_ERR_INTERNAL, "model", "the merges are too many");
            }
        }
        if (n > VOCAB_MAX)
            return lode_tok_json_invalid(l, "model.vocab",
                                         "its pieces can be made in too many ways");
    }
    return 0;
}

static int32_t unk_id(const struct lode_tok_json *l, const struct lode_json *model) {
    const struct lode_str unk = lode_json_str(lode_json_get(model, "unk_token"));
    return unk.data ? lode_vocab_find(&l->t->vocab, unk.data, unk.len) : -1;
}

static int read_bpe(struct lode_tok_json *l, const struct lode_json *model) {
    struct lode_bpe *b = &l->t->bpe;
    const struct lode_json *prefix = lode_json_get(model, "continuing_subword_prefix");
    const struct lode_json *suffix = lode_json_get(model, "end_of_word_suffix");
    l->t->kind = "bpe";
    l->t->model = LODE_TOK_BPE;
    double dropout;
    if (lode_json_real(lode_json_get(model, "dropout"), &dropout) && dropout != 0)
        return lode_tok_json_invalid(l, "model.dropout",
                                     "dropout makes ids a matter of chance; not supported");
    lode_bpe_init(b, l->byte_level ? LODE_BPE_BYTES : LODE_BPE_CHARS, &l->t->vocab);
    LODE_TRY(lode_tok_json_copy(l, prefix, &b->prefix));
    LODE_TRY(lode_tok_json_copy(l, suffix, &b->suffix));
    if (b->prefix.len > 16 || b->suffix.len > 16 ||
        (l->byte_level && (b->prefix.len || b->suffix.len)))
        return lode_tok_json_invalid(l, "model", "this subword prefix or suffix is not supported");
    b->unk = unk_id(l, model);
    b->fuse_unk = lode_json_bool(model, "fuse_unk", false);
    b->byte_fallback = lode_json_bool(model, "byte_fallback", false);
    b->ignore_merges = lode_json_bool(model, "ignore_merges", false);
    return l->by_rank ? add_ranks(l) : read_merges(l, lode_json_get(model, "merges"));
}

static int read_unigram(struct lode_tok_json *l, const struct lode_json *model) {
    int64_t unk;
    const bool has_unk =
        lode_json_int(lode_json_get(model, "unk_id"), 0, (int64_t)l->t->vocab.n - 1, &unk);
    if (l->byte_level)
        return lode_tok_json_invalid(l, "pre_tokenizer",
                                     "ByteLevel with a Unigram model is not supported");
    if (!l->t->vocab.scores)
        return lode_tok_json_invalid(l, "model.vocab",
                                     "a Unigram model needs a list of [piece, score]");
    l->t->kind = "unigram";
    l->t->model = LODE_TOK_UNIGRAM;
    return lode_unigram_init(&l->t->unigram, &l->t->vocab, has_unk ? (int32_t)unk : -1,
                             lode_json_bool(model, "byte_fallback", false), true, l->err);
}

static int read_wordpiece(struct lode_tok_json *l, const struct lode_json *model) {
    struct lode_wordpiece *w = &l->t->wordpiece;
    const struct lode_json *max = lode_json_get(model, "max_input_chars_per_word");
    int64_t chars = 100;
    if (l->byte_level)
        return lode_tok_json_invalid(l, "pre_tokenizer",
                                     "ByteLevel with a WordPiece model is not supported");
    if (max && !lode_json_int(max, 0, LODE_WORDPIECE_MAX_CHARS, &chars))
        return lode_tok_json_invalid(l, "model.max_input_chars_per_word",
                                     "out of range, 0 to 1000");
    l->t->kind = "wordpiece";
    l->t->model = LODE_TOK_WORDPIECE;
    *w = (struct lode_wordpiece){.vocab = &l->t->vocab,
                                 .prefix = LODE_STR("##"),
                                 .max_chars = (uint32_t)chars,
                                 .unk = unk_id(l, model)};
    const struct lode_json *prefix = lode_json_get(model, "continuing_subword_prefix");
    if (lode_json_is(prefix, LODE_JSON_STRING))
        LODE_TRY(lode_tok_json_copy(l, prefix, &w->prefix));
    if (w->prefix.len > LODE_WORDPIECE_MAX_PREFIX)
        return lode_tok_json_invalid(l, "model.continuing_subword_prefix", "longer than 32 bytes");
    return 0;
}

static int read_model(struct lode_tok_json *l, const struct lode_json *model) {
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
    return lode_tok_json_unknown(l, "model.type", type);
}

static int load(struct lode_tok_json *l, const struct lode_json *root, struct lode_str config,
                struct lode_str generation) {
    struct lode_tokenizer *t = l->t;
    const struct lode_json *model = lode_json_get(root, "model");
    const struct lode_json *added = lode_json_get(root, "added_tokens");
    const struct lode_json *decoder = lode_json_get(root, "decoder");
    const struct lode_json *o;
    if (!lode_json_is(model, LODE_JSON_OBJECT))
        return lode_tok_json_invalid(l, "tokenizer.json", "has no \"model\" object");
    if ((o = lode_json_get(root, "normalizer")))
        LODE_TRY(lode_tok_json_norm(l, o, 0));
    if ((o = lode_json_get(root, "pre_tokenizer")))
        LODE_TRY(lode_tok_json_pre(l, o, 0));
    LODE_TRY(read_vocab(l, lode_json_get(model, "vocab"), added));
    LODE_TRY(read_model(l, model));
    LODE_TRY(read_added(l, added));
    if ((o = lode_json_get(root, "post_processor")))
        LODE_TRY(lode_tok_json_post(l, o, 0));
    if (decoder && !lode_json_is(decoder, LODE_JSON_NULL))
        LODE_TRY(lode_tok_json_decoder(l, decoder, 0));
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
    struct lode_tok_json l = {.t = lode_tok_new(), .by_rank = by_rank, .err = err};
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
