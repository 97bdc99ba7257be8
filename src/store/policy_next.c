/* policy_next.c - what is least likely to be needed soon leaves: Belady's rule with chances in place of
 * the future.
 *
 * Layers take turns, so the next use of an expert is at the earliest when its layer comes round:
 * in a cache of a quarter of the experts that alone tells those that were just passed from those that
 * come next, which no order of uses does.  When a layer is visited, each of its experts is used with
 * some chance (chance.h), which changes from visit to visit while it is not.  An expert is worth
 *
 *     the mean of 2^-t,    t: rounds until it is used
 *
 * and not the mean of t itself: an expert of which little is known, or that comes in bursts, would
 * be judged by how long it may stay away, when all that matters is whether it comes before it has to leave.
 *
 * What the layer that is being visited does not want now is judged by what will then be known of it: that its turn
 * passed.  In a cache that holds just one token's experts this is what tells them from all others.
 *
 * A visit costs some 100 multiplications an expert; a victim a look at each layer's least, and at the experts of
 * those that changed since.  All of it is float32, without contraction: the same on every machine. */
#include "store/policy_parts.h"

#include "base/alloc.h"
#include "base/dmath.h"
#include "store/chance.h"

#include <string.h>

#define GONE (-1.0f) /* in place of a worth: not held, or pinned */

struct least { /* of a layer's worths */
    uint32_t id; /* POLICY_NONE: none can leave */
    bool known;
};

struct policy_next {
    uint32_t layer;               /* being visited; POLICY_NONE: none yet */
    bool over;                    /* that visit, as far as uses go */
    struct lode_chances *chances; /* owned, as all below */
    float (*ahead)[LODE_CHANCES_AHEAD]; /* (n_experts): of the visit that ends */
    float *worth;                 /* (n_ids): when its layer comes next */
    float *passed;                /* (n_ids): if it comes without a use */
    float *leaves;                /* (n_ids): its worth where it is held and not pinned, else GONE */
    bool *expected;               /* (n_ids): by who looks ahead, when its layer comes round */
    bool *used;                   /* (n_experts): in this visit */
    float *near;                  /* (n_layers + 1): what is left of a worth over so many layers */
    struct least *least;          /* (n_layers) */
    uint64_t *size;               /* (n_layers): of the expert that came last */
};

static void next_free(struct lode_policy *p) {
    struct policy_next *n = p->own;
    if (!n)
        return;
    void *const all[] = {n->ahead, n->worth, n->passed, n->leaves, n->expected, n->used, n->near, n->least, n->size};
    lode_chances_free(n->chances);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        lode_free(all[i]);
    lode_free(n);
    p->own = NULL;
}

static bool next_init(struct lode_policy *p) {
    struct policy_next *n = p->own = LODE_NEW(struct policy_next);
    const uint32_t n_layers = p->shape.n_layers, n_experts = p->shape.n_experts;
    if (!n)
        return false;
    n->chances = lode_chances_create(n_layers, n_experts);
    n->ahead = lode_alloc_zero(n_experts, sizeof *n->ahead);
    n->worth = LODE_NEW_ARRAY(float, p->n_ids);
    n->passed = LODE_NEW_ARRAY(float, p->n_ids);
    n->leaves = LODE_NEW_ARRAY(float, p->n_ids);
    n->expected = LODE_NEW_ARRAY(bool, p->n_ids);
    n->used = LODE_NEW_ARRAY(bool, n_experts);
    n->near = LODE_NEW_ARRAY(float, (size_t)n_layers + 1);
    n->least = LODE_NEW_ARRAY(struct least, n_layers);
    n->size = LODE_NEW_ARRAY(uint64_t, n_layers);
    if (!n->chances || !n->ahead || !n->worth || !n->passed || !n->leaves || !n->expected || !n->used || !n->near ||
        !n->least || !n->size)
        return false; /* next_free takes what there is */
    n->layer = POLICY_NONE;
    for (uint32_t i = 0; i < p->n_ids; i++) {
        n->worth[i] = n->passed[i] = 1; /* nothing is known */
        n->leaves[i] = GONE;
    }
    for (uint32_t l = 0; l <= n_layers; l++)
        n->near[l] = (float)lode_pow(2, -(double)l / n_layers);
    return true;
}

static void set(struct lode_policy *p, uint32_t id, float worth) {
    struct policy_next *n = p->own;
    n->leaves[id] = worth;
    n->least[id / p->shape.n_experts].known = false;
}

/* The mean of 2^-t, of chances of which the last is that of all visits from then on. */
static float worth_of(const float *chance, int n) {
    float sum = 0, left = 1; /* left: that it was not used so far, by half a round */
    for (int h = 0; h + 1 < n; h++) {
        sum += left * chance[h];
        left *= 0.5f * (1 - chance[h]);
    }
    return sum + left * chance[n - 1] / (0.5f + 0.5f * chance[n - 1]);
}

