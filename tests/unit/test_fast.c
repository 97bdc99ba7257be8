/* Fast products (kern/fast.h) of every kind that this machine has: how far from the exact result, and
 * that one (row, column) does not depend on the others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/rng.h"
#include "kern/fast.h"

enum { ROWS = 37, COLUMNS = 117, MOST_K = 2100, STRIDE = (MOST_K + 63) / 64 * 64 };

struct operands {
    uint16_t w[ROWS][MOST_K], x[COLUMNS + LODE_FAST_ROWS][STRIDE];
    float y[COLUMNS][ROWS], part[COLUMNS][ROWS];
};

static float uniform(void) { /* in [-1, 1) */
    static uint64_t n;
    return (float)(2 * lode_rng_uniform(7, n++, 0) - 1);
}
static size_t below(size_t n) { return (size_t)((double)(uniform() + 1) / 2 * (double)n) % n; }

static float widen(enum lode_dtype type, uint16_t h) {
    return type == LODE_F16 ? lode_bf16_f32(lode_f32_bf16(lode_f16_f32(h))) : lode_bf16_f32(h);
}

static void fill(struct operands *o, enum lode_dtype type, size_t k) {
    memset(o, 0xff, sizeof *o); /* what must not count is NaN */
    for (size_t i = 0; i < ROWS; i++)
        for (size_t l = 0; l < k; l++) {
            const float f = uniform();
            o->w[i][l] = type == LODE_F16 ? lode_f32_f16(f) : lode_f32_bf16(f);
        }
    for (size_t j = 0; j < COLUMNS; j++)
        for (size_t l = 0; l < (k + LODE_FAST_STEP - 1) / LODE_FAST_STEP * LODE_FAST_STEP; l++)
            o->x[j][l] = l < k ? lode_f32_bf16(2 * uniform()) : 0;
}

static void check(enum lode_fast fast, enum lode_dtype type, size_t k, struct operands *o) {
    lode_fast_mul *mul = lode_fast_of(fast, type);
    const size_t w_stride = sizeof o->w[0], x_stride = sizeof o->x[0];
    assert_non_null(mul);
    fill(o, type, k);
    mul(o->y[0], ROWS, o->w, w_stride, ROWS, o->x, x_stride, COLUMNS, k);
    for (size_t j = 0; j < COLUMNS; j++)
        for (size_t i = 0; i < ROWS; i++) {
            double sum = 0, size = 0;
            for (size_t l = 0; l < k; l++) {
                const double p = (double)widen(type, o->w[i][l]) * (double)lode_bf16_f32(o->x[j][l]);
                sum += p;
                size += fabs(p);
            }
            /* Products of two BF16 numbers are exact in float32.  A sum of k is rounded, on its way
             * through any of the instructions, in chains of at most k / 16 + 32 additions. */
            const double bound = ((double)k / 16 + 32) * 1.01 * (FLT_EPSILON / 2) * size;
            if (!(fabs((double)o->y[j][i] - sum) <= bound))
                fail_msg("%s, %s, k %zu, row %zu, column %zu: %g, not %g", lode_fast_name(fast),
                         lode_dtypes[type].name, k, i, j, (double)o->y[j][i], sum);
        }
    for (int n = 0; n < 12; n++) { /* the same bits from any part of the panels, and from all */
        const size_t i = n ? below(ROWS) : 0, j = below(COLUMNS);
        const size_t n_w = n ? 1 + below(ROWS - i) : ROWS;
        const size_t n_x = n < 4 ? 1 : 1 + below(COLUMNS - j);
        mul(&o->part[j][i], ROWS, o->w[i], w_stride, n_w, o->x[j], x_stride, n_x, k);
        for (size_t c = j; c < j + n_x; c++)
            assert_memory_equal(&o->part[c][i], &o->y[c][i], n_w * sizeof(float));
    }
}

static void products(void **state) {
    (void)state;
    struct operands *o = malloc(sizeof *o);
    assert_non_null(o);
    static const size_t lengths[] = {1, 31, 32, 33, 256, 1024, 1056, 2048, MOST_K};
    const enum lode_fast best = lode_fast_best(lode_isa_best());
    for (enum lode_fast f = LODE_FAST_none + 1; f <= best; f++)
        for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++) {
            check(f, LODE_BF16, lengths[n], o);
            check(f, LODE_F16, lengths[n], o);
        }
    free(o);
    if (!best)
        skip();
}

static void only_what_has_them(void **state) {
    (void)state;
    assert_int_equal(lode_fast_best(LODE_ISA_scalar), LODE_FAST_none);
    assert_int_equal(lode_fast_best(LODE_ISA_avx2), LODE_FAST_none);
    for (enum lode_fast f = LODE_FAST_none; f <= lode_fast_best(lode_isa_best()); f++)
        assert_null(lode_fast_of(f, LODE_F32));
    assert_null(lode_fast_of(LODE_FAST_none, LODE_BF16));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(products),
                                       cmocka_unit_test(only_what_has_them)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
