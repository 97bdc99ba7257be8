#include "kern/kern.h"

#include "base/cpu.h"
#include "kern/isa.h"
#include "kern/list_float.h"
#include "kern/list_quant.h"

#include <string.h>

/* What this build has (-Dkern_isa). */
#if defined(__x86_64__)
#define KERN_AVX2 (LODE_KERN_WIDEST >= 1)
#define KERN_WIDER (LODE_KERN_WIDEST >= 2) /* all others */
#else
#define KERN_AVX2 0
#define KERN_WIDER 0
#endif
#if defined(__aarch64__)
#define KERN_NEON (LODE_KERN_WIDEST >= 2)
#else
#define KERN_NEON 0
#endif

static const char *const isa_names[] = {
#define ISA_NAME(name, ...) #name,
    LODE_ISA_LIST(ISA_NAME)
#undef ISA_NAME
};

const char *lode_isa_name(enum lode_isa isa) { return isa_names[isa]; }

size_t lode_isa_stack(enum lode_isa isa) {
    static const size_t stacks[] = {
#define STACK(name, kib) kib << 10,
        LODE_ISA_LIST(STACK)
#undef STACK
    };
    return stacks[isa];
}

int lode_isa_from_name(const char *name) {
    for (int i = 0; i < LODE_ISA_COUNT; i++)
        if (strcmp(name, isa_names[i]) == 0)
            return i;
    return -1;
}

bool lode_isa_usable(enum lode_isa isa) {
    switch (isa) {
    case LODE_ISA_scalar:
        return true;
#if KERN_AVX2
    case LODE_ISA_avx2:
        return lode_cpu_has(LODE_CPU_avx2) && lode_cpu_has(LODE_CPU_fma) &&
               lode_cpu_has(LODE_CPU_f16c);
#endif
#if KERN_WIDER
    case LODE_ISA_avxvnni:
        return lode_isa_usable(LODE_ISA_avx2) && lode_cpu_has(LODE_CPU_avx_vnni);
    case LODE_ISA_avx512:
        return lode_isa_usable(LODE_ISA_avx2) && lode_cpu_has(LODE_CPU_avx512f) &&
               lode_cpu_has(LODE_CPU_avx512bw) && lode_cpu_has(LODE_CPU_avx512vl) &&
               lode_cpu_has(LODE_CPU_avx512dq);
    case LODE_ISA_avx512vnni:
    case LODE_ISA_avx512zen4:
    case LODE_ISA_avx512intel:
        return lode_isa_usable(LODE_ISA_avx512) && lode_cpu_has(LODE_CPU_avx512_vnni);
    case LODE_ISA_avx512vbmi:
        return lode_isa_usable(LODE_ISA_avx512vnni) && lode_cpu_has(LODE_CPU_avx512_vbmi) &&
               lode_cpu_has(LODE_CPU_avx512_bitalg) && lode_cpu_has(LODE_CPU_gfni);
    case LODE_ISA_amx:
        return lode_isa_usable(LODE_ISA_avx512vbmi) && lode_cpu_has(LODE_CPU_amx_tile) &&
               lode_cpu_has(LODE_CPU_amx_int8);
#endif
#if KERN_NEON
    case LODE_ISA_neon:
        return lode_cpu_has(LODE_CPU_neon);
#endif
    default:
        return false;
    }
}

/* Every machine with their instructions can run these; only some want to. */
static bool is_wanted(int isa) {
    return (isa != LODE_ISA_avx512intel || lode_cpu_is_intel()) && (isa != LODE_ISA_avx512zen4 || lode_cpu_is_zen4());
}

enum lode_isa lode_isa_best(void) {
    int best = LODE_ISA_scalar;
    for (int i = 0; i < LODE_ISA_COUNT; i++)
        if (lode_isa_usable((enum lode_isa)i) && is_wanted(i))
            best = i;
    return (enum lode_isa)best;
}

static void lay_scalar(struct lode_kern *t) {
#define SET(name, ret, args) t->name = name##_scalar;
    LODE_KERN_LIST(SET)
#undef SET
#define SET(s, type) t->dequant[LODE_##type] = dequant_##s##_scalar;
    LODE_DEQUANT_LIST(SET)
#undef SET
}

