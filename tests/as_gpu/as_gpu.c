/* as_gpu.c - a CUDA driver that says it is another GPU's: libcuda.so.1 before the real one, which does all the work.
 *
 *     AS_GPU="8.6 99" LD_LIBRARY_PATH=BUILD/tests/as_gpu BUILD/tests/opcheck/opcheck --device cuda
 *
 * AS_GPU: compute capability, KB of shared memory that a block of threads may have.  A multiprocessor then has as many blocks at once
 * as that GPU's: each is given shared memory until no more of them fit.  With kernels of that GPU's text compiled for the one that is
 * there (-Dgpu_targets=86:90) a larger GPU so shows what a smaller one would do: what the host chooses for it, the texts for older
 * ones, and what blocks see that come late.  Of times only that one way is better than another.
 *
 * Without AS_GPU everything is as it is.  The real driver: AS_GPU_DRIVER, else where it mostly is. */
#pragma GCC visibility push(default) /* or nobody would find these */

#include "backend/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BAD_VALUE = 1, NOT_FOUND = 500, TOO_LARGE = 701 };           /* CUresult */
enum { FIXED_SHARED = 1, REGISTERS = 4 };                           /* CUfunction_attribute */
/* Of the GPU that is there, a Hopper: bytes of a multiprocessor's shared memory, of a block's at most, and those that a block takes by
 * itself. */
enum { ALL_SHARED = 228 << 10, MOST_SHARED = 227 << 10, OF_BLOCK = 1 << 10, ALL_REGISTERS = 65536 };
enum { MOST_KERNELS = 1 << 14 };

/* ---- the real driver ---- */

