/* logits.c - `lode logits`: what the model says after given ids, as numbers. */
#include "args.h"
#include "input.h"
#include "load.h"
#include "npy.h"
#include "out.h"
#include "progress.h"
#include "profile.h"
#include "verbs.h"

#include "lode/lode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct opts {
    struct load_opts load;
    const char *ids, *output, *hidden;
    bool all, trace_norms;
};

static const struct arg_flag flags[] = {
    LOAD_MODEL_FLAGS(struct opts),
    {"--ids", ARG_STR, ARG_AT(struct opts, ids), .meta = "LIST", .group = "Input and output",
     .help = "token ids: 1,2,3, or @FILE with numbers as text or an .npy of integers"},
    {"-o, --output", ARG_STR, ARG_AT(struct opts, output), .meta = "FILE",
     .help = "write float32 .npy: (1, vocabulary), with --all (positions, vocabulary); without -o "
             "the likeliest next tokens are printed"},
    {"--all", ARG_BOOL, ARG_AT(struct opts, all), .help = "every position, not only the last"},
    {"--trace-norms", ARG_BOOL, ARG_AT(struct opts, trace_norms),
     .help = "print layer<TAB>L2 norm of the residual stream at the last position; layer 0 is "
             "the embedding"},
    {"-c, --ctx-size, --ctx", ARG_INT, ARG_AT(struct opts, load.ctx), .meta = "N", .def = "0",
     .shown = "what the ids need", .min = 0, .max = 1 << 28, .group = "Speed and memory",
     .help = "size of the context"},
    LOAD_SESSION_FLAGS(struct opts),
    {"--hidden", ARG_STR, ARG_AT(struct opts, hidden), .meta = "FILE", .debug = true,
     .help = "write the residual stream, float32 .npy: (layers + 1, positions, width)"},
    LOAD_FOREIGN_FLAGS,
};

static const struct arg_spec spec = {
    .verb = "logits",
    .usage = "MODEL --ids LIST [-o FILE] [flags]",
    .brief = "what a model says after given token ids, as numbers",
    .about = "Evaluates the ids and writes the logits (the scores of every possible next token,\n"
             "before any sampling) of the last position, or of all.  The numbers depend on the\n"
             "model, the ids and the types of the KV cache only: threads, batch size and\n"
             "instruction set do not change a bit.",
    .examples = "lode logits models/demo.gguf --ids 1,2,3\n"
                "lode logits models/demo.gguf --ids @prompt.npy --all -o logits.npy\n"
                "lode logits models/demo.gguf --ids 1,2,3 --trace-norms",
    .flags = flags,
    .n_flags = ARG_COUNT(flags),
};

/* What the trace collects: norms of the last position, and everything when --hidden asks. */
struct trace {
    double *norms; /* (layers + 1) */
    float *hidden; /* (layers + 1, positions, width), or NULL */
    size_t n_layers, n_positions, width;
};

static void on_trace(void *user, uint32_t layer, uint32_t pos, const float *x, size_t n) {
    struct trace *t = user;
    if (layer > t->n_layers || pos >= t->n_positions || n != t->width)
        return;
    if (pos + 1 == t->n_positions) {
        double sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += (double)x[i] * (double)x[i];
        t->norms[layer] = sqrt(sum);
    }
    if (t->hidden)
        memcpy(t->hidden + (layer * t->n_positions + pos) * t->width, x, n * sizeof *x);
}

static int trace_init(struct trace *t, const struct opts *o, const struct lode_model_info *info,
                      size_t n_positions, struct lode_error *err) {
    *t = (struct trace){
        .n_layers = info->n_layers, .n_positions = n_positions, .width = info->d_model};
    t->norms = calloc(t->n_layers + 1, sizeof *t->norms);
    if (o->hidden)
        t->hidden = calloc((t->n_layers + 1) * n_positions, t->width * sizeof(float));
    if (!t->norms || (o->hidden && !t->hidden))
        return tool_fail(err, LODE_ERR_NOMEM, "--hidden", "no memory for %zu layers x %zu x %zu",
                         t->n_layers + 1, n_positions, t->width);
    return 0;
}

static int write_hidden(const struct trace *t, const char *path, struct lode_error *err) {
    struct outfile file;
    const uint64_t dims[] = {t->n_layers + 1, t->n_positions, t->width};
    const size_t n = (t->n_layers + 1) * t->n_positions * t->width;
    int rc = outfile_open(&file, path, err);
    if (rc < 0)
        return rc;
    npy_write_header(file.f, 3, dims);
    outfile_write(&file, t->hidden, n * sizeof(float));
    return outfile_commit(&file, err);
}

