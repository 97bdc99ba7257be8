/* machine.h - what the library itself asks about the computer; see lode/machine.h. */
#ifndef LODE_BASE_MACHINE_H
#define LODE_BASE_MACHINE_H

#include "lode/machine.h"

/* The CPUs that this process may run on, one of each physical core first, then their siblings;
 * at most max of them.  Returns how many; at least 1.  *n_cores: how many are first of a core. */
uint32_t lode_machine_cpus(uint32_t *cpus, uint32_t max, uint32_t *n_cores);

/* How many threads a session uses by default: lode_machine_probe's physical_cores. */
uint32_t lode_machine_default_threads(void);
/* The same where a GPU computes too: its threads_beside_gpu. */
uint32_t lode_machine_default_threads_beside_gpu(void);

/* Bytes of memory that this process has now, shared pages of files included; 0: the system does not say. */
uint64_t lode_machine_resident(void);

/* lode_machine_probe with the files below `root` instead of below /: for tests. */
void lode_machine_probe_at(struct lode_machine *m, const char *root);

#endif
