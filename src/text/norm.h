/* norm.h - normalisers: text -> text before it is split.  A list of steps, each over the whole of
 * a segment; what tokenizer.json calls a Sequence.
 */
#ifndef LODE_TEXT_NORM_H
#define LODE_TEXT_NORM_H

#include "text/charsmap.h"
#include "text/regex.h"
#include "text/trie.h"
#include "text/unicode.h"

enum lode_norm_op {
    LODE_NORM_FORM, /* NFC, NFD, NFKC, NFKD */
    LODE_NORM_LOWER,
    LODE_NORM_STRIP_ACCENTS, /* marks away */
    LODE_NORM_STRIP,         /* white space away at the ends */
    LODE_NORM_REPLACE,       /* a string */
    LODE_NORM_REPLACE_REGEX,
    LODE_NORM_PREPEND,
    LODE_NORM_NMT,
    LODE_NORM_BERT,
    LODE_NORM_CHARSMAP, /* by grapheme, as the tokenizers library applies it */
    LODE_NORM_SPM,      /* sentencepiece's own: character map, spaces, prefix */
};

struct lode_norm_step {
    enum lode_norm_op op;
    enum lode_normal_form form;
    bool left, right;                              /* STRIP */
    struct lode_str from, to;                      /* REPLACE..., PREPEND (to); in the arena */
    struct lode_regex *regex;                      /* owned */
    bool clean, cjk, strip_accents, lower;         /* BERT */
    bool add_prefix, remove_extra, escape, suffix; /* SPM; suffix: spaces end words */
    struct lode_charsmap map;                      /* CHARSMAP, SPM */
    const struct lode_trie *user; /* SPM: strings that pass as they are; borrowed */
};

struct lode_norm {
    struct lode_norm_step *steps; /* (n) in the arena */
    uint32_t n;
};

void lode_norm_deinit(struct lode_norm *norm);

/* The normal form of text (valid UTF-8), in one of the two buffers or text itself. */
int lode_norm_apply(const struct lode_norm *norm, struct lode_str text, struct lode_buf buf[2],
                    struct lode_str *out, struct lode_error *err);

#endif
