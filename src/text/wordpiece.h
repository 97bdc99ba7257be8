/* wordpiece.h - BERT's model: from the left, always the longest piece that fits; a word that does
 * not come out whole is one unknown token.  Bounded by the longest word it looks into.
 */
#ifndef LODE_TEXT_WORDPIECE_H
#define LODE_TEXT_WORDPIECE_H

#include "text/ids.h"
#include "text/vocab.h"

struct lode_wordpiece {
    const struct lode_vocab *vocab; /* borrowed */
    struct lode_str prefix;         /* of pieces that continue a word; "##" */
    uint32_t max_chars;             /* longer words are unknown */
    int32_t unk;
};

enum { LODE_WORDPIECE_MAX_CHARS = 1000, LODE_WORDPIECE_MAX_PREFIX = 32 };

void lode_wordpiece_encode(const struct lode_wordpiece *w, struct lode_str word,
                           struct lode_ids *out);

#endif
