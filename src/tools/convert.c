/* convert.c - `lode convert SRC -o OUT.gguf`: any model as one GGUF file (docs/convert.md). */
#include "args.h"
#include "compare.h"
#include "input.h"
#include "interrupt.h"
#include "out.h"
#include "progress.h"
#include "verbs.h"

#include "lode/lode.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct opts {
    const char *source, *out, *type, *imatrix, *name, *text;
    struct arg_strs rules;
    int64_t threads, window, chunks;
    bool pure, dry, no_kl;
};

static const struct arg_flag flags[] = {
    {"-m, --model", ARG_STR, ARG_AT(struct opts, source), .meta = "SRC", .pos = 1, .group = "Files",
     .help = "a Hugging Face directory, or a GGUF file (any of a set); also the first argument"},
    {"-o, --out, --outfile, --output", ARG_STR, ARG_AT(struct opts, out), .meta = "FILE", .pos = 2,
     .help = "the file to write; it appears whole or not at all"},
    {"--name, --model-name", ARG_STR, ARG_AT(struct opts, name), .meta = "NAME",
     .shown = "the source's", .help = "what the model is called in the file (general.name)"},
    {"--type, --outtype, --ftype", ARG_STR, ARG_AT(struct opts, type), .meta = "TYPE",
     .shown = "as the source has them", .group = "Number formats",
     .help = "type of the matrices, or a mix; the list is above"},
    {"--tensor-type", ARG_STRS, ARG_AT(struct opts, rules), .meta = "PATTERN=TYPE",
     .help = "tensors whose name matches the regular expression get this type; again for more, the "
             "first that matches counts"},
    {"--pure", ARG_BOOL, ARG_AT(struct opts, pure),
     .help = "all matrices get the mix's own type: no more bits for the sensitive ones"},
    {"--imatrix", ARG_STR, ARG_AT(struct opts, imatrix), .meta = "FILE",
     .help = "what each column is worth, as llama-imatrix measured it (GGUF or .dat)"},
    {"--dry-run", ARG_BOOL, ARG_AT(struct opts, dry), .group = "Looking",
     .help = "print what each tensor would become and the size; write nothing"},
    {"--no-kl, --skip-kl", ARG_BOOL, ARG_AT(struct opts, no_kl),
     .help = "do not compare the result with the source"},
    {"-f, --file", ARG_STR, ARG_AT(struct opts, text), .meta = "FILE", .shown = "a built-in one",
     .help = "text to compare over (- is standard input)"},
    {"-c, --ctx-size", ARG_INT, ARG_AT(struct opts, window), .meta = "N", .def = "256", .min = 8,
     .max = 1 << 20, .help = "tokens of each stretch compared; its second half counts"},
    {"--chunks", ARG_INT, ARG_AT(struct opts, chunks), .meta = "N", .def = "-1", .min = -1,
     .max = INT32_MAX, .shown = "-1, all", .help = "stretches compared at most"},
    {"-t, --threads", ARG_INT, ARG_AT(struct opts, threads), .meta = "N", .min = 0, .max = 1024,
     .def = "0", .shown = "the physical cores this process may use", .group = "Speed",
     .help = "threads; the file is the same with any number"},
};

static const char about[] =
    "Writes a GGUF file that lode and llama.cpp load.  Without --type every number stays what it\n"
    "is, and lode gives the same logits bit for bit from both; a set of GGUF shards becomes one\n"
    "file.  With --type the matrices are quantised, and the file is compared with its source over\n"
    "a text: KL divergence is how far the predicted probabilities are apart (0: the same; below\n"
    "0.01 hardly anyone can tell; above 0.1 the model says other things).\n"
    "\n"
    "A mix gives more bits to the tensors that need them most, by the rules of llama-quantize.\n"
    "Rows that are no whole blocks of a type get the next one that fits.  Quantising what is\n"
    "quantised already loses twice: start from the original where you can.\n"
    "\n"
    "Types (bits a number; the mixes' sizes depend on the model):\n";

/* `about` with the list of types behind it. */
static char full_about[4096];

static struct arg_spec spec = {
    .verb = "convert",
    .usage = "SRC -o OUT.gguf [--type TYPE] [flags]\nSRC --type TYPE --dry-run",
    .brief = "makes a GGUF file of any model, in any number format",
    .about = full_about,
    .examples = "lode convert ~/models/Qwen3-8B -o qwen3-8b.gguf\n"
                "lode convert ~/models/Qwen3-8B -o qwen3-8b-q4.gguf --type Q4_K_M\n"
                "lode convert big-00001-of-00009.gguf -o big.gguf\n"
                "lode convert moe.gguf -o small.gguf --type Q6_K --tensor-type _exps=Q4_K\n"
                "lode convert model.gguf --type Q3_K_M --dry-run",
    .flags = flags,
    .n_flags = ARG_COUNT(flags),
};

