/* base: the thread pool, and what we know of the machine. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/machine.h"
#include "base/threads.h"

static double now_s(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* --- pool ---------------------------------------------------------------------------------- */

enum { MAX_TASKS = 2000, THREADS = 8, MORE_THREADS = 23 /* than spans */ };

struct tally {
    uint32_t plain[MAX_TASKS]; /* not atomic: the pool must order it */
    atomic_uint busy[MORE_THREADS]; /* workers must not overlap with themselves */
    atomic_uint overlaps, out_of_range;
};

static void count(void *arg, uint32_t task, uint32_t worker) {
    struct tally *t = arg;
    if (worker >= MORE_THREADS) {
        atomic_fetch_add(&t->out_of_range, 1);
        return;
    }
    if (atomic_fetch_add(&t->busy[worker], 1) != 0)
        atomic_fetch_add(&t->overlaps, 1);
    t->plain[task]++;
    atomic_fetch_sub(&t->busy[worker], 1);
}

static void each_task_runs_once(void **state) {
    (void)state;
    for (uint32_t n_threads = 1; n_threads <= MORE_THREADS; n_threads += n_threads < 3 ? 1 : 5) {
        struct lode_pool *pool;
        assert_int_equal(lode_pool_create(&pool, n_threads, n_threads == 3, NULL), 0);
        assert_int_equal(lode_pool_threads(pool), n_threads);
        for (uint32_t n = 0; n <= MAX_TASKS; n = n * 3 + 1) {
            struct tally *t = calloc(1, sizeof *t);
            for (int again = 0; again < 20; again++)
                lode_pool_run(pool, count, t, n);
            for (uint32_t i = 0; i < MAX_TASKS; i++)
                assert_int_equal(t->plain[i], i < n ? 20 : 0);
            assert_int_equal(t->overlaps + t->out_of_range, 0);
            free(t);
        }
        lode_pool_free(pool);
    }
    lode_pool_free(NULL);
}

/* Who took which, and what that worker took before. */
struct trail {
    uint32_t last[THREADS]; /* + 1; 0: none */
    atomic_uint steps, jumps;
};

static void follow(void *arg, uint32_t task, uint32_t worker) {
    struct trail *t = arg;
    for (volatile int i = 0; i < 2000; i++)
        ;
    if (t->last[worker])
        atomic_fetch_add(t->last[worker] == task ? &t->steps : &t->jumps, 1);
    t->last[worker] = task + 1;
}

/* Whatever the scheduler does, a worker leaves its span only where that is used up; and goes on then in
 * another, which its owner or others may be working on too. */
static void a_worker_goes_on_beside_what_it_did(void **state) {
    (void)state;
    struct lode_pool *pool;
    assert_int_equal(lode_pool_create(&pool, 2, false, NULL), 0);
    uint32_t steps = 0, jumps = 0;
    for (int again = 0; again < 50; again++) {
        struct trail t = {.steps = 0};
        lode_pool_run(pool, follow, &t, 1000);
        steps += t.steps;
        jumps += t.jumps;
    }
    lode_pool_free(pool);
    printf("%u steps to the neighbour, %u jumps\n", steps, jumps);
    assert_true(steps + jumps >= 50 * 998);
    /* in ascending turns nearly all were jumps; a core that is lost makes one worker help the other */
    assert_true(steps > jumps);
}

/* What one run wrote, the next one reads: the sums go wrong if any run returns early, or hands a
 * task of one job to the next. */
struct chain {
    uint64_t from[64], to[64];
};

static void step(void *arg, uint32_t task, uint32_t worker) {
    struct chain *c = arg;
    (void)worker;
    c->to[task] = c->from[(task + 1) % 64] + 1;
}

