/* added.h - added and special tokens: found in a text before the model sees it.
 *
 * Two sets, as in the tokenizers library: those matched in the text as it is written, and those
 * matched in what the normaliser makes of the rest.  The leftmost match counts, of those the
 * longest.  What stands around a match may belong to it (lstrip, rstrip) or forbid it
 * (single_word).
 */
#ifndef LODE_TEXT_ADDED_H
#define LODE_TEXT_ADDED_H

#include "base/arena.h"
#include "base/error.h"
#include "text/trie.h"

struct lode_added_token {
    struct lode_str text;   /* in the arena */
    struct lode_str normal; /* what is looked for: the normalised text, or text itself */
    int32_t id;
    bool lstrip, rstrip, single_word, normalized, special;
};

struct lode_added {
    struct lode_added_token *tokens; /* (n) in the arena */
    uint32_t n;
    struct lode_trie raw, normalized;             /* owned; values are indices of tokens */
    struct lode_trie raw_plain, normalized_plain; /* without special ones */
};

struct lode_norm;

/* Builds the sets from tokens.  Contents of normalized ones go through norm first. */
int lode_added_init(struct lode_added *a, struct lode_arena *arena, const struct lode_norm *norm,
                    struct lode_error *err);
void lode_added_deinit(struct lode_added *a);

/* Cuts text at the tokens of one set.  gap and token are called in order; a negative return ends
 * it.  token gets an index; gap a part that is not empty. */
struct lode_added_sink {
    int (*gap)(void *ctx, struct lode_str part, bool first);
    int (*token)(void *ctx, const struct lode_added_token *token);
    void *ctx;
};
int lode_added_split(const struct lode_added *a, bool normalized, bool special,
                     struct lode_str text, bool first, const struct lode_added_sink *sink);

#endif
