/* GGUF files: what reads right, what is refused and why, and files of every kind of damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fuzz/gguf_touch.h"
#include "../own_files.h"
#include "base/alloc.h"
#include "effort.h"
#include "format/gguf_parts.h"
#include "gguf_writer.h"
#include "lode/lode.h"
#include "tmpdir.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <math.h>
#include <time.h>
#include <unistd.h>

/* Sanitizers slow the same work down by this much at most; the limits below mean it without them. */
enum { SLOWER = SANITIZED ? 20 : 1 };
#define MAX_NS (UINT64_C(100) * 1000 * 1000 * SLOWER)

static struct lode_buf read_whole(const char *path) {
    struct lode_in_file f;
    struct lode_error err;
    struct lode_buf b = {0};
    if (lode_in_open(&f, path, &err) < 0)
        fail_msg("%s: %s", err.where, err.text);
    assert_true(lode_buf_reserve(&b, f.size));
    assert_int_equal(lode_in_read(&f, 0, b.data, f.size, &err), 0);
    b.len = f.size;
    lode_in_close(&f);
    return b;
}

/* ---- files that are right ---- */

/* One key of every type, and three tensors. */
static void put_everything(struct gguf_writer *w) {
    gguf_put_str(w, "general.architecture", "toy");
    gguf_put_u8(w, "a.u8", 200);
    gguf_put_i8(w, "a.i8", -100);
    gguf_put_u16(w, "a.u16", 60000);
    gguf_put_i16(w, "a.i16", -30000);
    gguf_put_u32(w, "toy.block_count", 7);
    gguf_put_i32(w, "a.i32", -7);
    gguf_put_f32(w, "toy.rope.freq_base", 1e4f);
    gguf_put_bool(w, "a.yes", true);
    gguf_put_bool(w, "a.no", false);
    gguf_put_u64(w, "a.u64", UINT64_MAX);
    gguf_put_i64(w, "a.i64", INT64_MIN);
    gguf_put_f64(w, "a.f64", 0.1);
    gguf_put_str(w, "a.empty", "");
    gguf_put_strs(w, "tokenizer.ggml.tokens", 3, (const char *const[]){"a", "", "\xc4\xa0long"});
    gguf_put_array(w, "a.i16s", 3, 3, (int16_t[]){-1, 0, 32767}, 6);
    gguf_put_array(w, "a.f32s", 6, 2, (float[]){0.5f, -2}, 8);
    gguf_put_array(w, "a.f64s", 12, 1, (double[]){1e300}, 8);
    gguf_put_array(w, "a.bools", 7, 2, (uint8_t[]){1, 0}, 2);
    gguf_put_array(w, "a.none", 8, 0, "", 0);
    struct lode_buf nested = {0}; /* [[1, 2], []] */
    gguf_u32(&nested, 4);
    gguf_u64(&nested, 2);
    gguf_u32(&nested, 1);
    gguf_u32(&nested, 2);
    gguf_u32(&nested, 8);
    gguf_u64(&nested, 0);
    gguf_put_array(w, "a.nested", 9, 2, nested.data, nested.len);
    lode_buf_free(&nested);
    gguf_put_tensor(w, "tok.weight", LODE_F32, 2, (uint64_t[]){8, 2}, NULL);
    gguf_put_tensor(w, "q.weight", LODE_Q4_0, 2, (uint64_t[]){32, 3}, NULL);
    gguf_put_tensor(w, "odd", LODE_F16, 1, (uint64_t[]){5}, (uint16_t[]){1, 2, 3, 4, 5});
    gguf_put_tensor(w, "scalar", LODE_F32, 0, NULL, (float[]){3});
}

static void check_everything(const struct lode_gguf *g) {
    uint32_t u32 = 0;
    int32_t i32 = 0;
    uint64_t u64 = 0;
    int64_t i64 = 0;
    float f32 = 0;
    double f64 = 0;
    bool yes = false;
    struct lode_str s = {0};
    const struct lode_gguf_array *a = NULL;

    assert_string_equal(lode_gguf_arch(g), "toy");
    assert_int_equal(lode_gguf_n_keys(g), 21);
    assert_int_equal(lode_gguf_n_vocab(g), 3);
    assert_true(lode_gguf_arch_u32(g, "block_count", &u32) && u32 == 7);
    assert_true(lode_gguf_arch_f32(g, "rope.freq_base", &f32) && f32 == 1e4f);
    assert_false(lode_gguf_arch_u32(g, "absent", &u32));
    assert_int_equal(u32, 7); /* left alone */

    /* integers convert while they fit */
    assert_true(lode_gguf_u32(g, "a.u8", &u32) && u32 == 200);
    assert_true(lode_gguf_i32(g, "a.u16", &i32) && i32 == 60000);
    assert_true(lode_gguf_i64(g, "a.i8", &i64) && i64 == -100);
    assert_true(lode_gguf_i32(g, "a.i16", &i32) && i32 == -30000);
    assert_true(lode_gguf_u64(g, "a.u64", &u64) && u64 == UINT64_MAX);
    assert_true(lode_gguf_i64(g, "a.i64", &i64) && i64 == INT64_MIN);
    assert_true(lode_gguf_f64(g, "a.i32", &f64) && f64 == -7);
    assert_true(lode_gguf_f32(g, "a.f64", &f32) && f32 == 0.1f);
    assert_true(lode_gguf_f64(g, "a.f64", &f64) && f64 == 0.1);
    assert_false(lode_gguf_u32(g, "a.i32", &u32));
    assert_false(lode_gguf_u64(g, "a.i8", &u64));
    assert_false(lode_gguf_i64(g, "a.u64", &i64));
    assert_false(lode_gguf_u32(g, "a.u64", &u32));
    assert_false(lode_gguf_i32(g, "a.i64", &i32));
    assert_false(lode_gguf_u32(g, "a.f64", &u32));
    /* and nothing else does */
    assert_true(lode_gguf_bool(g, "a.yes", &yes) && yes);
    assert_true(lode_gguf_bool(g, "a.no", &yes) && !yes);
    assert_false(lode_gguf_bool(g, "a.u8", &yes));
    assert_false(lode_gguf_u32(g, "a.yes", &u32));
    assert_true(lode_gguf_str(g, "a.empty", &s) && s.len == 0);
    assert_false(lode_gguf_str(g, "a.u8", &s));
    assert_false(lode_gguf_f32(g, "a.empty", &f32));
    assert_false(lode_gguf_array(g, "a.empty", &a));

    assert_true(lode_gguf_array(g, "tokenizer.ggml.tokens", &a));
    assert_true(a->type == LODE_GGUF_STR && a->n == 3);
    assert_true(lode_str_eqz(a->strs[0], "a") && a->strs[1].len == 0);
    assert_true(lode_str_eqz(a->strs[2], "\xc4\xa0long"));
    assert_true(lode_gguf_array(g, "a.i16s", &a));
    assert_int_equal(lode_gguf_array_i64(a, 0), -1);
    assert_true(lode_gguf_array_f64(a, 2) == 32767);
    assert_true(lode_gguf_array(g, "a.f32s", &a) && lode_gguf_array_f64(a, 1) == -2);
    assert_true(lode_gguf_array(g, "a.f64s", &a) && lode_gguf_array_f64(a, 0) == 1e300);
    assert_int_equal(lode_gguf_array_i64(a, 0), 0); /* no integer is that large */
    assert_true(lode_gguf_array(g, "a.bools", &a) && lode_gguf_array_i64(a, 0) == 1);
    assert_true(lode_gguf_array(g, "a.none", &a) && a->n == 0);
    assert_true(lode_gguf_array(g, "a.nested", &a) && a->n == 2 && a->type == LODE_GGUF_ARRAY);
    assert_int_equal(lode_gguf_array_i64(&a->arrays[0], 1), 2);
    assert_int_equal(a->arrays[1].n, 0);

    assert_int_equal(lode_gguf_n_tensors(g), 4);
    const struct lode_gguf_tensor *t = lode_gguf_find_tensor(g, "q.weight");
    assert_ptr_equal(t, lode_gguf_tensor(g, 1));
    assert_true(t->type == LODE_Q4_0 && t->n_dims == 2 && t->size == 54);
    assert_true(t->dims[0] == 32 && t->dims[1] == 3 && t->dims[2] == 1 && t->dims[3] == 1);
    assert_int_equal(lode_gguf_find_tensor(g, "scalar")->size, 4);
    assert_null(lode_gguf_find_tensor(g, "absent"));
    assert_null(lode_gguf_tensor(g, 4));
    assert_null(lode_gguf_key(g, 21));
}

