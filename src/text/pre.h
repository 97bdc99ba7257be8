/* pre.h - pre-tokenizers: cutting a normalised segment into the pieces that the model sees one by
 * one.  A list of steps, each cutting what the one before it left; pieces are handed on as they
 * are found, so that no list of them is ever kept.
 */
#ifndef LODE_TEXT_PRE_H
#define LODE_TEXT_PRE_H

#include "text/regex.h"

enum lode_pre_op {
    LODE_PRE_SPLIT,     /* at matches of a pattern */
    LODE_PRE_SPACE,     /* a space in front where there is none (ByteLevel's add_prefix_space) */
    LODE_PRE_METASPACE, /* spaces become a visible mark, one in front, cut before each */
    LODE_PRE_DIGITS,    /* cut rows of digits into triples from the right */
};

/* What becomes of the matches, as the tokenizers library names it. */
enum lode_split_behavior {
    LODE_SPLIT_REMOVED,
    LODE_SPLIT_ISOLATED,
    LODE_SPLIT_MERGED_WITH_PREVIOUS,
    LODE_SPLIT_MERGED_WITH_NEXT,
    LODE_SPLIT_CONTIGUOUS,
};

enum lode_prepend_scheme { LODE_PREPEND_ALWAYS, LODE_PREPEND_NEVER, LODE_PREPEND_FIRST };

struct lode_pre_step {
    enum lode_pre_op op;
    enum lode_split_behavior behavior;
    bool invert;                      /* SPLIT: matches and gaps change places */
    struct lode_regex *regex;         /* SPLIT: owned, or NULL */
    struct lode_str literal;          /* SPLIT without regex: the string; METASPACE: the mark */
    enum lode_prepend_scheme prepend; /* METASPACE */
    bool cut;                         /* METASPACE: cut before each mark */
    bool boundary;                    /* DIGITS: not in rows that a letter follows */
};

enum { LODE_PRE_MAX = 16 }; /* steps of a tokenizer */

struct lode_pre {
    struct lode_pre_step steps[LODE_PRE_MAX];
    uint32_t n;
    bool cuts_lines; /* a step isolates \\r and \\n */
};

void lode_pre_deinit(struct lode_pre *pre);

/* Working memory of one thread. */
struct lode_pre_run {
    const struct lode_pre *pre;                 /* borrowed */
    struct lode_regex_run *regex[LODE_PRE_MAX]; /* owned */
    struct lode_buf text[LODE_PRE_MAX];         /* owned; what a step wrote */
    int (*sink)(void *ctx, struct lode_str piece);
    void *ctx;
    struct lode_error *err;
};

int lode_pre_run_init(struct lode_pre_run *run, const struct lode_pre *pre, struct lode_error *err);
void lode_pre_run_deinit(struct lode_pre_run *run);

/* Hands the pieces of text to the sink, in order, none of them empty, until it returns a negative
 * number.  first: the text starts here. */
int lode_pre_apply(struct lode_pre_run *run, struct lode_str text, bool first);

#endif
