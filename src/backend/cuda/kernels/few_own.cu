/* few_own.cu - products of a few rows (few.cuh) with lode's own types. */
#include "few.cuh"

FEW(u4, 64, 1)
FEW(u4, 64, 2)
FEW(u4, 64, 4)
