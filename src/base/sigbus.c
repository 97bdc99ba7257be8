#include "base/sigbus.h"

#include "base/error.h"
#include "lode/lode.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct slot {
    atomic_uintptr_t start, end; /* free: both 0; taken and not yet filled: start 1 */
    atomic_uint_fast64_t fault;  /* 0, or 1 + offset of the first page that could not be read */
};

static struct slot slots[LODE_SIGBUS_MAX];
static atomic_int n_used; /* slots above were never taken */
static uintptr_t page_mask;

static pthread_mutex_t install_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction previous;

int lode_sigbus_watch(const void *data, size_t len) {
    for (int i = 0; i < LODE_SIGBUS_MAX; i++) {
        struct slot *s = &slots[i];
        uintptr_t free_mark = 0;
        if (!atomic_compare_exchange_strong(&s->start, &free_mark, 1))
            continue;
        atomic_store(&s->fault, 0);
        atomic_store(&s->start, (uintptr_t)data);
        atomic_store(&s->end, (uintptr_t)data + len);
        int used = atomic_load(&n_used);
        while (used < i + 1 && !atomic_compare_exchange_weak(&n_used, &used, i + 1))
            ;
        return i;
    }
    return -1;
}

void lode_sigbus_unwatch(int slot) {
    if (slot < 0)
        return;
    atomic_store(&slots[slot].end, 0);
    atomic_store(&slots[slot].start, 0);
}

bool lode_sigbus_fault(int slot, uint64_t *offset) {
    const uint64_t fault = slot < 0 ? 0 : atomic_load(&slots[slot].fault);
    if (fault && offset)
        *offset = fault - 1;
    return fault != 0;
}

/* Puts zeros under the fault; false: the address is none of ours.  Runs inside the signal handler:
 * atomics and one system call only, the bare call because sanitizers take a mmap() for a write to
 * what it maps. */
static bool patch(uintptr_t addr) {
    const int n = atomic_load(&n_used);
    for (int i = 0; i < n; i++) {
        struct slot *s = &slots[i];
        const uintptr_t start = atomic_load(&s->start);
        /* whole pages: a kernel may read a few bytes past the end of the file */
        const uintptr_t end = (atomic_load(&s->end) + ~page_mask) & page_mask;
        /* start again: a slot given to another file between the two loads is not a match */
        if (addr < start || addr >= end || start != atomic_load(&s->start))
            continue;
        const uintptr_t page = addr & page_mask;
        uint_fast64_t none = 0;
        /* Before the zeros appear, so that nobody can read them and find the record clear. */
        atomic_compare_exchange_strong(&s->fault, &none, page - start + 1);
        /* To the end: a file that lost this page has lost the later ones too, and a million
         * signals would take seconds.  A lone bad sector makes the mapping useless all the same. */
        return syscall(SYS_mmap, page, end - page, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != -1;
    }
    return false;
}

static void on_sigbus(int sig, siginfo_t *info, void *context) {
    const int saved = errno;
    const bool patched = patch((uintptr_t)info->si_addr);
    errno = saved;
    if (patched)
        return;
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(sig, info, context);
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(sig);
    } else {
        const bool sent = info->si_code <= 0; /* by kill or raise; a fault comes again by itself */
        if (sent && previous.sa_handler == SIG_IGN)
            return;
        /* Back to the default: the process dies of SIGBUS, and the core dump points at the
         * culprit. */
        struct sigaction dfl = {.sa_handler = SIG_DFL};
        sigaction(sig, &dfl, NULL);
        if (sent)
            raise(sig);
    }
}

int lode_install_sigbus_handler(struct lode_error *err) {
    struct sigaction now,
        ours = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    sigemptyset(&ours.sa_mask);
    pthread_mutex_lock(&install_lock);
    page_mask = ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
    int rc = sigaction(SIGBUS, NULL, &now);
    const bool there = rc == 0 && (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_sigbus;
    if (rc == 0 && !there) {
        previous = now; /* first: a fault on another thread may follow at once */
        rc = sigaction(SIGBUS, &ours, NULL);
    }
    const int cause = errno;
    pthread_mutex_unlock(&install_lock);
    if (rc < 0)
        return lode_fail(err, LODE_ERR_INTERNAL, "", "cannot install the SIGBUS handler: %s",
                         strerror(cause));
    return 0;
}
