/* Products of floats, keys and values for Intel's cores (mul_body.h, kv_body.h). */
#define ISA(name) name##_avx512intel
#define VF_KEEP_WIDE
#define VF_FEW_MIX 16
#define VF_FEW_QUERIES 4
#define vf_few_near vf_prefetch
#include "kern/v16_avx512.h"

#include "kern/mul_body.h"
#include "kern/kv_body.h"
