/* hf_quant_gptq.c - GPTQ and AWQ: the matrix lies turned, columns first.
 *
 *     GPTQ   qweight I32 (cols bits / 32, rows): a word holds 32 / bits columns of a row, the first
 *            lowest; qzeros I32 (groups, rows bits / 32), scales (groups, rows), g_idx I32 (cols),
 *            the group of each column (without: column / group_size).
 *            w = scale (q - zero); files of the first version hold zero - 1.
 *     AWQ    ("GEMM") qweight I32 (cols, rows / 8), qzeros I32 (groups, rows / 8): nibble j of a
 *            word is row 8 c + {0, 2, 4, 6, 1, 3, 5, 7}[j]; scales (groups, rows).
 */
#include "format/hf_quant.h"

#include "base/error.h"

#include <stdio.h>

static uint32_t word_at(const uint8_t *p, uint64_t i) {
    uint32_t w;
    memcpy(&w, p + 4 * i, 4);
    return w;
}

/* What both have: zeros in words, scales, a number of groups that divides the columns. */
static int check_groups(struct lode_hf_linear *l, const struct lode_json *settings,
                        struct lode_error *err) {
    const struct lode_st_tensor *scales = l->part[LODE_HF_SCALES];
    const uint64_t groups = lode_hf_part_rows(scales);
    int64_t said;
    if (!lode_hf_is_scale(scales->type) || scales->type == LODE_ST_F8_E8M0)
        return lode_hf_part_type(l, LODE_HF_SCALES, "F16, BF16 or F32", err);
    if (!l->part[LODE_HF_ZEROS])
        return lode_fail(err, LODE_ERR_MISSING, l->as.name, "its qzeros are missing");
    if (l->part[LODE_HF_ZEROS]->type != LODE_ST_I32)
        return lode_hf_part_type(l, LODE_HF_ZEROS, "I32", err);
    if (!l->cols || !groups || groups > l->cols || l->cols > UINT32_MAX / 2)
        return lode_hf_part_shape(l, LODE_HF_SCALES, err, "1 to %llu groups expected",
                                  (unsigned long long)l->cols);
    l->group = (uint32_t)((l->cols + groups - 1) / groups);
    if (lode_json_int(lode_json_get(settings, "group_size"), 1, UINT32_MAX / 2, &said) &&
        (l->cols + (uint64_t)said - 1) / (uint64_t)said == groups)
        l->group = (uint32_t)said; /* the last group may be short */
    if ((l->cols + l->group - 1) / l->group != groups)
        return lode_hf_part_shape(l, LODE_HF_SCALES, err,
                                  "%llu groups do not divide %llu columns evenly",
                                  (unsigned long long)groups, (unsigned long long)l->cols);
    if (l->rows % (32 / l->bits))
        return lode_hf_part_shape(l, LODE_HF_CODES, err, "a multiple of %u rows expected",
                                  32 / l->bits);
    if (!lode_hf_part_is(l, LODE_HF_SCALES, groups, l->rows) ||
        !lode_hf_part_is(l, LODE_HF_ZEROS, groups, l->rows * l->bits / 32))
        return lode_hf_part_shape(l, LODE_HF_ZEROS, err,
                                  "%llu groups of %llu rows of %u bits expected, as scales",
                                  (unsigned long long)groups, (unsigned long long)l->rows, l->bits);
    return 0;
}

static void label(const struct lode_hf_linear *l, char *out, size_t size) {
    snprintf(out, size, "%u-bit g%u%s", l->bits, l->group, l->index ? " desc_act" : "");
}

/* ---- GPTQ ---- */

static int gptq_describe(struct lode_hf_linear *l, const struct lode_json *settings,
                         struct lode_error *err) {
    const struct lode_st_tensor *codes = l->part[LODE_HF_CODES];
    const struct lode_str format = lode_json_str(lode_json_get(settings, "checkpoint_format"));
    int64_t bits;
    if (codes->type != LODE_ST_I32)
        return lode_hf_part_type(l, LODE_HF_CODES, "I32", err);
    if (!lode_json_int(lode_json_get(settings, "bits"), 0, 64, &bits) ||
        (bits != 2 && bits != 4 && bits != 8))
        return lode_fail(err, LODE_ERR_UNSUPPORTED, l->as.name,
                         "quantization_config.bits: 2, 4 or 8 expected for GPTQ");
    if (format.len && !lode_str_eqz(format, "gptq") && !lode_str_eqz(format, "gptq_v2"))
        return lode_fail(err, LODE_ERR_UNSUPPORTED, l->as.name,
                         "quantization_config.checkpoint_format is '%.*s'; gptq or gptq_v2 "
                         "expected",
                         (int)(format.len < 40 ? format.len : 40), format.data);
    l->bits = (uint32_t)bits;
    l->zero_less_one = !lode_str_eqz(format, "gptq_v2");
    l->n_matrices = lode_hf_part_matrices(codes);
    l->rows = lode_hf_part_cols(codes);
    l->cols = lode_hf_part_rows(codes) < UINT32_MAX / 32
                  ? lode_hf_part_rows(codes) * (32 / l->bits)
                  : 0;
    LODE_TRY(check_groups(l, settings, err));
    l->type = lode_hf_type_of_codes(l);
    return 0;
}

