#include "text/tok.h"

#include "base/alloc.h"
#include "base/utf8.h"

/* -- building -------------------------------------------------------------------------- */

struct lode_tokenizer *lode_tok_new(void) {
    struct lode_tokenizer *t = LODE_NEW(struct lode_tokenizer);
    if (t) {
        t->bos = t->eos = t->pad = -1;
        t->kind = "";
        t->decode.vocab = &t->vocab;
    }
    return t;
}

void lode_tokenizer_free(struct lode_tokenizer *t) {
    if (!t)
        return;
    lode_norm_deinit(&t->norm);
    lode_pre_deinit(&t->pre);
    lode_added_deinit(&t->added);
    lode_trie_free(&t->user);
    lode_bpe_deinit(&t->bpe);
    lode_unigram_deinit(&t->unigram);
    lode_vocab_deinit(&t->vocab);
    lode_arena_free(&t->arena);
    lode_free(t);
}

void lode_tok_add_end(struct lode_tokenizer *t, int32_t id) {
    if (id < 0 || (uint32_t)id >= t->vocab.n || t->n_ends == LODE_TOK_ENDS_MAX)
        return;
    for (uint32_t i = 0; i < t->n_ends; i++)
        if (t->ends[i] == id)
            return;
    t->ends[t->n_ends++] = id;
}

/* What models end a turn or a text with, in case their metadata names only one of several. */
static const char *const end_pieces[] = {
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|return|>",
    "<|call|>",
    "<|end|>",
    "<EOT>",
    "[EOT]",
    "[EOS]",
    "<turn|>",
    "<|tool_response>",
    "<end_of_utterance>",
    "[e~[",
    "<|user|>",
    "<|observation|>",
    "<|flush|>",
    "<|calls|>",
    "<\xef\xbd\x9c\x65nd\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>", /* \x65: an e that is no
                                                                             digit */
};

static bool is_special(const struct lode_tokenizer *t, const char *piece) {
    const int32_t id = lode_tokenizer_find(t, piece);
    return id >= 0 && t->vocab.special[id];
}

static void find_ends(struct lode_tokenizer *t) {
    /* gpt-oss ends a message, not the answer, with <|end|>; GLM names its roles, which end an
     * answer when the model writes them, like Phi does not */
    const bool harmony = is_special(t, "<|return|>") || is_special(t, "<|calls|>");
    const bool glm = is_special(t, "<|observation|>");
    lode_tok_add_end(t, t->eos);
    for (size_t i = 0; i < sizeof end_pieces / sizeof *end_pieces; i++) {
        const char *piece = end_pieces[i];
        if ((harmony && strcmp(piece, "<|end|>") == 0) || (!glm && strcmp(piece, "<|user|>") == 0))
            continue;
        if (is_special(t, piece))
            lode_tok_add_end(t, lode_tokenizer_find(t, piece));
    }
}

int lode_tok_finish(struct lode_tokenizer *t, struct lode_error *err) {
    LODE_TRY(lode_added_init(&t->added, &t->arena, &t->norm, err));
    /* as in the reference, they come back as what they became */
    for (uint32_t i = 0; i < t->added.n; i++)
        t->vocab.pieces[t->added.tokens[i].id] = t->added.tokens[i].normal;
    find_ends(t);
    return 0;
}

int lode_tok_add_pre(struct lode_tokenizer *t, struct lode_pre_step step, struct lode_error *err) {
    if (t->pre.n == LODE_PRE_MAX) {
        lode_regex_free(step.regex);
        return lode_fail(err, LODE_ERR_LIMIT, "pre_tokenizer", "more than %d steps", LODE_PRE_MAX);
    }
    t->pre.steps[t->pre.n++] = step;
    return 0;
}

int lode_tok_add_decode(struct lode_tokenizer *t, struct lode_decode_step step,
                        struct lode_error *err) {
    if (t->decode.n == LODE_DECODE_MAX)
        return lode_fail(err, LODE_ERR_LIMIT, "decoder", "more than %d steps", LODE_DECODE_MAX);
    t->decode.steps[t->decode.n++] = step;
    return 0;
}

/* -- encoding -------------------------------------------------------------------------- */

struct encoder {
    const struct lode_tokenizer *t;
    bool special; /* special tokens in the text become their ids */
    struct lode_ids out;
    struct lode_buf clean, normal[2];
    struct lode_pre_run pre;
    struct lode_bpe_run bpe;
    struct lode_unigram_run unigram;
    struct lode_error *err;
};

static int on_piece(void *ctx, struct lode_str piece) {
    struct encoder *e = ctx;
    switch (e->t->model) {
    case LODE_TOK_BPE:
        return lode_bpe_encode(&e->t->bpe, &e->bpe, piece, &e->out, e->err);
    case LODE_TOK_UNIGRAM:
        return lode_unigram_encode(&e->t->unigram, &e->unigram, piece, &e->out, e->err);
    case LODE_TOK_WORDPIECE:
        lode_wordpiece_encode(&e->t->wordpiece, piece, &e->out);
        return 0;
    }
    return LODE_ERR_INTERNAL;
}

