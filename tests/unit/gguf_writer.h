/* gguf_writer.h - small GGUF files for tests, right or wrong on purpose.
 *
 *     struct gguf_writer w = {0};
 *     gguf_put_str(&w, "general.architecture", "llama");
 *     gguf_put_u32(&w, "llama.block_count", 2);
 *     gguf_put_tensor(&w, "output_norm.weight", LODE_F32, 1, (uint64_t[]){64}, values);
 *     gguf_write(&w, path);        or  struct lode_buf b = {0}; gguf_finish(&w, &b);
 *     gguf_writer_free(&w);
 *
 * Nothing is checked: duplicate keys, odd types and counts are written as asked.  Out of memory
 * ends the test.
 */
#ifndef LODE_TESTS_GGUF_WRITER_H
#define LODE_TESTS_GGUF_WRITER_H

#include "base/buf.h"
#include "tensor/dtype.h"

#include <stdio.h>
#include <stdlib.h>

struct gguf_writer {
    uint32_t version; /* 0: 3 */
    uint64_t align;   /* of tensor data; 0: 32.  Written as a key only by the test itself */
    uint64_t n_keys, n_tensors;
    struct lode_buf keys, tensors, data;
};

static inline void gguf_bytes(struct lode_buf *b, const void *data, size_t n) {
    if (!lode_buf_add(b, data, n))
        abort();
}
static inline void gguf_u32(struct lode_buf *b, uint32_t v) {
    gguf_bytes(b, &v, sizeof v);
}
static inline void gguf_u64(struct lode_buf *b, uint64_t v) {
    gguf_bytes(b, &v, sizeof v);
}
static inline void gguf_strn(struct lode_buf *b, const char *s, size_t n) {
    gguf_u64(b, n);
    gguf_bytes(b, s, n);
}
static inline void gguf_pad(struct lode_buf *b, uint64_t align) {
    while (b->len % align)
        gguf_bytes(b, "", 1);
}

/* ---- keys: type is the id in the file ---- */

static inline void gguf_put(struct gguf_writer *w, const char *key, uint32_t type,
                            const void *value, size_t n) {
    gguf_strn(&w->keys, key, strlen(key));
    gguf_u32(&w->keys, type);
    gguf_bytes(&w->keys, value, n);
    w->n_keys++;
}

#define GGUF_PUT(name, ctype, id)                                                                  \
    static inline void gguf_put_##name(struct gguf_writer *w, const char *key, ctype v) {          \
        gguf_put(w, key, id, &v, sizeof v);                                                        \
    }
GGUF_PUT(u8, uint8_t, 0)
GGUF_PUT(i8, int8_t, 1)
GGUF_PUT(u16, uint16_t, 2)
GGUF_PUT(i16, int16_t, 3)
GGUF_PUT(u32, uint32_t, 4)
GGUF_PUT(i32, int32_t, 5)
GGUF_PUT(f32, float, 6)
GGUF_PUT(bool, bool, 7)
GGUF_PUT(u64, uint64_t, 10)
GGUF_PUT(i64, int64_t, 11)
GGUF_PUT(f64, double, 12)
#undef GGUF_PUT

static inline void gguf_put_str(struct gguf_writer *w, const char *key, const char *value) {
    struct lode_buf b = {0};
    gguf_strn(&b, value, strlen(value));
    gguf_put(w, key, 8, b.data, b.len);
    lode_buf_free(&b);
}

/* n elements of the type with this id that lie in value (bytes in all). */
static inline void gguf_put_array(struct gguf_writer *w, const char *key, uint32_t type, uint64_t n,
                                  const void *value, size_t bytes) {
    struct lode_buf b = {0};
    gguf_u32(&b, type);
    gguf_u64(&b, n);
    gguf_bytes(&b, value, bytes);
    gguf_put(w, key, 9, b.data, b.len);
    lode_buf_free(&b);
}

static inline void gguf_put_strs(struct gguf_writer *w, const char *key, uint64_t n,
                                 const char *const *values) {
    struct lode_buf b = {0};
    for (uint64_t i = 0; i < n; i++)
        gguf_strn(&b, values[i], strlen(values[i]));
    gguf_put_array(w, key, 8, n, b.data ? b.data : "", b.len);
    lode_buf_free(&b);
}

/* ---- tensors ---- */

/* A record as it stands; no data. */
static inline void gguf_put_record(struct gguf_writer *w, const char *name, uint32_t type,
                                   uint32_t n_dims, const uint64_t *dims, uint64_t offset) {
    gguf_strn(&w->tensors, name, strlen(name));
    gguf_u32(&w->tensors, n_dims);
    for (uint32_t d = 0; d < n_dims; d++)
        gguf_u64(&w->tensors, dims[d]);
    gguf_u32(&w->tensors, type);
    gguf_u64(&w->tensors, offset);
    w->n_tensors++;
}

/* A tensor after those before it; data NULL: zeros. */
static inline void gguf_put_tensor(struct gguf_writer *w, const char *name, enum lode_dtype type,
                                   uint32_t n_dims, const uint64_t *dims, const void *data) {
    size_t size;
    if (!lode_dtype_row_size(type, n_dims ? dims[0] : 1, &size))
        abort();
    for (uint32_t d = 1; d < n_dims; d++)
        size *= dims[d];
    gguf_pad(&w->data, w->align ? w->align : 32);
    gguf_put_record(w, name, lode_dtypes[type].id, n_dims, dims, w->data.len);
    if (!lode_buf_reserve(&w->data, size))
        abort();
    if (data)
        gguf_bytes(&w->data, data, size);
    else
        for (size_t i = 0; i < size; i++)
            gguf_bytes(&w->data, "", 1);
}

/* The whole file, appended to out. */
static inline void gguf_finish(const struct gguf_writer *w, struct lode_buf *out) {
    gguf_bytes(out, "GGUF", 4);
    gguf_u32(out, w->version ? w->version : 3);
    gguf_u64(out, w->n_tensors);
    gguf_u64(out, w->n_keys);
    gguf_bytes(out, w->keys.data, w->keys.len);
    gguf_bytes(out, w->tensors.data, w->tensors.len);
    if (w->n_tensors > 0)
        gguf_pad(out, w->align ? w->align : 32);
    gguf_bytes(out, w->data.data, w->data.len);
}

static inline void gguf_write(const struct gguf_writer *w, const char *path) {
    struct lode_buf b = {0};
    gguf_finish(w, &b);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(b.data, 1, b.len, f) != b.len || fclose(f) != 0) {
        perror(path);
        abort();
    }
    lode_buf_free(&b);
}

static inline void gguf_writer_free(struct gguf_writer *w) {
    lode_buf_free(&w->keys);
    lode_buf_free(&w->tensors);
    lode_buf_free(&w->data);
    *w = (struct gguf_writer){0};
}

#endif
