/* fake_cuda.c - see fake_cuda.h.  It allocates by mmap alone, so that tests may let malloc fail. */
#pragma GCC visibility push(default) /* or nobody would find these */

#include "fake_cuda.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* CUresult */
enum { OK = 0, BAD_VALUE = 1, NO_MEMORY = 2, NO_DEVICE = 100, BAD_CONTEXT = 201, BAD_HANDLE = 400,
       NOT_FOUND = 500, NOT_READY = 600, REGISTERED_ALREADY = 712, LOST = 719, NOT_SUPPORTED = 801,
       CAPTURING = 900 };

enum { MOST_DEVICES = 8, MOST_THINGS = 1024, MOST_KERNELS = 8192, MOST_MOVES = 256 };

enum kind { NOTHING, CONTEXT, MODULE, MEMORY, PINNED, STREAM, EVENT, GRAPH, EXEC, REGISTERED };
static const char *const kind_names[] = {"nothing", "context", "module", "memory", "pinned memory",
                                         "stream", "event", "graph", "graph to run", "registered memory"};

/* Something on its way: a copy, a fill, or a wait for another stream (to NULL). */
struct move {
    char *to;
    const char *from; /* NULL: a fill */
    size_t n;
    unsigned char value;
    struct thing *stream; /* what a wait is for */
    uint64_t until;
    struct fake_meeting *meeting; /* an exchange: n bytes from each rank to all, one behind the other; NULL: none */
    uint32_t rank;
};

/* Whatever a handle stands for. */
struct thing {
    enum kind kind;
    int device;
    bool dead;    /* a context whose device was lost while it was there */
    char *at;     /* memory: what the program sees; what is behind it lies `size` further on.  Pinned: the memory;
                     registered: the program's own */
    size_t size;  /* mapped bytes */
    size_t asked;
    struct thing *graph;  /* of a stream: what it is being captured to; NULL */
    struct thing *stream; /* of an event: where it was recorded; NULL: nowhere */
    uint64_t n_launches;  /* of a graph */
    /* of a stream: moves first .. next - 1 are on their way, in a ring; of an event: it is done when the
     * stream's first is `next`; of a graph: moves 0 .. next - 1 */
    uint64_t first, next;
    struct move *moves; /* (MOST_MOVES) mapped */
};

struct kernel {
    const struct thing *module;
    int shared; /* bytes that a launch may ask for */
};

/* CUlaunchConfig */
struct launch {
    unsigned grid[3], block[3], shared;
    void *stream;
    void *attributes;
    unsigned n_attributes;
};

