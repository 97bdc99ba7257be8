/* save_gguf.c - a tokenizer as GGUF metadata, tokenizer.ggml.*: load_gguf.c the other way.
 *
 * GGUF names a pre-tokenizer where tokenizer.json spells out its regular expression.  The name is
 * found by what it does: the one (text/pre_table.h) that cuts a probe like this tokenizer does. The
 * probe has what the published expressions differ in: contractions, digits in rows, scripts,
 * letters with marks, spaces and line ends in every order.  In the end the keys are read back
 * and must give the ids that the tokenizer itself gives. */
#include "text/pre_table.h"
#include "text/tokenizer.h"

#include "base/alloc.h"
#include "base/map.h"
#include "format/gguf_write.h"

#include <stdlib.h>

#define KEY(name) "tokenizer.ggml." name

static const char probe[] =
    "Hello, World! It's they'll we'VE I'm you'd DON'T isn’t  two   three\tfour\t\tfive \n"
    "\n \n\r\n  indented\n\tif (x >= 10) { return a[3] += \"str\\n\"; } // cmt #1 \n\n\n"
    "1 12 123 1234 12345 1234567 3.14159 1,000,000 2024-01-15 v1.2b3 0xFF ½ ² ٣٤٥ 千二百 "
    "camelCaseWord HTTPServer snake_case_name kebab-case ALLCAPS iPhone12Pro a1b2c3 "
    "caf\xc3\xa9 na\xc3\xafve \xc3\x9cnic\xc3\xb6"
    "de stra\xc3\x9f"
    "e \xe2\x82\xac"
    "5 \xc2\xa3"
    "7 "
    "Привет мир, как дела? Ελληνικά γλώσσα العربية مرحبا بالعالم עברית שלום "
    "हिन्दी में लिखा ภาษาไทย 中文字符测试，你好！ 日本語のテキスト カタカナ。 한국어 문장 입니다 "
    "😀😃 👩‍💻 🇩🇪 ... --- *** === !!! ??? ?! <tag attr='v'>text</tag> "
    "http://example.com/a?b=c&d=e "
    "foo@bar.org (paren) [brack] {brace} <<>> || && ~`^%$#@ “quotes” ‘single’ — – … \xc2\xa0nbsp "
    "end of line   \n   start\n\n\n\n   \n x  y   z    w     \n'sm 'S 'T \r \r\n\r\n "
    "don't.stop,me(now)hello_world/path/to\\file:123;456 C++ C# .NET 50% $100 1st 2nd ½cup  ";

/* Not part of the above: NFC would change it, and GGUF cannot say so for every name. */
static const char probe_marks[] = "cafe\xcc\x81 n\xcc\x83 \xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab";

/* ---- the pre-tokenizer's name ---- */

static int add_piece(void *ctx, struct lode_str piece) {
    struct lode_buf *b = ctx;
    lode_buf_add(b, piece.data, piece.len);
    return lode_buf_addc(b, '\0') ? 0 : LODE_ERR_NOMEM;
}

/* The pieces of the probe, each with a NUL behind it. */
static int cut_probe(const struct lode_pre *pre, struct lode_buf *out, struct lode_error *err) {
    struct lode_pre_run run;
    lode_buf_clear(out);
    int rc = lode_pre_run_init(&run, pre, err);
    run.sink = add_piece;
    run.ctx = out;
    if (rc == 0)
        rc = lode_pre_apply(&run, LODE_STR(probe), true);
    lode_pre_run_deinit(&run);
    return rc == LODE_ERR_NOMEM ? lode_fail_nomem(err, "pieces") : rc;
}

static int cut_as(const struct lode_pre_entry *entry, struct lode_buf *out,
                  struct lode_error *err) {
    struct lode_tokenizer *t = lode_tok_new();
    int rc = t ? 0 : lode_fail_nomem(err, "a tokenizer");
    for (size_t i = 0; rc == 0 && i < 5 && entry->patterns[i]; i++)
        rc = lode_pre_add_pattern(t, lode_str(entry->patterns[i]), LODE_SPLIT_ISOLATED, false, err);
    if (rc == 0)
        rc = cut_probe(&t->pre, out, err);
    lode_tokenizer_free(t);
    return rc;
}

