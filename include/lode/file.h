/* file.h - what is inside a model file, without loading it.
 *
 *     struct lode_file *f;
 *     if (lode_file_open(&f, path, &err) < 0) ...
 *     for (size_t i = 0; i < lode_file_n_tensors(f); i++)
 *         puts(lode_file_tensor(f, i).name);
 *     lode_file_close(f);
 *
 * Strings that are returned are borrowed from the file object.
 */
#ifndef LODE_FILE_H
#define LODE_FILE_H

#include "lode/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct lode_file; /* immutable after open; shared by threads */

/* Opens a GGUF file (all shards of a set), or a Hugging Face directory (also by the name ORG/NAME
 * that it has in Hugging Face's cache), shown under GGUF's names; there, offsets and shards of tensors
 * are 0.  Everything is checked here; the accessors below
 * cannot fail.  *out is owned by the caller; NULL on failure. */
LODE_API int lode_file_open(struct lode_file **out, const char *path, struct lode_error *err);
LODE_API void lode_file_close(struct lode_file *f);

LODE_API const char *lode_file_format(const struct lode_file *f); /* "GGUF v3" */
LODE_API const char *lode_file_path(const struct lode_file *f);   /* what was opened */
/* Lines for the user: what is left out or assumed; "" where there is nothing to say. */
LODE_API const char *lode_file_notes(const struct lode_file *f);
LODE_API size_t lode_file_n_shards(const struct lode_file *f);
LODE_API uint64_t lode_file_size(const struct lode_file *f);     /* bytes, all shards */
LODE_API const char *lode_file_arch(const struct lode_file *f);  /* "qwen3"; "" if not said */
LODE_API uint64_t lode_file_n_vocab(const struct lode_file *f);  /* tokens; 0: no vocabulary */
LODE_API uint64_t lode_file_n_params(const struct lode_file *f); /* numbers in all tensors */

struct lode_file_tensor {
    const char *name, *type; /* type: "Q4_K", the same pointer for the same type */
    uint32_t n_dims;
    uint64_t dims[4];      /* innermost first, as in the file; 1 beyond n_dims */
    uint64_t offset, size; /* bytes, within its shard */
    uint32_t shard;
};

/* i < n; beyond, a tensor or key without a name ("") */
LODE_API size_t lode_file_n_tensors(const struct lode_file *f);
LODE_API struct lode_file_tensor lode_file_tensor(const struct lode_file *f, size_t i);

LODE_API size_t lode_file_n_keys(const struct lode_file *f);
LODE_API const char *lode_file_key(const struct lode_file *f, size_t i); /* UTF-8, no controls */
LODE_API const char *lode_file_key_type(const struct lode_file *f, size_t i); /* "u32", "[str]" */

/* The value as text into out, NUL-terminated when cap > 0.
 * full_json: complete JSON, whatever its length.  Bytes that are not UTF-8 become U+FFFD, numbers
 * that JSON cannot write become the strings "NaN", "Infinity" and "-Infinity".  Returns the length
 * of the whole text, as snprintf does; what does not fit is cut off.
 * Otherwise: one line for people; long strings and arrays end in "..." so that all fits.  Returns
 * the length written. */
LODE_API size_t lode_file_value(const struct lode_file *f, size_t i, char *out, size_t cap,
                                bool full_json);

#ifdef __cplusplus
}
#endif
#endif
