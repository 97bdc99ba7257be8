/* flight.c - steps after which a device draws the tokens itself, and steps that are begun before anybody asks.
 *
 * After a step whose tokens a device draws, the next one can be begun with them while the host is still on its
 * way to hear of them: the device goes from step to step, and what the host does in between costs nothing.  When
 * it then asks for the very step that is under way, the answer is there or on its way; where it asks for another
 * (an answer was over, a prompt came), that one's rows are not looked at.  They wrote keys and values behind the
 * ends of their timelines, which later steps write again, in the order of the device's stream; and as no row
 * depends on its neighbours, the others' rows are good.
 *
 * Recurrent states cannot be taken back: their sessions are not begun ahead. */
#include "engine/session_impl.h"

#include "base/rng.h"
#include "engine/rows.h"
#include "engine/sampler_impl.h"

static uint32_t row_of(const struct lode_flight *f, const struct lode_session *s) {
    uint32_t i = 0;
    while (i < f->n && f->sessions[i] != s)
        i++;
    return i;
}

void lode_flight_leave(struct lode_session *s) {
    struct lode_flight *f = s->workers ? &s->workers->flight : NULL;
    const uint32_t row = f ? row_of(f, s) : 0;
    if (!f || row == f->n)
        return;
    f->sessions[row] = NULL;
    lode_kv_truncate(s->kv, s->length);
}

void lode_flight_drop(struct lode_workers *w) {
    for (uint32_t i = 0; i < w->flight.n; i++)
        if (w->flight.sessions[i])
            lode_kv_truncate(w->flight.sessions[i]->kv, w->flight.sessions[i]->length);
    w->flight.n = 0;
}

bool lode_flight_can(const struct lode_feed *feeds, size_t n_feeds) {
    if (n_feeds > lode_workers_draws(feeds[0].session->workers))
        return false;
    for (size_t i = 0; i < n_feeds; i++) {
        const struct lode_session *s = feeds[i].session;
        if (!s->draws || s->opts.trace || s->opts.routes || s->opts.guesses)
            return false;
    }
    return true;
}

/* Begins a step of feeds, `past` tokens after their sessions' last, with a draw after each. */
static int begin(const struct lode_feed *feeds, size_t n_feeds, uint32_t past, struct lode_error *err) {
    struct lode_workers *w = feeds[0].session->workers;
    const struct lode_session_opts *o = &feeds[0].session->opts;
    struct lode_step step = {.segments = w->segments, .tokens = w->tokens, .out_rows = w->out_rows};
    struct lode_draw draws[LODE_HEAD_ROWS_CUDA];
    struct lode_flight f = {.n = (uint32_t)n_feeds};
    LODE_TRY(lode_feeds_extend(feeds, n_feeds, past, err));
    for (size_t i = 0; i < n_feeds; i++) {
        struct lode_session *s = feeds[i].session;
        lode_feed_add(w, &step, &feeds[i], past, (uint32_t)feeds[i].n);
        w->out_rows[step.n_out++] = step.n_rows - 1;
        f.sessions[i] = s;
        draws[i] = s->draw;
        draws[i].u = lode_rng_uniform(s->seed, s->length + past + feeds[i].n, 0);
    }
    f.draw = lode_workers_begin(w, &step, draws, past ? NULL : o->cancel, o->cancel_user, err);
    for (size_t i = 0; f.draw < 0 && i < n_feeds; i++)
        lode_kv_truncate(feeds[i].session->kv, feeds[i].session->length + past);
    LODE_TRY(f.draw);
    w->flight = f;
    return 0;
}

/* Whether that is the step under way, or a part of it. */
static bool is_under_way(const struct lode_flight *f, const struct lode_feed *feeds, size_t n_feeds) {
    for (size_t i = 0; i < n_feeds; i++) {
        const struct lode_session *s = feeds[i].session;
        if (row_of(f, s) == f->n || !s->has_drawn || feeds[i].n != 1 || feeds[i].tokens[0] != s->drawn)
            return false;
    }
    return true;
}

/* Begins the step after `now`, which the feeds are rows of, for those that want it.  Where it cannot be it is
 * not: whoever asks for it then hears why. */
static void begin_next(const struct lode_flight *now, const struct lode_feed *feeds, size_t n_feeds) {
    struct lode_feed next[LODE_HEAD_ROWS_CUDA];
    int32_t tokens[LODE_HEAD_ROWS_CUDA];
    struct lode_error ignored;
    size_t n = 0;
    if (!feeds[0].session->workers->flies)
        return;
    for (size_t i = 0; i < n_feeds; i++) {
        struct lode_session *s = feeds[i].session;
        if (feeds[i].n != 1)
            return; /* the end of a prompt: what comes next is seldom these alone */
        if (!s->ahead || s->state || s->length + 1 >= s->ctx || !lode_kv_can_resume(s->kv, s->length + 1))
            continue;
        tokens[n] = -1 - (int32_t)row_of(now, s);
        next[n] = (struct lode_feed){s, &tokens[n], 1};
        n++;
    }
    if (n)
        begin(next, n, 1, &ignored);
}

int lode_flight_step(const struct lode_feed *feeds, size_t n_feeds, struct lode_error *err) {
    struct lode_workers *w = feeds[0].session->workers;
    int32_t ids[LODE_HEAD_ROWS_CUDA];
    int rc = 0;
    if (!is_under_way(&w->flight, feeds, n_feeds)) {
        lode_flight_drop(w);
        rc = begin(feeds, n_feeds, 0, err);
    }
    const struct lode_flight now = w->flight;
    w->flight.n = 0;
    for (uint32_t i = 0; rc == 0 && i < now.n; i++) { /* who was under way and is not asked for */
        size_t k = 0;
        while (k < n_feeds && feeds[k].session != now.sessions[i])
            k++;
        if (k == n_feeds && now.sessions[i])
            lode_kv_truncate(now.sessions[i]->kv, now.sessions[i]->length);
    }
    if (rc == 0)
        begin_next(&now, feeds, n_feeds);
    if (rc == 0)
        rc = lode_exec_drawn(w->stages[LODE_HEAD], now.draw, now.n, ids, err);
    if (rc < 0)
        lode_flight_drop(w);
    for (size_t i = 0; i < n_feeds; i++) {
        struct lode_session *s = feeds[i].session;
        s->has_logits = false;
        s->has_drawn = rc == 0;
        if (rc < 0)
            lode_kv_truncate(s->kv, s->length);
        else
            s->drawn = ids[row_of(&now, s)];
    }
    return rc;
}
