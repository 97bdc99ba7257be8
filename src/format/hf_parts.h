/* hf_parts.h - inside of format/hf.h: what is known of a directory while it is translated.
 *
 *     hf.c           opening; the source
 *     hf_files.c     the small files beside the weights
 *     hf_config.c    config.json: fields, defaults, what most families share
 *     hf_rope.c      the rotation
 *     hf_names.c     from the files' names to GGUF's
 *     hf_tensors.c   tensors as runs through those of the files, and reading them
 *     hf_cut.c       tensors that are cut, turned or joined: experts, q k v, latent attention
 *     hf_assume.c    a model_type that is not known, but may be a standard decoder
 *     hf_fam_*.c     the families of models, some to a file: what config.json says and what the
 *                    tensors are called
 *
 * To add a family: a struct lode_hf_family in one of the hf_fam files, with the names that only it
 * has and a function for the settings that only it has.
 */
#ifndef LODE_FORMAT_HF_PARTS_H
#define LODE_FORMAT_HF_PARTS_H

#include "base/arena.h"
#include "base/json.h"
#include "base/map.h"
#include "format/hf.h"
#include "format/hf_quant.h"
#include "format/safetensors.h"

struct lode_hf;
struct lode_hf_spot;

/* ---- families ---- */

/* Adds the tensors that s becomes. */
typedef int lode_hf_placer(struct lode_hf *h, const struct lode_st_tensor *s,
                           const struct lode_hf_spot *spot, struct lode_error *err);
typedef float lode_hf_map(float number);

/* A name without prefix ("model.") and tail (".weight", ".bias"), or in full where it has no such
 * tail, and what it becomes.  # stands for a number: first the layer's, then the expert's.
 * gguf "": left out without a word (buffers that follow from the configuration). */
struct lode_hf_name {
    const char *hf, *gguf;
    lode_hf_placer *place; /* NULL: as it lies */
    lode_hf_map *map;      /* of each number, which is widened to F32; NULL: the family's */
};

#define LODE_HF_IS(from, to)                                                                       \
    { .hf = (from), .gguf = (to) }
#define LODE_HF_CUT(from, to, placer)                                                              \
    { .hf = (from), .gguf = (to), .place = (placer) }
#define LODE_HF_MAPPED(from, to, function)                                                         \
    { .hf = (from), .gguf = (to), .map = (function) }

/* A field's value where config.json does not say; those of transformers. */
struct lode_hf_default {
    const char *field;
    double value;
};

struct lode_hf_family {
    const char *model_type, *arch;
    const struct lode_hf_name *names;       /* before the common ones; ends with {0}; may be NULL */
    const struct lode_hf_default *defaults; /* the same */
    int (*config)(struct lode_hf *h, struct lode_error *err); /* what only it has; may be NULL */
    const char *acts; /* activations that it computes, each between spaces; NULL: " silu swish " */
    const char *refuse; /* flags that may not be true, the same */
    bool pairs;      /* rotary pairs are (2i, 2i + 1), where the architecture's GGUF files say so */
    bool plus_one;   /* norms multiply by weight + 1 */
    bool layer_norm; /* norms with a mean */
    bool window;     /* sliding_window counts */
    uint32_t period; /* every period-th layer sees all; 0: none does, where there is a window */
    bool any_period; /* the configuration may give another period */
    bool local_rope; /* layers with a window rotate by another base */
};

#define LODE_HF_GROUP_LIST(X) X(llama) X(gemma) X(neox) X(moe) X(mla) X(encoder) X(delta)
/* Each group is an array in hf_fam_NAME.c that ends with {0}. */
#define LODE_HF_GROUP(name) extern const struct lode_hf_family lode_hf_##name##_families[];
LODE_HF_GROUP_LIST(LODE_HF_GROUP)
#undef LODE_HF_GROUP

const struct lode_hf_family *lode_hf_family(const char *model_type);
/* For a model_type that is not known: h->own as h->family, where names and settings are those of a
 * standard decoder (model/arch_standard.c); else h->family stays NULL. */
int lode_hf_assume(struct lode_hf *h, struct lode_error *err);

/* ---- tensors ---- */

/* Numbers of a tensor of the files, in the order of four loops, the last innermost: the number at
 * base + i0 * step[0] + ... + i3 * step[3] for ik < n[k]. */
enum { LODE_HF_LOOPS = 4 };
struct lode_hf_run {
    const struct lode_st_tensor *from; /* NULL: missing yet (an expert) */
    uint64_t at;                       /* the first number's place in the tensor that they make */
    uint64_t base, n[LODE_HF_LOOPS], step[LODE_HF_LOOPS];
};

