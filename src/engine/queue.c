/* queue.c - who is next.
 *
 * Higher priorities first.  Within one, clients share fairly: a request begins where its client's
 * last one ends on a line that advances by the tokens served (start-time fair queueing: Goyal, Vin,
 * Cheng 1996), so that somebody who sends a hundred requests at once waits behind another's first.
 * One client's own come by their deadlines: what is due earlier takes the place of what is due later,
 * which takes the next; so nobody gains on other clients by being in a hurry.  A request without a
 * deadline counts as due a minute after it came, so those in a hurry pass it for so long and no longer.
 * A preempted request keeps its place in this order.
 */
#include "engine/sched.h"

#include <string.h>

enum {
    TYPICAL_ANSWER = 256, /* tokens, where a request says no limit */
    DUE = 60,             /* seconds after it came, where a request says no deadline */
};

bool lode_queue_before(const struct lode_generation *a, const struct lode_generation *b) {
    if (a->priority != b->priority)
        return a->priority > b->priority;
    return a->share != b->share ? a->share < b->share : a->turn < b->turn;
}

static void insert(struct lode_scheduler *s, struct lode_generation *g) {
    struct lode_generation **at = &s->queue;
    while (*at && !lode_queue_before(g, *at))
        at = &(*at)->next;
    g->next = *at;
    *at = g;
    g->state = LODE_SCHED_QUEUED;
    s->stats.waiting++;
}

static double due(const struct lode_generation *g) {
    return g->deadline > 0 ? g->deadline : g->queued + DUE;
}

/* g takes the place of the first of its client's that is due later, that one the place of the next, and
 * so on: who is left over has the last place. */
static struct lode_generation *push_back(struct lode_scheduler *s, struct lode_generation *g) {
    struct lode_generation *left = g;
    for (struct lode_generation **at = &s->queue; *at; at = &(*at)->next) {
        struct lode_generation *q = *at;
        if (q->client != g->client || q->priority != g->priority || (left == g && due(q) <= due(g)))
            continue;
        const double share = left->share;
        const uint64_t turn = left->turn;
        left->share = q->share;
        left->turn = q->turn;
        q->share = share;
        q->turn = turn;
        left->next = q->next;
        *at = left;
        left = q;
    }
    return left;
}

int lode_queue_add(struct lode_scheduler *s, struct lode_generation *g, struct lode_error *err) {
    /* free seats count: requests that the thread has not yet placed are no queue */
    if (s->stats.waiting >= s->max_queue + (s->n_seats - s->stats.running)) {
        s->stats.refused++;
        return lode_fail(err, LODE_ERR_LIMIT, "queue",
                         "%u requests run and %u wait, which is as many as may: try again later",
                         s->stats.running, s->stats.waiting);
    }
    double *client = &s->shares[g->client % LODE_SCHED_CLIENTS];
    const double answer = g->max_tokens < 0 ? TYPICAL_ANSWER : (double)g->max_tokens;
    g->share = *client > s->share ? *client : s->share;
    *client = g->share + (double)g->n_prompt + answer;
    g->number = g->turn = s->arrivals++;
    g->queued = lode_clock();
    g->state = LODE_SCHED_QUEUED;
    insert(s, push_back(s, g));
    return 0;
}

void lode_queue_return(struct lode_scheduler *s, struct lode_generation *g) { insert(s, g); }

void lode_queue_remove(struct lode_scheduler *s, struct lode_generation *g) {
    struct lode_generation **at = &s->queue;
    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    g->next = NULL;
    s->stats.waiting--;
}

size_t lode_queue_place(const struct lode_scheduler *s, const struct lode_generation *g) {
    size_t place = 1;
    for (const struct lode_generation *q = s->queue; q != g; q = q->next)
        place++;
    return place;
}

void lode_queue_forget(struct lode_scheduler *s, const struct lode_generation *g) {
    for (struct lode_generation *q = s->queue; q; q = q->next)
        if (q->like == g)
            q->like = NULL;
}

double lode_queue_expire(struct lode_scheduler *s, double now) {
    double next = 0;
    for (struct lode_generation *g = s->queue, *after; g; g = after) {
        after = g->next;
        if (g->deadline > 0 && g->deadline <= now) {
            lode_fail(&g->err, LODE_ERR_LIMIT, "deadline",
                      "the request waited %.1f s, as long as it may: try again later", now - g->queued);
            lode_queue_remove(s, g);
            s->stats.expired++;
            lode_sched_finish(g, LODE_ERR_LIMIT);
        } else if (g->deadline > 0 && (next == 0 || g->deadline < next)) {
            next = g->deadline;
        }
    }
    return next;
}
