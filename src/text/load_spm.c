/* load_spm.c - tokenizer.model: a sentencepiece ModelProto in protobuf's wire format.
 *
 *     ModelProto      1 pieces (message, repeated)   2 trainer_spec   3 normalizer_spec
 *     SentencePiece   1 piece (string)   2 score (float)   3 type (1 normal, 2 unknown, 3 control,
 *                     4 user-defined, 5 unused, 6 byte)
 *     TrainerSpec     3 model_type (1 unigram, 2 bpe, 3 word, 4 char)   24
 * treat_whitespace_as_suffix 35 byte_fallback   40 unk_id  41 bos_id  42 eos_id   44 unk_surface
 *     NormalizerSpec  2 precompiled_charsmap   3 add_dummy_prefix   4 remove_extra_whitespaces
 *                     5 escape_whitespaces
 */
#include "text/load.h"
#include "text/tokenizer.h"

#include "base/alloc.h"
#include "base/utf8.h"

#include <math.h>

enum { VOCAB_MAX = 1 << 24 };

/* One field of a message; one of another type than its number should have is none of those that are known. */
struct field {
    uint32_t number;
    bool sized;            /* length-delimited: a message or a string, */
    struct lode_str bytes; /* which this is */
    uint64_t value;        /* varint, or the bits of a fixed number */
};

struct reader {
    struct lode_str left;
    bool bad;
};

static uint64_t varint(struct reader *r) {
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (r->left.len == 0)
            break;
        const uint8_t b = (uint8_t)*r->left.data++;
        r->left.len--;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80))
            return v;
    }
    r->bad = true;
    return 0;
}

/* The next field; false at the end or where the bytes are no message (r->bad). */
static bool next(struct reader *r, struct field *f) {
    if (r->left.len == 0 || r->bad)
        return false;
    const uint64_t tag = varint(r);
    uint64_t size = 0;
    *f = (struct field){.number = (uint32_t)(tag >> 3)};
    switch (tag & 7) {
    case 0:
        f->value = varint(r);
        break;
    case 1:
        size = 8;
        break;
    case 2:
        size = varint(r);
        break;
    case 5:
        size = 4;
        break;
    default:
        r->bad = true;
    }
    if (tag >> 3 == 0 || tag >> 3 > UINT32_MAX || size > r->left.len)
        r->bad = true;
    if (r->bad)
        return false;
    f->sized = (tag & 7) == 2;
    if (f->sized)
        f->bytes = (struct lode_str){r->left.data, (size_t)size};
    else
        for (size_t i = 0; i < size; i++)
            f->value |= (uint64_t)(uint8_t)r->left.data[i] << (8 * i);
    r->left.data += size;
    r->left.len -= (size_t)size;
    return true;
}

struct spec {
    uint64_t model_type;
    int32_t unk, bos, eos;
    bool byte_fallback, suffix, add_prefix, remove_extra, escape;
    struct lode_str charsmap, unk_surface;
};

static int malformed(struct lode_error *err) {
    return lode_fail(err, LODE_ERR_FORMAT, "tokenizer.model",
                     "is neither JSON, nor GGUF, nor a whole sentencepiece model");
}

static int read_trainer(struct spec *s, struct lode_str bytes, struct lode_error *err) {
    struct reader r = {bytes, false};
    for (struct field f; next(&r, &f);) {
        switch (f.number) {
        case 3:
            s->model_type = f.value;
            break;
        case 24:
            s->suffix = f.value;
            break;
        case 35:
            s->byte_fallback = f.value;
            break;
        case 40:
            s->unk = (int32_t)f.value;
            break;
        case 41:
            s->bos = (int32_t)f.value;
            break;
        case 42:
            s->eos = (int32_t)f.value;
            break;
        case 44:
            if (f.sized)
                s->unk_surface = f.bytes;
            break;
        }
    }
    return r.bad || !lode_utf8_valid(s->unk_surface.data, s->unk_surface.len) ? malformed(err) : 0;
}

