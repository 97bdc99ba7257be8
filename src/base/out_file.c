#include "base/out_file.h"

#include "base/alloc.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define SUFFIX ".lode-part"

enum { PATIENCE = 200 /* looks, 10 ms apart */ };

static int fail_errno(struct lode_error *err, const char *path, int cause) {
    return lode_fail(err, LODE_ERR_IO, path, "it cannot be written: %s", strerror(cause));
}

/* The paths: the target without links, and the temporary beside it. */
static int name_files(struct lode_out_file *f, const char *path, struct lode_error *err) {
    errno = 0;
    char *real = realpath(path, NULL); /* NULL where nothing is there yet */
    if (!real && errno == ENOMEM)
        return lode_fail_nomem(err, "a path");
    const char *target = real ? real : path;
    const size_t n = strlen(target);
    f->path = lode_strndup(target, n);
    f->temporary = lode_alloc(n + sizeof SUFFIX, 1);
    free(real);
    if (!f->path || !f->temporary)
        return lode_fail_nomem(err, "a path");
    snprintf(f->temporary, n + sizeof SUFFIX, "%s" SUFFIX, f->path);
    return 0;
}

/* Opens and locks the temporary, and looks so many times, 10 ms apart, where another process holds it.  That one may
 * have renamed or removed the file meanwhile: then the name leads elsewhere now, and it is tried again. */
static int open_locked(struct lode_out_file *f, int patience, struct lode_error *err) {
    const struct timespec moment = {.tv_nsec = 10000000};
    for (int tries = 0; tries < 8 + patience; tries++) {
        struct stat mine, there;
        f->fd = open(f->temporary, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (f->fd < 0)
            return fail_errno(err, f->path, errno);
        if (flock(f->fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
            close(f->fd);
            f->fd = -1;
            if (tries < patience) {
                nanosleep(&moment, NULL);
                continue;
            }
            return lode_fail(err, LODE_ERR_IO, f->path,
                             "another process is writing it now (%s is locked)", f->temporary);
        }
        if (fstat(f->fd, &mine) == 0 && stat(f->temporary, &there) == 0 &&
            mine.st_ino == there.st_ino && mine.st_dev == there.st_dev)
            return 0;
        close(f->fd);
        f->fd = -1;
    }
    return lode_fail(err, LODE_ERR_IO, f->path, "other processes keep writing it");
}

static int fail_space(struct lode_out_file *f, uint64_t size, struct lode_error *err) {
    struct statvfs v;
    if (fstatvfs(f->fd, &v) < 0)
        return fail_errno(err, f->path, ENOSPC);
    return lode_fail(err, LODE_ERR_IO, f->path,
                     "%" PRIu64 " bytes are to be written and the disk has %" PRIu64
                     " left: free some, or name another place",
                     size, (uint64_t)v.f_bavail * v.f_frsize);
}

/* Where the file system cannot set room aside, what it says is free has to do. */
static int reserve(struct lode_out_file *f, uint64_t size, struct lode_error *err) {
    struct statvfs v;
    if (size == 0 || fallocate(f->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)size) == 0)
        return 0;
    if (errno == ENOSPC)
        return fail_space(f, size, err);
    if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR)
        return fail_errno(err, f->path, errno);
    if (fstatvfs(f->fd, &v) == 0 && (uint64_t)v.f_bavail * v.f_frsize < size)
        return fail_space(f, size, err);
    return 0;
}

static int open_out(struct lode_out_file *f, const char *path, uint64_t size, int patience, struct lode_error *err) {
    struct stat st;
    *f = (struct lode_out_file){.fd = -1};
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return lode_fail(err, LODE_ERR_ARG, path, "it is a %s, a file is expected",
                         S_ISDIR(st.st_mode) ? "directory" : "pipe or device");
    /* Renaming over it would need no permission, only one for the directory. */
    if (stat(path, &st) == 0 && (st.st_mode & 0222) == 0)
        return lode_fail(err, LODE_ERR_IO, path,
                         "it is there and write-protected: remove it, or name another file");
    if (size > INT64_MAX)
        return lode_fail(err, LODE_ERR_LIMIT, path, "%" PRIu64 " bytes are more than a file holds",
                         size);
    int rc = name_files(f, path, err);
    if (rc == 0)
        rc = open_locked(f, patience, err);
    if (rc == 0 && ftruncate(f->fd, 0) < 0) /* what an earlier run left */
        rc = fail_errno(err, f->path, errno);
    if (rc == 0)
        rc = reserve(f, size, err);
    if (rc < 0)
        lode_out_abandon(f);
    return rc;
}