static void many_short_runs(void **state) {
    (void)state;
    struct lode_pool *pool;
    assert_int_equal(lode_pool_create(&pool, THREADS, false, NULL), 0);
    struct chain c = {{0}, {0}};
    const double start = now_s();
    const uint64_t runs = 100000;
    for (uint64_t i = 0; i < runs; i++) {
        lode_pool_run(pool, step, &c, 2 + i % 63);
        for (uint32_t k = 2 + i % 63; k < 64; k++)
            c.to[k] = c.from[(k + 1) % 64] + 1;
        memcpy(c.from, c.to, sizeof c.from);
    }
    const double seconds = now_s() - start;
    for (int k = 0; k < 64; k++)
        assert_int_equal(c.from[k], runs);
    printf("%g us a run of %d threads\n", seconds / (double)runs * 1e6, THREADS);
    /* On two cores some 10 us; a pool that waits for threads that do not run takes milliseconds. */
    assert_true(seconds < 60);
    lode_pool_free(pool);
}

/* Two pools at once, from two threads. */
static void *other_pool(void *arg) {
    struct lode_pool *pool;
    if (lode_pool_create(&pool, 3, false, NULL) < 0)
        return arg;
    struct chain c = {{0}, {0}};
    for (int i = 0; i < 2000; i++) {
        lode_pool_run(pool, step, &c, 64);
        memcpy(c.from, c.to, sizeof c.from);
    }
    lode_pool_free(pool);
    return c.from[63] == 2000 ? NULL : arg;
}

static void pools_do_not_disturb_each_other(void **state) {
    (void)state;
    pthread_t thread;
    int failed;
    void *result;
    assert_int_equal(pthread_create(&thread, NULL, other_pool, &failed), 0);
    assert_null(other_pool(&failed));
    pthread_join(thread, &result);
    assert_null(result);
}

static void sleep_a_little(void *arg, uint32_t task, uint32_t worker) {
    (void)worker;
    if (task == 0)
        usleep(3000); /* its worker is away; the others must not mind */
    atomic_fetch_add((atomic_uint *)arg, 1);
}

static void a_slow_task_holds_up_only_itself(void **state) {
    (void)state;
    struct lode_pool *pool;
    assert_int_equal(lode_pool_create(&pool, 4, false, NULL), 0);
    atomic_uint done = 0;
    for (int i = 0; i < 50; i++)
        lode_pool_run(pool, sleep_a_little, &done, 100);
    assert_int_equal(done, 5000);
    usleep(20000); /* all asleep by now: they must wake up */
    lode_pool_run(pool, sleep_a_little, &done, 100);
    assert_int_equal(done, 5100);
    lode_pool_free(pool);
}

struct places {
    atomic_uint here;
    uint32_t n;
    int cpus[LODE_POOL_MAX];
};

/* Waits for all the others, so that each thread has one. */
static void note_cpu(void *arg, uint32_t task, uint32_t worker) {
    struct places *p = arg;
    (void)task;
    atomic_fetch_add(&p->here, 1);
    while (atomic_load(&p->here) < p->n)
        sched_yield();
    p->cpus[worker] = sched_getcpu();
}

static void pinned_threads_make_room(void **state) {
    (void)state;
    uint32_t cpus[LODE_POOL_MAX], n_cores;
    cpu_set_t all;
    const uint32_t n = lode_machine_cpus(cpus, LODE_POOL_MAX, &n_cores);
    struct lode_pool *pool;
    if (n < 2 || sched_getaffinity(0, sizeof all, &all) != 0)
        skip();
    assert_int_equal(lode_pool_create(&pool, n, true, NULL), 0);
    for (uint32_t i = 0; i < 2 * n && i < 40; i++) { /* the caller is put on each of them in turn */
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpus[(i * 5 + 1) % n], &one);
        assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
        struct places p = {.n = n};
        lode_pool_run(pool, note_cpu, &p, n);
        for (uint32_t a = 0; a < n; a++)
            for (uint32_t b = 0; b < a; b++)
                assert_int_not_equal(p.cpus[a], p.cpus[b]);
    }
    lode_pool_free(pool);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

