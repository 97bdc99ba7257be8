/* pre_table.h - the byte-level BPE pre-tokenizers that GGUF names in tokenizer.ggml.pre.
 *
 * One table: names, the regular expressions of the models' own tokenizer.json in order (each cuts
 * what the one before left, matches and gaps alike), and what else follows from the name.
 */
#ifndef LODE_TEXT_PRE_TABLE_H
#define LODE_TEXT_PRE_TABLE_H

#include "text/tok.h"

enum lode_pre_flags {
    LODE_PRE_NFC = 1,           /* the model's normaliser; GGUF does not say */
    LODE_PRE_IGNORE_MERGES = 2, /* a word that is a piece is taken whole */
    LODE_PRE_ADD_BOS = 4,       /* unless add_bos_token says otherwise */
    LODE_PRE_ADD_SEP = 8,
    LODE_PRE_CHARS = 16,        /* not byte-level: characters, spaces as U+2581, byte fallback */
};

struct lode_pre_entry {
    const char *names; /* separated by spaces */
    const char *patterns[5];
    unsigned flags;
};

/* NULL: unknown. */
const struct lode_pre_entry *lode_pre_find(struct lode_str name);
const struct lode_pre_entry *lode_pre_entry_at(size_t i); /* NULL behind the last */

/* Adds a pattern as an isolating split.  A few patterns take quadratic time as they are written
 * (a look-ahead over all digits at each digit); they become a step or a pattern that gives the
 * same cuts in linear time.  Behind any other pattern than those, this is what the loaders use for
 * all of them. */
int lode_pre_add_pattern(struct lode_tokenizer *t, struct lode_str pattern,
                         enum lode_split_behavior behavior, bool invert, struct lode_error *err);

#endif
