/* input.h - what a person hands to the program besides the model: files of text, lists of ids. */
#ifndef LODE_TOOLS_INPUT_H
#define LODE_TOOLS_INPUT_H

#include "lode/error.h"
#include "lode/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

/* The whole of a file ("-": standard input), NUL-terminated, at most `most` bytes (0: 1 GiB).
 * free(*data). */
int input_read(const char *path, size_t most, char **data, size_t *size, struct lode_error *err);

/* Bytes of memory that a file's text and its tokens are to take, to be counted before they are read: a text and
 * as much again for ids of four bytes, of which a token of a text rarely has fewer.  0: not known. */
uint64_t input_size(const char *path);

struct ids {
    int32_t *v; /* (n), owned */
    size_t n;
};

/* "1,2,3", or "@FILE" with numbers as text or an .npy of integers ("@-": standard input). */
int ids_parse(struct ids *out, const char *spec, struct lode_error *err);
/* The ids of a text; flags as lode_tokenize. */
int ids_tokenize(struct ids *out, const struct lode_tokenizer *t, const char *text, size_t len,
                 int flags, struct lode_error *err);
void ids_free(struct ids *ids);

#endif
