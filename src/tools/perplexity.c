/* perplexity.c - `lode perplexity`: how well a model predicts a text (docs/perplexity.md). */
#include "args.h"
#include "input.h"
#include "kld.h"
#include "load.h"
#include "out.h"
#include "progress.h"
#include "profile.h"
#include "verbs.h"

#include "lode/lode.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct opts {
    struct load_opts load;
    const char *file, *score, *base;
    int64_t stride, chunks;
    bool parse_special, no_bos, compare;
};

static const char *const scores[] = {"half", "all", NULL};

static const struct arg_flag flags[] = {
    LOAD_MODEL_FLAGS(struct opts),
    {"-f, --file", ARG_STR, ARG_AT(struct opts, file), .meta = "FILE", .pos = 2,
     .group = "Text and windows",
     .help = "the text (also the second argument; - is standard input)"},
    {"-c, --ctx-size, --ctx", ARG_INT, ARG_AT(struct opts, load.ctx), .meta = "N", .def = "512",
     .min = 4, .max = 1 << 24, .help = "tokens in a window"},
    {"--stride, --ppl-stride", ARG_INT, ARG_AT(struct opts, stride), .meta = "N", .def = "0",
     .shown = "0, windows do not overlap", .min = 0, .max = 1 << 24,
     .help = "a window starts every N tokens, and after the first only its last N are scored"},
    {"--score", ARG_CHOICE, ARG_AT(struct opts, score), .meta = "WHICH", .def = "half",
     .choices = scores,
     .help = "half: the second half of each full window, as llama-perplexity; all: every token but "
             "a window's first, and the last, shorter window too"},
    {"--chunks", ARG_INT, ARG_AT(struct opts, chunks), .meta = "N", .def = "-1", .min = -1,
     .max = INT32_MAX, .shown = "-1, all", .help = "windows at most"},
    {"--parse-special", ARG_BOOL, ARG_AT(struct opts, parse_special),
     .help = "special tokens written in the text count as such"},
    {"--no-bos", ARG_BOOL, ARG_AT(struct opts, no_bos),
     .help = "no BOS token, neither at the text's start nor over each window's first token"},
    {"--kl-divergence-base, --save-all-logits", ARG_STR, ARG_AT(struct opts, base), .meta = "FILE",
     .group = "Comparing models",
     .help = "save this model's log-probabilities; with --kl-divergence: the saved ones"},
    {"--kl-divergence", ARG_BOOL, ARG_AT(struct opts, compare),
     .help = "compare this model with the saved one over the saved text"},
    LOAD_SESSION_FLAGS(struct opts),
    LOAD_FOREIGN_FLAGS,
};

static const struct arg_spec spec = {
    .verb = "perplexity",
    .usage = "MODEL -f FILE [flags]",
    .brief = "how well a model predicts a text",
    .about =
        "Perplexity is e to the mean surprise at the next token: 10 means that the model was as\n"
        "unsure as among 10 equal choices.  The default is llama-perplexity's definition: windows\n"
        "of 512 tokens, the second half of each scored.  Numbers compare only between runs with\n"
        "the same text, windows and vocabulary.  To see what quantising did, save the original's\n"
        "predictions and compare: the KL divergence sees more than perplexity does.",
    .examples = "lode perplexity models/demo.gguf -f text.txt\n"
                "lode perplexity original.gguf -f text.txt --kl-divergence-base base.kld\n"
                "lode perplexity quantised.gguf --kl-divergence-base base.kld --kl-divergence",
    .flags = flags,
    .n_flags = ARG_COUNT(flags),
};

/* One run over all windows. */
struct scoring {
    const struct opts *o;
    struct lode_model *model;
    struct profile *profile;
    struct lode_session *session;
    const int32_t *tokens; /* (n_tokens) */
    size_t n_tokens;
    size_t window, stride;
    size_t start, first,
        last; /* of this window: where it starts, positions scored: [first, last) */
    double nll, nll2;
    size_t n;
    uint32_t n_vocab;
    struct progress bar;
    size_t i_chunk, n_chunks;

    FILE *base;         /* records are read from it, or NULL */
    struct outfile out; /* records are written to it, or .f is NULL */
    uint16_t *record;   /* owned */
    struct kld_sums sums;
};

/* Position `pos` has been evaluated: its logits say what they think of the next token. */
static int on_logits(void *user, uint32_t pos, const float *logits) {
    struct scoring *s = user;
    progress_update(&s->bar, s->i_chunk * s->window + pos + 1);
    if (pos < s->first || pos >= s->last)
        return 0;
    const int32_t next = s->tokens[s->start + pos + 1];
    const size_t n = kld_record((int32_t)s->n_vocab);
    if (s->base) {
        if (fread(s->record, sizeof *s->record, n, s->base) != n)
            return -1;
        kld_add(&s->sums, logits, s->record, (int32_t)s->n_vocab, next);
        return 0;
    }
    const double nll = -(double)lode_logprob_of(logits, s->n_vocab, next);
    s->nll += nll;
    s->nll2 += nll * nll;
    s->n++;
    if (!s->out.f)
        return 0;
    kld_encode(s->record, logits, (int32_t)s->n_vocab);
    return outfile_write(&s->out, s->record, n * sizeof *s->record) ? 0 : -1;
}

