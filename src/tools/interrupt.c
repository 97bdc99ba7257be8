/* interrupt.c - see interrupt.h. */
#include "interrupt.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/select.h>

static volatile sig_atomic_t seen;

static void on_interrupt(int sig) {
    (void)sig;
    seen = 1;
}

static void catch_signal(int sig) {
    /* what is written is written whole: stdio gives up what a signal interrupts */
    struct sigaction old, act = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    sigemptyset(&act.sa_mask);
    if (sigaction(sig, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        sigaction(sig, &act, NULL);
}

void interrupt_catch(void) {
    catch_signal(SIGINT);
}

void interrupt_catch_all(void) {
    catch_signal(SIGINT);
    catch_signal(SIGTERM);
    catch_signal(SIGHUP);
}

bool interrupt_wait(int fd) {
    sigset_t interrupts, before;
    sigemptyset(&interrupts);
    sigaddset(&interrupts, SIGINT);
    pthread_sigmask(SIG_BLOCK, &interrupts, &before);
    fd_set reads;
    FD_ZERO(&reads);
    FD_SET(fd, &reads);
    errno = EINTR;
    const int rc = seen ? -1 : pselect(fd + 1, &reads, NULL, NULL, NULL, &before), cause = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = cause;
    return rc >= 0;
}

bool interrupt_seen(void) {
    return seen;
}

void interrupt_clear(void) {
    seen = 0;
}
