/* Products of quantised weights: 8 rows at once, dot products by AVX-VNNI (no AVX-512). */
#include "kern/vec_avx2.h"

#define KERN(name) name##_avxvnni
#define V_COLUMNS 4
#define V_TILES 1
#define V_FEW_256 1
#define V_WIDE_BIAS 128

INLINE V v_dot4_wide(V acc, V w, V x) {
    return (V)_mm256_dpbusd_avx_epi32((__m256i)acc, (__m256i)w, (__m256i)x);
}

#include "kern/mul_tile.h"
