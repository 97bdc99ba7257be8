/* rows.h - steps of sessions whose result is rows of a stage (model/build.h): what embeddings pool. */
#ifndef LODE_ENGINE_ROWS_H
#define LODE_ENGINE_ROWS_H

#include "lode/session.h"
#include "model/build.h"

/* As lode_session_create, for encoders too.  A session of a model that attends both ways takes its
 * whole sequence in one step, from position 0 on: the caller sees to it. */
int lode_session_open(struct lode_session **out, struct lode_model *m,
                      const struct lode_session_opts *opts, struct lode_error *err);

enum lode_want { /* which rows of a feed */
    LODE_WANT_NONE,
    LODE_WANT_FIRST,
    LODE_WANT_LAST,
    LODE_WANT_ALL,
};

/* y: a row of the stage's result for feeds[feed], in the order of its tokens; valid during the call.
 * Non-zero stops with LODE_ERR_CANCELLED. */
typedef int lode_rows_fn(void *user, size_t feed, const float *y);

/* As lode_session_step.  second: of each feed, the token that begins a pair's second text (n: there
 * is none); NULL: no pairs. */
int lode_session_rows(const struct lode_feed *feeds, const uint32_t *second, size_t n_feeds,
                      enum lode_stage stage, enum lode_want want, lode_rows_fn *fn, void *user,
                      struct lode_error *err);

/* As lode_session_step, and gives the logits after feeds[i].tokens[from[i]] and those that follow it, in
 * order (from[i] = n: of that feed none but the last is computed, and kept as ever). */
typedef int lode_feed_logits_fn(void *user, size_t feed, uint32_t pos, const float *logits);
int lode_session_step_from(const struct lode_feed *feeds, const uint32_t *from, size_t n_feeds,
                           lode_feed_logits_fn *fn, void *user, struct lode_error *err);

/* lode_session_truncate to n tokens, n <= length, or to fewer where going on from n would evaluate
 * some again: the length that is left.  For those who feed these tokens themselves. */
uint32_t lode_session_rewind(struct lode_session *s, uint32_t n);
/* Most tokens of a step. */
uint32_t lode_session_most(const struct lode_session *s);

#endif
