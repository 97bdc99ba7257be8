/* cuda/cuda.h - inside the CUDA backend: what its files share. */
#ifndef LODE_BACKEND_CUDA_CUDA_H
#define LODE_BACKEND_CUDA_CUDA_H

#include "backend/cuda.h"
#include "backend/cuda/driver.h"
#include "backend/cuda/registered.h"
#include "backend/cuda/kernels/attention/attention_shared.h"
#include "backend/cuda/kernels/experts/experts_shared.h"
#include "backend/cuda/kernels/planes.h"
#include "backend/cuda/kernels/rows_shared.h"
#include "backend/tuning.h"

/* Kernels that are there once: X(module, name). */
#define LODE_CUDA_KERNEL_LIST(X)                                                                   \
    X(rows, rms_norm) X(rows, rms_norm_any) X(rows, layer_norm) X(rows, l2_norm)                   \
    X(rows, quant_a32) X(rows, quant_a256) X(rows, add) X(rows, glu) X(rows, act)                  \
    X(rows, row_gate) X(rows, scale) X(rows, softcap) X(rows, pick) X(rows, gather) X(rows, cut)   \
    X(rows, join) X(rows, unite) X(rows, repack)                                                   \
    X(positions, temperature) X(positions, rope_table) X(positions, rope) X(positions, kv_put)     \
    X(positions, prepare) X(positions, prepare_64) X(positions, prepare_128)                       \
    X(latent, latent)                                                                              \
    X(experts, moe_act) X(experts, moe_sum) X(experts, route) X(experts, route_few)                \
    X(experts, group_pairs)                                                                        \
    X(gemv, gemv_a32) X(gemv, gemv_a256) X(gemv, gemv_only_q8_0) X(gemv, gemv_only_q4_k)           \
    X(gemv, gemv_only_q5_k)                                                                        \
    X(gemv_codebook, gemv_codebook)                                                                \
    X(gemv_own, gemv_u) X(gemv_own, gemv_parts)                                                    \
    X(few, few_x32) X(few, few_a32_1) X(few, few_a32_2) X(few, few_a32_4) X(few, few_x256)         \
    X(few, few_a256_1) X(few, few_a256_2) X(few, few_a256_4)                                       \
    X(few_own, few_own_1) X(few_own, few_own_2) X(few_own, few_own_4)                              \
    X(few_mixed, few_q4_q6_1) X(few_mixed, few_q4_q6_2) X(few_mixed, few_q4_q6_4)                  \
    X(few_mixed, few_q5_q6_1) X(few_mixed, few_q5_q6_2) X(few_mixed, few_q5_q6_4)                  \
    X(few_experts, few_pairs_256) X(few_experts, few_pairs_32) X(few_experts, few_experts_a256)    \
    X(few_experts, few_experts_a32) X(few_experts, few_experts_own)                                \
    X(few_experts, few_experts_q4_q6) X(few_experts, few_experts_q5_q6)                            \
    X(attention, attention_walk) X(attention, attention_page) X(attention, attention_merge)        \
    X(attention_tile, attention_tile) X(attention_tile, attention_tile_256)                        \
    X(attention_large, attention_large) X(attention_large, attention_large_32)                     \
    X(decode_join, decode_join_128) X(decode_join, decode_join_256)                                \
    X(decode_join_once, decode_join_once)                                                          \
    X(decode_join_rows, decode_join_rows)                                                          \
    X(decode, decode_1) X(decode, decode_2) X(decode, decode_4) X(decode, decode_8)                \
    X(decode, decode_merge)                                                                        \
    X(recur, conv) X(recur, delta_gates) X(recur, delta_64) X(recur, delta_128)                    \
    X(recur, delta_any)                                                                            \
    X(best, best_of_slices) X(best, best_of_rows) X(best, draw_of_rows)                            \
    X(fetch, fetch)                                                                                \
    X(reads, reads)
/* Their modules, folder by folder as in meson.build; some have kernels of families, which find.c looks up. */
#define LODE_CUDA_MODULE_LIST(X)                                                                   \
    X(rows) X(recur) X(best) X(fetch) X(reads)                                                     \
    X(mul) X(mul_packed) X(gemm) X(gemm_float) X(gemv) X(gemv_codebook) X(gemv_own) X(gemv_float)  \
    X(gemv_near) X(gemv_stream) X(gemv_stream_k) X(gemv_stream_fast) X(few) X(wide) X(wide_own)    \
    X(wide_ahead) X(wide_glu) X(gemm_fast) X(gemv_fast) X(wide_fast) X(wide_gated) X(few_fast)     \
    X(few_own) X(few_mixed)                                                                        \
    X(experts) X(chosen_in) X(chosen_in_32) X(chosen_out) X(chosen_out_32) X(few_experts)          \
    X(positions) X(latent) X(attention) X(attention_tile) X(attention_large) X(attention_ring)     \
    X(decode) X(decode_short) X(decode_short_fast) X(decode_walk) X(decode_join)                   \
    X(decode_join_once) X(decode_join_rows) X(attention_fast) X(attention_long)                    \
    X(attention_latent) X(attention_wide) X(decode_fast) X(decode_ring) X(parts_ring)

