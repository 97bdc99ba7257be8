/* device.c - finding a device, and its memory. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/products/stream_shared.h"

#include "base/alloc.h"

#include <stdio.h>

const struct lode_cuda_layout lode_cuda_layouts[LODE_DTYPE_COUNT] = {
#define PLANES(suffix, type, of, twice, blocks, fused, many, ...)                                  \
    [LODE_##type] = {.block = blocks,                                                              \
                     .n = sizeof((uint32_t[][2]){__VA_ARGS__}) / 8,                                \
                     .plane = {__VA_ARGS__},                                                       \
                     .family = LODE_CUDA_##of,                                                     \
                     .adds_twice = twice,                                                          \
                     .gemv = true,                                                                 \
                     .few = fused,                                                                 \
                     .gemm = many},
#define MIN(type) (LODE_##type == LODE_Q4_1 || LODE_##type == LODE_Q5_1)
#define QUANT(suffix, type, block, ...) PLANES(suffix, type, COMMON, MIN(type), block, true, true, __VA_ARGS__)
#define U(suffix, type, block, ...) PLANES(suffix, type, U, true, block, LODE_##type == LODE_U4, true, __VA_ARGS__)
#define U8(suffix, type, block, ...) PLANES(suffix, type, U, true, block, false, false, __VA_ARGS__)
#define HALVED(type) (LODE_##type == LODE_NVFP4 || LODE_##type == LODE_NVFP4G)
#define PART(suffix, type, block, ...) PLANES(suffix, type, PART, HALVED(type), block, !HALVED(type), true, __VA_ARGS__)
#define CODEBOOK(suffix, type, block, ...) PLANES(suffix, type, CODEBOOK, false, block, false, true, __VA_ARGS__)
#define FLOAT(suffix, type) [LODE_##type] = {.n = 1, .plain = true, .gemv = true, .few = true, .gemm = true},
#define PACKED(suffix, type) [LODE_##type] = {.n = 1, .plain = true},
    LODE_CUDA_QUANT_LIST(QUANT) LODE_CUDA_U_LIST(U) LODE_CUDA_U8_LIST(U8) LODE_CUDA_PART_LIST(PART)
    LODE_CUDA_CODEBOOK_LIST(CODEBOOK) LODE_CUDA_FLOAT_LIST(FLOAT) LODE_CUDA_PACKED_LIST(PACKED)
#undef PACKED
#undef FLOAT
#undef CODEBOOK
#undef U8
#undef PART
#undef HALVED
#undef U
#undef QUANT
#undef MIN
#undef PLANES
};

size_t lode_cuda_row_size(enum lode_dtype type, uint32_t cols) {
    size_t size = 0;
    lode_dtype_row_size(type, cols, &size);
    return type == LODE_F32 ? (size + 7) & ~(size_t)7 : (size + 15) & ~(size_t)15;
}

/* A row may be read by whole lines (stream_shared.h), of which the last one's end is then behind the matrix. */
uint64_t lode_cuda_matrix_size(const struct lode_operand *w) {
    return ((uint64_t)lode_cuda_row_size(w->type, w->cols) * w->rows + LODE_STREAM_LINE - 16 + 255) & ~(uint64_t)255;
}

int lode_cuda_enter(const struct lode_cuda *c, struct lode_error *err) {
    return lode_cu_check(&c->cu, c->cu.context_set(c->context), "context", err);
}

int lode_cuda_launch(const struct lode_cuda *c, void *stream, void *kernel, uint32_t x, uint32_t y,
                     uint32_t z, uint32_t threads, uint32_t shared, const void *args,
                     struct lode_error *err) {
    return lode_cuda_launch_once(c, (struct lode_cuda_once){0}, stream, kernel, x, y, z, threads, shared, args, err);
}

int lode_cuda_launch_once(const struct lode_cuda *c, struct lode_cuda_once once, void *stream, void *kernel, uint32_t x, uint32_t y,
                          uint32_t z, uint32_t threads, uint32_t shared, const void *args, struct lode_error *err) {
    if (x == 0 || y == 0 || z == 0)
        return 0;
    void *params[1] = {(void *)(uintptr_t)args};
    /* from Hopper on, its blocks may come before the last kernel has ended: kernels/common.cuh, begin */
    struct lode_cu_attribute with[2];
    unsigned n = 0;
    if (c->major >= 9)
        with[n++] = (struct lode_cu_attribute){.id = LODE_CU_EARLY, .value.on = 1};
    if (once.n && c->window_most > 0)
        with[n++] = (struct lode_cu_attribute){
            .id = LODE_CU_WINDOW,
            .value.window = {once.at, once.n < (uint64_t)c->window_most ? once.n : (uint64_t)c->window_most, 1, LODE_CU_STREAMING, 0}};
    const struct lode_cu_launch config = {{x, y, z}, {threads, 1, 1}, shared, stream, with, n};
    return lode_cu_check(&c->cu, c->cu.launch_ex(&config, kernel, params, NULL), "kernel launch", err);
}

