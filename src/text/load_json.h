/* load_json.h - what the two halves of reading a tokenizer.json share. */
#ifndef LODE_TEXT_LOAD_JSON_H
#define LODE_TEXT_LOAD_JSON_H

#include "text/load.h"
#include "text/tokenizer.h"

struct lode_tok_json {
    struct lode_tokenizer *t;
    struct lode_error *err;
    struct lode_norm_step norms[16];
    uint32_t n_norms;
    bool byte_level; /* a ByteLevel pre-tokenizer: the model's text is bytes */
    bool by_rank;    /* lode_tok_load_json */
};

/* The error of a component that is not known, of one that is wrong. */
int lode_tok_json_unknown(struct lode_tok_json *l, const char *where, struct lode_str type);
int lode_tok_json_invalid(struct lode_tok_json *l, const char *where, const char *what);
/* A string's copy; empty where v is none. */
int lode_tok_json_copy(struct lode_tok_json *l, const struct lode_json *v, struct lode_str *out);

/* The steps, each an object of its "type"; depth: how many Sequences it lies in. The vocabulary
 * must be there before the post-processor, which names tokens. */
int lode_tok_json_norm(struct lode_tok_json *l, const struct lode_json *o, int depth);
int lode_tok_json_pre(struct lode_tok_json *l, const struct lode_json *o, int depth);
int lode_tok_json_decoder(struct lode_tok_json *l, const struct lode_json *o, int depth);
int lode_tok_json_post(struct lode_tok_json *l, const struct lode_json *o, int depth);

#endif
