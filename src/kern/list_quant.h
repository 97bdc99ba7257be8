/* list_quant.h - which kernels of quantised types exist beyond scalar, by instruction set:
 * LODE_QUANT_isa: X(name of LODE_KERN_LIST); LODE_DEQUANT_isa: X(suffix, dtype) as in
 * LODE_DEQUANT_LIST.  kern.c lays them over the scalar ones. */
#ifndef LODE_KERN_LIST_QUANT_H
#define LODE_KERN_LIST_QUANT_H

#define LODE_QUANT_avx2(X)
#define LODE_QUANT_avx512(X)
#define LODE_QUANT_avx512vnni(X)
#define LODE_QUANT_neon(X)

#define LODE_DEQUANT_avx2(X)
#define LODE_DEQUANT_avx512(X)
#define LODE_DEQUANT_avx512vnni(X)
#define LODE_DEQUANT_neon(X)

#endif