/* A jump to what is in a slot, so that nothing has to be known of arguments. */
#define SLOT(name, symbol, args) __attribute__((visibility("hidden"))) void *as_gpu_##symbol;
LODE_CU_LIST(SLOT)
LODE_CU_OPTIONAL_LIST(SLOT)
#undef SLOT
#define JUMP(name, symbol, args)                                                                   \
    __asm__(".text\n.globl " #symbol "\n.type " #symbol ", @function\n" #symbol                    \
            ": jmp *as_gpu_" #symbol "(%rip)\n.size " #symbol ", . - " #symbol "\n");
LODE_CU_LIST(JUMP)
LODE_CU_OPTIONAL_LIST(JUMP)
#undef JUMP

static int (*device_attribute)(int *value, int attribute, int device);
static int (*function_set)(void *kernel, int attribute, int value);
static int (*function_get)(int *value, int attribute, void *kernel);
static int (*launch_ex)(const struct lode_cu_launch *config, void *kernel, void **params, void **extra);

/* ---- the other GPU ---- */

static struct {
    int major, minor, shared; /* shared: bytes that a block may have */
} as;

/* Of a multiprocessor: bytes of shared memory, those that a block takes by itself, threads. */
static int all_shared(void) { return as.major == 7 ? as.shared : as.shared + OF_BLOCK; }
static int of_block(void) { return as.major == 7 ? 0 : OF_BLOCK; }
static int all_threads(void) {
    const bool large = (as.major == 8 && as.minor == 0) || as.major == 9 || as.major == 10;
    return as.major == 7 ? 1024 : large ? 2048 : 1536;
}

struct kernel {
    void *function;
    int fixed, registers; /* shared memory beside what a launch asks for; of a thread */
    int allowed;          /* that a launch may ask for */
};
static struct kernel kernels[MOST_KERNELS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Under the lock. */
static struct kernel *kernel_of(void *function) {
    size_t i = ((size_t)function >> 4) % MOST_KERNELS;
    while (kernels[i].function && kernels[i].function != function)
        i = (i + 1) % MOST_KERNELS;
    struct kernel *k = &kernels[i];
    if (!k->function) {
        *k = (struct kernel){.function = function, .allowed = 48 << 10};
        if (function_get) { /* a driver that stands in may lack it */
            function_get(&k->fixed, FIXED_SHARED, function);
            function_get(&k->registers, REGISTERS, function);
        }
        function_set(function, LODE_CU_FUNCTION_SHARED, MOST_SHARED - k->fixed);
        function_set(function, LODE_CU_FUNCTION_CARVEOUT, 100);
    }
    return k;
}

static int as_device_attribute(int *value, int attribute, int device) {
    const int rc = device_attribute(value, attribute, device);
    if (rc == 0)
        *value = attribute == LODE_CU_MAJOR          ? as.major
                 : attribute == LODE_CU_MINOR        ? as.minor
                 : attribute == LODE_CU_SHARED_OPTIN ? as.shared
                                                     : *value;
    return rc;
}

static int as_function_set(void *function, int attribute, int value) {
    if (attribute == LODE_CU_FUNCTION_CARVEOUT)
        return 0;
    if (attribute != LODE_CU_FUNCTION_SHARED)
        return function_set(function, attribute, value);
    pthread_mutex_lock(&lock);
    struct kernel *k = kernel_of(function);
    const int rc = value + k->fixed > as.shared ? BAD_VALUE : 0;
    if (rc == 0)
        k->allowed = value;
    pthread_mutex_unlock(&lock);
    return rc;
}

static int as_launch(const struct lode_cu_launch *config, void *function, void **params, void **extra) {
    pthread_mutex_lock(&lock);
    const struct kernel k = *kernel_of(function);
    pthread_mutex_unlock(&lock);
    struct lode_cu_launch c = *config;
    if ((int)c.shared > k.allowed)
        return BAD_VALUE;
    const int threads = (int)(c.block[0] * c.block[1] * c.block[2] + 31) / 32 * 32, registers = (k.registers + 7) / 8 * 8 * threads;
    const int bytes = (int)c.shared + k.fixed + of_block();
    int most = all_threads() / threads;
    most = bytes > 0 && all_shared() / bytes < most ? all_shared() / bytes : most;
    most = registers > 0 && ALL_REGISTERS / registers < most ? ALL_REGISTERS / registers : most;
    if (most < 1)
        return TOO_LARGE;
    int fill = ALL_SHARED / most / 1024 * 1024 - OF_BLOCK - k.fixed; /* of no more than these there is room then */
    fill = fill < MOST_SHARED - k.fixed ? fill : MOST_SHARED - k.fixed;
    c.shared = fill > (int)c.shared ? (unsigned)fill : c.shared;
    return launch_ex(&c, function, params, extra);
}

static int lacks(void) { return NOT_FOUND; }

/* What the slot has to *real, and *ours into it: pointers to functions, to which ISO C has no cast from others. */
static void put(void **slot, void *real, const void *ours) {
    memcpy(real, slot, sizeof *slot);
    memcpy(slot, ours, sizeof *slot);
}

__attribute__((constructor)) static void find_driver(void) {
    const char *given = getenv("AS_GPU_DRIVER"), *gpu = getenv("AS_GPU");
    const char *const places[] = {given ? given : "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib64/libcuda.so.1",
                                  "/usr/local/nvidia/lib64/libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"};
    int (*const none)(void) = lacks;
    void *driver = NULL;
    for (size_t i = 0; !driver && i < sizeof places / sizeof *places; i++)
        driver = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
#define FIND(name, symbol, args)                                                                   \
    as_gpu_##symbol = driver ? dlsym(driver, #symbol) : NULL;                                      \
    if (!as_gpu_##symbol)                                                                          \
        memcpy(&as_gpu_##symbol, &none, sizeof none);
    LODE_CU_LIST(FIND)
    LODE_CU_OPTIONAL_LIST(FIND)
#undef FIND
    if (!driver)
        fprintf(stderr, "as_gpu: no CUDA driver: say where libcuda.so.1 is in AS_GPU_DRIVER\n");
    if (!driver || !gpu)
        return;
    if (sscanf(gpu, "%d.%d %d", &as.major, &as.minor, &as.shared) != 3 || as.shared < 48 || as.shared > 227) {
        fprintf(stderr, "as_gpu: AS_GPU is '%s': a compute capability and 48 to 227 KB of shared memory are wanted, as in \"8.6 99\"\n", gpu);
        exit(2);
    }
    as.shared <<= 10;
    void *const get = dlsym(driver, "cuFuncGetAttribute");
    memcpy(&function_get, &get, sizeof get);
    int (*const attribute)(int *, int, int) = as_device_attribute, (*const set)(void *, int, int) = as_function_set;
    int (*const launch)(const struct lode_cu_launch *, void *, void **, void **) = as_launch;
    put(&as_gpu_cuDeviceGetAttribute, &device_attribute, &attribute);
    put(&as_gpu_cuFuncSetAttribute, &function_set, &set);
    put(&as_gpu_cuLaunchKernelEx, &launch_ex, &launch);
}
