/* gguf.h - GGUF files: metadata and described tensors.
 *
 * GGUF v2 and v3, single files and sets of shards (NAME-00001-of-00003.gguf).  Opening checks
 * everything a file can get wrong, except what the numbers mean to a model; after that the object
 * never changes, any thread may use it, and the accessors cannot fail.  The format is written down
 * in the ggml project's docs/gguf.md; layouts below are facts from there.
 *
 *     file    "GGUF" u32 version, u64 n_tensors, u64 n_kv, n_kv x kv, n_tensors x tensor,
 *             padding to general.alignment (32), tensor data
 *     kv      str key, u32 type, value
 *     tensor  str name, u32 n_dims, n_dims x u64 dim (innermost first), u32 type, u64 offset in
 * data str     u64 length, bytes (no NUL) array   u32 element type, u64 count, elements
 *
 *     struct lode_gguf *g;
 *     LODE_TRY(lode_gguf_open(&g, path, err));
 *     uint32_t n_layers;
 *     if (!lode_gguf_arch_u32(g, "block_count", &n_layers))
 *         return lode_gguf_arch_fail_key(g, "block_count", "a count", err);
 *     const struct lode_gguf_tensor *t = lode_gguf_find_tensor(g, "output.weight");
 *     const void *rows = lode_gguf_data(g, t);     borrowed from the mapping
 *     ...
 *     LODE_TRY(lode_gguf_check(g, err));           were the mapped bytes really there?
 *     lode_gguf_close(g);
 *
 * The header is read into memory, not used from the mapping, so a file that shrinks later cannot
 * take the metadata away.  Memory: the header's bytes plus 16 bytes a string and about 100 a key
 * or tensor.
 */
#ifndef LODE_FORMAT_GGUF_H
#define LODE_FORMAT_GGUF_H

#include "base/buf.h"
#include "base/file.h"
#include "lode/error.h"
#include "tensor/dtype.h"

struct lode_gguf;

/* What lode accepts, far above what any known file has. */
enum {
    LODE_GGUF_MAX_DIMS = 4,
    LODE_GGUF_MAX_DEPTH = 4,          /* arrays within arrays */
    LODE_GGUF_MAX_KEY = 65535,        /* bytes; the format's own limit */
    LODE_GGUF_MAX_NAME = 255,         /* bytes of a tensor's name; the format says 64 */
    LODE_GGUF_MAX_ALIGN = 1 << 21,    /* from 8; powers of two */
    LODE_GGUF_MAX_HEADER = 256 << 20, /* bytes of one shard before its tensor data */
    LODE_GGUF_MAX_KEYS = 1 << 16,
    LODE_GGUF_MAX_TENSORS = 1 << 20, /* in all shards */
    LODE_GGUF_MAX_SHARDS = 1024,
};

/* Opens path and, where it is one of a set (any one), all the others, and maps them.  Where the
 * system cannot map, the tensors are still there for lode_gguf_read.  *out is owned by the caller;
 * NULL on failure. */
int lode_gguf_open(struct lode_gguf **out, const char *path, struct lode_error *err);
/* As lode_gguf_open, but maps nothing. */
int lode_gguf_open_unmapped(struct lode_gguf **out, const char *path, struct lode_error *err);
/* Parses the header of a single file that lies in memory; the tensor data need not be there, and
 * lode_gguf_data gives NULL.  data is borrowed and must outlive the object. */
int lode_gguf_parse(struct lode_gguf **out, const void *data, size_t len, struct lode_error *err);
void lode_gguf_close(struct lode_gguf *g);

uint32_t lode_gguf_version(const struct lode_gguf *g);
const char *lode_gguf_path(const struct lode_gguf *g); /* of the first shard; "" when parsed */

/* ---- metadata ---- */

/*    name   id  bytes; the type's name in C and in messages */
#define LODE_GGUF_TYPE_LIST(X)                                                                     \
    X(U8, 0, 1, "u8")                                                                              \
    X(I8, 1, 1, "i8")                                                                              \
    X(U16, 2, 2, "u16")                                                                            \
    X(I16, 3, 2, "i16")                                                                            \
    X(U32, 4, 4, "u32")                                                                            \
    X(I32, 5, 4, "i32")                                                                            \
    X(F32, 6, 4, "f32")                                                                            \
    X(BOOL, 7, 1, "bool")                                                                          \
    X(STR, 8, 0, "str")                                                                            \
    X(ARRAY, 9, 0, "array")                                                                        \
    X(U64, 10, 8, "u64")                                                                           \
    X(I64, 11, 8, "i64")                                                                           \
    X(F64, 12, 8, "f64")

enum lode_gguf_type {
#define LODE_GGUF_ENUM(name, id, bytes, text) LODE_GGUF_##name = id,
    LODE_GGUF_TYPE_LIST(LODE_GGUF_ENUM)
#undef LODE_GGUF_ENUM
        LODE_GGUF_TYPE_COUNT
};

const char *lode_gguf_type_name(enum lode_gguf_type t); /* "u32" */

struct lode_gguf_array {
    enum lode_gguf_type type; /* of the elements */
    size_t n;
    union {
        const void *raw;                      /* numbers and bools: little-endian, any alignment */
        const struct lode_str *strs;          /* STR */
        const struct lode_gguf_array *arrays; /* ARRAY */
    };
};

