/* disk_ceiling.c - what a disk gives to reads as the store makes them (src/store/reader.h): experts at
 * random places of a file, past the page cache, by io_uring, each in pieces; into small and large pages,
 * registered with the ring or not, alone and while every core reads memory as computing does.
 *
 *     cc -O3 -march=native bench/disk_ceiling.c -o disk_ceiling -luring -lpthread
 *     ./disk_ceiling FILE            FILE: some GB, that nothing has read lately
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { POOL = 512 << 20, EXPERT = 2654208, LARGE_PAGE = 2 << 20 };
static const double seconds = 1.5;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double cpu_seconds(void) { /* of this thread */
    struct rusage u;
    getrusage(RUSAGE_THREAD, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* ---- the other side: cores that read memory ---- */

struct load {
    const uint64_t *memory;
    atomic_bool stop;
    atomic_uint_least64_t bytes;
};

static void *read_memory(void *arg) {
    struct load *l = arg;
    volatile uint64_t sink = 0;
    while (!atomic_load(&l->stop)) {
        uint64_t sum = 0;
        for (size_t i = 0; i < POOL / 16 / sizeof *l->memory; i += 8) /* a number of each line */
            sum += l->memory[i];
        sink += sum;
        atomic_fetch_add(&l->bytes, POOL / 16);
    }
    return NULL;
}

/* ---- reading ---- */

struct how {
    unsigned depth, piece;
    bool large, registered, busy;
};

struct flow { /* where the next piece comes from and goes to */
    uint64_t file_size, at;
    size_t room, done;
};

static size_t next_piece(struct flow *f, size_t piece) {
    if (f->done == EXPERT) {
        f->done = 0;
        f->at = (uint64_t)(drand48() * (double)(f->file_size - EXPERT)) / 4096 * 4096;
        f->room = f->room + 2 * EXPERT > POOL ? 0 : f->room + EXPERT;
    }
    return EXPERT - f->done < piece ? EXPERT - f->done : piece;
}

static uint64_t read_on(struct io_uring *ring, int fd, char *pool, uint64_t file_size,
                        const struct how *how) {
    struct flow f = {.file_size = file_size, .done = EXPERT};
    uint64_t bytes = 0;
    unsigned flying = 0;
    const double end = now() + seconds;
    bool more = true;
    while (more || flying) {
        for (more = now() < end; more && flying < how->depth; flying++) {
            const size_t n = next_piece(&f, how->piece);
            struct io_uring_sqe *e = io_uring_get_sqe(ring);
            if (how->registered)
                io_uring_prep_read_fixed(e, fd, pool + f.room + f.done, (unsigned)n, f.at + f.done, 0);
            else
                io_uring_prep_read(e, fd, pool + f.room + f.done, (unsigned)n, f.at + f.done);
            f.done += n;
        }
        io_uring_submit_and_wait(ring, flying ? 1 : 0);
        struct io_uring_cqe *c;
        for (; io_uring_peek_cqe(ring, &c) == 0; flying--) {
            if (c->res < 0) {
                fprintf(stderr, "read: %s\n", strerror(-c->res));
                exit(1);
            }
            bytes += (uint64_t)c->res;
            io_uring_cqe_seen(ring, c);
        }
    }
    return bytes;
}

static void measure(int fd, uint64_t file_size, const struct how *how) {
    void *pool, *other;
    struct io_uring ring;
    if (posix_memalign(&pool, LARGE_PAGE, POOL) || posix_memalign(&other, LARGE_PAGE, POOL) ||
        io_uring_queue_init(2 * how->depth, &ring, 0))
        exit(1);
    madvise(pool, POOL, how->large ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    memset(pool, 1, POOL);
    memset(other, 1, POOL);
    if (how->registered && io_uring_register_buffers(&ring, &(struct iovec){pool, POOL}, 1))
        fprintf(stderr, "the memory can't be registered (ulimit -l)\n");
    const long cores = how->busy ? sysconf(_SC_NPROCESSORS_ONLN) : 0;
    pthread_t threads[256];
    struct load load = {.memory = other};
    for (long i = 0; i < cores && i < 256; i++)
        pthread_create(&threads[i], NULL, read_memory, &load);
    const double start = now(), cpu = cpu_seconds();
    const uint64_t bytes = read_on(&ring, fd, pool, file_size, how);
    const double spent = now() - start, busy = cpu_seconds() - cpu;
    atomic_store(&load.stop, true);
    for (long i = 0; i < cores && i < 256; i++)
        pthread_join(threads[i], NULL);
    printf("%2u pieces of %4u kB, %s pages%s%s: %5.2f GB/s, %3.0f ms of CPU a GB", how->depth,
           how->piece >> 10, how->large ? "large" : "small", how->registered ? ", registered" : "",
           how->busy ? ", cores busy" : "", (double)bytes / spent / 1e9, busy * 1e12 / (double)bytes);
    if (how->busy)
        printf("; they read %.1f GB/s", (double)atomic_load(&load.bytes) / spent / 1e9);
    putchar('\n');
    io_uring_queue_exit(&ring);
    free(pool);
    free(other);
}

int main(int argc, char **argv) {
    struct stat st;
    const int fd = argc == 2 ? open(argv[1], O_RDONLY | O_DIRECT) : -1;
    if (fd < 0 || fstat(fd, &st) || st.st_size < 4 * (off_t)EXPERT) {
        fprintf(stderr, "usage: disk_ceiling FILE\n");
        return 2;
    }
    static const struct how hows[] = {
        {16, 256 << 10, false, false, false}, {16, 256 << 10, false, true, false},
        {16, 256 << 10, true, false, false},  {16, 256 << 10, true, true, false},
        {2, 512 << 10, true, true, false},    {4, 512 << 10, true, true, false},
        {8, 512 << 10, true, true, false},    {16, 512 << 10, true, true, false},
        {8, 1024 << 10, true, true, false},   {16, 512 << 10, true, true, true},
        {16, 512 << 10, true, true, false},
    };
    for (size_t i = 0; i < sizeof hows / sizeof *hows; i++)
        measure(fd, (uint64_t)st.st_size, &hows[i]);
    return 0;
}