#define SET_avx2(name) t->name = name##_avx2;
#define SET_avxvnni(name) t->name = name##_avxvnni;
#define SET_avx512(name) t->name = name##_avx512;
#define SET_avx512vnni(name) t->name = name##_avx512vnni;
#define SET_avx512vbmi(name) t->name = name##_avx512vbmi;
#define SET_avx512zen4(name) t->name = name##_avx512zen4;
#define SET_avx512intel(name) t->name = name##_avx512intel;
#define SET_amx(name) t->name = name##_amx;
#define SET_neon(name) t->name = name##_neon;
#define DEQUANT_avx2(s, type) t->dequant[LODE_##type] = dequant_##s##_avx2;
#define DEQUANT_avx512(s, type) t->dequant[LODE_##type] = dequant_##s##_avx512;
#define DEQUANT_avx512vnni(s, type) t->dequant[LODE_##type] = dequant_##s##_avx512vnni;
#define DEQUANT_avx512vbmi(s, type) t->dequant[LODE_##type] = dequant_##s##_avx512vbmi;
#define DEQUANT_avx512zen4(s, type) t->dequant[LODE_##type] = dequant_##s##_avx512zen4;
#define DEQUANT_avx512intel(s, type) t->dequant[LODE_##type] = dequant_##s##_avx512intel;
#define DEQUANT_neon(s, type) t->dequant[LODE_##type] = dequant_##s##_neon;

#define LAY(isa)                                                                                   \
    static void lay_##isa(struct lode_kern *t) {                                                   \
        (void)t; /* a list may be empty */                                                         \
        LODE_FLOAT_##isa(SET_##isa) LODE_QUANT_##isa(SET_##isa) LODE_DEQUANT_##isa(DEQUANT_##isa)  \
    }

#if KERN_AVX2
LAY(avx2)
#endif
#if KERN_WIDER
LAY(avxvnni)
LAY(avx512)
LAY(avx512vnni)
LAY(avx512vbmi)
LAY(avx512zen4)
LAY(avx512intel)
LAY(amx)
#endif
#if KERN_NEON
LAY(neon)
#endif

void lode_kern_table(struct lode_kern *t, enum lode_isa isa) {
    memset(t, 0, sizeof *t);
    t->isa = lode_isa_name(isa);
    lay_scalar(t);
#if KERN_AVX2
    if (isa >= LODE_ISA_avx2 && isa <= LODE_ISA_amx)
        lay_avx2(t);
#endif
#if KERN_WIDER
    if (isa == LODE_ISA_avxvnni)
        lay_avxvnni(t);
    if (isa >= LODE_ISA_avx512 && isa <= LODE_ISA_amx)
        lay_avx512(t);
    if (isa >= LODE_ISA_avx512vnni && isa <= LODE_ISA_amx)
        lay_avx512vnni(t);
    if (isa >= LODE_ISA_avx512vbmi && isa <= LODE_ISA_amx && lode_isa_usable(LODE_ISA_avx512vbmi))
        lay_avx512vbmi(t); /* which zen4 and intel do without where it is not */
    if (isa == LODE_ISA_avx512zen4) {
        lay_avx512zen4(t);
        LODE_FLOAT_KV(SET_avx512intel)
    }
    if (isa >= LODE_ISA_avx512intel && isa <= LODE_ISA_amx)
        lay_avx512intel(t);
    if (isa == LODE_ISA_amx) {
        lay_amx(t);
        t->tiles = true;
    }
#endif
#if KERN_NEON
    if (isa == LODE_ISA_neon)
        lay_neon(t);
#endif
#define FAMILY(s, type) t->mul[LODE_##type] = t->mul_##s;
    LODE_MUL_LIST(FAMILY)
#undef FAMILY
#define FAMILY(s, type, name)                                                                      \
    t->kv_put[LODE_##type] = t->kv_put_##s;                                                        \
    t->kv_score[LODE_##type] = t->kv_score_##s;                                                    \
    t->kv_mix[LODE_##type] = t->kv_mix_##s;
    LODE_KV_LIST(FAMILY)
#undef FAMILY
}
