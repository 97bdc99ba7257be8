/* How fast this machine reads memory. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/machine.h"
#include "base/threads.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* Each task reads neighbouring pieces side by side, one cache line of each in turn, which is what a
 * matrix product does with its rows.  Whether one piece or four is what the hardware follows best
 * depends on the machine, and matters twofold; narrower loads measured half as much. */
enum { MAX_STREAMS = 4, TASK = 1 << 20, LINE = 64 };

typedef uint64_t reader(const char *p);

#define READER(n_streams, vector_bytes, attributes)                                                \
    attributes static uint64_t read_##vector_bytes##_##n_streams(const char *p) {                  \
        typedef uint64_t vector __attribute__((vector_size(vector_bytes)));                        \
        enum { N = LINE / vector_bytes, PIECE = TASK / n_streams };                                \
        vector sum[n_streams] = {{0}};                                                             \
        for (size_t i = 0; i < PIECE; i += LINE)                                                   \
            for (size_t s = 0; s < n_streams; s++)                                                 \
                for (size_t v = 0; v < N; v++)                                                     \
                    sum[s] ^= ((const vector *)(p + s * PIECE + i))[v];                            \
        uint64_t total = 0;                                                                        \
        for (size_t s = 0; s < n_streams; s++)                                                     \
            for (size_t l = 0; l < vector_bytes / sizeof total; l++)                               \
                total ^= sum[s][l];                                                                \
        return total;                                                                              \
    }
#define READERS(bytes, attributes)                                                                 \
    READER(1, bytes, attributes)                                                                   \
    READER(2, bytes, attributes)                                                                   \
    READER(4, bytes, attributes)                                                                   \
    READER(8, bytes, attributes)                                                                   \
    READER(16, bytes, attributes)                                                                  \
    static reader *const readers_##bytes[] = {read_##bytes##_1, read_##bytes##_2, read_##bytes##_4, \
                                              read_##bytes##_8, read_##bytes##_16};

READERS(16, )
#if defined(__x86_64__)
READERS(32, __attribute__((target("avx2"))))
READERS(64, __attribute__((target("avx512f"))))
#endif

static reader *best_reader(uint32_t streams) {
    size_t i = 0;
    while (i + 1 < sizeof readers_16 / sizeof *readers_16 && 1u << i < streams)
        i++;
#if defined(__x86_64__)
    if (lode_cpu_has(LODE_CPU_avx512f))
        return readers_64[i];
    if (lode_cpu_has(LODE_CPU_avx2))
        return readers_32[i];
#endif
    return readers_16[i];
}

struct job {
    reader *read;
    const char *data;         /* (n_tasks, TASK) bytes, aligned to lines */
    atomic_uint_fast64_t sum; /* so that no read can be left out */
};

static void read_task(void *arg, uint32_t task, uint32_t worker) {
    struct job *job = arg;
    (void)worker;
    atomic_fetch_xor_explicit(&job->sum, job->read(job->data + (size_t)task * TASK),
                              memory_order_relaxed);
}

static void touch_task(void *arg, uint32_t task, uint32_t worker) {
    const struct job *job = arg;
    memset((char *)(uintptr_t)job->data + (size_t)task * TASK, (int)(task + worker), TASK);
}

/* What a quarter of the passes exceed: the fastest few may be half as fast again where a virtual machine's
 * clock or its neighbours jump, and the slower ones were disturbed. */
static double usual_speed(struct lode_pool *pool, struct job *job, uint32_t n_tasks, double seconds) {
    enum { MOST = 64 };
    double speeds[MOST]; /* descending */
    size_t n = 0;
    const double end = lode_clock() + seconds;
    do {
        const double start = lode_clock();
        lode_pool_run(pool, read_task, job, n_tasks);
        const double v = (double)n_tasks * TASK / (lode_clock() - start);
        size_t at = n++;
        for (; at > 0 && speeds[at - 1] < v; at--)
            speeds[at] = speeds[at - 1];
        speeds[at] = v;
    } while (n < MOST && lode_clock() < end);
    return speeds[n / 4];
}

/* 8 x the last cache, so that little of one pass is left for the next; but never more than a quarter of
 * what this process may still take. */
