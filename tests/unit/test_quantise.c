/* Quantisers: as good as llama-quantize's on the reference's rows, with and without weights; the
 * same whatever surrounds a block; and sane in the corners. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../own_files.h"
#include "base/half.h"
#include "base/rng.h"
#include "kern/kern.h"
#include "quant/quant.h"

enum { ROWS = 32, COLS = 256 };

/* sqrt(sum v (x - w)^2 / sum v x^2) over tests/vectors/quant/source.f32 (rows 8..39 of the
 * reference's source) that ggml's own blocks have; weighted with weights.f32 (0: ggml has none).
 * Ours may be 2 % worse and is better almost everywhere. */
static const struct {
    enum lode_dtype type;
    double plain, weighted;
} theirs[] = {
    {LODE_Q4_0, 0.108164, 0.105070},   {LODE_Q4_1, 0.090142, 0.077650},
    {LODE_Q5_0, 0.055416, 0.053869},   {LODE_Q5_1, 0.043542, 0.037879},
    {LODE_Q8_0, 0.006951, 0.000000},   {LODE_IQ4_NL, 0.090202, 0.089616},
    {LODE_MXFP4, 0.124985, 0.000000},  {LODE_Q2_K, 0.333437, 0.278094},
    {LODE_Q3_K, 0.177428, 0.171007},   {LODE_Q4_K, 0.082806, 0.079380},
    {LODE_Q5_K, 0.041950, 0.039635},   {LODE_Q6_K, 0.021847, 0.021259},
    {LODE_IQ4_XS, 0.091071, 0.090640},
};
#define N_TYPES (sizeof theirs / sizeof *theirs)

static struct lode_kern kern;
static float source[ROWS * COLS], weights[COLS];

static int read_vectors(void **state) {
    (void)state;
    const struct {
        const char *name;
        float *to;
        size_t n;
    } files[] = {{"source", source, ROWS * COLS}, {"weights", weights, COLS}};
    lode_kern_table(&kern, LODE_ISA_scalar);
    for (size_t i = 0; i < 2; i++) {
        const char *path = own_file("vectors/quant/%s.f32", files[i].name);
        FILE *f = fopen(path, "rb");
        if (!f || fread(files[i].to, sizeof(float), files[i].n, f) != files[i].n) {
            perror(path);
            return -1;
        }
        fclose(f);
    }
    return 0;
}

/* What COLS numbers become. */
static void there_and_back(enum lode_dtype t, const float *x, const float *v, float *y) {
    uint8_t blocks[COLS * 4];
    lode_quantiser(t)(blocks, x, v, COLS);
    kern.dequant[t](y, blocks, COLS);
}

static double relative_error(enum lode_dtype t, const float *v) {
    double error = 0, size = 0;
    for (int r = 0; r < ROWS; r++) {
        const float *x = source + r * COLS;
        float y[COLS];
        there_and_back(t, x, v, y);
        for (int i = 0; i < COLS; i++) {
            const double w = v ? (double)v[i] : 1, e = (double)x[i] - (double)y[i];
            error += w * e * e;
            size += w * (double)x[i] * (double)x[i];
        }
    }
    return sqrt(error / size);
}

static void as_good_as_llama_quantize(void **state) {
    (void)state;
    for (size_t i = 0; i < N_TYPES; i++) {
        const double plain = relative_error(theirs[i].type, NULL);
        const double weighted = relative_error(theirs[i].type, weights);
        print_message("%-7s %.6f (%.3f of ggml's)", lode_dtypes[theirs[i].type].name, plain,
                      plain / theirs[i].plain);
        if (theirs[i].weighted > 0)
            print_message("  weighted %.6f (%.3f)", weighted, weighted / theirs[i].weighted);
        print_message("\n");
        assert_true(plain <= 1.02 * theirs[i].plain);
        assert_true(theirs[i].weighted == 0 || weighted <= 1.02 * theirs[i].weighted);
    }
}

static void blocks_are_by_themselves(void **state) {
    (void)state;
    for (size_t i = 0; i < N_TYPES; i++) {
        const struct lode_dtype_info *d = &lode_dtypes[theirs[i].type];
        uint8_t all[COLS * 4], one[COLS * 4];
        float ones[COLS];
        const float *x = source + 9 * COLS;
        for (int k = 0; k < COLS; k++)
            ones[k] = 1;
        lode_quantiser(theirs[i].type)(all, x, NULL, COLS);
        for (size_t b = 0; b < COLS / d->block; b++) {
            lode_quantiser(theirs[i].type)(one, x + b * d->block, ones, d->block);
            assert_memory_equal(one, all + b * d->bytes, d->bytes);
        }
    }
}

