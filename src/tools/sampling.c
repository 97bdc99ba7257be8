/* sampling.c - see sampling.h. */
#include "sampling.h"

#include "out.h"

#include "lode/tokenizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Logit biases, grown as needed. */
struct biases {
    struct lode_logit_bias *v;
    size_t n, cap;
};

static int add_bias(struct biases *b, int32_t id, float bias, struct lode_error *err) {
    if (b->n == b->cap) {
        const size_t cap = b->cap ? 2 * b->cap : 16;
        struct lode_logit_bias *v = realloc(b->v, cap * sizeof *v);
        if (!v)
            return tool_fail(err, LODE_ERR_NOMEM, "--logit-bias", "no memory");
        b->v = v;
        b->cap = cap;
    }
    b->v[b->n++] = (struct lode_logit_bias){.id = id, .bias = bias};
    return 0;
}

/* "15043+1", "15043-2.5", "15043-inf" */
static int parse_bias(struct biases *b, const char *text, uint32_t n_vocab,
                      struct lode_error *err) {
    char *end;
    const long id = strtol(text, &end, 10);
    if (end == text || id < 0 || id >= (long)n_vocab || (*end != '+' && *end != '-'))
        return tool_fail(err, LODE_ERR_ARG, "--logit-bias",
                         "'%.60s' is not ID+BIAS or ID-BIAS with an id below %u", text, n_vocab);
    char *stop;
    const float bias = strtof(end, &stop);
    if (*stop || stop == end || isnan(bias) || (isinf(bias) && bias > 0))
        return tool_fail(err, LODE_ERR_ARG, "--logit-bias", "'%.60s' has no number after the id",
                         text);
    return add_bias(b, (int32_t)id, bias, err);
}

static int collect_biases(struct biases *b, const struct sampling_opts *o,
                          const struct lode_tokenizer *t, uint32_t n_vocab,
                          struct lode_error *err) {
    int rc = 0;
    for (size_t i = 0; i < o->logit_bias.n && rc == 0; i++)
        rc = parse_bias(b, o->logit_bias.v[i], n_vocab, err);
    const uint32_t n = t && o->ignore_eos ? lode_tokenizer_size(t) : 0;
    for (uint32_t id = 0; id < n && id < n_vocab && rc == 0; id++)
        if (lode_tokenizer_is_end(t, (int32_t)id))
            rc = add_bias(b, (int32_t)id, -INFINITY, err);
    return rc;
}

/* A DRY sequence ends at any token whose text contains a breaker: a newline inside ".\n" counts.
 * Each such token becomes a breaker of one id, stored as id, -1. */
struct breakers {
    int32_t *ids;
    const int32_t **v;
    size_t n;
};

static bool contains(const char *text, size_t n, const char *what) {
    return *what && memmem(text, n, what, strlen(what));
}

static int collect_breakers(struct breakers *b, const struct sampling_opts *o,
                            const struct lode_tokenizer *t, struct lode_error *err) {
    static const char *const usual[] = {"\n", ":", "\"", "*"};
    const char *const *texts = o->dry_breakers.n ? o->dry_breakers.v : usual;
    const size_t n_texts = o->dry_breakers.n ? o->dry_breakers.n : sizeof usual / sizeof *usual;
    const uint32_t n_vocab = lode_tokenizer_size(t);
    if (n_texts == 1 && !strcmp(texts[0], "none"))
        return 0;
    b->ids = malloc((size_t)n_vocab * 2 * sizeof *b->ids + 1);
    b->v = malloc(n_vocab * sizeof *b->v + 1);
    if (!b->ids || !b->v)
        return tool_fail(err, LODE_ERR_NOMEM, "--dry-sequence-breaker", "no memory");
    for (uint32_t id = 0; id < n_vocab; id++) {
        char text[256];
        const int32_t one = (int32_t)id;
        int64_t len = lode_detokenize(t, &one, 1, true, text, sizeof text, NULL);
        len = len > (int64_t)sizeof text ? (int64_t)sizeof text : len;
        for (size_t i = 0; i < n_texts && len > 0; i++)
            if (contains(text, (size_t)len, texts[i])) {
                b->ids[2 * b->n] = one;
                b->ids[2 * b->n + 1] = -1;
                b->v[b->n] = b->ids + 2 * b->n;
                b->n++;
                break;
            }
    }
    return 0;
}

int sampling_create(struct lode_sampler **out, const struct sampling_opts *o,
                    const struct lode_model *m, uint64_t seed, struct lode_error *err) {
    const struct lode_tokenizer *t = lode_model_tokenizer(m);
    const uint32_t n_vocab = lode_model_info(m)->n_vocab;
    struct biases biases = {0};
    struct breakers breakers = {0};
    struct lode_sampler_opts so;
    int rc = collect_biases(&biases, o, t, n_vocab, err);
    if (rc == 0 && t && o->dry_multiplier > 0)
        rc = collect_breakers(&breakers, o, t, err);
    lode_sampler_defaults(&so);
    so.samplers = o->samplers;
    so.seed = o->seed < 0 ? seed : (uint64_t)o->seed;
    so.temp = (float)o->temp;
    so.dynatemp_range = (float)o->dynatemp_range;
    so.dynatemp_exponent = (float)o->dynatemp_exp;
    so.top_k = (int32_t)o->top_k;
    so.top_p = (float)o->top_p;
    so.min_p = (float)o->min_p;
    so.typical_p = (float)o->typical;
    so.top_n_sigma = (float)o->top_nsigma;
    so.min_keep = (int32_t)o->min_keep;
    so.xtc_probability = (float)o->xtc_probability;
    so.xtc_threshold = (float)o->xtc_threshold;
    so.repeat_last_n = (int32_t)o->repeat_last_n;
    so.repeat_penalty = (float)o->repeat_penalty;
    so.presence_penalty = (float)o->presence_penalty;
    so.frequency_penalty = (float)o->frequency_penalty;
    so.dry_multiplier = (float)o->dry_multiplier;
    so.dry_base = (float)o->dry_base;
    so.dry_allowed_length = (int32_t)o->dry_allowed_length;
    so.dry_penalty_last_n = (int32_t)o->dry_penalty_last_n;
    so.dry_breakers = breakers.v;
    so.n_dry_breakers = breakers.n;
    so.mirostat = (int32_t)o->mirostat;
    so.mirostat_tau = (float)o->mirostat_ent;
    so.mirostat_eta = (float)o->mirostat_lr;
    so.bias = biases.v;
    so.n_bias = biases.n;
    if (rc == 0)
        rc = lode_sampler_create(out, n_vocab, &so, err);
    free(biases.v);
    free(breakers.ids);
    free(breakers.v);
    return rc;
}
