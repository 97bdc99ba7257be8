/* replay.c - what a cache would have made of a route trace, by a policy or with the future known.
 *
 * Belady's rule (1966): what is needed again latest leaves.  Here the experts of a token's layer must
 * all be there at once, so those already there for it are no choice; exchanging any other choice
 * for the rule's still never adds a read, which the test shows against all choices. */
#include "store/policy_parts.h"
#include "store/trace.h"

#include "base/alloc.h"

#include <string.h>

/* --- the optimum ---------------------------------------------------------------------------- */

/* Keys are set by the replay, before each use: the later the next use, the smaller. */
static void touch(struct lode_policy *p, uint32_t id) { policy_heap_moved(p, id); }
static void admit(struct lode_policy *p, uint32_t id) { policy_heap_push(p, id); }
static uint32_t victim(struct lode_policy *p) { return p->n_heap ? p->heap[0] : POLICY_NONE; }

static void take_out(struct lode_policy *p, uint32_t id, bool evicted) {
    (void)evicted;
    policy_heap_take(p, id);
}

static void pin(struct lode_policy *p, uint32_t id, bool pinned) {
    if (pinned)
        policy_heap_take(p, id);
    else
        policy_heap_push(p, id);
}

static const struct lode_policy_ops belady = {.name = "belady",
                                              .heap = true,
                                              .touch = touch,
                                              .admit = admit,
                                              .victim = victim,
                                              .remove = take_out,
                                              .pin = pin};

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

struct replay {
    const struct lode_trace *t;
    struct lode_policy *p;
    const uint32_t *next; /* of Belady's, else NULL */
    bool *seen;           /* (n_moe, n_experts) */
    struct lode_replay *out;
};

static void prepare(const struct replay *r, uint32_t id, uint32_t i_moe, size_t at) {
    if (!r->next)
        return;
    /* Of experts that the same token needs next, those of the later layer are needed later. */
    const uint64_t when = r->next[at] == UINT32_MAX
                              ? UINT64_MAX
                              : (uint64_t)r->next[at] * r->t->n_moe + i_moe;
    r->p->entries[id].key = UINT64_MAX - when;
}

static int miss(const struct replay *r, uint32_t id, uint64_t size, struct lode_error *err) {
    struct lode_policy *p = r->p;
    while (p->used + size > p->shape.capacity) {
        uint32_t gone;
        if (!lode_policy_victim(p, &gone))
            return lode_fail(err, LODE_ERR_LIMIT, "expert cache",
                             "%llu bytes do not hold the %u experts of one token and layer, of %llu "
                             "bytes each",
                             (unsigned long long)p->shape.capacity, r->t->shape.n_used,
                             (unsigned long long)size);
    }
    lode_policy_admit(p, id, size, false);
    return 0;
}

static int replay_step(const struct replay *r, size_t token, uint32_t i_moe, uint64_t size,
                       struct lode_error *err) {
    const uint32_t n = r->t->shape.n_used, first = i_moe * r->t->shape.n_experts;
    const uint16_t *experts = lode_trace_experts(r->t, token, i_moe);
    const size_t at = (token * r->t->n_moe + i_moe) * n;
    for (uint32_t k = 0; k < n; k++) { /* what is there stays */
        const uint32_t id = first + experts[k];
        if (!lode_policy_holds(r->p, id))
            continue;
        prepare(r, id, i_moe, at + k);
        lode_policy_touch(r->p, id);
        lode_policy_pin(r->p, id);
        r->out->hits++;
    }
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t id = first + experts[k];
        r->out->uses++;
        r->out->bytes_used += size;
        if (lode_policy_holds(r->p, id))
            continue;
        prepare(r, id, i_moe, at + k);
        LODE_TRY(miss(r, id, size, err));
        lode_policy_pin(r->p, id);
        r->out->bytes_read += size;
        r->out->first_reads += r->seen[id] ? 0 : size;
        r->seen[id] = true;
    }
    for (uint32_t k = 0; k < n; k++)
        lode_policy_unpin(r->p, first + experts[k]);
    return 0;
}

static int replay(const struct replay *r, struct lode_error *err) {
    const struct lode_trace *t = r->t;
    r->out->tokens = t->n_tokens;
    for (size_t i = 0; i < t->n_tokens; i++)
        for (uint32_t l = 0; l < t->shape.n_layers; l++)
            if (t->slot[l] != UINT32_MAX)
                LODE_TRY(replay_step(r, i, t->slot[l], t->expert_bytes[l], err));
    return 0;
}

int lode_trace_replay(const struct lode_trace *t, const char *policy, uint64_t capacity,
                      struct lode_replay *out, struct lode_error *err) {
    *out = (struct lode_replay){0};
    if (t->n_moe == 0)
        return lode_fail(err, LODE_ERR_FORMAT, t->name, "no layer of the trace has experts");
    const struct lode_policy_shape shape = {t->n_moe, t->shape.n_experts, capacity};
    struct replay r = {.t = t, .out = out};
    uint32_t *next = NULL;
    const bool optimum = policy && strcmp(policy, belady.name) == 0;
    LODE_TRY(optimum ? policy_create(&r.p, &belady, &shape, err)
                     : lode_policy_create(&r.p, policy, &shape, err));
    r.seen = LODE_NEW_ARRAY(bool, (size_t)t->n_moe * t->shape.n_experts);
    if (optimum)
        r.next = next = next_uses(t);
    const int rc = r.seen && (r.next || !optimum) ? replay(&r, err) : lode_fail_nomem(err, "replay");
    lode_free(next);
    lode_free(r.seen);
    lode_policy_free(r.p);
    return rc;
}
