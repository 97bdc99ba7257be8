/* load.h - what the loaders share.  Internal to text/. */
#ifndef LODE_TEXT_LOAD_H
#define LODE_TEXT_LOAD_H

#include "base/json.h"
#include "text/tok.h"

/* tokenizer_config.json and generation_config.json, either may be absent ({NULL, 0}): which tokens
 * begin and end a text, and whether the tokenizer adds them (-1: not said). */
struct lode_tok_adds {
    int bos, eos;
};
/* A copy in the tokenizer's arena. */
int lode_tok_copy(struct lode_tokenizer *t, struct lode_str s, struct lode_str *out,
                  struct lode_error *err);

/* What came in files of its own; {NULL, 0} where there is none.  Either ranks, or vocab and merges.
 */
struct lode_tok_parts {
    struct lode_str vocab, merges;      /* vocab.json, merges.txt */
    struct lode_str ranks;              /* tiktoken's lines of base64 and rank */
    struct lode_str added;              /* added_tokens.json */
    struct lode_str config, generation; /* tokenizer_config.json, generation_config.json */
    struct lode_str model_config;       /* config.json: its model_type may be needed */
};
int lode_tokenizer_from_parts(struct lode_tokenizer **out, const struct lode_tok_parts *p,
                              struct lode_error *err);
/* Whether it begins like tiktoken's files. */
bool lode_tok_is_ranks(struct lode_str text);

/* As lode_tokenizer_from_json.  by_rank: there are no merges, neighbours may join when what they
 * spell is a piece, that of the lowest id first (tiktoken). */
int lode_tok_load_json(struct lode_tokenizer **out, struct lode_str json, struct lode_str config,
                       struct lode_str generation, bool by_rank, struct lode_error *err);
/* The bytes of base64 text, at most 3 for 4; their number, or -1: it is none. */
int64_t lode_tok_base64(struct lode_str text, char *out);

int lode_tok_read_config(struct lode_tokenizer *t, struct lode_str config,
                         struct lode_str generation, struct lode_tok_adds *adds,
                         struct lode_error *err);

#endif
