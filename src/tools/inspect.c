/* inspect.c - `lode inspect FILE`: what a model file holds, without loading it. */
#include "args.h"
#include "out.h"
#include "verbs.h"

#include "lode/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct opts {
    const char *model;
    bool json;
};

static const struct arg_flag flags[] = {
    ARG_MODEL(struct opts, model),
    { "--json", ARG_BOOL, ARG_AT(struct opts, json), .group = "Output",
      .help = "print everything as one JSON object, long values complete" },
};

static const struct arg_spec spec = {
    .verb = "inspect",
    .usage = "MODEL [--json]",
    .brief = "shows what a model file holds",
    .about = "Reads the header of a GGUF file, all shards of a set, or of a Hugging Face directory\n"
             "(shown under GGUF's names; ORG/NAME if it is in Hugging Face's cache), and checks it.\n"
             "Prints the architecture, size and vocabulary, every metadata key, every tensor\n"
             "with its shape (innermost dimension first), and what each number format takes.\n"
             "The tensors themselves are not read, so this is quick on files of any size.",
    .examples = "lode inspect models/demo.gguf\n"
                "lode inspect Qwen/Qwen3-0.6B\n"
                "lode inspect big-00001-of-00004.gguf --json | jq .metadata",
    .flags = flags,
    .n_flags = ARG_COUNT(flags),
};

/* How much of a file one number format takes. */
struct usage {
    const char *type;
    uint64_t tensors, numbers, bytes;
};
enum { MAX_TYPES = 64 };

static uint64_t n_numbers(const struct lode_file_tensor *t) {
    return t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
}

static int by_bytes(const void *a, const void *b) {
    const struct usage *x = a, *y = b;
    return (y->bytes > x->bytes) - (y->bytes < x->bytes);
}

/* The formats that occur, the largest first; their number. */
static size_t count_types(const struct lode_file *f, struct usage *use) {
    size_t n = 0;
    for (size_t i = 0; i < lode_file_n_tensors(f); i++) {
        const struct lode_file_tensor t = lode_file_tensor(f, i);
        size_t k = 0;
        while (k < n && strcmp(use[k].type, t.type) != 0)
            k++;
        if (k == MAX_TYPES)
            continue; /* there are fewer formats than that */
        if (k == n)
            use[n++] = (struct usage){ .type = t.type };
        use[k].tensors++;
        use[k].numbers += n_numbers(&t);
        use[k].bytes += t.size;
    }
    qsort(use, n, sizeof *use, by_bytes);
    return n;
}

/* ---- for people ---- */

struct text {
    char s[104]; /* four dimensions of 20 digits fit */
};

/* "17.4 MiB", "28.4 M": three digits or so, and the unit. */
static struct text scaled(uint64_t n, double step, const char *const *units) {
    struct text t;
    double v = (double)n;
    int u = 0;
    for (; v >= step - 0.5 && units[u + 1]; u++)
        v /= step;
    snprintf(t.s, sizeof t.s, u > 0 && v < 99.95 ? "%.1f%s%s" : "%.0f%s%s", v, *units[u] ? " " : "",
             units[u]);
    return t;
}

static struct text bytes_text(uint64_t n) {
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", NULL };
    return scaled(n, 1024, units);
}

static struct text count_text(uint64_t n) {
    static const char *const units[] = { "", "K", "M", "B", "T", NULL };
    return scaled(n, 1000, units);
}

static int widest(int width, const char *s) {
    const int n = (int)strlen(s);
    return n > width ? n : width;
}

static void print_heading(const char *text) {
    printf("\n%s%s%s\n", out_bold(stdout), text, out_plain(stdout));
}