int lode_out_open(struct lode_out_file *f, const char *path, uint64_t size, struct lode_error *err) {
    return open_out(f, path, size, 0, err);
}

int lode_out_write(struct lode_out_file *f, const void *data, size_t n, struct lode_error *err) {
    const char *from = data;
    while (n > 0) {
        const size_t most = n < (size_t)1 << 30 ? n : (size_t)1 << 30;
        const ssize_t put = write(f->fd, from, most);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return lode_fail(err, LODE_ERR_IO, f->path,
                             "it cannot be written at byte %" PRIu64 ": %s", f->size,
                             strerror(errno));
        from += put;
        f->size += (uint64_t)put;
        n -= (size_t)put;
    }
    return 0;
}

/* The directory that holds the name; -1 and the error where it cannot be opened. */
static int open_directory(const char *path, struct lode_error *err) {
    const char *slash = strrchr(path, '/');
    char *dir = slash ? lode_strndup(path, slash > path ? (size_t)(slash - path) : 1)
                      : lode_strndup(".", 1);
    if (!dir)
        return lode_fail_nomem(err, "a path"), -1;
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        fail_errno(err, path, errno);
    lode_free(dir);
    return fd;
}

int lode_out_commit(struct lode_out_file *f, struct lode_error *err) {
    struct lode_error why = {.code = LODE_ERR_IO};
    int rc = 0;
    const int dir = open_directory(f->path, &why); /* before: afterwards it is too late to fail */
    if (dir < 0) {
        rc = why.code;
        if (err)
            *err = why;
    } else if (ftruncate(f->fd, (off_t)f->size) < 0 || /* room set aside beyond the end goes back */
               fsync(f->fd) < 0 || rename(f->temporary, f->path) < 0) {
        rc = fail_errno(err, f->path, errno);
    } else {
        close(f->fd); /* synced: nothing can fail here any more; and the lock goes */
        f->fd = -1;
        /* Without this a crash of the machine could still lose the name.  EINVAL: a file system
         * whose directories need no syncing. */
        if (fsync(dir) < 0 && errno != EINVAL)
            rc = fail_errno(err, f->path, errno);
    }
    if (dir >= 0)
        close(dir);
    lode_out_abandon(f);
    return rc;
}

void lode_out_abandon(struct lode_out_file *f) {
    if (f->fd >= 0) {
        unlink(f->temporary); /* before the lock goes: no other process's file is meant */
        close(f->fd);
    }
    lode_free(f->path);
    lode_free(f->temporary);
    *f = (struct lode_out_file){.fd = -1};
}

int lode_out_whole(const char *path, const void *data, size_t n, struct lode_error *err) {
    struct lode_out_file f;
    int rc = open_out(&f, path, n, PATIENCE, err);
    if (rc == 0)
        rc = lode_out_write(&f, data, n, err);
    if (rc == 0)
        rc = lode_out_commit(&f, err);
    lode_out_abandon(&f);
    return rc;
}

int lode_out_folders(const char *path, struct lode_error *err) {
    char part[4096];
    if (strlen(path) >= sizeof part)
        return lode_fail(err, LODE_ERR_ARG, path, "the path is too long");
    for (size_t i = 1; path[i]; i++) {
        if (path[i] != '/')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0700) && errno != EEXIST)
            return lode_fail(err, LODE_ERR_IO, part, "this folder cannot be made: %s", strerror(errno));
    }
    return 0;
}
