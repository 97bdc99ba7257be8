/* hf_quant_ct.c - integers of compressed-tensors.
 *
 *     pack-quantized  weight_packed I32 (rows, cols / per word): a word holds 32 / bits columns, the
 *                     first lowest, each code raised by 2^(bits - 1); weight_scale (rows, groups),
 *                     weight_zero_point I32 (rows / per word, groups) packed along the rows and
 *                     raised too (without: 0), weight_shape I64 (2) = rows, cols
 *     int-quantized   weight I8 (rows, cols), weight_scale (rows, groups) or (1),
 *                     weight_zero_point I8 of the same shape
 *
 * w = scale (q - zero).  Bits follow from the shapes; groups are columns / groups. */
#include "format/hf_quant.h"

#include "base/error.h"

#include <stdio.h>

/* (rows, groups), (rows) or one number for all. */
static int check_scales(struct lode_hf_linear *l, struct lode_error *err) {
    const struct lode_st_tensor *scales = l->part[LODE_HF_SCALES];
    if (!lode_hf_is_scale(scales->type) || scales->type == LODE_ST_F8_E8M0)
        return lode_hf_part_type(l, LODE_HF_SCALES, "F16, BF16 or F32", err);
    uint64_t n = 1;
    for (uint32_t i = 0; i < scales->n_dims; i++)
        n *= scales->dims[i]; /* no more than the file has bytes, or 0 */
    if (n == 1 && l->n_matrices == 1) {
        l->group_rows = (uint32_t)l->rows;
        l->group = (uint32_t)l->cols;
        return 0;
    }
    const uint64_t all = l->n_matrices * l->rows, groups = n / all;
    if (!n || n % all || groups > l->cols || l->cols % groups)
        return lode_hf_part_shape(l, LODE_HF_SCALES, err,
                                  "groups that divide the %llu columns of %llu rows expected",
                                  (unsigned long long)l->cols, (unsigned long long)l->rows);
    l->group = (uint32_t)(l->cols / groups);
    return 0;
}

static uint64_t n_groups(const struct lode_hf_linear *l) { return l->cols / l->group; }

static void put_scales(const struct lode_hf_linear *l, const struct lode_hf_rows *in) {
    const uint64_t row = l->group_rows == 1 ? in->row : 0;
    for (uint64_t g = 0; g < n_groups(l); g++)
        in->d[g] = lode_hf_scale(l->part[LODE_HF_SCALES], in->part[LODE_HF_SCALES],
                                 row * n_groups(l) + g);
}

static void label(const struct lode_hf_linear *l, char *out, size_t size) {
    if (l->group < l->cols || l->group_rows > 1)
        snprintf(out, size, "int%u g%u%s", l->bits, l->group, l->index ? " actorder" : "");
    else
        snprintf(out, size, "int%u", l->bits);
}

/* ---- pack-quantized ---- */

static int packed_describe(struct lode_hf_linear *l, const struct lode_json *settings,
                           struct lode_error *err) {
    const struct lode_st_tensor *codes = l->part[LODE_HF_CODES], *zeros = l->part[LODE_HF_ZEROS];
    const struct lode_st_tensor *shape = l->part[LODE_HF_SHAPE];
    const struct lode_json *group =
        lode_json_first(lode_json_get(settings, "config_groups")); /* the bits where there is one */
    int64_t bits = 4;
    const struct lode_json *said = lode_json_get(lode_json_get(group, "weights"), "num_bits");
    if (said && (!lode_json_int(said, 0, 64, &bits) || (bits != 4 && bits != 8)))
        return lode_fail(err, LODE_ERR_UNSUPPORTED, l->as.name,
                         "quantization_config.config_groups.weights.num_bits: 4 or 8 expected");
    l->n_matrices = lode_hf_part_matrices(codes);
    l->rows = lode_hf_part_rows(codes);
    l->bits = (uint32_t)bits;
    if (lode_hf_part_cols(codes) > UINT32_MAX / 8 || !codes->size)
        return lode_hf_part_shape(l, LODE_HF_CODES, err, "it is empty or too large");
    l->cols = lode_hf_part_cols(codes) * (32 / l->bits);
    if (shape && shape->type != LODE_ST_I64)
        return lode_hf_part_type(l, LODE_HF_SHAPE, "I64", err);
    LODE_TRY(check_scales(l, err));
    const uint64_t per_word = 32 / l->bits;
    if (zeros && zeros->type != LODE_ST_I32)
        return lode_hf_part_type(l, LODE_HF_ZEROS, "I32", err);
    if (zeros && !lode_hf_part_is(l, LODE_HF_ZEROS, (l->rows + per_word - 1) / per_word,
                                  n_groups(l)))
        return lode_hf_part_shape(l, LODE_HF_ZEROS, err, "%llu rows of %llu groups expected",
                                  (unsigned long long)((l->rows + per_word - 1) / per_word),
                                  (unsigned long long)n_groups(l));
    l->type = lode_hf_type_of_codes(l);
    return 0;
}

