/* list_float.h - which float kernels exist beyond scalar: X(name), by instruction set.
 * kern.c lays them over the scalar ones. */
#ifndef LODE_KERN_LIST_FLOAT_H
#define LODE_KERN_LIST_FLOAT_H

#define LODE_FLOAT_avx2(X)
#define LODE_FLOAT_avx512(X)
#define LODE_FLOAT_avx512vnni(X)
#define LODE_FLOAT_neon(X)

#endif
