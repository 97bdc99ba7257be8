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

int lode_tok_read_config(struct lode_tokenizer *t, struct lode_str config,
                         struct lode_str generation, struct lode_tok_adds *adds,
                         struct lode_error *err);

#endif
