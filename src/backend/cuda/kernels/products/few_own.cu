/* few_own.cu - products of a few rows (few.cuh) with lode's own types and with blocks of several 32. */
#include "few.cuh"

FEW(own, OWN_TYPES)
