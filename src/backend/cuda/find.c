/* find.c - the kernels that a device has, from the fatbins, and how much shared memory each may be given. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/attention/attention_shared.h"
#include "backend/cuda/kernels/experts/chosen_shared.h"
#include "backend/cuda/kernels/products/gated.h"
#include "backend/cuda/kernels/products/stream_shared.h"

#include <stdio.h>

/* The fatbins, made by the build (images.c). */
#define IMAGE(name) extern const unsigned long long lode_cuda_image_##name[];
LODE_CUDA_MODULE_LIST(IMAGE)
#undef IMAGE

static const void *const images[] = {
#define IMAGE(name) lode_cuda_image_##name,
    LODE_CUDA_MODULE_LIST(IMAGE)
#undef IMAGE
};

static int find(struct lode_cuda *c, enum lode_cuda_module m, const char *name, void **out,
                struct lode_error *err) {
    LODE_TRY(lode_cu_check(&c->cu, c->cu.module_function(out, c->modules[m], name), name, err));
    /* One split of the first cache for all that a token runs through: a multiprocessor that has to change
     * it can't begin the next launch beside the last. */
    if (m == LODE_CUDA_MODULE_mul || m == LODE_CUDA_MODULE_mul_packed || m == LODE_CUDA_MODULE_gemm)
        return 0;
    return lode_cu_check(&c->cu, c->cu.function_set(*out, LODE_CU_FUNCTION_CARVEOUT, 100), name, err);
}

/* what: the kernel's name, for the error. */
static int allow_bytes(struct lode_cuda *c, void *kernel, uint32_t bytes, const char *what, struct lode_error *err) {
    return lode_cu_check(&c->cu, c->cu.function_set(kernel, LODE_CU_FUNCTION_SHARED, (int)bytes), what, err);
}

/* All the shared memory that a block may have, less what kernels take by themselves. */
static int allow_shared(struct lode_cuda *c, void *kernel, struct lode_error *err) {
    return allow_bytes(c, kernel, lode_cuda_room(c), "shared memory", err);
}

/* What only some targets have: *out NULL elsewhere. */
static int find_wide(struct lode_cuda *c, enum lode_cuda_module m, const char *name, void **out,
                     struct lode_error *err) {
    *out = NULL;
    if (c->cu.module_function(out, c->modules[m], name) != 0)
        return 0;
    return allow_bytes(c, *out, LODE_WIDE_SHARED, name, err);
}

/* module: that of the products of a few rows. */
static int find_family(struct lode_cuda *c, enum lode_dtype type, const char *suffix,
                       enum lode_cuda_module module, struct lode_error *err) {
    const struct lode_cuda_layout *l = &lode_cuda_layouts[type];
    char name[64];
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "mul_%s_%d", suffix, 1 << i);
        LODE_TRY(find(c, module, name, &c->kernels.mul[type][i], err));
    }
    if (l->gemm) {
        snprintf(name, sizeof name, "gemm_%s", suffix);
        LODE_TRY(find(c, l->plain ? LODE_CUDA_MODULE_gemm_float : LODE_CUDA_MODULE_gemm, name,
                      &c->kernels.gemm[type], err));
        LODE_TRY(allow_bytes(c, c->kernels.gemm[type], lode_cuda_gemm_shared(type), name, err));
    }
    if (l->gemm && !l->plain && c->shared_max >= LODE_GEMM_LARGE_SHARED) {
        snprintf(name, sizeof name, "gemm_large_%s", suffix);
        LODE_TRY(find(c, LODE_CUDA_MODULE_gemm, name, &c->kernels.gemm_large[type], err));
        LODE_TRY(allow_bytes(c, c->kernels.gemm_large[type], LODE_GEMM_LARGE_SHARED, name, err));
    }
    for (int i = 0; i < 2 && !l->plain; i++) {
        snprintf(name, sizeof name, "wide_%s_%d", suffix, 64 << i);
        LODE_TRY(find_wide(c, l->family == LODE_CUDA_COMMON ? LODE_CUDA_MODULE_wide : LODE_CUDA_MODULE_wide_own, name,
                           &c->kernels.wide[type][i], err));
        snprintf(name, sizeof name, "wide_ahead_%s", suffix);
        LODE_TRY(find_wide(c, LODE_CUDA_MODULE_wide_ahead, name, &c->kernels.wide_ahead[type], err));
        snprintf(name, sizeof name, "wide_fast_%s_%d", suffix, 64 << i);
        LODE_TRY(find_wide(c, LODE_CUDA_MODULE_wide_fast, name, &c->kernels.packed.wide[type][i], err));
    }
    if (l->gemv && l->plain) { /* one kernel has all types with planes */
        snprintf(name, sizeof name, "gemv_%s", suffix);
        LODE_TRY(find(c, LODE_CUDA_MODULE_gemv_float, name, &c->kernels.gemv[type], err));
        LODE_TRY(allow_shared(c, c->kernels.gemv[type], err));
        for (int i = 0; i < LODE_NEAR_SIZES; i++) {
            snprintf(name, sizeof name, "near_%s_%d", suffix, 1 << i);
            LODE_TRY(find(c, LODE_CUDA_MODULE_gemv_near, name, &c->kernels.near[type][i], err));
            LODE_TRY(allow_shared(c, c->kernels.near[type][i], err));
        }
    }
    snprintf(name, sizeof name, "moe_%s", suffix);
    LODE_TRY(find(c, module, name, &c->kernels.moe[type], err));
    snprintf(name, sizeof name, "embed_%s", suffix);
    return find(c, LODE_CUDA_MODULE_rows, name, &c->kernels.embed[type], err);
}

