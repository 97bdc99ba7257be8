/* Products of float weights: each number widened to F32 (exact; 8-bit floats times their scale, one
 * rounding), then sixteen lanes. */
#include "base/half.h"
#include "kern/fp8.h"
#include "kern/isa.h"
#include "kern/lanes.h"
#include "tensor/block.h"

#include <math.h>

/* widen(p, i): number i of the row at p */
#define F32_AT(p, i) ((const float *)(p))[i]
#define F16_AT(p, i) lode_f16_f32(((const uint16_t *)(p))[i])
#define BF16_AT(p, i) lode_bf16_f32(((const uint16_t *)(p))[i])
#define FP8_AT(name, p, i)                                                                         \
    (((const struct lode_block_##name *)(p))[(i) / 32].d *                                         \
     name[((const struct lode_block_##name *)(p))[(i) / 32].q[(i) % 32]])
#define E4M3_AT(p, i) FP8_AT(e4m3, p, i)
#define E5M2_AT(p, i) FP8_AT(e5m2, p, i)

#define MUL(name, widen)                                                                           \
    void name LODE_MUL_ARGS {                                                                      \
        for (size_t i = 0; i < n_w; i++) {                                                         \
            const char *row = (const char *)w + i * w_stride;                                      \
            for (size_t j = 0; j < n_x; j++) {                                                     \
                const float *col = (const float *)((const char *)x + j * x_stride);                \
                float lane[LODE_LANES] = {0};                                                      \
                for (size_t l = 0; l < k; l++)                                                     \
                    lane[l % LODE_LANES] = fmaf(widen(row, l), col[l], lane[l % LODE_LANES]);      \
                y[j * ldy + i] = lode_lanes_join(lane);                                            \
            }                                                                                      \
        }                                                                                          \
    }

MUL(mul_f32_scalar, F32_AT)
MUL(mul_f16_scalar, F16_AT)
MUL(mul_bf16_scalar, BF16_AT)
MUL(mul_e4m3_scalar, E4M3_AT)
MUL(mul_e5m2_scalar, E5M2_AT)