static void print_summary(const struct lode_file *f, const char *path) {
    printf("%s%s%s: %s, %s", out_bold(stdout), path, out_plain(stdout), lode_file_format(f),
           bytes_text(lode_file_size(f)).s);
    if (lode_file_n_shards(f) > 1)
        printf(" in %zu shards", lode_file_n_shards(f));
    const char *arch = lode_file_arch(f);
    putchar('\n');
    if (strcmp(path, lode_file_path(f)) != 0)
        printf("  path          %s\n", lode_file_path(f));
    printf("  architecture  %s\n", *arch ? arch : "not said");
    printf("  parameters    %s\n", count_text(lode_file_n_params(f)).s);
    if (lode_file_n_vocab(f) > 0)
        printf("  vocabulary    %" PRIu64 " tokens\n", lode_file_n_vocab(f));
    for (const char *note = lode_file_notes(f); *note;) {
        const int n = (int)strcspn(note, "\n");
        printf("  note          %.*s\n", n, note);
        note += n + (note[n] == '\n');
    }
}

static void print_keys(const struct lode_file *f) {
    int key_width = 0, type_width = 0;
    for (size_t i = 0; i < lode_file_n_keys(f); i++) {
        key_width = widest(key_width, lode_file_key(f, i));
        type_width = widest(type_width, lode_file_key_type(f, i));
    }
    if (key_width > 56)
        key_width = 56; /* one endless key shall not push all values off the screen */
    char heading[64], value[80];
    snprintf(heading, sizeof heading, "Metadata (%zu keys)", lode_file_n_keys(f));
    print_heading(heading);
    for (size_t i = 0; i < lode_file_n_keys(f); i++) {
        lode_file_value(f, i, value, sizeof value, false);
        printf("  %-*s  %s%-*s%s  %s\n", key_width, lode_file_key(f, i), out_dim(stdout),
               type_width, lode_file_key_type(f, i), out_plain(stdout), value);
    }
}

static struct text shape_text(const struct lode_file_tensor *t) {
    struct text out = { "1" };
    int n = 0;
    for (uint32_t d = 0; d < t->n_dims; d++)
        n += snprintf(out.s + n, sizeof out.s - (size_t)n, "%s%" PRIu64, d ? " x " : "",
                      t->dims[d]);
    return out;
}

static void print_tensors(const struct lode_file *f) {
    int name_width = 0, shape_width = 0;
    for (size_t i = 0; i < lode_file_n_tensors(f); i++) {
        const struct lode_file_tensor t = lode_file_tensor(f, i);
        name_width = widest(name_width, t.name);
        shape_width = widest(shape_width, shape_text(&t).s);
    }
    char heading[64];
    snprintf(heading, sizeof heading, "Tensors (%zu)", lode_file_n_tensors(f));
    print_heading(heading);
    for (size_t i = 0; i < lode_file_n_tensors(f); i++) {
        const struct lode_file_tensor t = lode_file_tensor(f, i);
        printf("  %-*s  %s%-7s%s  %-*s  %10s\n", name_width, t.name, out_dim(stdout), t.type,
               out_plain(stdout), shape_width, shape_text(&t).s, bytes_text(t.size).s);
    }
}

static void print_types(const struct usage *use, size_t n) {
    struct usage sum = { .type = "total" };
    for (size_t i = 0; i < n; i++) {
        sum.tensors += use[i].tensors;
        sum.numbers += use[i].numbers;
        sum.bytes += use[i].bytes;
    }
    print_heading("Types");
    printf("  %s%-7s  %8s  %10s  %10s  %6s  %13s%s\n", out_dim(stdout), "type", "tensors",
           "numbers", "size", "share", "bits a number", out_plain(stdout));
    for (size_t i = 0; i <= n; i++) {
        const struct usage *u = i < n ? &use[i] : &sum;
        printf("  %-7s  %8" PRIu64 "  %10s  %10s  %5.1f%%  %13.2f\n", u->type, u->tensors,
               count_text(u->numbers).s, bytes_text(u->bytes).s,
               100.0 * (double)u->bytes / (double)sum.bytes,
               8.0 * (double)u->bytes / (double)u->numbers);
    }
}

/* ---- JSON ---- */

static void json_str(const char *s) { out_json_string(stdout, s); }

