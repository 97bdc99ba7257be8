/* tokenize.c - `lode tokenize` and `lode detokenize`: text to token ids and back. */
#include "args.h"
#include "input.h"
#include "out.h"
#include "verbs.h"

#include "lode/lode.h"

#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* -- lines of a text ------------------------------------------------------------------- */

struct lines {
    const char *at, *end;
    size_t number;
};

/* The next line without its end; false behind the last. */
static bool next_line(struct lines *l, const char **line, size_t *len) {
    if (l->at == l->end)
        return false;
    const char *stop = memchr(l->at, '\n', (size_t)(l->end - l->at));
    *line = l->at;
    *len = (size_t)((stop ? stop : l->end) - l->at);
    l->at = stop ? stop + 1 : l->end;
    l->number++;
    return true;
}

static bool is_blank(const char *line, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (!isspace((unsigned char)line[i]))
            return false;
    return true;
}

static int bad_line(struct lode_error *err, const struct lines *l, const char *what) {
    char where[32];
    snprintf(where, sizeof where, "line %zu", l->number);
    return tool_fail(err, LODE_ERR_FORMAT, where, "%s", what);
}

/* -- tokenize -------------------------------------------------------------------------- */

struct opts {
    const char *model, *file, *prompt;
    bool jsonl, ids, no_bos, no_parse_special, no_special, show_count;
};

static const struct arg_flag flags[] = {
    ARG_MODEL(struct opts, model),
    {"-f, --file", ARG_STR, ARG_AT(struct opts, file), .meta = "FILE", .group = "Input and output",
     .shown = "standard input", .help = "the text"},
    {"-p, --prompt", ARG_STR, ARG_AT(struct opts, prompt), .meta = "TEXT",
     .help = "the text itself, instead of a file"},
    {"--jsonl", ARG_BOOL, ARG_AT(struct opts, jsonl),
     .help = "each input line is a JSON string, each output line a JSON array of ids"},
    {"--ids", ARG_BOOL, ARG_AT(struct opts, ids), .help = "print one list: [1, 2, 3]"},
    {"--show-count", ARG_BOOL, ARG_AT(struct opts, show_count),
     .help = "print the number of tokens at the end"},
    {"--no-bos", ARG_BOOL, ARG_AT(struct opts, no_bos), .group = "Special tokens",
     .help = "add neither BOS nor EOS"},
    {"--no-parse-special", ARG_BOOL, ARG_AT(struct opts, no_parse_special),
     .help = "special tokens written in the text are text"},
    {"--no-special", ARG_BOOL, ARG_AT(struct opts, no_special), .help = "both of the above"},
};

static const struct arg_spec spec = {
    .verb = "tokenize",
    .usage = "MODEL [-f FILE] [flags]",
    .brief = "shows a text as a model's tokens",
    .about =
        "Prints one line a token: its id, a tab, and the piece as the vocabulary spells it\n"
        "(control characters as \\n, \\t, \\x1b).  The model can be a GGUF, of which only the\n"
        "vocabulary is read, a tokenizer.json, a tokenizer.model, or a directory with one of\n"
        "them.  Text that is not UTF-8 is read with U+FFFD in place of what is not.",
    .examples = "lode tokenize models/demo.gguf -p 'Once upon a time'\n"
                "lode tokenize tokenizer.json < book.txt | wc -l\n"
                "lode tokenize models/demo.gguf < a.txt | lode detokenize models/demo.gguf",
    .flags = flags,
    .n_flags = ARG_COUNT(flags),
};

static void print_piece(const char *s, size_t len) {
    for (size_t i = 0; i < len; i++) {
        const unsigned char c = (unsigned char)s[i];
        if (c == '\n')
            fputs("\\n", stdout);
        else if (c == '\t')
            fputs("\\t", stdout);
        else if (c == '\r')
            fputs("\\r", stdout);
        else if (c < 0x20 || c == 0x7f)
            printf("\\x%02x", c);
        else
            putchar(c);
    }
}

static void print_list(const struct ids *ids, const char *between) {
    putchar('[');
    for (size_t i = 0; i < ids->n; i++)
        printf("%s%" PRId32, i ? between : "", ids->v[i]);
    fputs("]\n", stdout);
}

static bool print_tokens(const struct lode_tokenizer *t, const struct ids *ids) {
    for (size_t i = 0; i < ids->n; i++) {
        struct lode_token_info info = {.piece = ""};
        lode_token_info(t, ids->v[i], &info);
        printf("%" PRId32 "\t", ids->v[i]);
        print_piece(info.piece, info.piece_len);
        putchar('\n');
        if (i % 4096 == 0 && !out_flush())
            return false;
    }
    return true;
}

