/* hf_quant_fp8.c - weights of 8-bit floats, as several tools write them.
 *
 *     weight F8_E4M3 or F8_E5M2 (rows, cols); weight_scale or weight_scale_inv, w = scale weight:
 *     one number, one a row (rows) or (rows, 1), or one for each block of weight_block_size rows
 *     and columns (128 x 128 where config.json does not say), the last ones perhaps short; without
 *     a scale the numbers are what they are. */
#include "format/hf_quant.h"

#include "base/error.h"
#include "base/half.h"
#include "tensor/block.h"

#include <math.h>
#include <stdio.h>

/* "weight_block_size": [rows, cols]; compressed-tensors has block_structure in its group. */
static void block_size(const struct lode_json *settings, uint64_t size[2]) {
    const struct lode_json *list = lode_json_get(settings, "weight_block_size");
    const struct lode_json *group = lode_json_first(lode_json_get(settings, "config_groups"));
    int64_t n;
    if (!list)
        list = lode_json_get(lode_json_get(group, "weights"), "block_structure");
    for (uint32_t i = 0; i < 2; i++)
        size[i] = lode_json_int(lode_json_at(list, i), 1, 1 << 20, &n) ? (uint64_t)n : 128;
}

/* How many of n share a scale, where there are n_scales of them; 0: that does not fit. */
static uint64_t shared(uint64_t n, uint64_t n_scales, uint64_t block) {
    if (n_scales == 1)
        return n;
    if (n_scales == n)
        return 1;
    return (n + block - 1) / block == n_scales ? block : 0;
}

static int describe(struct lode_hf_linear *l, const struct lode_json *settings,
                    struct lode_error *err) {
    const struct lode_st_tensor *codes = l->part[LODE_HF_CODES], *scales = l->part[LODE_HF_SCALES];
    uint64_t size[2], by_row = 1, by_col = 1;
    l->n_matrices = lode_hf_part_matrices(codes);
    l->rows = lode_hf_part_rows(codes);
    l->cols = lode_hf_part_cols(codes);
    l->bits = 8;
    if (!codes->size || l->cols > UINT32_MAX || l->rows > UINT32_MAX)
        return lode_hf_part_shape(l, LODE_HF_CODES, err, "it is empty or too large");
    l->group = (uint32_t)l->cols;
    l->group_rows = (uint32_t)l->rows;
    if (scales) {
        if (!lode_hf_is_scale(scales->type))
            return lode_hf_part_type(l, LODE_HF_SCALES, "F32, BF16, F16 or F8_E8M0", err);
        block_size(settings, size);
        by_col = lode_hf_part_cols(scales);
        by_row = lode_hf_part_rows(scales);
        if (scales->n_dims == 1 && by_col == l->rows) { /* one a row, without a dimension for it */
            by_row = by_col;
            by_col = 1;
        }
        uint64_t matrices = lode_hf_part_matrices(scales);
        if (l->n_matrices > 1 && scales->n_dims <= 1 && by_col == l->n_matrices) { /* one each */
            matrices = by_col;
            by_row = by_col = 1;
        }
        l->group_rows = (uint32_t)shared(l->rows, by_row, size[0]);
        l->group = (uint32_t)shared(l->cols, by_col, size[1]);
        if (!scales->size || !l->group_rows || !l->group || matrices != l->n_matrices)
            return lode_hf_part_shape(l, LODE_HF_SCALES, err,
                                      "one number, one for each of %llu rows, or one for each block "
                                      "of %llu x %llu expected",
                                      (unsigned long long)l->rows, (unsigned long long)size[0],
                                      (unsigned long long)size[1]);
    }
    const bool blocks = l->cols % 32 == 0 && (l->group >= l->cols || l->group % 32 == 0);
    l->type = !blocks                          ? LODE_F32
              : codes->type == LODE_ST_F8_E4M3 ? LODE_E4M3
                                               : LODE_E5M2;
    return 0;
}

static float e5m2(uint8_t b) { return lode_f16_f32((uint16_t)(b << 8)); }

static int row(const struct lode_hf_linear *l, const struct lode_hf_rows *in, void *out,
               struct lode_error *err) {
    const uint8_t *codes = in->part[LODE_HF_CODES];
    const struct lode_st_tensor *scales = l->part[LODE_HF_SCALES];
    const uint64_t n_groups = (l->cols + l->group - 1) / l->group;
    const uint64_t first = in->row / l->group_rows * n_groups;
    const bool is_e4m3 = l->part[LODE_HF_CODES]->type == LODE_ST_F8_E4M3;
    (void)err;
    if (l->type == LODE_F32) {
        for (uint64_t i = 0; i < l->cols; i++) {
            const float d =
                scales ? lode_hf_scale(scales, in->part[LODE_HF_SCALES], first + i / l->group) : 1;
            ((float *)out)[i] = d * (is_e4m3 ? lode_hf_e4m3(codes[i]) : e5m2(codes[i]));
        }
        return 0;
    }
    struct lode_block_e4m3 *b = out; /* E5M2's blocks are the same */
    for (uint64_t i = 0; i < l->cols / 32; i++) {
        b[i].d = scales ? lode_hf_scale(scales, in->part[LODE_HF_SCALES], first + 32 * i / l->group)
                        : 1;
        memcpy(b[i].q, codes + 32 * i, 32);
    }
    return 0;
}

static void label(const struct lode_hf_linear *l, char *out, size_t size) {
    const char *format = l->part[LODE_HF_CODES]->type == LODE_ST_F8_E4M3 ? "E4M3" : "E5M2";
    if (!l->part[LODE_HF_SCALES])
        snprintf(out, size, "%s", format);
    else if (l->group >= l->cols)
        snprintf(out, size, "%s a %s", format, l->group_rows == 1 ? "row" : "tensor");
    else
        snprintf(out, size, "%s %ux%u", format, l->group_rows, l->group);
}

const struct lode_hf_scheme lode_hf_fp8 = {
    .name = "FP8", .whole = 1u << LODE_HF_SCALES, .describe = describe, .row = row, .label = label};
