/* iq_grids.h - the codebooks of GGML's IQ types: data of the file format.
 *
 * A block of these types stores indices; an entry is 8 numbers (IQ1, IQ2) or 4 (IQ3), chosen by the
 * format's author among the points of a lattice for how often real weights fall near them.  Signs
 * are stored apart.  An entry is kept as the bytes of its numbers, the first the lowest, because products and
 * conversions take them so; kern/codebook.h says what they mean for each type.
 *
 * iq_grids_data.h has words of 16 bits, from which the compiler makes the bytes:
 *
 *   grids of 8: number j has code (word >> 2 j) & 3    grids of 4: (word >> 4 j) & 7
 */
#ifndef LODE_KERN_IQ_GRIDS_H
#define LODE_KERN_IQ_GRIDS_H

#include <stdint.h>

extern const uint64_t lode_grid_iq1[2048];    /* IQ1_S, IQ1_M: 8 (number + 1), numbers -1, 0, 1 */
extern const uint64_t lode_grid_iq2_xxs[256]; /* IQ2: 8, 25, 43 */
extern const uint64_t lode_grid_iq2_xs[512];
extern const uint64_t lode_grid_iq2_s[1024];
extern const uint32_t lode_grid_iq3_xxs[256]; /* 4, 12, 20, 28, 36, 44, 52, 62 */
extern const uint32_t lode_grid_iq3_s[512];   /* 1, 3, .. 15 */

/* A word's codes in the bytes of an entry, and what they stand for. */
#define LODE_IQ_CODE(w, j, bits) (((uint64_t)(w) >> (bits) * (j) & ((1u << (bits)) - 1)) << 8 * (j))
#define LODE_IQ_FOUR(w, j, bits)                                                                   \
    (LODE_IQ_CODE(w, j, bits) | LODE_IQ_CODE(w, j + 1, bits) | LODE_IQ_CODE(w, j + 2, bits) |      \
     LODE_IQ_CODE(w, j + 3, bits))
#define LODE_IQ_8(w) (LODE_IQ_FOUR(w, 0, 2) | LODE_IQ_FOUR(w, 4, 2))
#define LODE_IQ_4(w) (uint32_t)LODE_IQ_FOUR(w, 0, 4)
#define LODE_IQ1_BYTES(w) 8 * LODE_IQ_8(w)
#define LODE_IQ2_BYTES(w)                                                                          \
    17 * LODE_IQ_8(w) + (LODE_IQ_8(w) >> 1 & 0x0101010101010101u) + 0x0808080808080808u
#define LODE_IQ3_XXS_BYTES(w)                                                                      \
    8 * LODE_IQ_4(w) + 2 * (LODE_IQ_4(w) & LODE_IQ_4(w) >> 1 & LODE_IQ_4(w) >> 2 & 0x01010101u) + 0x04040404u
#define LODE_IQ3_S_BYTES(w) 2 * LODE_IQ_4(w) + 0x01010101u

/* IQ4_NL, IQ4_XS */
#define LODE_IQ4_LEVELS                                                                            \
    {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
/* E2M1 floats, doubled (MXFP4, NVFP4); code 8 is -0, whose sign the format drops */
#define LODE_FP4_LEVELS                                                                            \
    {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

#endif