struct fake_cuda fake_cuda = {
#define DEFAULT(name, value) .name = value,
    FAKE_CUDA_SETTING_LIST(DEFAULT)
#undef DEFAULT
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct thing things[MOST_THINGS];
static struct kernel kernels[MOST_KERNELS];
static struct {
    struct thing *context; /* NULL: nobody retains it */
    uint64_t retained, used;
} devices[MOST_DEVICES];
static _Thread_local struct thing *current; /* context */

enum { SHARED_PLAIN = 48 << 10 };

/* ---- what is wrong ---- */

__attribute__((format(printf, 2, 3))) static int wrong(int code, const char *format, ...) {
    if (fake_cuda.n_wrong++ == 0) {
        va_list args;
        va_start(args, format);
        vsnprintf(fake_cuda.wrong, sizeof fake_cuda.wrong, format, args);
        va_end(args);
    }
    return code;
}

static bool lost(void) {
    const char *file = getenv("FAKE_CUDA_LOST");
    return (fake_cuda.lose_at && fake_cuda.n_calls >= fake_cuda.lose_at) || (file && access(file, F_OK) == 0);
}

static void drop(struct thing *t);

/* Graphs that were being captured when the device was lost never come to be; those that were and could run
 * stay, of what they were made from nobody hears again. */
static void end_captures(void) {
    for (struct thing *t = things; t < things + MOST_THINGS; t++) {
        if (t->kind == STREAM)
            t->graph = NULL;
        else if (t->kind == GRAPH)
            drop(t);
    }
}

/* A call begins: 0 with the lock held, or what it returns.  of_context: it is the thread's context that does
 * it, which for good is what the device was when it was lost (`sticky`). */
static int enter(bool of_context) {
    pthread_mutex_lock(&lock);
    fake_cuda.n_calls++;
    const bool is_lost = lost();
    for (int i = 0; i < MOST_DEVICES && is_lost && fake_cuda.sticky; i++)
        if (devices[i].context)
            devices[i].context->dead = true;
    if (!is_lost && !(of_context && current && current->kind == CONTEXT && current->dead))
        return OK;
    end_captures();
    pthread_mutex_unlock(&lock);
    return LOST;
}

static int leave(int rc) {
    pthread_mutex_unlock(&lock);
    return rc;
}

#define ENTER() ENTER_AS(true)
#define ENTER_AS(of_context)                                                                       \
    do {                                                                                           \
        const int rc_ = enter(of_context);                                                         \
        if (rc_)                                                                                   \
            return rc_;                                                                            \
    } while (0)

static int is(const struct thing *t, enum kind kind, const char *call) {
    if (t < things || t >= things + MOST_THINGS || t->kind != kind)
        return wrong(BAD_HANDLE, "%s: no %s", call, kind_names[kind]);
    if (kind != CONTEXT && (!current || current->kind != CONTEXT || current->device != t->device))
        return wrong(BAD_CONTEXT, "%s: a %s of device %d, whose context is not this thread's", call,
                     kind_names[kind], t->device);
    return OK;
}

static int in_context(const char *call) {
    return current && current->kind == CONTEXT ? OK : wrong(BAD_CONTEXT, "%s: without a context", call);
}

/* ---- taking and giving back ---- */

static void *map(size_t size) {
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* size: bytes that are mapped for the program to see, or for the thing to have; 0: none. */
static int take(struct thing **out, enum kind kind, int device, size_t size) {
    struct thing *t = things;
    fake_cuda.n_taken++;
    if (fake_cuda.fail_at && (fake_cuda.n_taken == fake_cuda.fail_at ||
                              (fake_cuda.fail_on && fake_cuda.n_taken > fake_cuda.fail_at))) {
        fake_cuda.n_refused++;
        return NO_MEMORY;
    }
    while (t < things + MOST_THINGS && t->kind)
        t++;
    if (t == things + MOST_THINGS)
        return wrong(NO_MEMORY, "more than %d things at once", MOST_THINGS);
    *t = (struct thing){.kind = kind, .device = device, .asked = size};
    if (kind == MEMORY || kind == PINNED) {
        t->size = (size + 4095) & ~(size_t)4095;
        t->at = map(kind == MEMORY ? 2 * t->size : t->size);
        if (t->at && kind == MEMORY)
            mprotect(t->at, t->size, PROT_NONE);
    } else if (kind == STREAM || kind == GRAPH || kind == EXEC) {
        t->moves = map(MOST_MOVES * sizeof *t->moves);
    }
    if ((size && !t->at) || ((kind == STREAM || kind == GRAPH || kind == EXEC) && !t->moves)) {
        t->kind = NOTHING;
        return NO_MEMORY;
    }
    fake_cuda.n_live++;
    *out = t;
    return OK;
}

static void drop(struct thing *t) {
    if (t->at && t->kind != REGISTERED)
        munmap(t->at, t->kind == MEMORY ? 2 * t->size : t->size);
    if (t->moves)
        munmap(t->moves, MOST_MOVES * sizeof *t->moves);
    *t = (struct thing){0};
    fake_cuda.n_live--;
}

/* ---- what is on its way ---- */

/* The memory behind n bytes at an address, on any device; NULL and wrong: nobody has them all. */
static char *behind(uint64_t address, size_t n, const char *call) {
    for (struct thing *t = things; t < things + MOST_THINGS; t++) {
        const uint64_t at = (uintptr_t)t->at;
        if (t->kind == MEMORY && address >= at && address - at <= t->asked && n <= t->asked - (address - at))
            return t->at + t->size + (address - at);
    }
    wrong(BAD_VALUE, "%s: %zu bytes at an address where the device does not have them", call, n);
    return NULL;
}

static struct thing *pinned_at(const void *host, size_t n) {
    for (struct thing *t = things; t < things + MOST_THINGS; t++)
        if ((t->kind == PINNED || t->kind == REGISTERED) && (const char *)host >= t->at && (const char *)host + n <= t->at + t->asked)
            return t;
    return NULL;
}

static bool meet(const struct move *m);

/* To a device if not `to` pinned memory. */
static void carry(const struct move *m) {
    uint64_t sum = 14695981039346656037u;
    if (!m->from) {
        memset(m->to, m->value, m->n);
        return;
    }
    memmove(m->to, m->from, m->n);
    if (m->n < 8192 || !pinned_at(m->from, m->n))
        return;
    for (size_t i = 0; i < m->n; i++)
        sum = (sum ^ (unsigned char)m->to[i]) * 1099511628211u;
    fake_cuda.sum_up += sum;
}

/* Moves of a stream happen, up to the one that is numbered `until`, in their order, or to an exchange that not
 * all have come to. */
static void drain(struct thing *stream, uint64_t until) {
    while (stream->kind == STREAM && stream->first < until && stream->first < stream->next) {
        const struct move m = stream->moves[stream->first % MOST_MOVES];
        if (m.meeting) {
            if (!meet(&m))
                return;
            continue;
        }
        stream->first++;
        if (!m.to)
            drain(m.stream, m.until);
        else
            carry(&m);
    }
}

/* A stream's next move when it has come to an exchange; NULL: it is not there yet. */
static struct move *comes_to(struct thing *stream, const struct fake_meeting *meeting) {
    while (stream && stream->first < stream->next) {
        struct move *m = &stream->moves[stream->first % MOST_MOVES];
        const uint64_t before = stream->first;
        if (m->meeting == meeting)
            return m;
        drain(stream, before + 1);
        if (stream->first == before)
            return NULL;
    }
    return NULL;
}

static bool meet(const struct move *m) {
    struct fake_meeting *meeting = m->meeting;
    struct move all[FAKE_RANKS];
    for (uint32_t r = 0; r < meeting->n && !meeting->aborted; r++) {
        const struct move *there = comes_to(meeting->streams[r], meeting);
        if (!there)
            return false;
        all[r] = *there;
    }
    for (uint32_t to = 0; to < meeting->n; to++) {
        struct thing *stream = meeting->streams[to];
        if (!meeting->aborted)
            for (uint32_t from = 0; from < meeting->n; from++) {
                if (all[to].n != all[from].n)
                    wrong(BAD_VALUE, "an exchange of %zu and of %zu bytes", all[to].n, all[from].n);
                else
                    memmove(all[to].to + from * all[to].n, all[from].from, all[to].n);
            }
        if (!meeting->aborted || to == m->rank)
            stream->first++;
    }
    return true;
}

/* Whoever waits for a stream that is not done after all that could happen waits forever. */
static int is_done(const struct thing *stream, const char *call) {
    return stream->first == stream->next ? OK
                                         : wrong(LOST, "%s: of a stream that waits for one that never comes", call);
}

static void drain_device(int device) {
    for (struct thing *t = things; t < things + MOST_THINGS; t++)
        if (t->kind == STREAM && t->device == device)
            drain(t, t->next);
}

static int add(struct thing *stream, struct move m, const char *call) {
    struct thing *to = stream->graph ? stream->graph : stream;
    if (stream->graph && to->next == MOST_MOVES)
        return wrong(NO_MEMORY, "%s: more than %d copies in one graph", call, MOST_MOVES);
    if (!stream->graph && to->next - to->first == MOST_MOVES)
        drain(to, to->first + 1);
    to->moves[to->next++ % MOST_MOVES] = m;
    return OK;
}

/* A copy or fill: by its stream, or at once where that is NULL. */
static int move(void *stream, struct move m, const char *call) {
    struct thing *s = stream;
    if (!m.to)
        return BAD_VALUE;
    if (!s) {
        carry(&m);
        return OK;
    }
    const int rc = add(s, m, call);
    if (fake_cuda.at_once && !s->graph)
        drain(s, s->next);
    return rc;
}

/* ---- the driver's functions ---- */

/* What the environment says: by name. */
static void read_settings(void) {
    const char *at = getenv("FAKE_CUDA");
    while (at && *at) {
        const size_t n = strcspn(at, "=");
        if (!at[n])
            return;
#define READ(name, value)                                                                          \
    if (n == sizeof #name - 1 && strncmp(at, #name, n) == 0)                                       \
        fake_cuda.name = strtoull(at + n + 1, NULL, 10);
        FAKE_CUDA_SETTING_LIST(READ)
#undef READ
        at += n + strcspn(at + n, ",");
        at += *at == ',';
    }
}

int cuInit(unsigned flags);
int cuInit(unsigned flags) {
    (void)flags;
    ENTER_AS(false);
    read_settings();
    return leave(fake_cuda.n_devices ? OK : NO_DEVICE);
}

int cuGetErrorName(int rc, const char **name);
int cuGetErrorName(int rc, const char **name) {
    *name = rc == NO_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : rc == LOST ? "CUDA_ERROR_LAUNCH_FAILED"
          : rc == NOT_FOUND ? "CUDA_ERROR_NOT_FOUND" : rc == CAPTURING ? "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
                                                     : "CUDA_ERROR_INVALID_VALUE";
    return OK;
}

int cuGetErrorString(int rc, const char **text);
int cuGetErrorString(int rc, const char **text) {
    *text = rc == NO_MEMORY ? "out of memory" : rc == LOST ? "unspecified launch failure"
          : rc == NOT_FOUND ? "named symbol not found" : rc == CAPTURING ? "operation not permitted when stream is capturing"
                                                       : "invalid argument";
    return OK;
}

int cuDeviceGetCount(int *n);
int cuDeviceGetCount(int *n) {
    ENTER_AS(false);
    *n = (int)fake_cuda.n_devices;
    return leave(OK);
}

int cuDeviceGet(int *device, int i);
int cuDeviceGet(int *device, int i) {
    ENTER_AS(false);
    if (i < 0 || (uint64_t)i >= fake_cuda.n_devices || i >= MOST_DEVICES)
        return leave(NO_DEVICE);
    *device = i;
    return leave(OK);
}

int cuDeviceGetName(char *name, int size, int device);
int cuDeviceGetName(char *name, int size, int device) {
    ENTER_AS(false);
    snprintf(name, (size_t)size, "Stand-in %d", device);
    return leave(OK);
}

int cuDeviceTotalMem_v2(size_t *bytes, int device);
int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    (void)device;
    ENTER_AS(false);
    *bytes = fake_cuda.memory;
    return leave(OK);
}

int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    ENTER_AS(false);
    *value = attribute == 16   ? 132 /* multiprocessors */
             : attribute == 97 ? (int)fake_cuda.shared << 10
             : attribute == 75 ? (int)fake_cuda.major
                               : 0;
    return leave(OK);
}

int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxRetain(void **context, int device) {
    int rc = OK;
    ENTER_AS(false);
    if (!devices[device].context)
        rc = take(&devices[device].context, CONTEXT, device, 0);
    devices[device].retained += rc == OK;
    *context = devices[device].context;
    return leave(rc);
}

int cuDevicePrimaryCtxRelease_v2(int device);
int cuDevicePrimaryCtxRelease_v2(int device) {
    if (enter(false) != OK) /* a lost device lets go too */
        pthread_mutex_lock(&lock);
    if (!devices[device].retained)
        return leave(wrong(BAD_CONTEXT, "context released that nobody has"));
    if (--devices[device].retained == 0) {
        for (struct thing *t = things; t < things + MOST_THINGS && devices[device].context->dead; t++)
            if (t->kind && t->kind != CONTEXT && t->device == device)
                drop(t); /* what could not be given back */
        drop(devices[device].context);
        devices[device].context = NULL;
    }
    return leave(OK);
}

int cuCtxSetCurrent(void *context);
int cuCtxSetCurrent(void *context) {
    ENTER_AS(false);
    const int rc = is(context, CONTEXT, "cuCtxSetCurrent");
    if (rc == OK)
        current = context;
    return leave(rc);
}

int cuCtxSynchronize(void);
int cuCtxSynchronize(void) {
    ENTER();
    int rc = in_context("cuCtxSynchronize");
    if (rc == OK)
        drain_device(current->device);
    for (struct thing *t = things; rc == OK && t < things + MOST_THINGS; t++)
        if (t->kind == STREAM && t->device == current->device)
            rc = is_done(t, "cuCtxSynchronize");
    return leave(rc);
}

int cuModuleLoadData(void **module, const void *image);
int cuModuleLoadData(void **module, const void *image) {
    struct thing *t = NULL;
    ENTER();
    (void)image;
    int rc = in_context("cuModuleLoadData");
    if (rc == OK)
        rc = take(&t, MODULE, current->device, 0);
    *module = t;
    return leave(rc);
}

int cuModuleUnload(void *module);
int cuModuleUnload(void *module) {
    ENTER();
    const int rc = is(module, MODULE, "cuModuleUnload");
    if (rc == OK) {
        for (int i = 0; i < MOST_KERNELS; i++)
            if (kernels[i].module == module)
                kernels[i].module = NULL;
        drop(module);
    }
    return leave(rc);
}

/* Lookups are not calls that count: there are hundreds of them, one like the other. */
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuModuleGetFunction(void **function, void *module, const char *name) {
    pthread_mutex_lock(&lock);
    int rc = lost() ? LOST : is(module, MODULE, "cuModuleGetFunction");
    if (rc == OK && ++fake_cuda.n_lookups == fake_cuda.lack_at)
        rc = NOT_FOUND;
    /* what only Hopper has */
    if (rc == OK && fake_cuda.major != 9 && (!strncmp(name, "wide_", 5) || !strncmp(name, "spread_", 7) ||
                                         !strncmp(name, "stream_", 7) || !strncmp(name, "attention_ring_", 15)))
        rc = NOT_FOUND;
    if (rc == OK && fake_cuda.major < 8 && strstr(name, "fast")) /* what begins with Ampere */
        rc = NOT_FOUND;
    struct kernel *k = kernels;
    while (rc == OK && k < kernels + MOST_KERNELS && k->module)
        k++;
    if (rc == OK && k == kernels + MOST_KERNELS)
        rc = wrong(NO_MEMORY, "more than %d kernels", MOST_KERNELS);
    if (rc == OK)
        *k = (struct kernel){module, SHARED_PLAIN};
    *function = rc == OK ? k : NULL;
    return leave(rc);
}

static int is_kernel(const struct kernel *k, const char *call) {
    return k >= kernels && k < kernels + MOST_KERNELS && k->module
               ? is(k->module, MODULE, call)
               : wrong(BAD_HANDLE, "%s: no kernel", call);
}

/* Of numbers of 16 and 32 bits, as lode has them: rows, which lie apart, or pieces that may overlap. */
int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *data, const uint64_t *sizes, const uint64_t *strides,
                           const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion,
                           int fill);
