/* dtype.h - how numbers lie in memory: one list for every type lode can read.
 *
 * A row of n numbers is n / block blocks of `bytes` bytes.  GGML's block layouts are drawn in
 * tensor/block.h; their ids are those of GGUF files (ggml.h, enum ggml_type).  ids from 256 on are
 * lode's own and never appear in a file: activations, and what the quantised weights of Hugging
 * Face and MLX directories become at load where no layout of GGML's holds them without loss.  `act` names the layout that activations take when a
 * matrix of this type is multiplied directly: F32, A32 or A256.  A type whose act is NONE is
 * widened to F32 a few rows at a time and multiplied as F32.
 */
#ifndef LODE_TENSOR_DTYPE_H
#define LODE_TENSOR_DTYPE_H

#include "base/buf.h"

/*    name      id   block bytes act   */
#define LODE_DTYPE_LIST(X)                                                                         \
    X(F32, 0, 1, 4, F32)                                                                           \
    X(F16, 1, 1, 2, F32)                                                                           \
    X(Q4_0, 2, 32, 18, A32)                                                                        \
    X(Q4_1, 3, 32, 20, A32)                                                                        \
    X(Q5_0, 6, 32, 22, A32)                                                                        \
    X(Q5_1, 7, 32, 24, A32)                                                                        \
    X(Q8_0, 8, 32, 34, A32)                                                                        \
    X(Q8_1, 9, 32, 36, NONE)                                                                       \
    X(Q2_K, 10, 256, 84, A256)                                                                     \
    X(Q3_K, 11, 256, 110, A256)                                                                    \
    X(Q4_K, 12, 256, 144, A256)                                                                    \
    X(Q5_K, 13, 256, 176, A256)                                                                    \
    X(Q6_K, 14, 256, 210, A256)                                                                    \
    X(Q8_K, 15, 256, 292, NONE)                                                                    \
    X(IQ2_XXS, 16, 256, 66, A256)                                                                  \
    X(IQ2_XS, 17, 256, 74, A256)                                                                   \
    X(IQ3_XXS, 18, 256, 98, A256)                                                                  \
    X(IQ1_S, 19, 256, 50, A256)                                                                    \
    X(IQ4_NL, 20, 32, 18, A32)                                                                     \
    X(IQ3_S, 21, 256, 110, A256)                                                                   \
    X(IQ2_S, 22, 256, 82, A256)                                                                    \
    X(IQ4_XS, 23, 256, 136, A256)                                                                  \
    X(I8, 24, 1, 1, NONE)                                                                          \
    X(I16, 25, 1, 2, NONE)                                                                         \
    X(I32, 26, 1, 4, NONE)                                                                         \
    X(I64, 27, 1, 8, NONE)                                                                         \
    X(F64, 28, 1, 8, NONE)                                                                         \
    X(IQ1_M, 29, 256, 56, A256)                                                                    \
    X(BF16, 30, 1, 2, F32)                                                                         \
    X(TQ1_0, 34, 256, 54, A256)                                                                    \
    X(TQ2_0, 35, 256, 66, A256)                                                                    \
    X(MXFP4, 39, 32, 17, A32)                                                                      \
    X(NVFP4, 40, 64, 36, A32)                                                                      \
    X(Q1_0, 41, 128, 18, A32)                                                                      \
    X(Q2_0, 42, 64, 18, A32)                                                                       \
    X(A32, 256, 32, 40, NONE)                                                                      \
    X(A256, 257, 256, 304, NONE)                                                                   \
    X(U2, 258, 64, 24, A32)                                                                        \
    X(U3, 259, 64, 32, A32)                                                                        \
    X(U4, 260, 64, 40, A32)                                                                        \
    X(U5, 261, 64, 48, A32)                                                                        \
    X(U6, 262, 64, 56, A32)                                                                        \
    X(U8, 263, 64, 72, A32)                                                                        \
    X(U4G32, 264, 32, 24, A32)                                                                     \
    X(U8G32, 265, 32, 40, A32)                                                                     \
    X(E4M3, 266, 32, 36, F32)                                                                      \
    X(E5M2, 267, 32, 36, F32)                                                                      \
    X(NVFP4G, 268, 64, 40, A32)

/* Dense indices, so that tables can be indexed by type; the file ids have holes. */
enum lode_dtype {
#define LODE_DTYPE_ENUM(name, id, block, bytes, act) LODE_##name,
    LODE_DTYPE_LIST(LODE_DTYPE_ENUM)
#undef LODE_DTYPE_ENUM
        LODE_DTYPE_COUNT,
    LODE_NONE = LODE_DTYPE_COUNT
};

struct lode_dtype_info {
    const char *name;
    uint32_t id;    /* in GGUF files; 256 and up: internal */
    uint32_t block; /* numbers in a block */
    uint32_t bytes; /* of a block */
    enum lode_dtype act;
};

extern const struct lode_dtype_info lode_dtypes[LODE_DTYPE_COUNT];

/* Whether these are activations rounded to 8 bits. */
static inline bool lode_dtype_is_rounded(enum lode_dtype t) { return t == LODE_A32 || t == LODE_A256; }

/* LODE_NONE when no such type is known (internal types are not found). */
enum lode_dtype lode_dtype_from_gguf(uint32_t id);
enum lode_dtype lode_dtype_from_name(struct lode_str name); /* any letter case */

/* Bytes of a row of n numbers; false: n is no multiple of the block, or the size overflows. */
bool lode_dtype_row_size(enum lode_dtype t, uint64_t n, size_t *bytes);

#endif