/* Where a tensor's bytes are: computed while opening (made), or runs, one after another. */
struct lode_hf_home {
    struct lode_hf_run *runs; /* (n_runs) */
    uint32_t n_runs;
    bool stack;       /* of experts, each a tensor of its own */
    lode_hf_map *map; /* the numbers are widened to F32 and mapped; NULL: as they lie */
    const float *made;
};

enum { LODE_HF_MAX_KEYS = 128, LODE_HF_MAX_MADE = 8, LODE_HF_NONE = -1 };

/* Where a tensor's name leads. */
struct lode_hf_spot {
    const struct lode_hf_name *name;
    const char *tail;      /* ".weight", ".bias"; "": the name is in full */
    int64_t layer, expert; /* LODE_HF_NONE: the name has no such number */
};

struct lode_hf {
    struct lode_source base;
    const struct lode_hf_family *family; /* NULL: unknown; config and tensors are left alone */
    struct lode_st *st;
    struct lode_hf_linears linears; /* of the tensors in st */
    struct lode_arena arena;
    struct lode_map keys, names;
    struct lode_gguf_kv *kv;          /* (base.n_keys of LODE_HF_MAX_KEYS) */
    struct lode_gguf_tensor *tensors; /* (base.n_tensors of cap_tensors) */
    struct lode_hf_home *homes;       /* beside tensors */
    size_t cap_tensors;
    struct lode_buf notes; /* what base.notes will be */
    struct lode_hf_family own; /* where the model_type is not known */
    const char *config_path;
    const struct lode_json *config, *text; /* while opening: config.json, and the part about text */
    uint32_t n_layers, n_experts;
    bool tied; /* the output matrix is the embedding */
    lode_hf_map *norms; /* hf_fam_delta.c's, once it knows who wrote the files */
};

int lode_hf_read_tensors(struct lode_hf *h, struct lode_error *err);
/* Those of plain numbers under their own names, for people to see; of a model that is not known. */
int lode_hf_list_tensors(struct lode_hf *h, struct lode_error *err);
/* h's spot by the tables of the family; false: no such name. */
bool lode_hf_find_spot(const struct lode_hf *h, const char *name, struct lode_hf_spot *out);
/* GGUF's name for the spot: stem, if given, instead of the table's. */
enum { LODE_HF_NAME = LODE_GGUF_MAX_NAME + 1 };
void lode_hf_spot_name(const struct lode_hf_spot *spot, const char *stem, char out[LODE_HF_NAME]);

/* A new tensor of n_dims dimensions, innermost first, and n_runs runs, which are copied and merged
 * where they are contiguous.  They have as many numbers as the dimensions say. */
int lode_hf_add(struct lode_hf *h, const char *name, lode_hf_map *map, uint32_t n_dims,
                const uint64_t *dims, const struct lode_hf_run *runs, uint32_t n_runs,
                struct lode_error *err);
/* A tensor of n computed numbers, which must live as long as h. */
int lode_hf_add_made(struct lode_hf *h, const char *name, const float *numbers, uint32_t n,
                     struct lode_error *err);
/* All of s, n numbers one after another. */
struct lode_hf_run lode_hf_run_all(const struct lode_st_tensor *s);
uint64_t lode_hf_n_numbers(const struct lode_st_tensor *s);
/* false: a dtype that is no plain number. */
bool lode_hf_dtype(const struct lode_st_tensor *s, enum lode_dtype *type);
int lode_hf_read_home(const struct lode_hf *h, const struct lode_gguf_tensor *t, size_t offset,
                      void *out, size_t n, const struct lode_held *held, struct lode_error *err);
uint32_t lode_hf_home_stretches(const struct lode_hf *h, const struct lode_gguf_tensor *t, size_t offset,
                                size_t n, struct lode_stretch *out, uint32_t most);
/* The mapped bytes [offset, offset + n), or NULL. */
/* Where bytes [offset, offset + n) of the tensor lie in one piece of a file; false: nowhere. */
bool lode_hf_home_place(const struct lode_hf *h, const struct lode_gguf_tensor *t, size_t offset,
                        size_t n, struct lode_place *out);
const void *lode_hf_home_data(const struct lode_hf *h, const struct lode_gguf_tensor *t,
                              size_t offset, size_t n);