int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *data, const uint64_t *sizes, const uint64_t *strides,
                           const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion,
                           int fill) {
    pthread_mutex_lock(&lock);
    int rc = OK;
    const uint32_t bytes = type == 2 ? 4 : type == 6 || type == 9 ? 2 : 0;
    (void)promotion;
    if ((uintptr_t)map % 64 || (uintptr_t)data % 16 || !bytes || rank < 2 || rank > 5 || interleave || fill)
        rc = wrong(BAD_VALUE, "cuTensorMapEncodeTiled: no such map");
    else if (box[0] * bytes % 16 || box[0] * bytes > 128 || (swizzle != 0 && swizzle != 3))
        rc = wrong(BAD_VALUE, "cuTensorMapEncodeTiled: boxes of %u numbers", box[0]);
    else if (rank == 2 && strides[0] < sizes[0] * bytes)
        rc = wrong(BAD_VALUE, "cuTensorMapEncodeTiled: rows of %u numbers %u bytes apart", (unsigned)sizes[0],
                   (unsigned)strides[0]);
    for (uint32_t i = 0; rc == OK && i < rank; i++)
        if (sizes[i] == 0 || sizes[i] > 1ull << 32 || box[i] == 0 || box[i] > 256 || steps[i] != 1 ||
            (i + 1 < rank && (strides[i] == 0 || strides[i] % 16 || strides[i] >= 1ull << 40)))
            rc = wrong(BAD_VALUE, "cuTensorMapEncodeTiled: dimension %u", i);
    memset(map, 0, 128);
    return leave(rc);
}

