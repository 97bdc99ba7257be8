/* Blocks of every GGML type are read bit for bit as GGML reads them, by every instruction set.
 *
 * tests/vectors/quant holds a few rows per type; where $LODE_SHARED/ref is present the full set is
 * run too.  Types that no reference covers (Q8_1, Q8_K, F64, integers) follow from the definition
 * of the format, tested here by hand-made blocks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../own_files.h"
#include "base/half.h"
#include "kern/kern.h"
#include "tensor/block.h"

/* A whole file; NULL when it cannot be read.  Owned by the caller. */
static void *read_file(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    void *data = malloc(*size + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *size, f), *size);
    fclose(f);
    return data;
}

/* The numbers of a .npy file (format 1.0: magic, version, 16-bit header size) or of raw floats. */
static void *read_numbers(const char *path, size_t *size) {
    char *data = read_file(path, size);
    if (data && *size > 10 && memcmp(data, "\x93NUMPY\1", 7) == 0) {
        uint16_t header;
        memcpy(&header, data + 8, 2);
        *size -= 10u + header;
        memmove(data, data + 10 + header, *size);
    }
    return data;
}

static int check_file(const struct lode_kern *k, enum lode_dtype t, const char *bin,
                      const char *numbers) {
    size_t n_bytes, n_floats;
    void *blocks = read_file(bin, &n_bytes);
    float *want = read_numbers(numbers, &n_floats);
    if (!blocks || !want) {
        free(blocks);
        free(want);
        return 0;
    }
    const size_t n = n_bytes / lode_dtypes[t].bytes * lode_dtypes[t].block;
    assert_int_equal(n * sizeof(float), n_floats);
    float *got = malloc(n_floats);
    assert_non_null(got);
    k->dequant[t](got, blocks, n);
    for (size_t i = 0; i < n; i++)
        if (lode_f32_bits(got[i]) != lode_f32_bits(want[i]))
            fail_msg("%s, %s: number %zu is %a, not %a", bin, k->isa, i, (double)got[i],
                     (double)want[i]);
    free(blocks);
    free(want);
    free(got);
    return 1;
}

static const enum lode_dtype readable[] = {
#define TYPE(suffix, type) LODE_##type,
    LODE_DEQUANT_LIST(TYPE)
#undef TYPE
};
#define N_READABLE (sizeof readable / sizeof readable[0])

/* Runs `each` with the table of every instruction set this machine has. */
static void for_each_isa(void (*each)(const struct lode_kern *)) {
    for (int isa = 0; isa < LODE_ISA_COUNT; isa++) {
        struct lode_kern k;
        if (!lode_isa_usable((enum lode_isa)isa))
            continue;
        lode_kern_table(&k, (enum lode_isa)isa);
        each(&k);
    }
}

static void own_vectors(const struct lode_kern *k) {
    int n_files = 0;
    for (size_t i = 0; i < N_READABLE; i++) {
        char bin[4096], numbers[4096];
        const char *name = lode_dtypes[readable[i]].name;
        snprintf(bin, sizeof bin, "%s", own_file("vectors/quant/%s.bin", name));
        snprintf(numbers, sizeof numbers, "%s", own_file("vectors/quant/%s.f32", name));
        n_files += check_file(k, readable[i], bin, numbers);
    }
    assert_int_equal(n_files, 27); /* all but F32, F64, I8 .. I64, Q8_1, Q8_K */
}

static void equals_ggml(void **state) {
    (void)state;
    for_each_isa(own_vectors);
}

static int n_shared;
static void shared_vectors(const struct lode_kern *k) {
    const char *shared = getenv("LODE_SHARED");
    for (size_t i = 0; i < N_READABLE; i++)
        for (int part = 0; part < 3; part++) {
            static const char *const parts[] = {"", "_im", ".rand"};
            char bin[4096], numbers[4096];
            const char *name = lode_dtypes[readable[i]].name;
            snprintf(bin, sizeof bin, "%s/ref/quant/ggml/%s%s.bin", shared, name, parts[part]);
            snprintf(numbers, sizeof numbers, "%s/ref/quant/ggml/%s%s.deq.npy", shared, name,
                     parts[part]);
            n_shared += check_file(k, readable[i], bin, numbers);
        }
}

static void equals_full_reference(void **state) {
    (void)state;
    if (!getenv("LODE_SHARED"))
        skip();
    for_each_isa(shared_vectors);
    if (n_shared == 0)
        skip();
}

