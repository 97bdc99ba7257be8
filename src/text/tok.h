/* tok.h - what a tokenizer is made of.  Internal to text/.
 *
 * A loader (load_json.c, load_spm.c, load_gguf.c) fills one in; after that nothing changes it and
 * any number of threads use it.  Text runs through
 *
 *     added tokens (raw) -> norm -> added tokens (normalised) -> pre -> model -> ids
 *
 * and ids through `decode`.
 */
#ifndef LODE_TEXT_TOK_H
#define LODE_TEXT_TOK_H

#include "lode/tokenizer.h"

#include "text/added.h"
#include "text/bpe.h"
#include "text/decode.h"
#include "text/norm.h"
#include "text/pre.h"
#include "text/unigram.h"
#include "text/vocab.h"
#include "text/wordpiece.h"

enum lode_tok_model { LODE_TOK_BPE, LODE_TOK_UNIGRAM, LODE_TOK_WORDPIECE };

enum {
    LODE_TOK_TEXT_MAX = 1 << 30, /* bytes of one text: positions are 32 bits */
    LODE_TOK_EXTRA_MAX = 8,      /* ids that a template puts before, or after, a text */
    LODE_TOK_ENDS_MAX = 32,
};

struct lode_tokenizer {
    struct lode_arena arena;
    const char *kind; /* "bpe", "spm", "unigram", "wordpiece" */
    struct lode_vocab vocab;
    struct lode_norm norm;
    struct lode_pre pre;
    struct lode_added added;
    struct lode_trie user; /* sentencepiece's user-defined symbols */
    enum lode_tok_model model;
    struct lode_bpe bpe;
    struct lode_unigram unigram;
    struct lode_wordpiece wordpiece;
    struct lode_decode decode;
    int32_t before[LODE_TOK_EXTRA_MAX], after[LODE_TOK_EXTRA_MAX];
    uint32_t n_before, n_after;
    int32_t bos, eos, pad; /* -1: none */
    int32_t ends[LODE_TOK_ENDS_MAX];
    uint32_t n_ends;
};

struct lode_tokenizer *lode_tok_new(void);
/* Once the vocabulary and `added` are filled in: builds the searches and finds the end tokens that
 * metadata does not name (CHT-07, CHT-13). */
int lode_tok_finish(struct lode_tokenizer *t, struct lode_error *err);
void lode_tok_add_end(struct lode_tokenizer *t, int32_t id); /* negative ids are ignored */

/* A step for the lists, or an error when the list is full. */
int lode_tok_add_pre(struct lode_tokenizer *t, struct lode_pre_step step, struct lode_error *err);
int lode_tok_add_decode(struct lode_tokenizer *t, struct lode_decode_step step,
                        struct lode_error *err);

#define LODE_TOK_GPT2_REGEX                                                                        \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LODE_TOK_PUNCT_REGEX "[\\p{P}!-/:-@\\[-`{-~]"
#define LODE_TOK_META "\xe2\x96\x81" /* U+2581, sentencepiece's visible space */

#endif
