/* sampler.c - options, life cycle and history of a sampler, and one draw. */
#include "engine/sampler_impl.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/dmath.h"
#include "base/error.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* field, default, least, most */
#define LODE_SAMPLER_OPTION_LIST(X)                                                                \
    X(temp, 0.8f, -1e6, 1e6)                                                                       \
    X(dynatemp_range, 0, 0, 1e6)                                                                   \
    X(dynatemp_exponent, 1, 0, 1e3)                                                                \
    X(top_k, 40, -1, INT32_MAX)                                                                    \
    X(top_p, 0.95f, 0, 1)                                                                          \
    X(min_p, 0.05f, 0, 1)                                                                          \
    X(typical_p, 1, 0, 1)                                                                          \
    X(top_n_sigma, -1, -1, 1e6)                                                                    \
    X(min_keep, 0, 0, INT32_MAX)                                                                   \
    X(xtc_probability, 0, 0, 1)                                                                    \
    X(xtc_threshold, 0.1f, 0, 1)                                                                   \
    X(repeat_last_n, 64, -1, 1 << 24)                                                              \
    X(repeat_penalty, 1, 1e-3, 1e3)                                                                \
    X(presence_penalty, 0, -1e3, 1e3)                                                              \
    X(frequency_penalty, 0, -1e3, 1e3)                                                             \
    X(dry_multiplier, 0, 0, 1e6)                                                                   \
    X(dry_base, 1.75f, 0, 1e6)                                                                     \
    X(dry_allowed_length, 2, 0, 1 << 24)                                                           \
    X(dry_penalty_last_n, -1, -1, 1 << 24)                                                         \
    X(mirostat, 0, 0, 2)                                                                           \
    X(mirostat_tau, 5, 0, 100)                                                                     \
    X(mirostat_eta, 0.1f, 0, 1)

void lode_sampler_defaults(struct lode_sampler_opts *opts) {
    *opts = (struct lode_sampler_opts){
#define DEFAULT(field, value, least, most) .field = value,
        LODE_SAMPLER_OPTION_LIST(DEFAULT)
#undef DEFAULT
    };
}

static int check_options(const struct lode_sampler_opts *o, struct lode_error *err) {
#define CHECK(field, value, least, most)                                                           \
    if (!((double)o->field >= (double)(least) && (double)o->field <= (double)(most)))              \
        return lode_fail(err, LODE_ERR_ARG, #field, #field " is %g, expected %g to %g",            \
                         (double)o->field, (double)(least), (double)(most));
    LODE_SAMPLER_OPTION_LIST(CHECK)
#undef CHECK
    return 0;
}

struct step_name {
    const char *name, *alias1, *alias2;
    lode_sampler_step *step;
};

static const struct step_name step_names[] = {
#define STEP_NAME(name, alias1, alias2) {#name, alias1, alias2, lode_step_##name},
    LODE_SAMPLER_STEP_LIST(STEP_NAME)
#undef STEP_NAME
};

#define STEP_ORDER(name, alias1, alias2) #name ";"
static const char default_order[] = LODE_SAMPLER_STEP_LIST(STEP_ORDER);
#undef STEP_ORDER

static bool same_name(const char *a, const char *b, size_t len) {
    for (size_t i = 0; i < len; i++) /* "Top-K" is top_k */
        if (b[i] == '\0' || (a[i] == '-' ? '_' : a[i] | (a[i] >= 'A' && a[i] <= 'Z') << 5) != b[i])
            return false;
    return b[len] == '\0';
}

static int add_step(struct lode_sampler *s, const char *name, size_t len, struct lode_error *err) {
    for (size_t i = 0; i < sizeof step_names / sizeof *step_names; i++) {
        const struct step_name *k = &step_names[i];
        if (!same_name(name, k->name, len) && !same_name(name, k->alias1, len) &&
            !same_name(name, k->alias2, len))
            continue;
        if (s->n_steps == LODE_SAMPLER_MAX_STEPS)
            return lode_fail(err, LODE_ERR_LIMIT, "samplers", "more than %d names in samplers",
                             LODE_SAMPLER_MAX_STEPS);
        s->steps[s->n_steps++] = k->step;
        return 0;
    }
    return lode_fail(err, LODE_ERR_ARG, "samplers", "no sampler \"%.*s\"; there are %s",
                     (int)(len < 64 ? len : 64), name, default_order);
}

static int parse_order(struct lode_sampler *s, const char *names, struct lode_error *err) {
    if (!names)
        names = default_order;
    while (*names) {
        const size_t len = strcspn(names, ";, ");
        if (len)
            LODE_TRY(add_step(s, names, len, err));
        names += len;
        names += *names != '\0';
    }
    return 0;
}

static int by_id(const void *a, const void *b) {
    const int32_t x = ((const struct lode_logit_bias *)a)->id;
    const int32_t y = ((const struct lode_logit_bias *)b)->id;
    return (x > y) - (x < y);
}