static void pool_refuses_bad_counts(void **state) {
    (void)state;
    struct lode_pool *pool;
    struct lode_error err;
    assert_int_equal(lode_pool_create(&pool, 0, false, &err), LODE_ERR_ARG);
    assert_null(pool);
    assert_int_equal(lode_pool_create(&pool, LODE_POOL_MAX + 1, false, &err), LODE_ERR_ARG);
    assert_non_null(strstr(err.text, "1025 threads"));
}

/* --- machine ------------------------------------------------------------------------------- */

static char root[64];

static void write_file(const char *path, const char *text) {
    char full[256];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(full, 0700);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int make_root(void **state) {
    (void)state;
    snprintf(root, sizeof root, "/tmp/lode_machine_XXXXXX");
    if (!mkdtemp(root))
        return -1;
    write_file("/proc/cpuinfo", "processor\t: 0\nmodel name\t: Abacus 9000\n");
    write_file("/proc/meminfo", "MemTotal:        8388608 kB\nMemAvailable:    4194304 kB\n");
    write_file("/sys/devices/system/cpu/cpu0/cache/index0/level", "1\n");
    write_file("/sys/devices/system/cpu/cpu0/cache/index0/size", "48K\n");
    write_file("/sys/devices/system/cpu/cpu0/cache/index1/level", "2\n");
    write_file("/sys/devices/system/cpu/cpu0/cache/index1/size", "1024K\n");
    write_file("/sys/devices/system/cpu/cpu0/cache/index2/level", "3\n");
    write_file("/sys/devices/system/cpu/cpu0/cache/index2/size", "32M\n");
    return 0;
}

static int drop_root(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static void probe_reads_proc_and_sys(void **state) {
    (void)state;
    struct lode_machine m;
    lode_machine_probe_at(&m, root);
    assert_string_equal(m.cpu, "Abacus 9000");
    assert_int_equal(m.ram_total, UINT64_C(8) << 30);
    assert_int_equal(m.ram_available, UINT64_C(4) << 30);
    assert_int_equal(m.cache_l2, 1 << 20);
    assert_int_equal(m.cache_l3, 32 << 20);
    assert_int_equal(m.cgroup_limit, 0);
    assert_true(m.logical_cores >= 1 && m.physical_cores >= 1);
}

/* The quotas below are of less than two CPUs, so that they bind on any machine that has two. */
static void probe_obeys_cgroup_v2(void **state) {
    (void)state;
    struct lode_machine m;
    write_file("/proc/self/cgroup", "0::/outer/inner\n");
    write_file("/sys/fs/cgroup/outer/cpu.max", "150000 100000\n");
    write_file("/sys/fs/cgroup/outer/memory.max", "1073741824\n");
    write_file("/sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
    write_file("/sys/fs/cgroup/outer/inner/memory.max", "max\n");
    lode_machine_probe_at(&m, root);
    assert_int_equal(m.physical_cores, 1);
    assert_int_equal(m.cgroup_limit, 1 << 30);
    write_file("/sys/fs/cgroup/outer/inner/memory.max", "4096\n"); /* the lower one counts */
    lode_machine_probe_at(&m, root);
    assert_int_equal(m.cgroup_limit, 4096);
    write_file("/sys/fs/cgroup/outer/inner/memory.max", "max\n");
    write_file("/sys/fs/cgroup/outer/inner/memory.high", "536870912\n");
    lode_machine_probe_at(&m, root);
    assert_int_equal(m.cgroup_limit, 1 << 29);
    write_file("/sys/fs/cgroup/outer/inner/memory.high", "max\n");
    lode_machine_probe_at(&m, root);
    assert_int_equal(m.cgroup_limit, 1 << 30);
}

static void probe_obeys_cgroup_v1(void **state) {
    (void)state;
    struct lode_machine m;
    write_file("/proc/self/cgroup", "12:memory:/docker/abc\n4:cpuacct,cpu:/docker/abc\n"
                                    "3:cpuset:/\n");
    /* the path is the host's; in here only the root exists */
    write_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
    write_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    write_file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
    lode_machine_probe_at(&m, root);
    assert_int_equal(m.physical_cores, 1);
    assert_int_equal(m.cgroup_limit, UINT64_C(1) << 31);
    write_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    write_file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    lode_machine_probe_at(&m, root);
    assert_int_equal(m.cgroup_limit, 0);
}

static void probe_survives_strange_files(void **state) {
    (void)state;
    struct lode_machine m;
    write_file("/proc/self/cgroup", ":\n::\nx\n0:\n0::\n0::relative\n1:cpu:\n");
    write_file("/proc/cpuinfo", "model name");
    write_file("/proc/meminfo", "MemTotal");
    write_file("/sys/fs/cgroup/cpu.max", "-5 0\n");
    lode_machine_probe_at(&m, root);
    assert_true(m.physical_cores >= 1);
    lode_machine_probe_at(&m, "/nowhere");
    assert_string_equal(m.cpu, "unknown");
    assert_true(m.physical_cores >= 1);
}

static void this_machine(void **state) {
    (void)state;
    struct lode_machine m;
    lode_machine_probe(&m);
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    assert_int_equal(m.logical_cores, CPU_COUNT(&set));
    assert_in_range(m.physical_cores, 1, m.logical_cores);
    assert_int_equal(lode_machine_default_threads(), m.physical_cores);
    assert_int_equal(m.threads_beside_gpu, m.physical_cores < 8 ? m.physical_cores : m.physical_cores - 1);
    assert_int_equal(lode_machine_default_threads_beside_gpu(), m.threads_beside_gpu);
    assert_true(m.ram_total > 0 && m.ram_available <= m.ram_total);

    uint32_t cpus[CPU_SETSIZE], n_cores;
    assert_int_equal(lode_machine_cpus(cpus, CPU_SETSIZE, &n_cores), m.logical_cores);
    assert_in_range(n_cores, m.physical_cores, m.logical_cores);
    for (uint32_t i = 0; i < m.logical_cores; i++)
        assert_true(CPU_ISSET(cpus[i], &set));
    assert_int_equal(lode_machine_cpus(cpus, 1, &n_cores), 1);

    assert_string_equal(lode_machine_isas()[0], "scalar");
    assert_true(lode_machine_isa_usable("scalar"));
    assert_false(lode_machine_isa_usable("abacus"));
    assert_true(lode_machine_isa_usable(lode_machine_isa_best()));
    for (int f = 0; f < LODE_CPU_COUNT; f++)
        if (lode_cpu_has((enum lode_cpu_feature)f))
            assert_non_null(
                strstr(lode_machine_features(), lode_cpu_feature_name((enum lode_cpu_feature)f)));
}

static void bandwidth_is_plausible(void **state) {
    (void)state;
    const double bytes_per_s = lode_machine_read_bandwidth(0, 0.3, NULL);
    printf("read bandwidth %.1f GB/s\n", bytes_per_s * 1e-9);
    assert_true(bytes_per_s > 1e8 && bytes_per_s < 1e13); /* slower or faster is no computer */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_task_runs_once),
        cmocka_unit_test(a_worker_goes_on_beside_what_it_did),
        cmocka_unit_test(many_short_runs),
        cmocka_unit_test(pools_do_not_disturb_each_other),
        cmocka_unit_test(a_slow_task_holds_up_only_itself),
        cmocka_unit_test(pinned_threads_make_room),
        cmocka_unit_test(pool_refuses_bad_counts),
        cmocka_unit_test_setup_teardown(probe_reads_proc_and_sys, make_root, drop_root),
        cmocka_unit_test_setup_teardown(probe_obeys_cgroup_v2, make_root, drop_root),
        cmocka_unit_test_setup_teardown(probe_obeys_cgroup_v1, make_root, drop_root),
        cmocka_unit_test_setup_teardown(probe_survives_strange_files, make_root, drop_root),
        cmocka_unit_test(this_machine),
        cmocka_unit_test(bandwidth_is_plausible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
