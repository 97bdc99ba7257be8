/* schema.c - `lode schema`: whether a JSON Schema can be enforced, and what it accepts. */
#include "args.h"
#include "input.h"
#include "order.h"
#include "out.h"
#include "progress.h"
#include "verbs.h"

#include "lode/grammar.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_INSTANCES = 4096 };

struct opts {
    const char *schema, *model, *kind;
    bool stats;
};

static const char *const kinds[] = {"schema", "regex", "gbnf", NULL};

static const struct arg_flag flags[] = {
    {"--schema", ARG_STR, ARG_AT(struct opts, schema), .meta = "FILE", .pos = 1, .group = "Input",
     .help = "the schema (also the first argument); - is standard input"},
    {"--kind", ARG_CHOICE, ARG_AT(struct opts, kind), .meta = "KIND", .def = "schema",
     .choices = kinds,
     .help = "what the file holds: a JSON Schema, a regular expression, a GBNF "
             "grammar"},
    {"-m, --model", ARG_STR, ARG_AT(struct opts, model), .meta = "FILE", .group = "Output",
     .help = "time the masks of this model's vocabulary too (a tokenizer alone is enough)"},
    {"--stats", ARG_BOOL, ARG_AT(struct opts, stats),
     .help = "print how long compiling and the masks took"},
};

static const struct arg_spec spec = {
    .verb = "schema",
    .usage = "SCHEMA.json [INSTANCE.json ...] [flags]",
    .brief = "says whether a JSON Schema can be enforced, and what it accepts",
    .about =
        "The exit status says it: 0, the schema can be enforced and all instances are accepted\n"
        "(any blanks, order of keys and spelling of numbers); 1, an instance is refused: the line\n"
        "names the file and the first byte that does not fit; 2, the schema cannot be enforced:\n"
        "the line names the keyword and its path.  docs/structured-output.md lists what can.",
    .examples = "lode schema person.json\n"
                "lode schema person.json answer.json --stats\n"
                "lode schema list.gbnf answer.txt --kind gbnf\n"
                "lode schema person.json answer.json -m models/demo.gguf",
    .flags = flags,
    .n_flags = ARG_COUNT(flags),
};

/* Writes the text token by token, as the longest tokens that fit, and times each mask. */
static int time_masks(const struct lode_grammar *g, const struct lode_grammar_vocab *v,
                      const struct lode_tokenizer *t, const char *text, size_t len,
                      struct lode_error *err) {
    struct lode_grammar_state *s = NULL;
    const size_t words = ((size_t)lode_grammar_vocab_size(v) + 63) / 64;
    uint64_t *mask = malloc((words + 1) * sizeof *mask);
    int32_t *ids = malloc((len + 1) * sizeof *ids);
    double *times = malloc((len + 2) * sizeof *times), sum = 0;
    size_t n_times = 0;
    int rc = mask && ids && times ? lode_grammar_state_create(&s, g, v, err)
                                  : tool_fail(err, LODE_ERR_NOMEM, "masks", "no memory");
    int64_t n = rc == 0 ? lode_tokenize(t, text, len, 0, ids, len + 1, err) : rc;
    for (int64_t i = 0; i <= n && rc == 0; i++) {
        const double start = clock_now();
        rc = lode_grammar_mask(s, mask, err);
        times[n_times] = clock_now() - start;
        sum += times[n_times++];
        if (rc < 0 || i == n || lode_grammar_accept(s, ids[i], NULL) < 0)
            break; /* a spelling that a model would not be given */
    }
    if (rc == 0 && n_times) {
        qsort(times, n_times, sizeof *times, order_doubles);
        printf("masks: %zu tokens of %u, median %.1f us, mean %.1f us, longest %.1f us\n", n_times,
               lode_grammar_vocab_size(v), 1e6 * times[n_times / 2], 1e6 * sum / (double)n_times,
               1e6 * times[n_times - 1]);
    }
    lode_grammar_state_free(s);
    free(mask);
    free(ids);
    free(times);
    return rc < 0 ? rc : n < 0 ? (int)n : 0;
}

/* The part of a JSON text without the blanks at its end, which belong to no token of an answer. */
static size_t trimmed(const char *text, size_t len) {
    while (len && strchr(" \t\r\n", text[len - 1]) && text[len - 1])
        len--;
    return len;
}

