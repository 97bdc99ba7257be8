/* Grammars while the n-th allocation fails, for every n: compiling, masks, copies, going back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "failmalloc.h"
#include "lode/grammar.h"

/* Writes `text` byte by byte, with masks, a copy and a step back, then reads it. */
static int use(enum lode_grammar_kind kind, const char *source, const char *text,
               const struct lode_grammar_vocab *v, struct lode_error *err) {
    struct lode_grammar *g;
    struct lode_grammar_state *s = NULL, *copy = NULL;
    uint64_t mask[(257 + 63) / 64];
    const size_t len = strlen(text);
    char forced[8];
    bool yes;
    size_t at;
    int rc = lode_grammar_compile(&g, kind, source, strlen(source), err);
    if (rc < 0)
        return rc;
    rc = lode_grammar_prepare(g, v, 0.001, err);
    rc = rc == 0 ? lode_grammar_state_create(&s, g, v, err) : rc;
    for (size_t i = 0; rc == 0 && i < len; i++) {
        rc = lode_grammar_mask(s, mask, err);
        rc = rc == 0 ? lode_grammar_accept(s, (uint8_t)text[i], err) : rc;
        if (rc == 0 && i == len / 2) {
            rc = lode_grammar_state_clone(&copy, s, err);
            rc = rc == 0 ? lode_grammar_rewind(copy, 1, err) : rc;
            rc = rc == 0 ? lode_grammar_state_reset(copy, err) : rc;
        }
    }
    if (rc == 0) {
        const int64_t n = lode_grammar_forced(s, forced, sizeof forced, err);
        rc = n < 0 ? (int)n : 0;
    }
    rc = rc == 0 ? lode_grammar_check(g, text, len, &yes, &at, err) : rc;
    if (rc == 0)
        assert_true(yes && lode_grammar_complete(s));
    lode_grammar_state_free(copy);
    lode_grammar_state_free(s);
    lode_grammar_free(g);
    return rc;
}

static int make_vocab(struct lode_grammar_vocab **v, struct lode_error *err) {
    static char bytes[256][2];
    const char *text[257];
    size_t len[257];
    const int32_t ends[] = {256};
    for (int i = 0; i < 257; i++) {
        bytes[i % 256][0] = (char)(i % 256);
        text[i] = bytes[i % 256];
        len[i] = i < 256;
    }
    return lode_grammar_vocab_from_bytes(v, text, len, 257, ends, 1, err);
}

static const struct {
    enum lode_grammar_kind kind;
    const char *source, *text;
} uses[] = {
    {LODE_GRAMMAR_SCHEMA,
     "{\"$id\":\"http://x/y\",\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/"
     "n\"},\"b\":"
     "{\"type\":\"string\",\"pattern\":\"^[a-c]+$\",\"maxLength\":5}},\"required\":[\"a\"],"
     "\"patternProperties\":{\"^x\":{\"format\":\"date\"}},\"$defs\":{\"n\":{\"oneOf\":[{\"type\":"
     "\"integer\",\"minimum\":3},{\"const\":[1,{}]},{\"type\":\"array\",\"contains\":{\"type\":"
     "\"null\"},\"maxContains\":1,\"minItems\":3}]}},\"unevaluatedProperties\":false}",
     "{\"a\":12,\"b\":\"ab\",\"x1\":\"2024-01-02\"}"},
    {LODE_GRAMMAR_REGEX, "(\\p{Lu}x|[^a-c]{2,3})+", "Axzz"},
    {LODE_GRAMMAR_GBNF, "root ::= item (\",\" item)*\nitem ::= [a-z]+ | \"(\" root \")\"",
     "a,(b,c)"},
};

static void test_nth(void **state) {
    (void)state;
    struct lode_grammar_vocab *v;
    assert_int_equal(make_vocab(&v, NULL), 0);
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) /* what the vocabulary keeps for all is there */
        assert_int_equal(use(uses[i].kind, uses[i].source, uses[i].text, v, NULL), 0);
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++)
        for (int persistent = 0; persistent < 2; persistent++)
            for (uint64_t n = 1;; n++) {
                struct lode_error err = {0};
                failmalloc_start(n, persistent);
                const int rc = use(uses[i].kind, uses[i].source, uses[i].text, v, &err);
                const struct failmalloc_stats s = failmalloc_stop();
                assert_int_equal(s.live, 0);
                /* what was only to be kept for later may fail unseen */
                if (rc != 0 && rc != LODE_ERR_NOMEM)
                    fail_msg("allocation %d of use %zu: %s: %s", (int)n, i, err.where, err.text);
                if (s.failed == 0) {
                    assert_int_equal(rc, 0);
                    break;
                }
            }
    lode_grammar_vocab_free(v);
    for (uint64_t n = 1;; n++) {
        failmalloc_start(n, false);
        const int rc = make_vocab(&v, NULL);
        lode_grammar_vocab_free(v);
        const struct failmalloc_stats s = failmalloc_stop();
        assert_int_equal(s.live, 0);
        assert_true(rc == 0 || (s.failed && rc == LODE_ERR_NOMEM)); /* qsort does without */
        if (!s.failed)
            break;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nth)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
