/* mix.h - which type each tensor of a file gets. */
#ifndef LODE_CONVERT_MIX_H
#define LODE_CONVERT_MIX_H

#include "format/source.h"
#include "lode/convert.h"

struct lode_mix; /* a name that --type takes */

/* What the choice depends on, beside the tensor's name. */
struct lode_mix_model {
    uint32_t n_layers, n_experts, n_gqa; /* n_gqa: query heads a key head */
    uint32_t n_v;                        /* tensors that are, or hold, an attention's values */
    bool tied;                           /* no output.weight: the embedding is the output too */
    bool falcon, imatrix;
};

/* Any letter case; NULL: unknown. */
const struct lode_mix *lode_mix_find(const char *name);
uint32_t lode_mix_file_type(const struct lode_mix *m);   /* general.file_type */
enum lode_dtype lode_mix_base(const struct lode_mix *m); /* the type of most tensors */
bool lode_mix_is_one(const struct lode_mix *m);          /* its name is a type's */

/* Whether readers of GGUF expect it as F32: norms, biases, routers, short convolutions. */
bool lode_mix_is_wide(const char *name, uint32_t n_dims);
/* Whether it is quantised with the others: not wide, and not small beside them. */
bool lode_mix_is_matrix(const char *name, uint32_t n_dims);
/* Whether it counts among n_v. */
bool lode_mix_is_value(const char *name);

/* The type of a matrix.  layer: of its name; i_v: how many of n_v come before it. */
enum lode_dtype lode_mix_type(const struct lode_mix *mix, const struct lode_mix_model *m,
                              const char *name, bool experts, uint32_t layer, uint32_t i_v);
/* `want`, or what takes its place where rows of n numbers are no whole blocks of it. */
enum lode_dtype lode_mix_fit(enum lode_dtype want, uint64_t n);

#endif
