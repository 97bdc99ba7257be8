/* replay.c - what a cache would have made of a route trace, by a policy or with the future known, and in what time.
 *
 * Belady's rule (1966): what is needed again latest leaves.  Here the experts of a token's layer must
 * all be there at once, so those already there for it are no choice; exchanging any other choice
 * for the rule's still never adds a read, which the test shows against all choices.
 *
 * With guesses, what stream_guess.c does is done here: the trace says what was guessed, chances are averaged
 * as runtime/guess.c has them, and how much of it is read before it is asked for is a matter of time.  So
 * there is a clock: computing takes as long as memory takes for the weights, the disk reads meanwhile,
 * slower, and layers wait for what is not there.  What is called off is so in the middle of its reading. */
#include "store/foresight.h"
#include "store/policy_parts.h"
#include "store/replay_disk.h"
#include "store/trace.h"
#include "store/weight.h"

#include "base/alloc.h"

#include <math.h>
#include <string.h>

/* --- the optimum ---------------------------------------------------------------------------- */

/* Keys are set by the replay, before each use: the later the next use, the smaller. */
static void touch(struct lode_policy *p, uint32_t id) { policy_heap_moved(p, id); }
static void admit(struct lode_policy *p, uint32_t id) { policy_heap_push(p, id); }

static const struct lode_policy_ops belady = {.name = "belady",
                                              .heap = true,
                                              .touch = touch,
                                              .admit = admit,
                                              .victim = policy_heap_victim,
                                              .remove = policy_heap_remove,
                                              .pin = policy_heap_pin};

/* For each use in the trace the token of the next use of the same expert; owned by the caller. */
static uint32_t *next_uses(const struct lode_trace *t) {
    const uint32_t n_used = t->shape.n_used, n_experts = t->shape.n_experts;
    uint32_t *next = LODE_NEW_ARRAY(uint32_t, t->n_tokens * t->n_moe * n_used);
    uint32_t *seen = LODE_NEW_ARRAY(uint32_t, (size_t)t->n_moe * n_experts);
    if (next && seen) {
        memset(seen, 0xff, (size_t)t->n_moe * n_experts * sizeof *seen); /* never */
        for (size_t i = t->n_tokens; i-- > 0;)
            for (uint32_t m = 0; m < t->n_moe; m++)
                for (uint32_t k = 0; k < n_used; k++) {
                    const size_t at = (i * t->n_moe + m) * n_used + k;
                    uint32_t *s = &seen[m * n_experts + t->experts[at]];
                    next[at] = *s;
                    *s = (uint32_t)i;
                }
    } else {
        lode_free(next);
        next = NULL;
    }
    lode_free(seen);
    return next;
}

/* --- the replay ----------------------------------------------------------------------------- */

/* Of the disk's speed alone, what it has while all cores read memory (bench/disk_ceiling.c: 2.4 to 2.6 of 3.6). */
static const double busy_share = 0.7;

/* Guesses are in flight in so many pieces; each is of one of an expert's three matrices. */
enum { SENT_AT_ONCE = 4, PIECE = 512 << 10, MATRICES = 3 };

struct chances { /* of one guess of one layer, by its place in the order */
    struct lode_foresight of[LODE_TRACE_MAX_USED];
    bool away[LODE_TRACE_MAX_USED]; /* the last one was not there */
};

struct replay {
    const struct lode_trace *t;
    struct lode_policy *p;
    const uint32_t *next;    /* of Belady's, else NULL */
    bool *seen;              /* owned, as the next four; (n_ids): it has been used */
    bool *guessed;           /* (n_ids): held or read because it was guessed, and not used yet */
    struct replay_read *reads;
    uint32_t *missing;       /* (n_used): of a step, what is waited for */
    struct chances *chances; /* (n_moe, LODE_TRACE_WHENS); NULL: nothing is guessed */
    struct replay_disk disk;
    double ram, layer, wait; /* of the pace; ram 0: computing takes no time */
    struct lode_replay *out;
};

static double seconds_for(const struct replay *r, double bytes) { return r->ram > 0 ? bytes / r->ram : 0; }

