#include "text/regex.h"

#include "base/alloc.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

struct lode_regex {
    pcre2_code *code; /* owned */
    bool jit;
};

struct lode_regex_run {
    const struct lode_regex *re; /* borrowed */
    pcre2_match_data *match;     /* owned, as are the next two */
    pcre2_match_context *context;
    pcre2_jit_stack *stack; /* NULL without JIT */
};

enum {
    PATTERN_MAX = 1 << 16,
    JIT_STACK_MAX = 4 << 20,
    HEAP_MAX_KIB = 256 << 10, /* of the interpreter, per match */
};

static void *pcre_alloc(size_t size, void *unused) {
    (void)unused;
    return lode_alloc(size, 1);
}
static void pcre_free(void *p, void *unused) {
    (void)unused;
    lode_free(p);
}

/* -- rewriting ------------------------------------------------------------------------- */

#define SPACES                                                                                     \
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"        \
    "\\x{205f}\\x{3000}"
#define WORDS "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}"

struct rewriter {
    struct lode_str in;
    size_t at;
    struct lode_buf *out;
    struct lode_error *err;
};

static bool more(const struct rewriter *r) {
    return r->at < r->in.len;
}
static char peek(const struct rewriter *r, size_t ahead) {
    return r->at + ahead < r->in.len ? r->in.data[r->at + ahead] : '\0';
}

static bool is_script(const char *name, size_t n) {
    /* Scripts as they occur in pre-tokenizers; PCRE2 takes a bare name for Script_Extensions. */
    static const char *const scripts[] = {
        "Arabic",   "Armenian", "Bengali",   "Bopomofo",  "Cyrillic", "Devanagari",
        "Ethiopic", "Georgian", "Greek",     "Gujarati",  "Gurmukhi", "Han",
        "Hangul",   "Hebrew",   "Hiragana",  "Kannada",   "Katakana", "Khmer",
        "Lao",      "Latin",    "Malayalam", "Mongolian", "Myanmar",  "Oriya",
        "Sinhala",  "Tamil",    "Telugu",    "Thai",      "Tibetan",
    };
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        if (strlen(scripts[i]) == n && memcmp(scripts[i], name, n) == 0)
            return true;
    return false;
}

/* \p{Name}, \P{Name}, \p{^Name}; at is behind the p. */
static void rewrite_property(struct rewriter *r, char p) {
    lode_buf_addc(r->out, '\\');
    lode_buf_addc(r->out, p);
    if (peek(r, 0) != '{')
        return;
    size_t end = r->at + 1;
    while (end < r->in.len && r->in.data[end] != '}')
        end++;
    size_t name = r->at + 1;
    lode_buf_addc(r->out, '{');
    if (name < end && r->in.data[name] == '^') {
        lode_buf_addc(r->out, '^');
        name++;
    }
    if (is_script(r->in.data + name, end - name))
        lode_buf_addz(r->out, "sc:");
    lode_buf_add(r->out, r->in.data + name, end - name);
    lode_buf_addc(r->out, '}');
    r->at = end < r->in.len ? end + 1 : end;
}

/* An escape; at is on the backslash.  Inside a class a set is written without its brackets. */
static int rewrite_escape(struct rewriter *r, bool in_class) {
    const char c = peek(r, 1);
    if (r->at + 1 >= r->in.len)
        return lode_fail(r->err, LODE_ERR_FORMAT, "regular expression", "ends in a backslash");
    r->at += 2;
    const char *set = c == 's' || c == 'S'   ? SPACES
                      : c == 'w' || c == 'W' ? WORDS
                      : c == 'h' || c == 'H' ? "0-9A-Fa-f"
                                             : NULL;
    const bool negated = c == 'S' || c == 'W' || c == 'H';
    if (set && !in_class) {
        lode_buf_addf(r->out, "[%s%s]", negated ? "^" : "", set);
    } else if (set && !negated) {
        lode_buf_addz(r->out, set);
    } else if (set && c == 'H') {
        return lode_fail(r->err, LODE_ERR_UNSUPPORTED, "regular expression",
                         "\\H inside a character class is not supported");
    } else if (c == 'p' || c == 'P') {
        rewrite_property(r, c);
    } else if (c == 'u' && peek(r, 0) == '{') {
        lode_buf_addz(r->out, "\\x");
    } else if (c == 'u') {
        if (r->in.len - r->at < 4)
            return lode_fail(r->err, LODE_ERR_FORMAT, "regular expression",
                             "\\u needs four hexadecimal digits");
        lode_buf_addz(r->out, "\\x{");
        lode_buf_add(r->out, r->in.data + r->at, 4);
        lode_buf_addc(r->out, '}');
        r->at += 4;
    } else {
        lode_buf_addc(r->out, '\\');
        lode_buf_addc(r->out, c);
    }
    return 0;
}