static void reads_every_type(void **state) {
    (void)state;
    struct lode_error err;
    for (uint32_t version = 2; version <= 3; version++) {
        struct gguf_writer w = {.version = version};
        put_everything(&w);
        char *path = tmp_path("all.gguf");
        gguf_write(&w, path);

        struct lode_gguf *g;
        assert_int_equal(lode_gguf_open(&g, path, &err), 0);
        assert_int_equal(lode_gguf_version(g), version);
        check_everything(g);
        gguf_touch(g);
        const struct lode_gguf_tensor *odd = lode_gguf_find_tensor(g, "odd");
        assert_memory_equal(lode_gguf_data(g, odd), ((uint16_t[]){1, 2, 3, 4, 5}), 10);
        uint16_t two[2];
        assert_int_equal(lode_gguf_read(g, odd, 4, two, 4, &err), 0);
        assert_int_equal(two[1], 4);
        assert_int_equal(lode_gguf_read(g, odd, 8, two, 4, &err), LODE_ERR_ARG);
        assert_int_equal(lode_gguf_check(g, &err), 0);
        lode_gguf_close(g);

        assert_int_equal(lode_gguf_open_unmapped(&g, path, &err), 0);
        check_everything(g);
        assert_null(lode_gguf_data(g, lode_gguf_tensor(g, 0)));
        assert_int_equal(lode_gguf_read(g, lode_gguf_find_tensor(g, "odd"), 8, two, 2, &err), 0);
        assert_int_equal(two[0], 5);
        lode_gguf_close(g);

        struct lode_buf b = {0};
        gguf_finish(&w, &b);
        assert_int_equal(lode_gguf_parse(&g, b.data, b.len, &err), 0);
        check_everything(g);
        assert_null(lode_gguf_file(g, 0));
        assert_int_equal(lode_gguf_read(g, lode_gguf_tensor(g, 0), 0, two, 2, &err), LODE_ERR_IO);
        lode_gguf_close(g);
        lode_buf_free(&b);
        gguf_writer_free(&w);
        free(path);
    }
}

static void respects_alignment(void **state) {
    (void)state;
    static const uint64_t good[] = {8, 32, 4096, 1 << 21};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct gguf_writer w = {.align = good[i]};
        gguf_put_u32(&w, "general.alignment", (uint32_t)good[i]);
        gguf_put_tensor(&w, "a", LODE_F32, 1, (uint64_t[]){3}, (float[]){1, 2, 3});
        gguf_put_tensor(&w, "b", LODE_F32, 1, (uint64_t[]){1}, (float[]){4});
        char *path = tmp_path("align.gguf");
        gguf_write(&w, path);
        struct lode_gguf *g;
        struct lode_error err;
        assert_int_equal(lode_gguf_open(&g, path, &err), 0);
        assert_int_equal(lode_gguf_tensor(g, 1)->offset % good[i], 0);
        assert_memory_equal(lode_gguf_data(g, lode_gguf_tensor(g, 1)), ((float[]){4}), 4);
        lode_gguf_close(g);
        gguf_writer_free(&w);
        free(path);
    }
}

static void explains_refused_keys(void **state) {
    (void)state;
    struct gguf_writer w = {0};
    put_everything(&w);
    struct lode_buf b = {0};
    gguf_finish(&w, &b);
    struct lode_gguf *g;
    struct lode_error err;
    assert_int_equal(lode_gguf_parse(&g, b.data, b.len, &err), 0);
    assert_int_equal(lode_gguf_arch_fail_key(g, "context_length", "a count", &err),
                     LODE_ERR_MISSING);
    assert_string_equal(err.text, "the key toy.context_length is missing, a count expected");
    assert_int_equal(lode_gguf_fail_key(g, "a.i32", "a count", &err), LODE_ERR_FORMAT);
    assert_string_equal(err.text, "the key a.i32 is -7 of type i32, a count expected");
    lode_gguf_fail_key(g, "a.empty", "a count", &err);
    assert_string_equal(err.text, "the key a.empty is of type str, a count expected");
    lode_gguf_close(g);
    lode_buf_free(&b);
    gguf_writer_free(&w);
}