/* The name whose cuts are the same, and, as far as there is one, whose other habits are too. */
static int find_name(const struct lode_tokenizer *t, char out[32], const char **note,
                     struct lode_error *err) {
    const bool nfc = t->norm.n == 1 && t->norm.steps[0].op == LODE_NORM_FORM &&
                     t->norm.steps[0].form == LODE_NFC;
    const unsigned want =
        (nfc ? LODE_PRE_NFC : 0) | (t->bpe.ignore_merges ? LODE_PRE_IGNORE_MERGES : 0);
    struct lode_buf mine = {0}, theirs = {0};
    const struct lode_pre_entry *best = NULL, *entry;
    int rc = cut_probe(&t->pre, &mine, err), least = 4;
    for (size_t i = 0; rc == 0 && (entry = lode_pre_entry_at(i)); i++) {
        if (entry->flags & LODE_PRE_CHARS)
            continue;
        const unsigned differs = (entry->flags ^ want) & (LODE_PRE_NFC | LODE_PRE_IGNORE_MERGES);
        const int distance =
            (differs & LODE_PRE_IGNORE_MERGES ? 2 : 0) + (differs & LODE_PRE_NFC ? 1 : 0);
        if (distance >= least)
            continue;
        rc = cut_as(entry, &theirs, err);
        if (rc == 0 && lode_str_eq(lode_buf_str(&mine), lode_buf_str(&theirs))) {
            best = entry;
            least = distance;
        }
    }
    lode_buf_free(&mine);
    lode_buf_free(&theirs);
    LODE_TRY(rc);
    if (!best || (t->norm.n > 0 && !nfc))
        return lode_fail(err, LODE_ERR_UNSUPPORTED, "tokenizer",
                         "GGUF has no name for this %s: the file could not say how text is cut",
                         best ? "normaliser" : "pre-tokenizer");
    if (least & 1)
        *note =
            nfc ? "the tokenizer brings text into Unicode's form NFC first; GGUF cannot say so"
                : "by this pre-tokenizer's name GGUF files are read in Unicode's form NFC, which "
                  "the source does not do";
    const size_t n = strcspn(best->names, " ");
    memcpy(out, best->names, n);
    out[n] = '\0';
    return 0;
}

/* ---- keys ---- */

static int put_array(struct lode_gguf_writer *w, const char *key, enum lode_gguf_type type,
                     const void *elements, size_t n, struct lode_error *err) {
    const struct lode_gguf_value v = {.type = LODE_GGUF_ARRAY,
                                      .a = {.type = type, .n = n, .raw = elements}};
    return lode_gguf_writer_key(w, key, &v, err);
}

static int put_id(struct lode_gguf_writer *w, const char *key, int32_t id, struct lode_error *err) {
    return id < 0 ? 0 : lode_gguf_writer_u32(w, key, (uint32_t)id, err);
}

/* What is written of the pieces; (n) each. */
struct pieces {
    struct lode_str *text;
    int32_t *kinds;
    float *scores;
    size_t n;
    struct lode_arena arena;
};

/* BERT's "##ing" and "ing" are "ing" and "_ing" (U+2581) in GGUF. */
static int respell(struct pieces *p, size_t i, struct lode_str prefix, struct lode_error *err) {
    struct lode_str *s = &p->text[i];
    if (p->kinds[i] != LODE_PIECE_NORMAL)
        return 0;
    if (lode_str_starts(*s, prefix) && s->len > prefix.len) {
        s->data += prefix.len;
        s->len -= prefix.len;
        return 0;
    }
    const char *copy = lode_arena_printf(&p->arena, LODE_TOK_META "%.*s", (int)s->len, s->data);
    if (!copy)
        return lode_fail_nomem(err, "the vocabulary");
    *s = (struct lode_str){copy, s->len + 3};
    return 0;
}

