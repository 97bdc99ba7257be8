/* source.h - where a model comes from: a GGUF file, or a Hugging Face directory.
 *
 * Everything above reads a model by GGUF's names and values, whatever lies on the disk: keys
 * ("llama.block_count"), tensors ("blk.0.attn_q.weight").  A GGUF file is that already; a directory
 * is translated while it is opened (format/hf.h).  Opening checks; after that a source never
 * changes, any thread may use it, and the accessors cannot fail.
 *
 *     struct lode_source *s;
 *     LODE_TRY(lode_source_open(&s, path, true, err));
 *     if (!lode_source_arch_u32(s, "block_count", &n_layers)) ...
 *     const struct lode_gguf_tensor *t = lode_source_tensor(s, "output.weight");
 *     const void *rows = lode_source_data(s, t, 0, n);   NULL: not there as described; read it
 *     ...
 *     LODE_TRY(lode_source_check(s, err));
 *     lode_source_close(s);
 */
#ifndef LODE_FORMAT_SOURCE_H
#define LODE_FORMAT_SOURCE_H

#include "format/gguf.h"
#include "format/held.h"

struct lode_source_ops;

struct lode_source {
    const struct lode_source_ops *ops;
    const char *path, *arch;                /* owned by the source; arch: "" when not said */
    char format[24];                        /* "GGUF v3" */
    const struct lode_gguf_kv *keys;        /* (n_keys), in the order of the file */
    const struct lode_gguf_tensor *tensors; /* (n_tensors); shard and offset mean nothing here */
    size_t n_keys, n_tensors, n_files;
    uint64_t size;   /* bytes of the files */
    bool half_order; /* rotary pairs of q and k are (i, i + n / 2), not (2i, 2i + 1), wherever the
                        architecture's GGUF files have the latter */
    const struct lode_gguf *gguf; /* NULL: it is no GGUF file */
    const char
        *notes; /* lines for the user: what is left out or assumed; "" where there are none */
};

struct lode_place {                  /* bytes of a file */
    const struct lode_in_file *file; /* the source's; one pointer a file */
    uint64_t offset;
    uint64_t record; /* the bytes lie in [record, record + record_size), whose XXH3 is sum; */
    size_t record_size; /* 0: nobody noted it */
    uint64_t sum;
};

struct lode_source_ops {
    const struct lode_gguf_value *(*find)(const struct lode_source *s, const char *key);
    const struct lode_gguf_tensor *(*tensor)(const struct lode_source *s, const char *name);
    const void *(*data)(const struct lode_source *s, const struct lode_gguf_tensor *t,
                        size_t offset, size_t n);
    int (*read)(const struct lode_source *s, const struct lode_gguf_tensor *t, size_t offset,
                void *out, size_t n, struct lode_error *err);
    const uint32_t *(*order)(const struct lode_source *s, const struct lode_gguf_tensor *t);
    bool (*place)(const struct lode_source *s, const struct lode_gguf_tensor *t, size_t offset,
                  size_t n, struct lode_place *out);
    int (*check)(const struct lode_source *s, struct lode_error *err);
    void (*forget)(const struct lode_source *s);
    void (*close)(struct lode_source *s);
    /* These two may be NULL where all is in one piece. */
    uint32_t (*stretches)(const struct lode_source *s, const struct lode_gguf_tensor *t, size_t offset,
                          size_t n, struct lode_stretch *out, uint32_t most);
    int (*read_held)(const struct lode_source *s, const struct lode_gguf_tensor *t, size_t offset,
                     void *out, size_t n, const struct lode_held *held, struct lode_error *err);
    /* NULL: nobody may ask. */
    const struct lode_in_file *(*file)(const struct lode_source *s, size_t i);
};

/* path: a GGUF file (any of a set), a directory with config.json and safetensors or with one GGUF
 * model, or either by its name in Hugging Face's cache (base/hub.h).  map: map the files where the
 * system can. */
int lode_source_open(struct lode_source **out, const char *path, bool map, struct lode_error *err);
void lode_source_close(struct lode_source *s);

/* As lode_gguf_NAME and lode_gguf_arch_NAME. */
#define LODE_SOURCE_DECLARE(name, type)                                                            \
    bool lode_source_##name(const struct lode_source *s, const char *key, type *out);              \
    bool lode_source_arch_##name(const struct lode_source *s, const char *key, type *out);
LODE_GGUF_GETTER_LIST(LODE_SOURCE_DECLARE)
#undef LODE_SOURCE_DECLARE

const struct lode_gguf_value *lode_source_find(const struct lode_source *s, const char *key);
/* Tokens in the vocabulary: ARCH.vocab_size or the length of tokenizer.ggml.tokens; 0: neither. */
uint64_t lode_source_n_vocab(const struct lode_source *s);
/* The error for a key that a getter refused, as lode_gguf_arch_fail_key. */
int lode_source_arch_fail_key(const struct lode_source *s, const char *key, const char *expected,
                              struct lode_error *err);

const struct lode_gguf_tensor *lode_source_tensor(const struct lode_source *s, const char *name);
/* The mapped bytes [offset, offset + n) of the tensor; NULL when they must be read: not mapped, or
 * not there in the form described. */
const void *lode_source_data(const struct lode_source *s, const struct lode_gguf_tensor *t,
                             size_t offset, size_t n);
/* Bytes [offset, offset + n) of the tensor; any thread.  LODE_ERR_IO, _NOMEM. */
int lode_source_read(const struct lode_source *s, const struct lode_gguf_tensor *t, size_t offset,
                     void *out, size_t n, struct lode_error *err);
/* (dims[0]) where the columns of a matrix are in another order than its input (GPTQ's desc_act):
 * column j is for number order[j]; NULL: they are as they should be. */
const uint32_t *lode_source_order(const struct lode_source *s, const struct lode_gguf_tensor *t);
/* Where bytes [offset, offset + n) lie in one piece; false: nowhere, they are put together. */
bool lode_source_place(const struct lode_source *s, const struct lode_gguf_tensor *t, size_t offset,
                       size_t n, struct lode_place *out);
/* What of the files bytes [offset, offset + n) are made of; returns how many stretches, 0: it is not
 * known, or more than `most`. */
uint32_t lode_source_stretches(const struct lode_source *s, const struct lode_gguf_tensor *t,
                               size_t offset, size_t n, struct lode_stretch *out, uint32_t most);
/* As lode_source_read, but what is held is not read. */
int lode_source_read_held(const struct lode_source *s, const struct lode_gguf_tensor *t, size_t offset,
                          void *out, size_t n, const struct lode_held *held, struct lode_error *err);
/* The i-th of n_files that hold weights, open as long as the source is; NULL: it was parsed from memory, or is
 * packed. */
const struct lode_in_file *lode_source_file(const struct lode_source *s, size_t i);
/* LODE_ERR_IO when mapped bytes could not be read since opening (base/sigbus.h). */
int lode_source_check(const struct lode_source *s, struct lode_error *err);
/* What the page cache has of the files is given up, and comes again when it is used. */
void lode_source_forget(const struct lode_source *s);

#endif
