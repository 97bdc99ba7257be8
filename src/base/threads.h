/* threads.h - a pool that runs many small tasks, many times a second.
 *
 * lode_pool_run calls fn(arg, task, worker) for each task 0 .. n_tasks-1, in any order and on any
 * thread of the pool, and returns when all are done; what they wrote is visible then.  The calling
 * thread is worker 0 and works too, the others are 1 .. n-1: `worker` picks scratch memory, never
 * a result.  Each worker begins at a place of its own and goes on in ascending order, so neighbouring
 * tasks should lie beside each other in memory; who has finished helps the others.  Tasks are handed out
 * one by one, so a thread that lost its core to a neighbour delays only the task that it holds: nobody
 * waits for a worker that has taken none.  Idle threads spin for some tens of microseconds (not at all
 * where the pool has more threads than the process has cores), then sleep.
 *
 *     struct lode_pool *pool;
 *     LODE_TRY(lode_pool_create(&pool, 4, false, err));
 *     lode_pool_run(pool, multiply_rows, &job, n_rows / 16);
 *     lode_pool_free(pool);
 *
 * run allocates nothing and cannot fail.  It is called by one thread at a time, and not from
 * within a task; pools do not know of each other.
 */
#ifndef LODE_BASE_THREADS_H
#define LODE_BASE_THREADS_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct lode_pool;

typedef void lode_pool_fn(void *arg, uint32_t task, uint32_t worker);

enum { LODE_POOL_MAX = 1024 };

/* n_threads counts the caller: 1 makes a pool without threads; 1 .. LODE_POOL_MAX.  pinned: each
 * thread stays on a core of its own, if the pool has as many threads as the process has cores (a
 * smaller one would sit on the first cores whoever else is there); the caller is left as it is, and the
 * thread whose core it comes to has the one that it left. */
int lode_pool_create(struct lode_pool **pool, uint32_t n_threads, bool pinned, struct lode_error *err);
/* Idle threads spin for so long instead, for who is soon back: waking them all takes as long as a device's part of a
 * layer. */
void lode_pool_stay_awake(struct lode_pool *pool, int64_t ns);
uint32_t lode_pool_threads(const struct lode_pool *pool);
void lode_pool_run(struct lode_pool *pool, lode_pool_fn *fn, void *arg, uint32_t n_tasks);
void lode_pool_free(struct lode_pool *pool);

/* For a thread that mostly sleeps and keeps a device busy: while all cores compute, it runs at once
 * when it wakes, as far as the system allows it: at real-time priority, or the highest of ordinary
 * ones; else with a shorter turn than others, which newer kernels let go first. */
void lode_thread_wakes_first(void);

#endif