/* A sorted copy, without ids outside the vocabulary. */
static int copy_bias(struct lode_sampler *s, struct lode_error *err) {
    const struct lode_logit_bias *from = s->o.bias;
    struct lode_logit_bias *to =
        lode_arena_alloc(&s->memory, s->o.n_bias, sizeof(struct lode_logit_bias));
    if (!to)
        return lode_fail_nomem(err, "logit bias");
    size_t n = 0;
    for (size_t i = 0; i < s->o.n_bias; i++) {
        if (isnan(from[i].bias))
            return lode_fail(err, LODE_ERR_ARG, "bias",
                             "the logit bias of token %d is not a number", from[i].id);
        if (from[i].id >= 0 && (uint32_t)from[i].id < s->n_vocab)
            to[n++] = from[i];
    }
    qsort(to, n, sizeof *to, by_id);
    s->o.bias = to;
    s->o.n_bias = n;
    return 0;
}

static int by_first_id(const void *a, const void *b) {
    const int32_t x = ((const struct lode_breaker *)a)->ids[0];
    const int32_t y = ((const struct lode_breaker *)b)->ids[0];
    return (x > y) - (x < y);
}

static int copy_breakers(struct lode_sampler *s, struct lode_error *err) {
    const int32_t *const *from = s->o.dry_breakers;
    s->breakers = LODE_ARENA_ARRAY(&s->memory, struct lode_breaker, s->o.n_dry_breakers);
    if (!s->breakers)
        return lode_fail_nomem(err, "DRY breakers");
    size_t n = 0;
    for (size_t i = 0; i < s->o.n_dry_breakers; i++) {
        uint32_t len = 0;
        while (from[i][len] >= 0)
            len++;
        if (len == 0)
            continue;
        int32_t *ids = lode_arena_alloc(&s->memory, len, sizeof *ids);
        if (!ids)
            return lode_fail_nomem(err, "DRY breakers");
        memcpy(ids, from[i], len * sizeof *ids);
        s->breakers[n++] = (struct lode_breaker){ids, len};
    }
    qsort(s->breakers, n, sizeof *s->breakers, by_first_id);
    s->o.dry_breakers = NULL; /* the caller's; ours are in breakers */
    s->o.n_dry_breakers = n;
    return 0;
}

static int create_history(struct lode_sampler *s, struct lode_error *err) {
    const struct lode_sampler_opts *o = &s->o;
    if (o->repeat_last_n != 0 && (o->repeat_penalty != 1.0f || o->presence_penalty != 0.0f ||
                                  o->frequency_penalty != 0.0f)) {
        s->count = LODE_ARENA_ARRAY(&s->memory, uint32_t, s->n_vocab);
        if (!s->count)
            return lode_fail_nomem(err, "token counts");
        s->ring_size = o->repeat_last_n > 0 ? (uint64_t)o->repeat_last_n : 0; /* all: counts do */
    }
    if (o->dry_multiplier > 0 && o->dry_base >= 1 && o->dry_penalty_last_n != 0) {
        s->dry_window =
            o->dry_penalty_last_n > 0 ? (uint32_t)o->dry_penalty_last_n : LODE_SAMPLER_DRY_ALL;
        s->dry_recent = LODE_ARENA_ARRAY(&s->memory, int32_t, s->dry_window);
        s->dry_match = LODE_ARENA_ARRAY(&s->memory, uint32_t, s->dry_window);
        s->dry_longest = LODE_ARENA_ARRAY(&s->memory, uint32_t, s->n_vocab);
        if (!s->dry_recent || !s->dry_match || !s->dry_longest)
            return lode_fail_nomem(err, "DRY");
        LODE_TRY(copy_breakers(s, err));
        if (s->dry_window > s->ring_size)
            s->ring_size = s->dry_window;
    }
    if (s->ring_size) {
        s->ring = LODE_ARENA_ARRAY(&s->memory, int32_t, s->ring_size);
        if (!s->ring)
            return lode_fail_nomem(err, "token history");
    }
    return 0;
}

static int fill(struct lode_sampler *s, struct lode_error *err) {
    /* Not zeroed: most draws look at few candidates, and requests that wait at none; the system gives no memory
     * for what nobody has written. */
    s->cand = lode_arena_alloc(&s->memory, s->n_vocab, sizeof *s->cand);
    s->weight = lode_arena_alloc(&s->memory, s->n_vocab, sizeof *s->weight);
    s->key = lode_arena_alloc(&s->memory, s->n_vocab, sizeof *s->key);
    if (!s->cand || !s->weight || !s->key)
        return lode_fail_nomem(err, "sampler candidates");
    LODE_TRY(parse_order(s, s->o.samplers, err));
    s->o.samplers = NULL;
    LODE_TRY(copy_bias(s, err));
    LODE_TRY(create_history(s, err));
    lode_sampler_reset(s);
    return 0;
}

