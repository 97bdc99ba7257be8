/* interrupt.c - see interrupt.h. */
#include "interrupt.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t seen;

static void on_interrupt(int sig) {
    (void)sig;
    seen = 1;
}

static void catch_signal(int sig) {
    struct sigaction old, act = {.sa_handler = on_interrupt}; /* no SA_RESTART: reads return */
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

bool interrupt_seen(void) {
    return seen;
}

void interrupt_clear(void) {
    seen = 0;
}
