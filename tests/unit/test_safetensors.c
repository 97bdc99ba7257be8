/* safetensors: what is accepted, and everything that is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tmpdir.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "format/safetensors.h"

#include <string.h>

static struct lode_error err;

/* header and n_data bytes that count up, as a file. */
static struct lode_buf file_of(const char *header, size_t n_data) {
    struct lode_buf b = {0};
    const uint64_t n = strlen(header);
    assert_true(lode_buf_add(&b, &n, sizeof n) && lode_buf_addz(&b, header));
    for (size_t i = 0; i < n_data; i++)
        assert_true(lode_buf_addc(&b, (char)i));
    return b;
}

static int parse(const char *header, size_t n_data) {
    struct lode_buf b = file_of(header, n_data);
    struct lode_st *st;
    const int rc = lode_st_parse(&st, b.data, b.len, b.len, &err);
    lode_st_close(st);
    lode_buf_free(&b);
    return rc;
}

static void write_file(const char *name, const char *header, size_t n_data) {
    struct lode_buf b = file_of(header, n_data);
    char *path = tmp_path(name);
    FILE *f = fopen(path, "wb");
    assert_true(f && fwrite(b.data, 1, b.len, f) == b.len && fclose(f) == 0);
    free(path);
    lode_buf_free(&b);
}

static void write_text(const char *name, const char *text) {
    char *path = tmp_path(name);
    FILE *f = fopen(path, "wb");
    assert_true(f && fputs(text, f) >= 0 && fclose(f) == 0);
    free(path);
}

static const char good[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[12,16]},"
    "\"none\":{\"dtype\":\"F16\",\"shape\":[4,0],\"data_offsets\":[12,12]},"
    " \"a\\u00e9\" : { \"shape\" : [2, 3], \"dtype\":\"BF16\",\"data_offsets\":[0,12]}}   ";

static void reads_a_file(void **state) {
    (void)state;
    struct lode_buf b = file_of(good, 16);
    struct lode_st *st;
    assert_int_equal(lode_st_parse(&st, b.data, b.len, b.len, &err), 0);
    assert_int_equal(lode_st_n_tensors(st), 3);
    const struct lode_st_tensor *t = lode_st_tensor(st, 0); /* by place */
    assert_string_equal(t->name, "a\xc3\xa9");
    assert_ptr_equal(lode_st_find(st, "a\xc3\xa9"), t);
    assert_int_equal(t->type, LODE_ST_BF16);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->dims[0], 2);
    assert_int_equal(t->dims[1], 3);
    assert_int_equal(t->offset, 8 + strlen(good));
    assert_int_equal(t->size, 12);
    assert_int_equal(lode_st_find(st, "none")->size, 0);
    assert_int_equal(lode_st_find(st, "b")->n_dims, 0);
    assert_null(lode_st_find(st, "c"));
    assert_null(lode_st_tensor(st, 3));
    lode_st_close(st);
    lode_buf_free(&b);
}

/* Every proper prefix of a file is refused, whether its size is known or not. */
static void cut_anywhere(void **state) {
    (void)state;
    struct lode_buf b = file_of(good, 16);
    const size_t before = lode_alloc_active();
    for (size_t n = 0; n < b.len; n++) {
        struct lode_st *st;
        assert_int_equal(lode_st_parse(&st, b.data, n, n, &err), LODE_ERR_FORMAT);
        assert_null(st);
    }
    assert_int_equal(lode_alloc_active(), before);
    lode_buf_free(&b);
}

/* Every byte of the header replaced by some others: no crash (the sanitizers see), and what is
 * accepted still fills the file. */
static void damaged_anywhere(void **state) {
    (void)state;
    static const char bytes[] = {'"',  '{', '}', '[', ']',  ',',    ':',
                                 '\\', '0', '9', '-', '\0', '\xff', ' '};
    struct lode_buf b = file_of(good, 16);
    for (size_t i = 0; i < 8 + strlen(good); i++)
        for (size_t k = 0; k < sizeof bytes; k++) {
            const char was = b.data[i];
            struct lode_st *st;
            size_t sum = 0;
            b.data[i] = bytes[k];
            if (lode_st_parse(&st, b.data, b.len, b.len, &err) == 0) {
                for (size_t j = 0; j < lode_st_n_tensors(st); j++)
                    sum += lode_st_tensor(st, j)->size;
                assert_int_equal(sum, 16);
            }
            lode_st_close(st);
            b.data[i] = was;
        }
    lode_buf_free(&b);
}

