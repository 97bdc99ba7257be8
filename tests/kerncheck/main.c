/* kerncheck - holds every kernel to its definition, and times it.
 *
 *     kerncheck [--seed N] [--isa NAME] [NAME...]      check (all, or kernels whose name matches); of an instruction set
 *                                                      alone, that its bits are scalar's and not what those mean
 *     kerncheck --some, --few                          all kernels, of sizes one of two or of six, by the seed
 *     kerncheck --bench [--isa NAME] [NAME...]         time
 *     kerncheck --decode [-t N] [--isa NAME] [TYPE | kv_TYPE...] from memory by all threads (decode.c)
 *
 * kerncheck_tiles checks amx alone, its tiles in plain C (tiles.h), where there is AVX-512 with VNNI and VBMI.
 *
 * A NAME matches itself, and with a * at its end all that begin so.  The last line of a check is
 * "N passed, N failed": one for each kernel and instruction set.
 */
#include "decode.h"
#include "kc_run.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct {
    const char *name;
    kc_check *check;
} checks[] = {
#define ENTRY(name, ret, args) {#name, check_##name},
#define ENTRY_DEQUANT(s, type) {"dequant_" #s, check_dequant_##s},
    LODE_KERN_LIST(ENTRY) LODE_DEQUANT_LIST(ENTRY_DEQUANT)};

static struct kc_state state;
static struct kc kc = {.state = &state};

/* A kernel that leaves its buffer faults; say which, and how to see it again. */
static void on_fault(int sig) {
    char text[512];
    const int n = snprintf(text, sizeof text,
                           "FAIL %s %s [%s]: signal %d, memory outside its buffers%s; "
                           "again: kerncheck %s--seed %llu %s\n",
                           state.name, kc.now->isa, state.what, sig,
                           state.side == KC_END ? " (after the end?)" : " (before the start?)",
                           kc_sizes_flag(&state), (unsigned long long)state.seed, state.name);
    if (n > 0 && write(2, text, (size_t)n) < 0)
        _exit(2);
    _exit(1);
}

static bool wanted(const char *name, char **patterns, int n) {
    for (int i = 0; i < n; i++) {
        const size_t len = strlen(patterns[i]);
        if (len && patterns[i][len - 1] == '*' ? strncmp(name, patterns[i], len - 1) == 0
                                               : strcmp(name, patterns[i]) == 0)
            return true;
    }
    return n == 0;
}

static bool usable(int isa) {
#ifdef LODE_TILES_EMULATED
    return isa == LODE_ISA_amx && lode_isa_usable(LODE_ISA_avx512vbmi);
#else
    return lode_isa_usable((enum lode_isa)isa);
#endif
}

int main(int argc, char **argv) {
    state.seed = (uint64_t)time(NULL);
    int only_isa = -1, i = 1, threads = 0;
    bool decode = false;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "--bench") == 0) {
            kc.bench = true;
        } else if (strcmp(argv[i], "--decode") == 0) {
            decode = true;
        } else if (strcmp(argv[i], "-t") == 0 && i + 1 < argc) {
            threads = atoi(argv[++i]);
        } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            state.seed = strtoull(argv[++i], NULL, 0);
        } else if (strcmp(argv[i], "--slack") == 0 && i + 1 < argc) {
            state.slack = strtoull(argv[++i], NULL, 0);
        } else if (strcmp(argv[i], "--some") == 0) {
            state.one_of = KC_SOME;
        } else if (strcmp(argv[i], "--few") == 0) {
            state.one_of = KC_FEW;
        } else if (strcmp(argv[i], "--isa") == 0 && i + 1 < argc &&
                   (only_isa = lode_isa_from_name(argv[++i])) >= 0) {
            continue;
        } else {
            fprintf(stderr, "kerncheck [--seed N] [--some | --few] [--bench] [--isa NAME] [--slack BYTES] [kernel...]\n"
                            "kerncheck --decode [-t THREADS] [--isa NAME] [type | kv_type...]\n");
            return 2;
        }
    }
    if (!kc.bench) {
        signal(SIGSEGV, on_fault);
        signal(SIGBUS, on_fault);
    }

    static struct lode_kern tables[LODE_ISA_COUNT];
    for (int isa = 0; isa < LODE_ISA_COUNT; isa++)
        lode_kern_table(&tables[isa], (enum lode_isa)isa);
    kc.ref = &tables[LODE_ISA_scalar];
    if (decode) {
        kc.now = &tables[only_isa >= 0 ? only_isa : (int)lode_isa_best()];
        return kc_decode(&kc, threads > 0 ? (uint32_t)threads : 0, argv + i, argc - i) ? 1 : 0;
    }

    unsigned passed = 0, failed = 0;
    for (size_t c = 0; c < sizeof checks / sizeof *checks; c++) {
        if (!wanted(checks[c].name, argv + i, argc - i))
            continue;
        state.n_scalar = 0;
        for (int isa = 0; isa < LODE_ISA_COUNT; isa++) {
            if (!usable(isa) || (only_isa >= 0 && isa != only_isa))
                continue;
            kc.now = &tables[isa];
            if (kc_run(&kc, checks[c].name, checks[c].check))
                passed++;
            else
                failed++;
        }
    }
    free(state.buffers);
#ifdef LODE_TILES_EMULATED
    if (!usable(LODE_ISA_amx))
        return 77; /* skipped */
#endif
    if (passed + failed == 0) {
        fprintf(stderr, "kerncheck: no such kernel\n");
        return 2;
    }
    if (!kc.bench)
        printf("%u passed, %u failed\n", passed, failed);
    return failed ? 1 : 0;
}
