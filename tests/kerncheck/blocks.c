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
#define FLOATS {{-1, -1}, -1, 0} /* see floats_of */
    [LODE_U2] = FLOATS, [LODE_U3] = FLOATS, [LODE_U4] = FLOATS, [LODE_U5] = FLOATS,
    [LODE_U6] = FLOATS, [LODE_U8] = FLOATS, [LODE_U4G32] = FLOATS, [LODE_U8G32] = FLOATS,
    [LODE_E4M3] = FLOATS, [LODE_E5M2] = FLOATS, [LODE_NVFP4G] = FLOATS,
};

/* Where the one or two floats of lode's own blocks are; false: none. */
static bool floats_of(enum lode_dtype type, size_t at[2]) {
    at[0] = at[1] = 0;
    switch (type) {
    case LODE_U2: case LODE_U3: case LODE_U4: case LODE_U5: case LODE_U6: case LODE_U8:
        at[1] = lode_dtypes[type].bytes / 2;
        return true;
    case LODE_U4G32: case LODE_U8G32:
        at[1] = 4;
        return true;
    default:
        return type == LODE_E4M3 || type == LODE_E5M2 || type == LODE_NVFP4G;
    }
}

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
        if (type == LODE_IQ1_M && kind != BLOCKS_ANY && (b[55] & 0x70) == 0x70)
            b[55] ^= 0x40; /* the half's upper four bits */
        size_t at[2];
        for (int i = 0; i < 2 && kind != BLOCKS_ANY && floats_of(type, at); i++) {
            float f = kc_float(t, KC_NORMAL);
            if (f == 0 && type == LODE_NVFP4G) /* its float divides */
                f = 1;
            memcpy(b + at[i], &f, 4);
        }
        if (type == LODE_MXFP4 && kind != BLOCKS_ANY)
            b[0] = (uint8_t)(96 + kc_below(t, 64));
    }
}
