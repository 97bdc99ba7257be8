/* vocab.h - the pieces of a tokenizer: id -> text, kind and score; text -> id.
 *
 * Sized once, filled by a loader, then read by any number of threads.  The text of the pieces is
 * borrowed from whoever filled it in (a tokenizer's arena).
 */
#ifndef LODE_TEXT_VOCAB_H
#define LODE_TEXT_VOCAB_H

#include "base/arena.h"
#include "base/buf.h"

/* As GGUF numbers them (tokenizer.ggml.token_type), and sentencepiece too. */
enum lode_piece_kind {
    LODE_PIECE_NONE, /* an id that nothing defines */
    LODE_PIECE_NORMAL,
    LODE_PIECE_UNKNOWN,
    LODE_PIECE_CONTROL,
    LODE_PIECE_USER,
    LODE_PIECE_UNUSED,
    LODE_PIECE_BYTE,
};

struct lode_vocab {
    struct lode_str *pieces;       /* (n); borrowed, as is what they point to */
    uint8_t *kinds;                /* (n) enum lode_piece_kind */
    bool *special;                 /* (n): left out by skip_special, parsed only on request */
    float *scores;                 /* (n) or NULL */
    uint32_t n, max_len;           /* max_len: bytes of the longest indexed piece */
    struct lode_vocab_slot *slots; /* owned; (cap), open addressing */
    uint32_t cap;
    uint64_t seed; /* of the hash: base/map.h says why */
};

/* Room for n pieces, all LODE_PIECE_NONE; the arrays come from the arena. */
int lode_vocab_init(struct lode_vocab *v, struct lode_arena *arena, uint32_t n, bool scores);
void lode_vocab_deinit(struct lode_vocab *v);
/* Makes pieces[id] findable; where two ids share a text the first one indexed is found. */
void lode_vocab_index(struct lode_vocab *v, uint32_t id);
/* The id whose piece is this text, -1 if none. */
int32_t lode_vocab_find(const struct lode_vocab *v, const char *text, size_t len);

/* The byte of a piece spelt <0xAB>, else -1. */
int lode_piece_byte(struct lode_str piece);
/* byte -> id of its <0xAB> piece (-1 where there is none); true if all 256 are there. */
bool lode_vocab_bytes(const struct lode_vocab *v, int32_t ids[256]);

#endif
