/* hf_quant_mlx.c - MLX's layouts: codes as a stream of bits in words of 32, scales beside them.
 *
 *     affine   weight U32 (rows, cols bits / 32), scales and biases (rows, cols / group) in floats
 *     mxfp4    weight U32 (rows, cols / 8), scales U8 (rows, cols / 32): E8M0
 *     mxfp8    weight U32 (rows, cols / 4), scales U8 (rows, cols / 32): E8M0
 *     nvfp4    weight U32 (rows, cols / 8), scales U8 (rows, cols / 16): E4M3
 *
 * each perhaps with experts in front.  w = scale q + bias, product and sum rounded to float32. */
#include "format/hf_quant.h"

#include "base/error.h"
#include "base/half.h"
#include "tensor/block.h"

#include <stdio.h>

/* Matrices, rows and columns from the codes; group_size and bits must be those of the shape. */
static int describe(struct lode_hf_linear *l, const struct lode_json *settings, uint32_t bits,
                    uint32_t group, struct lode_error *err) {
    const struct lode_st_tensor *codes = l->part[LODE_HF_CODES];
    int64_t n;
    l->bits = bits;
    l->group = group;
    if (codes->type != LODE_ST_U32)
        return lode_hf_part_type(l, LODE_HF_CODES, "U32", err);
    if (lode_json_int(lode_json_get(settings, "bits"), 1, 64, &n) && !bits)
        l->bits = (uint32_t)n;
    if (lode_json_int(lode_json_get(settings, "group_size"), 1, 1 << 20, &n) && !group)
        l->group = (uint32_t)n;
    if (!l->bits || l->bits == 7 || l->bits > 8 || l->bits == 1)
        return lode_fail(err, LODE_ERR_UNSUPPORTED, l->as.name,
                         "config.json gives it %u bits; 2, 3, 4, 5, 6 or 8 expected", l->bits);
    if (!l->group)
        return lode_fail(err, LODE_ERR_FORMAT, l->as.name, "config.json gives no group_size");
    const uint64_t words = lode_hf_part_cols(codes);
    l->n_matrices = lode_hf_part_matrices(codes);
    l->rows = lode_hf_part_rows(codes);
    l->cols = words > UINT32_MAX ? 0 : words * 32 / l->bits;
    if (!l->cols || l->cols * l->bits != words * 32 || l->cols % l->group)
        return lode_hf_part_shape(l, LODE_HF_CODES, err,
                                  "no whole number of groups of %u numbers of %u bits", l->group,
                                  l->bits);
    const enum lode_hf_part parts[2] = {LODE_HF_SCALES, LODE_HF_MINIMA};
    for (int i = 0; i < 1 + l->scheme->has_minima; i++) {
        if (!l->part[parts[i]])
            return lode_fail(err, LODE_ERR_MISSING, l->as.name, "its %s are missing",
                             i ? "biases" : "scales");
        if (!lode_hf_part_is(l, parts[i], l->rows, l->cols / l->group))
            return lode_hf_part_shape(l, parts[i], err, "%llu x %llu expected",
                                      (unsigned long long)l->rows,
                                      (unsigned long long)(l->cols / l->group));
    }
    return 0;
}

/* ---- affine ---- */

static int affine_describe(struct lode_hf_linear *l, const struct lode_json *settings,
                           struct lode_error *err) {
    LODE_TRY(describe(l, settings, 0, 0, err));
    const enum lode_st_type type = l->part[LODE_HF_SCALES]->type;
    if (!lode_hf_is_scale(type) || type == LODE_ST_F8_E8M0)
        return lode_hf_part_type(l, LODE_HF_SCALES, "F16, BF16 or F32", err);
    if (l->part[LODE_HF_MINIMA]->type != type)
        return lode_hf_part_type(l, LODE_HF_MINIMA, "that of the scales", err);
    l->type = lode_hf_type_of_codes(l);
    return 0;
}

static void affine_codes(const struct lode_hf_linear *l, const struct lode_hf_rows *in) {
    lode_hf_unpack_bits(in->q, in->part[LODE_HF_CODES], l->cols, l->bits);
    for (uint64_t g = 0; g < l->cols / l->group; g++) {
        in->d[g] = lode_hf_scale(l->part[LODE_HF_SCALES], in->part[LODE_HF_SCALES], g);
        in->m[g] = lode_hf_scale(l->part[LODE_HF_MINIMA], in->part[LODE_HF_MINIMA], g);
    }
}

static void label_bits(const struct lode_hf_linear *l, char *out, size_t size) {
    snprintf(out, size, "%u-bit g%u", l->bits, l->group);
}