static uint64_t bytes_of(const struct replay *r, uint32_t id) {
    return r->t->moe_bytes[id / r->t->shape.n_experts];
}

static void arrive(struct replay *r, uint32_t id) {
    if (id == REPLAY_NOTHING)
        return;
    r->out->bytes_read += bytes_of(r, id);
    lode_policy_unpin(r->p, id); /* the read's own */
}

static void compute(struct replay *r, double seconds) {
    for (uint32_t id; replay_disk_pass(&r->disk, &seconds, true, &id);)
        arrive(r, id);
}

/* Until it has been read. */
static void wait_for(struct replay *r, uint32_t id) {
    while (replay_disk_find(&r->disk, id)) {
        double seconds = INFINITY;
        uint32_t done;
        if (replay_disk_pass(&r->disk, &seconds, false, &done))
            arrive(r, done);
    }
}

static void call_off(struct replay *r, uint32_t id) {
    uint64_t read;
    if (!replay_disk_cancel(&r->disk, id, &read))
        return;
    r->out->bytes_read += read;
    r->out->bytes_wrong += read;
    r->guessed[id] = false;
    lode_policy_unpin(r->p, id);
    lode_policy_remove(r->p, id);
}

/* All guesses that are still read, but these. */
static void call_off_all(struct replay *r, const uint16_t *but, uint32_t first) {
    for (uint32_t i = r->disk.n; i-- > 0;) {
        bool named = i >= r->disk.n || r->disk.at[i].haste != REPLAY_GUESSED;
        for (uint32_t k = 0; but && k < r->t->shape.n_used; k++)
            named |= first + but[k] == r->disk.at[i].id;
        if (!named)
            call_off(r, r->disk.at[i].id);
    }
}

static bool make_room(struct replay *r, uint64_t size) {
    while (r->p->used + size > r->p->shape.capacity) {
        uint32_t gone;
        if (!lode_policy_victim(r->p, &gone))
            return false;
        r->out->bytes_wrong += r->guessed[gone] ? bytes_of(r, gone) : 0;
        r->guessed[gone] = false;
    }
    return true;
}

static void start_read(struct replay *r, uint32_t id, uint64_t size, bool guess) {
    lode_policy_admit(r->p, id, size, guess);
    lode_policy_pin(r->p, id);
    replay_disk_add(&r->disk, id, size, !guess);
}

/* --- guesses --- */

static void want(struct replay *r, size_t token, uint32_t i_moe, enum lode_trace_when when) {
    const uint16_t *guess = r->chances ? lode_trace_guess(r->t, token, i_moe, when) : NULL;
    const uint32_t first = i_moe * r->t->shape.n_experts;
    if (!guess)
        return;
    call_off_all(r, guess, first);
    struct chances *c = &r->chances[i_moe * LODE_TRACE_WHENS + when];
    for (uint32_t k = 0; k < r->t->shape.n_used && k < LODE_GUESSES; k++) {
        const uint32_t id = first + guess[k];
        const uint64_t size = r->t->moe_bytes[i_moe];
        const bool held = lode_policy_holds(r->p, id), comes = held && replay_disk_find(&r->disk, id);
        c->away[k] = !held || comes;
        if (held) {
            lode_policy_expect(r->p, id);
            if (comes)
                replay_disk_move(&r->disk, id, false); /* in the order that is wanted now */
        } else if (c->of[k].chance >= LODE_FORESIGHT_LEAST && make_room(r, size)) {
            start_read(r, id, size, true);
            r->guessed[id] = true;
        }
    }
}

/* How good they were, against what is chosen. */
static void compare(struct replay *r, size_t token, uint32_t i_moe) {
    const uint32_t n = r->t->shape.n_used;
    const uint16_t *chosen = lode_trace_experts(r->t, token, i_moe);
    for (int when = 0; r->chances && when < LODE_TRACE_WHENS; when++) {
        struct chances *c = &r->chances[i_moe * LODE_TRACE_WHENS + (uint32_t)when];
        const uint16_t *guess = lode_trace_guess(r->t, token, i_moe, (enum lode_trace_when)when);
        for (uint32_t k = 0; guess && k < n; k++) {
            if (!c->away[k])
                continue;
            bool right = false;
            for (uint32_t j = 0; j < n; j++)
                right |= chosen[j] == guess[k];
            lode_foresight_add(&c->of[k], right);
        }
    }
}

