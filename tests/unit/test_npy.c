/* test_npy.c - .npy files: what NumPy writes is read, what is broken is refused. */
#include "tools/npy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A file of version `major` with this header text, then `n` bytes of data.  Exactly as long as it
 * says, so that the address sanitizer sees one byte too far. */
static unsigned char *make(int major, const char *header, const void *data, size_t n,
                           size_t *size) {
    const size_t lead = major == 1 ? 10 : 12, length = strlen(header);
    unsigned char *b = malloc(lead + length + n);
    assert_non_null(b);
    memcpy(b, "\x93NUMPY", 6);
    b[6] = (unsigned char)major;
    b[7] = 0;
    b[8] = (unsigned char)(length & 255);
    b[9] = (unsigned char)(length >> 8);
    if (major > 1)
        b[10] = b[11] = 0;
    memcpy(b + lead, header, length);
    if (n)
        memcpy(b + lead + length, data, n);
    *size = lead + length + n;
    return b;
}

static int parse(struct npy *out, int major, const char *header, const void *data, size_t n,
                 struct lode_error *err, unsigned char **bytes) {
    size_t size;
    *bytes = make(major, header, data, n, &size);
    return npy_parse(out, *bytes, size, "x.npy", err);
}

static void test_reads(void **state) {
    (void)state;
    struct npy a;
    struct lode_error err;
    unsigned char *bytes;
    static const int32_t three[] = {1, -2, 0x01020304};
    assert_int_equal(parse(&a, 1, "{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }   \n",
                           three, 12, &err, &bytes),
                     0);
    assert_int_equal(a.n_dims, 1);
    assert_int_equal(a.count, 3);
    assert_int_equal(npy_int(&a, 0), 1);
    assert_int_equal(npy_int(&a, 1), -2);
    assert_int_equal(npy_int(&a, 2), 0x01020304);
    free(bytes);

    static const uint64_t large[] = {UINT64_MAX, 7};
    assert_int_equal(parse(&a, 2,
                           "{\"shape\": (1, 2), \"descr\": \"<u8\", \"fortran_order\": False}",
                           large, 16, &err, &bytes),
                     0);
    assert_int_equal(a.n_dims, 2);
    assert_int_equal(npy_int(&a, 0), INT64_MAX);
    assert_int_equal(npy_int(&a, 1), 7);
    free(bytes);

    /* one number, and none */
    assert_int_equal(parse(&a, 3, "{'descr': '|i1', 'fortran_order': True, 'shape': ()}", "\xff", 1,
                           &err, &bytes),
                     0);
    assert_int_equal(a.count, 1);
    assert_int_equal(npy_int(&a, 0), -1);
    free(bytes);
    assert_int_equal(parse(&a, 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (0, 5)}", "",
                           0, &err, &bytes),
                     0);
    assert_int_equal(a.count, 0);
    free(bytes);
}

static void test_refuses(void **state) {
    (void)state;
    static const struct {
        const char *header, *says;
    } rows[] = {
        {"", "not a dictionary"},
        {"{'descr': '<i4'}", "lacks descr, fortran_order or shape"},
        {"{'descr': '>i4', 'fortran_order': False, 'shape': (1,)}", "numbers of type '>i4'"},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", "numbers of type '<c8'"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", "numbers of type '|O'"},
        {"{'descr': '<i4', 'fortran_order': True, 'shape': (1, 1)}", "Fortran"},
        {"{'descr': '<i4', 'fortran_order': False, 'shape': (2,)}", "2 numbers of 4 bytes"},
        {"{'descr': '<i4', 'fortran_order': False, 'shape': (-1,)}", "is not {descr"},
        {"{'descr': '<i4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
         "overflows"},
        {"{'descr': '<i4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
         "is not {descr"},
        {"{'descr': '<i8', 'fortran_order': False, 'shape': (2305843009213693952,)}",
         "2305843009213693952 numbers of 8 bytes"},
        {"{'descr': '<i4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", "is not {descr"},
        {"{'descr': '<i4', 'fortran_order': Maybe, 'shape': (1,)}", "is not {descr"},
        {"{'descr': '<i4", "is not {descr"},
        {"{'shape': (1", "is not {descr"},
        {"{'shape': (1, ", "is not {descr"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct npy a;
        struct lode_error err = {0};
        unsigned char *bytes;
        assert_int_not_equal(parse(&a, 1, rows[i].header, "1234", 4, &err, &bytes), 0);
        free(bytes);
        if (!strstr(err.text, rows[i].says))
            fail_msg("'%s' gave '%s', not '%s'", rows[i].header, err.text, rows[i].says);
    }
}

/* Every prefix of a good file is refused. */
static void test_cut_short(void **state) {
    (void)state;
    size_t size;
    unsigned char *whole =
        make(1, "{'descr': '<i4', 'fortran_order': False, 'shape': (2,)}", "12345678", 8, &size);
    for (size_t n = 0; n < size; n++) {
        struct npy a;
        struct lode_error err;
        unsigned char *part = malloc(n ? n : 1);
        memcpy(part, whole, n);
        assert_true(npy_parse(&a, part, n, "x.npy", &err) < 0);
        free(part);
    }
    free(whole);
}

static void test_writes(void **state) {
    (void)state;
    for (uint64_t rows = 1; rows < 1000000000000; rows *= 7) {
        char *text = NULL;
        size_t size = 0;
        const uint64_t dims[] = {rows, 3};
        struct npy a;
        struct lode_error err;
        FILE *f = open_memstream(&text, &size);
        assert_int_equal(npy_write_header(f, 2, dims), 0);
        fclose(f);
        assert_int_equal(size % 64, 0);
        assert_int_equal(text[size - 1], '\n');
        char *more = calloc(1, size + 12); /* the numbers of one row */
        memcpy(more, text, size);
        assert_int_equal(npy_parse(&a, more, size + 12, "x.npy", &err), rows == 1 ? 0 : -4);
        assert_int_equal(a.n_dims, 2);
        assert_int_equal(a.dims[0], rows);
        assert_int_equal(a.dims[1], 3);
        assert_int_equal(a.kind, 'f');
        free(more);
        free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_writes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
