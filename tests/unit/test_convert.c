/* Writing GGUF files and converting: what is written is what the parser reads; pieces of any size;
 * the file is there whole or not at all; and every allocation may fail. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../own_files.h"
#include "failmalloc.h"
#include "gguf_writer.h"
#include "tmpdir.h"

#include "base/out_file.h"
#include "format/gguf_write.h"
#include "lode/lode.h"
#include "text/tokenizer.h"

static bool exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

static int put(struct lode_gguf_writer *w, const char *key, struct lode_gguf_value v) {
    return lode_gguf_writer_key(w, key, &v, NULL);
}

#define VALUE(t, field, x) ((struct lode_gguf_value){.type = LODE_GGUF_##t, .field = (x)})

/* ---- the writer ---- */

static const struct lode_str words[] = {{"one", 3}, {"", 0}, {"t\0o", 3}};
static const struct lode_gguf_array inner[] = {{LODE_GGUF_STR, 3, {.strs = words}},
                                               {LODE_GGUF_U16, 2, {.raw = "\1\0\2\1"}}};

static void describe(struct lode_gguf_writer *w) {
    assert_int_equal(put(w, "general.architecture", VALUE(STR, s, LODE_STR("toy"))), 0);
    assert_int_equal(put(w, "u8", VALUE(U8, u, 255)), 0);
    assert_int_equal(put(w, "i8", VALUE(I8, i, -128)), 0);
    assert_int_equal(put(w, "u16", VALUE(U16, u, 65535)), 0);
    assert_int_equal(put(w, "i16", VALUE(I16, i, -32768)), 0);
    assert_int_equal(put(w, "u32", VALUE(U32, u, UINT32_MAX)), 0);
    assert_int_equal(put(w, "i32", VALUE(I32, i, INT32_MIN)), 0);
    assert_int_equal(put(w, "u64", VALUE(U64, u, UINT64_MAX)), 0);
    assert_int_equal(put(w, "i64", VALUE(I64, i, INT64_MIN)), 0);
    assert_int_equal(put(w, "f32", VALUE(F32, f, 0.1)), 0);
    assert_int_equal(put(w, "f64", VALUE(F64, f, 0.1)), 0);
    assert_int_equal(put(w, "bool", VALUE(BOOL, u, 1)), 0);
    assert_int_equal(put(w, "strs", VALUE(ARRAY, a, inner[0])), 0);
    const struct lode_gguf_array nested = {LODE_GGUF_ARRAY, 2, {.arrays = inner}};
    assert_int_equal(put(w, "nested", VALUE(ARRAY, a, nested)), 0);
    const struct lode_gguf_array none = {LODE_GGUF_F64, 0, {.raw = NULL}};
    assert_int_equal(put(w, "none", VALUE(ARRAY, a, none)), 0);
    const uint64_t shapes[][4] = {{5, 1, 1, 1}, {32, 3, 1, 1}, {7, 2, 3, 1}, {64, 1, 2, 2}};
    static const enum lode_dtype types[] = {LODE_F32, LODE_Q4_0, LODE_F16, LODE_MXFP4};
    for (uint32_t i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%u", i);
        assert_int_equal(lode_gguf_writer_tensor(w, name, types[i], i + 1, shapes[i], NULL), 0);
    }
}

static const size_t sizes[] = {20, 54, 84, 136}; /* of the four */