/* Evaluates the window that starts at s->start and scores its positions [first, last). */
static int score_window(struct scoring *s, size_t n, struct lode_error *err) {
    const struct lode_tokenizer *t = lode_model_tokenizer(s->model);
    const int32_t *ids = s->tokens + s->start;
    const bool bos = !s->o->no_bos && lode_tokenizer_adds_bos(t) && lode_tokenizer_bos(t) >= 0;
    const int32_t lead = bos ? lode_tokenizer_bos(t) : ids[0];
    int rc = lode_session_truncate(s->session, 0, err);
    rc = rc < 0 ? rc : lode_session_eval_each(s->session, &lead, 1, on_logits, s, err);
    return rc < 0 ? rc : lode_session_eval_each(s->session, ids + 1, n - 1, on_logits, s, err);
}

/* Tokens of the i-th window; 0: there is none.  Sets what of it is scored. */
static size_t place_window(struct scoring *s, size_t i) {
    const bool all = !strcmp(s->o->score, "all");
    s->start = i * s->stride;
    if (s->start >= s->n_tokens)
        return 0;
    const size_t left = s->n_tokens - s->start;
    const size_t n = left < s->window ? left : s->window;
    if (n < 2 || (!all && n < s->window))
        return 0;
    s->last = n - 1;
    if (s->stride < s->window && i > 0) {
        /* overlapping windows: what the one before has not reached */
        const size_t seen = s->window - s->stride;
        if (n <= seen)
            return 0;
        s->first = seen - 1;
    } else {
        s->first = all ? 0 : s->window / 2;
    }
    return n;
}

static void print_running(struct scoring *s, bool *first) {
    if (out_is_terminal(stderr) && !out_is_terminal(stdout))
        return;
    progress_end(&s->bar);
    printf("%s[%zu]%.4f", *first ? "" : ",", s->i_chunk + 1, exp(s->nll / (double)s->n));
    *first = false;
}

static int score_all(struct scoring *s, struct lode_error *err) {
    bool first = true;
    int rc = 0;
    for (s->i_chunk = 0; s->i_chunk < s->n_chunks && rc == 0; s->i_chunk++) {
        const size_t n = place_window(s, s->i_chunk);
        const double start = clock_now();
        rc = score_window(s, n, err);
        if (rc < 0)
            break;
        if (s->i_chunk == 0) {
            char eta[32];
            const double each = clock_now() - start;
            fprintf(stderr, "%.2f seconds a window, about %s in all\n", each,
                    format_seconds(each * (double)s->n_chunks, eta));
        }
        if (s->o->compare) {
            progress_end(&s->bar);
            kld_print_row(stdout, &s->sums, s->i_chunk);
        } else {
            print_running(s, &first);
        }
        if (!out_flush())
            break;
    }
    progress_end(&s->bar);
    if (!first)
        putchar('\n');
    return rc;
}

static void print_estimate(const struct scoring *s) {
    const double mean = s->nll / (double)s->n;
    const double variance = s->nll2 / (double)s->n - mean * mean;
    const double error = variance > 0 && s->n > 1 ? sqrt(variance / (double)(s->n - 1)) : 0;
    printf("%zu tokens scored in %zu windows of %zu\n", s->n, s->n_chunks, s->window);
    printf("Final estimate: PPL = %.4f +/- %.5f\n", exp(mean), exp(mean) * error);
}

/* ---------------------------------------------------------------------------------------- setup */

static int count_windows(struct scoring *s, struct lode_error *err) {
    while (place_window(s, s->n_chunks) && (s->o->chunks < 0 || s->n_chunks < (size_t)s->o->chunks))
        s->n_chunks++;
    if (s->n_chunks == 0)
        return tool_fail(err, LODE_ERR_ARG, s->o->file ? s->o->file : "text",
                         "has %zu tokens, a window needs %zu: give more text or a smaller -c",
                         s->n_tokens, s->window);
    return 0;
}

static int read_text(struct scoring *s, struct ids *ids, struct lode_error *err) {
    const struct lode_tokenizer *t = lode_model_tokenizer(s->model);
    char *text;
    size_t size;
    int rc = input_read(s->o->file, 0, &text, &size, err);
    if (rc < 0)
        return rc;
    rc = ids_tokenize(
        ids, t, text, size,
        (s->o->no_bos ? 0 : LODE_TOK_SPECIAL) | (s->o->parse_special ? LODE_TOK_PARSE : 0), err);
    free(text);
    s->tokens = ids->v;
    s->n_tokens = ids->n;
    s->window = (size_t)s->o->load.ctx;
    s->stride = s->o->stride ? (size_t)s->o->stride : s->window;
    if (rc == 0 && s->stride > s->window)
        rc = tool_fail(err, LODE_ERR_ARG, "--stride", "%zu is larger than the window of %zu",
                       s->stride, s->window);
    return rc < 0 ? rc : count_windows(s, err);
}

