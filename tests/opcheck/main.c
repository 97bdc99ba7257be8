/* opcheck - holds ops, and chains of them, on a device to the scalar CPU, bit for bit.
 *
 *     opcheck [--device cuda[:N]|cpu] [--numerics exact|fast] [--launches] [--seed N] [--jobs N] [CASE...]
 *
 * cpu (the default): the CPU's best kernels on two threads.  A CASE is a name of cases.c.  What the device
 * leaves to the CPU is skipped and counted; without a device, all.  fast: cases of types with such products, and
 * of a device's attention, against the same rows one by one and within a bound.  launches: whether the device takes what it
 * is asked for; what comes is not looked at, so that a driver that stands in (tests/fake_cuda) can be any GPU.  jobs: as many
 * processes, each of which opens the device and takes the next case when it has ended one, as what takes long is the scalar CPU; one that
 * dies is a failure, and another goes on.  The last line is "N passed, N failed, N skipped". */
#include "oc.h"

#include "backend/cuda.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_JOBS = 64 };

/* What all processes see. */
static struct shared {
    atomic_uint next; /* of all that there is to do, in the order of `take` */
    atomic_uint passed, failed, skipped;
    const char *in[MOST_JOBS]; /* the case that a process is in */
} *all;

struct work {
    struct oc_opts o;
    bool on_gpu;
    int gpu; /* its number */
    char **names; /* (n); none: all cases */
    int n, process;
};

static void run(const struct work *w, const struct oc_case *k, enum lode_dtype type, int variant) {
    const struct oc_opts *o = &w->o;
    char skip[256] = "";
    all->in[w->process] = k->name;
    const int result = oc_run(k, type, variant, o, skip);
    atomic_fetch_add(result == 1 ? &all->passed : result == 0 ? &all->failed : &all->skipped, 1);
    if (result < 0)
        printf("skip  %s\n", skip);
    else if (result == 0)
        printf("again: opcheck --seed %llu %s\n", (unsigned long long)o->seed, k->name);
    fflush(stdout);
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

/* With --numerics fast on a device: of those that no type of weights has its own of. */
static bool is_fast_case(const struct oc_case *c) {
    return c->bound == OC_SAME || c->bound == OC_ATTENTION || c->bound == OC_ATTENTION_DEEP;
}

static bool wanted(const char *name, char **names, int n) {
    for (int i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return n == 0;
}

/* Those of the checks that no other process has taken. */
static void take(const struct work *w) {
    const struct oc_opts *o = &w->o;
    unsigned at = 0, mine = atomic_fetch_add(&all->next, 1);
    for (size_t k = 0; k < oc_n_cases; k++) {
        const struct oc_case *c = &oc_cases[k];
        const int n = c->variants ? c->variants : LODE_DTYPE_COUNT;
        if (!wanted(c->name, w->names, w->n))
            continue;
        for (int i = 0; i < n; i++) {
            const enum lode_dtype type = c->variants ? LODE_F32 : (enum lode_dtype)i;
            if (c->bound == OC_ATTENTION_DEEP && !o->fast)
                continue;
            if (c->variants ? o->fast && !(o->c && is_fast_case(c))
                            : !(o->fast ? is_fast(type, o->c) : is_weight(type, c->by_act)))
                continue;
            if (at++ != mine)
                continue;
            run(w, c, type, c->variants ? i : 0);
            mine = atomic_fetch_add(&all->next, 1);
        }
    }
}

/* A process's part; the first one says what the device is. */
static void do_part(struct work *w) {
    const bool says = w->process == 0;
    struct lode_error err = {0};
    if (w->on_gpu) {
        if (lode_cuda_open(&w->o.c, w->gpu, &err) < 0) {
            const bool fails = w->o.launches && err.code != LODE_ERR_UNSUPPORTED; /* not taken, where CUDA is not left out */
            if (says) {
                printf("%s  all: %s\n", fails ? "FAIL" : "skip", err.text);
                atomic_fetch_add(fails ? &all->failed : &all->skipped, 1);
            }
            return;
        }
        if (says)
            printf("%s\n", lode_cuda_name(w->o.c));
    }
    take(w);
    lode_cuda_close(w->o.c);
}

static pid_t begin_part(struct work *w, int process) {
    fflush(NULL);
    const pid_t child = fork();
    if (child < 0) {
        perror("opcheck: fork");
        exit(2);
    }
    if (child == 0) {
        w->process = process;
        do_part(w);
        exit(0);
    }
    return child;
}

static void do_all(struct work *w, int jobs) {
    pid_t children[MOST_JOBS];
    if (jobs == 1) {
        do_part(w);
        return;
    }
    for (int i = 0; i < jobs; i++)
        children[i] = begin_part(w, i);
    int status;
    unsigned begun = 0; /* when one has died before */
    for (pid_t ended; (ended = wait(&status)) > 0;) {
        int i = 0;
        while (i < jobs && children[i] != ended)
            i++;
        if (i == jobs || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
            continue;
        printf("FAIL  %s: its process ended by %s %d\n", all->in[i] ? all->in[i] : "no case", WIFSIGNALED(status) ? "signal" : "status",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        atomic_fetch_add(&all->failed, 1);
        if (all->next == begun)
            continue; /* it took none: the next one would not either */
        begun = all->next;
        all->in[i] = NULL;
        children[i] = begin_part(w, i);
    }
}

int main(int argc, char **argv) {
    struct work w = {.o = {.seed = (uint64_t)time(NULL)}};
    const char *device = "cpu";
    int i = 1, jobs = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "--device") == 0 && i + 1 < argc) {
            device = argv[++i];
        } else if (strcmp(argv[i], "--numerics") == 0 && i + 1 < argc) {
            w.o.fast = strcmp(argv[++i], "fast") == 0;
        } else if (strcmp(argv[i], "--launches") == 0) {
            w.o.launches = true;
        } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            w.o.seed = strtoull(argv[++i], NULL, 0);
        } else if (strcmp(argv[i], "--jobs") == 0 && i + 1 < argc && (jobs = atoi(argv[i + 1])) > 0 && jobs <= MOST_JOBS) {
            i++;
        } else {
            fprintf(stderr, "opcheck [--device cuda[:N]|cpu] [--numerics exact|fast] [--launches] [--seed N] [--jobs 1..%d] "
                            "[case...]\n", MOST_JOBS);
            return 2;
        }
    }
    w.on_gpu = strncmp(device, "cuda", 4) == 0;
    w.gpu = w.on_gpu && device[4] == ':' ? atoi(device + 5) : 0;
    if (!w.on_gpu && strcmp(device, "cpu") != 0) {
        fprintf(stderr, "opcheck: --device cuda, cuda:N or cpu\n");
        return 2;
    }
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) {
        perror("opcheck: mmap");
        return 2;
    }
    w.names = argv + i;
    w.n = argc - i;
    do_all(&w, jobs);
    const unsigned passed = all->passed, failed = all->failed, skipped = all->skipped;
    munmap(all, sizeof *all);
    if (passed + failed + skipped == 0) {
        fprintf(stderr, "opcheck: no such case\n");
        return 2;
    }
    printf("%u passed, %u failed, %u skipped\n", passed, failed, skipped);
    return failed ? 1 : 0;
}