static int tokenize_jsonl(const struct lode_tokenizer *t, const char *text, size_t size, int how,
                          size_t *n, struct lode_error *err) {
    struct lines l = {text, text + size, 0};
    const char *line;
    for (size_t len; next_line(&l, &line, &len);) {
        if (is_blank(line, len))
            continue;
        json_t *value = json_loadb(line, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        struct ids ids = {0};
        int rc = json_is_string(value) ? ids_tokenize(&ids, t, json_string_value(value),
                                                      json_string_length(value), how, err)
                                       : bad_line(err, &l, "is not one JSON string");
        json_decref(value);
        if (rc == 0)
            print_list(&ids, ",");
        *n += ids.n;
        ids_free(&ids);
        if (rc < 0)
            return rc;
        if (!out_flush())
            break;
    }
    return 0;
}

int verb_tokenize(int argc, char **argv) {
    struct opts o;
    struct args a;
    struct lode_error err = {0};
    int status = args_main(&a, &spec, &o, argc, argv);
    if (status >= 0)
        return status;
    if (!o.model)
        return args_usage_error(&spec, "which model?");
    if (o.prompt && o.file)
        return args_usage_error(&spec, "-p and -f are two texts; give one");
    const int how = (o.no_bos || o.no_special ? 0 : LODE_TOK_SPECIAL) |
                    (o.no_parse_special || o.no_special ? 0 : LODE_TOK_PARSE);
    struct lode_tokenizer *t = NULL;
    struct ids ids = {0};
    char *data = NULL;
    size_t size = o.prompt ? strlen(o.prompt) : 0, n = 0;
    int rc = lode_tokenizer_load(&t, o.model, &err);
    if (rc == 0 && !o.prompt)
        rc = input_read(o.file ? o.file : "-", 0, &data, &size, &err);
    const char *text = o.prompt ? o.prompt : data;
    if (rc == 0 && o.jsonl) {
        rc = tokenize_jsonl(t, text, size, how, &n, &err);
    } else if (rc == 0 && (rc = ids_tokenize(&ids, t, text, size, how, &err)) == 0) {
        n = ids.n;
        if (o.ids)
            print_list(&ids, ", ");
        else
            print_tokens(t, &ids);
    }
    if (rc == 0 && o.show_count)
        printf("Total number of tokens: %zu\n", n);
    ids_free(&ids);
    free(data);
    lode_tokenizer_free(t);
    return rc < 0 ? tool_report(&err) : 0;
}

/* -- detokenize ------------------------------------------------------------------------ */

struct detok_opts {
    const char *model, *file, *ids;
    bool jsonl, skip_special;
};

static const struct arg_flag detok_flags[] = {
    ARG_MODEL(struct detok_opts, model),
    {"-f, --file", ARG_STR, ARG_AT(struct detok_opts, file), .meta = "FILE",
     .group = "Input and output", .shown = "standard input", .help = "the ids"},
    {"--ids", ARG_STR, ARG_AT(struct detok_opts, ids), .meta = "LIST",
     .help = "the ids themselves: 1,2,3"},
    {"--jsonl", ARG_BOOL, ARG_AT(struct detok_opts, jsonl),
     .help = "each input line is a JSON array of ids, each output line a JSON string"},
    {"--skip-special", ARG_BOOL, ARG_AT(struct detok_opts, skip_special), .group = "Special tokens",
     .help = "leave special tokens out"},
};

static const struct arg_spec detok_spec = {
    .verb = "detokenize",
    .usage = "MODEL [-f FILE] [flags]",
    .brief = "turns token ids back into text",
    .about =
        "Reads what `lode tokenize` prints (of each line only the id before the tab counts), or\n"
        "numbers between blanks, commas and brackets.  Bytes of tokens that make no valid\n"
        "UTF-8 come out as U+FFFD.",
    .examples =
        "lode detokenize models/demo.gguf --ids 1,2,3\n"
        "lode tokenize tokenizer.json --jsonl < a.jsonl | lode detokenize tokenizer.json --jsonl",
    .flags = detok_flags,
    .n_flags = ARG_COUNT(detok_flags),
};

/* Cuts the pieces off lines of id<TAB>piece, in place. */
static void drop_pieces(char *text, size_t size) {
    for (char *at = text; (at = memchr(at, '\t', size - (size_t)(at - text)));) {
        char *end = memchr(at, '\n', size - (size_t)(at - text));
        if (!end)
            end = text + size;
        memset(at, ' ', (size_t)(end - at));
        at = end;
    }
}

/* The text of ids in one piece of memory, free(*text). */
static int text_of(const struct lode_tokenizer *t, const struct ids *ids, bool skip, char **text,
                   size_t *len, struct lode_error *err) {
    const int64_t n = lode_detokenize(t, ids->v, ids->n, skip, NULL, 0, err);
    *text = n < 0 ? NULL : malloc((size_t)n + 1);
    *len = n < 0 ? 0 : (size_t)n;
    if (n < 0)
        return (int)n;
    if (!*text)
        return tool_fail(err, LODE_ERR_NOMEM, "text", "no memory for %" PRId64 " bytes", n);
    lode_detokenize(t, ids->v, ids->n, skip, *text, *len, NULL);
    return 0;
}

static int detokenize_line(const struct lode_tokenizer *t, const struct lines *l,
                           const json_t *list, bool skip, struct lode_error *err) {
    struct ids ids = {malloc((json_array_size(list) + 1) * sizeof(int32_t)), 0};
    char *text = NULL;
    size_t len;
    int rc = ids.v ? 0 : tool_fail(err, LODE_ERR_NOMEM, "ids", "no memory");
    if (rc == 0 && !json_is_array(list))
        rc = bad_line(err, l, "is not one JSON array of ids");
    for (; rc == 0 && ids.n < json_array_size(list); ids.n++) {
        const json_t *id = json_array_get(list, ids.n);
        const json_int_t v = json_is_integer(id) ? json_integer_value(id) : -1;
        if (v < 0 || v > INT32_MAX)
            rc = bad_line(err, l, "holds something that is not a token id");
        else
            ids.v[ids.n] = (int32_t)v;
    }
    if (rc == 0)
        rc = text_of(t, &ids, skip, &text, &len, err);
    if (rc == 0) {
        json_t *string = json_stringn(text, len);
        if (!string || json_dumpf(string, stdout, JSON_ENCODE_ANY) < 0)
            rc = tool_fail(err, LODE_ERR_NOMEM, "text", "no memory");
        putchar('\n');
        json_decref(string);
    }
    free(text);
    ids_free(&ids);
    return rc;
}

static int detokenize_jsonl(const struct lode_tokenizer *t, const char *data, size_t size,
                            bool skip, struct lode_error *err) {
    struct lines l = {data, data + size, 0};
    const char *line;
    for (size_t len; next_line(&l, &line, &len);) {
        if (is_blank(line, len))
            continue;
        json_t *list = json_loadb(line, len, JSON_DECODE_ANY, NULL);
        const int rc = detokenize_line(t, &l, list, skip, err);
        json_decref(list);
        if (rc < 0)
            return rc;
        if (!out_flush())
            break;
    }
    return 0;
}

static int detokenize(const struct lode_tokenizer *t, const char *list, bool skip,
                      struct lode_error *err) {
    struct ids ids = {0};
    char *text = NULL;
    size_t len = 0;
    if (list[strspn(list, " \t\r\n,[]")] == '\0')
        return 0; /* no ids, no text */
    int rc = ids_parse(&ids, list, err);
    if (rc == 0)
        rc = text_of(t, &ids, skip, &text, &len, err);
    if (rc == 0)
        fwrite(text, 1, len, stdout);
    free(text);
    ids_free(&ids);
    return rc;
}

int verb_detokenize(int argc, char **argv) {
    struct detok_opts o;
    struct args a;
    struct lode_error err = {0};
    const int status = args_main(&a, &detok_spec, &o, argc, argv);
    if (status >= 0)
        return status;
    if (!o.model)
        return args_usage_error(&detok_spec, "which model?");
    if (o.ids && (o.file || o.jsonl))
        return args_usage_error(&detok_spec, "--ids is the input itself; leave out -f and --jsonl");
    struct lode_tokenizer *t = NULL;
    char *data = NULL;
    size_t size = 0;
    int rc = lode_tokenizer_load(&t, o.model, &err);
    if (rc == 0 && !o.ids)
        rc = input_read(o.file ? o.file : "-", 0, &data, &size, &err);
    if (rc == 0 && o.jsonl) {
        rc = detokenize_jsonl(t, data, size, o.skip_special, &err);
    } else if (rc == 0) {
        if (data)
            drop_pieces(data, size);
        rc = detokenize(t, o.ids ? o.ids : data, o.skip_special, &err);
    }
    free(data);
    lode_tokenizer_free(t);
    return rc < 0 ? tool_report(&err) : 0;
}
