/* tokenizer.h - making tokenizers from what other parts of the library have read.
 *
 * All of these copy what they need.  Errors name the key or the place in the file.
 */
#ifndef LODE_TEXT_TOKENIZER_H
#define LODE_TEXT_TOKENIZER_H

#include "lode/tokenizer.h"

#include "base/buf.h"

struct lode_gguf;
struct lode_gguf_writer;

/* From the metadata keys tokenizer.ggml.*. */
int lode_tokenizer_from_gguf(struct lode_tokenizer **out, const struct lode_gguf *g,
                             struct lode_error *err);

/* From the contents of tokenizer.json, with those of tokenizer_config.json and
 * generation_config.json beside it ({NULL, 0} where there are none). */
int lode_tokenizer_from_json(struct lode_tokenizer **out, struct lode_str json,
                             struct lode_str config, struct lode_str generation,
                             struct lode_error *err);

/* From the contents of tokenizer.model (a sentencepiece ModelProto), the rest as above. */
int lode_tokenizer_from_spm(struct lode_tokenizer **out, struct lode_str model,
                            struct lode_str config, struct lode_str generation,
                            struct lode_error *err);

/* The other way: the keys tokenizer.ggml.* that make the same tokenizer (save_gguf.c), with unused
 * pieces behind the last up to n_vocab of them.  *note: what GGUF cannot say and a text would have to
 * be unusual to show, or NULL.  LODE_ERR_UNSUPPORTED where the ids of a probe would come out
 * differently. */
int lode_tokenizer_save(const struct lode_tokenizer *t, uint64_t n_vocab, struct lode_gguf_writer *w,
                        const char **note, struct lode_error *err);

#endif
