/* compare.c - see compare.h.  Window by window: the base's log-probabilities are kept in memory for
 * the scored half, then the other model reads the same tokens. */
#include "compare.h"

#include "input.h"
#include "out.h"
#include "progress.h"

#include "lode/sampler.h"
#include "lode/session.h"
#include "lode/tokenizer.h"

#include <stdlib.h>
#include <string.h>

struct comparing {
    const struct compare_text *o;
    struct lode_session *sessions[2]; /* base, model */
    const int32_t *ids;               /* of the window */
    int32_t n_vocab;
    uint16_t *records; /* (kld_scored(window), kld_record(n_vocab)) of the base */
    double *nll;       /* (kld_scored(window)) its -ln p(next) */
    struct kld_sums *sums;
    struct progress bar;
    uint64_t done; /* tokens before this pass */
};

/* Scored positions are those of llama-perplexity: [window / 2, window - 1).  Which one; -1: none.
 */
static int64_t scored(const struct comparing *c, uint32_t pos) {
    const uint32_t window = (uint32_t)c->o->window;
    return pos < window / 2 || pos + 1 >= window ? -1 : (int64_t)pos - window / 2;
}

static int on_base(void *user, uint32_t pos, const float *logits) {
    struct comparing *c = user;
    const int64_t i = scored(c, pos);
    if (i >= 0) {
        kld_encode(c->records + (size_t)i * kld_record(c->n_vocab), logits, c->n_vocab);
        c->nll[i] = -(double)lode_logprob_of(logits, (uint32_t)c->n_vocab, c->ids[pos + 1]);
    }
    progress_update(&c->bar, c->done + pos + 1);
    return c->o->cancel && c->o->cancel();
}

static int on_model(void *user, uint32_t pos, const float *logits) {
    struct comparing *c = user;
    const int64_t i = scored(c, pos);
    if (i >= 0)
        kld_add_known(c->sums, logits, c->records + (size_t)i * kld_record(c->n_vocab), c->n_vocab,
                      c->ids[pos + 1], c->nll[i]);
    progress_update(&c->bar, c->done + pos + 1);
    return c->o->cancel && c->o->cancel();
}

static int compare_window(struct comparing *c, int32_t bos, struct lode_error *err) {
    for (int i = 0; i < 2; i++) {
        lode_logits_fn *const fn = i ? on_model : on_base;
        const int32_t lead = bos >= 0 ? bos : c->ids[0];
        int rc = lode_session_truncate(c->sessions[i], 0, err);
        rc = rc < 0 ? rc : lode_session_eval_each(c->sessions[i], &lead, 1, fn, c, err);
        rc = rc < 0 ? rc
                    : lode_session_eval_each(c->sessions[i], c->ids + 1, (size_t)c->o->window - 1,
                                             fn, c, err);
        if (rc < 0)
            return rc;
        c->done += (uint64_t)c->o->window;
    }
    return 0;
}

static int compare_all(struct comparing *c, const struct lode_tokenizer *t, const struct ids *ids,
                       struct lode_error *err) {
    const size_t window = (size_t)c->o->window;
    size_t n = ids->n / window;
    if (c->o->most >= 0 && n > (size_t)c->o->most)
        n = (size_t)c->o->most;
    if (n == 0)
        return tool_fail(err, LODE_ERR_ARG, "text", "has %zu tokens, a window needs %zu", ids->n,
                         window);
    const size_t n_scored = kld_scored((int32_t)window);
    c->records = malloc(n_scored * kld_record(c->n_vocab) * sizeof *c->records);
    c->nll = malloc(n_scored * sizeof *c->nll);
    if (!c->records || !c->nll)
        return tool_fail(err, LODE_ERR_NOMEM, "text", "no memory to keep predictions in");
    int rc = kld_sums_init(c->sums, n * n_scored, err);
    progress_begin(&c->bar, "comparing", "tokens", 2 * n * window);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        c->ids = ids->v + i * window;
        rc = compare_window(c, lode_tokenizer_adds_bos(t) ? lode_tokenizer_bos(t) : -1, err);
    }
    progress_end(&c->bar);
    return rc;
}

int compare_models(struct kld_sums *sums, struct lode_model *base, struct lode_model *model,
                   const struct compare_text *o, struct lode_error *err) {
    struct lode_model *const both[2] = {base, model};
    struct comparing c = {.o = o, .sums = sums};
    struct ids ids = {0};
    const struct lode_tokenizer *t = lode_model_tokenizer(base);
    *sums = (struct kld_sums){0};
    if (!t)
        return tool_fail(err, LODE_ERR_ARG, lode_model_info(base)->path, "has no vocabulary");
    c.n_vocab = (int32_t)lode_model_info(base)->n_vocab;
    if (lode_model_info(model)->n_vocab != (uint32_t)c.n_vocab)
        return tool_fail(err, LODE_ERR_ARG, lode_model_info(model)->path,
                         "has another vocabulary than %s", lode_model_info(base)->path);
    int rc = ids_tokenize(&ids, t, o->text, o->size, LODE_TOK_SPECIAL, err);
    for (int i = 0; rc == 0 && i < 2; i++)
        rc = lode_session_create(
            &c.sessions[i], both[i],
            &(struct lode_session_opts){.ctx = (uint32_t)o->window, .threads = o->threads}, err);
    if (rc == 0)
        rc = compare_all(&c, t, &ids, err);
    if (rc < 0)
        kld_sums_free(sums);
    for (int i = 0; i < 2; i++)
        lode_session_free(c.sessions[i]);
    free(c.records);
    free(c.nll);
    ids_free(&ids);
    return rc;
}