static int on_token(void *ctx, const struct lode_added_token *token) {
    struct encoder *e = ctx;
    lode_ids_add(&e->out, token->id);
    return 0;
}

static int on_normal_gap(void *ctx, struct lode_str part, bool first) {
    struct encoder *e = ctx;
    return lode_pre_apply(&e->pre, part, first);
}

static int on_raw_gap(void *ctx, struct lode_str part, bool first) {
    struct encoder *e = ctx;
    struct lode_str normal;
    LODE_TRY(lode_norm_apply(&e->t->norm, part, e->normal, &normal, e->err));
    if (normal.len > LODE_TOK_TEXT_MAX)
        return lode_fail(e->err, LODE_ERR_LIMIT, "text", "more than %d bytes when normalised",
                         LODE_TOK_TEXT_MAX);
    const struct lode_added_sink sink = {on_normal_gap, on_token, e};
    return lode_added_split(&e->t->added, true, e->special, normal, first, &sink);
}

static int encode(struct encoder *e, struct lode_str text, bool extra) {
    const struct lode_tokenizer *t = e->t;
    if (!lode_utf8_valid(text.data, text.len)) {
        lode_utf8_lossy(&e->clean, text.data, text.len, true);
        if (e->clean.failed)
            return lode_fail_nomem(e->err, "a copy of the text");
        text = lode_buf_str(&e->clean);
    }
    LODE_TRY(lode_pre_run_init(&e->pre, &t->pre, e->err));
    e->pre.sink = on_piece;
    e->pre.ctx = e;
    for (uint32_t i = 0; extra && i < t->n_before; i++)
        lode_ids_add(&e->out, t->before[i]);
    const struct lode_added_sink sink = {on_raw_gap, on_token, e};
    LODE_TRY(lode_added_split(&t->added, false, e->special, text, true, &sink));
    for (uint32_t i = 0; extra && i < t->n_after; i++)
        lode_ids_add(&e->out, t->after[i]);
    return 0;
}

int64_t lode_tokenize(const struct lode_tokenizer *t, const char *text, size_t len, int flags,
                      int32_t *ids, size_t cap, struct lode_error *err) {
    if (len > LODE_TOK_TEXT_MAX)
        return lode_fail(err, LODE_ERR_LIMIT, "text",
                         "%zu bytes; at most %d can be tokenized at once", len, LODE_TOK_TEXT_MAX);
    struct encoder e = {
        .t = t, .special = flags & LODE_TOK_PARSE, .out = {ids, cap, 0}, .err = err};
    const int rc = encode(&e, (struct lode_str){len ? text : "", len}, flags & LODE_TOK_SPECIAL);
    lode_pre_run_deinit(&e.pre);
    lode_bpe_run_deinit(&e.bpe);
    lode_unigram_run_deinit(&e.unigram);
    lode_buf_free(&e.clean);
    lode_buf_free(&e.normal[0]);
    lode_buf_free(&e.normal[1]);
    return rc < 0 ? rc : (int64_t)e.out.n;
}

/* -- looking up ------------------------------------------------------------------------ */

int lode_token_info(const struct lode_tokenizer *t, int32_t id, struct lode_token_info *info) {
    if (id < 0 || (uint32_t)id >= t->vocab.n)
        return LODE_ERR_ARG;
    const struct lode_str piece = t->vocab.pieces[id];
    *info = (struct lode_token_info){piece.data ? piece.data : "", piece.len, t->vocab.special[id],
                                     t->vocab.kinds[id] == LODE_PIECE_BYTE};
    return 0;
}

uint32_t lode_tokenizer_size(const struct lode_tokenizer *t) {
    return t->vocab.n;
}
const char *lode_tokenizer_kind(const struct lode_tokenizer *t) {
    return t->kind;
}
int32_t lode_tokenizer_bos(const struct lode_tokenizer *t) {
    return t->bos;
}
int32_t lode_tokenizer_eos(const struct lode_tokenizer *t) {
    return t->eos;
}

bool lode_tokenizer_adds_bos(const struct lode_tokenizer *t) {
    return t->n_before > 0 && t->before[0] == t->bos && t->bos >= 0;
}

bool lode_tokenizer_is_end(const struct lode_tokenizer *t, int32_t id) {
    for (uint32_t i = 0; i < t->n_ends; i++)
        if (t->ends[i] == id)
            return true;
    return false;
}

int32_t lode_tokenizer_find(const struct lode_tokenizer *t, const char *piece) {
    const int32_t id = lode_vocab_find(&t->vocab, piece, strlen(piece));
    for (uint32_t i = 0; id < 0 && i < t->added.n; i++)
        if (t->added.tokens[i].normalized && lode_str_eqz(t->added.tokens[i].text, piece))
            return t->added.tokens[i].id;
    return id;
}