/* The members of a class up to its end or to &&; at stays on what ended them. */
static int rewrite_members(struct rewriter *r, struct lode_buf *members) {
    struct lode_buf *const outside = r->out;
    int rc = 0;
    r->out = members;
    while (rc == 0 && more(r) && peek(r, 0) != ']' && !(peek(r, 0) == '&' && peek(r, 1) == '&')) {
        if (peek(r, 0) == '\\') {
            rc = rewrite_escape(r, true);
        } else if (peek(r, 0) == '[' && peek(r, 1) == ':') { /* [:alpha:] */
            size_t end = r->at;
            while (end < r->in.len && r->in.data[end] != ']')
                end++;
            lode_buf_add(members, r->in.data + r->at, end - r->at);
            lode_buf_addc(members, ']');
            r->at = end + 1;
        } else if (peek(r, 0) == '[') {
            rc = lode_fail(r->err, LODE_ERR_UNSUPPORTED, "regular expression",
                           "a character class inside a character class is not supported");
        } else {
            lode_buf_addc(members, r->in.data[r->at++]);
        }
    }
    r->out = outside;
    return rc;
}

static bool eat(struct rewriter *r, char c) {
    if (!more(r) || peek(r, 0) != c)
        return false;
    r->at++;
    return true;
}

/* A class; at is behind its bracket.  [A&&B] becomes (?:(?=[B])[A]), [A&&[^B]] (?:(?![B])[A]). */
static int rewrite_class(struct rewriter *r) {
    struct lode_buf first = {0}, conditions = {0}, side = {0};
    const bool negated = eat(r, '^');
    if (eat(r, ']')) /* first in the class: itself */
        lode_buf_addz(&first, "\\]");
    int rc = rewrite_members(r, &first);
    while (rc == 0 && eat(r, '&')) {
        r->at++;
        const bool bracket = eat(r, '['), not = bracket && eat(r, '^');
        lode_buf_clear(&side);
        rc = rewrite_members(r, &side);
        lode_buf_addf(&conditions, "(?%c[%s])", not ? '!' : '=', side.data ? side.data : "");
        if (rc == 0 && bracket && !eat(r, ']'))
            break; /* said below */
    }
    if (rc == 0 && !eat(r, ']'))
        rc = lode_fail(r->err, LODE_ERR_FORMAT, "regular expression",
                       "a character class has no end");
    const char *members = first.data ? first.data : "";
    if (conditions.len == 0)
        lode_buf_addf(r->out, "[%s%s]", negated ? "^" : "", members);
    else
        lode_buf_addf(r->out, negated ? "(?:(?!%s[%s])(?s:.))" : "(?:%s[%s])", conditions.data,
                      members);
    if (first.failed || conditions.failed || side.failed)
        r->out->failed = true;
    lode_buf_free(&first);
    lode_buf_free(&conditions);
    lode_buf_free(&side);
    return rc;
}

int lode_regex_translate(struct lode_buf *out, struct lode_str pattern, struct lode_error *err) {
    struct rewriter r = {.in = pattern, .out = out, .err = err};
    /* addf copies members as C strings */
    if (pattern.len > PATTERN_MAX || (pattern.len && memchr(pattern.data, 0, pattern.len)))
        return lode_fail(err, LODE_ERR_LIMIT, "regular expression",
                         "%zu bytes or a NUL in it; at most %d bytes and no NUL are supported",
                         pattern.len, PATTERN_MAX);
    while (more(&r)) {
        if (peek(&r, 0) == '\\')
            LODE_TRY(rewrite_escape(&r, false));
        else if (eat(&r, '['))
            LODE_TRY(rewrite_class(&r));
        else
            lode_buf_addc(out, r.in.data[r.at++]);
    }
    return out->failed ? lode_fail_nomem(err, "a regular expression") : 0;
}

/* -- compiling and matching ------------------------------------------------------------ */

