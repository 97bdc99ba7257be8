#include "blocks.h"

#include "tensor/block.h"

#include <string.h>

#define AT(name, member) offsetof(struct lode_block_##name, member)

/* Where a block's halves are, and its integer scales; -1: none. */
static const struct layout {
    int half[2], scales, n_scales;
} layouts[LODE_DTYPE_COUNT] = {
    [LODE_F32] = {{-1, -1}, -1, 0},
    [LODE_F16] = {{0, -1}, -1, 0},
    [LODE_BF16] = {{0, -1}, -1, 0},
    [LODE_F64] = {{-1, -1}, -1, 0},
    [LODE_I8] = {{-1, -1}, -1, 0},
    [LODE_I16] = {{-1, -1}, -1, 0},
    [LODE_I32] = {{-1, -1}, -1, 0},
    [LODE_I64] = {{-1, -1}, -1, 0},
    [LODE_Q4_0] = {{0, -1}, -1, 0},
    [LODE_Q4_1] = {{0, 2}, -1, 0},
    [LODE_Q5_0] = {{0, -1}, -1, 0},
    [LODE_Q5_1] = {{0, 2}, -1, 0},
    [LODE_Q8_0] = {{0, -1}, -1, 0},
    [LODE_Q8_1] = {{0, 2}, -1, 0},
    [LODE_Q2_K] = {{AT(q2_k, d), AT(q2_k, dmin)}, AT(q2_k, scales), 16},
    [LODE_Q3_K] = {{AT(q3_k, d), -1}, AT(q3_k, scales), 12},
    [LODE_Q4_K] = {{AT(q4_k, d), AT(q4_k, dmin)}, AT(q4_k, scales), 12},
    [LODE_Q5_K] = {{AT(q5_k, d), AT(q5_k, dmin)}, AT(q5_k, scales), 12},
    [LODE_Q6_K] = {{AT(q6_k, d), -1}, AT(q6_k, scales), 16},
    [LODE_Q8_K] = {{-1, -1}, -1, 0}, /* a float at 0 */
    [LODE_IQ1_S] = {{0, -1}, -1, 0},
    [LODE_IQ1_M] = {{-1, -1}, -1, 0}, /* its half is in four pieces */
    [LODE_IQ2_XXS] = {{0, -1}, -1, 0},
    [LODE_IQ2_XS] = {{0, -1}, -1, 0},
    [LODE_IQ2_S] = {{0, -1}, -1, 0},
    [LODE_IQ3_XXS] = {{0, -1}, -1, 0},
    [LODE_IQ3_S] = {{0, -1}, -1, 0},
    [LODE_IQ4_NL] = {{0, -1}, -1, 0},
    [LODE_IQ4_XS] = {{0, -1}, AT(iq4_xs, scales_h), 6},
    [LODE_TQ1_0] = {{AT(tq1_0, d), -1}, -1, 0},
    [LODE_TQ2_0] = {{AT(tq2_0, d), -1}, -1, 0},
    [LODE_Q1_0] = {{0, -1}, -1, 0},
    [LODE_Q2_0] = {{0, -1}, -1, 0},
    [LODE_MXFP4] = {{-1, -1}, -1, 0},
    [LODE_NVFP4] = {{-1, -1}, -1, 0},
};

void blocks_fill(struct kc *t, enum lode_dtype type, void *w, size_t size, enum blocks_kind kind) {
    static const uint8_t corners[] = {0x00, 0xff, 0x80, 0x7f, 0x88, 0x77, 0x3f, 0x20};
    const struct layout *l = &layouts[type];
    const size_t bytes = lode_dtypes[type].bytes;
    for (uint8_t *b = w; size >= bytes; size -= bytes, b += bytes) {
        if (kind == BLOCKS_CORNER) {
            memset(b, corners[kc_below(t, sizeof corners)], bytes);
            if (l->scales >= 0)
                memset(b + l->scales, corners[kc_below(t, sizeof corners)], (size_t)l->n_scales);
        } else {
            for (size_t i = 0; i < bytes; i++)
                b[i] = (uint8_t)kc_bits(t);
        }
        for (int h = 0; h < 2 && l->half[h] >= 0; h++) {
            uint16_t half = (uint16_t)kc_bits(t);
            if (kind != BLOCKS_ANY && (half & 0x7c00) == 0x7c00)
                half ^= 0x4000;
            memcpy(b + l->half[h], &half, 2);
        }
        if (type == LODE_MXFP4 && kind != BLOCKS_ANY)
            b[0] = (uint8_t)(96 + kc_below(t, 64));
    }
}
