/* mul_few_amx.h - products of few columns where there are tiles: mul_TYPE_few_amx of mul_few_amx.c. */
#ifndef LODE_KERN_MUL_FEW_AMX_H
#define LODE_KERN_MUL_FEW_AMX_H

#include "kern/kern.h"

#define MUL(name, block, ...) void mul_##name##_few_amx LODE_MUL_ARGS;
#define MUL_OF MUL
#include "kern/mul_types.h"
#undef MUL
#undef MUL_OF

#endif
