/* unigram.h - the unigram language model: of all ways to cut a text into pieces the one of highest
 * total score (Viterbi).  Kudo 2018, "Subword Regularization".
 *
 * Linear in the text, at most LODE_TRIE_MAX_LEN steps a character; 16 bytes of memory a byte.
 */
#ifndef LODE_TEXT_UNIGRAM_H
#define LODE_TEXT_UNIGRAM_H

#include "base/error.h"
#include "text/ids.h"
#include "text/trie.h"
#include "text/vocab.h"

struct lode_unigram {
    const struct lode_vocab *vocab; /* borrowed; with scores */
    struct lode_trie trie;          /* owned */
    float unk_score, max_score;
    int32_t unk;
    int32_t byte_id[256];
    bool byte_fallback; /* unknown characters become <0xAB> pieces */
    bool single;        /* sums in single precision, as sentencepiece; else double */
};

/* all: every piece takes part (tokenizers); else normal and user-defined ones (sentencepiece). */
int lode_unigram_init(struct lode_unigram *u, const struct lode_vocab *vocab, int32_t unk,
                      bool byte_fallback, bool all, struct lode_error *err);
void lode_unigram_deinit(struct lode_unigram *u);

struct lode_unigram_run {            /* working memory of one thread */
    struct lode_unigram_node *nodes; /* owned; (cap) */
    size_t cap;
};
void lode_unigram_run_deinit(struct lode_unigram_run *run);

int lode_unigram_encode(const struct lode_unigram *u, struct lode_unigram_run *run,
                        struct lode_str piece, struct lode_ids *out, struct lode_error *err);

#endif
