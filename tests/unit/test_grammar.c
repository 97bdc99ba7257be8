/* Grammars: what each front end accepts and refuses, and masks against trying every token. */
#include "effort.h"
#include "lode/grammar.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* ---- accepted and refused texts ---- */

static struct lode_grammar *compile(enum lode_grammar_kind kind, const char *text) {
    struct lode_grammar *g;
    struct lode_error err = {0};
    if (lode_grammar_compile(&g, kind, text, strlen(text), &err) < 0)
        fail_msg("%s: %s: %s", text, err.where, err.text);
    return g;
}

static bool accepts(const struct lode_grammar *g, const char *text, size_t *at) {
    bool yes;
    struct lode_error err;
    assert_int_equal(lode_grammar_check(g, text, strlen(text), &yes, at, &err), 0);
    return yes;
}

struct verdicts {
    enum lode_grammar_kind kind;
    const char *source;
    const char *good[8], *bad[8];
};

#define SCHEMA LODE_GRAMMAR_SCHEMA
#define REGEX LODE_GRAMMAR_REGEX
#define GBNF LODE_GRAMMAR_GBNF

static const struct verdicts verdicts[] = {
    {SCHEMA, /* some key other than a, of many */
     "{\"type\":\"object\",\"not\":{\"properties\":{\"a\":true},\"additionalProperties\":false},"
     "\"maxProperties\":2}",
     {"{\"b\":1}", "{\"a\":1,\"b\":2}", "{\"ab\":1,\"a\":2}", "{\"\":1}"},
     {"{}", "{\"a\":1}", "{\"a\":1,\"b\":2,\"c\":3}", "1"}},
    {SCHEMA,
     "{\"type\":\"object\",\"not\":{\"patternProperties\":{\"^x\":false}},\"propertyNames\":{"
     "\"pattern\":"
     "\"^[xy]?$\"},\"required\":[\"y\"]}",
     {"{\"y\":1,\"x\":2}", "{\"x\":0,\"\":1,\"y\":2}"},
     {"{\"y\":1}", "{\"x\":1}", "{\"y\":1,\"\":2}"}},
    {SCHEMA, /* closed branches that overlap */
     "{\"type\":\"object\",\"oneOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}},"
     "\"additionalProperties\":"
     "false},{\"properties\":{\"a\":true,\"b\":true},\"additionalProperties\":false}]}",
     {"{\"b\":1}", "{\"a\":1,\"b\":2}", "{\"a\":null}"},
     {"{}", "{\"a\":1}", "{\"c\":1}"}},
    {SCHEMA, /* drafts before 2020-12 */
     "{\"items\":[{\"type\":\"integer\"}],\"additionalItems\":{\"type\":\"string\"}}",
     {"[]", "[1]", "[1,\"a\",\"b\"]", "{}"},
     {"[\"a\"]", "[1,2]", "[1,\"a\",null]"}},
    {SCHEMA,
     "{\"items\":{\"type\":\"integer\"},\"additionalItems\":false}",
     {"[]", "[1,2,3]"},
     {"[1,\"a\"]"}},
    {SCHEMA,
     "{\"dependencies\":{\"a\":[\"b\"],\"c\":{\"maxProperties\":1}}}",
     {"{}", "{\"b\":1}", "{\"a\":1,\"b\":2}", "{\"c\":1}", "3"},
     {"{\"a\":1}", "{\"c\":1,\"b\":2}"}},
    {SCHEMA,
     "{\"$schema\":\"http://json-schema.org/draft-04/schema#\",\"type\":\"integer\",\"minimum\":1,"
     "\"exclusiveMinimum\":true,\"maximum\":3,\"exclusiveMaximum\":false}",
     {"2", "3"},
     {"1", "4"}},
    {SCHEMA,
     "{\"$schema\":\"https://json-schema.org/draft-07/schema\",\"items\":{\"$ref\":\"#a\"},"
     "\"definitions\":{\"x\":{\"$id\":\"#a\",\"type\":\"null\"}}}",
     {"[null]", "1"},
     {"[1]"}},
    {SCHEMA,
     "{\"type\":[\"array\",\"null\"],\"items\":{\"$recursiveRef\":\"#\"}}",
     {"[[],[null]]", "null"},
     {"[1]", "[[1]]"}},
    {SCHEMA,
     "true",
     {"1", " {\"a\": [1, null]} ", "\"\\ud83d\\ude00\"", "-0.5e+3"},
     {"", "01", "1.", "\"\\ud83d\"", "{\"a\":1,\"a\":2}", "[1,]", "tru"}},
    {SCHEMA,
     "{\"const\": {\"a\": 1, \"b\": [true, \"A\"]}}",
     {"{\"a\":1,\"b\":[true,\"A\"]}", "{\"b\":[true,\"\\u0041\"],\"a\":1.0}",
      "{\"\\u0061\": 10e-1, \"b\": [ true , \"A\" ] }"},
     {"{\"a\":1}", "{\"a\":1,\"b\":[true,\"A\"],\"c\":0}", "{\"a\":1,\"b\":[true,\"a\"]}"}},
    {SCHEMA,
     "{\"type\":\"integer\",\"minimum\":-3,\"exclusiveMaximum\":12.5,\"multipleOf\":3}",
     {"-3", "0", "-0", "12", "1.2e1", "3.000", "120e-1", "0.0000e5"},
     {"-4", "13", "15", "1.5", "-6", "1e1", "1.2", "0.3e0"}},
    {SCHEMA,
     "{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"", "\"\\u00e9\xc3\xa9\"", "\"\xf0\x9f\x98\x80z\"", "\"\\ud83d\\ude00\\n\\t\""},
     {"\"a\"", "\"abcd\"", "\"\\ud83d\\ude00\"", "\"a\nb\""}},
    {SCHEMA,
     "{\"type\":\"string\",\"pattern\":\"^a.*z$|\\\\d{3}\",\"maxLength\":6}",
     {"\"az\"", "\"a\\u0041z\"", "\"x123y\"", "\"123\""},
     {"\"ab\"", "\"12\"", "\"abcdefz\""}},
    {SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"boolean\"}},"
     "\"required\":[\"b\"],\"additionalProperties\":false}",
     {"{\"b\":true}", "{\"b\":false,\"a\":null}", "{ \"a\" :null\n,\t\"b\":true }"},
     {"{}", "{\"a\":null}", "{\"b\":1}", "{\"b\":true,\"c\":1}", "{\"b\":true,}", "[]"}},
    {SCHEMA,
     "{\"oneOf\":[{\"type\":\"integer\"},{\"minimum\":2}]}",
     {"1", "2.5", "\"text is in the second\""},
     {"3", "1.5"}},
    {SCHEMA,
     "{\"if\":{\"properties\":{\"t\":{\"const\":1}},\"required\":[\"t\"]},"
     "\"then\":{\"required\":[\"x\"]},\"else\":{\"required\":[\"y\"]}}",
     {"{\"t\":1,\"x\":0}", "{\"t\":2,\"y\":0}", "{\"y\":0}", "3"},
     {"{\"t\":1,\"y\":0}", "{}"}},
    {SCHEMA,
     "{\"contains\":{\"type\":\"string\"},\"minContains\":2,\"maxContains\":2,"
     "\"prefixItems\":[{\"type\":\"number\"}]}",
     {"[1,\"a\",\"b\"]", "[1,\"a\",2,\"b\",null]"},
     {"[1,\"a\"]", "[1,\"a\",\"b\",\"c\"]", "[]"}},
    {SCHEMA,
     "{\"$ref\":\"#/$defs/tree\",\"$defs\":{\"tree\":{\"type\":\"object\",\"properties\":"
     "{\"kids\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/tree\"}}},"
     "\"additionalProperties\":false}}}",
     {"{}", "{\"kids\":[{},{\"kids\":[]}]}"},
     {"{\"kids\":[1]}", "{\"kids\":{}}"}},
    {SCHEMA,
     "{\"not\":{\"required\":[\"a\",\"b\"]}}",
     {"{\"a\":1}", "{\"b\":1,\"c\":1}", "{}"},
     {"{\"a\":1,\"b\":1}", "1"}},
    {SCHEMA,
     "{\"properties\":{\"a\":true},\"unevaluatedProperties\":false,\"anyOf\":["
     "{\"properties\":{\"b\":true},\"required\":[\"b\"]},"
     "{\"properties\":{\"c\":true},\"required\":[\"c\"]}]}",
     {"{\"b\":1}", "{\"a\":1,\"b\":1,\"c\":1}"},
     {"{\"a\":1}", "{\"b\":1,\"d\":1}"}},
    {SCHEMA,
     "{\"patternProperties\":{\"^x\":{\"type\":\"integer\"},\"y$\":{\"minimum\":3}},"
     "\"additionalProperties\":false,\"maxProperties\":2}",
     {"{\"x\":1}", "{\"xy\":3}", "{\"ay\":2.5e1,\"x\":0}"},
     {"{\"xy\":2}", "{\"z\":1}", "{\"x\":1,\"x1\":1,\"x2\":1}", "{\"xy\":3.5}"}},
    {SCHEMA,
     "{\"propertyNames\":{\"maxLength\":2},\"minProperties\":1,\"dependentRequired\":"
     "{\"a\":[\"b\"]}}",
     {"{\"ab\":1}", "{\"a\":1,\"b\":1}"},
     {"{}", "{\"abc\":1}", "{\"a\":1}"}},
    {SCHEMA,
     "{\"patternProperties\":{\"^[ab]c?$\":{\"type\":\"null\"},\"^x+-e$\":true},"
     "\"additionalProperties\":false}", /* keys that can run out, at once and later */
     {"{\"a\":null,\"b\":null,\"ac\":null,\"bc\":null,\"x-e\":1}"},
     {"{\"a\":null,\"a\":null}", "{\"x-e\":1,\"x-e\":2}"}},
    {SCHEMA, /* a name whose last character ends a range of the pattern */
     "{\"patternProperties\":{\"^[a-b]{1,2}$\":{\"type\":\"null\"}},\"properties\":{\"ab\":false}}",
     {"{\"a\":null,\"aa\":null,\"c\":1}"},
     {"{\"ab\":null}", "{\"ba\":1}"}},
    {SCHEMA,
     "{\"patternProperties\":{\"^[ab]$\":{\"type\":\"null\"}},\"additionalProperties\":"
     "false}",
     {"{\"a\":null,\"b\":null}"},
     {"{\"a\":null,\"b\":null,\"a\":null}"}},
    {SCHEMA, "{\"format\":\"date\"}", {"\"2024-02-29\"", "\"no date, an annotation\""}, {"x"}},
    {REGEX, "(ab|c)+\\d{2,}[^x-z]?", {"ab12", "cab123q"}, {"ab1", "ab12x", "d12", "xab12"}},
    {REGEX, "\\p{Lu}\\w*|\\u{1F600}", {"\xc3\x89t", "\xf0\x9f\x98\x80", "A_9"}, {"a", "\xc3\xa9"}},
    {REGEX, "", {""}, {"a"}},
    {GBNF,
     "root ::= item (\",\" ws item)*  # list\nitem ::= [a-c]+ | \"(\" root \")\"\nws ::= \" \"?\n",
     {"a", "abc, b", "(a,(b))"},
     {"", "a,", "(a", "d", "a,  b"}},
    {GBNF,
     "root ::= a{2,3} |\n  \"x\" \"\\u00e9\" [^a]\na ::= \"a\" | b\nb ::= \"b\"",
     {"ab", "aab", "x\xc3\xa9\xf0\x9f\x98\x80"},
     {"a", "aaaa",
      "x\xc3\xa9"
      "a"}},
};