int cuFuncSetAttribute(void *function, int attribute, int value);
int cuFuncSetAttribute(void *function, int attribute, int value) {
    struct kernel *k = function;
    pthread_mutex_lock(&lock);
    int rc = lost() ? LOST : is_kernel(k, "cuFuncSetAttribute");
    if (rc == OK && attribute == 8) {
        if (value > (int)fake_cuda.shared << 10)
            rc = wrong(BAD_VALUE, "%d bytes of shared memory allowed; a device has %d KB", value, (int)fake_cuda.shared);
        else
            k->shared = value;
    }
    return leave(rc);
}

int cuMemAlloc_v2(uint64_t *p, size_t size);
int cuMemAlloc_v2(uint64_t *p, size_t size) {
    struct thing *t = NULL;
    ENTER();
    int rc = in_context("cuMemAlloc");
    if (rc == OK && size == 0)
        rc = wrong(BAD_VALUE, "cuMemAlloc: of 0 bytes");
    if (rc == OK) {
        uint64_t *used = &devices[current->device].used;
        if (*used + fake_cuda.others + size > fake_cuda.memory) {
            fake_cuda.n_taken++;
            fake_cuda.n_refused++;
            rc = NO_MEMORY;
        } else {
            rc = take(&t, MEMORY, current->device, size);
        }
        if (rc == OK) {
            *used += size;
            fake_cuda.most_used = *used > fake_cuda.most_used ? *used : fake_cuda.most_used;
            *p = (uintptr_t)t->at;
        }
    }
    return leave(rc);
}

