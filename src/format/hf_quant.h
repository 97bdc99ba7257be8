/* hf_quant.h - inside of format/hf.h: matrices that a directory stores as several tensors.
 *
 * Quantised weights come as codes, scales and more ("q_proj.qweight", "q_proj.scales", ...).  Each
 * such group of tensors becomes one `linear`, which stands for the plain tensor that it was made
 * of: name, and shape in numbers.  What is done with names need not know more.  A linear's bytes
 * are rows of blocks of a type that kernels compute on and that holds every weight exactly as the
 * scheme defines it; they are made when they are read (at load, or by `lode convert`).
 *
 *     scheme                  stored as                                     becomes
 *     MLX affine              weight U32, scales, biases                    U2 .. U8, U4G32, U8G32
 *     MLX mxfp4, mxfp8        weight U32, scales U8 (E8M0)                  MXFP4, E4M3
 *     MLX nvfp4               weight U32, scales U8 (E4M3)                  NVFP4
 *     GPTQ, AWQ               qweight, qzeros, scales (, g_idx)             U2, U4, U8, ..G32; F32 (1)
 *     compressed-tensors      weight_packed or weight I8, weight_scale      U4, U8, ..G32; F32 (1)
 *                             (, weight_zero_point, weight_g_idx)
 *       nvfp4, mxfp4          weight_packed U8, weight_scale (, .._global)  NVFP4G, MXFP4
 *     FP8                     weight F8_E4M3 or F8_E5M2, weight_scale(_inv)  E4M3, E5M2; F32 (2)
 *     gpt-oss MXFP4           NAME_blocks, NAME_scales                      MXFP4
 *
 * F32: where nothing smaller is exact: (1) groups that are no multiple of 32, scales of 32 bits with
 * zero points; (2) rows that are no multiple of 32 long.
 *
 * Where columns that share a scale do not lie together (g_idx of GPTQ's desc_act), rows are made in
 * the order of the groups, and the graph brings the input into that order first; experts and tables,
 * for which it does not, and uneven groups are F32.
 */
#ifndef LODE_FORMAT_HF_QUANT_H
#define LODE_FORMAT_HF_QUANT_H

#include "base/arena.h"
#include "base/json.h"
#include "format/safetensors.h"
#include "tensor/dtype.h"

/* What the tensors of a linear are; their names' ends: hf_quant.c. */
enum lode_hf_part {
    LODE_HF_CODES,
    LODE_HF_SCALES,
    LODE_HF_MINIMA, /* w = scale q + minimum */
    LODE_HF_ZEROS,  /* w = scale (q - zero) */
    LODE_HF_INDEX,  /* the group of each column */
    LODE_HF_SHAPE,
    LODE_HF_DIVISOR, /* of all scales */
    LODE_HF_PARTS
};

struct lode_hf_scheme;

struct lode_hf_linear {
    struct lode_st_tensor as; /* what it stands for; as.shard: LODE_HF_LINEAR; as.size: of the rows
                                 that it becomes */
    const struct lode_st_tensor *part[LODE_HF_PARTS]; /* NULL: not there */
    const struct lode_hf_scheme *scheme;
    uint64_t n_matrices, rows, cols;
    uint32_t bits, group, group_rows; /* columns and rows that share a scale */
    const uint32_t *index; /* (cols) the group of each column, where the groups' columns do not lie
                              together; else NULL */
    const uint32_t *order; /* (cols) then: its rows are made in the groups' order, column order[j] at
                              place j; NULL: they are not, and F32 */
    bool zero_less_one;    /* ZEROS are stored so (GPTQ's first version) */
    enum lode_dtype type;
    size_t row_size; /* 0: not described yet */
};

enum { LODE_HF_LINEAR = 0x7fffffff };

struct lode_hf_linears {
    struct lode_hf_linear *list; /* (n) */
    uint32_t n;
    const struct lode_st_tensor **inputs; /* (n_inputs) plain tensors, and for the others linears */
    size_t n_inputs;
    /* while opening */
    const struct lode_st *st;
    struct lode_arena *arena;
    const struct lode_json *settings; /* where config.json speaks of quantisation; or NULL */
    char method[64];                  /* "gptq"; "mlx" where MLX wrote it; "": not named */
    const char *config_path;
};

/* Sorts the tensors of st by name; config: config.json.  Memory is the arena's. */
int lode_hf_find_linears(struct lode_hf_linears *out, struct lode_arena *arena,
                         const struct lode_st *st, const struct lode_json *config,
                         const char *config_path, struct lode_error *err);
/* Makes a tensor of `inputs` that a model uses what it says: checks a linear's parts, and sets
 * shape and type.  (The others, of a part that is left out, may be anything.) */
int lode_hf_describe_linear(const struct lode_hf_linears *f, const struct lode_st_tensor *s,
                            struct lode_error *err);
/* s as F32, for a tensor that must be cut through its rows; after describe, before anything is read.
 * false: its scheme has no such form. */
bool lode_hf_widen_linear(const struct lode_hf_linears *f, const struct lode_st_tensor *s);
/* "GPTQ 4-bit g128", what most numbers of the linears are; "": there are none. */
enum { LODE_HF_LABEL = 64 };
void lode_hf_label_linears(const struct lode_hf_linears *f, char out[LODE_HF_LABEL]);