static void packed_codes(const struct lode_hf_linear *l, const struct lode_hf_rows *in) {
    const uint64_t per_word = 32 / l->bits;
    const uint32_t shift = (uint32_t)(in->row % per_word) * l->bits, mask = (1u << l->bits) - 1;
    lode_hf_unpack_bits(in->q, in->part[LODE_HF_CODES], l->cols, l->bits);
    put_scales(l, in);
    for (uint64_t g = 0; g < n_groups(l); g++) {
        uint32_t zero = (uint32_t)1 << (l->bits - 1) << shift;
        if (l->part[LODE_HF_ZEROS])
            memcpy(&zero, in->part[LODE_HF_ZEROS] + 4 * (in->row / per_word * n_groups(l) + g), 4);
        in->z[g] = (float)(zero >> shift & mask);
    }
}

const struct lode_hf_scheme lode_hf_ct_packed = {
    .name = "compressed-tensors",
    .whole = 1u << LODE_HF_SCALES | 1u << LODE_HF_ZEROS,
    .describe = packed_describe,
    .codes = packed_codes,
    .label = label,
};

/* ---- int-quantized ---- */

static int int8_describe(struct lode_hf_linear *l, const struct lode_json *settings,
                         struct lode_error *err) {
    const struct lode_st_tensor *codes = l->part[LODE_HF_CODES], *zeros = l->part[LODE_HF_ZEROS];
    (void)settings;
    l->n_matrices = lode_hf_part_matrices(codes);
    l->rows = lode_hf_part_rows(codes);
    l->cols = lode_hf_part_cols(codes);
    l->bits = 8;
    if (!codes->size || l->cols > UINT32_MAX || l->rows > UINT32_MAX)
        return lode_hf_part_shape(l, LODE_HF_CODES, err, "it is empty or too large");
    LODE_TRY(check_scales(l, err));
    if (zeros && zeros->type != LODE_ST_I8)
        return lode_hf_part_type(l, LODE_HF_ZEROS, "I8", err);
    if (zeros && zeros->size != (l->group_rows > 1 ? 1 : l->n_matrices * l->rows * n_groups(l)))
        return lode_hf_part_shape(l, LODE_HF_ZEROS, err, "the shape of weight_scale expected");
    l->type = lode_hf_type_of_codes(l);
    return 0;
}

static void int8_codes(const struct lode_hf_linear *l, const struct lode_hf_rows *in) {
    const uint64_t row = l->group_rows == 1 ? in->row : 0;
    for (uint64_t i = 0; i < l->cols; i++) /* -128 .. 127 as 0 .. 255 */
        in->q[i] = in->part[LODE_HF_CODES][i] ^ 0x80;
    put_scales(l, in);
    for (uint64_t g = 0; g < n_groups(l); g++)
        in->z[g] = l->part[LODE_HF_ZEROS]
                       ? (float)(in->part[LODE_HF_ZEROS][row * n_groups(l) + g] ^ 0x80)
                       : 128.0f;
}

const struct lode_hf_scheme lode_hf_ct_int8 = {
    .name = "compressed-tensors",
    .whole = 1u << LODE_HF_SCALES | 1u << LODE_HF_ZEROS,
    .describe = int8_describe,
    .codes = int8_codes,
    .label = label,
};
