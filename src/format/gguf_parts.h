/* gguf_parts.h - inside of format/gguf.h: one parsed header, and the object made of them. */
#ifndef LODE_FORMAT_GGUF_PARTS_H
#define LODE_FORMAT_GGUF_PARTS_H

#include "base/arena.h"
#include "base/map.h"
#include "format/gguf.h"

/* One file: a whole model, or a shard of it. */
struct lode_gguf_part {
    struct lode_in_file file; /* fd -1 when parsed from memory */
    unsigned char *header;    /* owned; strings and arrays point into it.  NULL when borrowed */
    struct lode_arena arena;  /* owns kv, tensors, names */
    struct lode_map keys;     /* key -> index in kv */
    struct lode_gguf_kv *kv;  /* (n_kv) */
    struct lode_gguf_tensor *tensors; /* (n_tensors) */
    uint32_t n_kv, n_tensors;
    uint32_t version;
};

struct lode_gguf {
    struct lode_gguf_part *parts; /* owned; (n_parts) */
    size_t n_parts;
    struct lode_gguf_tensor *tensors;     /* (n_tensors): the only part's, or all_tensors */
    struct lode_gguf_tensor *all_tensors; /* owned; NULL with one part */
    uint32_t n_tensors;
    struct lode_map names; /* tensor name -> index in tensors */
    char *arch;            /* owned */
};

/* What messages name: the path, or "" when parsed from memory. */
static inline const char *lode_gguf_part_where(const struct lode_gguf_part *p) {
    return p->file.path ? p->file.path : "";
}

/* Parses the header in data (len).  file_size: of the whole file, UINT64_MAX when the tensor data
 * is not to be checked; data that ends before the header does is an error, worded by whether the
 * file ends there.  On failure p holds whatever was made so far, for part_free. */
int lode_gguf_part_parse(struct lode_gguf_part *p, const unsigned char *data, size_t len,
                         uint64_t file_size, struct lode_error *err);
/* Reads as much of the open file as its header takes into p->header; *len is its length.  Judges
 * nothing: it stops where the header ends, or where it stops making sense. */
int lode_gguf_part_load(struct lode_gguf_part *p, size_t *len, struct lode_error *err);
void lode_gguf_part_free(struct lode_gguf_part *p);
const struct lode_gguf_value *lode_gguf_part_find(const struct lode_gguf_part *p, const char *key);

/* Bytes of a number or bool; 0 for str, array and unknown ids. */
size_t lode_gguf_type_size(uint32_t id);

#endif