struct lode_gguf_value {
    enum lode_gguf_type type;
    union {
        uint64_t u; /* U8 U16 U32 U64 BOOL */
        int64_t i;  /* I8 I16 I32 I64 */
        double f;   /* F32 F64 */
        struct lode_str s;
        struct lode_gguf_array a;
    };
};

struct lode_gguf_kv {
    const char *key; /* NUL-terminated; UTF-8 without control characters */
    struct lode_gguf_value value;
};

/* In the order of the file.  Of a sharded set: those of the first shard. */
size_t lode_gguf_n_keys(const struct lode_gguf *g);
const struct lode_gguf_kv *lode_gguf_key(const struct lode_gguf *g, size_t i);
const struct lode_gguf_value *lode_gguf_find(const struct lode_gguf *g, const char *key);

/* general.architecture, or "" when absent. */
const char *lode_gguf_arch(const struct lode_gguf *g);

/* Tokens in the vocabulary: ARCH.vocab_size or the length of tokenizer.ggml.tokens; 0: neither. */
uint64_t lode_gguf_n_vocab(const struct lode_gguf *g);

/* name(g, key, out): true and *out when the key is there and its value fits; else false and *out
 * is left alone.  Integers of any width convert when in range, also to f32 and f64; f32 and f64 to
 * one another; bool and str only from themselves; array gives any array.
 * name with arch_: the key is prefixed by the architecture's name and a dot. */
#define LODE_GGUF_GETTER_LIST(X)                                                                   \
    X(u32, uint32_t)                                                                               \
    X(i32, int32_t)                                                                                \
    X(u64, uint64_t)                                                                               \
    X(i64, int64_t)                                                                                \
    X(f32, float)                                                                                  \
    X(f64, double)                                                                                 \
    X(bool, bool)                                                                                  \
    X(str, struct lode_str)                                                                        \
    X(array, const struct lode_gguf_array *)

#define LODE_GGUF_DECLARE(name, type)                                                              \
    bool lode_gguf_##name(const struct lode_gguf *g, const char *key, type *out);                  \
    bool lode_gguf_arch_##name(const struct lode_gguf *g, const char *key, type *out);
LODE_GGUF_GETTER_LIST(LODE_GGUF_DECLARE)
#undef LODE_GGUF_DECLARE

/* The same conversions of a value. */
#define LODE_GGUF_DECLARE(name, type)                                                              \
    bool lode_gguf_value_##name(const struct lode_gguf_value *v, type *out);
LODE_GGUF_GETTER_LIST(LODE_GGUF_DECLARE)
#undef LODE_GGUF_DECLARE

/* Element i < a->n as a value of its own. */
struct lode_gguf_value lode_gguf_element(const struct lode_gguf_array *a, size_t i);
/* Elements as 64-bit numbers; i < a->n.  Bools are 0 and 1; strings and arrays give 0. */
int64_t lode_gguf_array_i64(const struct lode_gguf_array *a, size_t i); /* u64 above 2^63 wraps */
double lode_gguf_array_f64(const struct lode_gguf_array *a, size_t i);

/* The error for a key that a getter refused: absent, or not what was expected ("a count").
 * LODE_ERR_MISSING or LODE_ERR_FORMAT. */
int lode_gguf_fail_key(const struct lode_gguf *g, const char *key, const char *expected,
                       struct lode_error *err);
int lode_gguf_arch_fail_key(const struct lode_gguf *g, const char *key, const char *expected,
                            struct lode_error *err);

/* The same for the value of a key, NULL when absent, of the file at path. */
int lode_gguf_fail_value(const char *path, const char *key, const struct lode_gguf_value *v,
                         const char *expected, struct lode_error *err);

/* ---- tensors ---- */

struct lode_gguf_tensor {
    const char *name; /* NUL-terminated; UTF-8 without control characters */
    enum lode_dtype type;
    uint32_t n_dims, shard;
    uint64_t dims[LODE_GGUF_MAX_DIMS]; /* innermost first; 1 beyond n_dims */
    uint64_t offset;                   /* from the start of the shard's file */
    size_t size;                       /* bytes */
};

/* In the order of the file, shard by shard. */
size_t lode_gguf_n_tensors(const struct lode_gguf *g);
const struct lode_gguf_tensor *lode_gguf_tensor(const struct lode_gguf *g, size_t i);
const struct lode_gguf_tensor *lode_gguf_find_tensor(const struct lode_gguf *g, const char *name);

/* The tensor's bytes in the mapping, aligned to general.alignment (8 or more) within the file;
 * NULL when the file is not mapped. */
const void *lode_gguf_data(const struct lode_gguf *g, const struct lode_gguf_tensor *t);
/* Bytes [offset, offset + n) of the tensor, by plain reads; any thread.  LODE_ERR_IO. */
int lode_gguf_read(const struct lode_gguf *g, const struct lode_gguf_tensor *t, size_t offset,
                   void *out, size_t n, struct lode_error *err);

size_t lode_gguf_n_shards(const struct lode_gguf *g);
/* For hints, sizes and paths; NULL when parsed from memory. */
const struct lode_in_file *lode_gguf_file(const struct lode_gguf *g, size_t shard);
/* LODE_ERR_IO when bytes of a mapped shard could not be read since opening (base/sigbus.h). */
int lode_gguf_check(const struct lode_gguf *g, struct lode_error *err);
void lode_gguf_forget(const struct lode_gguf *g); /* base/file.h */

#endif