static int find_chosen(struct lode_cuda *c, enum lode_dtype type, const char *suffix, struct lode_error *err) {
    const bool by32 = lode_dtypes[type].act == LODE_A32;
    void **const in = &c->kernels.chosen_in[type], **const out = &c->kernels.chosen_out[type];
    char name[64];
    snprintf(name, sizeof name, "chosen_in_%s", suffix);
    LODE_TRY(find(c, by32 ? LODE_CUDA_MODULE_chosen_in_32 : LODE_CUDA_MODULE_chosen_in, name, in, err));
    LODE_TRY(allow_shared(c, *in, err));
    snprintf(name, sizeof name, "chosen_out_%s", suffix);
    LODE_TRY(find(c, by32 ? LODE_CUDA_MODULE_chosen_out_32 : LODE_CUDA_MODULE_chosen_out, name, out, err));
    return allow_shared(c, *out, err);
}

/* What targets before Ampere lack, and of these kernels only Hopper has: *out NULL there. */
static int find_fast(struct lode_cuda *c, enum lode_cuda_module m, const char *name, const char *suffix, int shared,
                     void **out, struct lode_error *err) {
    char text[64];
    snprintf(text, sizeof text, "%s_%s", name, suffix);
    *out = NULL;
    if (c->cu.module_function(out, c->modules[m], text) != 0)
        return 0;
    LODE_TRY(allow_bytes(c, *out, (uint32_t)shared, text, err));
    return lode_cu_check(&c->cu, c->cu.function_set(*out, LODE_CU_FUNCTION_CARVEOUT, 100), text, err);
}

static int find_walks(struct lode_cuda *c, const char *name, void *out[4], struct lode_error *err) {
    for (int i = 0; i < 4; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s_%d", name, 1 << i);
        LODE_TRY(find(c, LODE_CUDA_MODULE_decode_walk, text, &out[i], err));
        LODE_TRY(allow_shared(c, out[i], err));
    }
    return 0;
}

static int find_short(struct lode_cuda *c, const char *name, void **out, struct lode_error *err) {
    LODE_TRY(find(c, LODE_CUDA_MODULE_decode_short, name, out, err));
    return allow_shared(c, *out, err);
}

static int find_shorts(struct lode_cuda *c, struct lode_error *err) {
    static const char *const sizes[3] = {"", "_64", "_128"};
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 3; k++) {
            char name[64];
            snprintf(name, sizeof name, "decode_short_%s%s", i ? "bf16" : "f16", sizes[k]);
            LODE_TRY(find_short(c, name, &c->kernels.brief[i][k], err));
            snprintf(name, sizeof name, "decode_several_%s%s", i ? "bf16" : "f16", sizes[k]);
            if (k)
                LODE_TRY(find_short(c, name, &c->kernels.several[i][k], err));
        }
    return 0;
}

static int find_fast_family(struct lode_cuda *c, struct lode_cuda_fast_kernels *k, const char *type,
                            struct lode_error *err) {
    const int most = (int)lode_cuda_room(c);
    char name[24];
    LODE_TRY(find_fast(c, LODE_CUDA_MODULE_gemm_fast, "fast_x", type, most, &k->x, err));
    LODE_TRY(find_fast(c, LODE_CUDA_MODULE_gemm_fast, "few_fast_x", type, most, &k->few_x, err));
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s_%d", type, i ? 1 << (i - 1) : 0);
        LODE_TRY(find_fast(c, LODE_CUDA_MODULE_gemv_fast, "few_fast", name, most, &k->few[i], err));
        if (c->cu.tensor_map)
            LODE_TRY(find_fast(c, LODE_CUDA_MODULE_gemv_stream_fast, "stream_fast", name, most, &k->stream[i], err));
    }
    if (most < LODE_FAST_TILE_SHARED)
        return 0;
    LODE_TRY(find_fast(c, LODE_CUDA_MODULE_gemm_fast, "tile_fast", type, LODE_FAST_TILE_SHARED, &k->tile, err));
    if (c->cu.tensor_map && c->shared_max >= LODE_FAST_SHARED)
        LODE_TRY(find_fast(c, LODE_CUDA_MODULE_gemm_fast, "wide_fast", type, LODE_FAST_SHARED, &k->wide, err));
    return 0;
}