int cuMemFree_v2(uint64_t p);
int cuMemFree_v2(uint64_t p) {
    ENTER();
    for (struct thing *t = things; t < things + MOST_THINGS; t++)
        if (t->kind == MEMORY && (uintptr_t)t->at == p) {
            const int rc = is(t, MEMORY, "cuMemFree");
            if (rc == OK) {
                drain_device(t->device);
                devices[t->device].used -= t->asked;
                drop(t);
            }
            return leave(rc);
        }
    return leave(wrong(BAD_VALUE, "cuMemFree: of what is not there"));
}

int cuMemGetInfo_v2(size_t *available, size_t *all);
int cuMemGetInfo_v2(size_t *available, size_t *all) {
    ENTER();
    const int rc = in_context("cuMemGetInfo");
    if (rc == OK) {
        const uint64_t used = devices[current->device].used + fake_cuda.others;
        *available = used < fake_cuda.memory ? fake_cuda.memory - used : 0;
        *all = fake_cuda.memory;
    }
    return leave(rc);
}

int cuMemHostAlloc(void **p, size_t size, unsigned flags);
int cuMemHostAlloc(void **p, size_t size, unsigned flags) {
    struct thing *t = NULL;
    (void)flags;
    ENTER();
    int rc = in_context("cuMemHostAlloc");
    if (rc == OK && size == 0)
        rc = wrong(BAD_VALUE, "cuMemHostAlloc: of 0 bytes");
    if (rc == OK)
        rc = take(&t, PINNED, current->device, size);
    if (rc == OK)
        *p = t->at;
    return leave(rc);
}

static bool on_its_way(const struct thing *stream, const struct thing *pinned) {
    for (uint64_t i = stream->first; i < stream->next; i++) {
        const struct move *m = &stream->moves[i % MOST_MOVES];
        if ((m->from >= pinned->at && m->from < pinned->at + pinned->size) ||
            (m->to >= pinned->at && m->to < pinned->at + pinned->size))
            return true;
    }
    return false;
}

int cuMemFreeHost(void *p);
int cuMemFreeHost(void *p) {
    ENTER();
    struct thing *t = pinned_at(p, 0);
    if (!t || t->at != p || t->kind != PINNED)
        return leave(wrong(BAD_VALUE, "cuMemFreeHost: of what is not there"));
    for (struct thing *s = things; s < things + MOST_THINGS; s++)
        if (s->kind == STREAM && on_its_way(s, t))
            wrong(OK, "pinned memory given back while a copy of it was on its way");
    drop(t);
    return leave(OK);
}

int cuMemHostRegister_v2(void *p, size_t size, unsigned flags);
int cuMemHostRegister_v2(void *p, size_t size, unsigned flags) {
    struct thing *t = NULL;
    (void)flags;
    ENTER();
    int rc = in_context("cuMemHostRegister");
    if (rc == OK && fake_cuda.no_register)
        rc = NOT_SUPPORTED;
    if (rc == OK && (size == 0 || (uintptr_t)p % 4096 || size % 4096))
        rc = wrong(BAD_VALUE, "cuMemHostRegister: of %zu bytes that are no whole pages", size);
    for (struct thing *o = things; rc == OK && o < things + MOST_THINGS; o++)
        if (o->kind == REGISTERED && (char *)p < o->at + o->size && o->at < (char *)p + size)
            rc = wrong(REGISTERED_ALREADY, "cuMemHostRegister: of pages that are registered");
    if (rc == OK)
        rc = take(&t, REGISTERED, current->device, 0);
    if (rc == OK) {
        t->at = p;
        t->size = t->asked = size;
    }
    return leave(rc);
}

int cuMemHostUnregister(void *p);
int cuMemHostUnregister(void *p) {
    ENTER();
    struct thing *t = pinned_at(p, 0);
    if (!t || t->at != p || t->kind != REGISTERED)
        return leave(wrong(BAD_VALUE, "cuMemHostUnregister: of what is not registered"));
    for (struct thing *s = things; s < things + MOST_THINGS; s++)
        if (s->kind == STREAM && on_its_way(s, t))
            wrong(OK, "memory no longer registered while a copy of it was on its way");
    drop(t);
    return leave(OK);
}

/* A stream that work may be given to; NULL is the device's own. */
static int usable(void *stream, const char *call) {
    return stream ? is(stream, STREAM, call) : in_context(call);
}

/* Whether a copy of other pinned memory than src is on its way to a device, on any stream. */
static bool others_on_their_way(int device, const void *src) {
    for (const struct thing *s = things; s < things + MOST_THINGS; s++)
        for (uint64_t i = s->first; s->kind == STREAM && s->device == device && !s->graph && i < s->next; i++) {
            const void *from = s->moves[i % MOST_MOVES].from;
            if (from != src && pinned_at(from, 0))
                return true;
        }
    return false;
}

int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t n, void *stream);
int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t n, void *stream) {
    struct thing *s = stream, *pinned = NULL;
    ENTER();
    int rc = usable(stream, "cuMemcpyHtoDAsync");
    char *to = rc == OK ? behind(dst, n, "cuMemcpyHtoDAsync") : NULL;
    if (rc == OK && s)
        pinned = pinned_at(src, n);
    fake_cuda.n_copies_up++;
    if (rc == OK && s && !s->graph) {
        fake_cuda.n_overlaps += pinned && others_on_their_way(s->device, src);
        if (!pinned) /* the driver takes a copy of such memory before it returns */
            drain(s, s->next);
    }
    if (rc == OK)
        rc = move(pinned ? stream : NULL, (struct move){.to = to, .from = src, .n = n}, "cuMemcpyHtoDAsync");
    return leave(rc);
}

