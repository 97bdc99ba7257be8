/* bench.c - `lode bench`: tokens/s of prompts and answers, with llama-bench's flags.
 *
 * A test evaluates ids drawn from a fixed sequence, so that two runs of the same test on the same
 * model give the same fingerprint of the last logits: on every machine, for every number of
 * threads.  Tokenising and sampling are not part of it.
 */
#include "bench.h"

#include "args.h"
#include "load.h"
#include "order.h"
#include "out.h"
#include "progress.h"
#include "profile.h"
#include "reads.h"
#include "verbs.h"

#include "lode/lode.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct opts {
    struct load_opts load;
    struct arg_strs models, type_k, type_v, prompt_gen;
    struct arg_ints n_prompt, n_gen, n_depth, n_parallel, threads, batch;
    const char *output;
    int64_t repetitions;
    bool greedy, tune, no_warmup, no_bandwidth, roofline;
};

static const char *const format_names[] = {"md", "csv", "json", "jsonl", NULL};

static const struct arg_flag flags[] = {
    {"-m, --model", ARG_STRS, ARG_AT(struct opts, models), .meta = "FILE", .pos = 1,
     .group = "What is measured", .help = "a model (also the arguments without a flag)"},
    {"-p, --n-prompt", ARG_INTS, ARG_AT(struct opts, n_prompt), .meta = "N", .def = "512", .min = 0,
     .max = 1 << 24, .help = "prompts of N tokens; 0: none"},
    {"-n, --n-gen", ARG_INTS, ARG_AT(struct opts, n_gen), .meta = "N", .def = "128", .min = 0,
     .max = 1 << 24, .help = "answers of N tokens; 0: none"},
    {"-pg", ARG_STRS, ARG_AT(struct opts, prompt_gen), .meta = "P,G",
     .help = "a prompt of P tokens and then an answer of G, measured together"},
    {"-d, --n-depth", ARG_INTS, ARG_AT(struct opts, n_depth), .meta = "N", .def = "0", .min = 0,
     .max = 1 << 24, .help = "tokens that are in the context before"},
    {"-npl, --n-parallel", ARG_INTS, ARG_AT(struct opts, n_parallel), .meta = "N", .def = "1",
     .min = 1, .max = 1024, .help = "answers generated at once, a step for all; tokens/s are theirs together"},
    {"--greedy", ARG_BOOL, ARG_AT(struct opts, greedy),
     .help = "answers go on by their own likeliest tokens, as generating does, not by given ones: a GPU need not "
             "wait for them"},
    {"--tune", ARG_BOOL, ARG_AT(struct opts, tune),
     .help = "first time which of several ways through its products is fastest on this GPU, and keep that in "
             "$XDG_CACHE_HOME/lode or ~/.cache/lode for all later runs; results stay what they are"},
    {"-b, --batch-size", ARG_INTS, ARG_AT(struct opts, batch), .meta = "N", .def = "512", .min = 1,
     .max = 1 << 20, .help = "prompt tokens evaluated at once"},
    {"-t, --threads", ARG_INTS, ARG_AT(struct opts, threads), .meta = "N",
     .shown = "the physical cores this process may use", .min = 0, .max = 1024, .help = "threads"},
    {"-ctk, --cache-type-k", ARG_CHOICES, ARG_AT(struct opts, type_k), .meta = "TYPE", .def = "f16",
     .choices = arg_kv_types, .help = "how keys are stored"},
    {"-ctv, --cache-type-v", ARG_CHOICES, ARG_AT(struct opts, type_v), .meta = "TYPE", .def = "f16",
     .choices = arg_kv_types, .help = "how values are stored"},
    LOAD_EXPERTS_FLAG(struct opts),
    {"-r, --repetitions", ARG_INT, ARG_AT(struct opts, repetitions), .meta = "N", .def = "5",
     .min = 1, .max = 10000, .group = "How", .help = "how often each test runs"},
    {"-o, --output", ARG_CHOICE, ARG_AT(struct opts, output), .meta = "FORMAT", .def = "md",
     .choices = format_names, .help = "format"},
    {"--no-warmup", ARG_BOOL, ARG_AT(struct opts, no_warmup),
     .help = "do not run each test before it counts, once, on a GPU twice"},
    {"--no-bandwidth", ARG_BOOL, ARG_AT(struct opts, no_bandwidth),
     .help = "do not measure the machine's read bandwidth and dot products"},
    {"--roofline", ARG_BOOL, ARG_AT(struct opts, roofline),
     .help = "no model: the machine's read bandwidth by threads and streams, its dot products, its GPUs' memory"},
    LOAD_DEBUG_FLAGS(struct opts),
    LOAD_FOREIGN_FLAGS,
    {"-mmp, --mmap", ARG_FOREIGN, .meta = "0|1", .help = "files are mapped (--no-mmap: read)"},
};

