/* wide_alone.c - one kernel of prompts on Hopper's warpgroups (wide.cu, wide_glu.cu), launched alone: versions of it in turns, on
 * the same random weights and rows, what each takes and whether all give the same bits.
 *
 *     nvcc -std=c++17 -O3 -fmad=false -cubin -arch=sm_90a -Isrc -o now.cubin src/backend/cuda/kernels/products/wide.cu
 *     cc -O2 -Isrc -Iinclude -o wide_alone bench/wide_alone.c build/liblode.a -ldl
 *     ./wide_alone wide_q4_k_128 4096 12288 512 before.cubin now.cubin     (kernel, rows of w, columns, rows of x)
 *
 * N as 32e2048: 2,048 pairs of a row and one of 32 experts, some of which are wanted far more often than others; ROWS are an expert's.
 * Kernels are wide_TYPE_64, wide_TYPE_128, wide_ahead_TYPE (64) and wide_glu_TYPE (rows: gate's and up's together).  bench/sass_stalls.py says where such
 * a kernel waits.
 */
#include "backend/cuda/driver.h"
#include "backend/cuda/kernels/shared.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/half.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 20, TURNS = 5, MOST = 16 /* versions */, MULTIPROCESSORS = 132, CLOCK_MHZ = 1755 };

/* A type's planes as the device has them (shared.h): all blocks' of one after all of the one before; its scales begin the last. */
struct type {
    const char *name;
    uint32_t block, planes[4][2]; /* offset in a file's block, bytes */
};
static const struct type types[] = {
#define TYPE(name, dtype, block, ...) {#name, block, {__VA_ARGS__}},
    LODE_CUDA_QUANT_LIST(TYPE)
#undef TYPE
};

static uint64_t seed = 88172645463325252u;
static uint32_t bits(void) { /* xorshift64 */
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 20);
}
static void *room(size_t n) {
    void *p = malloc(n);
    if (!p) {
        fprintf(stderr, "wide_alone: no memory for %zu bytes\n", n);
        exit(1);
    }
    return p;
}

/* ---- what is multiplied ---- */

struct shape {
    const struct type *type;
    uint32_t rows, cols, n, tile; /* of w, of both, of x; rows of a tile of x */
    bool gated;
    uint32_t n_experts; /* 0: rows as they come */
    uint32_t n_tiles;
    struct lode_cuda_gemm_tile *tiles; /* behind one that says how many (n_experts) */
};

static size_t row_size(const struct shape *s) {
    size_t size = 0;
    for (int i = 0; i < 4; i++)
        size += s->type->planes[i][1];
    return (s->cols / s->type->block * size + 15) & ~(size_t)15;
}
/* Rows of weights: of all experts. */
static uint32_t weight_rows(const struct shape *s) { return s->rows * (s->n_experts ? s->n_experts : 1); }
/* Random bytes, and for each block scales from 2^-8 to 2^-7 of either sign. */
static uint8_t *weights(const struct shape *s) {
    const size_t stride = row_size(s), nb = s->cols / s->type->block;
    const uint32_t rows = weight_rows(s);
    uint8_t *w = room(stride * rows);
    int last = 3;
    while (last && s->type->planes[last][1] == 0)
        last--;
    size_t before = 0;
    for (int i = 0; i < last; i++)
        before += s->type->planes[i][1];
    const size_t each = s->type->planes[last][1];
    for (size_t i = 0; i < stride * rows; i++)
        w[i] = (uint8_t)bits();
    for (uint32_t r = 0; r < rows; r++)
        for (size_t b = 0; b < nb; b++) {
            uint8_t *p = w + r * stride + nb * before + b * each;
            if (each == 1) /* an exponent (MXFP4) */
                *p = (uint8_t)(118 + bits() % 4);
            else
                for (size_t k = 0; k < (each == 4 || each == 16 ? 4u : 2u); k += 2) {
                    const uint16_t d = (uint16_t)(0x1c00 + bits() % 0x400 + (bits() & 0x8000));
                    memcpy(p + k, &d, 2);
                }
        }
    return w;
}