int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t n, void *stream);
int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t n, void *stream) {
    struct thing *s = stream;
    ENTER();
    int rc = usable(stream, "cuMemcpyDtoHAsync");
    const char *from = rc == OK ? behind(src, n, "cuMemcpyDtoHAsync") : NULL;
    const bool pinned = s && pinned_at(dst, n);
    if (rc == OK && s && !pinned)
        drain(s, s->next);
    if (rc == OK)
        rc = from ? move(pinned ? stream : NULL, (struct move){.to = dst, .from = from, .n = n}, "cuMemcpyDtoHAsync")
                  : BAD_VALUE;
    return leave(rc);
}

int cuMemcpyDtoDAsync_v2(uint64_t dst, uint64_t src, size_t n, void *stream);
int cuMemcpyDtoDAsync_v2(uint64_t dst, uint64_t src, size_t n, void *stream) {
    ENTER();
    int rc = usable(stream, "cuMemcpyDtoDAsync");
    char *to = rc == OK ? behind(dst, n, "cuMemcpyDtoDAsync") : NULL;
    const char *from = to ? behind(src, n, "cuMemcpyDtoDAsync") : NULL;
    if (rc == OK)
        rc = from ? move(stream, (struct move){.to = to, .from = from, .n = n}, "cuMemcpyDtoDAsync") : BAD_VALUE;
    return leave(rc);
}

/* CUDA_MEMCPY2D, between pinned memory and a device's, as lode has it. */
struct rows {
    size_t src_x, src_y;
    int src_kind;
    const char *src_host;
    uint64_t src;
    void *src_array;
    size_t src_pitch, dst_x, dst_y;
    int dst_kind;
    char *dst_host;
    uint64_t dst;
    void *dst_array;
    size_t dst_pitch, n, rows;
};

int cuMemcpy2DAsync_v2(const struct rows *r, void *stream);
int cuMemcpy2DAsync_v2(const struct rows *r, void *stream) {
    ENTER();
    const bool up = r->src_kind == 1;
    int rc = usable(stream, "cuMemcpy2DAsync");
    const char *host = up ? r->src_host : r->dst_host;
    const size_t pitch = up ? r->src_pitch : r->dst_pitch, there_pitch = up ? r->dst_pitch : r->src_pitch;
    const uint64_t there = up ? r->dst : r->src;
    if (rc == OK && (r->src_x || r->src_y || r->dst_x || r->dst_y || r->src_kind + r->dst_kind != 3 || r->n > pitch ||
                     r->n > there_pitch || r->n == 0 || r->rows == 0))
        rc = wrong(BAD_VALUE, "cuMemcpy2DAsync: %zu rows of %zu bytes", r->rows, r->n);
    if (rc == OK && !pinned_at(host, (r->rows - 1) * pitch + r->n))
        rc = wrong(BAD_VALUE, "cuMemcpy2DAsync: of memory that is not pinned");
    char *at = rc == OK ? behind(there, (r->rows - 1) * there_pitch + r->n, "cuMemcpy2DAsync") : NULL;
    rc = rc == OK && !at ? BAD_VALUE : rc;
    for (size_t i = 0; rc == OK && i < r->rows; i++) {
        char *to = up ? at + i * there_pitch : r->dst_host + i * pitch;
        const char *from = up ? host + i * pitch : at + i * there_pitch;
        rc = move(stream, (struct move){.to = to, .from = from, .n = r->n}, "cuMemcpy2DAsync");
    }
    return leave(rc);
}

int cuMemcpyPeerAsync(uint64_t dst, void *dst_context, uint64_t src, void *src_context, size_t n, void *stream);
int cuMemcpyPeerAsync(uint64_t dst, void *dst_context, uint64_t src, void *src_context, size_t n, void *stream) {
    ENTER();
    int rc = usable(stream, "cuMemcpyPeerAsync");
    if (rc == OK)
        rc = is(dst_context, CONTEXT, "cuMemcpyPeerAsync");
    if (rc == OK)
        rc = is(src_context, CONTEXT, "cuMemcpyPeerAsync");
    char *to = rc == OK ? behind(dst, n, "cuMemcpyPeerAsync") : NULL;
    const char *from = to ? behind(src, n, "cuMemcpyPeerAsync") : NULL;
    if (rc == OK)
        rc = from ? move(stream, (struct move){.to = to, .from = from, .n = n}, "cuMemcpyPeerAsync") : BAD_VALUE;
    return leave(rc);
}

int cuMemsetD8Async(uint64_t p, unsigned char v, size_t n, void *stream);
int cuMemsetD8Async(uint64_t p, unsigned char v, size_t n, void *stream) {
    ENTER();
    int rc = usable(stream, "cuMemsetD8Async");
    char *to = rc == OK ? behind(p, n, "cuMemsetD8Async") : NULL;
    if (rc == OK)
        rc = move(stream, (struct move){.to = to, .n = n, .value = v}, "cuMemsetD8Async");
    return leave(rc);
}

/* A stream or an event. */
static int create(void **out, enum kind kind, const char *name) {
    struct thing *t = NULL;
    ENTER();
    int rc = in_context(name);
    if (rc == OK)
        rc = take(&t, kind, current->device, 0);
    *out = t;
    return leave(rc);
}

