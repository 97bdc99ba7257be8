/* base: buffers, maps, UTF-8, halves, our double-precision functions. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/dmath.h"
#include "base/half.h"
#include "base/map.h"
#include "base/rng.h"
#include "base/utf8.h"

static void buf_grows_and_stays_terminated(void **state) {
    (void)state;
    struct lode_buf b = {0};
    for (int i = 0; i < 1000; i++)
        assert_true(lode_buf_addf(&b, "%d,", i));
    assert_int_equal(b.data[b.len], 0);
    assert_memory_equal(b.data, "0,1,2,", 6);
    assert_false(lode_buf_reserve(&b, SIZE_MAX));
    assert_true(b.failed);
    lode_buf_free(&b);
}

static void map_keeps_first_value(void **state) {
    (void)state;
    struct lode_arena a = {0};
    struct lode_map m = {0};
    for (uint32_t i = 0; i < 10000; i++) {
        char *key = lode_arena_printf(&a, "key%u", i);
        assert_int_equal(lode_map_put(&m, lode_str(key), i, NULL), 1);
    }
    uint32_t old = 0;
    assert_int_equal(lode_map_put(&m, LODE_STR("key77"), 5, &old), 0);
    assert_int_equal(old, 77);
    assert_int_equal(lode_map_get(&m, LODE_STR("key9999")), 9999);
    assert_int_equal(lode_map_get(&m, LODE_STR("")), LODE_MAP_NONE);
    lode_map_free(&m);
    lode_arena_free(&a);
}

static void utf8_follows_table_3_7(void **state) {
    (void)state;
    uint32_t cp;
    assert_int_equal(lode_utf8_decode("\xc0\x80", 2, &cp), 0);         /* overlong */
    assert_int_equal(lode_utf8_decode("\xed\xa0\x80", 3, &cp), 0);     /* surrogate */
    assert_int_equal(lode_utf8_decode("\xf4\x90\x80\x80", 4, &cp), 0); /* above U+10FFFF */
    for (uint32_t c = 0; c < 0x110000; c++) {
        if (c >= 0xd800 && c < 0xe000)
            continue;
        char s[4];
        const size_t n = lode_utf8_encode(c, s);
        assert_int_equal(lode_utf8_decode(s, n, &cp), n);
        assert_int_equal(cp, c);
        for (size_t cut = 1; cut < n; cut++)
            assert_int_equal(lode_utf8_complete(s, cut), 0);
        assert_int_equal(lode_utf8_complete(s, n), n);
    }
    assert_int_equal(lode_utf8_complete("a\xff", 2), 2); /* will never become valid: let it go */
}

static void halves_round_trip(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        const float f = lode_f16_f32((uint16_t)h);
        if (!isnan(f))
            assert_int_equal(lode_f32_f16(f), h);
        const float b = lode_bf16_f32((uint16_t)h);
        if (!isnan(b))
            assert_int_equal(lode_f32_bf16(b), h);
    }
    assert_int_equal(lode_f32_f16(65519.0f), 0x7bff);
    assert_int_equal(lode_f32_f16(65520.0f), 0x7c00);
    assert_int_equal(lode_f32_f16(0x1p-25f), 0);          /* tie, to even */
    assert_int_equal(lode_f32_f16(0x1.8p-24f), 2);        /* tie between 1 and 2, to even */
    assert_int_equal(lode_f32_f16(0x1.000002p-25f), 1);
}

/* libm is within 1 ulp of the truth, ours within 2: so 3 ulp between them. */
static void double_functions_agree_with_libm(void **state) {
    (void)state;
    for (int i = 0; i < 200000; i++) {
        const double u = lode_rng_uniform(1, (uint64_t)i, 0), v = lode_rng_uniform(1, (uint64_t)i, 1);
        const double x = (u - 0.5) * 1400, e = exp(x);
        assert_true(fabs(lode_exp(x) - e) <= 3 * 0x1p-52 * e + 0x1p-1074);
        const double y = exp((v - 0.5) * 1000), l = log(y);
        assert_true(fabs(lode_log(y) - l) <= 3 * 0x1p-52 * fabs(l) + 0x1p-60);
        const double a = (u - 0.5) * 0x1p21;
        double s, c;
        lode_sincos(a, &s, &c);
        assert_true(fabs(s - sin(a)) <= 0x1p-50 && fabs(c - cos(a)) <= 0x1p-50);
    }
}

/* As the definition says, for every piece of a text of three letters, short and long. */
static void find_finds_the_first(void **state) {
    (void)state;
    const char text[] = "abaabbaaabbbababcabaabbaaabbbababcabaabbaaabbbababc";
    const struct lode_str s = lode_str(text);
    assert_int_equal(lode_str_find(LODE_STR(""), 0, LODE_STR("a")), 0);
    assert_int_equal(lode_str_find(LODE_STR("a"), 2, LODE_STR("a")), 1);
    assert_int_equal(lode_str_find(s, 0, LODE_STR("x")), s.len);
    for (size_t at = 0; at < s.len; at++)
        for (size_t len = 1; at + len <= s.len; len++)
            for (size_t from = 0; from <= s.len; from++) {
                const struct lode_str what = {text + at, len};
                size_t first = from;
                while (first + len <= s.len && memcmp(text + first, what.data, len) != 0)
                    first++;
                if (first + len > s.len)
                    first = s.len;
                assert_int_equal(lode_str_find(s, from, what), first);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(find_finds_the_first),
        cmocka_unit_test(buf_grows_and_stays_terminated),
        cmocka_unit_test(map_keeps_first_value),
        cmocka_unit_test(utf8_follows_table_3_7),
        cmocka_unit_test(halves_round_trip),
        cmocka_unit_test(double_functions_agree_with_libm),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