static const struct arg_spec spec = {
    .verb = "bench",
    .usage = "MODEL... [flags] | --roofline",
    .brief = "tokens/s of prompts and answers",
    .about =
        "Flags, table and JSON keys are llama-bench's.  Numbers may be lists and ranges: 1,2,4 or\n"
        "1-8, 1-9+2, 16-128*2; every combination is measured.  Beside tokens/s stand the bytes of\n"
        "weights and KV read per second, their share of the machine's read bandwidth just\n"
        "before and after (of peak; of a model wholly on one GPU that GPU's, measured once, if 512 MiB\n"
        "of it are free), and a fingerprint of the last logits: where it differs, the numbers do too;\n"
        "where repetitions of one test differ, that is an error.\n"
        "Prompts show operations per second in the products with weights (GOPS), and their share of\n"
        "what the machine's dot products give on registers alone.\n"
        "Shares above 100 % mean that the model lives in the CPU's cache.",
    .examples = "lode bench models/demo.gguf\n"
                "lode bench models/demo.gguf -p 0 -n 64 -t 1,2 -r 3\n"
                "lode bench --roofline -o csv\n"
                "lode bench model.gguf -d 0,4096 -ctk f16,q8_0 -o json > bench.json",
    .flags = flags,
    .n_flags = ARG_COUNT(flags),
};

/* --------------------------------------------------------------------------------------- a test */

struct test {
    int64_t n_prompt, n_gen, n_depth, n_parallel;
};

/* What one session of tests needs again and again. */
struct bench {
    const struct opts *o;
    struct lode_model *model;
    struct profile *profile;
    struct lode_session *session;
    struct lode_sampler *greedy;  /* owned: NULL: tokens are given */
    struct lode_session **beside; /* (n_beside), owned as they are: for several answers at once */
    struct lode_feed *feeds;      /* (1 + n_beside), owned */
    size_t n_beside;
    int32_t *drawn; /* (1 + n_beside), owned: what each answer goes on by */
    int32_t *ids; /* (n_ids), owned */
    size_t n_ids;
    uint64_t *ns; /* (repetitions), owned */
    double *ts;   /* (repetitions), owned */
    double *reads;  /* (repetitions + 1), owned: the machine's read bandwidth before and after each */
    double *shares; /* (repetitions), owned: of it, what each used */
    struct lode_machine machine;
    struct progress bar;
    uint64_t n_done;
};

/* Ids without structure, the same everywhere (a 64-bit linear congruence, its upper half). */
static void fill_ids(int32_t *ids, size_t n, uint32_t n_vocab) {
    uint64_t x = 1;
    for (size_t i = 0; i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (int32_t)((x >> 33) % n_vocab);
    }
}

/* FNV-1a over the bytes. */
static uint64_t fingerprint(const float *logits, size_t n) {
    const unsigned char *b = (const unsigned char *)logits;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n * sizeof *logits; i++)
        h = (h ^ b[i]) * 0x100000001b3u;
    return h;
}

static uint64_t last_fingerprint(const struct bench *b) {
    return fingerprint(lode_session_logits(b->session), lode_model_info(b->model)->n_vocab);
}

/* As generating does: what a default sampler looks at, or the likeliest token.  Of the last of n tokens all
 * logits, for the fingerprint. */
static void want(const struct bench *b, struct lode_session *s, int64_t i, int64_t n) {
    struct lode_sampler_opts o;
    lode_sampler_defaults(&o);
    if (b->greedy && i + 1 < n)
        lode_session_draw(s, b->greedy, i + 2 < n);
    else
        lode_session_want(s, i + 1 == n ? 0 : (uint32_t)o.top_k);
}