static void test_verdicts(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof verdicts / sizeof *verdicts; i++) {
        const struct verdicts *v = &verdicts[i];
        struct lode_grammar *g = compile(v->kind, v->source);
        size_t at;
        for (size_t k = 0; k < 8 && v->good[k]; k++)
            if (!accepts(g, v->good[k], &at))
                fail_msg("%s refuses %s at byte %zu", v->source, v->good[k], at);
        for (size_t k = 0; k < 8 && v->bad[k]; k++)
            if (accepts(g, v->bad[k], &at))
                fail_msg("%s accepts %s", v->source, v->bad[k]);
        lode_grammar_free(g);
    }
}

static void test_first_bad_byte(void **state) {
    (void)state;
    struct lode_grammar *g =
        compile(SCHEMA, "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{"
                        "\"type\":\"boolean\"}},"
                        "\"required\":[\"b\"],\"additionalProperties\":false}");
    size_t at;
    assert_false(accepts(g, "{\"b\":true,\"c\":1}", &at));
    assert_int_equal(at, 11); /* only "a" is left */
    assert_false(accepts(g, "{\"b\":true", &at));
    assert_int_equal(at, 9);
    lode_grammar_free(g);
}

/* ---- what cannot be enforced is refused by name ---- */

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        enum lode_grammar_kind kind;
        const char *source;
        int code;
        const char *where, *text;
    } cases[] = {
        {SCHEMA, "{\"properties\":{\"a/b\":{\"uniqueItems\":true}}}", LODE_ERR_UNSUPPORTED,
         "#/properties/a~1b/uniqueItems", "uniqueItems"},
        {SCHEMA, "{\"not\":{\"additionalProperties\":{\"type\":\"null\"}}}", LODE_ERR_UNSUPPORTED,
         "#/not/additionalProperties", "negated"},
        {SCHEMA, "{\"items\":{\"pattern\":\"a(?=b)\"}}", LODE_ERR_UNSUPPORTED, "#/items/pattern",
         "lookahead"},
        {SCHEMA, "{\"pattern\":\"(a)\\\\1\"}", LODE_ERR_UNSUPPORTED, "#/pattern",
         "back references"},
        {SCHEMA, "{\"$ref\":\"http://example.com/s\"}", LODE_ERR_UNSUPPORTED, "#/$ref", "document"},
        {SCHEMA, "{\"$ref\":\"#/$defs/x\"}", LODE_ERR_FORMAT, "#/$ref", "nowhere"},
        {SCHEMA, "{\"$ref\":\"#\"}", LODE_ERR_FORMAT, "#/$ref", "itself"},
        {SCHEMA,
         "{\"allOf\":[{\"$ref\":\"#/$defs/a\"}],\"$defs\":{\"a\":{\"anyOf\":[true,"
         "{\"$ref\":\"#\"}]}}}",
         LODE_ERR_FORMAT, "#/$defs/a/anyOf/1/$ref", "itself"},
        {SCHEMA, "{\"minLength\":-1}", LODE_ERR_FORMAT, "#/minLength", "whole number"},
        {SCHEMA, "{\"multipleOf\":0.123456789}", LODE_ERR_UNSUPPORTED, "#/multipleOf", "remainder"},
        {SCHEMA, "{\"type\":\"int\"}", LODE_ERR_FORMAT, "#/type", "type"},
        {SCHEMA, "{\"$schema\":\"http://example.com/dialect\"}", LODE_ERR_UNSUPPORTED, "#/$schema",
         "dialect"},
        {SCHEMA, "{\"items\":[true],\"prefixItems\":[true]}", LODE_ERR_FORMAT, "#/items",
         "prefixItems"},
        {SCHEMA, "{\"$defs\":{\"a\":{\"$id\":\"b\"}},\"$recursiveRef\":\"#\"}",
         LODE_ERR_UNSUPPORTED, "#/$recursiveRef", "several $id"},
        {SCHEMA, "{\"type\":", LODE_ERR_FORMAT, "schema", ""},
        {REGEX, "a{2", LODE_ERR_FORMAT, NULL, NULL}, /* a brace that stands for itself */
        {REGEX, "(a", LODE_ERR_FORMAT, "regex", "group"},
        {REGEX, "[b-a]", LODE_ERR_FORMAT, "regex", "range"},
        {REGEX, "\\bword", LODE_ERR_UNSUPPORTED, "regex", "boundaries"},
        {GBNF, "root ::= root \"a\" | \"b\"", LODE_ERR_FORMAT, "grammar", "left recursion"},
        {GBNF, "root ::= a \"x\"\na ::= \"\" b\nb ::= a? \"y\"", LODE_ERR_FORMAT, "grammar",
         "left recursion"},
        {GBNF, "root ::= missing", LODE_ERR_FORMAT, "grammar", "not defined"},
        {GBNF, "start ::= \"a\"", LODE_ERR_FORMAT, "grammar", "root"},
        {GBNF, "root ::= \"a\" root", LODE_ERR_FORMAT, "grammar", "never end"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct lode_grammar *g = NULL;
        struct lode_error err = {0};
        const int rc =
            lode_grammar_compile(&g, cases[i].kind, cases[i].source, strlen(cases[i].source), &err);
        lode_grammar_free(g);
        if (!cases[i].where) {
            assert_int_equal(rc, 0);
            continue;
        }
        if (rc != cases[i].code || strcmp(err.where, cases[i].where) != 0 ||
            !strstr(err.text, cases[i].text))
            fail_msg("%s: %d, %s: %s", cases[i].source, rc, err.where, err.text);
    }
}