/* --- a layer --- */

static void prepare(const struct replay *r, uint32_t id, uint32_t i_moe, size_t at) {
    if (!r->next)
        return;
    /* Of experts that the same token needs next, those of the later layer are needed later. */
    const uint64_t when = r->next[at] == UINT32_MAX
                              ? UINT64_MAX
                              : (uint64_t)r->next[at] * r->t->n_moe + i_moe;
    r->p->entries[id].key = UINT64_MAX - when;
}

/* A guess that is still to come; REPLAY_NOTHING: none is. */
static uint32_t find_guess(const struct replay *r) {
    for (uint32_t i = 0; i < r->disk.n; i++)
        if (r->disk.at[i].id != REPLAY_NOTHING && r->guessed[r->disk.at[i].id])
            return r->disk.at[i].id;
    return REPLAY_NOTHING;
}

static int miss(struct replay *r, uint32_t id, uint64_t size, struct lode_error *err) {
    bool room = make_room(r, size);
    if (!room) { /* what is guessed has it */
        call_off_all(r, NULL, 0);
        room = make_room(r, size);
    }
    for (uint32_t guess; !room && (guess = find_guess(r)) != REPLAY_NOTHING; room = make_room(r, size))
        wait_for(r, guess);
    if (!room)
        return lode_fail(err, LODE_ERR_LIMIT, "expert cache",
                         "%llu bytes do not hold the %u experts of one token and layer, of %llu "
                         "bytes each",
                         (unsigned long long)r->p->shape.capacity, r->t->shape.n_used,
                         (unsigned long long)size);
    start_read(r, id, size, false);
    return 0;
}

/* One that is there, or on its way. */
static void hit(struct replay *r, uint32_t id) {
    lode_policy_touch(r->p, id);
    r->out->hits++;
    r->out->guessed += r->guessed[id];
    r->guessed[id] = false;
    if (replay_disk_find(&r->disk, id))
        replay_disk_move(&r->disk, id, true);
}

static int ask(struct replay *r, size_t token, uint32_t i_moe, struct lode_error *err) {
    const uint32_t n = r->t->shape.n_used, first = i_moe * r->t->shape.n_experts;
    const uint16_t *experts = lode_trace_experts(r->t, token, i_moe);
    const size_t at = (token * r->t->n_moe + i_moe) * n;
    const uint64_t size = r->t->moe_bytes[i_moe];
    lode_policy_visit(r->p, first);
    for (uint32_t k = 0; k < n; k++) { /* what is there stays */
        const uint32_t id = first + experts[k];
        r->out->uses++;
        r->out->bytes_used += size;
        r->out->first_reads += r->seen[id] ? 0 : size;
        r->seen[id] = true;
        if (!lode_policy_holds(r->p, id))
            continue;
        prepare(r, id, i_moe, at + k);
        hit(r, id);
        lode_policy_pin(r->p, id);
    }
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t id = first + experts[k];
        if (lode_policy_holds(r->p, id))
            continue;
        prepare(r, id, i_moe, at + k);
        LODE_TRY(miss(r, id, size, err));
        lode_policy_pin(r->p, id);
    }
    return 0;
}

static int replay_step(struct replay *r, size_t token, uint32_t i_moe, struct lode_error *err) {
    const struct lode_trace_shape *s = &r->t->shape;
    const uint32_t first = i_moe * s->n_experts;
    const uint16_t *experts = lode_trace_experts(r->t, token, i_moe);
    const double each = seconds_for(r, (double)r->t->moe_bytes[i_moe]);
    want(r, token, i_moe, LODE_TRACE_LATE);
    compute(r, seconds_for(r, (double)(s->other_bytes - s->head_bytes) / r->t->n_moe) + r->layer);
    LODE_TRY(ask(r, token, i_moe, err));
    call_off_all(r, NULL, 0);
    compare(r, token, i_moe);
    if (i_moe + 1 < r->t->n_moe)
        want(r, token, i_moe + 1, LODE_TRACE_EARLY);
    uint32_t n_missing = 0;
    for (uint32_t k = 0; k < s->n_used; k++) { /* what is there first */
        if (replay_disk_find(&r->disk, first + experts[k]))
            r->missing[n_missing++] = first + experts[k];
        else
            compute(r, each);
    }
    for (uint32_t k = 0; k < n_missing; k++) {
        if (k == 0 && replay_disk_find(&r->disk, r->missing[k]))
            r->disk.seconds += r->wait; /* before the disk is at its rate: nothing comes */
        wait_for(r, r->missing[k]);
        compute(r, each);
    }
    for (uint32_t k = 0; k < s->n_used; k++)
        lode_policy_unpin(r->p, first + experts[k]);
    return 0;
}

