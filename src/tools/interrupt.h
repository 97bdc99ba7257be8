/* interrupt.h - Ctrl+C as a flag, so that it stops an answer and not the program. */
#ifndef LODE_TOOLS_INTERRUPT_H
#define LODE_TOOLS_INTERRUPT_H

#include <stdbool.h>

/* From now on SIGINT only sets the flag.  Reads and writes that wait go on after it. */
void interrupt_catch(void);
/* Whether SIGINT, where it is caught, ends a read that waits with EINTR: around the reading of a line.
 * errno stays. */
void interrupt_reads(bool may);
/* The same for SIGTERM and SIGHUP too: for work that leaves files, which has to end in order. */
void interrupt_catch_all(void);
bool interrupt_seen(void);
void interrupt_clear(void);

#endif
