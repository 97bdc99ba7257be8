/* safetensors.h - files of named arrays, and sets of them.
 *
 *     file    u64 n, n bytes of JSON, data
 *     JSON    {"NAME": {"dtype": "BF16", "shape": [rows, cols], "data_offsets": [begin, end]}, ...,
 *              "__metadata__": {"key": "value"}}         offsets from the start of the data
 *
 * Opening checks everything: the header's size (at most 100 MB), every type, shape and size, that
 * the arrays fill the data without holes or overlaps, that no name comes twice.  After that the
 * object never changes, any thread may use it, and the accessors cannot fail.  The format is
 * written down in the safetensors project's README.
 *
 *     struct lode_st *st;
 *     LODE_TRY(lode_st_open(&st, "DIR", true, err));      model.safetensors, or a set by its index
 *     const struct lode_st_tensor *t = lode_st_find(st, "lm_head.weight");
 *     const void *rows = lode_st_data(st, t);             borrowed from the mapping; any alignment
 *     ...
 *     LODE_TRY(lode_st_check(st, err));                   were the mapped bytes really there?
 *     lode_st_close(st);
 */
#ifndef LODE_FORMAT_SAFETENSORS_H
#define LODE_FORMAT_SAFETENSORS_H

#include "format/held.h"
#include "base/file.h"

struct lode_st;

enum {
    LODE_ST_MAX_HEADER = 100000000, /* bytes; the format's own limit */
    LODE_ST_MAX_DIMS = 8,
    LODE_ST_MAX_NAME = 511,
    LODE_ST_MAX_TENSORS = 1 << 20, /* in all shards */
    LODE_ST_MAX_SHARDS = 1024,
};

/*    name, bits of a number */
#define LODE_ST_TYPE_LIST(X)                                                                       \
    X(BOOL, 8)                                                                                     \
    X(U8, 8)                                                                                       \
    X(I8, 8)                                                                                       \
    X(F8_E5M2, 8)                                                                                  \
    X(F8_E4M3, 8)                                                                                  \
    X(F8_E8M0, 8)                                                                                  \
    X(F4, 4)                                                                                       \
    X(F6_E2M3, 6)                                                                                  \
    X(F6_E3M2, 6)                                                                                  \
    X(I16, 16)                                                                                     \
    X(U16, 16)                                                                                     \
    X(F16, 16)                                                                                     \
    X(BF16, 16)                                                                                    \
    X(I32, 32)                                                                                     \
    X(U32, 32)                                                                                     \
    X(F32, 32)                                                                                     \
    X(F64, 64)                                                                                     \
    X(I64, 64)                                                                                     \
    X(U64, 64)                                                                                     \
    X(C64, 64)

enum lode_st_type {
#define LODE_ST_ENUM(name, bits) LODE_ST_##name,
    LODE_ST_TYPE_LIST(LODE_ST_ENUM)
#undef LODE_ST_ENUM
        LODE_ST_TYPE_COUNT
};

const char *lode_st_type_name(enum lode_st_type t); /* "BF16" */

struct lode_st_tensor {
    const char *name; /* NUL-terminated; UTF-8 without control characters */
    enum lode_st_type type;
    uint32_t n_dims, shard;
    uint64_t dims[LODE_ST_MAX_DIMS]; /* outermost first; 1 beyond n_dims */
    uint64_t offset;                 /* from the start of the shard's file */
    size_t size;                     /* bytes */
};

/* The arrays of a directory: those of model.safetensors.index.json where there is one, else of
 * model.safetensors.  An index may name files of its own directory only; a file that is missing is
 * named.  map: map the files (where the system cannot, lode_st_read still works). */
int lode_st_open(struct lode_st **out, const char *dir, bool map, struct lode_error *err);
/* One file that lies in memory, without its data: file_size is that of the whole file. */
int lode_st_parse(struct lode_st **out, const void *data, size_t len, uint64_t file_size,
                  struct lode_error *err);
void lode_st_close(struct lode_st *st);

/* Shard by shard, in the order of the data. */
size_t lode_st_n_tensors(const struct lode_st *st);
const struct lode_st_tensor *lode_st_tensor(const struct lode_st *st, size_t i); /* NULL beyond */
const struct lode_st_tensor *lode_st_find(const struct lode_st *st, const char *name);

/* NULL when the file is not mapped. */
const void *lode_st_data(const struct lode_st *st, const struct lode_st_tensor *t);
/* Bytes [offset, offset + n) of the array, by plain reads; any thread. */
int lode_st_read(const struct lode_st *st, const struct lode_st_tensor *t, size_t offset, void *out,
                 size_t n, struct lode_error *err);

/* The same, from memory where `held` has them all; NULL: it has none. */
struct lode_st_from {
    const struct lode_st *st;
    const struct lode_held *held;
};
int lode_st_read_from(const struct lode_st_from *from, const struct lode_st_tensor *t, size_t offset,
                      void *out, size_t n, struct lode_error *err);

size_t lode_st_n_shards(const struct lode_st *st);
/* NULL beyond, and of what was parsed from memory. */
const struct lode_in_file *lode_st_file(const struct lode_st *st, size_t shard);
uint64_t lode_st_file_size(const struct lode_st *st); /* of all shards */
/* LODE_ERR_IO when bytes of a mapped shard could not be read since opening (base/sigbus.h). */
int lode_st_check(const struct lode_st *st, struct lode_error *err);
void lode_st_forget(const struct lode_st *st); /* base/file.h */

#endif