/* Numbers at the limits: finite results, no sign lost to a scale that vanishes or overflows. */
static void corners(void **state) {
    (void)state;
    static const float values[] = {0, 65504, -65504, 1e-8f, -1e-8f, 1e-30f, 1e-42f, 6e-8f};
    for (size_t i = 0; i < N_TYPES; i++) {
        for (size_t c = 0; c < sizeof values / sizeof *values; c++) {
            float x[COLS], y[COLS];
            for (int pattern = 0; pattern < 3; pattern++) {
                for (int k = 0; k < COLS; k++)
                    x[k] = pattern == 0   ? values[c]
                           : pattern == 1 ? (k % 2 ? values[c] : -values[c])
                                          : (k == 77 ? values[c] : 0);
                there_and_back(theirs[i].type, x, NULL, y);
                for (int k = 0; k < COLS; k++) {
                    assert_true(isfinite(y[k]));
                    assert_true(fabsf(y[k] - x[k]) <= 0.51f * fabsf(values[c]) + 1e-7f);
                }
            }
        }
        float x[COLS] = {0}, y[COLS], none[COLS] = {0};
        for (int k = 0; k < COLS; k++)
            x[k] = source[10 * COLS + k];
        there_and_back(theirs[i].type, x, none, y); /* nothing counts */
        for (int k = 0; k < COLS; k++)
            assert_true(isfinite(y[k]));
    }
}

/* Codes of directories' layouts go over as they are: with scales that halves hold, every number. */
static void repacking_keeps_numbers(void **state) {
    (void)state;
    static const struct {
        enum lode_dtype from, to;
    } pairs[] = {{LODE_U2, LODE_Q4_1},
                 {LODE_U3, LODE_Q4_1},
                 {LODE_U4, LODE_Q4_1},
                 {LODE_U4G32, LODE_Q4_1},
                 {LODE_U5, LODE_Q5_1}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const struct lode_dtype_info *d = &lode_dtypes[pairs[i].from];
        uint8_t from[COLS * 2], to[COLS * 2];
        float before[COLS], after[COLS];
        for (size_t k = 0; k < sizeof from; k++)
            from[k] = (uint8_t)(lode_rng_uniform(11, k, 0) * 256);
        for (size_t b = 0; b < COLS / d->block; b++) { /* d and m, where tensor/block.h has them */
            const float scales[2] = {lode_f16_f32((uint16_t)(0x2c00 + 37 * b)),
                                     lode_f16_f32((uint16_t)(0xb400 + 91 * b))};
            const size_t second = pairs[i].from == LODE_U4G32 ? 4 : d->bytes / 2;
            memcpy(from + b * d->bytes, &scales[0], 4);
            memcpy(from + b * d->bytes + second, &scales[1], 4);
        }
        lode_repacker(pairs[i].from, pairs[i].to)(to, from, COLS);
        kern.dequant[pairs[i].from](before, from, COLS);
        kern.dequant[pairs[i].to](after, to, COLS);
        for (int k = 0; k < COLS; k++)
            assert_true(fabsf(after[k] - before[k]) <= 1e-6f);
    }
    assert_null(lode_repacker(LODE_U8, LODE_Q8_0));
}

static void plain_types_round(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 1000; i++) {
        const float x[1] = {(float)(lode_rng_uniform(5, i, 0) * 8 - 4)};
        uint16_t h;
        lode_quantiser(LODE_F16)(&h, x, NULL, 1);
        assert_int_equal(h, lode_f32_f16(x[0]));
        lode_quantiser(LODE_BF16)(&h, x, NULL, 1);
        assert_int_equal(h, lode_f32_bf16(x[0]));
    }
    assert_null(lode_quantiser(LODE_Q8_K));
    assert_null(lode_quantiser(LODE_NONE));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_good_as_llama_quantize),
        cmocka_unit_test(blocks_are_by_themselves),
        cmocka_unit_test(corners),
        cmocka_unit_test(repacking_keeps_numbers),
        cmocka_unit_test(plain_types_round),
    };
    return cmocka_run_group_tests(tests, read_vectors, NULL);
}