int lode_regex_create(struct lode_regex **out, struct lode_str pattern, struct lode_error *err) {
    struct lode_buf text = {0};
    pcre2_general_context *memory = NULL;
    pcre2_compile_context *how = NULL;
    struct lode_regex *re = LODE_NEW(struct lode_regex);
    *out = NULL;
    int rc = re ? lode_regex_translate(&text, pattern, err)
                : lode_fail_nomem(err, "a regular expression");
    if (rc < 0)
        goto done;
    memory = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    how = memory ? pcre2_compile_context_create(memory) : NULL;
    if (!how) {
        rc = lode_fail_nomem(err, "a regular expression");
        goto done;
    }
    pcre2_set_newline(how, PCRE2_NEWLINE_LF);
    int code;
    PCRE2_SIZE at;
    re->code = pcre2_compile((PCRE2_SPTR)(text.data ? text.data : ""), text.len,
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                             &code, &at, how);
    if (!re->code) {
        PCRE2_UCHAR why[128] = "";
        pcre2_get_error_message(code, why, sizeof why);
        rc = code == PCRE2_ERROR_NOMEMORY || strstr((char *)why, "memory")
                 ? lode_fail_nomem(err, "a regular expression")
                 : lode_fail(err, LODE_ERR_FORMAT, "regular expression",
                             "cannot be compiled: %s, at byte %zu of \"%.200s\"", (char *)why,
                             (size_t)at, text.data ? text.data : "");
        goto done;
    }
    /* Where the system forbids executable memory the interpreter gives the same matches. */
    re->jit = pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE) == 0;
done:
    pcre2_compile_context_free(how);
    pcre2_general_context_free(memory);
    lode_buf_free(&text);
    if (rc < 0) {
        lode_regex_free(re);
        return rc;
    }
    *out = re;
    return 0;
}

void lode_regex_free(struct lode_regex *re) {
    if (re)
        pcre2_code_free(re->code);
    lode_free(re);
}

int lode_regex_run_create(struct lode_regex_run **out, const struct lode_regex *re,
                          struct lode_error *err) {
    struct lode_regex_run *run = LODE_NEW(struct lode_regex_run);
    pcre2_general_context *memory = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    if (run && memory) {
        run->re = re;
        run->match = pcre2_match_data_create(1, memory);
        run->context = pcre2_match_context_create(memory);
        run->stack = re->jit ? pcre2_jit_stack_create(32 << 10, JIT_STACK_MAX, memory) : NULL;
    }
    pcre2_general_context_free(memory);
    *out = run;
    if (!run || !run->match || !run->context || (re->jit && !run->stack)) {
        lode_regex_run_free(run);
        *out = NULL;
        return lode_fail_nomem(err, "a regular expression's working memory");
    }
    pcre2_set_heap_limit(run->context, HEAP_MAX_KIB);
    if (run->stack)
        pcre2_jit_stack_assign(run->context, NULL, run->stack);
    return 0;
}

void lode_regex_run_free(struct lode_regex_run *run) {
    if (!run)
        return;
    pcre2_match_data_free(run->match);
    pcre2_match_context_free(run->context);
    pcre2_jit_stack_free(run->stack);
    lode_free(run);
}

int lode_regex_find(struct lode_regex_run *run, const char *s, size_t len, size_t from,
                    size_t *start, size_t *end, struct lode_error *err) {
    /* A sound expression looks at each character a few times; one that backtracks exponentially
     * must end.  The limit counts backtracking points, so it grows with the text. */
    const size_t effort = len < (UINT32_MAX - (1 << 20)) / 20 ? len * 20 + (1 << 20) : UINT32_MAX;
    pcre2_set_match_limit(run->context, (uint32_t)effort);
    int rc = pcre2_match(run->re->code, (PCRE2_SPTR)s, len, from, PCRE2_NO_UTF_CHECK, run->match,
                         run->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(run->re->code, (PCRE2_SPTR)s, len, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         run->match, run->context);
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc == PCRE2_ERROR_NOMEMORY)
        return lode_fail_nomem(err, "matching a regular expression");
    if (rc < 0)
        return lode_fail(
            err, LODE_ERR_LIMIT, "text",
            "the tokenizer's regular expression takes too many steps on it (PCRE2 error %d)", rc);
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(run->match);
    if (span[0] < from || span[1] < span[0] || span[1] > len) /* \K in a lookaround */
        return lode_fail(err, LODE_ERR_FORMAT, "regular expression", "matches backwards");
    *start = span[0];
    *end = span[1];
    return 1;
}
