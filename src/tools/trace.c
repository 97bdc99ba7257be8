/* trace.c - `lode trace`: records where a model's tokens go, or makes such a record up. */
#include "trace.h"

#include "args.h"
#include "input.h"
#include "load.h"
#include "out.h"
#include "profile.h"
#include "progress.h"
#include "verbs.h"

#include "lode/lode.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------- record ---- */

struct record_opts {
    struct load_opts load;
    const char *file, *prompt, *ids, *output;
    int64_t n_predict, n_tokens;
};

static const struct arg_flag record_flags[] = {
    LOAD_MODEL_FLAGS(struct record_opts),
    {"-f, --file", ARG_STR, ARG_AT(struct record_opts, file), .meta = "FILE", .pos = 2,
     .group = "What is evaluated", .help = "a text (also the second argument; - is standard input)"},
    {"-p, --prompt", ARG_STR, ARG_AT(struct record_opts, prompt), .meta = "TEXT", .help = "a text"},
    {"--ids", ARG_STR, ARG_AT(struct record_opts, ids), .meta = "LIST",
     .help = "token ids: 1,2,3, or @FILE"},
    {"--tokens", ARG_INT, ARG_AT(struct record_opts, n_tokens), .meta = "N", .def = "0", .min = 0,
     .max = 1 << 24, .shown = "all", .help = "only the first N tokens of it"},
    {"-n, --n-predict", ARG_INT, ARG_AT(struct record_opts, n_predict), .meta = "N", .def = "0",
     .min = 0, .max = 1 << 20, .help = "go on for N tokens, each the likeliest"},
    {"-o, --output", ARG_STR, ARG_AT(struct record_opts, output), .meta = "FILE",
     .help = "where the trace is written"},
    {"-c, --ctx-size, --ctx", ARG_INT, ARG_AT(struct record_opts, load.ctx), .meta = "N",
     .def = "0", .shown = "the model's, at most 4096", .min = 0, .max = 1 << 28,
     .group = "Speed and memory",
     .help = "longer texts are cut into pieces of N tokens that do not see each other"},
    LOAD_SESSION_FLAGS(struct record_opts),
};

static const struct arg_spec record_spec = {
    .verb = "trace record",
    .usage = "MODEL [-f FILE | -p TEXT | --ids LIST] [-n N] -o FILE [flags]",
    .brief = "evaluates a text and writes which experts its tokens went to",
    .about = "Runs on the CPU.  The choice of a token's experts depends on the text alone, not on\n"
             "threads, batches or caches.",
    .examples = "lode trace record models/moe.gguf -f book.txt -o book.trace\n"
                "lode trace record models/moe.gguf -p 'Once upon a time' -n 500 -o story.trace",
    .flags = record_flags,
    .n_flags = ARG_COUNT(record_flags),
};

static int find_ids(struct ids *ids, const struct record_opts *o, const struct lode_model *m,
                    struct lode_error *err) {
    const int flags = LODE_TOK_SPECIAL | LODE_TOK_PARSE;
    if (o->ids)
        return ids_parse(ids, o->ids, err);
    if (!lode_model_tokenizer(m))
        return tool_fail(err, LODE_ERR_UNSUPPORTED, o->load.model,
                         "the model has no tokenizer: give --ids");
    if (o->prompt)
        return ids_tokenize(ids, lode_model_tokenizer(m), o->prompt, strlen(o->prompt), flags, err);
    char *text;
    size_t size;
    int rc = input_read(o->file, 0, &text, &size, err);
    if (rc < 0)
        return rc;
    rc = ids_tokenize(ids, lode_model_tokenizer(m), text, size, flags, err);
    free(text);
    return rc;
}

static int ignore(void *user, uint32_t pos, const float *logits) {
    (void)logits;
    struct progress *bar = user;
    progress_update(bar, pos);
    return 0;
}

/* In pieces of the session's context; eval_each, so that no layer leaves a position out. */
static int evaluate(const struct record_opts *o, const struct lode_model *m, struct lode_session *s,
                    const struct ids *ids, struct lode_trace *t, struct lode_error *err) {
    const size_t ctx = lode_session_ctx(s);
    struct progress bar;
    size_t n = 0;
    int rc = 0;
    progress_begin(&bar, "evaluating", "tokens", ids->n + (size_t)o->n_predict);
    while (rc == 0 && n < ids->n) {
        const size_t part = ids->n - n < ctx ? ids->n - n : ctx;
        lode_trace_begin(t, n);
        rc = lode_session_truncate(s, 0, err);
        rc = rc < 0 ? rc : lode_session_eval_each(s, ids->v + n, part, ignore, &bar, err);
        n += part;
    }
    for (int64_t i = 0; rc == 0 && i < o->n_predict; i++) {
        struct lode_logprob best;
        lode_logprob_top(lode_session_logits(s), lode_model_info(m)->n_vocab, &best, 1);
        rc = lode_session_eval(s, &best.id, 1, err);
        progress_update(&bar, ++n);
    }
    progress_end(&bar);
    return rc;
}