/* ---- hostile inputs end soon, with an error ---- */

static char *repeated(const char *head, const char *part, size_t n, const char *tail) {
    const size_t h = strlen(head), p = strlen(part), t = strlen(tail);
    char *text = malloc(h + n * p + t + 1);
    assert_non_null(text);
    memcpy(text, head, h);
    for (size_t i = 0; i < n; i++)
        memcpy(text + h + i * p, part, p);
    memcpy(text + h + n * p, tail, t + 1);
    return text;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void test_hostile(void **state) {
    (void)state;
    struct {
        enum lode_grammar_kind kind;
        char *text;
        bool good; /* large, but fine */
    } cases[] = {
        {SCHEMA, repeated("", "{\"items\":", 20000, "true"), false},
        {SCHEMA, repeated("", "[", 100000, ""), false},
        {SCHEMA,
         repeated("{\"allOf\":[true", ",{\"anyOf\":[{\"minimum\":1},{\"maximum\":5}]}", 40, "]}"),
         false},
        {SCHEMA, repeated("{\"type\":\"string\",\"pattern\":\"", "(a|b)*c{1,100}", 200, "\"}"),
         false},
        {SCHEMA, repeated("{\"enum\":[\"\"", ",\"some longer text\"", 100000, "]}"), true},
        {SCHEMA, repeated("{\"allOf\":[true", ",{}", 100000, "]}"), false},
        {SCHEMA, repeated("{\"minItems\":1000000", "", 0, "}"), true},
        {SCHEMA, repeated("{\"maxLength\":1000000,\"pattern\":\"^a*$\"", "", 0, "}"), true},
        {REGEX, repeated("", "(", 100000, ""), false},
        {REGEX, repeated("(((((a{1,100}){1,100}){1,100}){1,100}){1,100})", "", 0, ""), false},
        {REGEX, repeated("(a|b)*a(a|b){30}", "", 0, ""), false},
        {REGEX, repeated("", "(x+x+)+y", 1000, ""), true},
        {REGEX, repeated("", "(a*)*", 1000, ""), true},
        {GBNF, repeated("root ::= ", "(", 100000, ""), false},
        {GBNF, repeated("root ::= (\"a\"{1,100000}", "{1,100000}", 5, ")"), false},
        {GBNF, repeated("root ::= ", "\"\" | ", 100000, "\"a\""), true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct lode_grammar *g = NULL;
        struct lode_error err = {0};
        const double start = now();
        const int rc =
            lode_grammar_compile(&g, cases[i].kind, cases[i].text, strlen(cases[i].text), &err);
        const double took = now() - start;
        if ((rc == 0) != cases[i].good || took > (SLOW ? 120 : 20))
            fail_msg("case %zu: %d after %.1f s: %s", i, rc, took, err.text);
        lode_grammar_free(g);
        free(cases[i].text);
    }
}

/* ---- masks ---- */

/* Single bytes, and tokens that join what a tokenizer joins. */
static const char *const joined[] = {
    "{\"",   "\":",  "\": ", "\",",  "\", \"",   "\"}",      "},",       "}}",       "[]",
    "{}",    "[\"",  "\"]",  "],",   ", ",       "true",     "false",    "null",     "tr",
    "ue",    "nul",  "12",   "123",  "0.",       ".5",       "1,",       "1}",       "-1",
    "e1",    "ab",   "abc",  "a\"",  "\"a",      "\"b\":",   "\"a\": 1", "bc\"",     "\\u",
    "\\u00", "\\\"", "\\n",  "\n  ", " \"",      "\xc3\xa9", "\xf0\x9f", "\x98\x80", "\xe2\x82\xac",
    "aaaa",  "xx",   "x1\"", "name", "\"name\"",
};
enum { N_JOINED = sizeof joined / sizeof *joined, N_VOCAB = 256 + N_JOINED + 2 };

static struct lode_grammar_vocab *small_vocab(void) {
    static char bytes[256][2];
    const char *text[N_VOCAB];
    size_t len[N_VOCAB];
    const int32_t ends[] = {N_VOCAB - 1};
    struct lode_grammar_vocab *v;
    for (int i = 0; i < 256; i++) {
        bytes[i][0] = (char)i;
        text[i] = bytes[i];
        len[i] = 1;
    }
    for (size_t i = 0; i < N_JOINED; i++) {
        text[256 + i] = joined[i];
        len[256 + i] = strlen(joined[i]);
    }
    text[N_VOCAB - 2] = text[N_VOCAB - 1] = "";
    len[N_VOCAB - 2] = len[N_VOCAB - 1] = 0;
    assert_int_equal(lode_grammar_vocab_from_bytes(&v, text, len, N_VOCAB, ends, 1, NULL), 0);
    return v;
}

static uint64_t seed = 1;
static uint32_t random_below(uint32_t n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

enum { WORDS = (N_VOCAB + 63) / 64, MAX_STEPS = 60 };

static bool bit(const uint64_t *mask, int32_t i) { return mask[i / 64] >> i % 64 & 1; }

/* The mask says what trying each token says. */
static void check_mask(struct lode_grammar_state *s, const uint64_t *mask, const char *source) {
    for (int32_t id = 0; id < N_VOCAB; id++) {
        struct lode_grammar_state *c;
        assert_int_equal(lode_grammar_state_clone(&c, s, NULL), 0);
        const bool fits = lode_grammar_accept(c, id, NULL) == 0;
        if (fits != bit(mask, id))
            fail_msg("%s: token %d is %s but %s by the mask", source, id,
                     fits ? "accepted" : "refused", fits ? "forbidden" : "allowed");
        lode_grammar_state_free(c);
    }
}

/* A random text, token by token; longer ones are drawn towards their end by preferring closing
 * tokens.  Checks every mask on the way against `brute`, and takes steps back. */
static void random_text(const struct lode_grammar *g, const struct lode_grammar_vocab *v,
                        const char *source, bool brute) {
    struct lode_grammar_state *s;
    uint64_t masks[MAX_STEPS + 1][WORDS];
    char text[64 * MAX_STEPS];
    size_t len = 0, lens[MAX_STEPS + 1];
    bool ended = false;
    size_t n = 0;
    assert_int_equal(lode_grammar_state_create(&s, g, v, NULL), 0);
    while (n < MAX_STEPS && !ended) {
        int32_t allowed[N_VOCAB], n_allowed = 0;
        char forced[16];
        assert_int_equal(lode_grammar_mask(s, masks[n], NULL), 0);
        lens[n] = len;
        if (brute)
            check_mask(s, masks[n], source);
        for (int32_t id = 0; id < N_VOCAB; id++)
            if (bit(masks[n], id))
                allowed[n_allowed++] = id;
        if (!n_allowed)
            fail_msg("%s: nothing may follow %.*s", source, (int)len, text);
        const int64_t n_forced = lode_grammar_forced(s, forced, sizeof forced, NULL);
        assert_true(n_forced >= 0);
        int32_t id = allowed[random_below((uint32_t)n_allowed)];
        if (bit(masks[n], N_VOCAB - 1) && random_below(3) == 0)
            id = N_VOCAB - 1;
        if (n_forced && id < 256)
            assert_int_equal(id, (uint8_t)forced[0]);
        assert_int_equal(lode_grammar_accept(s, id, NULL), 0);
        if (id == N_VOCAB - 1) {
            ended = true;
            continue;
        }
        const char one = (char)id, *piece = id < 256 ? &one : joined[id - 256];
        const size_t n_piece = id < 256 ? 1 : strlen(piece);
        memcpy(text + len, piece, n_piece);
        len += n_piece;
        n++;
        if (n > 3 && random_below(8) == 0) { /* back, and the masks are the ones of then */
            const size_t back = 1 + random_below(3);
            uint64_t again[WORDS];
            assert_int_equal(lode_grammar_rewind(s, back, NULL), 0);
            n -= back;
            len = lens[n];
            assert_int_equal(lode_grammar_mask(s, again, NULL), 0);
            assert_memory_equal(again, masks[n], sizeof again);
        }
    }
    if (ended) {
        bool yes;
        size_t at;
        assert_int_equal(lode_grammar_check(g, text, len, &yes, &at, NULL), 0);
        if (!yes)
            fail_msg("%s: wrote %.*s, which it refuses at %zu", source, (int)len, text, at);
    }
    lode_grammar_state_free(s);
}

static void test_masks(void **state) {
    (void)state;
    struct lode_grammar_vocab *v = small_vocab();
    for (size_t i = 0; i < sizeof verdicts / sizeof *verdicts; i++) {
        struct lode_grammar *g = compile(verdicts[i].kind, verdicts[i].source);
        const size_t before = lode_grammar_bytes(g);
        if (i % 2) /* made ahead, or on the way */
            assert_int_equal(lode_grammar_prepare(g, v, 0.02, NULL), 0);
        for (int k = 0; k < (int)effort(30); k++)
            random_text(g, v, verdicts[i].source, k < 3);
        assert_true(lode_grammar_bytes(g) >= before && before > 0);
        lode_grammar_free(g);
    }
    lode_grammar_vocab_free(v);
}

static void test_empty(void **state) {
    (void)state;
    struct lode_grammar *g =
        compile(SCHEMA, "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"type\":"
                        "\"object\",\"required\":[\"a\"],\"properties\":{\"a\":"
                        "{\"$ref\":\"#/$defs/a\"}}}}}");
    struct lode_grammar_vocab *v = small_vocab();
    struct lode_grammar_state *s;
    struct lode_error err;
    assert_true(lode_grammar_is_empty(g)); /* it would have to go on for ever */
    assert_int_equal(lode_grammar_state_create(&s, g, v, &err), LODE_ERR_ARG);
    lode_grammar_free(g);
    lode_grammar_vocab_free(v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdicts), cmocka_unit_test(test_first_bad_byte),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_masks),    cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
