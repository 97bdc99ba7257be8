/* interrupt.h - Ctrl+C as a flag, so that it stops an answer and not the program. */
#ifndef LODE_TOOLS_INTERRUPT_H
#define LODE_TOOLS_INTERRUPT_H

#include <stdbool.h>

/* From now on SIGINT only sets the flag.  Reads and writes that wait go on after it. */
void interrupt_catch(void);
/* The same for SIGTERM and SIGHUP too: for work that leaves files, which has to end in order. */
void interrupt_catch_all(void);
/* Waits until fd, one of the first, can be read or its other end is gone; false, errno EINTR: SIGINT came first, or had come before:
 * none is lost between a look at the flag and the wait.  Or another signal, and the flag is not set. */
bool interrupt_wait(int fd);
bool interrupt_seen(void);
void interrupt_clear(void);

#endif
