/* Every allocation of a tokenizer's life fails in turn: loading, encoding, decoding, streaming. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../own_files.h"
#include "../small_tokenizers.h"
#include "failmalloc.h"
#include "format/gguf.h"
#include "text/load.h"
#include "text/tokenizer.h"

static const char text[] =
    "The <|sp|> thing's 123  aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa "
    "e\xcc\x81\xcc\xa3 \xc3\xa9\xff [ADD] WORD don't";

static int use(const struct lode_tokenizer *t, struct lode_error *err) {
    int32_t ids[256];
    char back[1024];
    const int64_t n = lode_tokenize(t, text, sizeof text - 1, 3, ids, 256, err);
    if (n < 0)
        return (int)n;
    assert_true(n > 0 && n <= 256);
    const int64_t len = lode_detokenize(t, ids, (size_t)n, false, back, sizeof back, err);
    if (len < 0)
        return (int)len;
    struct lode_detok *d;
    int rc = lode_detok_create(&d, t, true, err);
    const char *part;
    size_t part_len;
    for (int64_t i = 0; rc == 0 && i < n; i++)
        rc = lode_detok_push(d, ids[i], &part, &part_len, err);
    if (rc == 0)
        rc = lode_detok_finish(d, &part, &part_len, err);
    lode_detok_free(d);
    return rc;
}

static int json_life(const void *data, size_t len, struct lode_error *err) {
    struct lode_tokenizer *t;
    const struct lode_str config =
        LODE_STR("{\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"</s>\"}}");
    const struct lode_str generation = LODE_STR("{\"eos_token_id\":[1,2]}");
    int rc = lode_tokenizer_from_json(&t, (struct lode_str){data, len}, config, generation, err);
    if (rc == 0)
        rc = use(t, err);
    lode_tokenizer_free(t);
    return rc;
}

/* vocab.json and merges.txt (data), or ranks (NULL). */
static int parts_life(const void *data, size_t len, struct lode_error *err) {
    struct lode_tokenizer *t;
    struct lode_tok_parts parts = {
        .config = LODE_STR("{\"tokenizer_class\":\"GPT2Tokenizer\",\"bos_token\":\"<s>\","
                           "\"add_bos_token\":true,\"additional_special_tokens\":[\"<|sp|>\"]}"),
        .added = LODE_STR("{\"<s>\":7,\"<|sp|>\":8}"),
        .generation = LODE_STR("{\"eos_token_id\":7}"),
        .model_config = LODE_STR("{\"model_type\":\"qwen2\"}")};
    if (data) {
        parts.vocab = (struct lode_str){data, len};
        parts.merges = LODE_STR("#version: 0.2\na a\n\naa aa\r\n");
    } else {
        parts.ranks = LODE_STR("YQ== 0\nYWE= 1\nYWFhYQ== 2\nZQ== 3\n"); /* a aa aaaa e */
    }
    int rc = lode_tokenizer_from_parts(&t, &parts, err);
    if (rc == 0)
        rc = use(t, err);
    lode_tokenizer_free(t);
    return rc;
}

static int spm_life(const void *data, size_t len, struct lode_error *err) {
    struct lode_tokenizer *t;
    const struct lode_str none = {0};
    int rc = lode_tokenizer_from_spm(&t, (struct lode_str){data, len}, none, none, err);
    if (rc == 0)
        rc = use(t, err);
    lode_tokenizer_free(t);
    return rc;
}

static int gguf_life(const void *data, size_t len, struct lode_error *err) {
    struct lode_tokenizer *t = NULL;
    struct lode_gguf *g;
    int rc = lode_gguf_parse(&g, data, len, err);
    if (rc == 0)
        rc = lode_tokenizer_from_gguf(&t, g, err);
    if (rc == 0)
        rc = use(t, err);
    lode_tokenizer_free(t);
    lode_gguf_close(g);
    return rc;
}

static int file_life(const void *path, size_t len, struct lode_error *err) {
    (void)len;
    struct lode_tokenizer *t;
    int rc = lode_tokenizer_load(&t, path, err);
    if (rc == 0)
        rc = use(t, err);
    lode_tokenizer_free(t);
    return rc;
}

/* Nothing leaks; a failure is LODE_ERR_NOMEM, or does no harm (a compiled regular expression is
 * faster, not needed). */
static void fail_each(const char *name, int (*life)(const void *, size_t, struct lode_error *),
                      const void *data, size_t len) {
    uint64_t n = 1, refused = 0;
    struct lode_error err;
    assert_int_equal(life(data, len, &err), 0); /* what libraries keep for good is there now */
    for (;; n++) {
        err = (struct lode_error){0};
        failmalloc_start(n, false);
        const int rc = life(data, len, &err);
        const struct failmalloc_stats s = failmalloc_stop();
        if (s.live != 0)
            fail_msg("%s: allocation %llu failed, %lld blocks leaked", name, (unsigned long long)n,
                     (long long)s.live);
        if (s.failed == 0) {
            assert_int_equal(rc, 0);
            break;
        }
        if (rc != 0 && rc != LODE_ERR_NOMEM)
            fail_msg("%s: allocation %llu failed, and that is %d: %s: %s", name,
                     (unsigned long long)n, rc, err.where, err.text);
        refused += rc != 0;
    }
    print_message("%s: %llu allocations, %llu of them needed\n", name, (unsigned long long)(n - 1),
                  (unsigned long long)refused);
    assert_true(refused > 0);
}

static void test_nomem(void **state) {
    (void)state;
    static const char vocab[] = "{\"a\":0,\"aa\":1,\"aaaa\":2,\"e\":3}";
    fail_each("vocab.json", parts_life, vocab, strlen(vocab));
    fail_each("ranks", parts_life, NULL, 0);
    for (int which = 0; which < SMALL_TOKENIZERS; which++) {
        char name[32], *json = small_tokenizer_json(which);
        snprintf(name, sizeof name, "tokenizer.json %d", which);
        fail_each(name, json_life, json, strlen(json));
        free(json);
    }
    size_t len;
    char *gguf = small_gguf("deepseek-llm", &len);
    fail_each("GGUF", gguf_life, gguf, len);
    free(gguf);

    static char data[1 << 16];
    char path[1024];
    snprintf(path, sizeof path, "%.1000s", own_file("data/tokenizers/spm_llama2/tokenizer.model"));
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    len = fread(data, 1, sizeof data, f);
    fclose(f);
    fail_each("tokenizer.model", spm_life, data, len);
    fail_each("file", file_life, path, 0);
    *strrchr(path, '/') = '\0';
    fail_each("directory", file_life, path, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nomem)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
