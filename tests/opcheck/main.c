/* opcheck - holds ops, and chains of them, on a device to the scalar CPU, bit for bit.
 *
 *     opcheck [--device cuda[:N]|cpu] [--numerics exact|fast] [--launches] [--seed N] [CASE...]
 *
 * cpu (the default): the CPU's best kernels on two threads.  A CASE is a name of cases.c.  What the device
 * leaves to the CPU is skipped and counted; without a device, all.  fast: cases of types with such products, and
 * of a device's attention, against the same rows one by one and within a bound.  launches: whether the device takes what it
 * is asked for; what comes is not looked at, so that a driver that stands in (tests/fake_cuda) can be any GPU.  The last line
 * is "N passed, N failed, N skipped". */
#include "oc.h"

#include "backend/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static unsigned passed, failed, skipped;

static void run(const struct oc_case *k, enum lode_dtype type, int variant, const struct oc_opts *o) {
    char skip[256] = "";
    const int result = oc_run(k, type, variant, o, skip);
    passed += result == 1;
    failed += result == 0;
    skipped += result < 0;
    if (result < 0)
        printf("skip  %s\n", skip);
    else if (result == 0)
        printf("again: opcheck --seed %llu %s\n", (unsigned long long)o->seed, k->name);
}

/* Types whose rows of numbers the CPU multiplies; act: with a kernel of their own. */
static bool is_weight(enum lode_dtype type, bool act) {
    struct lode_kern kern;
    lode_kern_table(&kern, LODE_ISA_scalar);
    return kern.dequant[type] && !lode_dtype_is_rounded(type) && type != LODE_Q8_1 && type != LODE_Q8_K &&
           type != LODE_F64 && !(type >= LODE_I8 && type <= LODE_I64) &&
           (!act || lode_dtypes[type].act != LODE_NONE);
}

/* With --numerics fast: packed ones on some devices only. */
static bool is_fast(enum lode_dtype type, const struct lode_cuda *c) {
    const struct lode_operand w = {.type = type, .rows = 256, .cols = 256, .count = 1};
    return type == LODE_F16 || type == LODE_BF16 || (c && lode_cuda_takes_floats(c, &w));
}

static bool wanted(const char *name, char **names, int n) {
    for (int i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return n == 0;
}

int main(int argc, char **argv) {
    struct oc_opts o = {.seed = (uint64_t)time(NULL)};
    const char *device = "cpu";
    struct lode_error err = {0};
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "--device") == 0 && i + 1 < argc) {
            device = argv[++i];
        } else if (strcmp(argv[i], "--numerics") == 0 && i + 1 < argc) {
            o.fast = strcmp(argv[++i], "fast") == 0;
        } else if (strcmp(argv[i], "--launches") == 0) {
            o.launches = true;
        } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            o.seed = strtoull(argv[++i], NULL, 0);
        } else {
            fprintf(stderr, "opcheck [--device cuda[:N]|cpu] [--numerics exact|fast] [--launches] [--seed N] [case...]\n");
            return 2;
        }
    }
    if (strncmp(device, "cuda", 4) == 0) {
        if (lode_cuda_open(&o.c, device[4] == ':' ? atoi(device + 5) : 0, &err) < 0) {
            const bool fails = o.launches && err.code != LODE_ERR_UNSUPPORTED; /* not taken, where CUDA is not left out */
            printf("%s  all: %s\n0 passed, %d failed, %d skipped\n", fails ? "FAIL" : "skip", err.text, fails, !fails);
            return fails;
        }
        printf("%s\n", lode_cuda_name(o.c));
    } else if (strcmp(device, "cpu") != 0) {
        fprintf(stderr, "opcheck: --device cuda, cuda:N or cpu\n");
        return 2;
    }
    for (size_t k = 0; k < oc_n_cases; k++) {
        if (!wanted(oc_cases[k].name, argv + i, argc - i))
            continue;
        for (int v = 0; v < oc_cases[k].variants && (!o.fast || (o.c && oc_cases[k].bound == OC_ATTENTION)); v++)
            run(&oc_cases[k], LODE_F32, v, &o);
        for (int type = 0; oc_cases[k].variants == 0 && type < LODE_DTYPE_COUNT; type++)
            if (o.fast ? is_fast((enum lode_dtype)type, o.c)
                       : is_weight((enum lode_dtype)type, oc_cases[k].by_act))
                run(&oc_cases[k], (enum lode_dtype)type, 0, &o);
    }
    lode_cuda_close(o.c);
    if (passed + failed + skipped == 0) {
        fprintf(stderr, "opcheck: no such case\n");
        return 2;
    }
    printf("%u passed, %u failed, %u skipped\n", passed, failed, skipped);
    return failed ? 1 : 0;
}
