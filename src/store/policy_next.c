/* policy_next.c - what is expected to be needed again latest leaves: Belady's rule with an estimate in
 * place of the future.
 *
 * Layers take turns, so the next use of an expert is at the earliest when its layer comes round:
 * in a cache of a quarter of the experts that alone tells those that were just passed from those that
 * come next, which no order of uses does.  When a layer is visited, each of its experts is used with
 * some chance p; if visits were independent, the next use would be 1 / p - 1 rounds after the first
 * chance:
 *
 *     wait(expert) = layers until its own + n_layers (1 / p - 1)
 *
 * p is a weighted sum of how often the expert was used of late, for four meanings of "of late"
 * (averages that halve in 1, 8, 64 and 512 visits).  The weights are learned while it runs, by
 * normalised least mean squares over what each visit turns out to use, so that a text that sticks to
 * few experts and one that wanders both get their due.
 *
 * A visit costs 5 n_experts multiplications, a victim one pass over a float an id.  All of it is
 * float32 without contraction: the same on every machine. */
#include "store/policy_parts.h"

#include "base/alloc.h"

#include <math.h>
#include <string.h>

enum { AVERAGES = 4 };

static const float keep[AVERAGES] = {0.5f, 0.917004043f, 0.989228013f, 0.998647140f};

struct policy_next {
    uint32_t layer;            /* being visited; POLICY_NONE: none yet */
    float weight[AVERAGES];    /* of the averages */
    float (*average)[AVERAGES]; /* owned; (n_ids) */
    float *rounds;             /* owned; (n_ids): 1 / p - 1 */
    float *leaves;             /* owned; (n_ids): the same of what is held and not pinned, else -1 */
    bool *expected;            /* owned; (n_ids): by who looks ahead, when its layer comes round */
    bool *used;                /* owned; (n_experts): in this visit */
    uint32_t *visits;          /* owned; (n_layers) */
};

static void next_free(struct lode_policy *p) {
    struct policy_next *n = p->own;
    if (!n)
        return;
    lode_free(n->average);
    lode_free(n->rounds);
    lode_free(n->leaves);
    lode_free(n->expected);
    lode_free(n->used);
    lode_free(n->visits);
    lode_free(n);
    p->own = NULL;
}

static bool next_init(struct lode_policy *p) {
    struct policy_next *n = p->own = LODE_NEW(struct policy_next);
    if (!n)
        return false;
    n->average = lode_alloc_zero(p->n_ids, sizeof *n->average);
    n->rounds = LODE_NEW_ARRAY(float, p->n_ids);
    n->leaves = LODE_NEW_ARRAY(float, p->n_ids);
    n->expected = LODE_NEW_ARRAY(bool, p->n_ids);
    n->used = LODE_NEW_ARRAY(bool, p->shape.n_experts);
    n->visits = LODE_NEW_ARRAY(uint32_t, p->shape.n_layers);
    if (!n->average || !n->rounds || !n->leaves || !n->expected || !n->used || !n->visits)
        return false; /* next_free takes what there is */
    n->layer = POLICY_NONE;
    for (int a = 0; a < AVERAGES; a++)
        n->weight[a] = 1.0f / AVERAGES;
    for (uint32_t i = 0; i < p->n_ids; i++)
        n->leaves[i] = -1;
    return true;
}

static float chance(const struct policy_next *n, uint32_t id) {
    float sum = 0;
    for (int a = 0; a < AVERAGES; a++)
        sum += n->weight[a] * n->average[id][a];
    return sum;
}

/* The visit is over: what was said before it is held against what came, and both are remembered. */
static void end_visit(struct lode_policy *p) {
    struct policy_next *n = p->own;
    const uint32_t n_experts = p->shape.n_experts, first = n->layer * n_experts;
    float step[AVERAGES] = {0}, size = 1e-6f;
    for (uint32_t e = 0; e < n_experts; e++) {
        const float missed = (n->used[e] ? 1.0f : 0.0f) - chance(n, first + e);
        for (int a = 0; a < AVERAGES; a++) {
            step[a] += missed * n->average[first + e][a];
            size += n->average[first + e][a] * n->average[first + e][a];
        }
    }
    const float rate = 0.05f / size;
    for (int a = 0; a < AVERAGES; a++)
        n->weight[a] = fmaxf(n->weight[a] + rate * step[a], 0);
    const float young = 1.0f / (float)++n->visits[n->layer]; /* at first, plain averages */
    for (uint32_t e = 0; e < n_experts; e++) {
        float *average = n->average[first + e];
        for (int a = 0; a < AVERAGES; a++) {
            const float k = fminf(keep[a], 1 - young);
            average[a] = k * average[a] + (n->used[e] ? 1 - k : 0);
        }
        const float c = fminf(fmaxf(chance(n, first + e), 1e-5f), 1);
        n->rounds[first + e] = 1 / c - 1;
        if (n->leaves[first + e] >= 0)
            n->leaves[first + e] = n->rounds[first + e];
        n->used[e] = n->expected[first + e] = false;
    }
}

static void use(struct lode_policy *p, uint32_t id) {
    struct policy_next *n = p->own;
    const uint32_t layer = id / p->shape.n_experts;
    if (n->layer != layer) {
        if (n->layer != POLICY_NONE)
            end_visit(p);
        n->layer = layer;
    }
    n->used[id % p->shape.n_experts] = true;
}

static void touch(struct lode_policy *p, uint32_t id) { use(p, id); }

static void admit(struct lode_policy *p, uint32_t id) {
    struct policy_next *n = p->own;
    use(p, id);
    n->leaves[id] = n->rounds[id];
}

static void expect(struct lode_policy *p, uint32_t id) {
    struct policy_next *n = p->own;
    n->expected[id] = true;
    if (n->leaves[id] >= 0)
        n->leaves[id] = 0;
}

static void guess(struct lode_policy *p, uint32_t id) {
    struct policy_next *n = p->own;
    n->leaves[id] = 0;
    n->expected[id] = true;
}

static uint32_t victim(struct lode_policy *p) {
    const struct policy_next *n = p->own;
    const uint32_t n_layers = p->shape.n_layers, n_experts = p->shape.n_experts;
    uint32_t best = POLICY_NONE;
    float longest = -1;
    for (uint32_t l = 0; l < n_layers; l++) {
        /* Layers until this one: the one being visited comes last. */
        const uint32_t ahead = (l + n_layers - n->layer - 1) % n_layers + 1;
        const float phase = (float)ahead / (float)n_layers;
        const float *leaves = n->leaves + (size_t)l * n_experts;
        for (uint32_t e = 0; e < n_experts; e++)
            if (leaves[e] >= 0 && leaves[e] + phase > longest) {
                longest = leaves[e] + phase;
                best = l * n_experts + e;
            }
    }
    return best;
}

static void take_out(struct lode_policy *p, uint32_t id, bool evicted) {
    struct policy_next *n = p->own;
    (void)evicted;
    n->leaves[id] = -1;
}

static void pin(struct lode_policy *p, uint32_t id, bool pinned) {
    struct policy_next *n = p->own;
    n->leaves[id] = pinned ? -1 : n->expected[id] ? 0 : n->rounds[id];
}

const struct lode_policy_ops lode_policy_next = {.name = "next",
                                                 .init = next_init,
                                                 .deinit = next_free,
                                                 .touch = touch,
                                                 .admit = admit,
                                                 .guess = guess,
                                                 .expect = expect,
                                                 .victim = victim,
                                                 .remove = take_out,
                                                 .pin = pin};
