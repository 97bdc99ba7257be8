/* charsmap.h - sentencepiece's precompiled normaliser: strings -> strings, longest match.
 *
 * The blob (normalizer_spec.precompiled_charsmap, tokenizer.ggml.precompiled_charsmap, or base64 in
 * a Precompiled normaliser of tokenizer.json) is
 *
 *     u32 size | size bytes: a double-array trie of u32 units (darts-clone) | NUL-ended strings
 *
 * where the trie's values are offsets into the strings.  Every unit that is followed is checked
 * against the array, so that a damaged blob gives wrong text and nothing worse.
 */
#ifndef LODE_TEXT_CHARSMAP_H
#define LODE_TEXT_CHARSMAP_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"

struct lode_charsmap {
    const uint32_t *units; /* (n_units) in the arena */
    uint32_t n_units;      /* 0: maps nothing */
    const char *text;      /* (text_len), ends in NUL */
    size_t text_len;
};

int lode_charsmap_init(struct lode_charsmap *m, struct lode_arena *arena, struct lode_str blob,
                       struct lode_error *err);

/* What the longest (or shortest) mapped start of s turns into; *len: its bytes in s.  data NULL:
 * none is mapped. */
struct lode_str lode_charsmap_find(const struct lode_charsmap *m, const char *s, size_t n,
                                   bool longest, size_t *len);

#endif
