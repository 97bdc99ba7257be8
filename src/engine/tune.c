/* tune.c - see lode/tune.h.
 *
 * One choice after the other, for each type and class of rows that the model's matrices have enough of: a session
 * runs steps of the kind that the choice is about, the fastest of a few counts.  Another value is taken where it
 * is better by MARGIN, and again when it is asked a second time in turn with the one before: what only looked
 * better is not kept. */
#include "lode/tune.h"

#include "backend/cuda.h"
#include "base/clock.h"
#include "lode/lode.h"
#include "model/model.h"

enum { KEYS = 12, CTX = 1024, PROMPT = 512, FEW = 8, ROUNDS = 3 };
#define MARGIN 0.98
#define SHARE 0.03 /* of all bytes, that a type and class must have */

struct key {
    enum lode_dtype type;
    uint32_t class;
    uint64_t bytes;
};

struct tuner {
    struct lode_model *m;
    struct lode_tuning *t;
    struct key keys[KEYS];
    uint32_t n_keys;
    lode_progress_fn *progress;
    void *user;
    uint64_t done, total;
    struct lode_tune_result *out;
};

/* The types and classes of what runs at a place, with many bytes. */
static void find_keys(struct tuner *u, uint32_t place) {
    uint64_t all = 0;
    for (uint32_t i = 0; i < u->m->n_weights; i++) {
        const struct lode_operand *w = &u->m->weights[i].op;
        const uint64_t bytes = u->m->weights[i].size;
        const uint32_t class = lode_tuning_class(w->cols);
        uint32_t k = 0;
        if (!(u->m->uses[i] & 1u << place))
            continue;
        all += bytes;
        while (k < u->n_keys && (u->keys[k].type != w->type || u->keys[k].class != class))
            k++;
        if (k == u->n_keys && k < KEYS)
            u->keys[u->n_keys++] = (struct key){w->type, class, 0};
        if (k < u->n_keys)
            u->keys[k].bytes += bytes;
    }
    uint32_t n = 0;
    for (uint32_t k = 0; k < u->n_keys; k++)
        if ((double)u->keys[k].bytes >= SHARE * (double)all)
            u->keys[n++] = u->keys[k];
    u->n_keys = n;
}

/* Seconds of the work: the least of ROUNDS. */
static int measure(struct tuner *u, enum lode_tuning_work work, double *seconds, struct lode_error *err) {
    struct lode_session *s;
    int32_t ids[PROMPT];
    const uint32_t n_vocab = lode_model_info(u->m)->n_vocab;
    const uint32_t each = work == LODE_TUNING_DECODE ? 1 : work == LODE_TUNING_FEW ? FEW : PROMPT;
    const uint32_t times = work == LODE_TUNING_DECODE ? 24 : work == LODE_TUNING_FEW ? 12 : 1;
    for (uint32_t i = 0; i < PROMPT; i++)
        ids[i] = (int32_t)((i * 7919u + 13u) % n_vocab);
    *seconds = 1e9;
    LODE_TRY(lode_session_create(&s, u->m, &(struct lode_session_opts){.ctx = CTX, .batch = PROMPT}, err));
    lode_session_want(s, 1); /* logits need not cross */
    int rc = 0;
    for (int round = -1; rc == 0 && round < ROUNDS; round++) { /* the first captures */
        rc = lode_session_truncate(s, 0, err);
        const double start = lode_clock();
        for (uint32_t i = 0; rc == 0 && i < times; i++)
            rc = lode_session_eval(s, ids + i % (PROMPT / each) * each, each, err);
        const double t = lode_clock() - start;
        if (round >= 0 && t < *seconds)
            *seconds = t;
    }
    lode_session_free(s);
    return rc;
}

/* The best value of one choice. */
static int tune_one(struct tuner *u, enum lode_tuning_knob knob, const struct key *key, struct lode_error *err) {
    const struct lode_tuning_knob_info *k = &lode_tuning_knobs[knob];
    uint16_t *value = &u->t->value[knob][key->type][key->class];
    const uint16_t before = *value;
    for (uint32_t i = 0; i < k->n; i++) {
        const uint16_t was = *value, other = k->values[i];
        bool better = other != was;
        for (int turn = 0; better && turn < 2; turn++) {
            double old, new;
            *value = was;
            int rc = measure(u, k->work, &old, err);
            *value = other;
            if (rc == 0)
                rc = measure(u, k->work, &new, err);
            if (rc < 0)
                *value = was;
            LODE_TRY(rc);
            better = new < MARGIN * old;
        }
        *value = better ? other : was;
        u->done++;
        if (u->progress && u->progress(u->user, "tuning", u->done, u->total))
            return lode_fail(err, LODE_ERR_CANCELLED, "", "tuning was cancelled");
    }
    u->out->n_timed++;
    u->out->n_changed += *value != before;
    return 0;
}

int lode_tune(struct lode_model *m, lode_progress_fn *progress, void *user, struct lode_tune_result *out,
              struct lode_error *err) {
    struct tuner u = {.m = m, .progress = progress, .user = user, .out = out};
    struct lode_tuning_device d;
    uint32_t place = 1;
    *out = (struct lode_tune_result){0};
    while (place < LODE_PLACES && !m->devices[place].cuda)
        place++;
    if (place == LODE_PLACES)
        return lode_fail(err, LODE_ERR_UNSUPPORTED, "--tune", "the model runs on no GPU: there is nothing to choose");
    u.t = lode_cuda_tuning(m->devices[place].cuda, &d);
    LODE_TRY(lode_tuning_place(&d, out->path, sizeof out->path, err)); /* before it is worked for */
    find_keys(&u, place);
    for (uint32_t k = 0; k < LODE_TUNING_KNOBS; k++)
        u.total += (uint64_t)u.n_keys * lode_tuning_knobs[k].n;
    for (uint32_t k = 0; k < LODE_TUNING_KNOBS; k++)
        for (uint32_t i = 0; i < u.n_keys; i++)
            LODE_TRY(tune_one(&u, (enum lode_tuning_knob)k, &u.keys[i], err));
    return lode_tuning_save(u.t, &d, out->path, sizeof out->path, err);
}
