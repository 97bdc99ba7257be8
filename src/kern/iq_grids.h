/* iq_grids.h - the codebooks of GGML's IQ types: data of the file format.
 *
 * A block of these types stores indices; an entry is 8 numbers (IQ1, IQ2) or 4 (IQ3), chosen by the
 * format's author among the points of a lattice for how often real weights fall near them.  Signs
 * are stored apart.  An entry is kept as a 16-bit word of codes, because a vector unit unpacks that
 * with one variable shift and one table look-up:
 *
 *   grids of 8: number j has code (word >> 2 j) & 3    grids of 4: (word >> 4 j) & 7
 *
 * and the levels that the codes stand for are below.  The entries: iq_grids_data.h.
 */
#ifndef LODE_KERN_IQ_GRIDS_H
#define LODE_KERN_IQ_GRIDS_H

#include <stdint.h>

extern const uint16_t lode_grid_iq1[2048];    /* IQ1_S, IQ1_M: -1, 0, 1 */
extern const uint16_t lode_grid_iq2_xxs[256]; /* IQ2: 8, 25, 43 */
extern const uint16_t lode_grid_iq2_xs[512];
extern const uint16_t lode_grid_iq2_s[1024];
extern const uint16_t lode_grid_iq3_xxs[256]; /* 4, 12, 20, 28, 36, 44, 52, 62 */
extern const uint16_t lode_grid_iq3_s[512];   /* 1, 3, .. 15 */

#define LODE_IQ1_LEVELS {-1, 0, 1, 0}
#define LODE_IQ2_LEVELS {8, 25, 43, 0}
#define LODE_IQ3_XXS_LEVELS {4, 12, 20, 28, 36, 44, 52, 62}
#define LODE_IQ3_S_LEVELS {1, 3, 5, 7, 9, 11, 13, 15}
/* IQ4_NL, IQ4_XS */
#define LODE_IQ4_LEVELS                                                                            \
    {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
/* E2M1 floats, doubled (MXFP4, NVFP4); code 8 is -0, whose sign the format drops */
#define LODE_FP4_LEVELS                                                                            \
    {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

#endif
