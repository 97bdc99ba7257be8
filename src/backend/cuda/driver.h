/* driver.h - the CUDA driver's functions, found at run time: nothing of CUDA is linked, and without a
 * driver the program runs on the CPU.  The types are those of the driver API, whose binary interface
 * does not change. */
#ifndef LODE_BACKEND_CUDA_DRIVER_H
#define LODE_BACKEND_CUDA_DRIVER_H

#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int lode_cu_result; /* 0: success */
typedef unsigned long long lode_cu_ptr;

/* CUlaunchConfig and CUlaunchAttribute */
struct lode_cu_attribute {
    unsigned id;
    char pad[4];
    union {
        char room[64];
        int on;
        struct {
            lode_cu_ptr at;
            size_t n;
            float ratio; /* of it that is hit */
            int hit, miss;
        } window; /* CUaccessPolicyWindow */
    } value;
};
struct lode_cu_launch {
    unsigned grid[3], block[3], shared;
    void *stream;
    struct lode_cu_attribute *attributes;
    unsigned n_attributes;
};

/* CUDA_MEMCPY2D: rows of n bytes, as the pitches say apart */
struct lode_cu_rows {
    size_t src_x, src_y;
    int src_kind; /* LODE_CU_AT_HOST, LODE_CU_AT_DEVICE */
    const void *src_host;
    lode_cu_ptr src;
    void *src_array;
    size_t src_pitch, dst_x, dst_y;
    int dst_kind;
    void *dst_host;
    lode_cu_ptr dst;
    void *dst_array;
    size_t dst_pitch, n, rows;
};
enum { LODE_CU_AT_HOST = 1, LODE_CU_AT_DEVICE = 2 };

/* X(name here, symbol, arguments) */
#define LODE_CU_LIST(X)                                                                            \
    X(init, cuInit, (unsigned flags))                                                              \
    X(device_count, cuDeviceGetCount, (int *n))                                                    \
    X(device_get, cuDeviceGet, (int *device, int i))                                               \
    X(device_name, cuDeviceGetName, (char *name, int size, int device))                            \
    X(device_memory, cuDeviceTotalMem_v2, (size_t * bytes, int device))                            \
    X(device_attribute, cuDeviceGetAttribute, (int *value, int attribute, int device))             \
    X(context_retain, cuDevicePrimaryCtxRetain, (void **context, int device))                      \
    X(context_release, cuDevicePrimaryCtxRelease_v2, (int device))                                 \
    X(context_set, cuCtxSetCurrent, (void *context))                                               \
    X(context_wait, cuCtxSynchronize, (void))                                                      \
    X(module_load, cuModuleLoadData, (void **module, const void *image))                           \
    X(module_unload, cuModuleUnload, (void *module))                                               \
    X(module_function, cuModuleGetFunction, (void **function, void *module, const char *name))     \
    X(function_set, cuFuncSetAttribute, (void *function, int attribute, int value))                \
    X(alloc, cuMemAlloc_v2, (lode_cu_ptr * p, size_t size))                                        \
    X(free, cuMemFree_v2, (lode_cu_ptr p))                                                         \
    X(memory_info, cuMemGetInfo_v2, (size_t * free, size_t *total))                                \
    X(host_alloc, cuMemHostAlloc, (void **p, size_t size, unsigned flags))                         \
    X(host_free, cuMemFreeHost, (void *p))                                                         \
    X(to_device, cuMemcpyHtoDAsync_v2, (lode_cu_ptr dst, const void *src, size_t n, void *stream)) \
    X(to_host, cuMemcpyDtoHAsync_v2, (void *dst, lode_cu_ptr src, size_t n, void *stream))         \
    X(copy, cuMemcpyDtoDAsync_v2, (lode_cu_ptr dst, lode_cu_ptr src, size_t n, void *stream))      \
    X(copy_rows, cuMemcpy2DAsync_v2, (const struct lode_cu_rows *rows, void *stream))              \
    X(set8, cuMemsetD8Async, (lode_cu_ptr p, unsigned char v, size_t n, void *stream))             \
    X(stream_create, cuStreamCreate, (void **stream, unsigned flags))                              \
    X(stream_destroy, cuStreamDestroy_v2, (void *stream))                                          \
    X(stream_wait, cuStreamSynchronize, (void *stream))                                            \
    X(stream_query, cuStreamQuery, (void *stream))                                                 \
    X(event_create, cuEventCreate, (void **event, unsigned flags))                                 \
    X(event_destroy, cuEventDestroy_v2, (void *event))                                             \
    X(event_record, cuEventRecord, (void *event, void *stream))                                    \
    X(event_wait, cuEventSynchronize, (void *event))                                               \
    X(event_ask, cuEventQuery, (void *event)) /* LODE_CU_NOT_READY */                              \
    X(host_register, cuMemHostRegister_v2, (void *p, size_t size, unsigned flags))                 \
    X(host_unregister, cuMemHostUnregister, (void *p))                                             \
    X(stream_wait_event, cuStreamWaitEvent, (void *stream, void *event, unsigned flags))           \
    X(copy_peer, cuMemcpyPeerAsync, (lode_cu_ptr dst, void *dst_context, lode_cu_ptr src,          \
      void *src_context, size_t n, void *stream))                                                  \
    X(peer_enable, cuCtxEnablePeerAccess, (void *context, unsigned flags))                         \
    X(capture_begin, cuStreamBeginCapture_v2, (void *stream, int mode))                            \
    X(capture_end, cuStreamEndCapture, (void *stream, void **graph))                               \
    X(graph_instantiate, cuGraphInstantiateWithFlags,                                              \
      (void **exec, void *graph, unsigned long long flags))                                        \
    X(graph_destroy, cuGraphDestroy, (void *graph))                                                \
    X(graph_exec_destroy, cuGraphExecDestroy, (void *exec))                                        \
    X(graph_launch, cuGraphLaunch, (void *exec, void *stream))                                     \
    X(launch_ex, cuLaunchKernelEx,                                                                 \
      (const struct lode_cu_launch *config, void *function, void **params, void **extra))          \
    X(error_name, cuGetErrorName, (lode_cu_result rc, const char **name))                          \
    X(error_text, cuGetErrorString, (lode_cu_result rc, const char **text))