static int record(const struct record_opts *o, struct lode_model *m, struct lode_session **s,
                  struct lode_trace **t, struct ids *ids, struct lode_error *err) {
    struct lode_trace_shape shape = lode_model_routes(m);
    shape.guesses = true;
    int rc = find_ids(ids, o, m, err);
    if (rc == 0 && o->n_tokens && ids->n > (size_t)o->n_tokens)
        ids->n = (size_t)o->n_tokens;
    if (rc == 0 && ids->n == 0)
        rc = tool_fail(err, LODE_ERR_ARG, "text", "it has no tokens");
    const size_t n_predict = (size_t)o->n_predict;
    rc = rc < 0 ? rc : lode_trace_create(t, &shape, ids->n + n_predict, err);
    if (rc < 0)
        return rc;
    struct lode_session_opts so = load_session_opts(&o->load);
    const uint32_t trained = lode_model_info(m)->ctx_train;
    if (!so.ctx)
        so.ctx = trained && trained < 4096 ? trained : 4096;
    if (ids->n + n_predict < so.ctx)
        so.ctx = (uint32_t)(ids->n + n_predict);
    so.routes = lode_trace_put;
    so.guesses = lode_trace_put_guess;
    so.routes_user = *t;
    struct profile *profile;
    rc = profile_begin(&profile, m, &o->load, err);
    profile_watch(profile, &so);
    rc = rc < 0 ? rc : lode_session_create(s, m, &so, err);
    rc = rc < 0 ? rc : evaluate(o, m, *s, ids, *t, err);
    rc = profile_finish(profile, rc, err);
    return rc < 0 ? rc : lode_trace_write(*t, o->output, err);
}

static int trace_record(int argc, char **argv) {
    struct record_opts o = {0}; /* not all of load has a flag here */
    struct args a;
    const int status = args_main(&a, &record_spec, &o, argc, argv);
    if (status >= 0)
        return status;
    if (!o.load.model || !o.output || (!o.file && !o.prompt && !o.ids))
        return args_usage_error(&record_spec, "%s is missing",
                                !o.load.model ? "the model"
                                : !o.output   ? "-o"
                                              : "a text (-f, -p or --ids)");
    struct lode_error err = {0};
    struct lode_model *m = NULL;
    struct lode_session *s = NULL;
    struct lode_trace *t = NULL;
    struct ids ids = {0};
    o.load.device = "cpu";
    o.load.own = o.file ? input_size(o.file) : 0;
    int rc = out_may_write(o.output, &err);
    rc = rc < 0 ? rc : load_model(&m, &o.load, &err);
    rc = rc < 0 ? rc : record(&o, m, &s, &t, &ids, &err);
    if (rc == 0) {
        char bytes[32];
        printf("%zu tokens, experts of %s in all: %s\n", lode_trace_n_tokens(t),
               format_bytes((double)lode_trace_bytes(t), bytes), o.output);
    }
    ids_free(&ids);
    lode_session_free(s);
    lode_trace_free(t);
    lode_model_free(m);
    return rc < 0 ? tool_report(&err) : 0;
}

/* ----------------------------------------------------------------------------------- synth ---- */

struct synth_opts {
    const char *output;
    int64_t n_layers, n_experts, n_used, n_tokens, seed;
    uint64_t size;
    double zipf, drift, repeat;
};

static const struct arg_flag synth_flags[] = {
    {"-o, --output", ARG_STR, ARG_AT(struct synth_opts, output), .meta = "FILE", .pos = 1,
     .help = "where the trace is written (also the first argument)"},
    {"--layers", ARG_INT, ARG_AT(struct synth_opts, n_layers), .meta = "N", .def = "48", .min = 1,
     .max = 4096, .help = "layers with experts"},
    {"--experts", ARG_INT, ARG_AT(struct synth_opts, n_experts), .meta = "N", .def = "128",
     .min = 1, .max = 65535, .help = "experts of a layer"},
    {"--used", ARG_INT, ARG_AT(struct synth_opts, n_used), .meta = "K", .def = "8", .min = 1,
     .max = 256, .help = "of them that a token uses"},
    {"--expert-size", ARG_SIZE, ARG_AT(struct synth_opts, size), .meta = "SIZE", .def = "2.6M",
     .help = "bytes of one expert"},
    {"--tokens", ARG_INT, ARG_AT(struct synth_opts, n_tokens), .meta = "N", .def = "1000",
     .min = 1, .max = 1 << 24, .help = "tokens"},
    {"--zipf", ARG_FLOAT, ARG_AT(struct synth_opts, zipf), .meta = "S", .def = "0.8", .max = 8,
     .help = "an expert's chance is like 1 / rank^S; 0: all the same"},
    {"--drift", ARG_FLOAT, ARG_AT(struct synth_opts, drift), .meta = "D", .def = "0.002", .max = 1,
     .help = "of a layer's experts, the part that exchanges ranks after each token"},
    {"--repeat", ARG_FLOAT, ARG_AT(struct synth_opts, repeat), .meta = "P", .def = "0.2", .max = 1,
     .help = "chance that a choice repeats one of the token before"},
    {"--seed", ARG_INT, ARG_AT(struct synth_opts, seed), .meta = "N", .def = "1", .min = 0,
     .max = 1e15, .help = "another trace for each"},
};