/* Pairs' tiles as group_pairs lists them: those of many columns first. */
static void sort_pairs(struct shape *s) {
    uint32_t *counts = room(s->n_experts * sizeof *counts), left = s->n;
    memset(counts, 0, s->n_experts * sizeof *counts);
    for (; left; left--) {
        const uint64_t a = bits() % s->n_experts, b = bits() % s->n_experts;
        counts[a * b / s->n_experts]++;
    }
    s->tiles = room((s->n_experts + s->n / s->tile + 2) * sizeof *s->tiles);
    for (int kind = 0; kind < 3; kind++) {
        uint32_t first = 0;
        for (uint32_t e = 0; e < s->n_experts; first += counts[e++])
            for (uint32_t at = 0; at < counts[e]; at += s->tile) {
                const uint32_t n = counts[e] - at < s->tile ? counts[e] - at : s->tile;
                if ((n > 32 ? 0 : n > 16 ? 1 : 2) == kind)
                    s->tiles[++s->n_tiles] = (struct lode_cuda_gemm_tile){e, first + at, n, 0};
            }
    }
    s->tiles[0] = (struct lode_cuda_gemm_tile){s->n_tiles, 0, 0, 0};
    free(counts);
}

static size_t tile_size(const struct shape *s) {
    return (size_t)s->tile * (s->type->block == 256 ? s->cols / 256 * 584 : (s->cols + 127) / 128 * 160);
}
/* Rows as wide_x.cuh has them in tiles: of blocks of 256 high bytes, low ones, and for each 64 rows sums in halves, scales, sums of
 * sums; of four blocks of 32 bytes, and for each 64 rows scales, sums. */
static uint8_t *columns(const struct shape *s) {
    enum { ROWS = 64 };
    const float scale = s->gated ? 1e-12f : 1e-5f; /* gated results within reach of silu's short way */
    const bool by_256 = s->type->block == 256;
    uint8_t *x = room(tile_size(s) * s->n_tiles), *p = x;
    for (uint32_t t = 0; t < s->n_tiles; t++)
        for (uint32_t b = 0; b < (by_256 ? s->cols / 256 : (s->cols + 127) / 128); b++) {
            const uint32_t n = s->tile, some = by_256 ? ROWS : 4 * ROWS;
            for (uint32_t i = 0; i < n * (by_256 ? 256u : 128u); i++)
                *p++ = (uint8_t)(by_256 ? (int)(bits() % 16) - 8 : (int)(bits() % 255) - 127);
            for (uint32_t i = 0; by_256 && i < n * 256; i++)
                *p++ = (uint8_t)bits();
            for (uint32_t of = 0; of < n; of += ROWS) {
                for (uint32_t i = 0; by_256 && i < ROWS * 32; i++, p += 2) {
                    const uint16_t v = lode_f32_f16((float)((int)(bits() % 255) - 127));
                    memcpy(p, &v, 2);
                }
                for (uint32_t i = 0; i < 2 * some; i++, p += 4) {
                    const float v = i < some ? (float)(bits() % 1000 + 1) * scale : (float)((int)(bits() % 10000) - 5000);
                    memcpy(p, &v, 4);
                }
            }
        }
    return x;
}

/* ---- the device ---- */

static struct lode_cu cu;
static void *stream;
/* rc: less than 0 with an error. */
static void told(int rc, const struct lode_error *err) {
    if (rc < 0) {
        fprintf(stderr, "wide_alone: %s: %s\n", err->where, err->text);
        exit(1);
    }
}
static void must(lode_cu_result rc, const char *what) {
    struct lode_error err = {0};
    told(lode_cu_check(&cu, rc, what, &err), &err);
}
static lode_cu_ptr on_device(const void *p, size_t n) {
    lode_cu_ptr d;
    must(cu.alloc(&d, n), "memory");
    must(cu.to_device(d, p, n, stream), "copy");
    must(cu.stream_wait(stream), "copy");
    return d;
}
static void *kernel_of(const char *path, const char *name) {
    struct lode_in_file f;
    struct lode_error err = {0};
    void *module, *function;
    told(lode_in_open(&f, path, &err), &err);
    told(lode_in_map(&f, &err), &err);
    must(cu.module_load(&module, f.data), path);
    must(cu.module_function(&function, module, name), name);
    must(cu.function_set(function, LODE_CU_FUNCTION_SHARED, LODE_WIDE_SHARED), name);
    lode_in_close(&f);
    return function;
}
static void launch(void *function, uint32_t grid, struct lode_cuda_packed_args *a) {
    const struct lode_cu_launch l = {.grid = {grid, 1, 1}, .block = {LODE_WIDE_THREADS, 1, 1}, .shared = LODE_WIDE_SHARED,
                                     .stream = stream};
    void *params[] = {a};
    must(cu.launch_ex(&l, function, params, NULL), "launch");
}

