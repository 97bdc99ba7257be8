/* session_impl.h - inside sessions: what session.c and flight.c share. */
#ifndef LODE_ENGINE_SESSION_IMPL_H
#define LODE_ENGINE_SESSION_IMPL_H

#include "base/draw.h"
#include "engine/workers.h"
#include "lode/plan.h"
#include "lode/session.h"

struct lode_session {
    struct lode_model *model;     /* borrowed */
    struct lode_workers *workers; /* shared */
    struct lode_kv *kv;
    struct lode_state *state; /* NULL: the model has no recurrent layers */
    struct lode_rope ropes[LODE_MAX_ROPES];
    uint32_t ctx, length;
    int32_t *tokens; /* owned; (ctx) */
    float *logits;   /* owned; (n_vocab) */
    bool has_logits;
    struct lode_best best[LODE_BEST_MAX];
    uint32_t n_best, want; /* n_best: not 0: these are what there is of the logits */
    bool draws, ahead, has_drawn; /* as lode_session_draw has it; after the last step: `drawn` is the token */
    struct lode_draw draw;        /* but for u */
    uint64_t seed;
    int32_t drawn;
    struct lode_memory_plan memory;
    struct lode_session_opts opts;
};

/* Pages for what the feeds have, `past` tokens after their sessions' last; as it was after an error. */
int lode_feeds_extend(const struct lode_feed *feeds, size_t n_feeds, uint32_t past, struct lode_error *err);
/* Adds a feed to the step, `past` tokens after its session's last; `second` as in lode_segment. */
void lode_feed_add(struct lode_workers *w, struct lode_step *step, const struct lode_feed *f, uint32_t past,
                   uint32_t second);
/* The feeds' tokens, which have been evaluated, are their sessions'. */
void lode_feeds_commit(const struct lode_feed *feeds, size_t n_feeds);

/* ---- flight.c ---- */

/* Whether tokens are to be drawn after a step of such feeds, all of which want that after their last. */
bool lode_flight_can(const struct lode_feed *feeds, size_t n_feeds);
/* That step: the one under way where it is that, and begins the next one where all is there for it. */
int lode_flight_step(const struct lode_feed *feeds, size_t n_feeds, struct lode_error *err);
/* What is under way is not wanted, for the session or for all of them: it runs on, and is not looked at. */
void lode_flight_leave(struct lode_session *s);
void lode_flight_drop(struct lode_workers *w);

#endif