int lode_cuda_count(struct lode_error *why) {
    struct lode_cu cu;
    int n = 0;
    if (lode_cu_open(&cu, why) < 0)
        return 0;
    if (cu.device_count(&n) != 0 || n <= 0) {
        lode_fail(why, LODE_ERR_MISSING, "cuda", "the NVIDIA driver runs but shows no device");
        n = 0;
    }
    lode_cu_close(&cu);
    return n;
}

int lode_cuda_info(int index, char name[256], uint64_t *memory, struct lode_error *err) {
    struct lode_cu cu;
    int device = 0;
    size_t bytes = 0;
    LODE_TRY(lode_cu_open(&cu, err));
    int rc = lode_cu_check(&cu, cu.device_get(&device, index), "device", err);
    if (rc == 0)
        rc = lode_cu_check(&cu, cu.device_name(name, 256, device), "device", err);
    if (rc == 0)
        rc = lode_cu_check(&cu, cu.device_memory(&bytes, device), "device", err);
    *memory = bytes;
    lode_cu_close(&cu);
    return rc;
}

/* ---- memory ---- */

static const struct lode_cuda *of_memory(const struct lode_memory *m) {
    return (const struct lode_cuda *)((const char *)m - offsetof(struct lode_cuda, memory));
}

static void *device_alloc(const struct lode_memory *m, size_t align, size_t n, size_t size) {
    const struct lode_cuda *c = of_memory(m);
    size_t bytes;
    lode_cu_ptr p = 0;
    if (align > 4096) /* the driver aligns to 256 bytes, large pieces to more */
        return NULL;
    if (__builtin_mul_overflow(n, size, &bytes) || lode_cuda_enter(c, NULL) < 0)
        return NULL;
    return c->cu.alloc(&p, bytes ? bytes : 1) == 0 ? (void *)(uintptr_t)p : NULL;
}

static void device_free(const struct lode_memory *m, void *p) {
    const struct lode_cuda *c = of_memory(m);
    if (p && lode_cuda_enter(c, NULL) == 0)
        c->cu.free((uintptr_t)p);
}

/* Steps run on a stream of their own: whatever runs is waited for, before and after. */
static bool wait_for_all(const struct lode_cuda *c) {
    return lode_cuda_enter(c, NULL) == 0 && c->cu.context_wait() == 0;
}

/* What moves says only whether it did: lode_cuda_lost is told. */
static bool moved(const struct lode_cuda *c, bool good) {
    if (!good)
        atomic_store(c->cu.failed, true);
    return good;
}

static bool device_copy(const struct lode_memory *m, void *to, const void *from, size_t n) {
    const struct lode_cuda *c = of_memory(m);
    return moved(c, wait_for_all(c) && c->cu.copy((uintptr_t)to, (uintptr_t)from, n, NULL) == 0 && wait_for_all(c));
}

static bool device_get(const struct lode_memory *m, void *host, const void *from, size_t n) {
    const struct lode_cuda *c = of_memory(m);
    return moved(c, wait_for_all(c) && c->cu.to_host(host, (uintptr_t)from, n, NULL) == 0 && wait_for_all(c));
}

static bool device_put(const struct lode_memory *m, void *to, const void *host, size_t n) {
    const struct lode_cuda *c = of_memory(m);
    return moved(c, wait_for_all(c) && c->cu.to_device((uintptr_t)to, host, n, NULL) == 0 && wait_for_all(c));
}

static bool device_zero(const struct lode_memory *m, void *to, size_t n) {
    const struct lode_cuda *c = of_memory(m);
    return moved(c, wait_for_all(c) && c->cu.set8((uintptr_t)to, 0, n, NULL) == 0 && wait_for_all(c));
}

uint64_t lode_cuda_brought(const struct lode_cuda *c) { return atomic_load_explicit(&c->brought, memory_order_relaxed); }

/* A device that fails is not full: what is asked of it next says how it fails. */
uint64_t lode_cuda_available(const struct lode_cuda *c) {
    size_t some = 0, all = 0;
    if (lode_cuda_enter(c, NULL) < 0 || c->cu.memory_info(&some, &all) != 0)
        return c->memory_size;
    return some;
}

/* A context that met a fault answers every call with it from then on. */
bool lode_cuda_lost(struct lode_cuda *c) {
    size_t some, all;
    if (!atomic_load(&c->failed))
        return false;
    const bool lost = c->cu.context_set(c->context) != 0 || c->cu.memory_info(&some, &all) != 0;
    if (!lost)
        atomic_store(&c->failed, false);
    return lost;
}

static int no_room(const struct lode_cuda *c, lode_cu_result rc, uint64_t size, const char *where, const char *what,
                   struct lode_error *err) {
    if (rc != LODE_CU_NO_MEMORY)
        return lode_cu_check(&c->cu, rc, what, err);
    return lode_fail(err, LODE_ERR_NOMEM, where, "%s take %.1f MiB, but %.1f MiB of the memory of '%s' are free",
                     what, (double)size / 0x1p20, (double)lode_cuda_available(c) / 0x1p20, c->name);
}