/* decode_walk.cu, each for 1, 2, 4 and 8 query heads: what keys and values are in; 128: heads of so many numbers, whose rows
 * follow one another. */
#define LODE_CUDA_WALK_LIST(X) X(f16) X(bf16) X(q8_0) X(f16_128) X(bf16_128)
enum lode_cuda_walk {
#define WALK(name) LODE_CUDA_WALK_##name,
    LODE_CUDA_WALK_LIST(WALK)
#undef WALK
        LODE_CUDA_WALKS
};

enum lode_cuda_module {
#define MODULE(name) LODE_CUDA_MODULE_##name,
    LODE_CUDA_MODULE_LIST(MODULE)
#undef MODULE
        LODE_CUDA_MODULES
};

enum { LODE_CUDA_ATTEND_DIMS = 3 };

/* What keys and values are kept as where their attention is the tensor cores'. */
enum { LODE_CUDA_KEPT_f16, LODE_CUDA_KEPT_bf16, LODE_CUDA_KEPT_q8_0, LODE_CUDA_KEPTS };
struct lode_cuda_kernels {
#define KERNEL_FIELD(module, name) void *name;
    LODE_CUDA_KERNEL_LIST(KERNEL_FIELD)
#undef KERNEL_FIELD
    void *mul[LODE_DTYPE_COUNT][4]; /* for 1, 2, 4, 8 rows */
    void *gemm[LODE_DTYPE_COUNT]; /* for many; NULL: none */
    void *gemm_large[LODE_DTYPE_COUNT]; /* 128 rows of x a block of threads; NULL: of floats, or no room */
    void *wide[LODE_DTYPE_COUNT][2];         /* for many by Hopper's warpgroups, 64 and 128 */
    void *wide_ahead[LODE_DTYPE_COUNT];      /* the same for pairs of experts, and for weights that are not tiles of 128 rows */
    void *wide_glu[LODE_DTYPE_COUNT];        /* gate and up multiplied; 128 rows a block */
    void *wide_glu_rounded[LODE_DTYPE_COUNT]; /* what they give rounded; of types whose blocks are of 32 */
    void *spread_32[2], *spread_256[2];      /* rows a block; NULL: on none but Hopper */
    void *spread_floats_32[2], *spread_floats_256[2];
    void *spread_met_32, *spread_met_256; /* tiles of 64 rows */
    void *gemv[LODE_DTYPE_COUNT];   /* of floats */
    void *near[LODE_DTYPE_COUNT][LODE_NEAR_SIZES]; /* the same of few rows: 1, 2, 4 a block */
    void *stream[LODE_DTYPE_COUNT]; /* NULL: on none but Hopper */
    void *walk[LODE_CUDA_WALKS][4];
    void *brief[2][3], *several[2][3]; /* decode_short.cu, for f16, bf16; heads of any size (several: NULL), of 64 numbers, of 128 */
    void *ring[2]; /* attention_ring.cu: heads of 128 numbers, of 64; NULL: on none but Hopper */
    void *moe[LODE_DTYPE_COUNT];
    void *chosen_in[LODE_DTYPE_COUNT], *chosen_out[LODE_DTYPE_COUNT]; /* NULL: none */
    void *embed[LODE_DTYPE_COUNT];
    struct lode_cuda_fast_kernels {
        void *x, *few_x, *few[4]; /* few: for one row, 8, 16, 32 */
        void *tile, *wide;        /* wide: NULL on none but Hopper */
        void *stream[4];          /* for as many; the same */
    } fast[2];                    /* of F16, BF16; NULLs before Ampere */
    struct lode_cuda_attend_kernels {
        void *many[LODE_CUDA_ATTEND_DIMS], *deep[LODE_CUDA_ATTEND_DIMS], *parts[LODE_CUDA_ATTEND_DIMS]; /* heads of up to 64, 128, 256
                                                                                                         * numbers */
        void *wide[3][2]; /* of 64, of 128 numbers: by one warpgroup, by two; of 256 by two, none of Q8_0; NULLs on none but Hopper */
        void *decode[4]; /* of up to 8, 16 query heads at a time; 8 of 128, of 64 numbers */
        void *ring[2][2];  /* of 64, of 128 numbers: of up to 8, 16 query heads at a time; NULLs on none but Hopper */
        void *parts_ring[2]; /* of 64, of 128 numbers; the same */
        void *brief[3][3]; /* few pages; a row's own head, several's (any size: NULL), prepared before: of any size, of 64 numbers, of 128 */
        void *large[2][2][2]; /* heads of more than 256 numbers: any, latent ones of 576 and 512; of all chains, of some; of 16 query rows, of 32;
                               * none of Q8_0 */
        void *latent;          /* attention_latent.cu: NULL on none but Hopper */
    } attend[LODE_CUDA_KEPTS]; /* Q8_0 has no ring; NULLs before Ampere */
    struct {
        void *x, *few_x, *few[2][4]; /* few: of blocks of 256, of 32; for one row, 8, 16, 32 */
        void *wide[LODE_DTYPE_COUNT][2]; /* 64 and 128 rows a block */
        void *gated[LODE_DTYPE_COUNT];   /* gate and up multiplied; 128 rows */
    } packed;                     /* of packed weights in --numerics fast; NULLs on none but Hopper */
};

