/* Products of floats for Intel's cores (mul_body.h). */
#define ISA(name) name##_avx512intel
#define VF_KEEP_WIDE
#include "kern/v16_avx512.h"

#include "kern/mul_body.h"
