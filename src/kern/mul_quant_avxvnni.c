/* Products of quantised weights: 8 rows at once, dot products by AVX-VNNI (no AVX-512). */
#include "kern/vec_avx2.h"

#define KERN(name) name##_avxvnni
#define V_COLUMNS 2
#define V_TILES 2
#define V_FEW_256 1
#define V_WIDE_BIAS 128
#define V_ONE

INLINE V v_dot4_wide(V acc, V w, V x) {
    return (V)_mm256_dpbusd_avx_epi32((__m256i)acc, (__m256i)w, (__m256i)x);
}

#define V_CHAINS
#define V_PARTS
INLINE V v_low_halves(V low, V high) { return (V)_mm256_blend_epi16((__m256i)low, (__m256i)(high << 16), 0xaa); }

#include "kern/mul_tile.h"