int lode_sampler_create(struct lode_sampler **out, uint32_t n_vocab,
                        const struct lode_sampler_opts *opts, struct lode_error *err) {
    *out = NULL;
    struct lode_sampler_opts defaults;
    lode_sampler_defaults(&defaults);
    if (!opts)
        opts = &defaults;
    if (n_vocab == 0 || n_vocab > INT32_MAX)
        return lode_fail(err, LODE_ERR_ARG, "n_vocab",
                         "a vocabulary of %u tokens cannot be sampled", n_vocab);
    LODE_TRY(check_options(opts, err));
    struct lode_sampler *s = LODE_NEW(struct lode_sampler);
    if (!s)
        return lode_fail_nomem(err, "sampler");
    s->o = *opts;
    s->n_vocab = n_vocab;
    const int rc = fill(s, err);
    if (rc < 0) {
        lode_sampler_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void lode_sampler_free(struct lode_sampler *s) {
    if (!s)
        return;
    lode_arena_free(&s->memory);
    lode_free(s);
}

void lode_sampler_reset(struct lode_sampler *s) {
    if (s->count)
        memset(s->count, 0, s->n_vocab * sizeof *s->count);
    s->n_seen = 0;
    s->mu = 2.0 * (double)s->o.mirostat_tau;
    s->surprised = false;
}

void lode_sampler_accept(struct lode_sampler *s, int32_t id) {
    if (s->surprised) {
        s->mu -= (double)s->o.mirostat_eta * (s->surprise - (double)s->o.mirostat_tau);
        s->surprised = false;
    }
    if (id < 0 || (uint32_t)id >= s->n_vocab)
        return;
    if (s->count) {
        const uint64_t window = s->o.repeat_last_n > 0 ? (uint64_t)s->o.repeat_last_n : 0;
        if (window && s->n_seen >= window)
            s->count[s->ring[(s->n_seen - window) % s->ring_size]]--;
        s->count[id]++;
    }
    if (s->ring)
        s->ring[s->n_seen % s->ring_size] = id;
    s->n_seen++;
}

void lode_sampler_keys_by_logit(struct lode_sampler *s) {
    for (size_t i = 0; i < s->n; i++)
        s->key[i] = lode_key_of(s->cand[i].logit, s->cand[i].id);
}

void lode_sampler_keep(struct lode_sampler *s, uint64_t last) {
    size_t kept = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (s->key[i] > last)
            continue;
        s->cand[kept++] = s->cand[i];
    }
    s->n = kept;
}

static size_t best(const struct lode_sampler *s) {
    size_t b = 0;
    for (size_t i = 1; i < s->n; i++)
        if (s->cand[i].logit > s->cand[b].logit)
            b = i;
    return b;
}

float lode_sampler_max(const struct lode_sampler *s) {
    return s->cand[best(s)].logit;
}

double lode_sampler_softmax(struct lode_sampler *s) {
    const double max = lode_sampler_max(s);
    double sum = 0;
    for (size_t i = 0; i < s->n; i++) {
        s->weight[i] = lode_exp((double)s->cand[i].logit - max);
        sum += s->weight[i];
    }
    return sum;
}

size_t lode_sampler_pick(const struct lode_sampler *s, double sum, double u) {
    const double target = u * sum;
    double below = 0;
    size_t last = 0; /* where rounding leaves target at the sum */
    for (size_t i = 0; i < s->n; i++) {
        if (s->weight[i] <= 0)
            continue;
        below += s->weight[i];
        if (target < below)
            return i;
        last = i;
    }
    return last;
}

int32_t lode_sampler_next(struct lode_sampler *s, const float *logits, uint64_t position) {
    return lode_sampler_next_masked(s, logits, NULL, position);
}

/* Among the candidates that were loaded; there are some. */
static int32_t draw(struct lode_sampler *s, bool greedy, uint64_t position) {
    s->position = position;
    s->surprised = false;
    if (s->o.mirostat && !greedy) {
        lode_step_temperature(s);
        return s->cand[lode_mirostat_pick(s, lode_rng_uniform(s->o.seed, position, 0))].id;
    }
    for (uint32_t i = 0; i < s->n_steps; i++) {
        /* filters cannot change a greedy choice, but for XTC and typical, which should not */
        if (greedy && s->steps[i] != lode_step_penalties && s->steps[i] != lode_step_dry)
            continue;
        s->steps[i](s);
    }
    if (greedy)
        return s->cand[best(s)].id;
    const double sum = lode_sampler_softmax(s);
    return s->cand[lode_sampler_pick(s, sum, lode_rng_uniform(s->o.seed, position, 0))].id;
}

int32_t lode_sampler_next_masked(struct lode_sampler *s, const float *logits, const uint64_t *mask,
                                 uint64_t position) {
    const bool greedy = lode_sampler_is_greedy(s);
    lode_sampler_load(s, logits, mask, greedy);
    if (s->n == 0)
        s->surprised = false;
    return s->n ? draw(s, greedy, position) : mask ? -1 : 0; /* nothing is possible; 0 as lode_argmax */
}

int32_t lode_sampler_next_best(struct lode_sampler *s, const struct lode_best *best, size_t n,
                               uint64_t position) {
    lode_sampler_load_best(s, best, n);
    if (s->n == 0)
        s->surprised = false;
    return s->n ? draw(s, lode_sampler_is_greedy(s), position) : 0;
}
