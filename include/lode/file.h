/* file.h - what is inside a model file, without loading it. */
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

/* Opens a GGUF file (all shards of a set).  Everything is checked here; the accessors below
 * cannot fail. */
LODE_API int lode_file_open(struct lode_file **out, const char *path, struct lode_error *err);
LODE_API void lode_file_close(struct lode_file *f);

struct lode_file_tensor {
    const char *name, *type; /* type: "Q4_K" */
    uint32_t n_dims;
    uint64_t dims[4]; /* innermost first, as in the file */
    uint64_t offset, size; /* bytes, within its shard */
    uint32_t shard;
};

LODE_API const char *lode_file_format(const struct lode_file *f); /* "GGUF v3" */
LODE_API size_t lode_file_n_tensors(const struct lode_file *f);
LODE_API struct lode_file_tensor lode_file_tensor(const struct lode_file *f, size_t i);
LODE_API size_t lode_file_n_keys(const struct lode_file *f);
LODE_API const char *lode_file_key(const struct lode_file *f, size_t i);
LODE_API const char *lode_file_key_type(const struct lode_file *f, size_t i); /* "u32", "[str]" */
/* The value as JSON text into out (at most cap bytes with the NUL; long arrays and strings are cut
 * to fit, ending in "..."); returns the length written. */
LODE_API size_t lode_file_value(const struct lode_file *f, size_t i, char *out, size_t cap,
                                bool full_json);

#ifdef __cplusplus
}
#endif
#endif
