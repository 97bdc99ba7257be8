/* tokenizer.h - text <-> token ids.
 *
 * A tokenizer is immutable and may be shared by threads.  It comes with a model
 * (lode_model_tokenizer) or from a file: a GGUF (a vocabulary alone is enough), a tokenizer.json,
 * a tokenizer.model (sentencepiece's or tiktoken's), a vocab.json with its merges.txt, or a directory
 * that holds one of them (ORG/NAME: in Hugging Face's cache).
 */
#ifndef LODE_TOKENIZER_H
#define LODE_TOKENIZER_H

#include "lode/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct lode_tokenizer;

LODE_API int lode_tokenizer_load(struct lode_tokenizer **out, const char *path,
                                 struct lode_error *err);
LODE_API void lode_tokenizer_free(struct lode_tokenizer *t);

enum lode_tokenize_flags {
    LODE_TOK_SPECIAL = 1, /* add BOS and EOS as the model wants them */
    LODE_TOK_PARSE = 2,   /* special tokens written in the text become their ids */
};

/* Writes up to cap ids and returns how many there are (more than cap: call again with room);
 * negative: an error.  ids may be NULL when cap is 0.  Text that is not valid UTF-8 is taken as if
 * each maximal invalid part were U+FFFD.  At most 1 GiB at once. */
LODE_API int64_t lode_tokenize(const struct lode_tokenizer *t, const char *text, size_t len,
                               int flags, int32_t *ids, size_t cap, struct lode_error *err);

/* The text of ids as the reference's decode gives it; as lode_tokenize about sizes (bytes, no NUL
 * is added).  skip_special leaves special tokens out.  Ids outside the vocabulary are an error.
 * Bytes that are not valid UTF-8 come out as U+FFFD, as in the reference. */
LODE_API int64_t lode_detokenize(const struct lode_tokenizer *t, const int32_t *ids, size_t n,
                                 bool skip_special, char *text, size_t cap,
                                 struct lode_error *err);

/* Streaming: hands out each token's text as soon as it can no longer change; one that ends within
 * a character, or in U+FFFD, waits for the next.  What all calls together give equals
 * lode_detokenize of all ids. */
struct lode_detok;
LODE_API int lode_detok_create(struct lode_detok **out, const struct lode_tokenizer *t,
                               bool skip_special, struct lode_error *err);
LODE_API void lode_detok_free(struct lode_detok *d);
LODE_API void lode_detok_reset(struct lode_detok *d);
/* *text is borrowed until the next call; it may be empty. */
LODE_API int lode_detok_push(struct lode_detok *d, int32_t id, const char **text, size_t *len,
                             struct lode_error *err);
LODE_API int lode_detok_finish(struct lode_detok *d, const char **text, size_t *len,
                               struct lode_error *err);

struct lode_token_info {
    const char *piece; /* as the vocabulary spells it; borrowed */
    size_t piece_len;
    bool special; /* control tokens, and added tokens marked special */
    bool byte;    /* a byte-fallback token */
};
LODE_API int lode_token_info(const struct lode_tokenizer *t, int32_t id,
                             struct lode_token_info *info);
LODE_API uint32_t lode_tokenizer_size(const struct lode_tokenizer *t);
LODE_API const char *lode_tokenizer_kind(const struct lode_tokenizer *t); /* "bpe", "spm", ... */

/* Ids, or -1 where the model has none. */
LODE_API int32_t lode_tokenizer_bos(const struct lode_tokenizer *t);
LODE_API int32_t lode_tokenizer_eos(const struct lode_tokenizer *t);
LODE_API bool lode_tokenizer_adds_bos(const struct lode_tokenizer *t);
LODE_API bool lode_tokenizer_is_end(const struct lode_tokenizer *t, int32_t id); /* EOS, EOT, ... */
/* The id whose piece is exactly this text, -1 if none. */
LODE_API int32_t lode_tokenizer_find(const struct lode_tokenizer *t, const char *piece);

#ifdef __cplusplus
}
#endif
#endif
