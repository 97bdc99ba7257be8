#include "kern/fast.h"

#include "base/cpu.h"

static const char *const names[] = {
    "none",
#define NAME(name) #name,
    LODE_FAST_LIST(NAME)
#undef NAME
};

const char *lode_fast_name(enum lode_fast f) { return names[f]; }

enum lode_fast lode_fast_best(enum lode_isa isa) {
#if defined(__x86_64__) && LODE_KERN_WIDEST >= 2
    const bool avx512 = isa >= LODE_ISA_avx512 && isa <= LODE_ISA_amx && lode_isa_usable(LODE_ISA_avx512);
    const bool pairs = avx512 && lode_cpu_has(LODE_CPU_avx512_bf16);
    if (pairs && isa == LODE_ISA_amx && lode_cpu_has(LODE_CPU_amx_bf16))
        return LODE_FAST_amxbf16;
    if (pairs)
        return LODE_FAST_avx512bf16;
#else
    (void)isa;
#endif
    return LODE_FAST_none;
}

lode_fast_mul *lode_fast_of(enum lode_fast f, enum lode_dtype type) {
#if defined(__x86_64__) && LODE_KERN_WIDEST >= 2
#define OF(s, t)                                                                                   \
    if (type == LODE_##t)                                                                          \
        return f == LODE_FAST_amxbf16 ? fast_##s##_amxbf16 : fast_##s##_avx512bf16;
    if (f != LODE_FAST_none) {
        LODE_FAST_TYPES(OF)
    }
#undef OF
#else
    (void)f;
    (void)type;
#endif
    return NULL;
}
