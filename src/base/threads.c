/* How a task finds a worker.
 *
 * A job's tasks are cut into spans of neighbours, one for each worker (or for a few, where there are
 * many): what a worker does next lies beside what it did, in memory too, where its core has begun to
 * read already.  Who has finished a span takes from the front of the others.
 *
 * A span's `tickets` hold the number of the job in their high and the count of tasks not yet taken in
 * their low half.  A worker takes a task by compare-and-swap; since the job's number is part of the word,
 * a worker that slept through a job cannot take from the next by mistake.  The job itself (fn, arg,
 * n_tasks) is written before tickets say that it has begun, and not again before all of its tasks
 * are done; so what a worker read between loading tickets and swapping them successfully belongs
 * together, and if the swap fails it is thrown away.
 *
 * `pending` counts the tasks that are not done; its last decrement wakes the caller if that sleeps.
 * `epoch` changes with every job; idle workers watch it, then sleep on it. */
#include "base/threads.h"

#include "base/alloc.h"
#include "base/machine.h"

#include <assert.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 64, SPIN_NS = 30000, MOST_SPANS = 16 };

struct worker {
    struct lode_pool *pool; /* borrowed */
    uint32_t index;
    int cpu; /* pinned to, or -1; only the caller looks */
    pthread_t thread;
};

struct span {
    _Alignas(LINE) atomic_uint_fast64_t tickets;
};

struct lode_pool {
    uint32_t n_threads, n_started; /* n_started: that must be joined */
    uint32_t n_spans;
    _Atomic int64_t spin_ns;
    struct worker *workers; /* owned; (n_threads), [0] is the caller: there is no thread, and `cpu` is the one left to it */
    int seen;               /* the CPU that the caller was last seen on; -1: none yet, or nobody is pinned */

    struct span spans[MOST_SPANS]; /* (n_spans) */
    _Alignas(LINE) _Atomic(lode_pool_fn *) fn;
    _Atomic(void *) arg;
    atomic_uint n_tasks;

    _Alignas(LINE) atomic_uint pending;
    atomic_bool caller_sleeps;

    _Alignas(LINE) atomic_uint epoch;
    atomic_uint sleepers;
    atomic_bool stop;
};

static void futex_wait(atomic_uint *word, uint32_t while_value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, while_value, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word, uint32_t n) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Spins until *word is no longer `value` or the time is over; returns whether it changed. */
static bool spin_while(atomic_uint *word, uint32_t value, int64_t spin_ns) {
    struct timespec t0, t;
    if (spin_ns <= 0)
        return atomic_load_explicit(word, memory_order_acquire) != value;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    do {
        for (int i = 0; i < 16; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != value)
                return true;
            relax();
        }
        clock_gettime(CLOCK_MONOTONIC, &t);
    } while ((t.tv_sec - t0.tv_sec) * 1000000000 + (t.tv_nsec - t0.tv_nsec) < spin_ns);
    return false;
}

/* The first task of span s, 0 .. n_spans. */
static uint32_t span_start(const struct lode_pool *p, uint32_t n_tasks, uint32_t s) {
    return (uint32_t)((uint64_t)n_tasks * s / p->n_spans);
}

/* Takes a span's tasks until none is left; returns how many. */
static uint32_t work_on(struct lode_pool *p, uint32_t s, uint32_t worker) {
    struct span *span = &p->spans[s];
    uint32_t done = 0;
    uint_fast64_t seen = atomic_load_explicit(&span->tickets, memory_order_acquire);
    while ((uint32_t)seen != 0) {
        lode_pool_fn *fn = atomic_load_explicit(&p->fn, memory_order_relaxed);
        void *arg = atomic_load_explicit(&p->arg, memory_order_relaxed);
        const uint32_t n_tasks = atomic_load_explicit(&p->n_tasks, memory_order_relaxed);
        if (!atomic_compare_exchange_weak_explicit(&span->tickets, &seen, seen - 1, memory_order_acquire,
                                                   memory_order_acquire))
            continue;
        fn(arg, span_start(p, n_tasks, s + 1) - (uint32_t)seen, worker);
        done++;
        seen = atomic_load_explicit(&span->tickets, memory_order_acquire);
    }
    return done;
}