/* 0 accepted, 1 refused, 2 could not be read. */
static int check_one(const struct lode_grammar *g, const struct lode_grammar_vocab *v,
                     const struct lode_tokenizer *t, const char *path) {
    struct lode_error err = {0};
    char *text;
    size_t size, at;
    bool accepted;
    int rc = input_read(path, 0, &text, &size, &err);
    if (rc < 0)
        return tool_report(&err), 2;
    rc = lode_grammar_check(g, text, size, &accepted, &at, &err);
    if (rc == 0 && accepted)
        printf("%s: accepted\n", path);
    else if (rc == 0 && at < size)
        printf("%s: refused at byte %zu\n", path, at);
    else if (rc == 0)
        printf("%s: refused at byte %zu, its end\n", path, at);
    else
        printf("%s: refused: %s\n", path, err.text);
    const bool refused = rc < 0 || !accepted;
    if (!refused && v && time_masks(g, v, t, text, trimmed(text, size), &err) < 0)
        tool_report(&err);
    free(text);
    return refused;
}

/* Takes the arguments behind the schema that are no flags out of argv: the instances. */
static int take_instances(int *argc, char **argv, const char **out) {
    int n = 0, kept = 1;
    bool schema_seen = false;
    for (int i = 1; i < *argc; i++) {
        const bool flag = argv[i][0] == '-' && argv[i][1];
        const bool value = flag && !strchr(argv[i], '=') &&
                           (!strcmp(argv[i], "-m") || !strcmp(argv[i], "--model") ||
                            !strcmp(argv[i], "--kind") || !strcmp(argv[i], "--schema"));
        if (!flag && schema_seen && n < MAX_INSTANCES) {
            out[n++] = argv[i];
            continue;
        }
        schema_seen = schema_seen || !flag || !strncmp(argv[i], "--schema", 8);
        argv[kept++] = argv[i];
        if (value && i + 1 < *argc)
            argv[kept++] = argv[++i];
    }
    *argc = kept;
    return n;
}

int verb_schema(int argc, char **argv) {
    static const char *instances[MAX_INSTANCES];
    struct opts o;
    struct args a;
    struct lode_error err = {0};
    struct lode_grammar *g = NULL;
    struct lode_grammar_vocab *v = NULL;
    struct lode_tokenizer *t = NULL;
    char *text = NULL;
    size_t size;
    const int n = take_instances(&argc, argv, instances);
    int status = args_main(&a, &spec, &o, argc, argv);
    if (status >= 0)
        return status;
    if (!o.schema)
        return args_usage_error(&spec, "the schema is missing");
    const enum lode_grammar_kind kind = !strcmp(o.kind, "regex")  ? LODE_GRAMMAR_REGEX
                                        : !strcmp(o.kind, "gbnf") ? LODE_GRAMMAR_GBNF
                                                                  : LODE_GRAMMAR_SCHEMA;
    int rc = input_read(o.schema, 0, &text, &size, &err);
    if (rc == 0 && kind == LODE_GRAMMAR_REGEX) /* the newline that ends a file is not part of it */
        while (size && strchr("\r\n", text[size - 1]))
            size--;
    rc = rc == 0 ? lode_grammar_compile(&g, kind, text, size, &err) : rc;
    if (rc == 0 && o.model)
        rc = lode_tokenizer_load(&t, o.model, &err);
    if (rc == 0 && o.model)
        rc = lode_grammar_vocab_create(&v, t, &err);
    if (rc < 0) {
        tool_report(&err);
        status = 2;
    } else {
        status = 0;
        if (lode_grammar_is_empty(g))
            printf("%s: can be enforced, but nothing fits it\n", o.schema);
        else
            printf("%s: can be enforced\n", o.schema);
        if (o.stats || o.model)
            printf("compiled in %.2f ms\n", 1e3 * lode_grammar_seconds(g));
        for (int i = 0; i < n; i++) {
            const int one = check_one(g, v, t, instances[i]);
            status = one > status ? one : status;
        }
    }
    lode_grammar_free(g);
    lode_grammar_vocab_free(v);
    lode_tokenizer_free(t);
    free(text);
    return status;
}