static int run_once(struct bench *b, const struct test *t, uint64_t *ns, struct lode_error *err) {
    /* the last token of the depth anew: what a rewind has to evaluate again is not timed */
    const size_t kept = t->n_depth ? (size_t)t->n_depth - 1 : 0;
    int rc = lode_session_truncate(b->session, kept, err);
    if (rc == 0 && t->n_depth)
        rc = lode_session_eval(b->session, b->ids + kept, 1, err);
    const int32_t *ids = b->ids + t->n_depth;
    const double start = clock_now();
    if (rc == 0 && t->n_prompt)
        rc = lode_session_eval(b->session, ids, (size_t)t->n_prompt, err);
    ids += t->n_prompt;
    int32_t id = t->n_gen ? *ids : 0;
    for (int64_t i = 0; i < t->n_gen && rc == 0; i++) {
        want(b, b->session, i, t->n_gen);
        rc = lode_session_eval(b->session, &id, 1, err);
        if (rc == 0 && i + 1 < t->n_gen)
            id = b->greedy ? lode_session_sample(b->session, b->greedy) : ids[i + 1];
    }
    *ns = (uint64_t)((clock_now() - start) * 1e9 + 0.5);
    return rc;
}

/* ---- several answers at once ---- */

/* Session k's i-th token; the first session's are those of a test of its own. */
static const int32_t *token_of(const struct bench *b, size_t k, size_t i) {
    return &b->ids[(i + 7 * k) % b->n_ids];
}

static void free_beside(struct bench *b) {
    free(b->drawn);
    b->drawn = NULL;
    for (size_t k = 0; k < b->n_beside; k++)
        lode_session_free(b->beside[k]);
    free(b->beside);
    free(b->feeds);
    b->beside = NULL, b->feeds = NULL, b->n_beside = 0;
}

/* The sessions beside the first, each with the depth in its context. */
static int make_beside(struct bench *b, const struct test *t, struct lode_session_opts so,
                       struct lode_error *err) {
    const size_t n = (size_t)t->n_parallel - 1;
    so.with = b->session;
    b->beside = calloc(n, sizeof *b->beside);
    b->feeds = calloc(n + 1, sizeof *b->feeds);
    b->drawn = calloc(n + 1, sizeof *b->drawn);
    if (!b->beside || !b->feeds || !b->drawn)
        return tool_fail(err, LODE_ERR_NOMEM, "bench", "no memory for %zu sessions", n);
    b->feeds[0].session = b->session;
    for (size_t k = 0; k < n; k++) {
        const int rc = lode_session_create(&b->beside[k], b->model, &so, err);
        if (rc < 0)
            return rc;
        b->n_beside = k + 1;
        b->feeds[k + 1].session = b->beside[k];
        for (size_t i = 0; i < (size_t)t->n_depth;) {
            const size_t at = (i + 7 * (k + 1)) % b->n_ids, left = (size_t)t->n_depth - i;
            const size_t some = left < b->n_ids - at ? left : b->n_ids - at;
            const int fed = lode_session_eval(b->beside[k], b->ids + at, some, err);
            if (fed < 0)
                return fed;
            i += some;
        }
    }
    return 0;
}

static int run_parallel(struct bench *b, const struct test *t, uint64_t *ns, struct lode_error *err) {
    const size_t n = b->n_beside + 1;
    int rc = 0;
    for (size_t k = 0; k < n && rc == 0; k++)
        rc = lode_session_truncate(b->feeds[k].session, (size_t)t->n_depth, err);
    const double start = clock_now();
    for (int64_t i = 0; i < t->n_gen && rc == 0; i++) {
        for (size_t k = 0; k < n; k++) {
            struct lode_session *s = b->feeds[k].session;
            b->drawn[k] = b->greedy && i ? lode_session_sample(s, b->greedy)
                                         : *token_of(b, k, (size_t)(t->n_depth + i));
            b->feeds[k].tokens = &b->drawn[k];
            b->feeds[k].n = 1;
            want(b, s, i, t->n_gen);
        }
        rc = lode_session_step(b->feeds, n, err);
    }
    *ns = (uint64_t)((clock_now() - start) * 1e9 + 0.5);
    return rc;
}

static void mean_and_deviation(const double *x, size_t n, double *mean, double *deviation) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i];
    *mean = sum / (double)n;
    for (size_t i = 0; i < n; i++)
        squares += (x[i] - *mean) * (x[i] - *mean);
    *deviation = n > 1 ? sqrt(squares / (double)(n - 1)) : 0;
}

