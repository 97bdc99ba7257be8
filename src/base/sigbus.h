/* sigbus.h - mapped files that shrink.
 *
 * Reading a mapped page that the file no longer has raises SIGBUS.  Each mapping is registered
 * here; the handler (lode_install_sigbus_handler, lode/lode.h) finds the mapping that the faulting
 * address belongs to, records the offset, puts zero pages from there to the mapping's end and
 * returns, so that whichever thread was reading goes on over zeros.  Whoever asked for the step
 * looks at lode_sigbus_fault afterwards and reports an input error: its results are void.
 *
 * The record stays set until the mapping is removed.  Without the handler the tables are idle and
 * the fault ends the process as usual.  All functions may be called from any thread.
 */
#ifndef LODE_BASE_SIGBUS_H
#define LODE_BASE_SIGBUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LODE_SIGBUS_MAX = 4096 }; /* mappings at a time */

/* Watches [data, data + len).  A slot, or -1 when the table is full. */
int lode_sigbus_watch(const void *data, size_t len);
/* Before munmap.  slot -1 is fine. */
void lode_sigbus_unwatch(int slot);
/* true: a read failed since the mapping was registered; *offset is the first byte of its page. */
bool lode_sigbus_fault(int slot, uint64_t *offset);

#endif
