/* seat.c - requests get a session, with what the tree has of them, and leave it, with what they have
 * added to the tree. */
#include "engine/sched.h"

enum { STATES_APART = 1024 }; /* positions between the copies of a recurrent state that are kept */
#define FETCH_BESIDE 0.02 /* seconds at the disk between steps of others, */
#define FETCH_ALONE 0.2   /* and before looking whether the request is still wanted */

static uint32_t pages_of(size_t n_tokens) {
    return (uint32_t)((n_tokens + LODE_KV_PAGE - 1) / LODE_KV_PAGE);
}

/* Pages that a request comes to hold with what is known of it and the token after. */
static uint32_t wants(const struct lode_scheduler *s, const struct lode_generation *g, uint32_t group) {
    const uint32_t most = lode_kv_pool_group(s->pool, group)->n_entries;
    const uint32_t n = pages_of(g->n_tokens + 1);
    return n < most ? n : most;
}

/* Whether g's pages, found ones included, fit beside those that the running ones hold or will need
 * for what is known of them.  What only the tree holds can go. */
static bool has_pages(const struct lode_scheduler *s, const struct lode_generation *g,
                      const struct lode_prefix_match *m, uint32_t running) {
    if (running == 0)
        return true; /* any request fits alone */
    for (uint32_t k = 0; k < lode_kv_pool_groups(s->pool); k++) {
        const struct lode_kv_group *group = lode_kv_pool_group(s->pool, k);
        uint64_t used = wants(s, g, k);
        if (!group->window) /* windows share too, but not for long */
            used = used - m->pinned + lode_prefix_pinned(s->prefix, k) + running;
        for (uint32_t i = 0; i < s->n_seats; i++) {
            const struct lode_seat *seat = &s->seats[i];
            const uint32_t depth = lode_prefix_depth(seat->at);
            if (seat->g && group->window)
                used += wants(s, seat->g, k);
            else if (seat->g && wants(s, seat->g, k) > depth)
                used += wants(s, seat->g, k) - depth;
        }
        if (used > group->n_pages)
            return false;
    }
    return true;
}

struct lode_seat *lode_seat_free(struct lode_scheduler *s) {
    for (uint32_t i = 0; i < s->n_seats; i++)
        if (!s->seats[i].g)
            return &s->seats[i];
    return NULL;
}

/* The first that can go on: not one that waits for another's prompt, or for its reader. */
static struct lode_generation *first_ready(const struct lode_scheduler *s) {
    struct lode_generation *g = s->queue;
    while (g && (g->like || g->n_ring == LODE_SCHED_RING))
        g = g->next;
    return g;
}

static void seat_down(struct lode_scheduler *s, struct lode_seat *seat, struct lode_generation *g) {
    lode_queue_remove(s, g);
    g->state = LODE_SCHED_RUNNING;
    seat->g = g;
    seat->state_at = NULL;
    if (g->started > 0)
        return;
    g->started = lode_clock();
    s->stats.started++;
    s->stats.queue_seconds += g->started - g->queued;
    s->share = g->share > s->share ? g->share : s->share;
    g->n_reused = g->n_read;
    s->stats.prompt_tokens += g->n_prompt;
    s->stats.reused_tokens += g->n_reused;
}

/* What the tree has of it, and the disk; false: it is not all there yet. */
static bool find(struct lode_scheduler *s, struct lode_generation *g, uint32_t running,
                 struct lode_prefix_match *m) {
    uint32_t most = g->no_cache ? 0 : (uint32_t)g->n_tokens - 1;
    if (g->given && g->given_next < g->n_prompt && g->given_next <= most)
        most = (uint32_t)g->given_next - 1; /* the token before it is evaluated */
    *m = lode_prefix_find(s->prefix, g->tokens, most);
    if (!s->keeper || g->fetched || m->n + LODE_KV_PAGE > most || !has_pages(s, g, m, running))
        return true;
    g->fetched = lode_keeper_fetch(s->keeper, g->tokens, most, running ? FETCH_BESIDE : FETCH_ALONE);
    *m = lode_prefix_find(s->prefix, g->tokens, most);
    return g->fetched;
}

static uint32_t count_running(const struct lode_scheduler *s) {
    uint32_t running = 0;
    for (uint32_t i = 0; i < s->n_seats; i++)
        running += s->seats[i].g != NULL;
    return running;
}

void lode_seat_admit(struct lode_scheduler *s) {
    struct lode_generation *g;
    struct lode_seat *seat;
    s->fetching = false;
    while ((seat = lode_seat_free(s)) && (g = first_ready(s))) {
        const uint32_t running = count_running(s);
        struct lode_prefix_match m;
        if (!find(s, g, running, &m)) {
            s->fetching = true;
            return;
        }
        if (!has_pages(s, g, &m, running))
            return;
        lode_prefix_enter(s->prefix, &m, lode_session_kv(seat->session),
                          lode_session_state(seat->session));
        lode_session_place(seat->session, g->tokens, m.n);
        seat->at = m.at;
        g->n_read = m.n < g->n_prompt ? m.n : g->n_prompt;
        if (g->started > 0)
            s->stats.recomputed_tokens += g->n_tokens - 1 - m.n;
        seat_down(s, seat, g);
    }
}

