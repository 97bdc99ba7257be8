/* Products of floats, keys and values for Intel's cores (mul_body.h, kv_body.h). */
#define ISA(name) name##_avx512intel
#define VF_KEEP_WIDE
#define vf_few_rows vf_prefetch_rows
#define vf_few_near vf_prefetch
#define vf_few_takes(f, n_q) true
#include "kern/v16_avx512.h"

#include "kern/mul_body.h"
#include "kern/kv_body.h"