/* Its own span first, then those of the workers after it. */
static void work(struct lode_pool *p, uint32_t worker) {
    uint32_t done = 0;
    for (uint32_t i = 0; i < p->n_spans; i++)
        done += work_on(p, (worker + i) % p->n_spans, worker);
    /* seq_cst, as the caller's side: either it sees the count at 0 or we see it sleep */
    if (done && atomic_fetch_sub(&p->pending, done) == done && atomic_load(&p->caller_sleeps))
        futex_wake(&p->pending, 1);
}

static void *worker_main(void *arg) {
    const struct worker *w = arg;
    struct lode_pool *p = w->pool;
    for (;;) {
        const uint32_t epoch = atomic_load(&p->epoch);
        if (atomic_load(&p->stop))
            return NULL;
        work(p, w->index);
        if (spin_while(&p->epoch, epoch, atomic_load_explicit(&p->spin_ns, memory_order_relaxed)))
            continue;
        /* seq_cst: either run sees a sleeper or the kernel sees the new epoch */
        atomic_fetch_add(&p->sleepers, 1);
        futex_wait(&p->epoch, epoch);
        atomic_fetch_sub(&p->sleepers, 1);
    }
}

static void pin(struct worker *w, int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    w->cpu = cpu;
    pthread_setaffinity_np(w->thread, sizeof set, &set); /* a wish; may fail */
}

/* The system puts the caller where it likes, and that may be a worker's CPU: woken there by a thread that reads, it stays
 * beside the worker while its own CPU idles (of 29 runs of a streamed mixture on two cores seven computed at half the
 * speed from first to last).  Then that worker has the CPU that was left to the caller. */
static void make_room(struct lode_pool *p) {
    const int here = sched_getcpu();
    if (here == p->seen || p->workers[0].cpu < 0)
        return;
    p->seen = here;
    for (uint32_t i = 1; i <= p->n_started; i++)
        if (p->workers[i].cpu == here) {
            pin(&p->workers[i], p->workers[0].cpu);
            p->workers[0].cpu = here;
            return;
        }
}

void lode_pool_run(struct lode_pool *p, lode_pool_fn *fn, void *arg, uint32_t n_tasks) {
    if (p->n_threads == 1 || n_tasks <= 1) {
        for (uint32_t i = 0; i < n_tasks; i++)
            fn(arg, i, 0);
        return;
    }
    assert(atomic_load(&p->pending) == 0 && "one run at a time, and none within a task");
    make_room(p);
    atomic_store_explicit(&p->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&p->arg, arg, memory_order_relaxed);
    atomic_store_explicit(&p->n_tasks, n_tasks, memory_order_relaxed);
    atomic_store_explicit(&p->pending, n_tasks, memory_order_relaxed);
    const uint32_t epoch = atomic_load_explicit(&p->epoch, memory_order_relaxed) + 1;
    for (uint32_t s = 0; s < p->n_spans; s++) {
        const uint32_t n = span_start(p, n_tasks, s + 1) - span_start(p, n_tasks, s);
        atomic_store_explicit(&p->spans[s].tickets, (uint_fast64_t)epoch << 32 | n, memory_order_release);
    }
    atomic_store(&p->epoch, epoch);
    const uint32_t sleepers = atomic_load(&p->sleepers);
    if (sleepers)
        futex_wake(&p->epoch, sleepers < n_tasks - 1 ? sleepers : n_tasks - 1);

    work(p, 0);

    uint32_t left;
    while ((left = atomic_load_explicit(&p->pending, memory_order_acquire)) != 0) {
        if (spin_while(&p->pending, left, atomic_load_explicit(&p->spin_ns, memory_order_relaxed)))
            continue;
        atomic_store(&p->caller_sleeps, true);
        if ((left = atomic_load(&p->pending)) != 0)
            futex_wait(&p->pending, left);
        atomic_store(&p->caller_sleeps, false);
    }
}

