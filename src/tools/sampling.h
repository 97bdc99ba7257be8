/* sampling.h - the sampler's flags, and a sampler made from them. */
#ifndef LODE_TOOLS_SAMPLING_H
#define LODE_TOOLS_SAMPLING_H

#include "args.h"

#include "lode/model.h"
#include "lode/sampler.h"

struct sampling_opts {
    double temp, dynatemp_range, dynatemp_exp, top_p, min_p, typical, top_nsigma;
    double xtc_probability, xtc_threshold, repeat_penalty, presence_penalty, frequency_penalty;
    double dry_multiplier, dry_base, mirostat_lr, mirostat_ent;
    int64_t top_k, min_keep, repeat_last_n, dry_allowed_length, dry_penalty_last_n, mirostat, seed;
    const char *samplers;
    struct arg_strs logit_bias, dry_breakers;
    bool ignore_eos;
};

/* Rows of a verb's table, for a `struct sampling_opts sampling` within its options.  Defaults are
 * llama.cpp's, which lode_sampler_defaults has too. */
#define SAMPLING_NUMBER(type, names_, kind, field, def_, min_, max_, ...)                          \
    { names_, kind, ARG_AT(type, sampling.field), .meta = "N", .def = def_, .min = min_,           \
      .max = max_, __VA_ARGS__ }

#define SAMPLING_FLAGS(type)                                                                       \
    SAMPLING_NUMBER(type, "--temp, --temperature", ARG_FLOAT, temp, "0.8", 0, 100, .key = "temp",  \
                    .group = "Sampling", .help = "heat; 0 always takes the likeliest token"),      \
        SAMPLING_NUMBER(type, "--top-k", ARG_INT, top_k, "40", -1, INT32_MAX, .key = "top_k",      \
                        .help = "keep the k likeliest tokens; 0: all"),                            \
        SAMPLING_NUMBER(type, "--top-p", ARG_FLOAT, top_p, "0.95", 0, 1, .key = "top_p",           \
                        .help = "keep the likeliest tokens that together have this probability"),  \
        SAMPLING_NUMBER(type, "--min-p", ARG_FLOAT, min_p, "0.05", 0, 1, .key = "min_p",           \
                        .help = "drop tokens below this share of the likeliest"),                  \
        SAMPLING_NUMBER(type, "--repeat-penalty", ARG_FLOAT, repeat_penalty, "1", 0.01, 100,       \
                        .key = "penalty_repeat",                                                   \
                        .help = "weaken tokens seen before by this factor; 1: off"),               \
        SAMPLING_NUMBER(type, "--repeat-last-n", ARG_INT, repeat_last_n, "64", -1, INT32_MAX,      \
                        .key = "penalty_last_n", .help = "how far back penalties look; -1: all"),   \
        SAMPLING_NUMBER(type, "--presence-penalty", ARG_FLOAT, presence_penalty, "0", -100, 100,   \
                        .key = "presence_penalty", .help = "subtracted once from tokens seen"),    \
        SAMPLING_NUMBER(type, "--frequency-penalty", ARG_FLOAT, frequency_penalty, "0", -100, 100, \
                        .key = "frequency_penalty", .help = "subtracted for each time seen"),      \
        SAMPLING_NUMBER(type, "-s, --seed", ARG_INT, seed, "-1", -1, 9e18, .shown = "-1, random",  \
                        .help = "the same seed, prompt and options give the same answer"),         \
        SAMPLING_NUMBER(type, "--typical, --typical-p", ARG_FLOAT, typical, "1", 0, 1,             \
                        .key = "typical_p", .help = "locally typical sampling; 1: off"),           \
        SAMPLING_NUMBER(type, "--top-nsigma, --top-n-sigma", ARG_FLOAT, top_nsigma, "-1", -1, 100, \
                        .key = "top_n_sigma",                                                      \
                        .help = "keep logits within n standard deviations of the best; -1: off"),  \
        SAMPLING_NUMBER(type, "--min-keep", ARG_INT, min_keep, "0", 0, INT32_MAX,                  \
                        .help = "filters leave at least this many tokens"),                        \
        SAMPLING_NUMBER(type, "--dynatemp-range", ARG_FLOAT, dynatemp_range, "0", 0, 100,          \
                        .help = "temperature varies by this much with the entropy"),               \
        SAMPLING_NUMBER(type, "--dynatemp-exp", ARG_FLOAT, dynatemp_exp, "1", 0, 100,              \
                        .help = "and by this power of it"),                                        \
        SAMPLING_NUMBER(type, "--xtc-probability", ARG_FLOAT, xtc_probability, "0", 0, 1,          \
                        .key = "xtc_probability", .help = "chance to exclude top choices; 0: off"),\
        SAMPLING_NUMBER(type, "--xtc-threshold", ARG_FLOAT, xtc_threshold, "0.1", 0, 1,            \
                        .key = "xtc_threshold", .help = "those above this probability"),           \
        SAMPLING_NUMBER(type, "--dry-multiplier", ARG_FLOAT, dry_multiplier, "0", 0, 100,          \
                        .help = "DRY: weight of the penalty on repeated sequences; 0: off"),       \
        SAMPLING_NUMBER(type, "--dry-base", ARG_FLOAT, dry_base, "1.75", 1, 100,                   \
                        .help = "DRY: growth with each token of the repetition"),                  \
        SAMPLING_NUMBER(type, "--dry-allowed-length", ARG_INT, dry_allowed_length, "2", 0,         \
                        INT32_MAX, .help = "DRY: repetitions up to this length are free"),         \
        SAMPLING_NUMBER(type, "--dry-penalty-last-n", ARG_INT, dry_penalty_last_n, "-1", -1,       \
                        INT32_MAX, .help = "DRY: how far back it looks; -1: all"),                 \
        { "--dry-sequence-breaker", ARG_STRS, ARG_AT(type, sampling.dry_breakers), .meta = "TEXT", \
          .shown = "newline : \" *", .help = "DRY: sequences end here; may be given several times;"\
          " 'none' for none" },                                                                    \
        SAMPLING_NUMBER(type, "--mirostat", ARG_INT, mirostat, "0", 0, 2, .key = "mirostat",       \
                        .help = "1 or 2: hold the surprise constant instead of top-k, -p, ..."),   \
        SAMPLING_NUMBER(type, "--mirostat-lr", ARG_FLOAT, mirostat_lr, "0.1", 0, 1,                \
                        .key = "mirostat_eta", .help = "its learning rate, eta"),                  \
        SAMPLING_NUMBER(type, "--mirostat-ent", ARG_FLOAT, mirostat_ent, "5", 0, 100,              \
                        .key = "mirostat_tau", .help = "its target, tau"),                         \
        { "--samplers", ARG_STR, ARG_AT(type, sampling.samplers), .meta = "LIST",                  \
          .shown = "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature",            \
          .help = "which, and in which order" },                                                   \
        { "-l, --logit-bias", ARG_STRS, ARG_AT(type, sampling.logit_bias), .meta = "ID(+/-)BIAS",  \
          .help = "add to a token's logit, '15043+1' or '15043-1'; '15043-inf' bans it; several "  \
                  "times" },                                                                       \
        { "--ignore-eos", ARG_BOOL, ARG_AT(type, sampling.ignore_eos),                             \
          .help = "never choose a token that ends the answer" }

/* seed: the one to use where o->seed is -1. */
int sampling_create(struct lode_sampler **out, const struct sampling_opts *o,
                    const struct lode_model *m, uint64_t seed, struct lode_error *err);

#endif