static void gptq_codes(const struct lode_hf_linear *l, const struct lode_hf_rows *in) {
    const uint32_t per_word = 32 / l->bits, mask = (1u << l->bits) - 1;
    const uint64_t n_groups = lode_hf_part_rows(l->part[LODE_HF_SCALES]);
    const uint8_t *codes = in->part[LODE_HF_CODES], *zeros = in->part[LODE_HF_ZEROS];
    lode_hf_unpack_bits(in->q, codes + in->row * (l->cols / per_word) * 4, l->cols, l->bits);
    for (uint64_t g = 0; g < n_groups; g++) {
        const uint32_t w = word_at(zeros, g * (l->rows / per_word) + in->row / per_word);
        const uint32_t z = w >> (uint32_t)(in->row % per_word) * l->bits & mask;
        in->z[g] = (float)(z + l->zero_less_one);
        in->d[g] = lode_hf_scale(l->part[LODE_HF_SCALES], in->part[LODE_HF_SCALES],
                                 g * l->rows + in->row);
    }
}

enum { TURNED = 1u << LODE_HF_CODES | 1u << LODE_HF_ZEROS | 1u << LODE_HF_SCALES };

const struct lode_hf_scheme lode_hf_gptq = {.name = "GPTQ",
                                            .whole = TURNED,
                                            .turned = true,
                                            .describe = gptq_describe,
                                            .codes = gptq_codes,
                                            .label = label};

/* ---- AWQ ---- */

static int awq_describe(struct lode_hf_linear *l, const struct lode_json *settings,
                        struct lode_error *err) {
    const struct lode_st_tensor *codes = l->part[LODE_HF_CODES];
    const struct lode_json *version = lode_json_get(settings, "version");
    const struct lode_str name = lode_json_str(version);
    int64_t bits;
    if (codes->type != LODE_ST_I32)
        return lode_hf_part_type(l, LODE_HF_CODES, "I32", err);
    if (!lode_json_int(lode_json_get(settings, "bits"), 0, 64, &bits) || bits != 4)
        return lode_fail(err, LODE_ERR_UNSUPPORTED, l->as.name,
                         "quantization_config.bits: 4 expected for AWQ");
    if (name.len && !lode_str_eqz(name, "gemm") && !lode_str_eqz(name, "GEMM"))
        return lode_fail(err, LODE_ERR_UNSUPPORTED, l->as.name,
                         "quantization_config.version is '%.*s'; gemm expected",
                         (int)(name.len < 40 ? name.len : 40), name.data);
    l->bits = 4;
    l->n_matrices = lode_hf_part_matrices(codes);
    l->cols = lode_hf_part_rows(codes);
    l->rows = lode_hf_part_cols(codes) < UINT32_MAX / 8 ? 8 * lode_hf_part_cols(codes) : 0;
    LODE_TRY(check_groups(l, settings, err));
    l->type = lode_hf_type_of_codes(l);
    return 0;
}

static void awq_codes(const struct lode_hf_linear *l, const struct lode_hf_rows *in) {
    static const uint32_t nibble_of[8] = {0, 4, 1, 5, 2, 6, 3, 7}; /* the order's inverse */
    const uint32_t shift = 4 * nibble_of[in->row % 8];
    const uint64_t words = l->rows / 8, at = in->row / 8;
    const uint8_t *codes = in->part[LODE_HF_CODES] + at * l->cols * 4;
    for (uint64_t i = 0; i < l->cols; i++)
        in->q[i] = (uint8_t)(word_at(codes, i) >> shift & 15);
    for (uint64_t g = 0; g < (l->cols + l->group - 1) / l->group; g++) {
        in->z[g] = (float)(word_at(in->part[LODE_HF_ZEROS], g * words + at) >> shift & 15);
        in->d[g] = lode_hf_scale(l->part[LODE_HF_SCALES], in->part[LODE_HF_SCALES],
                                 g * l->rows + in->row);
    }
}

const struct lode_hf_scheme lode_hf_awq = {.name = "AWQ",
                                           .whole = TURNED,
                                           .turned = true,
                                           .describe = awq_describe,
                                           .codes = awq_codes,
                                           .label = label};