/* Placers (hf_cut.c). */
lode_hf_placer lode_hf_place_expert;         /* one of a stack */
lode_hf_placer lode_hf_place_gate_up;        /* experts (n, 2 ff, d), gate first */
lode_hf_placer lode_hf_place_gate_up_rows;   /* one FFN (2 ff, d), gate first */
lode_hf_placer lode_hf_place_gate_up_turned; /* experts (n, d, 2 ff), gate first */
lode_hf_placer lode_hf_place_gate_up_woven;  /* experts (n, d, 2 ff) or (n, 2 ff): gate, up, ... */
lode_hf_placer lode_hf_place_turned;         /* experts (n, in, out) */
lode_hf_placer lode_hf_place_qkv;  /* rows of each key head: its queries, its key, its value */
lode_hf_placer lode_hf_place_kv_b; /* latent attention: rows K V of each head */
/* After all names: every expert is there and like the others. */
int lode_hf_check_stack(const struct lode_hf *h, uint32_t i, struct lode_error *err);
float lode_hf_plus_one(float number);

/* ---- config.json ---- */

/* Keys; strings must live as long as h.  A key that is there already stays as it is.  Each returns
 * 0 or LODE_ERR_NOMEM.  Those without _raw are prefixed by the architecture. */
int lode_hf_put_raw(struct lode_hf *h, const char *key, struct lode_gguf_value v,
                    struct lode_error *err);
int lode_hf_put(struct lode_hf *h, const char *key, struct lode_gguf_value v,
                struct lode_error *err);
int lode_hf_put_u32(struct lode_hf *h, const char *key, uint64_t v, struct lode_error *err);
int lode_hf_put_f64(struct lode_hf *h, const char *key, double v, struct lode_error *err);
int lode_hf_put_flag(struct lode_hf *h, const char *key, bool v, struct lode_error *err);
int lode_hf_put_word(struct lode_hf *h, const char *key, const char *s, struct lode_error *err);
/* n of them, one a layer; they must live as long as h. */
int lode_hf_put_counts(struct lode_hf *h, const char *key, const uint32_t *counts, uint32_t n,
                       struct lode_error *err);
int lode_hf_put_flags(struct lode_hf *h, const char *key, const unsigned char *flags, uint32_t n,
                      struct lode_error *err);
/* A sentence for the user: something is left out, or assumed. */
__attribute__((format(printf, 3, 4))) int lode_hf_note(struct lode_hf *h, struct lode_error *err,
                                                       const char *fmt, ...);

/* A field of config.json, of the text part first; NULL when absent or null. */
const struct lode_json *lode_hf_field(const struct lode_hf *h, const char *name);
/* The count that a field has; when absent the family's default, or `otherwise`.  LODE_ERR_FORMAT
 * when it is none. */
int lode_hf_count(const struct lode_hf *h, const char *name, uint32_t otherwise, uint32_t *out,
                  struct lode_error *err);
/* The same for a number, of an object or (o NULL) of the configuration. */
int lode_hf_number(const struct lode_hf *h, const struct lode_json *o, const char *name,
                   double otherwise, double *out, struct lode_error *err);
bool lode_hf_flag(const struct lode_hf *h, const char *name, bool otherwise);
/* A string, NUL-terminated and cut to what fits; NULL when v is none. */
enum { LODE_HF_WORD = 64 };
const char *lode_hf_word(const struct lode_json *v, char out[LODE_HF_WORD]);
int lode_hf_refuse(const struct lode_hf *h, const char *field, const char *why,
                   struct lode_error *err); /* LODE_ERR_UNSUPPORTED */
int lode_hf_fail_field(const struct lode_hf *h, const char *field, const char *expected,
                       struct lode_error *err); /* LODE_ERR_FORMAT */

/* A field becomes a key where it is there (or has a default). */
enum lode_hf_kind { LODE_HF_COUNT, LODE_HF_NUMBER, LODE_HF_FLAG };
struct lode_hf_plain {
    const char *field, *key;
    enum lode_hf_kind kind;
};
int lode_hf_put_plain(struct lode_hf *h, const struct lode_hf_plain *list, size_t n,
                      struct lode_error *err);

/* leading_dense_block_count by mlp_layer_types, where there is no first_k_dense_replace. */
int lode_hf_put_dense_layers(struct lode_hf *h, struct lode_error *err);

/* All that follows from config.json without the tensors. */
int lode_hf_read_config(struct lode_hf *h, struct lode_error *err);
/* The size of a head, and the rotation, which may add tensors. */
int lode_hf_read_rope(struct lode_hf *h, struct lode_error *err);

/* ---- the files beside ---- */

/* The template, sampling defaults: what is there. */
int lode_hf_read_files(struct lode_hf *h, const char *dir, struct lode_error *err);
/* A JSON object of the directory; without nodes where there is no such file. */
int lode_hf_read_json(struct lode_hf *h, const char *dir, const char *name,
                      struct lode_json_doc *out, struct lode_error *err);
int lode_hf_put_text(struct lode_hf *h, const char *key, struct lode_str s, struct lode_error *err);

#endif