/* How a type's rows lie on the device; n 0: it has no kernels.  Which it has beside those of mul.cu:
 * products of one row with what surrounds it; those of a few rows, and of many by Hopper's warpgroups; of many. */
struct lode_cuda_layout {
    uint32_t block, n;
    struct {
        uint32_t offset, size;
    } plane[LODE_CUDA_PLANES];
    bool plain; /* as in the file */
    bool gemv, few, gemm;
    enum lode_cuda_family { LODE_CUDA_COMMON, LODE_CUDA_CODEBOOK, LODE_CUDA_U, LODE_CUDA_PART } family; /* shared.h's lists */
    bool adds_twice; /* blocks of 32 of which each is two products: a scale's and that of m, or of its other half */
};
extern const struct lode_cuda_layout lode_cuda_layouts[LODE_DTYPE_COUNT];
size_t lode_cuda_row_size(enum lode_dtype type, uint32_t cols); /* with padding */
/* With padding: experts of one size lie at one distance. */
uint64_t lode_cuda_matrix_size(const struct lode_operand *w);

struct lode_cuda {
    struct lode_cu cu;
    int device;
    void *context;
    char name[256];
    size_t memory_size; /* whoever uses it */
    int multiprocessors, shared_max, major, minor;
    int second_cache, window_most; /* bytes; of memory that a launch may say of how it reads it */
    struct lode_tuning tuning;
    char note[1024]; /* why a table that was kept is not used; "" */
    void *modules[LODE_CUDA_MODULES];
    struct lode_cuda_kernels kernels;
    lode_dev *weights; /* owned; (n_weights): addresses, by id */
    lode_dev arena;    /* owned: all weights */
    uint32_t n_weights;
    uint64_t uploaded; /* bytes of them, and how long that took */
    double upload_seconds;
    atomic_bool failed; /* a call has: the device may be lost */
    atomic_uint_least64_t brought; /* bytes: brought.c */
    struct lode_cuda_registered layers; /* the host's, that it is brought */
    struct lode_cuda_cache *cache; /* owned; NULL: none */
    struct lode_memory memory; /* of the device; first-class so that it can be found from it */
};

/* What the device's table says of a weight's product. */
static inline uint32_t lode_cuda_tuned(const struct lode_cuda *c, enum lode_tuning_knob knob, enum lode_dtype type,
                                       uint32_t cols) {
    return c->tuning.value[knob][type][lode_tuning_class(cols)];
}

enum { LODE_CUDA_OWN_SHARED = 8 << 10 }; /* bytes that a kernel may take beside what a launch gives it */

/* Bytes of shared memory that a launch may ask for. */
static inline uint32_t lode_cuda_room(const struct lode_cuda *c) { return (uint32_t)(c->shared_max - LODE_CUDA_OWN_SHARED); }

/* find.c: fills c->kernels, of the device whose context is the thread's. */
int lode_cuda_find_kernels(struct lode_cuda *c, struct lode_error *err);
/* Makes the device's context the thread's. */
int lode_cuda_enter(const struct lode_cuda *c, struct lode_error *err);
/* size bytes of its memory, or of the host's for asynchronous copies (p: of a pointer).  LODE_ERR_NOMEM with
 * numbers, for what (a plural). */
int lode_cuda_take(const struct lode_cuda *c, lode_dev *p, uint64_t size, const char *where, const char *what,
                   struct lode_error *err);
int lode_cuda_take_pinned(const struct lode_cuda *c, void *p, uint64_t size, struct lode_error *err);
/* One launch of `threads` by grid x, y, z with one struct of arguments. */
int lode_cuda_launch(const struct lode_cuda *c, void *stream, void *kernel, uint32_t x, uint32_t y,
                     uint32_t z, uint32_t threads, uint32_t shared, const void *args,
                     struct lode_error *err);
/* Memory that a launch reads once: it leaves the second cache before what others want again.  n: bytes; 0: none. */
struct lode_cuda_once {
    lode_dev at;
    uint64_t n;
};
int lode_cuda_launch_once(const struct lode_cuda *c, struct lode_cuda_once once, void *stream, void *kernel, uint32_t x, uint32_t y,
                          uint32_t z, uint32_t threads, uint32_t shared, const void *args, struct lode_error *err);
/* Bytes of shared memory of a kernel for many rows of x with weights of such a type. */
static inline uint32_t lode_cuda_gemm_shared(enum lode_dtype type) {
    return lode_cuda_layouts[type].plain ? LODE_GEMM_FLOAT_SHARED : LODE_GEMM_SHARED;
}
/* Bytes of shared memory that attention.cu asks for, with keys or values at a time that there is room for (4 at least: then there
 * may be none). */
uint32_t lode_cuda_attention_shared(const struct lode_cuda *c, uint32_t head_dim, uint32_t head_dim_v, uint32_t *kv_rows);

#endif
