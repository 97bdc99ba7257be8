/* gguf_write.h - GGUF files to be written: version 3, one file (format/gguf.h draws the layout).
 *
 * First everything is described, keys and tensors in the order they shall have; then the header is
 * written and the numbers follow, tensor by tensor in that order, in pieces of any size.  Memory is
 * the header's; the file appears whole or not at all (base/out_file.h).
 *
 *     struct lode_gguf_writer *w;
 *     LODE_TRY(lode_gguf_writer_create(&w, err));
 *     LODE_TRY(lode_gguf_writer_key(w, "general.architecture", &value, err));
 *     LODE_TRY(lode_gguf_writer_tensor(w, "output.weight", LODE_Q6_K, 2, dims, err));
 *     LODE_TRY(lode_gguf_writer_begin(w, path, err));       lode_gguf_writer_size(w) bytes of room
 *     LODE_TRY(lode_gguf_writer_data(w, rows, n, err));     ...
 *     LODE_TRY(lode_gguf_writer_commit(w, err));
 *     lode_gguf_writer_free(w);                             unless committed, nothing is left
 *
 * Nothing that is passed in is kept.  One thread at a time.
 */
#ifndef LODE_FORMAT_GGUF_WRITE_H
#define LODE_FORMAT_GGUF_WRITE_H

#include "format/gguf.h"

struct lode_gguf_writer;

enum { LODE_GGUF_ALIGN = 32 }; /* of every tensor: the format's default */

int lode_gguf_writer_create(struct lode_gguf_writer **out, struct lode_error *err);
void lode_gguf_writer_free(struct lode_gguf_writer *w);

/* A key that is there already is left as it is.  Values that their type does not hold are an
 * LODE_ERR_ARG; so is general.alignment, which is the writer's.  LODE_ERR_LIMIT beyond what
 * format/gguf.h accepts. */
int lode_gguf_writer_key(struct lode_gguf_writer *w, const char *key,
                         const struct lode_gguf_value *v, struct lode_error *err);
bool lode_gguf_writer_has(const struct lode_gguf_writer *w, const char *key);
/* The common ones in short. */
int lode_gguf_writer_u32(struct lode_gguf_writer *w, const char *key, uint32_t v,
                         struct lode_error *err);
int lode_gguf_writer_str(struct lode_gguf_writer *w, const char *key, const char *v,
                         struct lode_error *err);
int lode_gguf_writer_bool(struct lode_gguf_writer *w, const char *key, bool v,
                          struct lode_error *err);

/* dims: innermost first, 1 to 4 of them. */
int lode_gguf_writer_tensor(struct lode_gguf_writer *w, const char *name, enum lode_dtype type,
                            uint32_t n_dims, const uint64_t *dims, struct lode_error *err);

/* Bytes of the whole file as described so far. */
uint64_t lode_gguf_writer_size(const struct lode_gguf_writer *w);
/* The bytes before the tensors' numbers, appended to out: what lode_gguf_parse reads. */
int lode_gguf_writer_header(const struct lode_gguf_writer *w, struct lode_buf *out,
                            struct lode_error *err);

int lode_gguf_writer_begin(struct lode_gguf_writer *w, const char *path, struct lode_error *err);
/* The next n bytes of the tensors' numbers; what lies between tensors is added here. */
int lode_gguf_writer_data(struct lode_gguf_writer *w, const void *data, size_t n,
                          struct lode_error *err);
/* LODE_ERR_INTERNAL when numbers are missing. */
int lode_gguf_writer_commit(struct lode_gguf_writer *w, struct lode_error *err);

#endif