/* Which of two pieces of one text goes by it: what begins or ends a text, then the first. */
static bool goes_by_text(const struct lode_tokenizer *t, size_t i) {
    const int32_t id = (int32_t)i;
    return id == t->bos || id == t->eos || id == t->pad || (t->n_before && id == t->before[0]);
}

/* No two pieces may be spelt the same: llama.cpp stops at such files.  The other is out of use, as
 * nothing can find it. */
static int tell_apart(const struct lode_tokenizer *t, struct pieces *p, struct lode_error *err) {
    struct lode_map texts = {0};
    bool ok = lode_map_reserve(&texts, (uint32_t)p->n);
    for (size_t i = 0; ok && i < p->n; i++) {
        uint32_t first = 0;
        const int rc = lode_map_put(&texts, p->text[i], (uint32_t)i, &first);
        if (rc > 0)
            continue;
        const size_t other = rc == 0 && goes_by_text(t, i) && !goes_by_text(t, first) ? first : i;
        const char *name = lode_arena_printf(&p->arena, "[DUPLICATE%zu]", other);
        ok = rc == 0 && name;
        if (ok) {
            p->text[other] = lode_str(name);
            p->kinds[other] = LODE_PIECE_UNUSED;
        }
    }
    lode_map_free(&texts);
    return ok ? 0 : lode_fail_nomem(err, "the vocabulary");
}

static int gather(const struct lode_tokenizer *t, uint64_t n_vocab, struct pieces *p,
                  struct lode_error *err) {
    p->n = n_vocab > t->vocab.n ? (size_t)n_vocab : t->vocab.n;
    if (p->n > 1 << 24)
        return lode_fail(err, LODE_ERR_LIMIT, "vocab_size", "%zu tokens are too many", p->n);
    p->text = LODE_ARENA_ARRAY(&p->arena, struct lode_str, p->n);
    p->kinds = LODE_ARENA_ARRAY(&p->arena, int32_t, p->n);
    p->scores = LODE_ARENA_ARRAY(&p->arena, float, p->n);
    if (!p->text || !p->kinds || !p->scores)
        return lode_fail_nomem(err, "the vocabulary");
    for (uint32_t i = 0; i < t->vocab.n; i++) {
        p->text[i] = t->vocab.pieces[i];
        p->kinds[i] = t->vocab.kinds[i];
        p->scores[i] = t->vocab.scores ? t->vocab.scores[i] : 0;
    }
    for (uint32_t i = 0; i < t->added.n; i++) /* the vocabulary has them as they were normalised */
        p->text[t->added.tokens[i].id] = t->added.tokens[i].text;
    for (size_t i = 0; i < p->n; i++)
        if (p->kinds[i] == LODE_PIECE_NONE) {
            const char *name = lode_arena_printf(&p->arena, "[PAD%zu]", i);
            if (!name)
                return lode_fail_nomem(err, "the vocabulary");
            p->text[i] = lode_str(name);
            p->kinds[i] = LODE_PIECE_UNUSED;
        } else if (t->model == LODE_TOK_WORDPIECE)
            LODE_TRY(respell(p, i, t->wordpiece.prefix, err));
    return tell_apart(t, p, err);
}

