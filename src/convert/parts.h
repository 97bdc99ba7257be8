/* parts.h - inside of lode/convert.h: a conversion that has been decided. */
#ifndef LODE_CONVERT_PARTS_H
#define LODE_CONVERT_PARTS_H

#include "base/arena.h"
#include "base/threads.h"
#include "convert/mix.h"
#include "format/gguf_write.h"
#include "format/source.h"
#include "lode/convert.h"

struct lode_imatrix;
struct lode_tokenizer;

/* What happens to one tensor. */
struct lode_convert_step {
    const struct lode_gguf_tensor *t; /* in the source */
    enum lode_dtype to;
    uint32_t head_dim,
        n_pairs; /* n_pairs > 0: rows go from rotary order (i, i + n) to (2i, 2i + 1) */
    bool fallback;
    const float *weights; /* of the columns, (matrices, n_cols) in the imatrix, or NULL */
};

enum { LODE_CONVERT_MAX_NOTES = 8 };

struct lode_convert {
    struct lode_source *source;       /* owned, as all below */
    struct lode_tokenizer *tokenizer; /* of a directory; NULL: none, or the keys have it */
    struct lode_imatrix *imatrix;     /* or NULL */
    struct lode_gguf_writer *writer;
    struct lode_pool *pool;
    struct lode_arena arena;
    struct lode_convert_step *steps; /* (source->n_tensors), in the order of the file */
    const struct lode_mix *mix;      /* NULL: types stay */
    struct lode_convert_info info;
    const char *notes[LODE_CONVERT_MAX_NOTES]; /* static, or in the arena */
    size_t n_notes;
    bool written;
};

void lode_convert_say(struct lode_convert *c, const char *note); /* NULL is fine */

/* keys.c: the metadata. */
int lode_convert_keys(struct lode_convert *c, const struct lode_convert_opts *o,
                      struct lode_error *err);

/* rows.c: the numbers of one tensor, to the writer.  done: bytes of the source before it. */
struct lode_convert_stream {
    struct lode_convert *c;
    lode_progress_fn *progress;
    void *user;
    uint64_t done;
};
int lode_convert_rows(struct lode_convert_stream *s, const struct lode_convert_step *step,
                      struct lode_error *err);

#endif