int lode_cuda_take(const struct lode_cuda *c, lode_dev *p, uint64_t size, const char *where, const char *what,
                   struct lode_error *err) {
    return no_room(c, c->cu.alloc(p, size ? size : 1), size, where, what, err);
}

int lode_cuda_take_pinned(const struct lode_cuda *c, void *p, uint64_t size, struct lode_error *err) {
    const lode_cu_result rc = c->cu.host_alloc(p, size ? size : 1, 0);
    if (rc != LODE_CU_NO_MEMORY)
        return lode_cu_check(&c->cu, rc, "pinned memory", err);
    return lode_fail(err, LODE_ERR_NOMEM, "cuda", "the driver has no %.1f MiB of the host's memory to pin",
                     (double)size / 0x1p20);
}

const char *lode_cuda_name(const struct lode_cuda *c) { return c->name; }

/* ---- opening ---- */

static struct lode_tuning_device tuned_for(const struct lode_cuda *c) {
    return (struct lode_tuning_device){c->name, c->major, c->minor};
}

static void find_tuning(struct lode_cuda *c) {
    const struct lode_tuning_device d = tuned_for(c);
    struct lode_error why;
    bool found;
    if (lode_tuning_load(&c->tuning, &d, &found, &why) < 0)
        snprintf(c->note, sizeof c->note, "what --tune found for '%s' is not used: %.300s: %.300s", c->name, why.where, why.text);
}

const char *lode_cuda_note(const struct lode_cuda *c) { return c->note; }
struct lode_tuning *lode_cuda_tuning(struct lode_cuda *c, struct lode_tuning_device *d) {
    *d = tuned_for(c);
    return &c->tuning;
}

static int start(struct lode_cuda *c, int index, struct lode_error *err) {
    int n = 0;
    LODE_TRY(lode_cu_open(&c->cu, err));
    c->cu.failed = &c->failed;
    LODE_TRY(lode_cu_check(&c->cu, c->cu.device_count(&n), "devices", err));
    if (index < 0 || index >= n)
        return lode_fail(err, LODE_ERR_MISSING, "--device",
                         n ? "there is no CUDA device %d (there are %d, counted from 0)"
                           : "there is no CUDA device %d (the driver shows %d)",
                         index, n);
    LODE_TRY(lode_cu_check(&c->cu, c->cu.device_get(&c->device, index), "device", err));
    c->cu.device_name(c->name, (int)sizeof c->name, c->device);
    c->cu.device_memory(&c->memory_size, c->device);
    c->cu.device_attribute(&c->multiprocessors, LODE_CU_MULTIPROCESSORS, c->device);
    c->cu.device_attribute(&c->shared_max, LODE_CU_SHARED_OPTIN, c->device);
    c->cu.device_attribute(&c->major, LODE_CU_MAJOR, c->device);
    c->cu.device_attribute(&c->minor, LODE_CU_MINOR, c->device);
    c->cu.device_attribute(&c->second_cache, LODE_CU_SECOND_CACHE, c->device);
    c->cu.device_attribute(&c->window_most, LODE_CU_WINDOW_MOST, c->device);
    find_tuning(c);
    LODE_TRY(lode_cu_check(&c->cu, c->cu.context_retain(&c->context, c->device), c->name, err));
    LODE_TRY(lode_cuda_enter(c, err));
    return lode_cuda_find_kernels(c, err);
}

int lode_cuda_open(struct lode_cuda **out, int index, struct lode_error *err) {
    *out = NULL;
    struct lode_cuda *c = LODE_NEW(struct lode_cuda);
    if (!c)
        return lode_fail_nomem(err, "CUDA device");
    *c = (struct lode_cuda){.memory = {device_alloc, device_free, device_copy, device_get,
                                         device_put,   device_zero}};
    const int rc = start(c, index, err);
    if (rc < 0)
        lode_cuda_close(c);
    else
        *out = c;
    return rc;
}

void lode_cuda_befriend(const struct lode_cuda *a, const struct lode_cuda *b) {
    /* what fails here (no way between them, or open already) costs speed only */
    if (lode_cuda_enter(a, NULL) == 0)
        a->cu.peer_enable(b->context, 0);
    if (lode_cuda_enter(b, NULL) == 0)
        b->cu.peer_enable(a->context, 0);
}

void lode_cuda_close(struct lode_cuda *c) {
    if (!c)
        return;
    lode_cuda_forget_experts(c);
    if (c->context && lode_cuda_enter(c, NULL) == 0) {
        lode_cuda_unregister(c, &c->layers);
        if (c->arena)
            c->cu.free(c->arena);
        for (int i = 0; i < LODE_CUDA_MODULES; i++)
            if (c->modules[i])
                c->cu.module_unload(c->modules[i]);
    }
    if (c->context) /* whatever it has come to: a device that failed works again with a new one */
        c->cu.context_release(c->device);
    lode_cu_close(&c->cu);
    lode_free(c->layers.at);
    lode_free(c->weights);
    lode_free(c);
}