/* Bytes of the linears in use that are F32, and of all. */
void lode_hf_widened(const struct lode_hf_linears *f, uint64_t *wide, uint64_t *all);

/* The linear that a tensor of `inputs` is; NULL: a plain one. */
static inline const struct lode_hf_linear *lode_hf_linear(const struct lode_st_tensor *s) {
    return s->shard == LODE_HF_LINEAR ? (const struct lode_hf_linear *)s : NULL;
}

/* The n rows first, first + step, ... of all matrices' rows one after another, as blocks of
 * l->type, to anywhere.  Any thread.  LODE_ERR_IO, _NOMEM, _FORMAT. */
int lode_hf_linear_rows(const struct lode_st_from *from, const struct lode_hf_linear *l, uint64_t first,
                        uint64_t step, uint64_t n, void *out, struct lode_error *err);
/* Bytes [offset, offset + n) of all rows, to anywhere. */
int lode_hf_linear_read(const struct lode_st_from *from, const struct lode_hf_linear *l, size_t offset,
                        void *out, size_t n, struct lode_error *err);
/* What of the files the rows first .. first + n - 1 are made of: at most LODE_HF_PARTS; returns how many. */
uint32_t lode_hf_linear_stretches(const struct lode_st *st, const struct lode_hf_linear *l, uint64_t first,
                                  uint64_t n, struct lode_stretch out[LODE_HF_PARTS]);

/* ---- schemes ---- */

/* What row() and codes() see: bytes of the parts, and where their results go. */
struct lode_hf_rows {
    const uint8_t *part[LODE_HF_PARTS]; /* of this row, or (scheme->whole) of its matrix */
    uint64_t row;                       /* within its matrix */
    uint8_t *q;                         /* (cols) */
    float *d, *m, *z;                   /* (groups): scale and minimum, or scale and zero */
};

struct lode_hf_scheme {
    const char *name;
    uint32_t whole; /* bits of parts that are not one row a row */
    bool turned;    /* the codes are words of 32 bits, columns first; codes() sees rows first */
    /* Shape, bits, groups and type from the parts, checked; as.name is set. */
    int (*describe)(struct lode_hf_linear *l, const struct lode_json *settings,
                    struct lode_error *err);
    /* Integer schemes: one row's codes and groups. */
    void (*codes)(const struct lode_hf_linear *l, const struct lode_hf_rows *in);
    bool has_minima; /* m, not z */
    /* The others: one row's blocks. */
    int (*row)(const struct lode_hf_linear *l, const struct lode_hf_rows *in, void *out,
               struct lode_error *err);
    /* For people, without the scheme's name. */
    void (*label)(const struct lode_hf_linear *l, char *out, size_t size);
};

#define LODE_HF_SCHEME_LIST(X)                                                                     \
    X(mlx_affine) X(mlx_mxfp4) X(mlx_mxfp8) X(mlx_nvfp4) X(gptq) X(awq) X(ct_packed) X(ct_int8)    \
    X(ct_nvfp4) X(ct_mxfp4) X(fp8) X(mxfp4)
#define LODE_HF_SCHEME(name) extern const struct lode_hf_scheme lode_hf_##name;
LODE_HF_SCHEME_LIST(LODE_HF_SCHEME)
#undef LODE_HF_SCHEME

/* ---- what schemes share ---- */

/* "its dtype is X; Y expected", where a part is not what it should be; so for a shape. */
int lode_hf_part_type(const struct lode_hf_linear *l, enum lode_hf_part p, const char *expected,
                      struct lode_error *err);
int lode_hf_part_shape(const struct lode_hf_linear *l, enum lode_hf_part p, struct lode_error *err,
                       const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Whether the last two dimensions are a and b, and those before make n_matrices. */
bool lode_hf_part_is(const struct lode_hf_linear *l, enum lode_hf_part p, uint64_t a, uint64_t b);
/* The last dimension, the one before, and the product of the others. */
uint64_t lode_hf_part_cols(const struct lode_st_tensor *t);
uint64_t lode_hf_part_rows(const struct lode_st_tensor *t);
uint64_t lode_hf_part_matrices(const struct lode_st_tensor *t);

/* Number i of scales in F32, F16, BF16 or E8M0; those types alone are scales. */
bool lode_hf_is_scale(enum lode_st_type type);
float lode_hf_scale(const struct lode_st_tensor *t, const uint8_t *data, uint64_t i);
float lode_hf_e4m3(uint8_t b);

/* The type for codes of l->bits in groups of l->group columns, or F32. */
enum lode_dtype lode_hf_type_of_codes(const struct lode_hf_linear *l);
/* A row of codes and groups as blocks of l->type. */
void lode_hf_pack_row(const struct lode_hf_linear *l, const struct lode_hf_rows *in, void *out);
/* n codes of `bits` bits from a little-endian stream of bits. */
void lode_hf_unpack_bits(uint8_t *q, const uint8_t *p, uint64_t n, uint32_t bits);
/* Codes of FP4, two to a byte, the first in the low nibble, to the layout of MXFP4 (half 16) or
 * NVFP4 (8): bytes that hold number i and number i + half. */
void lode_hf_pack_nibbles(uint8_t *out, const uint8_t *in, int half);

#endif