/* Half and bfloat16 conversions against the full reference: every half, and rounding. */
static void *scalar_reference(const char *name, size_t *size) {
    char path[4096];
    const char *shared = getenv("LODE_SHARED");
    snprintf(path, sizeof path, "%s/ref/quant/scalar/%s.npy", shared ? shared : "", name);
    return read_numbers(path, size);
}

static void half_conversions(const struct lode_kern *k) {
    size_t size, n_bytes;
    float *widened = scalar_reference("f16_to_f32", &size);
    uint32_t *bits = scalar_reference("f32_bits", &n_bytes);
    uint16_t *f16 = scalar_reference("f32_to_f16_bits", &size),
             *bf16 = scalar_reference("f32_to_bf16_bits", &size);
    const size_t n = n_bytes / 4;
    float *y = malloc(65536 * sizeof *y);
    uint16_t *h = malloc(65536 * sizeof *h), *put = malloc((n + 1) * sizeof *put);
    assert_true(y && h && put);
    for (uint32_t i = 0; i < 65536; i++)
        h[i] = (uint16_t)i;
    k->dequant[LODE_F16](y, h, 65536);
    for (uint32_t i = 0; i < 65536; i++)
        assert_true(isnan(widened[i]) ? isnan(y[i])
                                      : lode_f32_bits(y[i]) == lode_f32_bits(widened[i]));
    k->dequant[LODE_BF16](y, h, 65536);
    for (uint32_t i = 0; i < 65536; i++)
        assert_int_equal(lode_f32_bits(y[i]), i << 16);
    for (int to_bf16 = 0; to_bf16 < 2; to_bf16++) {
        const uint16_t *want = to_bf16 ? bf16 : f16, inf = to_bf16 ? 0x7f80 : 0x7c00;
        k->kv_put[to_bf16 ? LODE_BF16 : LODE_F16](put, (const float *)bits, n);
        for (size_t i = 0; i < n; i++)
            assert_true((want[i] & 0x7fff) > inf ? (put[i] & 0x7fff) > inf : put[i] == want[i]);
    }
    free(widened);
    free(bits);
    free(f16);
    free(bf16);
    free(y);
    free(h);
    free(put);
}

static void halves_equal_reference(void **state) {
    (void)state;
    size_t size;
    void *probe = scalar_reference("f32_bits", &size);
    if (!probe)
        skip();
    free(probe);
    for_each_isa(half_conversions);
}

static void plain_types(const struct lode_kern *k) {
    float y[256];
    const double f64[3] = {1.0 + 0x1p-24, -0x1.ffffffp0, 1e300};
    k->dequant[LODE_F64](y, f64, 3);
    assert_true(y[0] == 1.0f && y[1] == -2.0f && isinf(y[2])); /* ties to even; overflow */
    const int8_t i8[2] = {-128, 127};
    k->dequant[LODE_I8](y, i8, 2);
    assert_true(y[0] == -128 && y[1] == 127);
    const int16_t i16[2] = {-32768, 32767};
    k->dequant[LODE_I16](y, i16, 2);
    assert_true(y[0] == -32768 && y[1] == 32767);
    const int32_t i32[2] = {INT32_MIN, 0x1000001};
    k->dequant[LODE_I32](y, i32, 2);
    assert_true(y[0] == -0x1p31f && y[1] == 0x1p24f);
    const int64_t i64[2] = {INT64_MIN, 0x1000003};
    k->dequant[LODE_I64](y, i64, 2);
    assert_true(y[0] == -0x1p63f && y[1] == 0x1000004);

    struct lode_block_q8_1 q8_1 = {.d = 0x3800 /* 0.5 */, .s = 0x7e00};
    struct lode_block_q8_k q8_k;
    const float d = -3.0f;
    memcpy(q8_k.d, &d, sizeof d);
    for (int i = 0; i < 256; i++)
        q8_k.qs[i] = (int8_t)(i - 128);
    for (int i = 0; i < 32; i++)
        q8_1.qs[i] = (int8_t)(i * 8 - 128);
    k->dequant[LODE_Q8_1](y, &q8_1, 32);
    for (int i = 0; i < 32; i++)
        assert_true(y[i] == 0.5f * (float)(i * 8 - 128));
    k->dequant[LODE_Q8_K](y, &q8_k, 256);
    for (int i = 0; i < 256; i++)
        assert_true(y[i] == -3.0f * (float)(i - 128));
}

static void types_by_definition(void **state) {
    (void)state;
    for_each_isa(plain_types);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_ggml),
        cmocka_unit_test(equals_full_reference),
        cmocka_unit_test(halves_equal_reference),
        cmocka_unit_test(types_by_definition),
    };
    return cmocka_run_group_tests_name("quant_ref", tests, NULL, NULL);
}