static void shows_values(void **state) {
    (void)state;
    static const struct {
        const char *key, *type, *json, *brief; /* brief NULL: the same */
    } expected[] = {
        {"general.architecture", "str", "\"toy\"", NULL},
        {"a.u64", "u64", "18446744073709551615", NULL},
        {"a.i64", "i64", "-9223372036854775808", NULL},
        {"a.f64", "f64", "0.1", NULL},
        {"toy.rope.freq_base", "f32", "10000.0", NULL},
        {"a.yes", "bool", "true", NULL},
        {"tokenizer.ggml.tokens", "[str]", "[\"a\", \"\", \"\xc4\xa0long\"]", NULL},
        {"a.none", "[str]", "[]", NULL},
        {"a.nested", "[array]", "[[1, 2], []]", NULL},
        {"nan", "f32", "\"NaN\"", NULL},
        {"inf", "f64", "\"-Infinity\"", NULL},
        {"third", "f32", "0.33333334", NULL},
        {"bytes", "str", "\"q\\\"\\\\\\n\\u0001\\u0085\xef\xbf\xbd.\"", NULL},
        {"long", "str", "\"0123456789012345678901234567890123456789\"",
         "\"01234567890123456789012345678901234...\""},
        {"many", "[u8]", "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]",
         "[0, 1, 2, 3, 4, 5, 6, ...] (16 in all)"},
    };
    struct gguf_writer w = {0};
    put_everything(&w);
    gguf_put_f32(&w, "nan", NAN);
    gguf_put_f64(&w, "inf", -INFINITY);
    gguf_put_f32(&w, "third", 1.0f / 3);
    gguf_put_str(&w, "bytes", "q\"\\\n\x01\xc2\x85\xff.");
    gguf_put_str(&w, "long", "0123456789012345678901234567890123456789");
    uint8_t many[16];
    for (int i = 0; i < 16; i++)
        many[i] = (uint8_t)i;
    gguf_put_array(&w, "many", 0, 16, many, sizeof many);
    char *path = tmp_path("show.gguf");
    gguf_write(&w, path);
    struct lode_file *f;
    struct lode_error err;
    assert_int_equal(lode_file_open(&f, path, &err), 0);
    for (size_t e = 0; e < sizeof expected / sizeof *expected; e++) {
        size_t i = 0;
        while (i < lode_file_n_keys(f) && strcmp(lode_file_key(f, i), expected[e].key) != 0)
            i++;
        assert_in_range(i, 0, lode_file_n_keys(f) - 1);
        assert_string_equal(lode_file_key_type(f, i), expected[e].type);
        char text[100], brief[41];
        const size_t n = strlen(expected[e].json);
        assert_int_equal(lode_file_value(f, i, NULL, 0, true), n);
        assert_int_equal(lode_file_value(f, i, text, sizeof text, true), n);
        assert_string_equal(text, expected[e].json);
        assert_int_equal(lode_file_value(f, i, text, 3, true), n); /* cut, and never beyond */
        assert_true(strlen(text) <= 2);
        const char *want = expected[e].brief ? expected[e].brief : expected[e].json;
        assert_int_equal(lode_file_value(f, i, brief, sizeof brief, false), strlen(want));
        assert_string_equal(brief, want);
        for (size_t cap = 0; cap < sizeof brief; cap++) {
            memset(brief, 'x', sizeof brief);
            assert_true(lode_file_value(f, i, brief, cap, false) <= (cap ? cap - 1 : 0));
            assert_int_equal(brief[cap], 'x');
        }
    }
    assert_string_equal(lode_file_format(f), "GGUF v3");
    assert_int_equal(lode_file_n_params(f), 16 + 96 + 5 + 1);
    assert_string_equal(lode_file_tensor(f, 1).type, "Q4_0");
    assert_string_equal(lode_file_tensor(f, 99).name, "");
    assert_string_equal(lode_file_key(f, 99), "");
    assert_int_equal(lode_file_value(f, 99, (char[4]){0}, 4, true), 0);
    lode_file_close(f);
    gguf_writer_free(&w);
    free(path);
}

/* ---- files that are wrong: each refused, in words that say why ---- */

/* Finishes and frees w, parses with the data checked, and expects `words` in the message. */
static void refuse(struct gguf_writer *w, int code, const char *words) {
    struct lode_buf b = {0};
    struct lode_error err = {0};
    struct lode_gguf *g;
    gguf_finish(w, &b);
    char *path = tmp_path("bad.gguf");
    gguf_write(w, path);
    const int rc = lode_gguf_open(&g, path, &err);
    if (rc != code || !strstr(err.text, words))
        fail_msg("expected %d \"%s\", got %d \"%s\"", code, words, rc, err.text);
    assert_null(g);
    assert_string_equal(err.where, path);
    /* In memory the same, except where only the file's size tells. */
    if (!strstr(words, "truncated"))
        assert_int_equal(lode_gguf_parse(&g, b.data, b.len, &err), code);
    free(path);
    lode_buf_free(&b);
    gguf_writer_free(w);
}

static void refuse_bytes(const char *bytes, size_t n, const char *words) {
    struct lode_error err = {0};
    struct lode_gguf *g;
    char *path = tmp_path("bad.gguf");
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
    assert_int_equal(lode_gguf_open(&g, path, &err), LODE_ERR_FORMAT);
    if (!strstr(err.text, words))
        fail_msg("expected \"%s\", got \"%s\"", words, err.text);
    free(path);
}
#define REFUSE_BYTES(literal, words) refuse_bytes(literal, sizeof(literal) - 1, words)

