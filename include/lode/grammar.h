/* grammar.h - output held to a form: JSON Schema, a regular expression, a GBNF grammar.
 *
 * A grammar is compiled once, never changes, and is shared by any number of threads.  A vocabulary
 * is the bytes of a tokenizer's tokens, made once for it, shared too.  A state is one text on its
 * way: it says which tokens may follow and moves on by the one that was chosen; it belongs to one
 * thread at a time.
 *
 *     lode_grammar_compile(&g, LODE_GRAMMAR_SCHEMA, text, len, &err);
 *     lode_grammar_vocab_create(&v, tokenizer, &err);
 *     lode_grammar_state_create(&s, g, v, &err);
 *     lode_grammar_mask(s, mask, &err);                  which tokens may come
 *     id = lode_sampler_next_masked(sampler, logits, mask, position);
 *     lode_grammar_accept(s, id, &err);
 *
 * Each token that a mask allows can be followed by others to a complete text; the end tokens are
 * allowed exactly where the text is complete.  Special tokens never are: they have no text.
 *
 * What a schema cannot have enforced is refused when it is compiled (LODE_ERR_UNSUPPORTED;
 * err.where is the JSON pointer of the keyword, "#/properties/a/uniqueItems"), never ignored.
 * Compiling is bounded in time, memory and depth (LODE_ERR_LIMIT).  docs/structured-output.md says
 * what is enforced, and how.
 */
#ifndef LODE_GRAMMAR_H
#define LODE_GRAMMAR_H

#include "lode/error.h"
#include "lode/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct lode_grammar;
struct lode_grammar_vocab;
struct lode_grammar_state;

enum lode_grammar_kind {
    LODE_GRAMMAR_SCHEMA, /* a JSON Schema, draft 2020-12, as JSON text ({"type": "object"} is
                            OpenAI's json_object) */
    LODE_GRAMMAR_REGEX,  /* ECMA-262; the whole text matches */
    LODE_GRAMMAR_GBNF,   /* llama.cpp's notation; the text is a "root" */
};

LODE_API int lode_grammar_compile(struct lode_grammar **out, enum lode_grammar_kind kind,
                                  const char *text, size_t len, struct lode_error *err);
/* States keep no reference: free them first. */
LODE_API void lode_grammar_free(struct lode_grammar *g);
/* Seconds that compiling took. */
LODE_API double lode_grammar_seconds(const struct lode_grammar *g);
/* Bytes that it takes now.  Masks that were made for it are kept with it, 48 MiB of them at most. */
LODE_API size_t lode_grammar_bytes(const struct lode_grammar *g);
/* Whether no text fits at all ({"not": {}}). */
LODE_API bool lode_grammar_is_empty(const struct lode_grammar *g);

/* Whether a whole text is accepted: for a schema, JSON with any blanks, order of keys and spelling
 * of numbers.  *at: the first byte that is refused, or len where the text ends too soon (unused
 * otherwise).  Negative: an error. */
LODE_API int lode_grammar_check(const struct lode_grammar *g, const char *text, size_t len,
                                bool *accepted, size_t *at, struct lode_error *err);

/* The tokenizer's tokens as bytes. */
LODE_API int lode_grammar_vocab_create(struct lode_grammar_vocab **out,
                                       const struct lode_tokenizer *t, struct lode_error *err);
/* The same from bytes given here: token i is text[i], len[i] bytes (0: never text); copied.  ends:
 * (n_ends) ids that end a text. */
LODE_API int lode_grammar_vocab_from_bytes(struct lode_grammar_vocab **out, const char *const *text,
                                           const size_t *len, uint32_t n, const int32_t *ends,
                                           size_t n_ends, struct lode_error *err);
/* After the states and grammars that it was used with. */
LODE_API void lode_grammar_vocab_free(struct lode_grammar_vocab *v);
LODE_API uint32_t lode_grammar_vocab_size(const struct lode_grammar_vocab *v);
/* A token's bytes, borrowed from v; *len 0: it is never text. */
LODE_API const char *lode_grammar_vocab_bytes(const struct lode_grammar_vocab *v, int32_t id,
                                              size_t *len);

/* Makes masks that a text will ask for early, for so many seconds at most.  The others are made when they are
 * asked for; no mask depends on it. */
LODE_API int lode_grammar_prepare(const struct lode_grammar *g, const struct lode_grammar_vocab *v,
                                  double seconds, struct lode_error *err);

/* At the beginning of a text.  LODE_ERR_ARG where the grammar is empty. */
LODE_API int lode_grammar_state_create(struct lode_grammar_state **out,
                                       const struct lode_grammar *g,
                                       const struct lode_grammar_vocab *v, struct lode_error *err);
LODE_API void lode_grammar_state_free(struct lode_grammar_state *s);
/* An independent copy, rewinding included. */
LODE_API int lode_grammar_state_clone(struct lode_grammar_state **out,
                                      const struct lode_grammar_state *s, struct lode_error *err);
/* To the beginning. */
LODE_API int lode_grammar_state_reset(struct lode_grammar_state *s, struct lode_error *err);

/* Sets bit id % 64 of mask[id / 64] for each token that may follow, clears the rest; mask has
 * (size + 63) / 64 words. */
LODE_API int lode_grammar_mask(struct lode_grammar_state *s, uint64_t *mask,
                               struct lode_error *err);
/* Moves on by a token.  LODE_ERR_ARG, and the state is as it was, where it is not allowed.  An end
 * token is accepted where the text is complete and changes nothing. */
LODE_API int lode_grammar_accept(struct lode_grammar_state *s, int32_t id, struct lode_error *err);
/* The same by bytes; counts as one step for rewinding. */
LODE_API int lode_grammar_accept_bytes(struct lode_grammar_state *s, const char *text, size_t len,
                                       struct lode_error *err);
/* Takes back the last n steps.  LODE_ERR_ARG where there were fewer, or they are too long ago. */
enum { LODE_GRAMMAR_REWIND = 256 };
LODE_API int lode_grammar_rewind(struct lode_grammar_state *s, size_t n, struct lode_error *err);

LODE_API bool lode_grammar_complete(const struct lode_grammar_state *s);
/* What must come now, whatever is chosen: writes up to cap bytes and returns their number (0:
 * nothing is forced).  They may be taken without being sampled. */
LODE_API int64_t lode_grammar_forced(struct lode_grammar_state *s, char *text, size_t cap,
                                     struct lode_error *err);

#ifdef __cplusplus
}
#endif
#endif
