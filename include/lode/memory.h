/* memory.h - what the library holds, a limit on it, and giving back what is only a cache.
 *
 * For the whole process: models, sessions and caches of all threads together.  Any thread may call.
 */
#ifndef LODE_MEMORY_H
#define LODE_MEMORY_H

#include "lode/error.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct lode_memory_usage { /* bytes */
    uint64_t active; /* allocated; room for experts counts as a whole, used or not */
    uint64_t peak;   /* the most that active has been since the last reset */
    uint64_t mapped; /* of files: weights that are computed with where they lie */
    uint64_t cached; /* of active: experts that could be read again, prefixes kept by schedulers */
    uint64_t limit;  /* 0: none */
};
LODE_API void lode_memory_usage(struct lode_memory_usage *out);
LODE_API void lode_memory_reset_peak(void);

/* active + mapped stay at or below `bytes`: what would exceed them fails with LODE_ERR_NOMEM (what is
 * there stays).  0: no limit.  Returns the limit before. */
LODE_API uint64_t lode_memory_limit(uint64_t bytes);

/* Gives up to `bytes` of what is only cached back to the system, and the heap's free ends; they fill
 * again as they are used.  Returns how much of the caches it was; prefixes go before their scheduler's
 * next step. */
LODE_API uint64_t lode_memory_trim(uint64_t bytes);

/* Starts (or stops) a thread that looks each second whether memory is short: whether programs of this
 * machine, or of this control group, were stalled for want of it (/proc/pressure/memory,
 * memory.pressure) for a tenth of the second, or whether the group (of version 2) had nothing left to
 * take back, or reached its memory.high or memory.max (memory.events) with few pages of files to take
 * back, or where stalls are not told.  Then caches give back an eighth of what they hold and stay that
 * small; after ten quiet seconds they may grow by a sixteenth of what they were.
 * LODE_ERR_UNSUPPORTED: the kernel tells neither. */
LODE_API int lode_memory_watch(bool on, struct lode_error *err);

#ifdef __cplusplus
}
#endif
#endif