size_t lode_seat_fork(struct lode_scheduler *s, struct lode_seat *from, size_t n) {
    for (struct lode_generation *g = s->queue, *next; g; g = next) {
        next = g->next;
        if (g->like != from->g)
            continue;
        g->like = NULL;
        struct lode_seat *seat = lode_seat_free(s);
        if (!seat) /* it waits like others, and finds most in the tree */
            continue;
        g->n_read = g->n_prompt;
        seat_down(s, seat, g);
        lode_session_fork(seat->session, from->session);
        seat->at = from->at;
        lode_prefix_pin(s->prefix, seat->at);
        s->stats.forks++;
        s->fed[n++] = seat;
    }
    return n;
}

/* ---- what stays ---- */

/* A copy of the state at the last checkpoint.  Of those that one sequence leaves, the newest stays,
 * that of the end of its prompt, and one now and then. */
static void publish_state(struct lode_scheduler *s, struct lode_seat *seat) {
    const struct lode_state *state = lode_session_state(seat->session);
    const uint32_t n = state ? lode_state_newest(state, (uint32_t)lode_session_length(seat->session)) : 0;
    struct lode_prefix_node *node = seat->at, *last = seat->state_at;
    if (n == 0 || n % LODE_KV_PAGE || lode_prefix_depth(node) * LODE_KV_PAGE < n)
        return;
    while (lode_prefix_depth(node) * LODE_KV_PAGE > n)
        node = lode_prefix_parent(node);
    if (lode_prefix_state_of(s->prefix, node))
        return;
    void *copy = lode_prefix_state(s->prefix, node);
    if (!copy || !lode_state_checkpoint(state, n, copy))
        return;
    seat->state_at = node;
    if (!last)
        return;
    const uint32_t before = lode_prefix_depth(last) * LODE_KV_PAGE;
    if ((before <= seat->g->n_prompt) == (n <= seat->g->n_prompt) &&
        before / STATES_APART == n / STATES_APART)
        lode_prefix_forget_state(s->prefix, last);
}

void lode_seat_publish(struct lode_scheduler *s, struct lode_seat *seat) {
    const int32_t *tokens = lode_session_tokens(seat->session);
    const size_t n = lode_session_length(seat->session);
    struct lode_kv *kv = lode_session_kv(seat->session);
    if (!s->keep)
        return;
    for (;;) {
        const size_t at = (size_t)lode_prefix_depth(seat->at) * LODE_KV_PAGE;
        if (at + LODE_KV_PAGE > n)
            break;
        struct lode_prefix_node *node =
            lode_prefix_add(s->prefix, seat->at, tokens + at, LODE_KV_PAGE, kv);
        if (!node)
            return;
        lode_prefix_advance(s->prefix, node);
        seat->at = node;
        if (s->keeper)
            lode_keeper_save(s->keeper, node, LODE_DISK_PAGES);
    }
    publish_state(s, seat);
}

void lode_seat_save_state(struct lode_scheduler *s, struct lode_seat *seat) {
    if (s->keeper && seat->state_at && lode_prefix_state_of(s->prefix, seat->state_at))
        lode_keeper_save(s->keeper, seat->state_at, LODE_DISK_STATE);
}

static void empty(struct lode_scheduler *s, struct lode_seat *seat, bool good) {
    const size_t n = lode_session_length(seat->session);
    const size_t at = (size_t)lode_prefix_depth(seat->at) * LODE_KV_PAGE;
    if (s->keep && good && n > at && n - at < LODE_KV_PAGE && !lode_session_state(seat->session))
        lode_prefix_add(s->prefix, seat->at, lode_session_tokens(seat->session) + at,
                        (uint32_t)(n - at), lode_session_kv(seat->session));
    lode_seat_save_state(s, seat);
    lode_session_truncate(seat->session, 0, NULL);
    lode_prefix_unpin(s->prefix, seat->at);
    seat->at = lode_prefix_root(s->prefix);
    seat->g = NULL;
}

void lode_seat_leave(struct lode_scheduler *s, struct lode_seat *seat, int result) {
    struct lode_generation *g = seat->g;
    empty(s, seat, result >= 0 || result == LODE_ERR_CANCELLED);
    lode_sched_finish(g, result);
}

void lode_seat_preempt(struct lode_scheduler *s, struct lode_seat *seat) {
    struct lode_generation *g = seat->g;
    empty(s, seat, true);
    g->n_preempted++;
    s->stats.preemptions++;
    lode_queue_return(s, g);
}
