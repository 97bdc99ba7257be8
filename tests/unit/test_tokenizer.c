/* Tokenizers against what their reference libraries compute (ref/README.md in the shared data):
 * ids, text, streams; then hostile input, failing allocations and damaged files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lode/tokenizer.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define REPLACEMENT "\xef\xbf\xbd"

static unsigned n_ids, n_texts, n_streams, n_tokenizers;

static const char *directory(const char *variable, const char *otherwise) {
    const char *d = getenv(variable);
    return d ? d : otherwise;
}

static bool is_file(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* -- one case --------------------------------------------------------------------------------- */

struct subject {
    const struct lode_tokenizer *t;
    const char *name; /* for messages */
    bool gguf;        /* lstrip, rstrip and single_word are unknown */
    int parse;        /* LODE_TOK_PARSE or 0 */
};

static int32_t *ids_of(const json_t *array, size_t *n) {
    *n = json_array_size(array);
    int32_t *ids = malloc((*n + 1) * sizeof *ids);
    for (size_t i = 0; i < *n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return ids;
}

static void print_ids(const char *what, const int32_t *ids, size_t n) {
    fprintf(stderr, "  %s:", what);
    for (size_t i = 0; i < n && i < 60; i++)
        fprintf(stderr, " %d", ids[i]);
    fprintf(stderr, "\n");
}

static int check_ids(const struct subject *s, const json_t *text, const json_t *expected, int flags) {
    struct lode_error err = {0};
    const char *data = json_string_value(text);
    const size_t len = json_string_length(text);
    size_t n_want;
    int32_t *want = ids_of(expected, &n_want);
    int32_t *got = malloc((len + 16) * 4);
    const int64_t n = lode_tokenize(s->t, data, len, flags, got, len + 16, &err);
    int bad = n < 0 || (size_t)n != n_want || memcmp(got, want, n_want * 4) != 0;
    if (bad) {
        fprintf(stderr, "%s flags %d: %.200s\n", s->name, flags, data);
        if (n < 0)
            fprintf(stderr, "  %s: %s\n", err.where, err.text);
        print_ids("want", want, n_want);
        print_ids("got ", got, n < 0 ? 0 : (size_t)n);
    } else { /* asking for the number alone, or with too little room, tells the same */
        bad = lode_tokenize(s->t, data, len, flags, NULL, 0, NULL) != n ||
              lode_tokenize(s->t, data, len, flags, got, (size_t)n / 2, NULL) != n;
    }
    n_ids++;
    free(want);
    free(got);
    return bad;
}

static int check_text(const struct subject *s, const int32_t *ids, size_t n, bool skip,
                      const json_t *expected) {
    struct lode_error err = {0};
    const size_t len = json_string_length(expected);
    char *got = malloc(len + 64);
    const int64_t rc = lode_detokenize(s->t, ids, n, skip, got, len + 64, &err);
    const int bad = rc != (int64_t)len || memcmp(got, json_string_value(expected), len) != 0;
    if (bad) {
        fprintf(stderr, "%s: text of ids%s: %s\n", s->name, skip ? ", special left out" : "", err.text);
        print_ids("ids ", ids, n);
        fprintf(stderr, "  want: %s\n  got:  %.*s\n", json_string_value(expected),
                rc < 0 ? 0 : (int)(rc < (int64_t)len + 64 ? rc : (int64_t)len + 64), got);
    }
    n_texts++;
    free(got);
    return bad;
}

/* A row of byte-fallback tokens is one text or, when it is not valid as a whole, one U+FFFD a byte,
 * which is known only behind it.  The reference hands out its first characters at once and raises
 * an error when they change; here they wait.  So inside such a row ours may be behind. */
static bool is_byte(const struct lode_tokenizer *t, int32_t id) {
    struct lode_token_info info;
    return lode_token_info(t, id, &info) == 0 && info.piece_len == 6 &&
           memcmp(info.piece, "<0x", 3) == 0;
}

static int check_stream(const struct subject *s, const int32_t *ids, size_t n,
                        const json_t *expected) {
    struct lode_detok *d;
    const char *text;
    size_t len, n_got = 0, n_want = 0, size = 16 * n + 256;
    char *got = malloc(size), *want = malloc(size), *whole = malloc(size);
    assert_int_equal(lode_detok_create(&d, s->t, false, NULL), 0);
    int bad = 0;
    bool compare = expected != NULL;
    for (size_t i = 0; i < n && !bad; i++) {
        assert_int_equal(lode_detok_push(d, ids[i], &text, &len, NULL), 0);
        assert_true(n_got + len < size);
        memcpy(got + n_got, text, len);
        n_got += len;
        const json_t *piece = json_array_get(expected, i);
        if (json_is_object(piece))
            compare = false; /* the reference gave up */
        if (json_is_string(piece)) {
            memcpy(want + n_want, json_string_value(piece), json_string_length(piece));
            n_want += json_string_length(piece);
        }
        if (!compare)
            continue;
        const bool row = is_byte(s->t, ids[i]);
        bad = memcmp(got, want, n_got < n_want ? n_got : n_want) != 0 ||
              (row ? n_got > n_want : n_got != n_want);
        if (bad)
            fprintf(stderr, "%s: stream, token %zu (id %d):\n  want: %.*s\n  got:  %.*s\n", s->name, i,
                    ids[i], (int)n_want, want, (int)n_got, got);
    }
    assert_int_equal(lode_detok_finish(d, &text, &len, NULL), 0);
    memcpy(got + n_got, text, len);
    n_got += len;
    const int64_t n_whole = lode_detokenize(s->t, ids, n, false, whole, size, NULL);
    if (!bad && (n_whole != (int64_t)n_got || memcmp(whole, got, n_got) != 0)) {
        fprintf(stderr, "%s: the stream's parts are not the whole:\n  %.*s\n  %.*s\n", s->name,
                (int)n_got, got, (int)n_whole, whole);
        bad = 1;
    }
    n_streams++;
    lode_detok_free(d);
    free(got);
    free(want);
    free(whole);
    return bad;
}

/* null in the data: equal to what info.json's null_means says */
static const json_t *or_else(const json_t *value, const json_t *otherwise) {
    return value && !json_is_null(value) ? value : otherwise;
}

/* What GGUF cannot say: what the added tokens do to the white space around them, and that one
 * matches whole words only. */
static bool beyond_gguf(const char *text) {
    return strstr(text, "<|ls|>") || strstr(text, "<|rs|>") || strstr(text, "<|both|>") ||
           strstr(text, "WORD");
}

static int check_case(const struct subject *s, const json_t *c) {
    const json_t *text = json_object_get(c, "text"), *ids = json_object_get(c, "ids");
    const json_t *decoded = or_else(json_object_get(c, "decoded"), text);
    const json_t *skipped = or_else(json_object_get(c, "decoded_skip_special"), decoded);
    const json_t *stream = json_object_get(c, "stream");
    int bad = 0;
    if (json_is_string(text) && !(s->gguf && beyond_gguf(json_string_value(text)))) {
        const json_t *special = or_else(json_object_get(c, "ids_special"), ids);
        bad += check_ids(s, text, ids, s->parse);
        bad += check_ids(s, text, special, s->parse | LODE_TOK_SPECIAL);
    }
    size_t n;
    int32_t *list = ids_of(ids, &n);
    /* GGUF's control tokens have their text (TOK-10), sentencepiece's have none */
    bool control = false;
    for (size_t i = 0; i < n; i++) {
        struct lode_token_info info;
        assert_int_equal(lode_token_info(s->t, list[i], &info), 0);
        control = control || info.special;
    }
    if (!(s->gguf && !s->parse && control)) {
        bad += check_text(s, list, n, false, decoded);
        bad += check_text(s, list, n, true, skipped);
    }
    bad += check_stream(s, list, n, json_is_array(stream) ? stream : NULL);
    free(list);
    return bad;
}

static int check_file(const struct subject *s, const char *path) {
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char *line = NULL;
    size_t cap = 0;
    int bad = 0;
    while (getline(&line, &cap, f) > 0) {
        json_t *c = json_loads(line, JSON_ALLOW_NUL, NULL);
        assert_non_null(c);
        bad += check_case(s, c);
        json_decref(c);
    }
    free(line);
    fclose(f);
    return bad;
}

static int check_source(const char *dir, const char *name, const char *source) {
    char path[1024], label[256];
    struct lode_error err = {0};
    struct lode_tokenizer *t;
    snprintf(path, sizeof path, "%s/%s/%s", dir, name, source);
    if (!is_file(path))
        return 0;
    const int rc = lode_tokenizer_load(&t, path, &err);
    if (rc < 0) {
        fprintf(stderr, "%s: %s: %s\n", path, err.where, err.text);
        return 1;
    }
    const bool gguf = strcmp(source, "vocab.gguf") == 0;
    snprintf(label, sizeof label, "%s/%s", name, source);
    struct subject s = {t, label, gguf, LODE_TOK_PARSE};
    if (gguf && strncmp(name, "spm_", 4) == 0)
        s.parse = 0; /* to sentencepiece special tokens in a text are text */
    int bad = 0;
    n_tokenizers++;
    snprintf(path, sizeof path, "%s/%s/cases.jsonl", dir, name);
    bad += check_file(&s, path);
    snprintf(path, sizeof path, "%s/%s/decode.jsonl", dir, name);
    if (is_file(path))
        bad += check_file(&s, path);
    lode_tokenizer_free(t);
    return bad;
}

static int check_all(const char *root) {
    DIR *d = opendir(root);
    int bad = 0;
    if (!d)
        return -1;
    for (struct dirent *e; (e = readdir(d));) {
        char path[2048];
        snprintf(path, sizeof path, "%s/%s/cases.jsonl", root, e->d_name);
        if (!is_file(path))
            continue;
        bad += check_source(root, e->d_name, "tokenizer.json");
        bad += check_source(root, e->d_name, "tokenizer.model");
        /* llama.cpp's converter loses the whitespace and byte-fallback options of this one */
        if (strcmp(e->d_name, "spm_unigram_bf") != 0)
            bad += check_source(root, e->d_name, "vocab.gguf");
    }
    closedir(d);
    return bad;
}

static void test_reference_shared(void **state) {
    (void)state;
    char root[1024];
    snprintf(root, sizeof root, "%s/ref/tokenizers", directory("LODE_SHARED", "../shared"));
    const int bad = check_all(root);
    if (bad < 0) {
        print_message("%s is not there: skipped\n", root);
        skip();
    }
    print_message("%u tokenizers: %u texts to ids, %u ids to text, %u streams\n", n_tokenizers, n_ids,
                  n_texts, n_streams);
    assert_true(n_tokenizers >= 20);
    assert_int_equal(bad, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