uint64_t lode_machine_read_buffer(const struct lode_machine *m) {
    uint64_t size = m->cache_l3 * 8;
    if (size < UINT64_C(256) << 20)
        size = UINT64_C(256) << 20;
    if (size > UINT64_C(2) << 30)
        size = UINT64_C(2) << 30;
    return size < m->ram_left / 4 ? size : m->ram_left / 4;
}

/* Threads and what they read; its pages take longer to come than one measurement. */
struct reading {
    struct lode_pool *pool;
    char *data; /* (n_tasks, TASK) */
    uint32_t n_tasks;
};
static void end_reading(struct reading *r) {
    lode_free_aligned(r->data);
    lode_pool_free(r->pool);
}
static int begin_reading(struct reading *r, uint32_t threads, struct lode_error *err) {
    struct lode_machine m;
    lode_machine_probe(&m);
    *r = (struct reading){.n_tasks = (uint32_t)(lode_machine_read_buffer(&m) / TASK)};
    if (r->n_tasks == 0)
        return lode_fail(err, LODE_ERR_NOMEM, "read bandwidth", "only %llu bytes of memory are free",
                         (unsigned long long)m.ram_left);
    LODE_TRY(lode_pool_create(&r->pool, threads ? threads : lode_machine_default_threads(), false, err));
    r->data = lode_alloc_large(r->n_tasks, TASK);
    if (!r->data) {
        end_reading(r);
        return lode_fail_nomem(err, "the buffer that measures read bandwidth");
    }
    struct job job = {.data = r->data};
    lode_pool_run(r->pool, touch_task, &job, r->n_tasks); /* pages, faulted in by those who read them */
    return 0;
}
static double speed_of(const struct reading *r, uint32_t streams, double seconds) {
    struct job job = {.read = best_reader(streams), .data = r->data};
    return usual_speed(r->pool, &job, r->n_tasks, seconds);
}

double lode_machine_read_streams(uint32_t threads, uint32_t streams, double seconds, struct lode_error *err) {
    struct reading r;
    const int rc = begin_reading(&r, threads, err);
    if (rc < 0)
        return rc;
    const double speed = speed_of(&r, streams, seconds);
    end_reading(&r);
    return speed;
}

double lode_machine_read_bandwidth(uint32_t threads, double seconds, struct lode_error *err) {
    /* how many pieces side by side are read best differs by machine and by its load */
    struct reading r;
    double best = 0;
    const int rc = begin_reading(&r, threads, err);
    if (rc < 0)
        return rc;
    for (uint32_t streams = 1; streams <= MAX_STREAMS; streams *= 2)
        best = fmax(best, speed_of(&r, streams, seconds / 3));
    end_reading(&r);
    return best;
}

/* ---- what it costs to share work ---- */

enum { SPINS = 2000 /* a microsecond or so, as a few rows of a small product */, EACH = 4, RUNS = 100, TRIES = 16 };

static void spin_task(void *arg, uint32_t i, uint32_t worker) {
    atomic_uint_least64_t *sink = arg;
    uint64_t x = i + worker;
    for (int k = 0; k < SPINS; k++)
        x = x * 6364136223846793005u + 1;
    if (x == 0) /* never known to the compiler */
        atomic_fetch_add(sink, x);
}

/* Seconds of a run of n tasks: of the best of some series, as threads that the system has not spread over
 * its cores yet, or stops for a while, take fifty times as long. */
static double time_runs(struct lode_pool *pool, uint32_t n) {
    atomic_uint_least64_t sink = 0;
    double best = INFINITY;
    for (int t = 0; t < TRIES; t++) {
        const double start = lode_clock();
        for (int i = 0; i < RUNS; i++)
            lode_pool_run(pool, spin_task, &sink, n);
        best = fmin(best, (lode_clock() - start) / RUNS);
    }
    return best;
}

double lode_machine_fork_time(uint32_t threads, struct lode_error *err) {
    struct lode_pool *pool, *alone;
    const uint32_t n = threads ? threads : lode_machine_default_threads();
    LODE_TRY(lode_pool_create(&alone, 1, false, err));
    const double task = time_runs(alone, EACH) / EACH;
    lode_pool_free(alone);
    LODE_TRY(lode_pool_create(&pool, n, true, err));
    const double shared = time_runs(pool, EACH * n); /* would take as long as EACH tasks do */
    lode_pool_free(pool);
    return fmax(0, shared - EACH * task);
}