static int read_normalizer(struct spec *s, struct lode_str bytes, struct lode_error *err) {
    struct reader r = {bytes, false};
    for (struct field f; next(&r, &f);) {
        switch (f.number) {
        case 2:
            s->charsmap = f.bytes;
            break;
        case 3:
            s->add_prefix = f.value;
            break;
        case 4:
            s->remove_extra = f.value;
            break;
        case 5:
            s->escape = f.value;
            break;
        }
    }
    return r.bad ? malformed(err) : 0;
}

static int read_piece(struct lode_tokenizer *t, uint32_t id, struct lode_str bytes,
                      struct lode_error *err) {
    struct reader r = {bytes, false};
    struct lode_str text = {0};
    float score = 0;
    uint64_t kind = LODE_PIECE_NORMAL;
    for (struct field f; next(&r, &f);) {
        if (f.number == 1 && f.sized) {
            text = f.bytes;
        } else if (f.number == 2) {
            const uint32_t bits = (uint32_t)f.value;
            memcpy(&score, &bits, sizeof score);
        } else if (f.number == 3) {
            kind = f.value;
        }
    }
    if (r.bad || kind < LODE_PIECE_NORMAL || kind > LODE_PIECE_BYTE || !isfinite(score) || !lode_utf8_valid(text.data, text.len))
        return lode_fail(err, LODE_ERR_FORMAT, "tokenizer.model", "piece %u is damaged", id);
    char *copy = lode_arena_strndup(&t->arena, text.data ? text.data : "", text.len);
    if (!copy)
        return lode_fail_nomem(err, "the vocabulary");
    t->vocab.pieces[id] = (struct lode_str){copy, text.len};
    t->vocab.kinds[id] = (uint8_t)kind;
    t->vocab.special[id] = kind == LODE_PIECE_CONTROL;
    t->vocab.scores[id] = score;
    return 0;
}

static int read_model(struct lode_tokenizer *t, struct spec *s, struct lode_str model,
                      struct lode_error *err) {
    uint32_t n = 0, id = 0;
    struct reader r = {model, false};
    for (struct field f; next(&r, &f);)
        n += f.number == 1 && f.sized && n < VOCAB_MAX;
    if (r.bad || n == 0)
        return malformed(err);
    if (lode_vocab_init(&t->vocab, &t->arena, n, true) < 0)
        return lode_fail_nomem(err, "the vocabulary");
    r = (struct reader){model, false};
    for (struct field f; next(&r, &f);) {
        if (!f.sized)
            continue;
        if (f.number == 1 && id < n)
            LODE_TRY(read_piece(t, id++, f.bytes, err));
        else if (f.number == 2)
            LODE_TRY(read_trainer(s, f.bytes, err));
        else if (f.number == 3)
            LODE_TRY(read_normalizer(s, f.bytes, err));
    }
    for (id = 0; id < n; id++) {
        lode_vocab_index(&t->vocab, id);
        if (t->vocab.kinds[id] == LODE_PIECE_UNKNOWN)
            s->unk = (int32_t)id; /* as sentencepiece: the piece's kind decides, not unk_id */
    }
    return 0;
}

/* User-defined symbols: found before anything else, by normaliser and model. */
static int read_user(struct lode_tokenizer *t, struct lode_error *err) {
    struct lode_trie_item *items = lode_alloc(t->vocab.n, sizeof *items);
    if (!items)
        return lode_fail_nomem(err, "user-defined symbols");
    size_t n = 0;
    for (uint32_t id = 0; id < t->vocab.n; id++)
        if (t->vocab.kinds[id] == LODE_PIECE_USER && t->vocab.pieces[id].len)
            items[n++] = (struct lode_trie_item){t->vocab.pieces[id], (int32_t)id};
    const int rc = lode_trie_build(&t->user, items, n);
    lode_free(items);
    if (rc == LODE_ERR_LIMIT)
        return lode_fail(err, rc, "tokenizer.model", "a user-defined symbol has more than %d bytes",
                         LODE_TRIE_MAX_LEN);
    return rc < 0 ? lode_fail_nomem(err, "user-defined symbols") : 0;
}