int cuStreamCreate(void **stream, unsigned flags);
int cuStreamCreate(void **stream, unsigned flags) {
    (void)flags;
    return create(stream, STREAM, "cuStreamCreate");
}

int cuStreamDestroy_v2(void *stream);
int cuStreamDestroy_v2(void *stream) {
    ENTER();
    const int rc = is(stream, STREAM, "cuStreamDestroy");
    if (rc == OK) {
        drain(stream, UINT64_MAX);
        drop(stream);
    }
    return leave(rc);
}

int cuStreamSynchronize(void *stream);
int cuStreamSynchronize(void *stream) {
    ENTER();
    int rc = is(stream, STREAM, "cuStreamSynchronize");
    if (rc == OK && ((struct thing *)stream)->graph)
        rc = wrong(CAPTURING, "cuStreamSynchronize: of a stream that is being captured");
    if (rc == OK) {
        drain(stream, UINT64_MAX);
        rc = is_done(stream, "cuStreamSynchronize");
    }
    return leave(rc);
}

int cuStreamQuery(void *stream);
int cuStreamQuery(void *stream) {
    const struct thing *s = stream;
    ENTER();
    int rc = is(stream, STREAM, "cuStreamQuery");
    if (rc == OK && s->graph)
        rc = wrong(CAPTURING, "cuStreamQuery: of a stream that is being captured");
    if (rc == OK) {
        drain(stream, UINT64_MAX);
        rc = s->first == s->next ? OK : NOT_READY;
    }
    return leave(rc);
}

int cuEventCreate(void **event, unsigned flags);
int cuEventCreate(void **event, unsigned flags) {
    (void)flags;
    return create(event, EVENT, "cuEventCreate");
}

int cuEventDestroy_v2(void *event);
int cuEventDestroy_v2(void *event) {
    ENTER();
    const int rc = is(event, EVENT, "cuEventDestroy");
    if (rc == OK)
        drop(event);
    return leave(rc);
}

int cuEventRecord(void *event, void *stream);
int cuEventRecord(void *event, void *stream) {
    struct thing *e = event, *s = stream;
    ENTER();
    int rc = is(event, EVENT, "cuEventRecord");
    if (rc == OK)
        rc = is(stream, STREAM, "cuEventRecord");
    if (rc == OK && s->graph)
        rc = wrong(CAPTURING, "cuEventRecord: in a stream that is being captured");
    if (rc == OK) {
        e->stream = s;
        e->next = s->next;
    }
    return leave(rc);
}

int cuEventSynchronize(void *event);
int cuEventSynchronize(void *event) {
    struct thing *e = event;
    ENTER();
    const int rc = is(event, EVENT, "cuEventSynchronize");
    if (rc == OK && e->stream)
        drain(e->stream, e->next);
    return leave(rc);
}

/* Who asks sees one more of the moves done. */
int cuEventQuery(void *event);
int cuEventQuery(void *event) {
    struct thing *e = event;
    ENTER();
    int rc = is(event, EVENT, "cuEventQuery");
    if (rc == OK && e->stream && e->stream->kind == STREAM && e->stream->first < e->next) {
        drain(e->stream, e->stream->first + 1);
        rc = e->stream->first < e->next ? NOT_READY : OK;
    }
    return leave(rc);
}

int cuStreamWaitEvent(void *stream, void *event, unsigned flags);
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    struct thing *e = event;
    (void)flags;
    ENTER();
    int rc = is(stream, STREAM, "cuStreamWaitEvent");
    if (rc == OK && (e < things || e >= things + MOST_THINGS || e->kind != EVENT))
        rc = wrong(BAD_HANDLE, "cuStreamWaitEvent: no event");
    if (rc == OK && e->stream)
        rc = add(stream, (struct move){.stream = e->stream, .until = e->next}, "cuStreamWaitEvent");
    return leave(rc);
}

int cuCtxEnablePeerAccess(void *context, unsigned flags);
int cuCtxEnablePeerAccess(void *context, unsigned flags) {
    (void)flags;
    ENTER();
    return leave(is(context, CONTEXT, "cuCtxEnablePeerAccess"));
}

int cuStreamBeginCapture_v2(void *stream, int mode);
int cuStreamBeginCapture_v2(void *stream, int mode) {
    struct thing *s = stream;
    (void)mode;
    ENTER();
    int rc = is(stream, STREAM, "cuStreamBeginCapture");
    if (rc == OK && s->graph)
        rc = wrong(CAPTURING, "cuStreamBeginCapture: of a stream that is being captured");
    if (rc == OK)
        rc = take(&s->graph, GRAPH, s->device, 0);
    return leave(rc);
}

int cuStreamEndCapture(void *stream, void **graph);
int cuStreamEndCapture(void *stream, void **graph) {
    struct thing *s = stream;
    ENTER();
    int rc = is(stream, STREAM, "cuStreamEndCapture");
    if (rc == OK && !s->graph)
        rc = wrong(BAD_VALUE, "cuStreamEndCapture: of a stream that is not being captured");
    if (rc == OK) {
        *graph = s->graph;
        s->graph = NULL;
    }
    return leave(rc);
}

int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags);
int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags) {
    struct thing *t = NULL;
    const struct thing *g = graph;
    (void)flags;
    ENTER();
    int rc = is(graph, GRAPH, "cuGraphInstantiate");
    if (rc == OK)
        rc = take(&t, EXEC, g->device, 0);
    if (rc == OK) {
        memcpy(t->moves, g->moves, g->next * sizeof *g->moves);
        t->next = g->next;
        t->n_launches = g->n_launches;
        *exec = t;
    }
    return leave(rc);
}

