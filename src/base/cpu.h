/* cpu.h - what this processor can do and the operating system lets us use.
 *
 * A feature counts only when both agree: on x86 the CPU names it (CPUID) and the kernel saves the
 * registers it needs (XGETBV; AMX's tiles must be asked for, which the first call does for the whole
 * process); on aarch64 the kernel says so (HWCAP).  Asked once, then cached; any thread may call.
 */
#ifndef LODE_BASE_CPU_H
#define LODE_BASE_CPU_H

#include <stdbool.h>
#include <stdint.h>

#define LODE_CPU_LIST(X)                                                                           \
    X(avx) X(avx2) X(fma) X(f16c) X(bmi2) X(avx_vnni) X(avx512f) X(avx512bw) X(avx512vl)           \
    X(avx512dq) X(avx512_vnni) X(avx512_bf16) X(avx512_vbmi) X(avx512_bitalg) X(gfni)              \
    X(avx512_fp16) X(amx_tile) X(amx_int8) X(amx_bf16) X(neon) X(dotprod) X(i8mm) X(bf16) X(fp16) X(sve) X(sve2)

enum lode_cpu_feature {
#define LODE_CPU_ENUM(name) LODE_CPU_##name,
    LODE_CPU_LIST(LODE_CPU_ENUM)
#undef LODE_CPU_ENUM
        LODE_CPU_COUNT
};

/* Bit 1 << LODE_CPU_x for each feature x. */
uint64_t lode_cpu_features(void);
const char *lode_cpu_feature_name(enum lode_cpu_feature f);
/* Whether its cores are Intel's, which want some kernels otherwise than AMD's (kern/kern.h). */
bool lode_cpu_is_intel(void);
bool lode_cpu_is_zen4(void); /* AMD's, with AVX-512 */
static inline bool lode_cpu_has(enum lode_cpu_feature f) { return lode_cpu_features() >> f & 1; }

#endif
