/* Blocks to float32: every instruction set as the scalar one.  That the scalar one is right is
 * shown by tests/unit/test_quant_ref.c, against GGML's own results. */
#include "blocks.h"
#include "kc.h"

static const size_t block_counts[] = {0, 1, 2, 3, 4, 5, 8, 17};
static const size_t number_counts[] = {0,  1,  2,  3,  4,  5,  7,  8,   9,   15,  16,
                                       17, 31, 32, 33, 63, 64, 65, 100, 255, 1000};

static void check_count(struct kc *t, enum lode_dtype type, size_t n, enum blocks_kind kind) {
    const struct lode_dtype_info *info = &lode_dtypes[type];
    const size_t size = n / info->block * info->bytes;
    char *w = kc_tight(t, size);
    float *want = kc_tight(t, n * sizeof *want), *got = kc_tight(t, n * sizeof *got);
    kc_case(t, "n=%zu, kind %d", n, kind);
    blocks_fill(t, type, w, size, kind);
    t->ref->dequant[type](want, w, n);
    t->now->dequant[type](got, w, n);
    kc_same_floats(t, got, want, n);
}

static void check_dequant(struct kc *t, enum lode_dtype type) {
    const size_t block = lode_dtypes[type].block;
    if (block == 1) {
        KC_EACH(n, number_counts) {
            check_count(t, type, n, BLOCKS_FINITE);
            check_count(t, type, n, BLOCKS_ANY);
        }
    } else {
        KC_EACH(n, block_counts) {
            check_count(t, type, n * block, BLOCKS_FINITE);
            check_count(t, type, n * block, BLOCKS_ANY);
            check_count(t, type, n * block, BLOCKS_CORNER);
        }
    }
    const size_t n = 4096, size = n / block * lode_dtypes[type].bytes;
    char *w = kc_tight_aligned(t, size, 64);
    float *y = kc_tight_aligned(t, n * sizeof *y, 64);
    blocks_fill(t, type, w, size, BLOCKS_FINITE);
    KC_TIME(t, "n=4096", (double)(size + 4 * n), (double)n)
    t->now->dequant[type](y, w, n);
}

#define CHECK(suffix, type)                                                                        \
    void check_dequant_##suffix(struct kc *t) { check_dequant(t, LODE_##type); }
LODE_DEQUANT_LIST(CHECK)
