/* bpe.h - byte-pair encoding: the neighbours of lowest rank are joined, leftmost first, until no
 * neighbours have a rank.
 *
 * Three families share the loop and differ in where they begin and what a rank is:
 *   LODE_BPE_BYTES   GPT-2: begins with bytes; ranks are the positions in the list of merges
 *   LODE_BPE_CHARS   begins with characters (bytes of unknown ones); list of merges
 *   LODE_BPE_SCORES  sentencepiece: begins with characters; neighbours may join when what they
 *                    spell is a piece, the one of highest score first
 *
 * A piece of n symbols takes O(n log n) time and at most 40 n bytes, short ones none.
 */
#ifndef LODE_TEXT_BPE_H
#define LODE_TEXT_BPE_H

#include "base/error.h"
#include "text/ids.h"
#include "text/trie.h"
#include "text/vocab.h"

enum lode_bpe_family { LODE_BPE_BYTES, LODE_BPE_CHARS, LODE_BPE_SCORES };

struct lode_bpe_pair {
    uint32_t left1, right; /* left id + 1; 0: empty */
    uint32_t rank;
    int32_t id; /* of what they become */
};

struct lode_bpe {
    enum lode_bpe_family family;
    const struct lode_vocab *vocab; /* borrowed */
    const struct lode_trie *user;   /* SCORES: pieces found before all else; borrowed or NULL */
    struct lode_bpe_pair *pairs;    /* owned; (cap) hash table, empty where left1 is 0 */
    uint32_t cap, n_pairs;
    uint64_t seed;    /* of its hash: base/map.h says why */
    uint32_t next_id;     /* while adding merges: where the next one's piece is likely to be */
    int32_t byte_id[256]; /* BYTES: of the character that stands for a byte; else of <0xAB> */
    bool byte_fallback;   /* CHARS, SCORES: unknown characters become <0xAB> pieces */
    bool ignore_merges;   /* a piece that is in the vocabulary is taken whole */
    bool cuts;            /* CHARS, SCORES: words that begin with U+2581 never join */
    bool fuse_unk;        /* one unknown token for a row of unknown characters */
    int32_t unk;          /* -1: unknown characters are dropped */
    struct lode_str prefix, suffix; /* CHARS: of continuing symbols, of a piece's last one */
};

/* GPT-2's alphabet (TOK-03): the character that stands for a byte, and back (-1 where none). */
uint32_t lode_byte_char(uint8_t byte);
int lode_char_byte(uint32_t cp);

/* After the vocabulary is indexed: fills byte_id. */
void lode_bpe_init(struct lode_bpe *b, enum lode_bpe_family family, const struct lode_vocab *vocab);
void lode_bpe_deinit(struct lode_bpe *b);
/* Room for n merges, then each in its order.  add: 0, or LODE_ERR_MISSING where one of the three
 * pieces is not in the vocabulary. */
int lode_bpe_reserve(struct lode_bpe *b, uint32_t n);
int lode_bpe_add(struct lode_bpe *b, struct lode_str left, struct lode_str right, uint32_t rank);

/* Working memory of one thread, grown as needed. */
struct lode_bpe_run {
    struct lode_bpe_symbol *symbols; /* owned; (cap) */
    uint64_t *heap;                  /* owned; (heap_cap) */
    size_t cap, heap_cap;
};
void lode_bpe_run_deinit(struct lode_bpe_run *run);

int lode_bpe_encode(const struct lode_bpe *b, struct lode_bpe_run *run, struct lode_str piece,
                    struct lode_ids *out, struct lode_error *err);

#endif