const struct lode_hf_scheme lode_hf_mlx_affine = {
    .name = "MLX affine",
    .describe = affine_describe,
    .codes = affine_codes,
    .has_minima = true,
    .label = label_bits,
};

/* ---- floats of 4 and 8 bits ---- */

static void no_label(const struct lode_hf_linear *l, char *out, size_t size) {
    (void)l;
    snprintf(out, size, "%s", "");
}

static int describe_fp(struct lode_hf_linear *l, const struct lode_json *settings, uint32_t bits,
                       uint32_t group, enum lode_dtype type, struct lode_error *err) {
    if (l->part[LODE_HF_SCALES]->type != LODE_ST_U8)
        return lode_hf_part_type(l, LODE_HF_SCALES, "U8", err);
    LODE_TRY(describe(l, settings, bits, group, err));
    if (l->cols % lode_dtypes[type].block)
        return lode_hf_part_shape(l, LODE_HF_CODES, err, "rows of a multiple of %u numbers expected",
                                  lode_dtypes[type].block);
    l->type = type;
    return 0;
}

static int mxfp4_describe(struct lode_hf_linear *l, const struct lode_json *settings,
                          struct lode_error *err) {
    return describe_fp(l, settings, 4, 32, LODE_MXFP4, err);
}

static int mxfp8_describe(struct lode_hf_linear *l, const struct lode_json *settings,
                          struct lode_error *err) {
    return describe_fp(l, settings, 8, 32, LODE_E4M3, err);
}

static int nvfp4_describe(struct lode_hf_linear *l, const struct lode_json *settings,
                          struct lode_error *err) {
    return describe_fp(l, settings, 4, 16, LODE_NVFP4, err);
}

static int mxfp4_row(const struct lode_hf_linear *l, const struct lode_hf_rows *in, void *out,
                     struct lode_error *err) {
    struct lode_block_mxfp4 *b = out;
    (void)err;
    for (uint64_t i = 0; i < l->cols / 32; i++) {
        b[i].e = in->part[LODE_HF_SCALES][i];
        lode_hf_pack_nibbles(b[i].qs, in->part[LODE_HF_CODES] + 16 * i, 16);
    }
    return 0;
}

static int mxfp8_row(const struct lode_hf_linear *l, const struct lode_hf_rows *in, void *out,
                     struct lode_error *err) {
    const struct lode_st_tensor e8m0 = {.type = LODE_ST_F8_E8M0};
    struct lode_block_e4m3 *b = out;
    (void)err;
    for (uint64_t i = 0; i < l->cols / 32; i++) {
        b[i].d = lode_hf_scale(&e8m0, in->part[LODE_HF_SCALES], i);
        memcpy(b[i].q, in->part[LODE_HF_CODES] + 32 * i, 32);
    }
    return 0;
}

static int nvfp4_row(const struct lode_hf_linear *l, const struct lode_hf_rows *in, void *out,
                     struct lode_error *err) {
    struct lode_block_nvfp4 *b = out;
    for (uint64_t i = 0; i < l->cols / 16; i++) {
        const uint8_t d = in->part[LODE_HF_SCALES][i];
        if (d >= 0x7f) /* GGML's blocks know no sign, and read NaN as 0 */
            return lode_fail(err, LODE_ERR_FORMAT, l->part[LODE_HF_SCALES]->name,
                             "scale %llu of row %llu is negative or no number (0x%02x)",
                             (unsigned long long)i, (unsigned long long)in->row, d);
        b[i / 4].d[i % 4] = d;
        lode_hf_pack_nibbles(b[i / 4].qs + 8 * (i % 4), in->part[LODE_HF_CODES] + 8 * i, 8);
    }
    return 0;
}

const struct lode_hf_scheme lode_hf_mlx_mxfp4 = {
    .name = "MLX mxfp4", .describe = mxfp4_describe, .row = mxfp4_row, .label = no_label};
const struct lode_hf_scheme lode_hf_mlx_mxfp8 = {
    .name = "MLX mxfp8", .describe = mxfp8_describe, .row = mxfp8_row, .label = no_label};
const struct lode_hf_scheme lode_hf_mlx_nvfp4 = {
    .name = "MLX nvfp4", .describe = nvfp4_describe, .row = nvfp4_row, .label = no_label};

/* ---- the same numbers as others store them ---- */

/* gpt-oss: NAME_blocks U8 (experts, rows, cols / 32, 16), NAME_scales U8 (experts, rows, cols / 32).
 * compressed-tensors mxfp4: weight_packed U8 (rows, cols / 2), weight_scale U8 (rows, cols / 32). */
