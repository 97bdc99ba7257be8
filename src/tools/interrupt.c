/* interrupt.c - see interrupt.h. */
#include "interrupt.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t seen;

static void on_interrupt(int sig) {
    (void)sig;
    seen = 1;
}

void interrupt_catch(void) {
    struct sigaction old, act = {.sa_handler = on_interrupt}; /* no SA_RESTART: reads return */
    sigemptyset(&act.sa_mask);
    if (sigaction(SIGINT, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        sigaction(SIGINT, &act, NULL);
}

bool interrupt_seen(void) {
    return seen;
}

void interrupt_clear(void) {
    seen = 0;
}