static int replay(struct replay *r, struct lode_error *err) {
    const struct lode_trace *t = r->t;
    r->out->tokens = t->n_tokens;
    for (size_t i = 0; i < t->n_tokens; i++) {
        for (uint32_t m = 0; m < t->n_moe; m++)
            LODE_TRY(replay_step(r, i, m, err));
        compute(r, seconds_for(r, (double)t->shape.head_bytes));
    }
    r->out->seconds = r->disk.seconds;
    return 0;
}

static bool make_buffers(struct replay *r, bool guesses) {
    const struct lode_trace *t = r->t;
    const size_t n_ids = (size_t)t->n_moe * t->shape.n_experts;
    r->seen = LODE_NEW_ARRAY(bool, n_ids);
    r->guessed = LODE_NEW_ARRAY(bool, n_ids);
    r->reads = LODE_NEW_ARRAY(struct replay_read, n_ids + 1);
    r->missing = LODE_NEW_ARRAY(uint32_t, t->shape.n_used);
    r->disk.at = r->reads;
    if (guesses) {
        const size_t n = (size_t)t->n_moe * LODE_TRACE_WHENS;
        r->chances = LODE_NEW_ARRAY(struct chances, n);
        for (size_t i = 0; r->chances && i < n; i++)
            for (uint32_t k = 0; k < LODE_TRACE_MAX_USED; k++)
                r->chances[i].of[k] = (struct lode_foresight)LODE_FORESIGHT;
    }
    return r->seen && r->guessed && r->reads && r->missing && (r->chances || !guesses);
}

int lode_trace_replay_at(const struct lode_trace *t, const char *policy, uint64_t capacity,
                         const struct lode_replay_pace *pace, bool guesses, struct lode_replay *out,
                         struct lode_error *err) {
    *out = (struct lode_replay){0};
    if (t->n_moe == 0)
        return lode_fail(err, LODE_ERR_FORMAT, t->name, "no layer of the trace has experts");
    const struct lode_policy_shape shape = {t->n_moe, t->shape.n_experts, capacity};
    struct replay r = {.t = t, .out = out};
    if (pace) {
        r.ram = pace->ram;
        r.layer = pace->layer;
        r.wait = pace->wait;
        r.disk.rate = pace->disk;
        r.disk.rate_busy = busy_share * pace->disk;
        const double matrix = (double)t->moe_bytes[0] / MATRICES;
        r.disk.sent = SENT_AT_ONCE * (matrix < PIECE ? matrix : PIECE);
    }
    uint32_t *next = NULL;
    const bool optimum = policy && strcmp(policy, belady.name) == 0;
    LODE_TRY(optimum ? policy_create(&r.p, &belady, &shape, err)
                     : lode_policy_create(&r.p, policy, &shape, err));
    if (optimum)
        r.next = next = next_uses(t);
    const bool made = make_buffers(&r, guesses && t->guesses && !optimum);
    const int rc = made && (r.next || !optimum) ? replay(&r, err) : lode_fail_nomem(err, "replay");
    void *const all[] = {next, r.seen, r.guessed, r.reads, r.missing, r.chances};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        lode_free(all[i]);
    lode_policy_free(r.p);
    return rc;
}

int lode_trace_replay(const struct lode_trace *t, const char *policy, uint64_t capacity,
                      struct lode_replay *out, struct lode_error *err) {
    return lode_trace_replay_at(t, policy, capacity, NULL, false, out, err);
}