static int mxfp4_bytes_describe(struct lode_hf_linear *l, const struct lode_json *settings,
                                struct lode_error *err) {
    const struct lode_st_tensor *codes = l->part[LODE_HF_CODES], *scales = l->part[LODE_HF_SCALES];
    const enum lode_hf_part parts[2] = {LODE_HF_CODES, LODE_HF_SCALES};
    (void)settings;
    for (int i = 0; i < 2; i++)
        if (l->part[parts[i]]->type != LODE_ST_U8)
            return lode_hf_part_type(l, parts[i], "U8", err);
    const uint64_t n_blocks = lode_hf_part_cols(scales);
    l->n_matrices = lode_hf_part_matrices(scales);
    l->rows = lode_hf_part_rows(scales);
    l->cols = n_blocks < UINT32_MAX ? 32 * n_blocks : 0;
    l->bits = 4;
    l->group = 32;
    l->type = LODE_MXFP4;
    bool fits = l->cols && codes->size == scales->size * 16;
    if (codes->n_dims == scales->n_dims + 1) /* 16 bytes of codes to a scale */
        fits = fits && codes->dims[codes->n_dims - 1] == 16;
    for (uint32_t i = 0; i + 1 < scales->n_dims; i++)
        fits = fits && codes->dims[i] == scales->dims[i];
    return fits ? 0 : lode_hf_part_shape(l, LODE_HF_CODES, err, "it does not fit that of %s",
                                         scales->name);
}

const struct lode_hf_scheme lode_hf_mxfp4 = {
    .name = "MXFP4", .describe = mxfp4_bytes_describe, .row = mxfp4_row, .label = no_label};
const struct lode_hf_scheme lode_hf_ct_mxfp4 = {.name = "compressed-tensors mxfp4",
                                                .describe = mxfp4_bytes_describe,
                                                .row = mxfp4_row,
                                                .label = no_label};

/* compressed-tensors nvfp4: weight_packed U8 (rows, cols / 2), weight_scale E4M3 (rows, cols / 16),
 * weight_global_scale F32, which divides: w = level (scale / global). */
static int ct_nvfp4_describe(struct lode_hf_linear *l, const struct lode_json *settings,
                             struct lode_error *err) {
    const struct lode_st_tensor *codes = l->part[LODE_HF_CODES];
    (void)settings;
    if (codes->type != LODE_ST_U8)
        return lode_hf_part_type(l, LODE_HF_CODES, "U8", err);
    if (l->part[LODE_HF_SCALES]->type != LODE_ST_F8_E4M3)
        return lode_hf_part_type(l, LODE_HF_SCALES, "F8_E4M3", err);
    if (l->part[LODE_HF_DIVISOR]->type != LODE_ST_F32)
        return lode_hf_part_type(l, LODE_HF_DIVISOR, "F32", err);
    l->n_matrices = lode_hf_part_matrices(codes);
    l->rows = lode_hf_part_rows(codes);
    l->cols = lode_hf_part_cols(codes) < UINT32_MAX ? 2 * lode_hf_part_cols(codes) : 0;
    l->bits = 4;
    l->group = 16;
    l->type = LODE_NVFP4G;
    if (!l->cols || l->cols % 64)
        return lode_hf_part_shape(l, LODE_HF_CODES, err, "rows of a multiple of 64 numbers expected");
    if (!lode_hf_part_is(l, LODE_HF_SCALES, l->rows, l->cols / 16))
        return lode_hf_part_shape(l, LODE_HF_SCALES, err, "%llu x %llu expected",
                                  (unsigned long long)l->rows, (unsigned long long)l->cols / 16);
    if (l->part[LODE_HF_DIVISOR]->size != 4 * l->n_matrices)
        return lode_hf_part_shape(l, LODE_HF_DIVISOR, err, "one number a matrix expected");
    return 0;
}

static int ct_nvfp4_row(const struct lode_hf_linear *l, const struct lode_hf_rows *in, void *out,
                        struct lode_error *err) {
    struct lode_block_nvfp4g *b = out;
    (void)err;
    for (uint64_t i = 0; i < l->cols / 16; i++) {
        memcpy(&b[i / 4].by, in->part[LODE_HF_DIVISOR], 4);
        b[i / 4].d[i % 4] = in->part[LODE_HF_SCALES][i];
        lode_hf_pack_nibbles(b[i / 4].qs + 8 * (i % 4), in->part[LODE_HF_CODES] + 8 * i, 8);
    }
    return 0;
}

const struct lode_hf_scheme lode_hf_ct_nvfp4 = {.name = "compressed-tensors nvfp4",
                                                .whole = 1u << LODE_HF_DIVISOR,
                                                .describe = ct_nvfp4_describe,
                                                .row = ct_nvfp4_row,
                                                .label = no_label};
