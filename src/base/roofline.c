/* How fast this machine's dot products are where nothing is read: its other roof beside bandwidth.
 *
 * Each function runs one instruction (or the few that stand for it) over accumulators in registers,
 * as many as hide its latency.  They are written in assembly: what a compiler makes of intrinsics
 * that sum the same product over and over need not be what is to be measured. */
#include "base/clock.h"
#include "base/cpu.h"
#include "base/machine.h"
#include "base/threads.h"

#include <math.h>
#include <string.h>

typedef void dot_fn(uint32_t n); /* n rounds of ACCUMULATORS dot products */

enum { ACCUMULATORS = 12 };

#define DOT(name, features, vector_bytes, text)                                                    \
    __attribute__((target(features))) static void name(uint32_t n) {                               \
        typedef float vector __attribute__((vector_size(vector_bytes)));                           \
        vector a = {0}, b = a, c = a, d = a, e = a, f = a, g = a, h = a, i = a, j = a, k = a;      \
        vector l = a, x = a, y = a, t = a;                                                         \
        for (; n; n--) {                                                                           \
            EACH(text, a) EACH(text, b) EACH(text, c) EACH(text, d) EACH(text, e) EACH(text, f)    \
            EACH(text, g) EACH(text, h) EACH(text, i) EACH(text, j) EACH(text, k) EACH(text, l)    \
        }                                                                                          \
    }
/* %0 the sum, %1 scratch, %2 and %3 the numbers */
#define EACH(text, sum) __asm__ volatile(text : "+x"(sum), "+x"(t) : "x"(x), "x"(y));

#if defined(__x86_64__)
#define F32 "vfmadd231ps %2, %3, %0"
#define PAIRS "vpmaddubsw %2, %3, %1\n\tvpmaddwd %2, %1, %1\n\tvpaddd %1, %0, %0"
DOT(f32_avx2, "avx2,fma", 32, F32)
DOT(int8_avx2, "avx2", 32, PAIRS)
DOT(int8_avxvnni, "avx2", 32, "%{vex%} vpdpbusd %2, %3, %0")
DOT(f32_avx512, "avx512f", 64, F32)
DOT(int8_avx512, "avx512f,avx512bw", 64, PAIRS)
DOT(int8_avx512vnni, "avx512f", 64, "vpdpbusd %2, %3, %0")
DOT(bf16_avx512, "avx512f", 64, "vdpbf16ps %2, %3, %0")

/* Four sums of 16 x 16, two left and two right operands of 1 KB, as a product would have. */
#define TILES(name, instruction)                                                                   \
    static void name(uint32_t n) {                                                                 \
        _Alignas(64) uint8_t config[64] = {1};                                                     \
        for (int i = 0; i < 8; i++) {                                                              \
            config[16 + 2 * i] = 64;                                                               \
            config[48 + i] = 16;                                                                   \
        }                                                                                          \
        __asm__ volatile("ldtilecfg %0" ::"m"(config));                                            \
        for (; n; n--)                                                                             \
            __asm__ volatile(instruction " %%tmm6, %%tmm4, %%tmm0\n\t" instruction                 \
                                         " %%tmm7, %%tmm4, %%tmm1\n\t" instruction                 \
                                         " %%tmm6, %%tmm5, %%tmm2\n\t" instruction                 \
                                         " %%tmm7, %%tmm5, %%tmm3" ::);                            \
        __asm__ volatile("tilerelease");                                                           \
    }
TILES(int8_amx, "tdpbssd")
TILES(bf16_amx, "tdpbf16ps")
#elif defined(__aarch64__)
#undef EACH
#define EACH(text, sum) __asm__ volatile(text : "+w"(sum), "+w"(t) : "w"(x), "w"(y));
#define DOT_NEON(name, text) DOT(name, "arch=armv8.2-a", 16, text)
DOT_NEON(f32_neon, "fmla %0.4s, %2.4s, %3.4s")
#endif

static const struct dot {
    const char *name;
    dot_fn *run;
    enum lode_cpu_feature needs;
    uint32_t ops; /* of one round */
} dots[] = {
#if defined(__x86_64__)
    {"avx2 f32", f32_avx2, LODE_CPU_fma, ACCUMULATORS * 16},
    {"avx2 int8", int8_avx2, LODE_CPU_avx2, ACCUMULATORS * 64},
    {"avxvnni int8", int8_avxvnni, LODE_CPU_avx_vnni, ACCUMULATORS * 64},
    {"avx512 f32", f32_avx512, LODE_CPU_avx512f, ACCUMULATORS * 32},
    {"avx512 int8", int8_avx512, LODE_CPU_avx512bw, ACCUMULATORS * 128},
    {"avx512vnni int8", int8_avx512vnni, LODE_CPU_avx512_vnni, ACCUMULATORS * 128},
    {"avx512 bf16", bf16_avx512, LODE_CPU_avx512_bf16, ACCUMULATORS * 64},
    {"amx int8", int8_amx, LODE_CPU_amx_int8, 4 * 16 * 16 * 64 * 2},
    {"amx bf16", bf16_amx, LODE_CPU_amx_bf16, 4 * 16 * 16 * 32 * 2},
#elif defined(__aarch64__)
    {"neon f32", f32_neon, LODE_CPU_neon, ACCUMULATORS * 8},
#endif
    {NULL, NULL, LODE_CPU_COUNT, 0},
};

const char *const *lode_machine_dots(void) {
    static const char *names[sizeof dots / sizeof *dots];
    size_t n = 0; /* every call writes the same */
    for (const struct dot *d = dots; d->name; d++)
        if (lode_cpu_has(d->needs))
            names[n++] = d->name;
    return names;
}

/* Long enough that taking a task costs nothing, short enough that threads end together. */
enum { ROUNDS = 20000, TASKS = 8 };

static void run_dot(void *arg, uint32_t task, uint32_t worker) {
    const struct dot *d = arg;
    (void)task;
    (void)worker;
    d->run(ROUNDS);
}

double lode_machine_dot_peak(const char *name, uint32_t threads, double seconds,
                             struct lode_error *err) {
    const struct dot *d = dots;
    while (d->name && strcmp(d->name, name))
        d++;
    if (!d->name || !lode_cpu_has(d->needs))
        return lode_fail(err, LODE_ERR_UNSUPPORTED, "dot product", "this computer has no '%.40s'",
                         name);
    struct lode_pool *pool;
    threads = threads ? threads : lode_machine_default_threads();
    const int rc = lode_pool_create(&pool, threads, false, err);
    if (rc < 0)
        return rc;
    const uint32_t n_tasks = threads * TASKS;
    double best = 0;
    const double end = lode_clock() + seconds;
    do {
        const double start = lode_clock();
        lode_pool_run(pool, run_dot, (void *)(uintptr_t)d, n_tasks);
        best = fmax(best, (double)n_tasks * ROUNDS * d->ops / (lode_clock() - start));
    } while (lode_clock() < end);
    lode_pool_free(pool);
    return best;
}
