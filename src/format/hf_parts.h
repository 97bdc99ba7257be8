/* hf_parts.h - inside of format/hf.h: what is known of a directory while it is translated. */
#ifndef LODE_FORMAT_HF_PARTS_H
#define LODE_FORMAT_HF_PARTS_H

#include "base/arena.h"
#include "base/json.h"
#include "base/map.h"
#include "format/hf.h"
#include "format/hf_quant.h"
#include "format/safetensors.h"

/* What distinguishes the families of models that transformers calls by model_type. */
struct lode_hf_family {
    const char *model_type, *arch;
    bool pairs;      /* their rotary pairs are (2i, 2i + 1) */
    bool plus_one;   /* norms multiply by weight + 1 */
    bool post_norm;  /* post_attention_layernorm is what it says, not the norm before the FFN */
    bool layer_norm; /* with a mean: layer_norm_eps */
    bool gelu;       /* hidden_act; else silu */
    bool window;     /* sliding_window counts */
    uint32_t period; /* every period-th layer sees all; 0: none does, where there is a window */
    bool any_period; /* the configuration may give another period */
    double partial;  /* share of a head that rotates where the configuration does not say; 0: all */
};

/* Where a tensor's numbers are.  made: computed while opening; else (n_pieces) matrices. */
struct lode_hf_home {
    const struct lode_st_tensor **pieces; /* NULL where one is missing, until all are checked */
    uint32_t n_pieces;
    bool plus_one;
    const float *made;
};

enum { LODE_HF_MAX_KEYS = 96, LODE_HF_MAX_MADE = 2 };

struct lode_hf {
    struct lode_source base;
    const struct lode_hf_family *family; /* NULL: unknown; config and tensors are left alone */
    struct lode_st *st;
    struct lode_hf_linears linears; /* of the tensors in st */
    struct lode_arena arena;
    struct lode_map keys, names;
    struct lode_gguf_kv *kv;          /* (base.n_keys of LODE_HF_MAX_KEYS) */
    struct lode_gguf_tensor *tensors; /* (base.n_tensors of those in st, and MAX_MADE) */
    struct lode_hf_home *homes;       /* beside tensors */
    const char *config_path;
    const struct lode_json *config, *text; /* while opening: config.json, and the part about text */
    bool tied;                             /* the output matrix is the embedding */
};

/* Keys; strings must live as long as h.  A key that is there already stays as it is.  Each returns
 * 0 or LODE_ERR_NOMEM.  arch_: prefixed by the architecture. */
int lode_hf_put(struct lode_hf *h, const char *key, struct lode_gguf_value v,
                struct lode_error *err);
int lode_hf_put_u32(struct lode_hf *h, const char *arch_key, uint64_t v, struct lode_error *err);
int lode_hf_put_f64(struct lode_hf *h, const char *arch_key, double v, struct lode_error *err);

/* A field of config.json, of the text part first; NULL when absent or null. */
const struct lode_json *lode_hf_field(const struct lode_hf *h, const char *name);
/* The count that a field has; `otherwise` when absent.  LODE_ERR_FORMAT when it is none. */
int lode_hf_count(const struct lode_hf *h, const char *name, uint32_t otherwise, uint32_t *out,
                  struct lode_error *err);
/* A string, NUL-terminated and cut to what fits; NULL when v is none. */
enum { LODE_HF_WORD = 64 };
const char *lode_hf_word(const struct lode_json *v, char out[LODE_HF_WORD]);
int lode_hf_refuse(const struct lode_hf *h, const char *field, const char *why,
                   struct lode_error *err); /* LODE_ERR_UNSUPPORTED */

/* config.json's model_type, and all that follows from config.json without the tensors. */
const struct lode_hf_family *lode_hf_family(const char *model_type);
int lode_hf_read_config(struct lode_hf *h, struct lode_error *err);
/* The tensors, by GGUF's names. */
int lode_hf_read_tensors(struct lode_hf *h, struct lode_error *err);
/* The size of a head, and the rotation, which may add tensors. */
int lode_hf_read_rope(struct lode_hf *h, struct lode_error *err);

/* A tensor of n computed numbers. */
int lode_hf_add_made(struct lode_hf *h, const char *name, const float *numbers, uint32_t n,
                     struct lode_error *err);

#endif