/* Sorts them. */
static double median(double *x, size_t n) {
    qsort(x, n, sizeof *x, order_doubles);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* What the machine reads changes within seconds where others share its memory.  So each answer is
 * compared with the mean of what was read just before and after it.  Takes the answers' tokens/s in b->ts. */
static void compare_reads(struct bench *b, struct bench_row *row) {
    const size_t n = row->n_samples;
    for (size_t i = 0; i < n; i++)
        b->shares[i] = row->bytes_per_token * b->ts[i] / ((b->reads[i] + b->reads[i + 1]) / 2);
    row->bandwidth_share = median(b->shares, n);
    row->read_bandwidth = median(b->reads, n + 1);
}

static double read_now(const struct bench *b, const struct bench_row *row) {
    const double v = reads_of_model(b->model, row->n_threads, 0.15);
    return v > 0 ? v : row->read_bandwidth;
}

/* Weights, recurrent state, and the part of the KV cache that the middle one of the generated tokens reads. */
static double token_bytes(const struct bench *b, const struct test *t) {
    const double kv = (double)lode_session_memory(b->session)->kv;
    const double position = kv / lode_session_ctx(b->session);
    return (double)lode_model_info(b->model)->token_size / (double)t->n_parallel +
           (double)lode_session_memory(b->session)->state_token +
           position * ((double)t->n_depth + (double)t->n_gen / 2);
}

static int run_test(struct bench *b, const struct test *t, struct lode_session_opts so,
                    struct bench_row *row, struct lode_error *err) {
    int (*const once)(struct bench *, const struct test *, uint64_t *, struct lode_error *) =
        t->n_parallel > 1 ? run_parallel : run_once;
    const size_t n = (size_t)b->o->repetitions;
    uint64_t ns;
    int rc = t->n_parallel > 1 ? make_beside(b, t, so, err) : 0;
    if (rc == 0 && t->n_depth && lode_session_length(b->session) < (size_t)t->n_depth) {
        rc = lode_session_truncate(b->session, 0, err);
        rc = rc < 0 ? rc : lode_session_eval(b->session, b->ids, (size_t)t->n_depth, err);
    }
    /* a GPU makes a graph of a short step when it meets that for the second time: a prompt's, or that begun behind an answer's end */
    const int warm = b->o->no_warmup ? 0 : row->info->on_gpu ? 2 : 1;
    profile_leave_out(b->profile, true);
    for (int i = 0; i < warm && rc == 0; i++)
        rc = once(b, t, &ns, err);
    profile_leave_out(b->profile, false);
    if (warm)
        progress_update(&b->bar, ++b->n_done);
    const time_t now = time(NULL);
    struct tm utc;
    strftime(row->test_time, sizeof row->test_time, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    const bool compared = row->read_bandwidth > 0 && t->n_prompt == 0;
    b->reads[0] = compared ? read_now(b, row) : 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = once(b, t, &b->ns[i], err);
        const uint64_t print = rc == 0 ? last_fingerprint(b) : 0;
        if (rc == 0 && i > 0 && print != row->fingerprint)
            rc = tool_fail(err, LODE_ERR_DEVICE, row->filename,
                           "repetition %zu ended with other logits (%016" PRIx64 ") than the one before (%016" PRIx64
                           "): the same input must give the same numbers; a processor, memory or lode errs",
                           i + 1, print, row->fingerprint);
        row->fingerprint = print;
        progress_update(&b->bar, ++b->n_done);
        b->ts[i] = (double)b->ns[i]; /* first the times, then the rates */
        b->reads[i + 1] = compared ? read_now(b, row) : 0;
    }
    free_beside(b);
    if (rc < 0)
        return rc;
    mean_and_deviation(b->ts, n, &row->avg_ns, &row->stddev_ns);
    for (size_t i = 0; i < n; i++)
        b->ts[i] = (double)((t->n_prompt + t->n_gen) * t->n_parallel) * 1e9 / (double)b->ns[i];
    mean_and_deviation(b->ts, n, &row->avg_ts, &row->stddev_ts);
    row->samples_ns = b->ns;
    row->samples_ts = b->ts;
    row->n_samples = n;
    row->n_prompt = t->n_prompt;
    row->n_gen = t->n_gen;
    row->n_depth = t->n_depth;
    row->n_parallel = t->n_parallel;
    row->bytes_per_token = t->n_prompt ? 0 : token_bytes(b, t);
    row->bandwidth_share = 0;
    if (compared)
        compare_reads(b, row);
    row->ops_per_token = t->n_prompt && !t->n_gen ? 2 * (double)(lode_model_info(b->model)->prompt_int_macs +
                                                    lode_model_info(b->model)->prompt_float_macs)
                                      : 0;
    return 0;
}

/* --------------------------------------------------------------------------- all that is asked */

struct tests {
    struct test v[ARG_MAX_LIST * 8];
    size_t n;
};

static void add_test(struct tests *all, int64_t n_prompt, int64_t n_gen, int64_t n_depth,
                     int64_t n_parallel) {
    if ((n_prompt || n_gen) && all->n < ARG_COUNT(all->v))
        all->v[all->n++] = (struct test){n_prompt, n_gen, n_depth, n_parallel};
}

static int list_tests(struct tests *all, const struct opts *o) {
    for (size_t d = 0; d < o->n_depth.n; d++) {
        for (size_t i = 0; i < o->n_prompt.n; i++)
            add_test(all, o->n_prompt.v[i], 0, o->n_depth.v[d], 1);
        for (size_t i = 0; i < o->n_gen.n * o->n_parallel.n; i++)
            add_test(all, 0, o->n_gen.v[i / o->n_parallel.n], o->n_depth.v[d],
                     o->n_parallel.v[i % o->n_parallel.n]);
        for (size_t i = 0; i < o->prompt_gen.n; i++) {
            char *end;
            const long p = strtol(o->prompt_gen.v[i], &end, 10);
            const long g = *end == ',' ? strtol(end + 1, &end, 10) : -1;
            if (*end || p < 1 || g < 1 || p > 1 << 24 || g > 1 << 24)
                return args_usage_error(&spec, "-pg: '%.60s' is not two numbers like 512,128",
                                        o->prompt_gen.v[i]);
            add_test(all, p, g, o->n_depth.v[d], 1);
        }
    }
    return all->n ? -1 : args_usage_error(&spec, "nothing to measure: -p and -n are 0");
}

static size_t longest(const struct tests *all) {
    int64_t most = 0;
    for (size_t i = 0; i < all->n; i++) {
        const struct test *t = &all->v[i];
        const int64_t n = t->n_depth + t->n_prompt + t->n_gen;
        most = n > most ? n : most;
    }
    return (size_t)most;
}

/* Integers and floats in the model's proportion: the time that each needs at its own peak. */
static double peak_ops(const struct bench_row *r) {
    const double ints = (double)r->info->prompt_int_macs, floats = (double)r->info->prompt_float_macs;
    double time = 0;
    for (int i = 0; i < 2; i++) {
        const double macs = i ? ints : floats;
        const double peak = macs > 0 ? bench_dot_peak(r->info->isa, i, r->n_threads, 0.1) : 1;
        if (peak <= 0)
            return 0;
        time += macs / peak;
    }
    return time > 0 ? (ints + floats) / time : 0;
}

struct printer {
    const struct bench_format *format;
    struct bench_columns columns;
    size_t n_rows;
};

/* All tests in one session. */
static int bench_session(struct bench *b, const struct tests *all, struct lode_session_opts so,
                         struct bench_row row, struct printer *print, struct lode_error *err) {
    int rc = lode_session_create(&b->session, b->model, &so, err);
    if (rc == 0) {
        row.n_threads = lode_session_threads(b->session);
        row.read_bandwidth = b->o->no_bandwidth ? 0 : reads_of_model(b->model, row.n_threads, 0.5);
        if (!b->o->no_bandwidth && !row.info->on_gpu)
            row.peak_ops = peak_ops(&row);
    }
    for (size_t i = 0; i < all->n && rc == 0; i++) {
        rc = run_test(b, &all->v[i], so, &row, err);
        progress_end(&b->bar);
        if (rc == 0 && print->n_rows == 0)
            print->format->begin(stdout, &print->columns);
        if (rc == 0)
            print->format->row(stdout, &print->columns, &row, print->n_rows++);
        if (!out_flush())
            break;
    }
    lode_session_free(b->session);
    b->session = NULL;
    return rc;
}

static int tune(struct bench *b, struct lode_error *err) {
    struct lode_tune_result r;
    const double start = clock_now();
    const int rc = lode_tune(b->model, NULL, NULL, &r, err);
    if (rc == 0)
        fprintf(stderr, "tuned in %.0f s: of %u choices %u changed, kept in %s\n", clock_now() - start, r.n_timed,
                r.n_changed, r.path);
    return rc;
}

static int bench_model(struct bench *b, const char *path, const struct tests *all,
                       struct printer *print, struct lode_error *err) {
    const struct opts *o = b->o;
    struct load_opts load = o->load;
    load.model = path;
    load.ctx = (int64_t)b->n_ids;
    for (size_t i = 0; i < o->batch.n; i++) /* the largest is what must fit */
        load.batch = o->batch.v[i] > load.batch ? o->batch.v[i] : load.batch;
    int rc = load_model(&b->model, &load, err);
    if (rc < 0)
        return rc;
    fill_ids(b->ids, b->n_ids, lode_model_info(b->model)->n_vocab);
    if (o->tune)
        rc = tune(b, err);
    if (rc == 0 && o->greedy) {
        struct lode_sampler_opts greedy;
        lode_sampler_defaults(&greedy);
        greedy.temp = 0;
        rc = lode_sampler_create(&b->greedy, lode_model_info(b->model)->n_vocab, &greedy, err);
    }
    rc = rc < 0 ? rc : profile_begin(&b->profile, b->model, &o->load, err);
    for (size_t i = 0; i < o->batch.n * o->threads.n * o->type_k.n * o->type_v.n && rc == 0; i++) {
        size_t k = i;
        struct bench_row row = {
            .info = lode_model_info(b->model), .filename = path, .cpu = b->machine.cpu};
        struct lode_session_opts so = {.ctx = (uint32_t)b->n_ids};
        so.ctv = row.type_v = o->type_v.v[k % o->type_v.n], k /= o->type_v.n;
        so.ctk = row.type_k = o->type_k.v[k % o->type_k.n], k /= o->type_k.n;
        so.threads = (uint32_t)o->threads.v[k % o->threads.n], k /= o->threads.n;
        so.batch = row.n_batch = (uint32_t)o->batch.v[k];
        profile_watch(b->profile, &so);
        rc = bench_session(b, all, so, row, print, err);
        if (!out_flush())
            break;
    }
    rc = profile_finish(b->profile, rc, err);
    b->profile = NULL;
    lode_sampler_free(b->greedy);
    b->greedy = NULL;
    lode_model_free(b->model);
    b->model = NULL;
    return rc;
}

static const struct bench_format *find_format(const char *name) {
    const struct bench_format *f = bench_formats;
    while (strcmp(f->name, name))
        f++;
    return f;
}

int verb_bench(int argc, char **argv) {
    struct opts o = {0}; /* not all of load has a flag here */
    struct args a;
    struct tests all = {.n = 0};
    int status = args_main(&a, &spec, &o, argc, argv);
    if (status < 0 && o.roofline)
        return bench_roofline(o.output);
    if (status < 0 && o.models.n == 0)
        status = args_usage_error(&spec, "the model is missing");
    if (status < 0)
        status = list_tests(&all, &o);
    if (status >= 0)
        return status;
    if (o.threads.n == 0)
        o.threads.v[o.threads.n++] = 0;

    struct lode_error err = {0};
    struct bench b = {.o = &o, .n_ids = longest(&all)};
    struct printer print = {
        .format = find_format(o.output),
        .columns = {.n_batch = o.batch.n > 1 || o.batch.v[0] != 512,
                    .type_k = o.type_k.n > 1 || strcmp(o.type_k.v[0], "f16"),
                    .type_v = o.type_v.n > 1 || strcmp(o.type_v.v[0], "f16")},
    };
    int rc = 0;
    b.ids = malloc(b.n_ids * sizeof *b.ids);
    b.ns = malloc((size_t)o.repetitions * sizeof *b.ns);
    b.ts = malloc((size_t)o.repetitions * sizeof *b.ts);
    b.reads = malloc(((size_t)o.repetitions + 1) * sizeof *b.reads);
    b.shares = malloc((size_t)o.repetitions * sizeof *b.shares);
    if (!b.ids || !b.ns || !b.ts || !b.reads || !b.shares)
        rc = tool_fail(&err, LODE_ERR_NOMEM, "bench", "no memory for %zu ids", b.n_ids);
    lode_machine_probe(&b.machine);
    const uint64_t sessions = o.models.n * o.batch.n * o.threads.n * o.type_k.n * o.type_v.n;
    progress_begin(&b.bar, "measuring", "runs",
                   sessions * all.n * ((uint64_t)o.repetitions + !o.no_warmup));
    for (size_t i = 0; i < o.models.n && rc == 0; i++)
        rc = bench_model(&b, o.models.v[i], &all, &print, &err);
    progress_end(&b.bar);
    if (print.n_rows)
        print.format->end(stdout);
    free(b.ids);
    free(b.ns);
    free(b.ts);
    free(b.reads);
    free(b.shares);
    return rc < 0 ? tool_report(&err) : 0;
}
