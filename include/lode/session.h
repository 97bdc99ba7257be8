/* session.h - one conversation with a model.
 *
 * A session is one timeline over a model: its tokens, its KV cache, its last logits.  It belongs
 * to one thread at a time, which needs LODE_SESSION_STACK bytes of stack.  Nothing is allocated after
 * create: what cannot fit is refused there.
 * A position's logits depend on the tokens up to it and on nothing else: not on how they were
 * chunked, on the number of threads, on other sessions in the same step, or on the instruction
 * set.
 *
 *     struct lode_session *s;
 *     lode_session_create(&s, model, &(struct lode_session_opts){ .ctx = 8192 }, &err);
 *     lode_session_eval(s, tokens, n, &err);
 *     const float *logits = lode_session_logits(s);      (n_vocab), after the last token
 *     lode_session_truncate(s, 10, &err);                 forget all but the first ten
 *     lode_session_free(s);
 */
#ifndef LODE_SESSION_H
#define LODE_SESSION_H

#include "lode/model.h"
#include "lode/sampler.h"

#ifdef __cplusplus
extern "C" {
#endif

struct lode_session;

enum { LODE_SESSION_STACK = 512 << 10 };

/* The residual stream of one position after a layer (layer 0: the embedding, as the first layer
 * reads it; layer i: the output of the i-th).  x: (d_model), valid during the call. */
typedef void lode_trace_fn(void *user, uint32_t layer, uint32_t pos, const float *x, size_t n);

/* The experts that a position's router chose in a layer, ascending, and their weights: (n), valid
 * during the call; lode_trace_put of lode/trace.h keeps them. */
typedef void lode_routes_fn(void *user, uint32_t layer, uint32_t pos, const uint32_t *experts,
                            const float *weights, uint32_t n);

/* What a layer's router was guessed to choose for a position, the surest first, before it chose: from what the
 * layer before it made (late), or from what that layer's router saw.  A model on the CPU only, and not of
 * all layers.  (n), valid during the call; lode_trace_put_guess of lode/trace.h keeps them. */
typedef void lode_guesses_fn(void *user, uint32_t layer, uint32_t pos, bool late, const uint32_t *experts,
                             uint32_t n);

/* A step is done: n_tokens of n_sequences at once, the first of them at position `pos` of its timeline.
 * Of several sessions it is the first one's function that is called. */
typedef void lode_stepped_fn(void *user, uint32_t n_tokens, uint32_t n_sequences, uint32_t pos);

struct lode_session_opts { /* zero means the default */
    uint32_t ctx;          /* longest timeline, in tokens; 0: what the model was trained for, or
                              less where memory does not hold that (lode_session_ctx tells) */
    uint32_t batch;        /* tokens evaluated at once during a prompt; 0: 512 */
    uint32_t threads;      /* 0: physical cores of the cgroup's share; of 8 or more one less beside a GPU */
    const char *ctk, *ctv; /* KV formats "f32", "f16", "bf16", "q8_0"; NULL: f16 */
    struct lode_session *with; /* share workers and work buffers, so that both fit one step */
    lode_trace_fn *trace;
    void *trace_user;
    lode_routes_fn *routes;
    lode_guesses_fn *guesses;
    void *routes_user; /* of both */
    lode_stepped_fn *stepped;
    void *stepped_user;
    bool (*cancel)(void *user); /* asked between parts of a step; true: LODE_ERR_CANCELLED */
    void *cancel_user;
};

/* LODE_ERR_UNSUPPORTED for encoders, which give no next token (lode/embed.h). */
LODE_API int lode_session_create(struct lode_session **out, struct lode_model *m,
                                 const struct lode_session_opts *opts, struct lode_error *err);
LODE_API void lode_session_free(struct lode_session *s);

/* Appends n tokens and keeps the logits after the last one.  LODE_ERR_LIMIT with the numbers when
 * they do not fit the context; LODE_ERR_ARG for ids outside the vocabulary.  After an error the
 * timeline is as before the call. */
LODE_API int lode_session_eval(struct lode_session *s, const int32_t *tokens, size_t n,
                               struct lode_error *err);

/* The same, giving the logits after each token in order.  A non-zero return stops with
 * LODE_ERR_CANCELLED.  logits: (n_vocab), valid during the call. */
typedef int lode_logits_fn(void *user, uint32_t pos, const float *logits);
LODE_API int lode_session_eval_each(struct lode_session *s, const int32_t *tokens, size_t n,
                                    lode_logits_fn *fn, void *user, struct lode_error *err);

/* (n_vocab), after the last token; NULL before the first eval and after truncate. */
LODE_API const float *lode_session_logits(const struct lode_session *s);

/* From the next step on: whoever reads this session's logits wants the n largest alone (at most
 * LODE_BEST_MAX; lode_sampler_wants), so that a GPU need not send the others.  0: all, as at the start. */
LODE_API void lode_session_want(struct lode_session *s, uint32_t n);
/* (*n) the largest after the last token, n or more as was wanted, where only they were sent: then
 * lode_session_logits is NULL.  NULL: they were not, and it has all of them. */
LODE_API const struct lode_best *lode_session_best(const struct lode_session *s, size_t *n);

/* From the next step on: whoever reads this session's logits wants the token alone that the sampler draws,
 * whose history and options matter no more than lode_sampler_wants says.  A GPU then draws it where it can (the
 * usual filters, few candidates), so that nothing else crosses the bus, and with `ahead` it begins the step
 * after it at once: for callers who are likely to append that token next.  Who does otherwise may: that step is
 * forgotten.  Until lode_session_want is called; the sampler is not kept. */
LODE_API void lode_session_draw(struct lode_session *s, const struct lode_sampler *sampler, bool ahead);
/* The token after the last step where it was drawn: then there are neither logits nor the largest of them. */
LODE_API bool lode_session_drawn(const struct lode_session *s, int32_t *id);
/* The token after the last step by what there is: drawn, or by lode_sampler_next or lode_sampler_next_best;
 * always the same one. */
LODE_API int32_t lode_session_sample(const struct lode_session *s, struct lode_sampler *sampler);

/* Makes the timeline equal to tokens[0..n): keeps the common prefix, evaluates the rest (at least
 * the last token, so that logits exist).  *reused, if given: how many tokens were kept. */
LODE_API int lode_session_sync(struct lode_session *s, const int32_t *tokens, size_t n,
                               size_t *reused, struct lode_error *err);

/* Keeps the first n tokens; any n.  Sliding windows may have forgotten what is needed to go on from
 * there, and recurrent layers have only a few checkpoints of their state (at multiples of 64 tokens:
 * one near the end of the last prompt, the others spread over the timeline): then the next eval
 * first evaluates the tokens since the last good point again, at most 144 where the cut is at the end
 * of the last prompt or up to 16 tokens before it.  What follows is the same to the bit. */
LODE_API int lode_session_truncate(struct lode_session *s, size_t n, struct lode_error *err);

LODE_API size_t lode_session_length(const struct lode_session *s);
LODE_API const int32_t *lode_session_tokens(const struct lode_session *s); /* (length) */
LODE_API uint32_t lode_session_ctx(const struct lode_session *s);
LODE_API uint32_t lode_session_threads(const struct lode_session *s);

/* One step over several sessions that share workers (opts.with): appends feeds[i].tokens to
 * feeds[i].session.  The sum of n must not exceed the batch. */
struct lode_feed {
    struct lode_session *session;
    const int32_t *tokens; /* (n) */
    size_t n;
};
LODE_API int lode_session_step(const struct lode_feed *feeds, size_t n_feeds,
                               struct lode_error *err);

/* What create counted, allocated and relies on (lode/plan.h); lives as long as the session. */
struct lode_memory_plan;
LODE_API const struct lode_memory_plan *lode_session_memory(const struct lode_session *s);

#ifdef __cplusplus
}
#endif
#endif