static void round_trip(void **state) {
    (void)state;
    char *path = tmp_path("round.gguf");
    uint8_t bytes[294];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7 + 1);
    for (size_t step = 1; step <= sizeof bytes; step += step < 30 ? 1 : 60) {
        struct lode_gguf_writer *w;
        struct lode_gguf *g;
        struct lode_error err;
        assert_int_equal(lode_gguf_writer_create(&w, &err), 0);
        describe(w);
        assert_int_equal(lode_gguf_writer_begin(w, path, &err), 0);
        for (size_t at = 0; at < sizeof bytes; at += step) {
            const size_t n = sizeof bytes - at < step ? sizeof bytes - at : step;
            assert_int_equal(lode_gguf_writer_data(w, bytes + at, n, &err), 0);
        }
        assert_int_equal(lode_gguf_writer_data(w, bytes, 1, &err), LODE_ERR_INTERNAL);
        assert_int_equal(lode_gguf_writer_commit(w, &err), 0);
        struct stat st;
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal((uint64_t)st.st_size, lode_gguf_writer_size(w));
        lode_gguf_writer_free(w);

        assert_int_equal(lode_gguf_open(&g, path, &err), 0);
        assert_int_equal(lode_gguf_version(g), 3);
        assert_int_equal(lode_gguf_n_keys(g), 15);
        assert_int_equal(lode_gguf_find(g, "i8")->i, -128);
        assert_int_equal(lode_gguf_find(g, "u64")->u, UINT64_MAX);
        assert_int_equal(lode_gguf_find(g, "i64")->i, INT64_MIN);
        assert_true(lode_gguf_find(g, "f64")->f == 0.1);
        assert_true(lode_gguf_find(g, "f32")->f == (double)0.1f);
        const struct lode_gguf_array *a = &lode_gguf_find(g, "nested")->a;
        assert_int_equal(a->n, 2);
        assert_true(lode_str_eq(a->arrays[0].strs[2], words[2]));
        assert_int_equal(lode_gguf_array_i64(&a->arrays[1], 1), 258);
        assert_int_equal(lode_gguf_find(g, "none")->a.n, 0);
        assert_int_equal(lode_gguf_n_tensors(g), 4);
        for (size_t i = 0, at = 0; i < 4; at += sizes[i++]) {
            const struct lode_gguf_tensor *t = lode_gguf_tensor(g, i);
            assert_int_equal(t->size, sizes[i]);
            assert_int_equal(t->offset % LODE_GGUF_ALIGN, 0);
            assert_memory_equal(lode_gguf_data(g, t), bytes + at, sizes[i]);
        }
        lode_gguf_close(g);
    }
    free(path);
}

static void refusals(void **state) {
    (void)state;
    struct lode_gguf_writer *w;
    assert_int_equal(lode_gguf_writer_create(&w, NULL), 0);
    describe(w);
    assert_int_equal(put(w, "u8", VALUE(U8, u, 1)), 0); /* the first stays */
    assert_int_equal(put(w, "big", VALUE(U8, u, 256)), LODE_ERR_ARG);
    assert_int_equal(put(w, "low", VALUE(I16, i, -32769)), LODE_ERR_ARG);
    assert_int_equal(put(w, "maybe", VALUE(BOOL, u, 2)), LODE_ERR_ARG);
    assert_int_equal(put(w, "", VALUE(U8, u, 1)), LODE_ERR_ARG);
    assert_int_equal(put(w, "\xff", VALUE(U8, u, 1)), LODE_ERR_ARG);
    assert_int_equal(put(w, "general.alignment", VALUE(U32, u, 64)), LODE_ERR_ARG);
    const uint64_t odd[] = {33}, huge[] = {1u << 31, 1u << 31, 4};
    assert_int_equal(lode_gguf_writer_tensor(w, "odd", LODE_Q4_0, 1, odd, NULL), LODE_ERR_ARG);
    assert_int_equal(lode_gguf_writer_tensor(w, "t0", LODE_F32, 1, odd, NULL), LODE_ERR_ARG);
    assert_int_equal(lode_gguf_writer_tensor(w, "a", LODE_A256, 1, odd, NULL), LODE_ERR_ARG);
    assert_int_equal(lode_gguf_writer_tensor(w, "none", LODE_F32, 0, odd, NULL), LODE_ERR_ARG);
    assert_int_equal(lode_gguf_writer_tensor(w, "huge", LODE_F32, 3, huge, NULL), LODE_ERR_ARG);
    assert_int_equal(lode_gguf_writer_commit(w, NULL), LODE_ERR_INTERNAL);
    lode_gguf_writer_free(w);
}

/* ---- complete or absent ---- */

static void *commit_later(void *f) {
    usleep(50000);
    lode_out_write(f, "first", 5, NULL);
    return (void *)(intptr_t)lode_out_commit(f, NULL);
}

