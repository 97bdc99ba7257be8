/* The part of lode/machine.h that is about instruction sets. */
#include "base/buf.h"
#include "base/cpu.h"
#include "kern/kern.h"
#include "lode/machine.h"

#include <pthread.h>

const char *const *lode_machine_isas(void) {
    static const char *const names[] = {
#define NAME(name, ...) #name,
        LODE_ISA_LIST(NAME)
#undef NAME
            NULL};
    return names;
}

bool lode_machine_isa_usable(const char *isa) {
    const int i = lode_isa_from_name(isa);
    return i >= 0 && lode_isa_usable((enum lode_isa)i);
}

const char *lode_machine_isa_best(void) { return lode_isa_name(lode_isa_best()); }

static char words[512]; /* 26 names of at most 13 letters and a space */
static pthread_once_t words_once = PTHREAD_ONCE_INIT;

static void make_words(void) {
    char *p = words;
    for (int f = 0; f < LODE_CPU_COUNT; f++) {
        if (!lode_cpu_has((enum lode_cpu_feature)f))
            continue;
        const char *name = lode_cpu_feature_name((enum lode_cpu_feature)f);
        if (p != words)
            *p++ = ' ';
        p = stpcpy(p, name);
    }
}

const char *lode_machine_features(void) {
    pthread_once(&words_once, make_words);
    return words;
}
