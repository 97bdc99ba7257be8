/* machine.h - what this computer can do, measured. */
#ifndef LODE_MACHINE_H
#define LODE_MACHINE_H

#include "lode/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct lode_machine {
    char cpu[128];
    uint32_t logical_cores;  /* this process may run on */
    uint32_t physical_cores; /* of those, counting hyperthreads once and the cgroup's quota:
                                a session's threads by default, */
    uint32_t threads_beside_gpu; /* and where a GPU computes too */
    uint64_t ram_total, ram_available, cgroup_limit; /* bytes; cgroup_limit 0: none */
    uint64_t ram_left; /* that this process may still take: of what is available, the least that a
                          control group above it leaves, counting files' pages as free */
    uint64_t cache_l2, cache_l3;
};
LODE_API void lode_machine_probe(struct lode_machine *m);

/* Instruction sets: NULL-terminated names, weakest first, and whether each can run here. */
LODE_API const char *const *lode_machine_isas(void);
LODE_API bool lode_machine_isa_usable(const char *isa);
LODE_API const char *lode_machine_isa_best(void);
/* CPU features seen, as words ("avx512_vnni", "amx_int8", ...), space-separated. */
LODE_API const char *lode_machine_features(void);

/* Read bandwidth in bytes/s over lode_machine_read_buffer bytes, with `threads` threads (0: as many as a
 * session would use); the best of the passes that fit into `seconds`, with one, two and four pieces read
 * side by side.  Negative: error. */
LODE_API double lode_machine_read_bandwidth(uint32_t threads, double seconds,
                                            struct lode_error *err);
/* The same with each thread reading so many pieces of memory side by side: 1, 2, 4, 8 or 16. */
LODE_API double lode_machine_read_streams(uint32_t threads, uint32_t streams, double seconds,
                                          struct lode_error *err);
/* The bytes that both read: far more than the caches hold, but at most a quarter of m's ram_left, which
 * the last cache may hold. */
LODE_API uint64_t lode_machine_read_buffer(const struct lode_machine *m);

/* Seconds that it takes to give all threads something to do and to wait for them: what each product of a
 * step costs besides its bytes.  The mean over a few thousandths of a second.  Negative: error. */
LODE_API double lode_machine_fork_time(uint32_t threads, struct lode_error *err);

/* The dot products this CPU has an instruction for, NULL-terminated: an instruction set of
 * lode_machine_isas and what is multiplied ("avx2 f32", "avx512vnni int8", ...), some of which no
 * kernel uses ("avx512 bf16").  The list is the library's. */
LODE_API const char *const *lode_machine_dots(void);
/* Operations/s (a multiplication and an addition are two) of one of them on registers alone, with
 * `threads` threads; the best of the passes that fit into `seconds`.  Negative: error. */
LODE_API double lode_machine_dot_peak(const char *dot, uint32_t threads, double seconds,
                                      struct lode_error *err);

#ifdef __cplusplus
}
#endif
#endif