/* Workers take no signals that are meant for the program; those that their own instructions
 * raise - a page of a mapped file that is gone - stay theirs. */
static int start_worker(struct worker *w) {
    sigset_t block, old;
    sigfillset(&block);
    sigdelset(&block, SIGBUS);
    sigdelset(&block, SIGSEGV);
    sigdelset(&block, SIGFPE);
    sigdelset(&block, SIGILL);
    pthread_sigmask(SIG_BLOCK, &block, &old);
    const int rc = pthread_create(&w->thread, NULL, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

int lode_pool_create(struct lode_pool **out, uint32_t n_threads, bool pinned, struct lode_error *err) {
    *out = NULL;
    if (n_threads < 1 || n_threads > LODE_POOL_MAX)
        return lode_fail(err, LODE_ERR_ARG, "threads", "%u threads, 1 to %d are possible",
                         n_threads, LODE_POOL_MAX);
    struct lode_pool *p = lode_alloc_aligned(LINE, 1, sizeof *p);
    if (!p)
        return lode_fail_nomem(err, "the thread pool");
    memset(p, 0, sizeof *p);
    p->n_threads = n_threads;
    p->n_spans = n_threads < MOST_SPANS ? n_threads : MOST_SPANS;
    p->workers = LODE_NEW_ARRAY(struct worker, n_threads);
    if (!p->workers) {
        lode_pool_free(p);
        return lode_fail_nomem(err, "the thread pool");
    }
    uint32_t cpus[LODE_POOL_MAX], n_cores;
    const uint32_t n_cpus = lode_machine_cpus(cpus, LODE_POOL_MAX, &n_cores);
    pinned = pinned && n_threads >= n_cores;
    p->workers[0].cpu = pinned ? (int)cpus[0] : -1;
    p->seen = -1;
    /* With more threads than cores whoever spins keeps somebody else from working. */
    atomic_store(&p->spin_ns, n_threads <= n_cpus ? SPIN_NS : 0);
    for (uint32_t i = 1; i < n_threads; i++) {
        p->workers[i] = (struct worker){.pool = p, .index = i, .cpu = -1};
        const int rc = start_worker(&p->workers[i]);
        if (rc) {
            lode_pool_free(p);
            return lode_fail(err, LODE_ERR_LIMIT, "threads", "cannot start thread %u of %u: %s",
                             i + 1, n_threads, strerror(rc));
        }
        p->n_started = i;
        if (pinned && i < n_cpus)
            pin(&p->workers[i], (int)cpus[i]);
    }
    *out = p;
    return 0;
}

void lode_pool_stay_awake(struct lode_pool *p, int64_t ns) {
    if (atomic_load(&p->spin_ns) > 0)
        atomic_store(&p->spin_ns, ns);
}

uint32_t lode_pool_threads(const struct lode_pool *p) { return p->n_threads; }

void lode_pool_free(struct lode_pool *p) {
    if (!p)
        return;
    atomic_store(&p->stop, true);
    atomic_fetch_add(&p->epoch, 1);
    futex_wake(&p->epoch, LODE_POOL_MAX);
    for (uint32_t i = 1; i <= p->n_started; i++)
        pthread_join(p->workers[i].thread, NULL);
    lode_free(p->workers);
    lode_free_aligned(p);
}

/* What sched_setattr takes; libraries do not have it everywhere. */
struct sched_attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t turn_ns, deadline, period;
};

void lode_thread_wakes_first(void) {
    struct sched_attributes a = {.size = sizeof a, .policy = SCHED_FIFO, .priority = 1};
    if (syscall(SYS_sched_setattr, 0, &a, 0U) == 0)
        return;
    a = (struct sched_attributes){
        .size = sizeof a, .policy = SCHED_OTHER, .nice = -20, .turn_ns = 100000};
    if (syscall(SYS_sched_setattr, 0, &a, 0U) == 0)
        return;
    a.nice = getpriority(PRIO_PROCESS, 0);
    (void)syscall(SYS_sched_setattr, 0, &a, 0U);
}
