/* choose.c - the token that follows: a sampler's choice among those that the request's guide allows. */
#include "engine/sampler_impl.h"
#include "engine/sched.h"
#include "model/model.h"

/* The first of the largest that the mask has; -1: it has none. */
static int32_t likeliest(const float *logits, uint32_t n, const uint64_t *mask) {
    int32_t best = -1;
    for (uint32_t from = 0; from < n; from += 64) {
        if (!mask[from / 64] || (best >= 0 && n - from >= 64 && lode_max_64(logits + from) <= logits[best]))
            continue;
        for (uint32_t i = from; i < n && i < from + 64; i++)
            if ((mask[i / 64] >> i % 64 & 1) && (best < 0 || logits[i] > logits[best]))
                best = (int32_t)i;
    }
    return best;
}

/* A token that the guide takes, or OVER. */
static int choose_guided(const struct lode_generation *g, const float *logits, uint32_t n_vocab,
                         uint64_t position, int32_t *id, struct lode_error *err) {
    for (;;) {
        struct lode_generation_hint hint = {0};
        *id = LODE_CHOOSE_OVER;
        LODE_TRY(g->guide.next(g->guide.user, &hint, err));
        if (hint.over)
            return 0;
        *id = hint.greedy && hint.mask
                  ? likeliest(logits, n_vocab, hint.mask)
                  : lode_sampler_next_masked(g->sampler, logits, hint.mask, position);
        if (*id < 0)
            return lode_fail(err, LODE_ERR_UNSUPPORTED, "grammar",
                             "no token of the model's vocabulary can go on from here (a logit bias "
                             "may ban those that could)");
        const int rc = g->guide.accept(g->guide.user, *id, err);
        if (rc <= 0)
            return rc;
    }
}

void lode_choose_given(const struct lode_scheduler *s, struct lode_generation *g, uint32_t pos,
                       const float *logits) {
    if (pos + 1 != g->given_next || g->given_next == g->n_prompt)
        return;
    struct lode_generation_token *t = &g->given[g->given_next - g->given_from];
    *t = (struct lode_generation_token){.id = g->tokens[g->given_next]};
    t->logprob = lode_logprob_of(logits, s->model->info.n_vocab, t->id);
    if (g->n_top)
        t->n_top = (uint32_t)lode_logprob_top(logits, s->model->info.n_vocab, t->top, g->n_top);
    g->given_next++;
}

void lode_choose_want(const struct lode_seat *seat) {
    const struct lode_generation *g = seat->g;
    /* at the prompt's end others may go on from the same logits */
    if (g->guide.next || g->logprobs || g->n_top || g->n_tokens == g->n_prompt)
        lode_session_want(seat->session, 0);
    else
        lode_session_draw(seat->session, g->sampler, seat->ahead);
}

int lode_choose(const struct lode_scheduler *s, const struct lode_seat *seat,
                struct lode_generation_token *t, struct lode_error *err) {
    struct lode_generation *g = seat->g;
    const float *logits = lode_session_logits(seat->session);
    const uint32_t n_vocab = s->model->info.n_vocab;
    const uint64_t position = lode_session_length(seat->session);
    *t = (struct lode_generation_token){0};
    if (g->guide.next)
        LODE_TRY(choose_guided(g, logits, n_vocab, position, &t->id, err));
    else
        t->id = lode_session_sample(seat->session, g->sampler);
    if (t->id == LODE_CHOOSE_OVER)
        return 0;
    lode_sampler_accept(g->sampler, t->id);
    if (g->logprobs)
        t->logprob = lode_logprob_of(logits, n_vocab, t->id);
    if (g->n_top)
        t->n_top = (uint32_t)lode_logprob_top(logits, n_vocab, t->top, g->n_top);
    return 0;
}
