/* repack.c - layouts that only directories have, in those of GGUF that hold the same codes.
 *
 * U2, U3, U4 and U4G32 (MLX, GPTQ, AWQ) are w = d q + m with float scales for 32 or 64 numbers:
 * Q4_1 with the scales as halves, Q5_1 for U5.  The codes stay; what is lost is what a half cannot
 * hold of d and m: nothing where they were halves, or bfloat16 of a usual size. */
#include "quant/quant.h"

#include "kern/unpack.h"

static void put_q4_1(struct lode_block_q4_1 *b, const struct unpack_u *u) {
    b->d = lode_f32_f16(u->d);
    b->m = lode_f32_f16(u->m);
    for (int i = 0; i < 16; i++)
        b->qs[i] = (uint8_t)(u->q[i] | u->q[i + 16] << 4);
}

#define TO_Q4_1(type)                                                                              \
    static void type##_q4_1(void *y, const void *x, size_t n) {                                    \
        struct unpack_u u;                                                                         \
        for (size_t i = 0; i < n / 32; i++) {                                                      \
            unpack_##type(&u, x, i);                                                               \
            put_q4_1((struct lode_block_q4_1 *)y + i, &u);                                         \
        }                                                                                          \
    }
TO_Q4_1(u2)
TO_Q4_1(u3)
TO_Q4_1(u4)
TO_Q4_1(u4g32)

static void u5_q5_1(void *y, const void *x, size_t n) {
    struct lode_block_q5_1 *b = y;
    struct unpack_u u;
    for (size_t i = 0; i < n / 32; i++, b++) {
        unpack_u5(&u, x, i);
        b->d = lode_f32_f16(u.d);
        b->m = lode_f32_f16(u.m);
        memset(b->qh, 0, sizeof b->qh);
        for (int k = 0; k < 16; k++)
            b->qs[k] = (uint8_t)((u.q[k] & 15) | (u.q[k + 16] & 15) << 4);
        for (int k = 0; k < 32; k++)
            b->qh[k / 8] |= (uint8_t)((u.q[k] >> 4) << k % 8);
    }
}

lode_repack_fn *lode_repacker(enum lode_dtype from, enum lode_dtype to) {
    static const struct {
        enum lode_dtype from, to;
        lode_repack_fn *fn;
    } list[] = {{LODE_U2, LODE_Q4_1, u2_q4_1},
                {LODE_U3, LODE_Q4_1, u3_q4_1},
                {LODE_U4, LODE_Q4_1, u4_q4_1},
                {LODE_U4G32, LODE_Q4_1, u4g32_q4_1},
                {LODE_U5, LODE_Q5_1, u5_q5_1}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].from == from && list[i].to == to)
            return list[i].fn;
    return NULL;
}