static void make_about(void) {
    size_t at = (size_t)snprintf(full_about, sizeof full_about, "%s", about);
    struct lode_convert_type t;
    for (size_t i = 0; (t = lode_convert_type(i)).name && at < sizeof full_about; i++)
        at += (size_t)snprintf(full_about + at, sizeof full_about - at, "%s  %-10s %s",
                               i ? "\n" : "", t.name, t.about);
}

/* ---- what will be ---- */

static int widest_name(const struct lode_convert *c) {
    int width = 0;
    for (size_t i = 0; i < lode_convert_n_tensors(c); i++) {
        const int n = (int)strlen(lode_convert_tensor(c, i).name);
        width = n > width ? n : width;
    }
    return width;
}

static void print_plan(const struct lode_convert *c) {
    const int width = widest_name(c);
    char from[32], to[32];
    for (size_t i = 0; i < lode_convert_n_tensors(c); i++) {
        const struct lode_convert_tensor t = lode_convert_tensor(c, i);
        char shape[104];
        int n = 0;
        for (uint32_t d = 0; d < t.n_dims; d++)
            n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%" PRIu64, d ? " x " : "",
                          t.dims[d]);
        printf("  %-*s  %-20s %-6s -> %-6s %9s -> %9s%s\n", width, t.name, shape, t.from, t.to,
               format_bytes((double)t.from_size, from), format_bytes((double)t.to_size, to),
               t.fallback ? "  (rows fit no block of the type asked for)" : "");
    }
}

static void print_summary(const struct lode_convert *c) {
    const struct lode_convert_info *info = lode_convert_info(c);
    double numbers = 0;
    uint64_t bytes = 0;
    size_t n_fallback = 0;
    char from[32], to[32];
    for (size_t i = 0; i < lode_convert_n_tensors(c); i++) {
        const struct lode_convert_tensor t = lode_convert_tensor(c, i);
        numbers += (double)t.dims[0] * (double)t.dims[1] * (double)t.dims[2] * (double)t.dims[3];
        bytes += t.to_size;
        n_fallback += t.fallback;
    }
    printf("%s from %s: %s -> %s, %zu tensors, %.2f bits a number\n", info->arch, info->format,
           format_bytes((double)info->work, from), format_bytes((double)info->size, to),
           lode_convert_n_tensors(c), 8 * (double)bytes / numbers);
    if (n_fallback)
        printf("%zu tensors have rows that are no whole blocks of their type, and get another; "
               "--dry-run shows them\n",
               n_fallback);
    for (size_t i = 0; i < lode_convert_n_notes(c); i++)
        printf("Note: %s\n", lode_convert_note(c, i));
}

/* ---- writing ---- */

static int on_progress(void *user, const char *what, uint64_t done, uint64_t total) {
    struct progress *bar = user;
    (void)what;
    bar->total = total;
    progress_update(bar, done);
    return interrupt_seen();
}

static int write_file(struct lode_convert *c, const char *path, struct lode_error *err) {
    struct progress bar;
    const double start = clock_now();
    char size[32], rate[32], time[32];
    interrupt_catch_all();
    progress_begin(&bar, "writing", "B", 0);
    const int rc = lode_convert_write(c, path, on_progress, &bar, err);
    progress_end(&bar);
    const double spent = clock_now() - start;
    if (rc == 0)
        printf("Wrote %s: %s in %s (%s/s)\n", path,
               format_bytes((double)lode_convert_info(c)->size, size), format_seconds(spent, time),
               format_bytes((double)lode_convert_info(c)->size / (spent > 0 ? spent : 1), rate));
    return rc;
}

/* ---- comparing ---- */

/* The built-in text as one string; free it.  NULL: out of memory. */
static char *join_sample(void) {
    size_t n = 0;
    for (size_t i = 0; sample_text[i]; i++)
        n += strlen(sample_text[i]);
    char *all = malloc(n + 1), *end = all;
    for (size_t i = 0; all && sample_text[i]; i++)
        end = stpcpy(end, sample_text[i]);
    return all;
}