static int by_rank(const void *a, const void *b) {
    const struct lode_bpe_pair *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* The merges in their order; (b->n_pairs) in the arena. */
static int gather_merges(const struct lode_bpe *b, struct lode_arena *arena,
                         struct lode_bpe_pair **out, struct lode_error *err) {
    struct lode_bpe_pair *list = LODE_ARENA_ARRAY(arena, struct lode_bpe_pair, b->n_pairs + 1);
    if (!list)
        return lode_fail_nomem(err, "merges");
    size_t n = 0;
    for (uint32_t i = 0; i < b->cap; i++)
        if (b->pairs[i].left1)
            list[n++] = b->pairs[i];
    qsort(list, n, sizeof *list, by_rank);
    *out = list;
    return 0;
}

static int save_merges(const struct lode_tokenizer *t, struct pieces *p, struct lode_gguf_writer *w,
                       struct lode_error *err) {
    const struct lode_bpe *b = &t->bpe;
    struct lode_bpe_pair *list;
    LODE_TRY(gather_merges(b, &p->arena, &list, err));
    struct lode_str *merges = LODE_ARENA_ARRAY(&p->arena, struct lode_str, b->n_pairs + 1);
    if (!merges)
        return lode_fail_nomem(err, "merges");
    for (uint32_t i = 0; i < b->n_pairs; i++) {
        const struct lode_str l = p->text[list[i].left1 - 1], r = p->text[list[i].right];
        char *both = lode_arena_alloc(&p->arena, l.len + 1 + r.len, 1);
        if (!both)
            return lode_fail_nomem(err, "merges");
        memcpy(both, l.data, l.len);
        both[l.len] = ' ';
        memcpy(both + l.len + 1, r.data, r.len);
        merges[i] = (struct lode_str){both, l.len + 1 + r.len};
    }
    return put_array(w, KEY("merges"), LODE_GGUF_STR, merges, b->n_pairs, err);
}

/* A list of merges as scores: a piece is worth as much as the first merge that makes it is early.
 */
static int score_merges(const struct lode_bpe *b, struct pieces *p, struct lode_error *err) {
    struct lode_bpe_pair *list;
    LODE_TRY(gather_merges(b, &p->arena, &list, err));
    for (uint32_t i = b->n_pairs; i-- > 0;)
        p->scores[list[i].id] = -(float)(i + 1);
    return 0;
}

/* Whether a space is put in front of a text. */
static bool adds_space(const struct lode_tokenizer *t) {
    for (uint32_t i = 0; i < t->norm.n; i++)
        if ((t->norm.steps[i].op == LODE_NORM_SPM && t->norm.steps[i].add_prefix) ||
            t->norm.steps[i].op == LODE_NORM_PREPEND)
            return true;
    for (uint32_t i = 0; i < t->pre.n; i++)
        if (t->pre.steps[i].op == LODE_PRE_METASPACE &&
            t->pre.steps[i].prepend != LODE_PREPEND_NEVER)
            return true;
    return false;
}

/* Whether rows of spaces become one. */
static bool joins_spaces(const struct lode_tokenizer *t) {
    for (uint32_t i = 0; i < t->norm.n; i++)
        if ((t->norm.steps[i].op == LODE_NORM_SPM && t->norm.steps[i].remove_extra) ||
            t->norm.steps[i].op == LODE_NORM_REPLACE_REGEX)
            return true;
    return false;
}

static int save_charsmap(const struct lode_tokenizer *t, struct pieces *p,
                         struct lode_gguf_writer *w, struct lode_error *err) {
    for (uint32_t i = 0; i < t->norm.n; i++) {
        const struct lode_charsmap *m = &t->norm.steps[i].map;
        if (!m->n_units)
            continue;
        const uint32_t size = m->n_units * 4;
        char *blob = lode_arena_alloc(&p->arena, 4 + (size_t)size + m->text_len, 1);
        if (!blob)
            return lode_fail_nomem(err, "a character map");
        memcpy(blob, &size, 4);
        memcpy(blob + 4, m->units, size);
        memcpy(blob + 4 + size, m->text, m->text_len);
        return put_array(w, KEY("precompiled_charsmap"), LODE_GGUF_U8, blob,
                         4 + (size_t)size + m->text_len, err);
    }
    return 0;
}

/* Kinds that sentencepiece's files have and tokenizer.json leaves to the model's settings. */
static void mark_kinds(struct pieces *p, int32_t unk, bool byte_fallback) {
    for (size_t i = 0; byte_fallback && i < p->n; i++)
        if (p->kinds[i] != LODE_PIECE_UNUSED && lode_piece_byte(p->text[i]) >= 0)
            p->kinds[i] = LODE_PIECE_BYTE;
    if (unk >= 0)
        p->kinds[unk] = LODE_PIECE_UNKNOWN;
}

/* User-defined pieces are looked for in the text as it is written: with spaces, where
 * sentencepiece's own spelling has U+2581.  One that is spelt with spaces there matches nothing,
 * for its text has none left, and shall match nothing here. */
static int unmark_spaces(const struct lode_tokenizer *t, struct pieces *p, struct lode_error *err) {
    const bool escapes =
        t->norm.n > 0 && t->norm.steps[0].op == LODE_NORM_SPM && t->norm.steps[0].escape;
    const struct lode_str mark = LODE_STR(LODE_TOK_META);
    for (size_t i = 0; i < p->n; i++) {
        struct lode_str from = p->text[i];
        if (p->kinds[i] != LODE_PIECE_USER)
            continue;
        if (escapes && memchr(from.data, ' ', from.len)) {
            p->kinds[i] = LODE_PIECE_NORMAL;
            continue;
        }
        char *to = lode_arena_alloc(&p->arena, from.len, 1), *end = to;
        if (!to)
            return lode_fail_nomem(err, "the vocabulary");
        while (from.len > 0) {
            const bool space = lode_str_starts(from, mark);
            *end++ = space ? ' ' : *from.data;
            from.data += space ? mark.len : 1;
            from.len -= space ? mark.len : 1;
        }
        p->text[i] = (struct lode_str){to, (size_t)(end - to)};
    }
    return 0;
}

static int save_sentencepiece(const struct lode_tokenizer *t, struct pieces *p,
                              struct lode_gguf_writer *w, struct lode_error *err) {
    const bool unigram = t->model == LODE_TOK_UNIGRAM;
    const int32_t unk = unigram ? t->unigram.unk : t->bpe.unk;
    mark_kinds(p, unk, unigram ? t->unigram.byte_fallback : t->bpe.byte_fallback);
    if (!unigram && t->bpe.family == LODE_BPE_CHARS)
        LODE_TRY(score_merges(&t->bpe, p, err));
    LODE_TRY(unmark_spaces(t, p, err));
    LODE_TRY(lode_gguf_writer_str(w, KEY("model"), unigram ? "t5" : "llama", err));
    LODE_TRY(lode_gguf_writer_str(w, KEY("pre"), "default", err));
    LODE_TRY(put_array(w, KEY("tokens"), LODE_GGUF_STR, p->text, p->n, err));
    LODE_TRY(put_array(w, KEY("scores"), LODE_GGUF_F32, p->scores, p->n, err));
    LODE_TRY(put_array(w, KEY("token_type"), LODE_GGUF_I32, p->kinds, p->n, err));
    LODE_TRY(put_id(w, KEY("unknown_token_id"), unk, err));
    LODE_TRY(lode_gguf_writer_bool(w, KEY("add_space_prefix"), adds_space(t), err));
    if (joins_spaces(t))
        LODE_TRY(lode_gguf_writer_bool(w, KEY("remove_extra_whitespaces"), true, err));
    return save_charsmap(t, p, w, err);
}

static int save_bpe(const struct lode_tokenizer *t, struct pieces *p, struct lode_gguf_writer *w,
                    const char **note, struct lode_error *err) {
    char name[32];
    LODE_TRY(find_name(t, name, note, err));
    LODE_TRY(lode_gguf_writer_str(w, KEY("model"), "gpt2", err));
    LODE_TRY(lode_gguf_writer_str(w, KEY("pre"), name, err));
    LODE_TRY(put_array(w, KEY("tokens"), LODE_GGUF_STR, p->text, p->n, err));
    LODE_TRY(put_array(w, KEY("token_type"), LODE_GGUF_I32, p->kinds, p->n, err));
    return save_merges(t, p, w, err);
}

static int save_wordpiece(const struct lode_tokenizer *t, struct pieces *p,
                          struct lode_gguf_writer *w, struct lode_error *err) {
    bool lower = true;
    for (uint32_t i = 0; i < t->norm.n; i++)
        if (t->norm.steps[i].op == LODE_NORM_BERT)
            lower = t->norm.steps[i].lower;
    LODE_TRY(lode_gguf_writer_str(w, KEY("model"), "bert", err));
    LODE_TRY(lode_gguf_writer_str(w, KEY("pre"), "bert-bge", err));
    LODE_TRY(put_array(w, KEY("tokens"), LODE_GGUF_STR, p->text, p->n, err));
    LODE_TRY(put_array(w, KEY("token_type"), LODE_GGUF_I32, p->kinds, p->n, err));
    LODE_TRY(put_id(w, KEY("unknown_token_id"), t->wordpiece.unk, err));
    LODE_TRY(lode_gguf_writer_bool(w, KEY("normalizer.lowercase"), lower, err));
    return put_id(w, KEY("seperator_token_id"), t->n_after ? t->after[t->n_after - 1] : -1, err);
}

/* What a text is put between, and what ends an answer. */
static int save_ends(const struct lode_tokenizer *t, struct lode_gguf_writer *w,
                     struct lode_error *err) {
    static const char *const more[] = {KEY("eot_token_id"), KEY("eom_token_id")};
    const int32_t bos = t->n_before ? t->before[0] : t->bos;
    LODE_TRY(put_id(w, KEY("bos_token_id"), bos, err));
    LODE_TRY(put_id(w, KEY("eos_token_id"), t->eos, err));
    for (uint32_t i = 0, k = 0; i < t->n_ends && k < 2;
         i++) /* as the source names them, in order */
        if (t->ends[i] != t->eos)
            LODE_TRY(put_id(w, more[k++], t->ends[i], err));
    LODE_TRY(put_id(w, KEY("padding_token_id"), t->pad, err));
    LODE_TRY(lode_gguf_writer_bool(w, KEY("add_bos_token"), t->n_before > 0, err));
    if (t->model == LODE_TOK_WORDPIECE)
        return lode_gguf_writer_bool(w, KEY("add_sep_token"), t->n_after > 0, err);
    return lode_gguf_writer_bool(w, KEY("add_eos_token"), t->n_after > 0, err);
}

/* ---- reading it back ---- */

static int ids_of(const struct lode_tokenizer *t, struct lode_str text, int32_t *ids, size_t cap,
                  struct lode_error *err, size_t *n) {
    const int64_t got =
        lode_tokenize(t, text.data, text.len, LODE_TOK_SPECIAL | LODE_TOK_PARSE, ids, cap, err);
    *n = got < 0 ? 0 : (size_t)got < cap ? (size_t)got : cap;
    return got < 0 ? (int)got : 0;
}

static int compare(const struct lode_tokenizer *t, const struct lode_tokenizer *back,
                   const char **note, struct lode_error *err) {
    enum { CAP = sizeof probe + 64 };
    const struct lode_str texts[] = {LODE_STR(probe), LODE_STR(probe_marks)};
    int32_t *ids = lode_alloc(2 * CAP, sizeof *ids);
    int rc = ids ? 0 : lode_fail_nomem(err, "token ids");
    for (int i = 0; i < 2 && rc == 0; i++) {
        size_t n[2] = {0, 0};
        rc = ids_of(t, texts[i], ids, CAP, err, &n[0]);
        if (rc == 0)
            rc = ids_of(back, texts[i], ids + CAP, CAP, err, &n[1]);
        if (rc < 0 || (n[0] == n[1] && memcmp(ids, ids + CAP, n[0] * sizeof *ids) == 0))
            continue;
        if (i == 0)
            rc = lode_fail(err, LODE_ERR_UNSUPPORTED, "tokenizer",
                           "GGUF cannot describe it: read back from the file's keys it would cut "
                           "text differently");
        else if (!*note)
            *note = "text that is not in Unicode's form NFC is cut differently by the GGUF file's "
                    "tokenizer";
    }
    lode_free(ids);
    return rc;
}

static int check(const struct lode_tokenizer *t, const struct lode_gguf_writer *w,
                 const char **note, struct lode_error *err) {
    struct lode_buf header = {0};
    struct lode_gguf *g = NULL;
    struct lode_tokenizer *back = NULL;
    int rc = lode_gguf_writer_header(w, &header, err);
    if (rc == 0)
        rc = lode_gguf_parse(&g, header.data, header.len, err);
    if (rc == 0)
        rc = lode_tokenizer_from_gguf(&back, g, err);
    if (rc == 0)
        rc = compare(t, back, note, err);
    lode_tokenizer_free(back);
    lode_gguf_close(g);
    lode_buf_free(&header);
    return rc;
}

/* Characters joined by a list of merges, with spaces as U+2581: what scores cannot say. */
static int save_chars(const struct lode_tokenizer *t, struct pieces *p, struct lode_gguf_writer *w,
                      struct lode_error *err) {
    mark_kinds(p, t->bpe.unk, t->bpe.byte_fallback);
    LODE_TRY(lode_gguf_writer_str(w, KEY("model"), "gemma4", err));
    LODE_TRY(put_array(w, KEY("tokens"), LODE_GGUF_STR, p->text, p->n, err));
    LODE_TRY(put_array(w, KEY("token_type"), LODE_GGUF_I32, p->kinds, p->n, err));
    LODE_TRY(put_id(w, KEY("unknown_token_id"), t->bpe.unk, err));
    return save_merges(t, p, w, err);
}

static int save(const struct lode_tokenizer *t, bool chars, struct pieces *p,
                struct lode_gguf_writer *w, const char **note, struct lode_error *err) {
    if (t->model == LODE_TOK_WORDPIECE)
        LODE_TRY(save_wordpiece(t, p, w, err));
    else if (t->model == LODE_TOK_BPE && t->bpe.family == LODE_BPE_BYTES)
        LODE_TRY(save_bpe(t, p, w, note, err));
    else if (chars)
        LODE_TRY(save_chars(t, p, w, err));
    else
        LODE_TRY(save_sentencepiece(t, p, w, err));
    return save_ends(t, w, err);
}

/* Tokens that take the spaces around them along, or stand only where no word goes on. */
static bool has_picky_tokens(const struct lode_tokenizer *t) {
    for (uint32_t i = 0; i < t->added.n; i++) {
        const struct lode_added_token *a = &t->added.tokens[i];
        if (a->lstrip || a->rstrip || a->single_word)
            return true;
    }
    return false;
}

/* Whether the tokenizer comes through as these keys. */
static int try_save(const struct lode_tokenizer *t, bool chars, struct pieces *p, const char **note,
                    struct lode_error *err) {
    struct lode_gguf_writer *alone;
    *note = NULL;
    LODE_TRY(lode_gguf_writer_create(&alone, err));
    int rc = save(t, chars, p, alone, note, err);
    if (rc == 0)
        rc = check(t, alone, note, err);
    lode_gguf_writer_free(alone);
    return rc;
}

int lode_tokenizer_save(const struct lode_tokenizer *t, uint64_t n_vocab,
                        struct lode_gguf_writer *w, const char **note, struct lode_error *err) {
    struct pieces p = {0};
    bool chars = false;
    int rc = gather(t, n_vocab, &p, err);
    if (rc == 0)
        rc = try_save(t, chars, &p, note, err);
    if (rc == LODE_ERR_UNSUPPORTED && t->model == LODE_TOK_BPE && t->bpe.family == LODE_BPE_CHARS) {
        chars = true;
        rc = try_save(t, chars, &p, note, err);
    }
    if (rc == 0)
        rc = save(t, chars, &p, w, note, err);
    if (rc == 0 && !*note && has_picky_tokens(t))
        *note = "some added tokens swallow spaces beside them or want whole words (lstrip, rstrip, "
                "single_word); GGUF cannot say so";
    lode_arena_free(&p.arena);
    return rc;
}
