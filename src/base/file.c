#include "base/file.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/sigbus.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail_open(const char *path, int cause, struct lode_error *err) {
    switch (cause) {
    case ENOENT:
    case ENOTDIR:
        return lode_fail(err, LODE_ERR_MISSING, path, "there is no such file");
    case EACCES:
    case EPERM:
        return lode_fail(err, LODE_ERR_IO, path, "no permission to read it");
    default:
        return lode_fail(err, LODE_ERR_IO, path, "cannot open it: %s", strerror(cause));
    }
}

static int64_t written_ns(const struct stat *st) {
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

static int open_checked(struct lode_in_file *f, const char *path, struct lode_error *err) {
    /* O_NONBLOCK: opening a pipe without a writer would wait; it means nothing on regular files. */
    do
        f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (f->fd < 0 && errno == EINTR);
    if (f->fd < 0)
        return fail_open(path, errno, err);
    struct stat st;
    if (fstat(f->fd, &st) < 0)
        return lode_fail(err, LODE_ERR_IO, path, "cannot ask for its size: %s", strerror(errno));
    if (S_ISDIR(st.st_mode))
        return lode_fail(err, LODE_ERR_IO, path, "it is a directory, a file is expected");
    if (!S_ISREG(st.st_mode))
        return lode_fail(err, LODE_ERR_IO, path, "it is a pipe or device, a file is expected");
    if (st.st_size == 0)
        return lode_fail(err, LODE_ERR_FORMAT, path, "the file is empty");
    f->size = (uint64_t)st.st_size;
    f->written_ns = written_ns(&st);
    f->path = lode_strndup(path, strlen(path));
    return f->path ? 0 : lode_fail_nomem(err, "a path");
}

int lode_in_open(struct lode_in_file *f, const char *path, struct lode_error *err) {
    *f = (struct lode_in_file){.fd = -1, .slot = -1};
    const int rc = open_checked(f, path, err);
    if (rc < 0)
        lode_in_close(f);
    return rc;
}

void lode_in_close(struct lode_in_file *f) {
    if (!f)
        return;
    lode_in_unmap(f);
    if (f->fd >= 0)
        close(f->fd);
    lode_free(f->path);
    *f = (struct lode_in_file){.fd = -1, .slot = -1};
}

int lode_in_reopen(const struct lode_in_file *f, int flags, struct lode_error *err) {
    char of_descriptor[32];
    struct stat was, is;
    snprintf(of_descriptor, sizeof of_descriptor, "/proc/self/fd/%d", f->fd);
    int fd = open(of_descriptor, O_RDONLY | O_CLOEXEC | flags), cause = errno;
    if (fd < 0 && (cause == ENOENT || cause == ENOTDIR || cause == EACCES)) {
        fd = open(f->path, O_RDONLY | O_CLOEXEC | flags);
        cause = errno;
        if (fd >= 0 && (fstat(f->fd, &was) < 0 || fstat(fd, &is) < 0 || was.st_dev != is.st_dev ||
                        was.st_ino != is.st_ino)) {
            close(fd);
            fd = -1;
            cause = ESTALE;
        }
    }
    if (fd >= 0)
        return fd;
    if (cause == ESTALE)
        lode_fail(err, LODE_ERR_IO, f->path, "another file has its place since it was opened; start again");
    else
        fail_open(f->path, cause, err);
    errno = cause;
    return LODE_ERR_IO;
}

int lode_in_map(struct lode_in_file *f, struct lode_error *err) {
    if (f->data)
        return 0;
    void *p = f->size > SIZE_MAX ? MAP_FAILED
                                 : mmap(NULL, (size_t)f->size, PROT_READ, MAP_SHARED, f->fd, 0);
    if (p == MAP_FAILED)
        return lode_fail(err, LODE_ERR_IO, f->path, "cannot map its %" PRIu64 " bytes: %s", f->size,
                         strerror(errno));
    const int slot = lode_sigbus_watch(p, (size_t)f->size);
    if (slot < 0) {
        munmap(p, (size_t)f->size);
        return lode_fail(err, LODE_ERR_LIMIT, f->path, "more than %d files are mapped already",
                         LODE_SIGBUS_MAX);
    }
    /* Read by pages of 2 MiB where the page cache has such; they then stay, for all who map it later.
     * bench/notes/kern-quant.md */
    (void)madvise(p, (size_t)f->size, MADV_HUGEPAGE);
    f->data = p;
    f->slot = slot;
    return 0;
}

void lode_in_unmap(struct lode_in_file *f) {
    if (!f->data)
        return;
    lode_sigbus_unwatch(f->slot);
    munmap((void *)(uintptr_t)f->data, (size_t)f->size);
    f->data = NULL;
    f->slot = -1;
}

void lode_in_advise(const struct lode_in_file *f, uint64_t offset, uint64_t len,
                    enum lode_in_hint hint) {
    static const int advice[] = {
        [LODE_IN_WILLNEED] = MADV_WILLNEED,
        [LODE_IN_SEQUENTIAL] = MADV_SEQUENTIAL,
        [LODE_IN_RANDOM] = MADV_RANDOM,
        [LODE_IN_DONTNEED] = MADV_DONTNEED,
    };
    if (!f->data || offset >= f->size)
        return;
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t end = offset + (len < f->size - offset ? len : f->size - offset);
    if (hint == LODE_IN_DONTNEED) {
        offset = (offset + page - 1) / page * page;
        if (end < f->size)
            end = end / page * page;
    } else {
        offset = offset / page * page;
    }
    if (offset < end)
        (void)madvise((void *)(uintptr_t)(f->data + offset), (size_t)(end - offset), advice[hint]);
}

void lode_in_forget(const struct lode_in_file *f) {
    lode_in_advise(f, 0, f->size, LODE_IN_DONTNEED); /* what is mapped would stay */
    if (f->fd >= 0)
        (void)posix_fadvise(f->fd, 0, 0, POSIX_FADV_DONTNEED);
}

int lode_in_read(const struct lode_in_file *f, uint64_t offset, void *out, size_t n,
                 struct lode_error *err) {
    char *to = out;
    while (n > 0) {
        const ssize_t got = pread(f->fd, to, n, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return lode_fail(err, LODE_ERR_IO, f->path, "cannot read at byte %" PRIu64 ": %s",
                             offset, strerror(errno));
        if (got == 0)
            return lode_fail(err, LODE_ERR_IO, f->path,
                             "the file ends at byte %" PRIu64 ", %zu more expected", offset, n);
        to += got;
        offset += (uint64_t)got;
        n -= (size_t)got;
    }
    return 0;
}

int lode_in_check(const struct lode_in_file *f, struct lode_error *err) {
    uint64_t at;
    if (!lode_sigbus_fault(f->slot, &at))
        return 0;
    struct stat st;
    if (fstat(f->fd, &st) == 0 && (uint64_t)st.st_size < f->size)
        return lode_fail(err, LODE_ERR_IO, f->path,
                         "the file shrank from %" PRIu64 " to %" PRIu64
                         " bytes while in use and cannot be read at byte %" PRIu64
                         ": restore it and load it again",
                         f->size, (uint64_t)st.st_size, at);
    return lode_fail(err, LODE_ERR_IO, f->path,
                     "the mapped file cannot be read at byte %" PRIu64
                     ": the disk failed, or the file was cut and restored; load it again",
                     at);
}

int lode_in_check_unwritten(const struct lode_in_file *f, struct lode_error *err) {
    struct stat st;
    LODE_TRY(lode_in_check(f, err));
    if (f->fd < 0 || fstat(f->fd, &st) < 0)
        return 0;
    if ((uint64_t)st.st_size != f->size)
        return lode_fail(err, LODE_ERR_IO, f->path,
                         "it has %" PRIu64 " bytes and had %" PRIu64 " when it was opened: load it again",
                         (uint64_t)st.st_size, f->size);
    if (written_ns(&st) != f->written_ns)
        return lode_fail(err, LODE_ERR_IO, f->path, "it was written to after it was opened: load it again");
    return 0;
}