static int find_packed_fast(struct lode_cuda *c, struct lode_error *err) {
    const int most = (int)lode_cuda_room(c);
    char few[24];
    LODE_TRY(find_fast(c, LODE_CUDA_MODULE_gemm_fast, "fast_x", "packed", most, &c->kernels.packed.x, err));
    LODE_TRY(find_fast(c, LODE_CUDA_MODULE_gemm_fast, "few_fast_x", "packed", most, &c->kernels.packed.few_x, err));
    for (int i = 0; i < 8; i++) {
        snprintf(few, sizeof few, "%s_%d", i / 4 ? "a32" : "a256", i % 4 ? 1 << (i % 4 - 1) : 0);
        LODE_TRY(find_fast(c, LODE_CUDA_MODULE_few_fast, "few_fast", few, most, &c->kernels.packed.few[i / 4][i % 4],
                           err));
    }
    return 0;
}

static int find_attend(struct lode_cuda *c, struct lode_cuda_attend_kernels *k, const char *type, struct lode_error *err) {
    const int most = (int)lode_cuda_room(c);
    char name[24];
    for (int i = 0; i < LODE_CUDA_ATTEND_DIMS; i++) {
        snprintf(name, sizeof name, "%s_%d", type, 64 << i);
        LODE_TRY(find_fast(c, LODE_CUDA_MODULE_attention_fast, "attend_fast", name, most, &k->many[i], err));
        LODE_TRY(find_fast(c, LODE_CUDA_MODULE_attention_fast, "attend_deep", name, most, &k->deep[i], err));
        LODE_TRY(find_fast(c, LODE_CUDA_MODULE_attention_fast, "attend_parts", name, most, &k->parts[i], err));
    }
    for (uint32_t i = 0; i < 6 && c->cu.tensor_map; i++) {
        const uint32_t dim = 64u << i / 2, groups = 1 + i % 2, tiles = dim > 128 ? 1 : groups;
        const uint32_t shared = k == &c->kernels.attend[LODE_CUDA_KEPT_q8_0] ? LODE_ATT_WIDE_Q8_0_SHARED(dim, tiles) : LODE_ATT_WIDE_SHARED(dim, tiles);
        snprintf(name, sizeof name, "%s_%u_%u", type, dim, groups);
        if (shared <= (uint32_t)c->shared_max) /* they have nothing beside it */
            LODE_TRY(find_fast(c, LODE_CUDA_MODULE_attention_wide, "attend_wide", name, (int)shared, &k->wide[i / 2][i % 2], err));
    }
    for (uint32_t i = 0; i < 4 && c->cu.tensor_map; i++) {
        snprintf(name, sizeof name, "%s_%u_%u", type, 64u << i / 2, 8u << i % 2);
        LODE_TRY(find_fast(c, LODE_CUDA_MODULE_decode_ring, "decode_ring", name, most, &k->ring[i / 2][i % 2], err));
    }
    for (uint32_t i = 0; i < 2 && c->cu.tensor_map; i++) {
        snprintf(name, sizeof name, "%s_%u", type, 64u << i);
        LODE_TRY(find_fast(c, LODE_CUDA_MODULE_parts_ring, "parts_ring", name, most, &k->parts_ring[i], err));
    }
    static const char *const decode[] = {"8", "16", "8_128", "8_64"};
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s_%s", type, decode[i]);
        LODE_TRY(find_fast(c, LODE_CUDA_MODULE_decode_fast, "decode_fast", name, most, &k->decode[i], err));
    }
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s_%d", type, i * 64);
        LODE_TRY(find_fast(c, LODE_CUDA_MODULE_decode_short_fast, "decode_short_fast", name, most, &k->brief[0][i], err));
        if (i > 0)
            LODE_TRY(find_fast(c, LODE_CUDA_MODULE_decode_short_fast, "decode_short_several", name, most, &k->brief[1][i], err));
        LODE_TRY(find_fast(c, LODE_CUDA_MODULE_decode_short_fast, "decode_short_made", name, most, &k->brief[2][i], err));
    }
    if (LODE_ATT_LATENT_SHARED <= most)
        LODE_TRY(find_fast(c, LODE_CUDA_MODULE_attention_latent, "attend_latent_wide", type, LODE_ATT_LATENT_SHARED, &k->latent, err));
    static const char *const large[] = {"attend_long", "attend_long_parts", "attend_latent", "attend_latent_parts"};
    for (uint32_t i = 0; i < 8; i++) {
        snprintf(name, sizeof name, "%s_%u", type, 16u << i % 2);
        LODE_TRY(find_fast(c, LODE_CUDA_MODULE_attention_long, large[i / 2], name, c->shared_max - LODE_ATT_LONG_OWN, &k->large[i / 4][i / 2 % 2][i % 2], err));
    }
    return 0;
}