/* What a launch leaves at at_y, of which nothing was there before. */
static void results(void *function, uint32_t grid, struct lode_cuda_packed_args *a, lode_cu_ptr at_y, uint32_t *y, size_t size) {
    must(cu.set8(at_y, 0xff, size, stream), "set");
    launch(function, grid, a);
    must(cu.to_host(y, at_y, size, stream), "copy");
    must(cu.stream_wait(stream), "launch");
}

static const struct type *type_in(const char *kernel) {
    static const char *const prefixes[] = {"wide_glu_", "wide_ahead_", "wide_"};
    const char *name = kernel;
    for (int i = 0; i < 3 && name == kernel; i++)
        if (strncmp(kernel, prefixes[i], strlen(prefixes[i])) == 0)
            name += strlen(prefixes[i]);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const size_t n = strlen(types[i].name);
        if (strncmp(name, types[i].name, n) == 0 && (name[n] == 0 || strcmp(name + n, "_64") == 0 || strcmp(name + n, "_128") == 0))
            return &types[i];
    }
    return NULL;
}

/* Whether two results of `rows` numbers for each row of x are the same; says where they are not. */
static bool are_same(const uint32_t *a, const uint32_t *b, const struct shape *s, uint32_t rows) {
    size_t other = 0, first = 0;
    for (size_t i = (size_t)rows * s->n; i-- > 0;)
        if (a[i] != b[i])
            other++, first = i;
    if (!other)
        return true;
    const uint32_t x = (uint32_t)(first / rows);
    uint32_t t = s->n_experts ? 1 : 0;
    while (t && t < s->n_tiles && (x < s->tiles[t].first || x >= s->tiles[t].first + s->tiles[t].n))
        t++;
    fprintf(stderr, "%zu numbers are others; first: row %u of x, row %u of w, %g for %g", other, x, (uint32_t)(first % rows),
            (double)lode_bits_f32(a[first]), (double)lode_bits_f32(b[first]));
    if (t)
        fprintf(stderr, "; row %u of tile %u of %u, of %u rows", x - s->tiles[t].first, t - 1, s->n_tiles, s->tiles[t].n);
    fprintf(stderr, "\n");
    return false;
}