static void the_later_of_two_stays(void **state) {
    (void)state;
    char *path = tmp_path("two"), back[16] = "";
    struct lode_out_file f;
    struct lode_error err;
    pthread_t other;
    void *rc;
    assert_int_equal(lode_out_open(&f, path, 0, &err), 0);
    assert_int_equal(pthread_create(&other, NULL, commit_later, &f), 0);
    assert_int_equal(lode_out_whole(path, "second", 6, &err), 0); /* waits */
    pthread_join(other, &rc);
    assert_null(rc);
    lode_out_abandon(&f);
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    assert_int_equal(fread(back, 1, sizeof back, in), 6);
    fclose(in);
    assert_string_equal(back, "second");
    unlink(path);
    free(path);
}

static void whole_or_not_at_all(void **state) {
    (void)state;
    char *path = tmp_path("whole"), *part = tmp_path("whole.lode-part");
    struct lode_out_file f, second;
    struct lode_error err;
    char back[16] = "";
    assert_int_equal(lode_out_open(&f, path, 1000, &err), 0);
    assert_int_equal(lode_out_write(&f, "new", 3, &err), 0);
    assert_true(exists(part) && !exists(path));
    assert_int_equal(lode_out_open(&second, path, 0, &err), LODE_ERR_IO); /* locked */
    lode_out_abandon(&second);
    assert_true(exists(part));
    lode_out_abandon(&f);
    assert_true(!exists(part) && !exists(path));

    FILE *stale = fopen(part, "wb"); /* what a killed run leaves */
    assert_non_null(stale);
    fputs("a long stale text", stale);
    fclose(stale);
    assert_int_equal(lode_out_open(&f, path, 3, &err), 0);
    assert_int_equal(lode_out_write(&f, "new", 3, &err), 0);
    assert_int_equal(lode_out_commit(&f, &err), 0);
    lode_out_abandon(&f);
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    assert_int_equal(fread(back, 1, sizeof back, in), 3);
    fclose(in);
    assert_string_equal(back, "new");
    assert_false(exists(part));

    assert_int_equal(lode_out_open(&f, tmp_dir(), 0, &err), LODE_ERR_ARG);
    assert_int_equal(lode_out_open(&f, "/dev/null", 0, &err), LODE_ERR_ARG);
    assert_int_equal(lode_out_open(&f, path, (uint64_t)1 << 60, &err), LODE_ERR_IO);
    assert_false(exists(part));
    free(path);
    free(part);
}

/* ---- conversions ---- */

/* A toy that no engine runs: what is written does not depend on an architecture. */
static char *make_source(bool bad) {
    struct gguf_writer w = {0};
    float numbers[256 * 4];
    char *path = tmp_path(bad ? "bad.gguf" : "source.gguf");
    for (int i = 0; i < 1024; i++)
        numbers[i] = sinf((float)i * 0.37f);
    if (bad)
        numbers[700] = NAN;
    gguf_put_str(&w, "general.architecture", "toy");
    gguf_put_u32(&w, "toy.block_count", 1);
    gguf_put_tensor(&w, "blk.0.attn_norm.weight", LODE_F32, 1, (uint64_t[]){256}, numbers);
    gguf_put_tensor(&w, "blk.0.ffn_up.weight", LODE_F32, 2, (uint64_t[]){256, 4}, numbers);
    gguf_write(&w, path);
    gguf_writer_free(&w);
    return path;
}

static char *make_imatrix(void) {
    struct lode_buf b = {0};
    const float sums[256] = {[3] = 1, [200] = 4};
    char *path = tmp_path("im.dat");
    gguf_u32(&b, 1);
    gguf_u32(&b, 19);
    gguf_bytes(&b, "blk.0.ffn_up.weight", 19);
    gguf_u32(&b, 2);
    gguf_u32(&b, 256);
    gguf_bytes(&b, sums, sizeof sums);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b.data, 1, b.len, f), b.len);
    fclose(f);
    lode_buf_free(&b);
    return path;
}