static void refuses_other_files(void **state) {
    (void)state;
    struct lode_gguf *g;
    struct lode_error err;
    assert_int_equal(lode_gguf_open(&g, "/nonexistent/x.gguf", &err), LODE_ERR_MISSING);
    assert_int_equal(lode_gguf_open(&g, tmp_dir(), &err), LODE_ERR_IO);
    assert_non_null(strstr(err.text, "directory"));
    assert_int_equal(lode_gguf_open(&g, "/dev/null", &err), LODE_ERR_IO);

    REFUSE_BYTES("", "empty");
    REFUSE_BYTES("GG", "too few");
    REFUSE_BYTES("GGUF", "truncated");
    REFUSE_BYTES("what is this", "77 68 61 74");
    REFUSE_BYTES("version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "git lfs pull");
    REFUSE_BYTES("\n <!DOCTYPE html><html>", "web page");
    REFUSE_BYTES("PK\003\004rest of it", "zip");
    REFUSE_BYTES("\200\002}q\000", "pickle");
    REFUSE_BYTES("\x10\0\0\0\0\0\0\0{\"a\": 1}", "safetensors");
    REFUSE_BYTES("{\"model_type\": 1}", "JSON");
    REFUSE_BYTES("tjgg\003\0\0\0", "before GGUF");
    REFUSE_BYTES("\0\0\0\0\0\0\0\0\0\0", "zeros");
    REFUSE_BYTES("\037\213\010\0", "gzip");
    REFUSE_BYTES("GGUF\0\0\0\003\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "big-endian");
    REFUSE_BYTES("GGUF\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "version 0 is too old");
    REFUSE_BYTES("GGUF\1\0\0\0\0\0\0\0\0\0\0\0", "version 1 is too old");
    REFUSE_BYTES("GGUF\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "version 4 is unknown");
}

static void refuses_wrong_metadata(void **state) {
    (void)state;
    struct gguf_writer w = {0};
    gguf_put_u32(&w, "a", 1);
    gguf_put_u32(&w, "a", 2);
    refuse(&w, LODE_ERR_FORMAT, "key a occurs twice");
    gguf_put_u32(&w, "", 1);
    refuse(&w, LODE_ERR_FORMAT, "key 0 has a name of 0 bytes");
    gguf_put_u32(&w, "a\033[2J", 1);
    refuse(&w, LODE_ERR_FORMAT, "control character (U+001B)");
    gguf_put_u32(&w, "a\xff", 1);
    refuse(&w, LODE_ERR_FORMAT, "not valid UTF-8");
    char *huge = malloc(65537);
    memset(huge, 'k', 65536);
    huge[65536] = '\0';
    gguf_put_u32(&w, huge + 1, 1); /* the longest that is allowed */
    gguf_put_u32(&w, huge, 1);
    refuse(&w, LODE_ERR_FORMAT, "key 1 has a name of 65536 bytes");
    free(huge);

    gguf_put(&w, "odd", 13, "abcd", 4);
    refuse(&w, LODE_ERR_FORMAT, "odd has unknown type 13");
    gguf_put_array(&w, "odd", 13, 1, "abcdefgh", 8);
    refuse(&w, LODE_ERR_FORMAT, "odd is an array of unknown type 13");
    gguf_put(&w, "b", 7, "\2", 1);
    refuse(&w, LODE_ERR_FORMAT, "b has a bool of 2");
    gguf_put_array(&w, "b", 7, 3, "\1\0\377", 3);
    refuse(&w, LODE_ERR_FORMAT, "b has a bool of 255");
    gguf_put_array(&w, "n", 10, UINT64_MAX / 8 + 2, "", 0); /* times 8 is 8 */
    refuse(&w, LODE_ERR_FORMAT, "n is an array of 2305843009213693953 u64, but only 0 bytes");
    gguf_put_array(&w, "n", 8, 3, "\0\0\0\0\0\0\0\0", 8);
    refuse(&w, LODE_ERR_FORMAT, "n is an array of 3 str, but only 8 bytes");
    gguf_put(&w, "s", 8, "\377\377\377\377\377\377\377\377", 8);
    refuse(&w, LODE_ERR_FORMAT, "s has a string of 18446744073709551615 bytes, but only 0");
    gguf_put_u32(&w, "general.architecture", 1);
    refuse(&w, LODE_ERR_FORMAT, "general.architecture has type u32");

    for (int depth = LODE_GGUF_MAX_DEPTH; depth <= LODE_GGUF_MAX_DEPTH + 1; depth++) {
        struct lode_buf b = {0};
        for (int i = 1; i < depth; i++) { /* [[[...[]...]]] */
            gguf_u32(&b, i + 1 < depth ? 9 : 4);
            gguf_u64(&b, i + 1 < depth ? 1 : 0);
        }
        gguf_put_array(&w, "deep", 9, 1, b.data, b.len);
        lode_buf_free(&b);
        if (depth > LODE_GGUF_MAX_DEPTH) {
            refuse(&w, LODE_ERR_FORMAT, "nested deeper than 4");
        } else {
            struct lode_gguf *g;
            gguf_finish(&w, &b);
            assert_int_equal(lode_gguf_parse(&g, b.data, b.len, NULL), 0);
            lode_gguf_close(g);
            lode_buf_free(&b);
            gguf_writer_free(&w);
        }
    }

    static const uint64_t wrong[] = {0, 1, 4, 33, 48, 1 << 22, UINT64_C(1) << 63, UINT64_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        gguf_put_u64(&w, "general.alignment", wrong[i]);
        refuse(&w, LODE_ERR_FORMAT, "a power of two from 8 to 2097152 expected");
    }
    gguf_put_str(&w, "general.alignment", "32");
    refuse(&w, LODE_ERR_FORMAT, "general.alignment is no count");

    gguf_put_u32(&w, "a", 1);
    w.n_keys = 2;
    refuse(&w, LODE_ERR_FORMAT, "2 keys, which need at least 28 bytes, but only 17");
    w.n_keys = UINT64_MAX;
    refuse(&w, LODE_ERR_FORMAT, "18446744073709551615 keys, at most 65536");
    w.n_tensors = 1;
    refuse(&w, LODE_ERR_FORMAT, "1 tensors, which need at least 25 bytes");
    w.n_tensors = (uint64_t)1 << 61;
    refuse(&w, LODE_ERR_FORMAT, "tensors, at most 1048576");
}

static void refuses_wrong_tensors(void **state) {
    (void)state;
    struct gguf_writer w = {0};
    gguf_put_tensor(&w, "t", LODE_F32, 1, (uint64_t[]){1}, NULL);
    gguf_put_tensor(&w, "t", LODE_F32, 1, (uint64_t[]){1}, NULL);
    refuse(&w, LODE_ERR_FORMAT, "tensor t occurs twice");
    char name[257];
    memset(name, 'n', 256);
    name[256] = '\0';
    gguf_put_record(&w, name, 0, 1, (uint64_t[]){1}, 0);
    refuse(&w, LODE_ERR_FORMAT, "tensor 0 has a name of 256 bytes, 1 to 255");
    gguf_put_record(&w, "t", 0, 5, (uint64_t[]){1, 1, 1, 1, 1}, 0);
    refuse(&w, LODE_ERR_FORMAT, "tensor t has 5 dimensions, at most 4");
    gguf_put_record(&w, "t", 0, 2, (uint64_t[]){4, 0}, 0);
    refuse(&w, LODE_ERR_FORMAT, "tensor t has dimension 1 of size 0");
    gguf_put_record(&w, "t", 0, 2, (uint64_t[]){1u << 31, UINT64_C(1) << 33}, 0); /* 2^64 */
    refuse(&w, LODE_ERR_FORMAT, "more than 2^63 numbers");
    gguf_put_record(&w, "t", 0, 3, (uint64_t[]){1u << 31, 1u << 31, 2}, 0); /* 2^63 */
    refuse(&w, LODE_ERR_FORMAT, "more than 2^63 numbers");
    gguf_put_record(&w, "t", 28, 1, (uint64_t[]){INT64_MAX}, 0); /* times 8 */
    refuse(&w, LODE_ERR_FORMAT, "more bytes than an address can hold");
    gguf_put_record(&w, "t", 0, 1, (uint64_t[]){INT64_MAX / 2}, 0);
    refuse(&w, LODE_ERR_FORMAT, "ends beyond 2^63 bytes");
    gguf_put_record(&w, "t", 12, 2, (uint64_t[]){255, 2}, 0);
    refuse(&w, LODE_ERR_FORMAT, "tensor t has rows of 255 numbers, Q4_K needs a multiple of 256");
    gguf_put_record(&w, "t", 99, 1, (uint64_t[]){1}, 0);
    refuse(&w, LODE_ERR_UNSUPPORTED, "tensor t has unknown type 99");
    gguf_put_record(&w, "t", 31, 1, (uint64_t[]){32}, 0);
    refuse(&w, LODE_ERR_UNSUPPORTED, "type 31 (Q4_0_4_4)");
    gguf_put_record(&w, "t", 256, 1, (uint64_t[]){32}, 0); /* lode's own, never in files */
    refuse(&w, LODE_ERR_UNSUPPORTED, "tensor t has unknown type 256");

    gguf_put_tensor(&w, "a", LODE_F32, 1, (uint64_t[]){16}, NULL);
    gguf_put_record(&w, "b", 0, 1, (uint64_t[]){1}, 33);
    refuse(&w, LODE_ERR_FORMAT, "tensor b is at offset 33, not a multiple of the alignment 32");
    gguf_put_tensor(&w, "a", LODE_F32, 1, (uint64_t[]){16}, NULL);
    gguf_put_record(&w, "b", 0, 1, (uint64_t[]){1}, 32);
    refuse(&w, LODE_ERR_FORMAT, "overlap");
    gguf_put_tensor(&w, "a", LODE_F32, 1, (uint64_t[]){16}, NULL); /* c, b, a all within a */
    gguf_put_record(&w, "b", 0, 1, (uint64_t[]){1}, 64 - 32);
    gguf_put_record(&w, "c", 0, 1, (uint64_t[]){1}, 0);
    refuse(&w, LODE_ERR_FORMAT, "overlap");
    gguf_put_record(&w, "t", 0, 1, (uint64_t[]){1}, UINT64_MAX - 31);
    refuse(&w, LODE_ERR_FORMAT, "ends beyond 2^63 bytes");
    gguf_put_tensor(&w, "a", LODE_F32, 1, (uint64_t[]){16}, NULL);
    gguf_put_record(&w, "b", 0, 1, (uint64_t[]){9}, 64);
    refuse(&w, LODE_ERR_FORMAT,
           "the file is truncated: 196 bytes expected, 160 present (the first tensor cut off is b, "
           "36 bytes at 160)");

    /* Any order is fine as long as nothing overlaps. */
    struct lode_gguf *g;
    struct lode_buf b = {0};
    gguf_put_record(&w, "late", 0, 1, (uint64_t[]){8}, 32);
    gguf_put_tensor(&w, "early", LODE_F32, 1, (uint64_t[]){8}, NULL);
    gguf_finish(&w, &b);
    assert_int_equal(lode_gguf_parse(&g, b.data, b.len, NULL), 0);
    lode_gguf_close(g);
    lode_buf_free(&b);
    gguf_writer_free(&w);
}

/* ---- sets of shards ---- */

struct shard_plan {
    int no, count, tensors; /* as written into the file; negative: key absent */
    const char *name;       /* of its one tensor */
};

static char *write_shard(int file_no, int file_count, struct shard_plan s) {
    struct gguf_writer w = {0};
    char name[64];
    if (file_no == 1)
        gguf_put_str(&w, "general.architecture", "toy");
    if (s.no >= 0)
        gguf_put_u16(&w, "split.no", (uint16_t)s.no);
    if (s.count >= 0)
        gguf_put_u16(&w, "split.count", (uint16_t)s.count);
    if (s.tensors >= 0)
        gguf_put_i32(&w, "split.tensors.count", s.tensors);
    gguf_put_tensor(&w, s.name, LODE_F32, 1, (uint64_t[]){1}, (float[]){(float)file_no});
    snprintf(name, sizeof name, "set-%05d-of-%05d.gguf", file_no, file_count);
    char *path = tmp_path(name);
    gguf_write(&w, path);
    gguf_writer_free(&w);
    return path;
}

static void reads_sets_of_shards(void **state) {
    (void)state;
    static const char *const names[] = {"a", "b", "c"};
    char *path[3];
    struct lode_error err;
    struct lode_gguf *g;
    for (int i = 0; i < 3; i++)
        path[i] = write_shard(i + 1, 3, (struct shard_plan){i, 3, 3, names[i]});
    for (int given = 0; given < 3; given++) { /* any of them finds the others */
        if (lode_gguf_open(&g, path[given], &err) < 0)
            fail_msg("%s: %s", err.where, err.text);
        assert_string_equal(lode_gguf_arch(g), "toy");
        assert_string_equal(lode_gguf_path(g), path[0]);
        assert_int_equal(lode_gguf_n_shards(g), 3);
        assert_int_equal(lode_gguf_n_tensors(g), 3);
        for (uint32_t i = 0; i < 3; i++) {
            const struct lode_gguf_tensor *t = lode_gguf_find_tensor(g, names[i]);
            assert_ptr_equal(t, lode_gguf_tensor(g, i));
            assert_int_equal(t->shard, i);
            assert_true(*(const float *)lode_gguf_data(g, t) == (float)(i + 1));
            float v;
            assert_int_equal(lode_gguf_read(g, t, 0, &v, sizeof v, &err), 0);
            assert_true(v == (float)(i + 1));
            assert_string_equal(lode_gguf_file(g, i)->path, path[i]);
        }
        assert_null(lode_gguf_file(g, 3));
        lode_gguf_close(g);
    }

    static const struct {
        int file;
        struct shard_plan plan;
        const char *where, *words;
    } wrong[] = {
        {2, {1, 3, 3, "a"}, "-00002-", "tensor a occurs twice"},
        {2, {2, 3, 3, "b"}, "-00002-", "shard 3 of 3, shard 2 of 3 expected"},
        {2, {1, 4, 3, "b"}, "-00002-", "shard 2 of 4, shard 2 of 3 expected"},
        {2, {-1, -1, -1, "b"}, "-00002-", "shard 2 of 3 expected"},
        {2, {-1, 3, 3, "b"}, "-00002-", "split.no is missing"},
        {2, {7, 3, 3, "b"}, "-00002-", "split.no is 7, but split.count only 3"},
        {1, {0, 3, 4, "a"}, "-00001-", "split.tensors.count is 4, but the 3 shards hold 3"},
        {1, {0, 3, -1, "a"}, NULL, NULL}, /* not said: not checked */
        {1, {0, 2000, 3, "a"}, "-00001-", "at most 1024 shards"},
        {1, {1, 3, 3, "a"}, "-00001-", "must end in -00002-of-00003.gguf"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        free(write_shard(wrong[i].file, 3, wrong[i].plan));
        const int rc = lode_gguf_open(&g, path[0], &err);
        assert_int_equal(rc < 0, wrong[i].words != NULL);
        if (rc == 0)
            lode_gguf_close(g);
        else if (!strstr(err.text, wrong[i].words) || !strstr(err.where, wrong[i].where))
            fail_msg("case %zu: %s: %s", i, err.where, err.text);
        free(write_shard(wrong[i].file, 3,
                         (struct shard_plan){wrong[i].file - 1, 3, 3, names[wrong[i].file - 1]}));
    }

    assert_int_equal(unlink(path[2]), 0);
    assert_int_equal(lode_gguf_open(&g, path[0], &err), LODE_ERR_MISSING);
    assert_string_equal(err.where, path[2]);
    assert_non_null(strstr(err.text, "shard 3 of 3 is missing"));
    char *renamed = tmp_path("renamed.gguf");
    assert_int_equal(rename(path[0], renamed), 0);
    assert_int_equal(lode_gguf_open(&g, renamed, &err), LODE_ERR_FORMAT);
    assert_non_null(strstr(err.text, "must end in -00001-of-00003.gguf"));
    free(renamed);
    for (int i = 0; i < 3; i++)
        free(path[i]);
}

/* ---- damage ---- */

/* What one attempt may cost.  Memory, for H bytes that the file may claim as header (a bad count:
 * all of it): those bytes and the loader's step of 64 KiB; 2 H for strings (16 bytes for 8), or 11
 * H for keys (56 bytes and at most 4 map slots of 24 for 14), or 7 H for tensors (72 bytes and 4
 * slots for 25), whichever fills the header; names again; and a first block of 64 KiB for the
 * arena, one unfilled for its end. Time: 100 ms of this thread. */
static uint64_t thread_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static size_t n_tried, n_refused, held;
static uint64_t slowest_ns;

static int try_open(const char *path) {
    struct lode_error err = {0};
    struct lode_gguf *g;
    const uint64_t start = thread_ns();
    const size_t before = lode_alloc_active();
    const int rc = lode_gguf_open(&g, path, &err);
    const uint64_t took = thread_ns() - start;
    slowest_ns = took > slowest_ns ? took : slowest_ns;
    n_tried++;
    if (rc < 0) {
        n_refused++;
        assert_non_null(memchr(err.text, '\0', sizeof err.text));
        assert_true(err.text[0] && err.where[0]);
    } else {
        gguf_touch(g);
        lode_gguf_close(g);
    }
    assert_int_equal(lode_alloc_active(), before);
    return rc;
}

static void begin_damage(void) {
    n_tried = n_refused = 0;
    slowest_ns = 0;
    held = lode_alloc_active(); /* the test's own buffers */
}

static void end_damage(const char *what, size_t file_size) {
    print_message("%s: %zu tried, %zu refused, slowest %.2f ms, peak %zu KiB\n", what, n_tried,
                  n_refused, (double)slowest_ns / 1e6, (lode_alloc_peak() - held) / 1024);
    assert_in_range(slowest_ns, 0, MAX_NS);
    assert_in_range(lode_alloc_peak() - held, 0, 17 * file_size + 3 * 64 * 1024);
}

static char *qwen3_path(void) { return strdup(own_model("arch/qwen3")); }

/* Cuts the copy at path to every step-th length, from the whole down; everything shorter than
 * `needed` must be refused. */
static void cut(const char *path, size_t size, size_t needed, size_t step) {
    for (size_t n = size; n > 0; n = n > step ? n - step : 0) {
        assert_int_equal(truncate(path, (off_t)n), 0);
        const int rc = try_open(path);
        if ((rc == 0) != (n >= needed))
            fail_msg("cut to %zu of %zu bytes: %d", n, size, rc);
    }
}

static size_t end_of_tensors(const char *path) {
    struct lode_gguf *g;
    size_t end = 0;
    assert_int_equal(lode_gguf_open(&g, path, NULL), 0);
    for (size_t i = 0; i < lode_gguf_n_tensors(g); i++) {
        const struct lode_gguf_tensor *t = lode_gguf_tensor(g, i);
        end = t->offset + t->size > end ? t->offset + t->size : end;
    }
    lode_gguf_close(g);
    return end;
}

/* Every integer of a header, found by a walk of its own: offset and width. */
struct ints {
    const struct lode_buf *b;
    size_t pos;
    struct at {
        uint32_t offset, width;
    } * v;
    size_t n, cap;
};

static uint64_t ints_next(struct ints *s, uint32_t width) {
    if (s->n == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 256;
        s->v = realloc(s->v, s->cap * sizeof *s->v);
        assert_non_null(s->v);
    }
    s->v[s->n++] = (struct at){(uint32_t)s->pos, width};
    uint64_t v = 0;
    assert_true(s->pos + width <= s->b->len);
    memcpy(&v, s->b->data + s->pos, width);
    s->pos += width;
    return v;
}

static void ints_str(struct ints *s) {
    s->pos += ints_next(s, 8);
}

static void ints_value(struct ints *s, uint64_t type) {
    if (type == LODE_GGUF_STR) {
        ints_str(s);
    } else if (type == LODE_GGUF_ARRAY) {
        const uint64_t element = ints_next(s, 4), n = ints_next(s, 8);
        for (uint64_t i = 0; i < n; i++)
            ints_value(s, element);
    } else {
        ints_next(s, (uint32_t)lode_gguf_type_size((uint32_t)type));
    }
}

static struct ints find_ints(const struct lode_buf *b) {
    struct ints s = {.b = b, .pos = 4};
    ints_next(&s, 4);
    const uint64_t n_tensors = ints_next(&s, 8), n_keys = ints_next(&s, 8);
    for (uint64_t i = 0; i < n_keys; i++) {
        ints_str(&s);
        ints_value(&s, ints_next(&s, 4));
    }
    for (uint64_t i = 0; i < n_tensors; i++) {
        ints_str(&s);
        const uint64_t n_dims = ints_next(&s, 4);
        for (uint64_t d = 0; d < n_dims; d++)
            ints_next(&s, 8);
        ints_next(&s, 4);
        ints_next(&s, 8);
    }
    return s;
}

static void poke(int fd, size_t at, const void *bytes, size_t n) {
    assert_int_equal(pwrite(fd, bytes, n, (off_t)at), n);
}

/* Every step-th integer of the file at path takes each bad value in turn. */
static void spoil_ints(const char *path, const struct lode_buf *b, const struct ints *s,
                       size_t step) {
    const int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    for (size_t i = 0; i < s->n; i += step) {
        const struct at at = s->v[i];
        uint64_t true_value = 0;
        memcpy(&true_value, b->data + at.offset, at.width);
        const uint64_t bad[] = {0,
                                1,
                                INT32_MAX,
                                INT32_MAX + UINT64_C(1),
                                INT32_MAX + UINT64_C(2),
                                UINT64_C(1) << 32,
                                UINT64_C(1) << 63,
                                UINT64_MAX,
                                true_value - 1,
                                true_value + 1};
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
            poke(fd, at.offset, &bad[k], at.width);
            try_open(path);
        }
        poke(fd, at.offset, &true_value, at.width);
    }
    close(fd);
    assert_int_equal(try_open(path), 0); /* all put back */
}

/* Every step-th bit of the first n bytes is flipped in turn. */
static void flip_bits(const char *path, const struct lode_buf *b, size_t n, size_t step) {
    const int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    for (size_t bit = 0; bit < n * 8; bit += step) {
        const unsigned char was = (unsigned char)b->data[bit / 8];
        poke(fd, bit / 8, &(unsigned char){(unsigned char)(was ^ (1u << bit % 8))}, 1);
        try_open(path);
        poke(fd, bit / 8, &was, 1);
    }
    close(fd);
    assert_int_equal(try_open(path), 0);
}

static void copy_to(const struct lode_buf *b, const char *path) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b->data, 1, b->len, f), b->len);
    assert_int_equal(fclose(f), 0);
}

/* Cuts at every cut_step-th byte, spoils every int_step-th integer, flips every bit_step-th bit. */
static void damage(const char *name, const struct lode_buf *b, size_t cut_step, size_t int_step,
                   size_t bit_step) {
    char *path = tmp_path("damaged.gguf");
    struct ints header = find_ints(b);
    begin_damage();
    copy_to(b, path);
    cut(path, b->len, end_of_tensors(path), cut_step);
    copy_to(b, path);
    spoil_ints(path, b, &header, int_step);
    flip_bits(path, b, header.pos, bit_step);
    end_damage(name, b->len);
    free(header.v);
    free(path);
}

static void survives_damage(void **state) {
    (void)state;
    struct gguf_writer w = {0};
    struct lode_buf small = {0};
    put_everything(&w);
    gguf_finish(&w, &small);
    damage("small file", &small, 1, 1, 1);
    lode_buf_free(&small);
    gguf_writer_free(&w);

    char *model = qwen3_path();
    struct lode_buf whole = read_whole(model);
    if (at_length())
        damage("qwen3", &whole, 1, 1, 1);
    else
        damage("qwen3", &whole, 997, 11, 251);
    lode_buf_free(&whole);
    free(model);
}

/* ---- a file that shrinks after opening ---- */

static void survives_shrinking(void **state) {
    (void)state;
    struct lode_error err;
    if (lode_install_sigbus_handler(&err) < 0)
        fail_msg("%s", err.text);
    char *model = qwen3_path(), *path = tmp_path("shrink.gguf");
    struct lode_buf whole = read_whole(model);
    copy_to(&whole, path);
    struct lode_gguf *g, *other;
    assert_int_equal(lode_gguf_open(&g, path, &err), 0);
    assert_int_equal(lode_gguf_open(&other, model, &err), 0);
    assert_int_equal(truncate(path, 8192), 0);
    gguf_touch(g);
    assert_int_equal(lode_gguf_check(g, &err), LODE_ERR_IO);
    assert_string_equal(err.where, path);
    char words[80];
    snprintf(words, sizeof words, "shrank from %zu to 8192 bytes", whole.len);
    assert_non_null(strstr(err.text, words));
    assert_int_equal(lode_gguf_check(g, &err), LODE_ERR_IO); /* for good */
    /* Plain reads say where. */
    const struct lode_gguf_tensor *last = lode_gguf_tensor(g, lode_gguf_n_tensors(g) - 1);
    char c;
    assert_int_equal(lode_gguf_read(g, last, 0, &c, 1, &err), LODE_ERR_IO);
    snprintf(words, sizeof words, "ends at byte %" PRIu64, last->offset);
    assert_non_null(strstr(err.text, words));
    gguf_touch(other); /* another mapping is none the worse */
    assert_int_equal(lode_gguf_check(other, &err), 0);
    lode_gguf_close(g);
    lode_gguf_close(other);
    lode_buf_free(&whole);
    free(model);
    free(path);
}

/* ---- vocabularies are large ---- */

static void reads_large_vocabularies_quickly(void **state) {
    (void)state;
    enum { N = 262144 };
    struct gguf_writer w = {0};
    struct lode_buf tokens = {0}, merges = {0};
    char text[32];
    gguf_put_str(&w, "general.architecture", "toy");
    for (int i = 0; i < N; i++) {
        gguf_strn(&tokens, text, (size_t)snprintf(text, sizeof text, "token%d", i));
        gguf_strn(&merges, text, (size_t)snprintf(text, sizeof text, "tok %d", i));
    }
    gguf_put_array(&w, "tokenizer.ggml.tokens", 8, N, tokens.data, tokens.len);
    gguf_put_array(&w, "tokenizer.ggml.merges", 8, N, merges.data, merges.len);
    float *scores = calloc(N, sizeof *scores);
    assert_non_null(scores);
    gguf_put_array(&w, "tokenizer.ggml.scores", 6, N, scores, N * sizeof *scores);
    char *path = tmp_path("vocab.gguf");
    gguf_write(&w, path);
    const size_t header = w.keys.len;
    gguf_writer_free(&w);
    lode_buf_free(&tokens);
    lode_buf_free(&merges);
    free(scores);

    struct lode_gguf *g;
    const size_t before = lode_alloc_active();
    const uint64_t start = thread_ns();
    assert_int_equal(lode_gguf_open(&g, path, NULL), 0);
    const uint64_t took = thread_ns() - start;
    print_message("%d tokens, header of %zu KiB: %.1f ms, %zu KiB held\n", N, header / 1024,
                  (double)took / 1e6, (lode_alloc_active() - before) / 1024);
    assert_int_equal(lode_gguf_n_vocab(g), N);
    assert_in_range(took, 0, MAX_NS);
    /* the header, and 16 bytes a string */
    assert_in_range(lode_alloc_active() - before, header, header + 2 * 16 * N + 256 * 1024);
    const struct lode_gguf_array *a;
    assert_true(lode_gguf_array(g, "tokenizer.ggml.tokens", &a));
    assert_true(lode_str_eqz(a->strs[N - 1], "token262143"));
    lode_gguf_close(g);
    free(path);
}

/* A count in a huge file makes lode neither read nor hold more than a header may have. */
static void reads_no_endless_headers(void **state) {
    (void)state;
    struct gguf_writer w = {0};
    struct lode_gguf *g;
    struct lode_error err;
    char *path = tmp_path("huge.gguf");
    uint64_t n = 300 << 20;
    for (int array = 0; array <= 1; array++) {
        if (array)
            gguf_put_array(&w, "long", LODE_GGUF_U8, n, "", 0);
        else
            gguf_put(&w, "long", LODE_GGUF_STR, &n, sizeof n);
        gguf_write(&w, path);
        assert_int_equal(truncate(path, 400 << 20), 0); /* zeros that take no space */
        const size_t before = lode_alloc_peak();
        const uint64_t start = thread_ns();
        assert_int_equal(lode_gguf_open(&g, path, &err), LODE_ERR_FORMAT);
        assert_in_range(thread_ns() - start, 0, MAX_NS);
        assert_non_null(strstr(err.text, "the header does not end within"));
        assert_true(lode_alloc_peak() == before);
        gguf_writer_free(&w);
    }
    free(path);
}

/* ---- the reference models, where they are ---- */

static size_t n_opened;

static int open_one(const char *path, const struct stat *st, int type, struct FTW *where) {
    (void)where;
    const size_t n = strlen(path);
    if (type != FTW_F || n < 5 || strcmp(path + n - 5, ".gguf") != 0)
        return 0;
    struct lode_gguf *g;
    struct lode_error err;
    if (lode_gguf_open(&g, path, &err) < 0)
        fail_msg("%s: %s", err.where, err.text);
    gguf_touch(g);
    assert_int_equal(lode_gguf_check(g, NULL), 0);
    assert_true(lode_gguf_arch(g)[0]);
    assert_true(lode_gguf_n_vocab(g) > 0);
    if (lode_gguf_n_tensors(g) > 0) { /* llama.cpp pads the last tensor */
        const size_t end = end_of_tensors(path);
        assert_in_range((size_t)st->st_size - end, 0, 31);
    }
    lode_gguf_close(g);
    n_opened++;
    return 0;
}

static void opens_the_reference_models(void **state) {
    (void)state;
    const char *shared = getenv("LODE_SHARED");
    static const char *const folders[] = {"ref", "models"};
    char path[4096];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", shared ? shared : "../shared", folders[i]);
        if (access(path, R_OK) == 0)
            assert_int_equal(nftw(path, open_one, 16, FTW_PHYS), 0);
    }
    if (n_opened == 0)
        skip();
    print_message("%zu files opened\n", n_opened);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survives_damage), /* first: it looks at the memory's peak */
        cmocka_unit_test(reads_every_type),
        cmocka_unit_test(respects_alignment),
        cmocka_unit_test(explains_refused_keys),
        cmocka_unit_test(shows_values),
        cmocka_unit_test(refuses_other_files),
        cmocka_unit_test(refuses_wrong_metadata),
        cmocka_unit_test(refuses_wrong_tensors),
        cmocka_unit_test(reads_sets_of_shards),
        cmocka_unit_test(survives_shrinking),
        cmocka_unit_test(reads_large_vocabularies_quickly),
        cmocka_unit_test(reads_no_endless_headers),
        cmocka_unit_test(opens_the_reference_models),
    };
    return cmocka_run_group_tests(tests, NULL, tmp_clean);
}
