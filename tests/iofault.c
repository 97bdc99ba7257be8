/* iofault.c - loaded before the C library (LD_PRELOAD), lets the k-th call that changes files fail.
 *
 *     IOFAULT=KILL:12   the process dies instead of its 12th call, as by kill -9
 *     IOFAULT=ENOSPC:3  the third call, and all after it, find no room
 *     IOFAULT=EIO:3     the third call, and all after it, fail
 *     IOFAULT=SHORT:3   the third writes one byte
 *     IOFAULT=COUNT     says on standard error, at the end, how many there were
 */
#pragma GCC visibility push(default) /* or nobody would find these */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_ulong calls;

__attribute__((destructor)) static void say(void) {
    const char *how = getenv("IOFAULT");
    if (how && strcmp(how, "COUNT") == 0)
        fprintf(stderr, "iofault: %lu calls\n", atomic_load(&calls));
}

/* 0: let it pass; 1: write one byte; else errno. */
static int verdict(void) {
    const char *how = getenv("IOFAULT"), *colon = how ? strchr(how, ':') : NULL;
    const unsigned long i = atomic_fetch_add(&calls, 1) + 1;
    const unsigned long k = colon ? strtoul(colon + 1, NULL, 10) : 0;
    if (!k || i < k)
        return 0;
    if (strncmp(how, "KILL", 4) == 0)
        raise(SIGKILL);
    if (strncmp(how, "SHORT", 5) == 0)
        return i == k;
    return strncmp(how, "ENOSPC", 6) == 0 ? ENOSPC : EIO;
}

#define REAL(name) (__extension__(__typeof__(&name)) dlsym(RTLD_NEXT, #name))
#define FAIL_OR(name, failure, ...)                                                                \
    const int v = verdict();                                                                       \
    if (v > 1) {                                                                                   \
        errno = v;                                                                                 \
        return failure;                                                                            \
    }                                                                                              \
    return REAL(name)(__VA_ARGS__)

ssize_t write(int fd, const void *data, size_t n) {
    if (fd <= 2)
        return REAL(write)(fd, data, n);
    FAIL_OR(write, -1, fd, data, v == 1 && n ? 1 : n);
}
ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
    FAIL_OR(pwrite, -1, fd, data, v == 1 && n ? 1 : n, at);
}
int fdatasync(int fd) { FAIL_OR(fdatasync, -1, fd); }
int fsync(int fd) { FAIL_OR(fsync, -1, fd); }
int ftruncate(int fd, off_t n) { FAIL_OR(ftruncate, -1, fd, n); }
int fallocate(int fd, int mode, off_t at, off_t n) { FAIL_OR(fallocate, -1, fd, mode, at, n); }
int rename(const char *from, const char *to) { FAIL_OR(rename, -1, from, to); }
int unlink(const char *path) { FAIL_OR(unlink, -1, path); }