int main(int argc, char **argv) {
    const char *kernel = argc < 6 || argc > 5 + MOST ? NULL : argv[1];
    const struct type *type = kernel ? type_in(kernel) : NULL;
    if (!type) {
        fprintf(stderr, "usage: wide_alone KERNEL ROWS COLUMNS N CUBIN...  (wide_q4_k_128 4096 12288 512 before.cubin now.cubin)\n");
        return 2;
    }
    const size_t name = strlen(kernel);
    struct shape s = {type, (uint32_t)atoi(argv[2]), (uint32_t)atoi(argv[3]), 0, 128, false, 0, 0, NULL};
    const char *experts = strchr(argv[4], 'e');
    s.n_experts = experts ? (uint32_t)atoi(argv[4]) : 0;
    s.n = (uint32_t)atoi(experts ? experts + 1 : argv[4]);
    s.gated = strncmp(kernel, "wide_glu_", 9) == 0;
    if (!s.gated && (strcmp(kernel + name - 3, "_64") == 0 || strncmp(kernel, "wide_ahead_", 11) == 0))
        s.tile = 64;
    const uint32_t whole = s.gated ? 128 : 8;
    if (s.rows == 0 || s.rows % whole || s.cols == 0 || s.cols % type->block || s.n == 0 ||
        (experts ? s.n_experts == 0 : s.n > s.tile && s.n % s.tile)) {
        fprintf(stderr, "wide_alone: rows are a multiple of %u, columns of %u, N is one of %u or less\n", whole, type->block, s.tile);
        return 2;
    }
    struct lode_error err = {0};
    int device;
    void *context;
    told(lode_cu_open(&cu, &err), &err);
    must(cu.device_get(&device, 0), "device");
    must(cu.context_retain(&context, device), "context");
    must(cu.context_set(context), "context");
    must(cu.stream_create(&stream, 0), "stream");

    const uint32_t out = s.gated ? s.rows / 2 : s.rows;
    const size_t y_size = (size_t)out * s.n * sizeof(float), stride = row_size(&s);
    if (experts)
        sort_pairs(&s);
    else
        s.n_tiles = (s.n + s.tile - 1) / s.tile;
    uint8_t *w = weights(&s), *x = columns(&s);
    uint32_t *y = room(y_size), *first = room(y_size);
    memset(y, 0xff, y_size);
    const lode_cu_ptr at_w = on_device(w, stride * weight_rows(&s)), at_x = on_device(x, tile_size(&s) * s.n_tiles),
                      at_y = on_device(y, y_size);
    struct lode_cuda_packed_args a = {.g = {.n_parts = 1, .n_x = s.n, .cols = s.cols, .x_div = 1, .x = {at_x, tile_size(&s)},
                                            .w_tiles = s.gated ? out / 64 : (out + LODE_WIDE_W - 1) / LODE_WIDE_W},
                                      .end = {.output = s.gated ? LODE_GEMV_GLU : 0, .scale = 1}};
    a.g.parts[0] = (struct lode_cuda_part){.w = at_w, .y = at_y, .w_stride = stride, .y_stride = out * sizeof(float), .rows = out};
    a.g.parts[1] = a.g.parts[0];
    a.g.parts[1].w = at_w + (lode_cu_ptr)out * stride;
    if (experts) {
        uint32_t *list = room(s.n * sizeof *list);
        for (uint32_t i = 0; i < s.n; i++)
            list[i] = i;
        a.g.tiles = on_device(s.tiles, (s.n_tiles + 1) * sizeof *s.tiles);
        a.g.list = on_device(list, s.n * sizeof *list);
        a.g.expert_size[0] = a.g.expert_size[1] = s.rows * stride;
    }
    const uint32_t units = a.g.w_tiles * s.n_tiles, grid = units < MULTIPROCESSORS ? units : MULTIPROCESSORS;

    const int n = argc - 5;
    void *kernels[MOST];
    double best[MOST];
    bool same[MOST];
    for (int i = 0; i < n; i++) {
        kernels[i] = kernel_of(argv[5 + i], kernel);
        best[i] = 1e9;
        same[i] = true;
    }
    results(kernels[0], grid, &a, at_y, first, y_size);
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < n; i++) {
            const double start = lode_clock();
            for (int k = 0; k < RUNS; k++)
                launch(kernels[i], grid, &a);
            must(cu.stream_wait(stream), argv[5 + i]);
            const double took = (lode_clock() - start) / RUNS;
            best[i] = took < best[i] ? took : best[i];
        }
    for (int i = 0; i < n * RUNS; i++) {
        results(kernels[i / RUNS], grid, &a, at_y, y, y_size);
        same[i / RUNS] = same[i / RUNS] && are_same(y, first, &s, out);
    }
    /* of a multiprocessor, for 128 rows by 128 by 256 numbers, at the clock that notes reckon with */
    const double blocks = (double)s.rows / 128 * s.n / 128 * s.cols / 256 / MULTIPROCESSORS;
    for (int i = 0; i < n; i++)
        printf("%s %u x %u by %s  %-24s %9.1f us  %6.0f cycles  %.3f  %s\n", kernel, s.rows, s.cols, argv[4], argv[5 + i], best[i] * 1e6,
               best[i] * CLOCK_MHZ * 1e6 / blocks, best[0] / best[i], same[i] ? "the same" : "OTHER BITS");
    for (int i = 0; i < n; i++)
        if (!same[i])
            return 1;
    return 0;
}
