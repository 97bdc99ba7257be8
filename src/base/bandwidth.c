/* How fast this machine reads memory. */
#include "base/alloc.h"
#include "base/machine.h"
#include "base/threads.h"

#include <math.h>
#include <string.h>
#include <time.h>

/* Each task reads STREAMS neighbouring pieces side by side, one cache line of each in turn: what
 * the hardware's prefetchers follow best, and what a matrix product reads (rows). */
enum { STREAMS = 4, PIECE = 256 << 10, TASK = STREAMS * PIECE, LINE = 64 };

typedef uint64_t v8 __attribute__((vector_size(64))); /* whatever registers this build has */

struct job {
    const char *data; /* (n_tasks, TASK) bytes, aligned to lines */
    uint64_t *sums;   /* (n_threads, 8), so that no read can be left out */
};

static void read_task(void *arg, uint32_t task, uint32_t worker) {
    const struct job *job = arg;
    const char *p = job->data + (size_t)task * TASK;
    v8 sum[STREAMS] = {{0}};
    for (size_t i = 0; i < PIECE; i += LINE)
        for (size_t s = 0; s < STREAMS; s++)
            sum[s] ^= *(const v8 *)(p + s * PIECE + i);
    for (size_t s = 1; s < STREAMS; s++)
        sum[0] ^= sum[s];
    memcpy(job->sums + (size_t)worker * 8, &sum[0], sizeof sum[0]);
}

static void touch_task(void *arg, uint32_t task, uint32_t worker) {
    const struct job *job = arg;
    memset((char *)(uintptr_t)job->data + (size_t)task * TASK, (int)(task + worker), TASK);
}

static double now_s(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

double lode_machine_read_bandwidth(uint32_t threads, double seconds, struct lode_error *err) {
    struct lode_machine m;
    lode_machine_probe(&m);
    /* 8 x the last cache, so that little of one pass is left for the next; but never more than a
     * quarter of what is free. */
    uint64_t size = m.cache_l3 * 8;
    if (size < UINT64_C(256) << 20)
        size = UINT64_C(256) << 20;
    if (size > UINT64_C(2) << 30)
        size = UINT64_C(2) << 30;
    if (m.ram_available && size > m.ram_available / 4)
        size = m.ram_available / 4;
    const uint32_t n_tasks = (uint32_t)(size / TASK);
    if (n_tasks == 0)
        return lode_fail(err, LODE_ERR_NOMEM, "read bandwidth", "only %llu bytes of memory are free",
                         (unsigned long long)m.ram_available);

    struct lode_pool *pool;
    const int rc = lode_pool_create(&pool, threads ? threads : lode_machine_default_threads(),
                                    false, err);
    if (rc < 0)
        return rc;
    char *data = lode_alloc_aligned(LINE, n_tasks, TASK);
    uint64_t *sums = lode_alloc_aligned(LINE, lode_pool_threads(pool), LINE);
    double best = LODE_ERR_NOMEM;
    if (data && sums) {
        struct job job = {data, sums};
        lode_pool_run(pool, touch_task, &job, n_tasks); /* pages, faulted in by those who read them */
        const double end = now_s() + seconds;
        do {
            const double start = now_s();
            lode_pool_run(pool, read_task, &job, n_tasks);
            best = fmax(best, (double)n_tasks * TASK / (now_s() - start));
        } while (now_s() < end);
    } else {
        lode_fail_nomem(err, "the buffer that measures read bandwidth");
    }
    lode_free_aligned(data);
    lode_free_aligned(sums);
    lode_pool_free(pool);
    return best;
}