static int compare_text(const struct opts *o, struct lode_error *err) {
    struct lode_model *models[2] = {NULL};
    const char *paths[2] = {o->source, o->out};
    struct compare_text text = {.window = (int32_t)o->window,
                                .most = o->chunks,
                                .threads = (uint32_t)o->threads,
                                .cancel = interrupt_seen};
    struct kld_sums sums = {0};
    char *own = o->text ? NULL : join_sample();
    int rc = 0;
    if (o->text)
        rc = input_read(o->text, 0, &own, &text.size, err);
    else if (!own)
        rc = tool_fail(err, LODE_ERR_NOMEM, "text", "no memory for it");
    else
        text.size = strlen(own);
    text.text = own;
    for (int i = 0; rc == 0 && i < 2; i++)
        rc = lode_model_load(&models[i], paths[i], NULL, err);
    if (rc == 0)
        rc = compare_models(&sums, models[0], models[1], &text, err);
    if (rc == 0) {
        printf("Compared with the source over %zu tokens of %s:\n", sums.n,
               o->text ? o->text : "the built-in text");
        kld_print_brief(stdout, &sums);
    }
    kld_sums_free(&sums);
    for (int i = 0; i < 2; i++)
        lode_model_free(models[i]);
    free(own);
    return rc;
}

/* The file is written and good, whatever comes of the comparison. */
static int compare_and_say(const struct opts *o, const struct lode_convert_info *info) {
    struct lode_error err = {0};
    if (info->exact) {
        printf("Every number is what it was: lode's results are the same bit for bit.\n");
        return 0;
    }
    if (o->no_kl || !out_flush())
        return 0;
    const int rc = compare_text(o, &err);
    if (rc == 0)
        return 0;
    fprintf(stderr, "lode: the file is complete, but was not compared with its source: %s%s%s\n",
            err.where, err.where[0] ? ": " : "", err.text);
    return rc == LODE_ERR_CANCELLED ? 1 : 0;
}

static int split_rules(const struct opts *o, struct lode_convert_rule *rules, char **copies,
                       size_t *n) {
    for (*n = 0; *n < o->rules.n; ++*n) {
        copies[*n] = strdup(o->rules.v[*n]);
        char *equals = copies[*n] ? strrchr(copies[*n], '=') : NULL;
        if (!equals || equals == copies[*n] || !equals[1]) {
            const char *given = o->rules.v[(*n)++];
            return args_usage_error(&spec, "--tensor-type: '%s' is not PATTERN=TYPE", given);
        }
        *equals = '\0';
        rules[*n] = (struct lode_convert_rule){copies[*n], equals + 1};
    }
    return 0;
}

static int convert(const struct opts *o, const struct lode_convert_rule *rules, size_t n_rules) {
    struct lode_error err = {0};
    struct lode_convert *c;
    const bool same = o->type && !strcmp(o->type, "auto"); /* the name that others have for it */
    int rc = lode_convert_open(&c, o->source,
                               &(struct lode_convert_opts){.type = same ? NULL : o->type,
                                                           .pure = o->pure,
                                                           .rules = rules,
                                                           .n_rules = n_rules,
                                                           .imatrix = o->imatrix,
                                                           .name = o->name,
                                                           .threads = (uint32_t)o->threads},
                               &err);
    if (rc < 0)
        return tool_report(&err);
    if (o->dry)
        print_plan(c);
    print_summary(c);
    int status = 0;
    if (!o->dry && out_flush()) {
        const struct lode_convert_info info = *lode_convert_info(c);
        rc = write_file(c, o->out, &err);
        status = rc < 0 ? tool_report(&err) : compare_and_say(o, &info);
    }
    lode_convert_close(c);
    return status;
}

int verb_convert(int argc, char **argv) {
    struct opts o;
    struct args a;
    make_about();
    int status = args_main(&a, &spec, &o, argc, argv);
    if (status >= 0)
        return status;
    if (!o.source)
        return args_usage_error(&spec, "the source is missing: a directory or a GGUF file");
    if (!o.out && !o.dry)
        return args_usage_error(&spec, "where to? -o OUT.gguf (or --dry-run)");
    struct lode_convert_rule rules[ARG_MAX_LIST];
    char *copies[ARG_MAX_LIST] = {NULL};
    size_t n;
    status = split_rules(&o, rules, copies, &n);
    if (status == 0)
        status = convert(&o, rules, n);
    for (size_t i = 0; i < n; i++)
        free(copies[i]);
    return status;
}