static const struct arg_spec synth_spec = {
    .verb = "trace synth",
    .usage = "FILE [flags]",
    .brief = "makes up a trace: skewed, drifting, with a memory of one token",
    .about = "Experts of a layer are drawn by Zipf's law, each layer with ranks of its own, which\n"
             "drift.  The defaults have the shape of a Qwen3-30B-A3B at 4 bits.",
    .examples = "lode trace synth zipf.trace --zipf 1.1 --drift 0.01",
    .flags = synth_flags,
    .n_flags = ARG_COUNT(synth_flags),
};

static int trace_synth(int argc, char **argv) {
    struct synth_opts o;
    struct args a;
    const int status = args_main(&a, &synth_spec, &o, argc, argv);
    if (status >= 0)
        return status;
    if (!o.output)
        return args_usage_error(&synth_spec, "the output is missing");
    struct lode_error err = {0};
    struct lode_trace *t = NULL;
    int rc = out_may_write(o.output, &err);
    rc = rc < 0 ? rc : lode_trace_synthesise(&t,
                                   &(struct lode_trace_synth){.n_layers = (uint32_t)o.n_layers,
                                                              .n_experts = (uint32_t)o.n_experts,
                                                              .n_used = (uint32_t)o.n_used,
                                                              .n_tokens = (size_t)o.n_tokens,
                                                              .expert_bytes = o.size,
                                                              .seed = (uint64_t)o.seed,
                                                              .zipf = o.zipf,
                                                              .drift = o.drift,
                                                              .repeat = o.repeat},
                                   &err);
    rc = rc < 0 ? rc : lode_trace_write(t, o.output, &err);
    lode_trace_free(t);
    return rc < 0 ? tool_report(&err) : 0;
}

/* ------------------------------------------------------------------------------------- all ---- */

int trace_open(struct lode_trace **t, const char *path, struct lode_error *err) {
    const int rc = lode_trace_open(t, path, err);
    if (rc == 0 && !lode_trace_summed(*t))
        fprintf(stderr, "lode: note: %s is of an older lode and has no checksum: if it was damaged, that is not seen; "
                "record it again\n", path);
    return rc;
}

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const struct arg_spec *spec; /* NULL: the verb's own file has it */
} parts[] = {
    {"record", trace_record, &record_spec},
    {"replay", trace_replay, NULL},
    {"synth", trace_synth, &synth_spec},
};

static const struct arg_flag no_flags[1];
static const struct arg_spec spec = {
    .verb = "trace",
    .usage = "record MODEL -f FILE -o TRACE [flags]\n"
             "replay TRACE... [--sizes LIST] [flags]\n"
             "synth TRACE [flags]",
    .brief = "which experts tokens go to, and what caches make of it",
    .about = "record: evaluates a text and writes which experts its tokens went to.\n"
             "replay: hit rates, bytes read and predicted tokens/s of each cache policy and size,\n"
             "beside the best that could be had by who knows the future.\n"
             "synth: a trace of no model.\n"
             "Each has its own --help.  The file's layout: docs/bigger-than-memory.md.",
    .examples = "lode trace record models/moe.gguf -f book.txt -o book.trace\n"
                "lode trace replay book.trace --sizes 10%,25%,50%",
    .flags = no_flags,
    .n_flags = 0,
};

int verb_trace(int argc, char **argv) {
    for (size_t i = 0; argc > 1 && i < sizeof parts / sizeof *parts; i++)
        if (!strcmp(argv[1], parts[i].name))
            return parts[i].run(argc - 1, argv + 1);
    struct args a;
    char none[1];
    const int status = args_main(&a, &spec, none, argc > 2 ? 2 : argc, argv);
    return status >= 0 ? status
                       : args_usage_error(&spec, "'record', 'replay' or 'synth' expected%s%.40s",
                                          argc > 1 ? ", not " : "", argc > 1 ? argv[1] : "");
}
