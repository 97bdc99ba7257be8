#include "base/cpu.h"

#include <pthread.h>

static uint64_t found;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static inline uint64_t bit_if(bool yes, enum lode_cpu_feature f) {
    return (uint64_t)(yes ? 1 : 0) << f;
}

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

static uint64_t xgetbv0(void) {
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

/* Linux keeps tiles from a process until it asks (Documentation/arch/x86/xstate.rst): the answer holds
 * for all of its threads. */
static bool tiles_allowed(void) {
#if defined(__linux__) && defined(SYS_arch_prctl)
    enum { REQUEST = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
#else
    return false;
#endif
}

/* Leaves and bits: Intel SDM volume 2, CPUID; register state: volume 1, 13.3 (XCR0). */
static void probe(void) {
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) /* OSXSAVE: XGETBV may be asked */
        return;
    const uint64_t xcr0 = xgetbv0();
    const bool ymm = (xcr0 & 0x6) == 0x6, zmm = (xcr0 & 0xe6) == 0xe6;
    const bool tiles = (xcr0 & 0x60000) == 0x60000;
    if (ymm)
        found |= bit_if(c >> 28 & 1, LODE_CPU_avx) | bit_if(c >> 12 & 1, LODE_CPU_fma) |
                 bit_if(c >> 29 & 1, LODE_CPU_f16c);
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return;
    found |= bit_if(b >> 8 & 1, LODE_CPU_bmi2);
    if (ymm)
        found |= bit_if(b >> 5 & 1, LODE_CPU_avx2);
    if (zmm)
        found |= bit_if(b >> 16 & 1, LODE_CPU_avx512f) | bit_if(b >> 17 & 1, LODE_CPU_avx512dq) |
                 bit_if(b >> 30 & 1, LODE_CPU_avx512bw) | bit_if(b >> 31 & 1, LODE_CPU_avx512vl) |
                 bit_if(c >> 1 & 1, LODE_CPU_avx512_vbmi) |
                 bit_if(c >> 8 & 1, LODE_CPU_gfni) | /* of 512 bits too */
                 bit_if(c >> 11 & 1, LODE_CPU_avx512_vnni) | bit_if(c >> 12 & 1, LODE_CPU_avx512_bitalg) |
                 bit_if(d >> 23 & 1, LODE_CPU_avx512_fp16);
    if (tiles && d >> 24 & 1 && tiles_allowed())
        found |= bit_if(d >> 24 & 1, LODE_CPU_amx_tile) | bit_if(d >> 25 & 1, LODE_CPU_amx_int8) |
                 bit_if(d >> 22 & 1, LODE_CPU_amx_bf16);
    if (a < 1 || !__get_cpuid_count(7, 1, &a, &b, &c, &d))
        return;
    if (ymm)
        found |= bit_if(a >> 4 & 1, LODE_CPU_avx_vnni);
    if (zmm)
        found |= bit_if(a >> 5 & 1, LODE_CPU_avx512_bf16);
}

bool lode_cpu_is_intel(void) {
    uint32_t a, b, c, d;
    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_INTEL_ebx && c == signature_INTEL_ecx &&
           d == signature_INTEL_edx;
}

/* Family 19h, which Zen 3 has too, without AVX-512 (leaf 1: base family in bits 8 to 11, what is added to 15 in 20 to 27). */
bool lode_cpu_is_zen4(void) {
    uint32_t a, b, c, d;
    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_AMD_ebx && c == signature_AMD_ecx &&
           d == signature_AMD_edx && __get_cpuid(1, &a, &b, &c, &d) &&
           (a >> 8 & 15) + (a >> 20 & 255) == 0x19 && lode_cpu_has(LODE_CPU_avx512f);
}
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

/* Bits: Documentation/arch/arm64/elf_hwcaps.rst of Linux. */
static void probe(void) {
    const unsigned long cap = getauxval(AT_HWCAP), cap2 = getauxval(AT_HWCAP2);
    found |= bit_if(cap >> 1 & 1, LODE_CPU_neon) | bit_if(cap >> 10 & 1, LODE_CPU_fp16) |
             bit_if(cap >> 20 & 1, LODE_CPU_dotprod) | bit_if(cap >> 22 & 1, LODE_CPU_sve) |
             bit_if(cap2 >> 1 & 1, LODE_CPU_sve2) | bit_if(cap2 >> 13 & 1, LODE_CPU_i8mm) |
             bit_if(cap2 >> 14 & 1, LODE_CPU_bf16);
}
#else
static void probe(void) { found |= bit_if(false, LODE_CPU_avx); }
#endif

#if !defined(__x86_64__)
bool lode_cpu_is_intel(void) { return false; }
bool lode_cpu_is_zen4(void) { return false; }
#endif

uint64_t lode_cpu_features(void) {
    pthread_once(&once, probe);
    return found;
}

const char *lode_cpu_feature_name(enum lode_cpu_feature f) {
    static const char *const names[] = {
#define LODE_CPU_NAME(name) #name,
        LODE_CPU_LIST(LODE_CPU_NAME)
#undef LODE_CPU_NAME
    };
    return names[f];
}