/* The same that older drivers lack: NULL there.  tensor_map: how a matrix lies, for the copies of Hopper and
 * later (type, dimensions, address, sizes innermost first, bytes from row to row, box, steps, and the last
 * four as CUDA's enumerations say). */
#define LODE_CU_OPTIONAL_LIST(X)                                                                   \
    X(tensor_map, cuTensorMapEncodeTiled,                                                          \
      (void *map, int type, uint32_t rank, void *data, const uint64_t *sizes,                      \
       const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,        \
       int swizzle, int promotion, int fill))

struct lode_cu {
    void *library;
    atomic_bool *failed; /* borrowed; set by lode_cu_check for what is no lack of memory; NULL: nobody asks */
#define LODE_CU_FIELD(name, symbol, args) lode_cu_result(*name) args;
    LODE_CU_LIST(LODE_CU_FIELD)
    LODE_CU_OPTIONAL_LIST(LODE_CU_FIELD)
#undef LODE_CU_FIELD
};

enum { /* CUresult */
    LODE_CU_NO_MEMORY = 2,
    LODE_CU_BAD_IMAGE = 200,
    LODE_CU_NO_BINARY = 209, /* for this GPU */
    LODE_CU_BAD_PTX = 218,
    LODE_CU_NEW_PTX = 222, /* newer than the driver */
    LODE_CU_NOT_READY = 600,
};

enum { /* CUdevice_attribute, CUfunction_attribute */
    LODE_CU_MULTIPROCESSORS = 16,
    LODE_CU_SECOND_CACHE = 38,
    LODE_CU_WINDOW_MOST = 109, /* bytes of an access policy window */
    LODE_CU_SHARED_OPTIN = 97,
    LODE_CU_MAJOR = 75,
    LODE_CU_MINOR = 76,
    LODE_CU_MAP_U32 = 2, /* CUtensorMapDataType */
    LODE_CU_MAP_F16 = 6,
    LODE_CU_MAP_BF16 = 9,
    LODE_CU_MAP_SWIZZLE_128 = 3,
    LODE_CU_MAP_PROMOTE_128 = 2, /* lines for the second cache */
    LODE_CU_MAP_PROMOTE_256 = 3,
    LODE_CU_WINDOW = 1, /* CUlaunchAttributeID: access policy window */
    LODE_CU_EARLY = 6,  /* the same: programmatic stream serialization */
    LODE_CU_STREAMING = 1, /* CUaccessProperty */
    LODE_CU_FUNCTION_SHARED = 8,
    LODE_CU_FUNCTION_CARVEOUT = 9, /* per cent of the first cache that is shared memory */
    LODE_CU_REGISTER_READ_ONLY = 8, /* CU_MEMHOSTREGISTER_READ_ONLY */
};

/* Opens the driver and starts it; an error says why there is none. */
int lode_cu_open(struct lode_cu *cu, struct lode_error *err);
void lode_cu_close(struct lode_cu *cu);
/* LODE_ERR_DEVICE, or where that is what it says LODE_ERR_NOMEM, with the driver's words for rc; 0 for
 * success. */
int lode_cu_check(const struct lode_cu *cu, lode_cu_result rc, const char *what,
                  struct lode_error *err);

#endif