static void end_visit(struct lode_policy *p) {
    struct policy_next *n = p->own;
    if (n->layer == POLICY_NONE || n->over)
        return;
    const uint32_t n_experts = p->shape.n_experts, first = n->layer * n_experts;
    lode_chances_visit(n->chances, n->layer, n->used, n->ahead);
    for (uint32_t e = 0; e < n_experts; e++) {
        n->worth[first + e] = worth_of(n->ahead[e], LODE_CHANCES_AHEAD - 1);
        n->passed[first + e] = worth_of(n->ahead[e] + 1, LODE_CHANCES_AHEAD - 1);
        if (n->leaves[first + e] != GONE)
            n->leaves[first + e] = n->worth[first + e];
        n->used[e] = n->expected[first + e] = false;
    }
    n->least[n->layer].known = false;
    n->over = true;
}

static void visit(struct lode_policy *p, uint32_t id) {
    struct policy_next *n = p->own;
    const uint32_t layer = id / p->shape.n_experts;
    if (n->layer == layer && !n->over)
        return;
    end_visit(p);
    n->layer = layer;
    n->over = false;
}

static void touch(struct lode_policy *p, uint32_t id) {
    struct policy_next *n = p->own;
    visit(p, id);
    n->used[id % p->shape.n_experts] = true;
    n->expected[id] = false;
    if (n->leaves[id] != GONE)
        set(p, id, n->worth[id]);
}

static void admit(struct lode_policy *p, uint32_t id) {
    const struct policy_next *n = p->own;
    touch(p, id);
    n->size[n->layer] = p->entries[id].size;
    set(p, id, n->worth[id]);
}

static void expect(struct lode_policy *p, uint32_t id) {
    struct policy_next *n = p->own;
    n->expected[id] = true;
    if (n->leaves[id] != GONE)
        set(p, id, 1);
}

static void guess(struct lode_policy *p, uint32_t id) {
    struct policy_next *n = p->own;
    n->expected[id] = true;
    set(p, id, 1);
}

static void find_least(struct lode_policy *p, uint32_t layer) {
    const struct policy_next *n = p->own;
    const uint32_t first = layer * p->shape.n_experts;
    struct least *least = &n->least[layer];
    *least = (struct least){.id = POLICY_NONE, .known = true};
    for (uint32_t id = first; id < first + p->shape.n_experts; id++)
        if (n->leaves[id] != GONE && (least->id == POLICY_NONE || n->leaves[id] < n->leaves[least->id]))
            least->id = id;
}

/* Of the layer that is being visited. */
static float worth_here(const struct lode_policy *p, uint32_t id) {
    const struct policy_next *n = p->own;
    if (n->expected[id])
        return 1; /* in this very visit */
    const float w = n->over || n->used[id % p->shape.n_experts] ? n->worth[id] : n->passed[id];
    return w * n->near[p->shape.n_layers];
}

/* One that leaves less room than the layer at work wants takes another with it: it counts twice.  Else, where layers'
 * experts differ in size, half an expert's room would be left over most of the time. */
static float cost(const struct lode_policy *p, uint32_t id, float worth) {
    const struct policy_next *n = p->own;
    const uint64_t size = n->layer == POLICY_NONE ? 0 : n->size[n->layer], used = p->used + size;
    return used > p->shape.capacity && p->entries[id].size < used - p->shape.capacity ? 2 * worth : worth;
}

static uint32_t victim(struct lode_policy *p) {
    const struct policy_next *n = p->own;
    const uint32_t n_layers = p->shape.n_layers, n_experts = p->shape.n_experts;
    uint32_t best = POLICY_NONE;
    float least = 4;
    for (uint32_t l = 0; l < n_layers; l++) {
        if (l == n->layer) {
            for (uint32_t id = l * n_experts; id < (l + 1) * n_experts; id++)
                if (n->leaves[id] != GONE && cost(p, id, worth_here(p, id)) < least) {
                    least = cost(p, id, worth_here(p, id));
                    best = id;
                }
            continue;
        }
        if (!n->least[l].known)
            find_least(p, l);
        const uint32_t id = n->least[l].id, ahead = (l + n_layers - n->layer) % n_layers;
        const float w = id == POLICY_NONE ? 4 : cost(p, id, n->leaves[id] * n->near[ahead]);
        if (w < least) {
            least = w;
            best = id;
        }
    }
    return best;
}

static void take_out(struct lode_policy *p, uint32_t id, bool evicted) {
    (void)evicted;
    set(p, id, GONE);
}

static void pin(struct lode_policy *p, uint32_t id, bool pinned) {
    const struct policy_next *n = p->own;
    set(p, id, pinned ? GONE : n->expected[id] ? 1 : n->worth[id]);
}

const struct lode_policy_ops lode_policy_next = {.name = "next",
                                                 .init = next_init,
                                                 .deinit = next_free,
                                                 .visit = visit,
                                                 .end_visit = end_visit,
                                                 .touch = touch,
                                                 .admit = admit,
                                                 .guess = guess,
                                                 .expect = expect,
                                                 .victim = victim,
                                                 .remove = take_out,
                                                 .pin = pin};