static int convert(const char *from, const char *to, const char *imatrix, struct lode_error *err) {
    struct lode_convert *c;
    const struct lode_convert_rule rule = {"ffn_(up|gate)", "Q5_K"};
    int rc = lode_convert_open(&c, from,
                               &(struct lode_convert_opts){.type = "Q4_K_M",
                                                           .rules = &rule,
                                                           .n_rules = 1,
                                                           .imatrix = imatrix,
                                                           .name = "toy",
                                                           .threads = 1},
                               err);
    if (rc < 0)
        return rc;
    assert_string_equal(lode_convert_tensor(c, 1).to, "Q5_K");
    rc = lode_convert_write(c, to, NULL, NULL, err);
    lode_convert_close(c);
    return rc;
}

static int stop_at_once(void *user, const char *what, uint64_t done, uint64_t total) {
    (void)user;
    (void)what;
    assert_true(done <= total);
    return 1;
}

static void bad_numbers_and_cancelling(void **state) {
    (void)state;
    char *bad = make_source(true), *good = make_source(false), *to = tmp_path("to.gguf"),
         *part = tmp_path("to.gguf.lode-part");
    struct lode_error err;
    struct lode_convert *c;
    assert_int_equal(convert(bad, to, NULL, &err), LODE_ERR_FORMAT);
    assert_non_null(strstr(err.text, "row 2 "));
    assert_int_equal(lode_convert_open(&c, good, NULL, &err), 0);
    assert_true(lode_convert_info(c)->exact);
    assert_int_equal(lode_convert_write(c, to, stop_at_once, NULL, &err), LODE_ERR_CANCELLED);
    assert_int_equal(lode_convert_write(c, to, NULL, NULL, &err), LODE_ERR_ARG);
    lode_convert_close(c);
    assert_true(!exists(to) && !exists(part));
    free(bad);
    free(good);
    free(to);
    free(part);
}

static void each_allocation_may_fail(void **state) {
    (void)state;
    char *from = make_source(false), *im = make_imatrix(), *to = tmp_path("nomem.gguf"),
         *part = tmp_path("nomem.gguf.lode-part");
    uint64_t n = 1;
    for (;; n++) {
        struct lode_error err = {0};
        unlink(to);
        failmalloc_start(n, false);
        const int rc = convert(from, to, im, &err);
        const struct failmalloc_stats s = failmalloc_stop();
        assert_int_equal(s.live, 0);
        assert_false(exists(part));
        assert_int_equal(exists(to), rc == 0);
        if (s.failed == 0) {
            assert_int_equal(rc, 0);
            break;
        }
        if (rc < 0) { /* the regular expression's compiler has words of its own */
            assert_true(rc == LODE_ERR_NOMEM || rc == LODE_ERR_FORMAT || rc == LODE_ERR_IO);
            assert_true(err.text[0] != 0);
        }
    }
    assert_in_range(n, 20, 2000);
    free(from);
    free(im);
    free(to);
    free(part);
}

/* Saving a tokenizer, for two kinds that need no regular expressions compiled by the dozen. */
static void tokenizers_without_memory(void **state) {
    (void)state;
    static const char *const names[] = {"wordpiece_uncased", "spm_llama2"};
    for (int i = 0; i < 2; i++) {
        const char *path = own_file("data/tokenizers/%s", names[i]);
        struct lode_tokenizer *t;
        struct lode_error err;
        assert_int_equal(lode_tokenizer_load(&t, path, &err), 0);
        uint64_t n = 1;
        for (;; n++) {
            struct lode_gguf_writer *w;
            const char *note;
            failmalloc_start(n, false);
            int rc = lode_gguf_writer_create(&w, &err);
            if (rc == 0)
                rc = lode_tokenizer_save(t, 0, w, &note, &err);
            lode_gguf_writer_free(w);
            const struct failmalloc_stats s = failmalloc_stop();
            assert_int_equal(s.live, 0);
            if (s.failed == 0) {
                assert_int_equal(rc, 0);
                break;
            }
            assert_true(rc == 0 || rc == LODE_ERR_NOMEM);
        }
        assert_in_range(n, 20, 5000);
        lode_tokenizer_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(refusals),
        cmocka_unit_test(whole_or_not_at_all),
        cmocka_unit_test(the_later_of_two_stays),
        cmocka_unit_test(bad_numbers_and_cancelling),
        cmocka_unit_test(each_allocation_may_fail),
        cmocka_unit_test(tokenizers_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, tmp_clean);
}
