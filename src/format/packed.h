/* packed.h - directories that `lode pack` makes: models whose experts are read one by one.
 *
 *     manifest.json   what lies where; its presence says that the others are complete
 *     keys.gguf       the metadata, a GGUF file without tensors
 *     weights.bin     the numbers
 *
 * weights.bin has the dense tensors, then for each layer with experts a record an expert: its slice
 * of each of the layer's expert tensors, one after the other.  Tensors and records begin at multiples
 * of 4096 bytes, so that each is one read past the page cache; docs/packed-format.md draws it.
 *
 * Opened, it is a source like any other (format/source.h), with tensors by GGUF's names and the types
 * that the source of the packing had, so a packed model computes what its source does.  Manifests come
 * from strangers: everything is checked here.
 */
#ifndef LODE_FORMAT_PACKED_H
#define LODE_FORMAT_PACKED_H

#include "base/arena.h"
#include "base/json.h"
#include "format/source.h"

#define LODE_PACKED_MANIFEST "manifest.json"
#define LODE_PACKED_KEYS "keys.gguf"
#define LODE_PACKED_WEIGHTS "weights.bin"

enum {
    LODE_PACKED_VERSION = 1,
    LODE_PACKED_ALIGN = 4096,
    LODE_PACKED_SLICE = 64,            /* slices within a record begin at multiples of it */
    LODE_PACKED_MAX_TENSORS = 1 << 20, /* and records */
};

struct lode_packed_tensor {
    struct lode_gguf_tensor t;
    uint64_t at;      /* in weights.bin; of experts: of the first slice */
    size_t slice;     /* bytes of one expert; 0: it is dense */
    uint32_t records; /* of the list below, where it is sliced */
    uint64_t sum;     /* dense: XXH3 of its bytes */
};

/* A layer's experts. */
struct lode_packed_records {
    uint32_t layer, n; /* experts */
    uint64_t at;       /* of the first record */
    size_t size, step; /* of a record; from one to the next */
    const uint64_t *sums; /* (n) XXH3 of the `size` bytes */
};

struct lode_packed_index {
    struct lode_arena arena;
    struct lode_packed_tensor *tensors; /* (n_tensors) */
    struct lode_packed_records *records; /* (n_records) */
    uint32_t n_tensors, n_records;
    uint64_t size; /* of weights.bin */
    uint64_t keys_sum; /* XXH3 of keys.gguf; 0: nobody noted it */
    bool half_order;
    const char *source;
};

/* Lays out tensors (name, type, dims and size set) in the order given: fills at, slice, records, and
 * everything of `records` but the sums' values.  Experts are tensors blk.N.*_exps.weight of three
 * dimensions. */
int lode_packed_lay_out(struct lode_packed_index *x, struct lode_error *err);

/* A manifest's text; where names it in errors.  On failure nothing is left. */
int lode_packed_parse(struct lode_packed_index *x, struct lode_str text, const char *where,
                      struct lode_error *err);
void lode_packed_deinit(struct lode_packed_index *x);
/* out is empty. */
bool lode_packed_print(const struct lode_packed_index *x, struct lode_buf *out);
/* The XXH3 of a whole file. */
int lode_packed_sum(const struct lode_in_file *f, uint64_t *out, struct lode_error *err);

/* Whether dir is such a directory; whether packing began there, if it ended or not. */
bool lode_packed_is(const char *dir);
bool lode_packed_begun(const char *dir);
int lode_packed_open(struct lode_source **out, const char *dir, bool map, struct lode_error *err);
/* Of a source that lode_packed_open made, else NULL. */
const struct lode_packed_index *lode_packed_index_of(const struct lode_source *s);

#endif