/* The text, windows and records of a file that was saved before. */
static int read_base(struct scoring *s, struct kld_file *k, struct lode_error *err) {
    s->base = fopen(s->o->base, "rb");
    if (!s->base)
        return tool_fail(err, LODE_ERR_IO, s->o->base, "cannot be opened: %s", strerror(errno));
    int rc = kld_read_header(k, s->base, s->o->base, err);
    if (rc < 0)
        return rc;
    if ((uint32_t)k->n_vocab != s->n_vocab)
        return tool_fail(err, LODE_ERR_FORMAT, s->o->base,
                         "was made with a vocabulary of %d, this model has %u", k->n_vocab,
                         s->n_vocab);
    for (size_t i = 0; i < (size_t)k->n_ctx * (size_t)k->n_chunk; i++)
        if (k->tokens[i] < 0 || k->tokens[i] >= k->n_vocab)
            return tool_fail(err, LODE_ERR_FORMAT, s->o->base, "token %zu is %d", i, k->tokens[i]);
    s->tokens = k->tokens;
    s->window = s->stride = (size_t)k->n_ctx;
    s->n_tokens = s->window * (size_t)k->n_chunk;
    rc = count_windows(s, err);
    return rc < 0 ? rc : kld_sums_init(&s->sums, s->n_chunks * kld_scored(k->n_ctx), err);
}

static int run(struct scoring *s, struct lode_error *err) {
    const struct opts *o = s->o;
    struct ids ids = {0};
    struct kld_file saved = {0};
    int rc = o->compare ? read_base(s, &saved, err) : read_text(s, &ids, err);
    if (rc == 0 && o->base) {
        s->record = malloc(kld_record((int32_t)s->n_vocab) * sizeof *s->record);
        if (!s->record)
            rc = tool_fail(err, LODE_ERR_NOMEM, o->base, "no memory for a record");
    }
    if (rc == 0 && o->base && !o->compare) {
        const struct kld_file k = {(int32_t)s->window, (int32_t)s->n_vocab, (int32_t)s->n_chunks,
                                   ids.v};
        rc = outfile_open(&s->out, o->base, err);
        if (rc == 0)
            kld_write_header(&k, s->out.f);
    }
    if (rc == 0) {
        struct lode_session_opts so = load_session_opts(&o->load);
        so.ctx = (uint32_t)s->window;
        profile_watch(s->profile, &so);
        rc = lode_session_create(&s->session, s->model, &so, err);
    }
    if (rc == 0) {
        progress_begin(&s->bar, "scoring", "tokens", s->n_chunks * s->window);
        rc = score_all(s, err);
    }
    if (rc == LODE_ERR_CANCELLED && s->base)
        rc = tool_fail(err, LODE_ERR_IO, o->base, "cannot be read to its end");
    if (s->out.f && (rc == 0 || s->out.cause))
        rc = outfile_commit(&s->out, err);
    outfile_abandon(&s->out);
    if (rc == 0 && o->compare)
        kld_print(stdout, &s->sums);
    else if (rc == 0)
        print_estimate(s);

    if (s->base)
        fclose(s->base);
    kld_sums_free(&s->sums);
    kld_free(&saved);
    ids_free(&ids);
    free(s->record);
    return rc;
}

int verb_perplexity(int argc, char **argv) {
    struct opts o = {0}; /* not all of load has a flag here */
    struct args a;
    const int status = args_main(&a, &spec, &o, argc, argv);
    if (status >= 0)
        return status;
    if (!o.load.model)
        return args_usage_error(&spec, "the model is missing");
    if (o.compare && !o.base)
        return args_usage_error(&spec, "--kl-divergence needs --kl-divergence-base FILE");
    if (!o.compare && !o.file)
        return args_usage_error(&spec, "the text is missing: -f FILE");
    if (o.base && !o.compare && (o.stride || strcmp(o.score, "half")))
        return args_usage_error(&spec, "--kl-divergence-base: its files know windows scored by "
                                       "half only, without --stride and --score all");

    struct lode_error err = {0};
    struct scoring s = {.o = &o};
    o.load.own = o.file ? input_size(o.file) : 0;
    int rc = load_model(&s.model, &o.load, &err);
    if (rc == 0 && !lode_model_tokenizer(s.model))
        rc = tool_fail(&err, LODE_ERR_UNSUPPORTED, o.load.model, "has no vocabulary");
    if (rc == 0) {
        s.n_vocab = lode_model_info(s.model)->n_vocab;
        rc = profile_begin(&s.profile, s.model, &o.load, &err);
        rc = rc < 0 ? rc : run(&s, &err);
    }
    rc = profile_finish(s.profile, rc, &err);
    lode_session_free(s.session);
    lode_model_free(s.model);
    return rc < 0 ? tool_report(&err) : 0;
}