/* Prints the value of key i; buf (cap) is kept from call to call.  false: out of memory. */
static bool json_value(const struct lode_file *f, size_t i, char **buf, size_t *cap) {
    const size_t n = lode_file_value(f, i, *buf, *cap, true);
    if (n >= *cap) {
        char *more = realloc(*buf, n + 1);
        if (!more)
            return false;
        *buf = more;
        *cap = n + 1;
        lode_file_value(f, i, *buf, *cap, true);
    }
    fputs(*buf, stdout);
    return true;
}

static bool print_json(const struct lode_file *f, const char *path, const struct usage *use,
                       size_t n_types) {
    printf("{\n  \"file\": ");
    json_str(path);
    printf(",\n  \"path\": ");
    json_str(lode_file_path(f));
    printf(",\n  \"notes\": ");
    json_str(lode_file_notes(f));
    printf(",\n  \"format\": \"%s\",\n  \"size\": %" PRIu64 ",\n  \"shards\": %zu",
           lode_file_format(f), lode_file_size(f), lode_file_n_shards(f));
    printf(",\n  \"architecture\": ");
    json_str(lode_file_arch(f));
    printf(",\n  \"parameters\": %" PRIu64 ",\n  \"vocabulary\": %" PRIu64, lode_file_n_params(f),
           lode_file_n_vocab(f));
    char *buf = NULL;
    size_t cap = 0;
    bool ok = true;
    printf(",\n  \"metadata\": {");
    for (size_t i = 0; i < lode_file_n_keys(f) && ok; i++) {
        printf("%s\n    ", i ? "," : "");
        json_str(lode_file_key(f, i));
        printf(": { \"type\": \"%s\", \"value\": ", lode_file_key_type(f, i));
        ok = json_value(f, i, &buf, &cap);
        printf(" }");
    }
    free(buf);
    printf("\n  },\n  \"tensors\": [");
    for (size_t i = 0; i < lode_file_n_tensors(f); i++) {
        const struct lode_file_tensor t = lode_file_tensor(f, i);
        printf("%s\n    { \"name\": ", i ? "," : "");
        json_str(t.name);
        printf(", \"type\": \"%s\", \"shape\": [", t.type);
        for (uint32_t d = 0; d < t.n_dims; d++)
            printf("%s%" PRIu64, d ? ", " : "", t.dims[d]);
        printf("], \"shard\": %" PRIu32 ", \"offset\": %" PRIu64 ", \"size\": %" PRIu64 " }",
               t.shard, t.offset, t.size);
    }
    printf("\n  ],\n  \"types\": {");
    for (size_t i = 0; i < n_types; i++)
        printf("%s\n    \"%s\": { \"tensors\": %" PRIu64 ", \"numbers\": %" PRIu64
               ", \"size\": %" PRIu64 " }",
               i ? "," : "", use[i].type, use[i].tensors, use[i].numbers, use[i].bytes);
    printf("\n  }\n}\n");
    return ok;
}

int verb_inspect(int argc, char **argv) {
    struct opts o;
    struct args a;
    const int status = args_main(&a, &spec, &o, argc, argv);
    if (status >= 0)
        return status;
    if (!o.model)
        return args_usage_error(&spec, "which file?");
    struct lode_error err;
    struct lode_file *f;
    if (lode_file_open(&f, o.model, &err) < 0)
        return tool_report(&err);
    struct usage use[MAX_TYPES];
    const size_t n_types = count_types(f, use);
    bool ok = true;
    if (o.json) {
        ok = print_json(f, o.model, use, n_types);
    } else {
        print_summary(f, o.model);
        if (lode_file_n_keys(f) > 0)
            print_keys(f);
        if (n_types > 0) {
            print_tensors(f);
            print_types(use, n_types);
        }
    }
    lode_file_close(f);
    if (!ok) {
        tool_fail(&err, LODE_ERR_NOMEM, o.model, "out of memory for the value of a key");
        return tool_report(&err);
    }
    return 0;
}