int cuGraphDestroy(void *graph);
int cuGraphDestroy(void *graph) {
    ENTER();
    const int rc = is(graph, GRAPH, "cuGraphDestroy");
    if (rc == OK)
        drop(graph);
    return leave(rc);
}

int cuGraphExecDestroy(void *exec);
int cuGraphExecDestroy(void *exec) {
    ENTER();
    const int rc = is(exec, EXEC, "cuGraphExecDestroy");
    if (rc == OK)
        drop(exec);
    return leave(rc);
}

int cuGraphLaunch(void *exec, void *stream);
int cuGraphLaunch(void *exec, void *stream) {
    const struct thing *e = exec;
    ENTER();
    int rc = is(exec, EXEC, "cuGraphLaunch");
    if (rc == OK)
        rc = is(stream, STREAM, "cuGraphLaunch");
    for (uint64_t i = 0; rc == OK && i < e->next; i++)
        rc = add(stream, e->moves[i], "cuGraphLaunch");
    if (rc == OK) {
        fake_cuda.n_graphs++;
        fake_cuda.n_launches += e->n_launches;
    }
    return leave(rc);
}

int cuLaunchKernelEx(const struct launch *c, void *function, void **params, void **extra);
int cuLaunchKernelEx(const struct launch *c, void *function, void **params, void **extra) {
    struct thing *s = c->stream;
    const struct kernel *k = function;
    (void)extra;
    ENTER();
    int rc = is_kernel(k, "cuLaunchKernelEx");
    if (rc == OK)
        rc = is(s, STREAM, "cuLaunchKernelEx");
    const unsigned threads = c->block[0] * c->block[1] * c->block[2];
    if (rc == OK && (!c->grid[0] || !c->grid[1] || !c->grid[2] || c->grid[0] > INT32_MAX || c->grid[1] > 65535 ||
                     c->grid[2] > 65535 || !threads || threads > 1024))
        rc = wrong(BAD_VALUE, "a launch of %u x %u x %u blocks of %u threads", c->grid[0], c->grid[1], c->grid[2],
                   threads);
    if (rc == OK && c->shared > (unsigned)k->shared)
        rc = wrong(BAD_VALUE, "a launch with %u bytes of shared memory; %d are allowed", c->shared, k->shared);
    if (rc == OK && (!params || !params[0]))
        rc = wrong(BAD_VALUE, "a launch without arguments");
    if (rc == OK && s->graph)
        s->graph->n_launches++;
    else if (rc == OK)
        fake_cuda.n_launches++;
    return leave(rc);
}

/* ---- for the library of exchanges that stands in (fake_nccl.c) ---- */

int fake_cuda_meet(struct fake_meeting *meeting, uint32_t rank, void *stream, uint64_t src, uint64_t dst, size_t n) {
    struct thing *s = stream;
    ENTER();
    int rc = s >= things && s < things + MOST_THINGS && s->kind == STREAM
                 ? OK
                 : wrong(BAD_HANDLE, "an exchange on what is no stream");
    char *to = rc == OK ? behind(dst, n * meeting->n, "an exchange") : NULL;
    const char *from = to ? behind(src, n, "an exchange") : NULL;
    meeting->streams[rank] = s;
    if (rc == OK)
        rc = from ? add(s, (struct move){.to = to, .from = from, .n = n, .meeting = meeting, .rank = rank}, "an exchange")
                  : BAD_VALUE;
    return leave(rc);
}

void fake_cuda_part(struct fake_meeting *meeting, bool abort) {
    pthread_mutex_lock(&lock);
    meeting->aborted |= abort;
    for (struct thing *t = things; t < things + MOST_THINGS; t++) {
        for (uint64_t i = 0; t->kind == EXEC && i < t->next && !lost(); i++)
            if (t->moves[i].meeting == meeting) {
                wrong(BAD_VALUE, "a communicator goes before a graph that has it");
                break;
            }
        if (t->kind != STREAM)
            continue;
        drain(t, t->next);
        for (uint64_t i = t->first; i < t->next; i++)
            if (t->moves[i % MOST_MOVES].meeting == meeting)
                wrong(BAD_VALUE, "a communicator goes while an exchange waits for it");
    }
    pthread_mutex_unlock(&lock);
}

bool fake_cuda_refuses_exchange(void) {
    pthread_mutex_lock(&lock);
    const bool refuses = ++fake_cuda.n_exchanges == fake_cuda.fail_exchange_at || lost();
    pthread_mutex_unlock(&lock);
    return refuses;
}

/* ---- for tests ---- */

void fake_cuda_reset(void) {
    pthread_mutex_lock(&lock);
    for (struct thing *t = things; t < things + MOST_THINGS; t++)
        if (t->kind)
            drop(t);
    memset(kernels, 0, sizeof kernels);
    memset(devices, 0, sizeof devices);
    fake_cuda = (struct fake_cuda){
#define DEFAULT(name, value) .name = value,
        FAKE_CUDA_SETTING_LIST(DEFAULT)
#undef DEFAULT
    };
    pthread_mutex_unlock(&lock);
}

const void *fake_cuda_look(uint64_t address) {
    const void *found = NULL;
    pthread_mutex_lock(&lock);
    for (struct thing *t = things; t < things + MOST_THINGS && !found; t++)
        if (t->kind == MEMORY && address >= (uintptr_t)t->at && address < (uintptr_t)t->at + t->asked) {
            drain_device(t->device);
            found = t->at + t->size + (address - (uintptr_t)t->at);
        }
    pthread_mutex_unlock(&lock);
    return found;
}
