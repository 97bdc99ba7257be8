/* Tokenizers as GGUF keys: written, read back, and compared over the texts of the references; and
 * with the keys that llama.cpp's converter wrote where vocab.gguf lies beside them. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../own_files.h"
#include "format/gguf_write.h"
#include "lode/lode.h"
#include "text/tokenizer.h"

static char *read_text(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(*n + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, *n, f), *n);
    fclose(f);
    return text;
}

static void compare_ids(const struct lode_tokenizer *a, const struct lode_tokenizer *b,
                        const char *text, size_t n, const char *name) {
    int32_t *ids[2];
    const struct lode_tokenizer *const both[2] = {a, b};
    int64_t counts[2];
    for (int i = 0; i < 2; i++) {
        struct lode_error err;
        ids[i] = malloc((n + 64) * sizeof **ids);
        assert_non_null(ids[i]);
        counts[i] = lode_tokenize(both[i], text, n, LODE_TOK_SPECIAL, ids[i], n + 64, &err);
        assert_true(counts[i] > 0);
    }
    for (int64_t i = 0; i < counts[0] && i < counts[1]; i++)
        if (ids[0][i] != ids[1][i])
            fail_msg("%s: token %lld is %d, read back %d", name, (long long)i, ids[0][i],
                     ids[1][i]);
    assert_int_equal(counts[0], counts[1]);
    free(ids[0]);
    free(ids[1]);
}

/* Keys that both files have must agree. */
static void compare_keys(const struct lode_gguf *ours, const char *path, const char *name) {
    struct lode_gguf *theirs;
    struct lode_error err;
    if (lode_gguf_open_unmapped(&theirs, path, &err) < 0)
        return;
    static const char *const keys[] = {
        "model", "pre", "bos_token_id", "eos_token_id", "unknown_token_id", "add_space_prefix"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char key[64];
        struct lode_str a, b;
        uint32_t m = 0, n = 0;
        snprintf(key, sizeof key, "tokenizer.ggml.%s", keys[i]);
        if (lode_gguf_str(ours, key, &a) && lode_gguf_str(theirs, key, &b) && !lode_str_eq(a, b))
            print_message("%s: %s is %.*s, llama.cpp's converter wrote %.*s\n", name, key,
                          (int)a.len, a.data, (int)b.len, b.data);
        if (lode_gguf_u32(ours, key, &m) && lode_gguf_u32(theirs, key, &n) && m != n)
            print_message("%s: %s is %u, llama.cpp's converter wrote %u\n", name, key, m, n);
    }
    const struct lode_gguf_array *x, *y;
    assert_true(lode_gguf_array(ours, "tokenizer.ggml.tokens", &x));
    assert_true(lode_gguf_array(theirs, "tokenizer.ggml.tokens", &y));
    size_t differ = 0;
    for (size_t i = 0; i < x->n && i < y->n; i++)
        differ += !lode_str_eq(x->strs[i], y->strs[i]);
    if (differ || x->n < y->n)
        fail_msg("%s: %zu of %zu pieces differ from llama.cpp's %zu", name, differ, x->n, y->n);
    lode_gguf_close(theirs);
}

static void save_one(const char *folder, const char *name) {
    char path[4096];
    struct lode_tokenizer *t, *back;
    struct lode_gguf_writer *w;
    struct lode_gguf *g;
    struct lode_buf header = {0};
    struct lode_error err = {0};
    const char *note;
    size_t n = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (lode_tokenizer_load(&t, path, &err) < 0)
        fail_msg("%s: %s", name, err.text);
    assert_int_equal(lode_gguf_writer_create(&w, &err), 0);
    const int rc = lode_tokenizer_save(t, 0, w, &note, &err);
    if (rc < 0) {
        print_message("%s: refused: %s\n", name, err.text);
        assert_int_equal(rc, LODE_ERR_UNSUPPORTED);
    } else {
        if (note)
            print_message("%s: %s\n", name, note);
        assert_int_equal(lode_gguf_writer_header(w, &header, &err), 0);
        assert_int_equal(lode_gguf_parse(&g, header.data, header.len, &err), 0);
        assert_int_equal(lode_tokenizer_from_gguf(&back, g, &err), 0);
        assert_int_equal(lode_tokenizer_eos(t), lode_tokenizer_eos(back));
        for (uint32_t i = 0; i < lode_tokenizer_size(t); i++)
            assert_int_equal(lode_tokenizer_is_end(t, (int32_t)i),
                             lode_tokenizer_is_end(back, (int32_t)i));
        snprintf(path, sizeof path, "%s/%s/cases.jsonl", folder, name);
        char *text = note ? NULL : read_text(path, &n);
        if (text)
            compare_ids(t, back, text, n, name);
        free(text);
        snprintf(path, sizeof path, "%s/%s/vocab.gguf", folder, name);
        compare_keys(g, path, name);
        lode_tokenizer_free(back);
        lode_gguf_close(g);
    }
    lode_buf_free(&header);
    lode_gguf_writer_free(w);
    lode_tokenizer_free(t);
}

static size_t save_all(const char *folder) {
    DIR *d = opendir(folder);
    size_t n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s/tokenizer_config.json", folder, e->d_name);
        FILE *f = fopen(path, "rb");
        if (!f)
            continue;
        fclose(f);
        save_one(folder, e->d_name);
        n++;
    }
    if (d)
        closedir(d);
    return n;
}

static void references(void **state) {
    (void)state;
    char folder[4000];
    const char *shared = getenv("LODE_SHARED");
    snprintf(folder, sizeof folder, "%.3990s", own_file("data/tokenizers"));
    assert_true(save_all(folder) > 0);
    snprintf(folder, sizeof folder, "%s/ref/tokenizers", shared ? shared : "../shared");
    if (save_all(folder) == 0)
        print_message("no $LODE_SHARED: 1 skipped\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(references)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