static int32_t checked(const struct lode_tokenizer *t, int32_t id) {
    return id >= 0 && (uint32_t)id < t->vocab.n ? id : -1;
}

static int load(struct lode_tokenizer *t, struct lode_str model, struct lode_str config,
                struct lode_str generation, struct lode_error *err) {
    struct spec s = {.model_type = 1,
                     .bos = 1,
                     .eos = 2,
                     .add_prefix = true,
                     .remove_extra = true,
                     .escape = true,
                     .unk_surface = LODE_STR(" \xe2\x81\x87 ")};
    LODE_TRY(read_model(t, &s, model, err));
    if (s.model_type != 1 && s.model_type != 2)
        return lode_fail(err, LODE_ERR_UNSUPPORTED, "tokenizer.model",
                         "model type %llu (word or char); unigram and bpe are supported",
                         (unsigned long long)s.model_type);
    LODE_TRY(read_user(t, err));
    struct lode_norm_step *norm = LODE_ARENA_NEW(&t->arena, struct lode_norm_step);
    if (!norm)
        return lode_fail_nomem(err, "a normaliser");
    *norm = (struct lode_norm_step){.op = LODE_NORM_SPM,
                                    .add_prefix = s.add_prefix,
                                    .remove_extra = s.remove_extra,
                                    .escape = s.escape,
                                    .suffix = s.suffix,
                                    .user = &t->user};
    LODE_TRY(lode_charsmap_init(&norm->map, &t->arena, s.charsmap, err));
    t->norm = (struct lode_norm){norm, 1};
    if (s.model_type == 1) {
        t->kind = "unigram";
        t->model = LODE_TOK_UNIGRAM;
        LODE_TRY(lode_unigram_init(&t->unigram, &t->vocab, checked(t, s.unk), s.byte_fallback,
                                   false, err));
    } else {
        t->kind = "spm";
        t->model = LODE_TOK_BPE;
        lode_bpe_init(&t->bpe, LODE_BPE_SCORES, &t->vocab);
        t->bpe.user = &t->user;
        t->bpe.unk = checked(t, s.unk);
        t->bpe.fuse_unk = true;
        t->bpe.byte_fallback = s.byte_fallback && lode_vocab_bytes(&t->vocab, t->bpe.byte_id);
    }
    struct lode_decode_step decode = {.op = LODE_DECODE_SPM,
                                      .drop_space = s.add_prefix,
                                      .drop_spaces = s.remove_extra,
                                      .hide_control = true};
    decode.to.data = lode_arena_strndup(&t->arena, s.unk_surface.data, s.unk_surface.len);
    decode.to.len = s.unk_surface.len;
    if (!decode.to.data)
        return lode_fail_nomem(err, "a decoder");
    LODE_TRY(lode_tok_add_decode(t, decode, err));

    t->bos = checked(t, s.bos);
    t->eos = checked(t, s.eos);
    struct lode_tok_adds adds;
    LODE_TRY(lode_tok_read_config(t, config, generation, &adds, err));
    /* The model does not say what a text is put between.  Without a configuration beside it: a
     * BOS where there is one (Llama, Gemma), else an EOS (T5). */
    if (t->bos >= 0 && (adds.bos < 0 || adds.bos))
        t->before[t->n_before++] = t->bos;
    if (t->eos >= 0 && (adds.eos < 0 ? t->bos < 0 : adds.eos))
        t->after[t->n_after++] = t->eos;
    return 0;
}

int lode_tokenizer_from_spm(struct lode_tokenizer **out, struct lode_str model,
                            struct lode_str config, struct lode_str generation,
                            struct lode_error *err) {
    *out = NULL;
    struct lode_tokenizer *t = lode_tok_new();
    int rc = t ? load(t, model, config, generation, err) : lode_fail_nomem(err, "a tokenizer");
    if (rc == 0)
        rc = lode_tok_finish(t, err);
    if (rc < 0) {
        lode_tokenizer_free(t);
        return rc;
    }
    *out = t;
    return 0;
}