bool lode_cuda_has_fast(const struct lode_cuda *c) {
    bool all = true;
    for (int i = 0; i < 2; i++) {
        const struct lode_cuda_fast_kernels *k = &c->kernels.fast[i];
        all &= k->x && k->few_x && k->tile && k->few[0] && k->few[1] && k->few[2] && k->few[3];
    }
    return all;
}

int lode_cuda_find_kernels(struct lode_cuda *c, struct lode_error *err) {
    for (int i = 0; i < LODE_CUDA_MODULES; i++) {
        const lode_cu_result rc = c->cu.module_load(&c->modules[i], images[i]);
        if (rc == LODE_CU_BAD_IMAGE || rc == LODE_CU_NO_BINARY || rc == LODE_CU_BAD_PTX || rc == LODE_CU_NEW_PTX)
            return lode_fail(err, LODE_ERR_UNSUPPORTED, "cuda",
                             "this build has no kernels for '%s'; build it with this GPU's target in "
                             "-Dgpu_targets",
                             c->name);
        LODE_TRY(lode_cu_check(&c->cu, rc, "kernels", err));
    }
#define FIND(module, kernel)                                                                       \
    LODE_TRY(find(c, LODE_CUDA_MODULE_##module, #kernel, &c->kernels.kernel, err));
    LODE_CUDA_KERNEL_LIST(FIND)
#undef FIND
#define FAMILY(suffix, type)                                                                       \
    LODE_TRY(find_family(c, LODE_##type, #suffix, LODE_CUDA_MODULE_mul, err));
#define WITH_PLANES(suffix, type, ...) FAMILY(suffix, type)
    LODE_CUDA_QUANT_LIST(WITH_PLANES) LODE_CUDA_FLOAT_LIST(FAMILY)
#undef FAMILY
#define FAMILY(suffix, type)                                                                       \
    LODE_TRY(find_family(c, LODE_##type, #suffix, LODE_CUDA_MODULE_mul_packed, err));
    LODE_CUDA_U_LIST(WITH_PLANES) LODE_CUDA_U8_LIST(WITH_PLANES) LODE_CUDA_CODEBOOK_LIST(WITH_PLANES)
    LODE_CUDA_PART_LIST(WITH_PLANES) LODE_CUDA_PACKED_LIST(FAMILY)
#undef WITH_PLANES
#undef FAMILY
    for (int i = 0; i < 2; i++) {
        const enum lode_cuda_module wide = LODE_CUDA_MODULE_wide;
        LODE_TRY(find_wide(c, wide, i ? "spread_32_128" : "spread_32_64", &c->kernels.spread_32[i], err));
        LODE_TRY(find_wide(c, wide, i ? "spread_256_128" : "spread_256_64", &c->kernels.spread_256[i], err));
        const int most = (int)lode_cuda_room(c);
        LODE_TRY(find_fast(c, wide, "spread_floats", i ? "32_128" : "32_64", most, &c->kernels.spread_floats_32[i], err));
        LODE_TRY(find_fast(c, wide, "spread_floats", i ? "256_128" : "256_64", most, &c->kernels.spread_floats_256[i], err));
    }
    LODE_TRY(find_wide(c, LODE_CUDA_MODULE_wide, "spread_met_32_64", &c->kernels.spread_met_32, err));
    LODE_TRY(find_wide(c, LODE_CUDA_MODULE_wide, "spread_met_256_64", &c->kernels.spread_met_256, err));
#define STREAM(suffix, type) \
    LODE_TRY(find_fast(c, LODE_CUDA_MODULE_gemv_stream, "stream", #suffix, (int)lode_cuda_room(c), &c->kernels.stream[LODE_##type], err));
    LODE_CUDA_FLOAT_LIST(STREAM) STREAM(q8_0, Q8_0)
#undef STREAM
    void **const k = &c->kernels.stream[LODE_Q4_K]; /* one kernel for three types, which files mix */
    LODE_TRY(find_fast(c, LODE_CUDA_MODULE_gemv_stream_k, "stream", "k", (int)lode_cuda_room(c), k, err));
    c->kernels.stream[LODE_Q5_K] = c->kernels.stream[LODE_Q6_K] = *k;
    LODE_TRY(find_fast_family(c, &c->kernels.fast[0], "f16", err));
    LODE_TRY(find_fast_family(c, &c->kernels.fast[1], "bf16", err));
    LODE_TRY(find_packed_fast(c, err));
#define GATED(suffix, type) \
    LODE_TRY(find_wide(c, LODE_CUDA_MODULE_wide_gated, "wide_gated_" #suffix, &c->kernels.packed.gated[LODE_##type], err)); \
    LODE_TRY(find_wide(c, LODE_CUDA_MODULE_wide_glu, "wide_glu_" #suffix, &c->kernels.wide_glu[LODE_##type], err));
    LODE_CUDA_GATED_LIST(GATED)
#undef GATED
#define ROUNDED(suffix, type) \
    LODE_TRY(find_wide(c, LODE_CUDA_MODULE_wide_glu, "wide_glu_rounded_" #suffix, &c->kernels.wide_glu_rounded[LODE_##type], err));
    LODE_CUDA_GATED_32_LIST(ROUNDED)
#undef ROUNDED
#define WALK(name) LODE_TRY(find_walks(c, "walk_" #name, c->kernels.walk[LODE_CUDA_WALK_##name], err));
    LODE_CUDA_WALK_LIST(WALK)
#undef WALK
    LODE_TRY(find_shorts(c, err));
    const int most = (int)lode_cuda_room(c);
    LODE_TRY(find_fast(c, LODE_CUDA_MODULE_attention_ring, "attention_ring", "128", most, &c->kernels.ring[0], err));
    LODE_TRY(find_fast(c, LODE_CUDA_MODULE_attention_ring, "attention_ring", "64", most, &c->kernels.ring[1], err));
#define ATTEND(kept) LODE_TRY(find_attend(c, &c->kernels.attend[LODE_CUDA_KEPT_##kept], #kept, err))
    ATTEND(f16);
    ATTEND(bf16);
    ATTEND(q8_0);
#undef ATTEND
#define CHOSEN(suffix, type) LODE_TRY(find_chosen(c, LODE_##type, #suffix, err));
    LODE_CHOSEN_256_LIST(CHOSEN) LODE_CHOSEN_32_LIST(CHOSEN)
#undef CHOSEN
    void *const large[] = {c->kernels.rms_norm_any, c->kernels.layer_norm, c->kernels.l2_norm,
                           c->kernels.gemv_a32, c->kernels.gemv_a256, c->kernels.gemv_only_q8_0,
                           c->kernels.gemv_only_q4_k, c->kernels.gemv_only_q5_k, c->kernels.gemv_u, c->kernels.gemv_parts,
                           c->kernels.attention_walk,
                           c->kernels.attention_page, c->kernels.attention_tile, c->kernels.attention_tile_256, c->kernels.attention_large,
                           c->kernels.attention_large_32, c->kernels.decode_join_rows, c->kernels.decode_join_128, c->kernels.decode_join_256,
                           c->kernels.decode_1, c->kernels.decode_2, c->kernels.decode_4, c->kernels.decode_8,
                           c->kernels.few_x32,
                           c->kernels.few_x256, c->kernels.few_a32_1, c->kernels.few_a32_2, c->kernels.few_a32_4,
                           c->kernels.few_experts_a256, c->kernels.few_experts_a32, c->kernels.few_experts_own,
                           c->kernels.few_experts_q4_q6, c->kernels.few_experts_q5_q6,
                           c->kernels.few_own_1, c->kernels.few_own_2, c->kernels.few_own_4,
                           c->kernels.few_q4_q6_1, c->kernels.few_q4_q6_2, c->kernels.few_q4_q6_4,
                           c->kernels.few_q5_q6_1, c->kernels.few_q5_q6_2, c->kernels.few_q5_q6_4,
                           c->kernels.few_a256_1, c->kernels.few_a256_2, c->kernels.few_a256_4};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        LODE_TRY(allow_shared(c, large[i], err));
    return allow_bytes(c, c->kernels.gemv_codebook, lode_cuda_room(c) - LODE_CODEBOOK_GRIDS, "gemv_codebook", err);
}
