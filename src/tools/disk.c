/* disk.c - see disk.h.
 *
 * As the store reads experts (store/reader.h, rooms.h): pieces of 512 KiB, sixteen at a time, into large
 * pages.
 */
#include "disk.h"

#include "order.h"
#include "out.h"
#include "progress.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 16, PIECE = 512 << 10, LARGE_PAGE = 2 << 20 };

static const char *filesystem_name(int fd) {
    static const struct {
        long type;
        const char *name;
    } known[] = {
        {0xef53, "ext4"},      {0x58465342, "xfs"},       {0x9123683e, "btrfs"},
        {0x01021994, "tmpfs"}, {0x794c7630, "overlayfs"}, {0x2fc12fc1, "zfs"},
        {0x6969, "nfs"},       {0xf2f52010, "f2fs"},      {0x65735546, "fuse"},
        {0x01021997, "9p"},
    };
    struct statfs s;
    for (size_t i = 0; !fstatfs(fd, &s) && i < sizeof known / sizeof *known; i++)
        if ((long)s.f_type == known[i].type)
            return known[i].name;
    return "";
}

struct reading {
    int fd;
    char *room;        /* (THREADS, PIECE) */
    atomic_int n_rooms; /* that are taken */
    uint64_t n_pieces; /* in the file */
    double until;
    atomic_uint_least64_t next, bytes;
    atomic_int cause; /* errno of a read that failed */
};

static void *read_pieces(void *user) {
    struct reading *r = user;
    char *const buffer = r->room + (size_t)atomic_fetch_add(&r->n_rooms, 1) * PIECE;
    while (clock_now() < r->until) {
        const uint64_t i = atomic_fetch_add(&r->next, 1);
        const ssize_t n = pread(r->fd, buffer, PIECE, (off_t)(i % r->n_pieces * PIECE));
        if (n < 0) {
            atomic_store(&r->cause, errno);
            break;
        }
        atomic_fetch_add(&r->bytes, (uint64_t)n);
    }
    return NULL;
}

/* Seconds of a piece while no other is read, each after a moment's rest as a layer's computing leaves it: the median;
 * 0 where it cannot be read. */
static double time_alone(const struct reading *r) {
    enum { TIMES = 31 };
    const struct timespec rest = {.tv_nsec = 300000};
    double took[TIMES];
    for (int i = 0; i < TIMES; i++) {
        nanosleep(&rest, NULL);
        const double start = clock_now();
        /* apart, so that nothing reads ahead, and not at places that are read in a moment again */
        const uint64_t piece = (uint64_t)(2 * i + 1) * r->n_pieces / (2 * TIMES);
        if (pread(r->fd, r->room, PIECE, (off_t)(piece * PIECE)) < 0)
            return 0;
        took[i] = clock_now() - start;
    }
    qsort(took, TIMES, sizeof *took, order_doubles);
    return took[TIMES / 2];
}

static int measure(struct disk_speed *out, int fd, uint64_t size, const char *where, double seconds,
                   struct lode_error *err) {
    pthread_t threads[THREADS];
    void *room;
    int n = 0;
    struct reading r = {.fd = fd, .n_pieces = size / PIECE};
    if (!r.n_pieces)
        return tool_fail(err, LODE_ERR_ARG, where, "is too small to measure a disk with");
    if (posix_memalign(&room, LARGE_PAGE, (size_t)THREADS * PIECE))
        return tool_fail(err, LODE_ERR_NOMEM, where, "no memory to read into");
    madvise(room, (size_t)THREADS * PIECE, MADV_HUGEPAGE);
    memset(room, 1, (size_t)THREADS * PIECE); /* before the clock runs */
    r.room = room;
    const double alone = time_alone(&r);
    const double start = clock_now();
    r.until = start + seconds;
    while (n < THREADS && !pthread_create(&threads[n], NULL, read_pieces, &r))
        n++;
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    free(room);
    out->seconds = clock_now() - start;
    out->bytes = atomic_load(&r.bytes);
    out->bytes_per_second = (double)out->bytes / out->seconds;
    const double among = PIECE / out->bytes_per_second;
    out->alone = out->bytes && alone > among ? alone - among : 0;
    const int cause = n ? atomic_load(&r.cause) : EAGAIN;
    return cause ? tool_fail(err, LODE_ERR_IO, where, "cannot be read: %s", strerror(cause)) : 0;
}

int disk_measure_file(struct disk_speed *out, const char *path, double seconds,
                      struct lode_error *err) {
    struct stat st;
    *out = (struct disk_speed){.filesystem = ""};
    const int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (fd < 0)
        return errno == EINVAL
                   ? tool_fail(err, LODE_ERR_UNSUPPORTED, path,
                               "the file system cannot read past the page cache (O_DIRECT)")
                   : tool_fail(err, LODE_ERR_IO, path, "cannot be opened: %s", strerror(errno));
    out->filesystem = filesystem_name(fd);
    int rc = fstat(fd, &st) || !S_ISREG(st.st_mode)
                 ? tool_fail(err, LODE_ERR_IO, path, "is not a regular file")
                 : measure(out, fd, (uint64_t)st.st_size, path, seconds, err);
    close(fd);
    return rc;
}

/* Writes incompressible pieces for at most `seconds`; returns how many. */
static uint64_t write_pieces(int fd, uint64_t most, double seconds) {
    uint64_t *piece, x = 88172645463325252u, n = 0;
    void *buffer;
    const double until = clock_now() + seconds;
    if (posix_memalign(&buffer, 4096, PIECE))
        return 0;
    piece = buffer;
    for (size_t i = 0; i < PIECE / sizeof *piece; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        piece[i] = x;
    }
    for (; n < most && clock_now() < until; n++) {
        piece[0] = n; /* no two pieces are the same */
        if (pwrite(fd, buffer, PIECE, (off_t)(n * PIECE)) != PIECE)
            break;
    }
    free(buffer);
    return n;
}

int disk_measure_dir(struct disk_speed *out, const char *dir, double seconds,
                     struct lode_error *err) {
    char path[4096];
    struct statvfs space;
    *out = (struct disk_speed){.filesystem = ""};
    const int n = snprintf(path, sizeof path, "%s/lode-doctor-XXXXXX", dir);
    if (n < 0 || (size_t)n >= sizeof path)
        return tool_fail(err, LODE_ERR_ARG, dir, "the name is too long");
    const int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return tool_fail(err, LODE_ERR_IO, dir, "no file to measure the disk with can be made here: %s", strerror(errno));
    out->filesystem = filesystem_name(fd);
    const int direct = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
    unlink(path);
    int rc = 0;
    if (direct < 0)
        rc = tool_fail(err, LODE_ERR_UNSUPPORTED, dir,
                       "the file system%s%s cannot read past the page cache (O_DIRECT)",
                       *out->filesystem ? " " : "", out->filesystem);
    /* never more than a quarter of what is free */
    uint64_t most = 2048;
    if (rc == 0 && !fstatvfs(fd, &space) &&
        (uint64_t)space.f_bavail * space.f_frsize / 4 / PIECE < most)
        most = (uint64_t)space.f_bavail * space.f_frsize / 4 / PIECE;
    if (rc == 0) {
        const uint64_t pieces = write_pieces(direct, most, 1.0);
        fsync(direct);
        rc = measure(out, direct, pieces * PIECE, dir, seconds, err);
    }
    if (direct >= 0)
        close(direct);
    close(fd);
    return rc;
}
