/* fake_cuda.h - a CUDA driver that stands in where there is no GPU: libcuda.so.1 with the functions that
 * lode asks for, whose kernels do nothing.
 *
 * The memory of a device is the host's, at addresses that the host cannot read: who follows one is stopped
 * at once.  Asynchronous copies happen as late as they may, when something waits for them, so that a
 * pinned buffer that is filled again too early spoils what arrives (sum_up, compared with that of a life at_once).  Whatever the driver's rules forbid is
 * counted and named: a copy past the end of an allocation, an object of another device, a launch larger
 * than a device takes, a wait while a stream is being captured.
 *
 * A test links it, says what the devices are and what goes wrong, and looks at what was counted:
 *
 *     fake_cuda_reset();
 *     fake_cuda.fail_at = 7;               the seventh thing that is taken is refused
 *     rc = work();
 *     assert_int_equal(fake_cuda.n_live, 0);
 *     assert_int_equal(fake_cuda.n_wrong, 0);
 *
 * A program finds it by LD_LIBRARY_PATH.  What it is told then comes from the environment: FAKE_CUDA,
 * numbers of the first part of the struct by name ("memory=1073741824,fail_at=7"), and FAKE_CUDA_LOST, the
 * devices being lost while a file of that name exists.
 *
 * Calls may come from any thread; the struct is to be changed and read while none is under way.
 */
#ifndef LODE_TESTS_FAKE_CUDA_H
#define LODE_TESTS_FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(name, default): what the devices are, and what goes wrong */
#define FAKE_CUDA_SETTING_LIST(X)                                                                  \
    X(n_devices, 1)                                                                                \
    X(memory, UINT64_C(4) << 30) /* bytes of each device */                                        \
    X(others, 0)                 /* of them, those in use by other programs */                     \
    X(major, 9)                  /* compute capability */                                          \
    X(shared, 227)               /* KB of shared memory that a block of threads may have */         \
    X(fail_at, 0) /* which of the things that are taken is refused for lack of memory; 0: none */  \
    X(fail_on, 0) /* 1: and all after it */                                                        \
    X(lose_at, 0) /* from which call on every call fails; those that look kernels up do not count */ \
    X(sticky, 0)  /* 1: contexts that were there when the device was lost are never good again */   \
    X(fail_exchange_at, 0) /* which of fake_nccl's calls fails */ \
    X(lack_at, 0) /* which kernel that is looked up is not there */                                 \
    X(no_register, 0) /* 1: memory of the host's is not taken as pinned */ \
    X(at_once, 0)     /* 1: copies happen when they are asked for */

struct fake_cuda {
#define FAKE_CUDA_FIELD(name, value) uint64_t name;
    FAKE_CUDA_SETTING_LIST(FAKE_CUDA_FIELD)
#undef FAKE_CUDA_FIELD

    uint64_t n_calls;    /* but for lookups */
    uint64_t n_lookups;
    uint64_t n_taken;    /* memory, streams, events, graphs, modules, contexts; refused ones too */
    uint64_t n_refused;  /* fail_at's, and where there was no room */
    uint64_t n_live;     /* taken and not given back */
    uint64_t n_launches; /* of kernels, those of graphs too */
    uint64_t n_graphs;   /* launched */
    uint64_t n_copies_up; /* to a device, asked for */
    uint64_t n_overlaps; /* copies to a device asked for while one of other pinned memory was on its way */
    uint64_t sum_up;     /* of what copies of 8 KB or more from the host brought, in whatever order (smaller ones may have
                            addresses) */
    uint64_t most_used;  /* bytes of a device */
    uint64_t n_exchanges; /* calls of fake_nccl that may fail */
    uint64_t n_wrong;    /* calls that the driver's rules forbid */
    char wrong[160];     /* the first of them */
};
extern struct fake_cuda fake_cuda;

/* Everything that was taken is gone, every number what it was at the start. */
void fake_cuda_reset(void);
/* What lies at a device's address, done with what is on its way there; NULL: nothing does. */
const void *fake_cuda_look(uint64_t address);

/* What a library of exchanges between devices is made of (fake_nccl.c): ranks that meet.  None goes on before
 * all have come; who waits for a stream that waits for one that never comes breaks the rules. */
enum { FAKE_RANKS = 8 };
struct fake_meeting {
    uint32_t n;
    bool aborted;
    void *streams[FAKE_RANKS];
};
int fake_cuda_meet(struct fake_meeting *meeting, uint32_t rank, void *stream, uint64_t src, uint64_t dst, size_t n);
/* It goes; abort: its exchanges are over without being done. */
void fake_cuda_part(struct fake_meeting *meeting, bool abort);
/* Whether the call is the one that fails. */
bool fake_cuda_refuses_exchange(void);

#endif
