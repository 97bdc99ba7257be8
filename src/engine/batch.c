/* batch.c - what the next step evaluates, and whose pages make room for it.
 *
 * Every answer's last token comes first, then prompts, which share what is left evenly, so that a
 * short one does not wait for a long one; beside answers that is a chunk at most, so that no stream
 * waits for longer than its own step and a chunk.
 *
 * Who goes before whom is the queue's order.  A request that lacks pages gets those that only the tree
 * of prefixes holds, then those of requests that come after it, the last first, which go back to the
 * queue.  The first of all always gets what it needs, because any request fits alone.
 */
#include "engine/sched.h"

static void end_some(struct lode_scheduler *s, double t) {
    for (uint32_t i = 0; i < s->n_seats; i++) {
        struct lode_seat *seat = &s->seats[i];
        struct lode_generation *g = seat->g;
        if (g && g->abandoned) {
            lode_seat_leave(s, seat, LODE_ERR_CANCELLED);
        } else if (g && g->deadline > 0 && g->deadline <= t) {
            lode_fail(&g->err, LODE_ERR_LIMIT, "deadline",
                      "the request took %.1f s, as long as it may, with %zu tokens of its answer",
                      t - g->queued, g->n_generated);
            s->stats.expired++;
            lode_seat_leave(s, seat, LODE_ERR_LIMIT);
        }
    }
}

static size_t sort_seats(struct lode_scheduler *s) {
    size_t n = 0;
    for (uint32_t i = 0; i < s->n_seats; i++) {
        struct lode_seat *seat = &s->seats[i];
        size_t at = n;
        seat->fed = false;
        if (!seat->g)
            continue;
        while (at > 0 && lode_queue_before(seat->g, s->order[at - 1]->g)) {
            s->order[at] = s->order[at - 1];
            at--;
        }
        s->order[at] = seat;
        n++;
    }
    return n;
}

static size_t left(const struct lode_seat *seat) {
    return seat->g->n_tokens - lode_session_length(seat->session);
}

static bool is_paused(const struct lode_seat *seat) { return seat->g->n_ring == LODE_SCHED_RING; }

/* Whose pages are to go for those of order[i]: somebody who waits for a reader, or the last after it;
 * nobody who is in the step already. */
static struct lode_seat *victim(const struct lode_scheduler *s, size_t n, size_t i) {
    for (size_t k = n; k-- > 0;)
        if (k != i && s->order[k]->g && !s->order[k]->fed && is_paused(s->order[k]))
            return s->order[k];
    for (size_t k = n; k-- > i + 1;)
        if (s->order[k]->g && !s->order[k]->fed)
            return s->order[k];
    return NULL;
}

/* Pages for n more tokens of the seat, of those that nobody runs on. */
static bool has_pages(struct lode_scheduler *s, const struct lode_seat *seat, size_t n) {
    const uint32_t at = (uint32_t)lode_session_length(seat->session);
    for (uint32_t k = 0; k < lode_kv_pool_groups(s->pool); k++) {
        const uint32_t missing = lode_kv_missing(lode_session_kv(seat->session), k, at, (uint32_t)n);
        if (missing && !lode_prefix_reclaim(s->prefix, k, s->reserved[k] + missing))
            return false;
    }
    return true;
}

/* Adds up to `most` tokens of order[i]'s to the step: how many. */
static size_t feed(struct lode_scheduler *s, size_t n_order, size_t i, size_t most, size_t *n_feeds) {
    struct lode_seat *seat = s->order[i], *other;
    const size_t at = lode_session_length(seat->session);
    size_t n = most;
    while (n > 0 && !has_pages(s, seat, n)) {
        if ((other = victim(s, n_order, i)))
            lode_seat_preempt(s, other);
        else /* up to the last border of a page that is nearer */
            n = (at + n - 1) / LODE_KV_PAGE * LODE_KV_PAGE > at
                    ? (at + n - 1) / LODE_KV_PAGE * LODE_KV_PAGE - at
                    : 0;
    }
    if (n == 0)
        return 0;
    for (uint32_t k = 0; k < lode_kv_pool_groups(s->pool); k++)
        s->reserved[k] += lode_kv_missing(lode_session_kv(seat->session), k, (uint32_t)at, (uint32_t)n);
    seat->fed = true;
    s->fed[*n_feeds] = seat;
    s->feeds[(*n_feeds)++] = (struct lode_feed){seat->session, seat->g->tokens + at, n};
    return n;
}

static bool reads(const struct lode_seat *seat) { return seat->g && !is_paused(seat) && left(seat) > 1; }

static size_t count_readers(const struct lode_scheduler *s, size_t n) {
    size_t readers = 0;
    for (size_t i = 0; i < n; i++)
        readers += reads(s->order[i]);
    return readers;
}

/* Whose token after this step is likely to be the next step's: not where a prompt comes between, or the
 * answer ends, or its reader is behind. */
static void look_ahead(struct lode_scheduler *s, size_t n_feeds) {
    bool alone = !s->queue || !lode_seat_free(s);
    for (size_t i = 0; i < n_feeds; i++)
        alone = alone && s->feeds[i].n == 1 && !s->fed[i]->g->suspect;
    for (size_t i = 0; i < n_feeds; i++) {
        const struct lode_generation *g = s->fed[i]->g;
        s->fed[i]->ahead = alone && g->n_ring + 1 < LODE_SCHED_RING &&
                           (g->max_tokens < 0 || (int64_t)g->n_generated + 1 < g->max_tokens);
    }
}

static size_t form(struct lode_scheduler *s) {
    size_t n_feeds = 0;
    end_some(s, lode_clock());
    lode_seat_admit(s);
    const size_t n = sort_seats(s);
    for (uint32_t k = 0; k < lode_kv_pool_groups(s->pool); k++)
        s->reserved[k] = 0;
    for (size_t i = 0; i < n && n_feeds == 0; i++)
        if (s->order[i]->g && s->order[i]->g->suspect && !is_paused(s->order[i]))
            feed(s, n, i, left(s->order[i]) < s->batch ? left(s->order[i]) : s->batch, &n_feeds);
    if (n_feeds)
        return n_feeds;
    for (size_t i = 0; i < n; i++)
        if (s->order[i]->g && left(s->order[i]) == 1 && !is_paused(s->order[i]))
            feed(s, n, i, 1, &n_feeds);
    size_t room = s->batch - n_feeds;
    if (n_feeds && room > s->chunk)
        room = s->chunk;
    size_t readers = count_readers(s, n);
    for (size_t i = 0; i < n && room && readers; i++) {
        if (!reads(s->order[i]))
            continue;
        const size_t share = (room + readers - 1) / readers;
        room -= feed(s, n, i, left(s->order[i]) < share ? left(s->order[i]) : share, &n_feeds);
        readers = readers > 1 ? readers - 1 : 1;
    }
    return n_feeds;
}

size_t lode_batch_form(struct lode_scheduler *s) {
    const size_t n_feeds = form(s);
    look_ahead(s, n_feeds);
    return n_feeds;
}
