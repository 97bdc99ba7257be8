/* isa.h - the prototypes of every kernel for every instruction set: NAME_scalar, NAME_avx2, ...
 *
 * Most combinations do not exist; declaring them costs nothing, and the ones that do are named in
 * list_float.h and list_quant.h, from which kern.c fills its tables.  Files of kernels include
 * this, so that a definition that departs from the list does not compile.
 */
#ifndef LODE_KERN_ISA_H
#define LODE_KERN_ISA_H

#include "kern/kern.h"

#define LODE_KERN_PROTO_scalar(name, ret, args) ret name##_scalar args;
#define LODE_KERN_PROTO_avx2(name, ret, args) ret name##_avx2 args;
#define LODE_KERN_PROTO_avxvnni(name, ret, args) ret name##_avxvnni args;
#define LODE_KERN_PROTO_avx512(name, ret, args) ret name##_avx512 args;
#define LODE_KERN_PROTO_avx512vnni(name, ret, args) ret name##_avx512vnni args;
#define LODE_KERN_PROTO_avx512vbmi(name, ret, args) ret name##_avx512vbmi args;
#define LODE_KERN_PROTO_avx512zen4(name, ret, args) ret name##_avx512zen4 args;
#define LODE_KERN_PROTO_avx512intel(name, ret, args) ret name##_avx512intel args;
#define LODE_KERN_PROTO_amx(name, ret, args) ret name##_amx args;
#define LODE_KERN_PROTO_neon(name, ret, args) ret name##_neon args;

#define LODE_KERN_PROTO_DEQUANT(s, t)                                                              \
    void dequant_##s##_scalar(float *y, const void *x, size_t n);                                  \
    void dequant_##s##_avx2(float *y, const void *x, size_t n);                                    \
    void dequant_##s##_avx512(float *y, const void *x, size_t n);                                  \
    void dequant_##s##_neon(float *y, const void *x, size_t n);

#define LODE_KERN_PROTO(isa, ...) LODE_KERN_LIST(LODE_KERN_PROTO_##isa)
LODE_ISA_LIST(LODE_KERN_PROTO)
LODE_DEQUANT_LIST(LODE_KERN_PROTO_DEQUANT)

#endif
