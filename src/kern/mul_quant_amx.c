/* Products of quantised weights with many columns, on AMX tiles (amx_panel.h); few columns are
 * mul_quant_avx512intel.c's, of codebook types mul_quant_avx512vbmi.c's, and mul_rows_avx512vbmi.c's. */
#include "kern/amx_256.h"
#include "kern/amx_32.h"

enum {
    FEW_32 = 16,  /* fewer columns than this are not worth a tile, */
    FEW_256 = 32, /* nor digits */
};

typedef void panel_fn(const struct panel *p);

static void mul(panel_fn *panel, size_t block, float *y, size_t ldy, const uint8_t *w, size_t w_stride,
                size_t n_w, const uint8_t *x, size_t x_stride, size_t n_x, size_t k) {
    const size_t run = block == 256 ? 1 : PARTS * PART, n_blocks = k / block;
    const size_t size = block == 256 ? sizeof(struct lode_block_a256) : sizeof(struct lode_block_a32);
    const size_t most = block == 256 ? NEAR_256 : COLUMNS;
    union {
        struct group256 of256;
        struct columns32 of32[PARTS];
    } columns[2] __attribute__((aligned(PAGE)));
    configure(block == 256 ? 64 : 32);
    for (size_t j = 0; j < n_x; j += CHUNK)
        for (size_t i = 0; i < n_w; i += TILES * LANES) {
            struct packing packing = {.x = x + j * x_stride, .x_stride = x_stride, .ready = &columns[0],
                                      .next = &columns[1], .n = least(least(n_x - j, CHUNK), most),
                                      .n_blocks = least(n_blocks, run)};
            for (size_t b = 0; b < n_blocks; b += run) {
                const size_t left = n_blocks - b;
                const struct panel p = {.w = w + i * w_stride, .w_stride = w_stride, .n_w = least(n_w - i, TILES * LANES),
                                        .x = x + j * x_stride + b * size, .x_stride = x_stride,
                                        .n_x = least(n_x - j, CHUNK), .y = y + j * ldy + i, .ldy = ldy, .block = b,
                                        .n_blocks = least(left, run), .n_next = least(left - least(left, run), run),
                                        .packing = &packing};
                panel(&p);
            }
        }
    TILE_RELEASE(); /* so that a switch of threads need not save them */
}

#define MUL(name, block, ...) MUL_OF(name, block, sizeof(struct lode_block_##name), __VA_ARGS__)
#define MUL_OF(name, block, size, ...) MUL_BY(name, avx512intel, block, size, __VA_ARGS__)
#define MUL_BITS(name, block, ...) MUL_BY(name, avx512vbmi, block, sizeof(struct lode_block_##name), __VA_ARGS__)
#define MUL_CODES(name, ...) MUL_BY(name, avx512vbmi, 256, sizeof(struct lode_block_##name), __VA_ARGS__)
#define MUL_TILED(name, ...)
#define MUL_BY(name, isa, block, size, ...)                                                        \
    static __attribute__((noinline)) void panel_##name(const struct panel *p) {                    \
        const struct shape s = {__VA_ARGS__};                                                      \
        panel##block(s, UNPACK_##block(name), size, p);                                            \
    }                                                                                              \
    void mul_##name##_amx LODE_MUL_ARGS {                                                          \
        if (n_x < FEW_##block || k == 0)                                                           \
            mul_##name##_##isa(y, ldy, w, w_stride, n_w, x, x_stride, n_x, k);                     \
        else                                                                                       \
            mul(panel_##name, block, y, ldy, w, w_stride, n_w, x, x_stride, n_x, k);               \
    }
#include "kern/mul_types.h"