/* The rows of --all go to the file as they come. */
struct sink {
    struct outfile file;
    uint32_t n_vocab;
    struct progress bar;
};

static int on_logits(void *user, uint32_t pos, const float *logits) {
    struct sink *s = user;
    progress_update(&s->bar, pos + 1);
    return outfile_write(&s->file, logits, s->n_vocab * sizeof *logits) ? 0 : -1;
}

static void print_likeliest(const struct lode_model *m, const float *logits) {
    enum { N = 10 };
    struct lode_logprob best[N];
    const struct lode_tokenizer *t = lode_model_tokenizer(m);
    const uint32_t n_vocab = lode_model_info(m)->n_vocab;
    const size_t n = lode_logprob_top(logits, n_vocab, best, N);
    printf("%8s  %12s  %8s  %s\n", "id", "logit", "p", "piece");
    for (size_t i = 0; i < n; i++) {
        struct lode_token_info info = {0};
        if (t)
            lode_token_info(t, best[i].id, &info);
        printf("%8d  %12.6f  %7.3f%%  %.*s\n", best[i].id, (double)logits[best[i].id],
               100 * exp((double)best[i].logprob), (int)info.piece_len,
               info.piece ? info.piece : "");
    }
}

static int evaluate(const struct opts *o, struct lode_model *m, struct lode_session *s,
                    const struct ids *ids, struct lode_error *err) {
    struct sink sink = {.n_vocab = lode_model_info(m)->n_vocab};
    const uint64_t dims[] = {o->all ? ids->n : 1, sink.n_vocab};
    int rc = 0;
    if (o->output) {
        rc = outfile_open(&sink.file, o->output, err);
        if (rc < 0)
            return rc;
        npy_write_header(sink.file.f, 2, dims);
    }
    progress_begin(&sink.bar, "evaluating", "tokens", ids->n);
    if (o->output && o->all)
        rc = lode_session_eval_each(s, ids->v, ids->n, on_logits, &sink, err);
    else
        rc = lode_session_eval(s, ids->v, ids->n, err);
    progress_end(&sink.bar);
    if (rc == LODE_ERR_CANCELLED && o->output && sink.file.cause)
        return outfile_commit(&sink.file, err); /* which says why the file cannot be written */
    if (rc == 0 && o->output) {
        if (!o->all)
            outfile_write(&sink.file, lode_session_logits(s), sink.n_vocab * sizeof(float));
        return outfile_commit(&sink.file, err);
    }
    outfile_abandon(&sink.file);
    return rc;
}

int verb_logits(int argc, char **argv) {
    struct opts o = {0}; /* not all of load has a flag here */
    struct args a;
    const int status = args_main(&a, &spec, &o, argc, argv);
    if (status >= 0)
        return status;
    if (!o.load.model || !o.ids)
        return args_usage_error(&spec, "%s is missing", o.load.model ? "--ids" : "the model");

    struct lode_error err = {0};
    struct lode_model *m = NULL;
    struct lode_session *s = NULL;
    struct profile *profile = NULL;
    struct ids ids = {0};
    struct trace trace = {0};
    int rc = ids_parse(&ids, o.ids, &err);
    if (rc == 0 && !o.load.ctx)
        o.load.ctx = (int64_t)ids.n;
    rc = rc < 0 ? rc : load_model(&m, &o.load, &err);
    rc = rc < 0 ? rc : trace_init(&trace, &o, lode_model_info(m), ids.n, &err);
    if (rc == 0) {
        struct lode_session_opts so = load_session_opts(&o.load);
        if (o.trace_norms || o.hidden) {
            so.trace = on_trace;
            so.trace_user = &trace;
        }
        rc = profile_begin(&profile, m, &o.load, &err);
        profile_watch(profile, &so);
        rc = rc < 0 ? rc : lode_session_create(&s, m, &so, &err);
    }
    rc = rc < 0 ? rc : evaluate(&o, m, s, &ids, &err);
    rc = profile_finish(profile, rc, &err);
    if (rc == 0 && o.hidden)
        rc = write_hidden(&trace, o.hidden, &err);
    if (rc == 0 && o.trace_norms)
        for (size_t i = 0; i <= trace.n_layers; i++)
            printf("%zu\t%.9g\n", i, trace.norms[i]);
    else if (rc == 0 && !o.output && !o.hidden)
        print_likeliest(m, lode_session_logits(s));

    free(trace.norms);
    free(trace.hidden);
    ids_free(&ids);
    lode_session_free(s);
    lode_model_free(m);
    return rc < 0 ? tool_report(&err) : 0;
}