#define T(dtype, shape, place)                                                                     \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" place "}"

static void refuses(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t n_data;
        const char *why; /* part of the message */
    } cases[] = {
        {"", 0, "begin with {"},
        {" {}", 0, "begin with {"},
        {"{", 0, "a string expected"},
        {"{} x", 0, "more text"},
        {"[]", 0, "begin with {"},
        {"{}", 1, "belong to no tensor"},
        {"{\"a\":" T("U8", "[2]", "[0,2]") "}", 3, "belong to no tensor"},
        {"{\"a\":" T("U8", "[2]", "[0,2]") "}", 1, "outside"},
        {"{\"a\":" T("U8", "[2]", "[2,0]") "}", 2, "outside"},
        {"{\"a\":" T("U8", "[2]", "[0,3]") "}", 3, "make 2 bytes"},
        {"{\"a\":" T("U8", "[2]", "[1,3]") "}", 3, "unused bytes"},
        {"{\"a\":" T("U8", "[2]", "[0,2]") ",\"b\":" T("U8", "[2]", "[1,3]") "}", 3, "overlaps"},
        {"{\"a\":" T("U8", "[2]", "[0,2]") ",\"b\":" T("U8", "[2]", "[0,2]") "}", 2, "overlaps"},
        {"{\"a\":" T("U8", "[1]", "[0,1]") ",\"a\":" T("U8", "[1]", "[1,2]") "}", 2, "twice"},
        {"{\"a\":" T("U9", "[1]", "[0,1]") "}", 1, "unknown dtype"},
        {"{\"a\":" T("F4", "[3]", "[0,1]") "}", 1, "whole number of bytes"},
        {"{\"a\":" T("U8", "[-1]", "[0,1]") "}", 1, "whole number"},
        {"{\"a\":" T("U8", "[1.0]", "[0,1]") "}", 1, "plain whole number"},
        {"{\"a\":" T("U8", "[01]", "[0,1]") "}", 1, "plain whole number"},
        {"{\"a\":" T("U8", "[1]", "[0,1,2]") "}", 1, "two numbers"},
        {"{\"a\":" T("U8", "[1]", "[0]") "}", 1, "two numbers"},
        {"{\"a\":" T("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, "8 dimensions"},
        {"{\"a\":" T("U64", "[4294967296,4294967296]", "[0,0]") "}", 0, "too large"},
        {"{\"a\":" T("U8", "[99999999999999999999]", "[0,1]") "}", 1, "64 bits"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "must all be there"},
        {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
         "comes twice"},
        {"{\"a\":{\"more\":1}}", 1, "nothing else"},
        {"{\"\":" T("U8", "[1]", "[0,1]") "}", 1, "name is empty"},
        {"{\"a\\u0000\":" T("U8", "[1]", "[0,1]") "}", 1, "control characters"},
        {"{\"a\xff\":" T("U8", "[1]", "[0,1]") "}", 1, "UTF-8"},
        {"{\"\\ud800\":" T("U8", "[1]", "[0,1]") "}", 1, "surrogate"},
        {"{\"\\x\":" T("U8", "[1]", "[0,1]") "}", 1, "unknown escape"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "a string expected"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int rc = parse(cases[i].header, cases[i].n_data);
        if (rc != LODE_ERR_FORMAT || !strstr(err.text, cases[i].why))
            fail_msg("%s: %d %s", cases[i].header, rc, rc < 0 ? err.text : "accepted");
    }
    /* A header of more than 100 MB, or that is larger than the file, is refused unread. */
    const uint64_t sizes[] = {100000001, UINT64_MAX, 100000000};
    for (size_t i = 0; i < 3; i++) {
        struct lode_st *st;
        char head[16] = "";
        memcpy(head, &sizes[i], 8);
        assert_int_equal(lode_st_parse(&st, head, 16, 16, &err), LODE_ERR_FORMAT);
    }
}

static void reads_a_directory(void **state) {
    (void)state;
    char *dir = tmp_path("");
    struct lode_st *st;
    assert_int_equal(lode_st_open(&st, dir, true, &err), LODE_ERR_MISSING);
    write_file("model.safetensors", good, 16);
    for (int map = 0; map <= 1; map++) {
        unsigned char bytes[4];
        assert_int_equal(lode_st_open(&st, dir, map, &err), 0);
        const struct lode_st_tensor *t = lode_st_find(st, "b");
        assert_int_equal(lode_st_read(st, t, 1, bytes, 3, &err), 0);
        assert_memory_equal(bytes, "\x0d\x0e\x0f", 3);
        assert_int_equal(lode_st_read(st, t, 2, bytes, 3, &err), LODE_ERR_ARG);
        assert_true(map ? !memcmp(lode_st_data(st, t), "\x0c\x0d\x0e\x0f", 4)
                        : !lode_st_data(st, t));
        assert_int_equal(lode_st_check(st, &err), 0);
        assert_int_equal(lode_st_file_size(st), 8 + strlen(good) + 16);
        lode_st_close(st);
    }
    free(dir);
}

static void reads_a_set(void **state) {
    (void)state;
    static const struct {
        const char *index;
        int rc;
        const char *why;
    } cases[] = {
        {"{\"metadata\":{\"total_size\":4,\"x\":[1.5e3,null,true]},"
         "\"weight_map\":{\"a\":\"m-1.safetensors\",\"b\":\"m-2.safetensors\"}}",
         0, ""},
        {"{\"weight_map\":{\"a\":\"m-1.safetensors\",\"b\":\"m-3.safetensors\"}}", LODE_ERR_MISSING,
         ""},
        {"{\"weight_map\":{\"a\":\"m-1.safetensors\",\"c\":\"m-2.safetensors\"}}", LODE_ERR_MISSING,
         "none of its files"},
        {"{\"weight_map\":{\"b\":\"m-1.safetensors\",\"a\":\"m-2.safetensors\"}}", LODE_ERR_FORMAT,
         "another file"},
        {"{\"weight_map\":{\"a\":\"../m-1.safetensors\"}}", LODE_ERR_FORMAT, "beside the index"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", LODE_ERR_FORMAT, "beside the index"},
        {"{\"weight_map\":{\"a\":\"..\"}}", LODE_ERR_FORMAT, "beside the index"},
        {"{\"weight_map\":{\"a\":\"\"}}", LODE_ERR_FORMAT, "beside the index"},
        {"{\"weight_map\":{\"a\":\"m-1.safetensors\",\"a\":\"m-1.safetensors\"}}", LODE_ERR_FORMAT,
         "twice"},
        {"{\"weight_map\":{}}", LODE_ERR_FORMAT, "empty"},
        {"{}", LODE_ERR_FORMAT, "missing"},
        {"{\"weight_map\":{\"a\":\"m-1.safetensors\"}", LODE_ERR_FORMAT, "closing"},
        {"{\"weight_map\":{\"a\":1}}", LODE_ERR_FORMAT, "string expected"},
        {"{\"x\":[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]}", LODE_ERR_FORMAT, "too deeply"},
    };
    char *dir = tmp_path("");
    write_file("m-1.safetensors", "{\"a\":" T("U8", "[2]", "[0,2]") "}", 2);
    write_file("m-2.safetensors", "{\"b\":" T("U8", "[2]", "[0,2]") "}", 2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct lode_st *st;
        write_text("model.safetensors.index.json", cases[i].index);
        const int rc = lode_st_open(&st, dir, true, &err);
        if (rc != cases[i].rc || (rc < 0 && !strstr(err.text, cases[i].why)))
            fail_msg("%s: %d %s", cases[i].index, rc, rc < 0 ? err.text : "accepted");
        if (rc == LODE_ERR_MISSING && i == 1)
            assert_non_null(strstr(err.where, "m-3.safetensors")); /* which one */
        if (rc == 0) {
            assert_int_equal(lode_st_n_shards(st), 2);
            assert_int_equal(lode_st_find(st, "b")->shard, 1);
        }
        lode_st_close(st);
    }
    free(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_file),      cmocka_unit_test(cut_anywhere),
        cmocka_unit_test(damaged_anywhere),  cmocka_unit_test(refuses),
        cmocka_unit_test(reads_a_directory), cmocka_unit_test(reads_a_set),
    };
    return cmocka_run_group_tests(tests, NULL, tmp_clean);
}
