/* policy_model.h - cache policies written the slow way, to hold src/store/policy*.c against.
 *
 * Arrays in order of arrival, searched from the front; no lists, no heap.  A few ids only.
 * policy_drive takes bytes as operations and does each on both; used by test_policy and fuzz_policy.
 */
#ifndef TESTS_POLICY_MODEL_H
#define TESTS_POLICY_MODEL_H

#include "base/dmath.h"
#include "store/chance.h"
#include "store/policy.h"

#include <stdio.h>
#include <string.h>

enum { SLOW_IDS = 24, SLOW_LAYERS = 3 };

struct slow_line { /* ids, the oldest first */
    uint32_t v[SLOW_IDS];
    uint32_t n;
};

struct slow {
    const char *name;
    uint64_t capacity, clock, used;
    uint64_t size[SLOW_IDS], last[SLOW_IDS];
    uint32_t uses[SLOW_IDS], pins[SLOW_IDS];
    bool held[SLOW_IDS];
    struct slow_line a, b, ghosts; /* lru: a; slru: a on probation, b protected; s3fifo: small, main */
    int layer;                     /* next: being visited, from here on; as policy_next.c says */
    struct lode_chances *chances;  /* which a test of its own holds to what it promises */
    float worth[SLOW_IDS], passed[SLOW_IDS];
    bool seen[SLOW_IDS], expected[SLOW_IDS];
    uint64_t comes[SLOW_LAYERS]; /* the size of what came last */
};

static bool slow_is(const struct slow *s, const char *name) { return strcmp(s->name, name) == 0; }

static void slow_add(struct slow_line *l, uint32_t id) { l->v[l->n++] = id; }

static bool slow_drop(struct slow_line *l, uint32_t id) {
    for (uint32_t i = 0; i < l->n; i++)
        if (l->v[i] == id) {
            memmove(&l->v[i], &l->v[i + 1], (l->n - i - 1) * sizeof *l->v);
            l->n--;
            return true;
        }
    return false;
}

static uint64_t slow_bytes(const struct slow *s, const struct slow_line *l) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < l->n; i++)
        sum += s->size[l->v[i]];
    return sum;
}

static uint32_t slow_oldest(const struct slow *s, const struct slow_line *l) {
    for (uint32_t i = 0; i < l->n; i++)
        if (!s->pins[l->v[i]])
            return l->v[i];
    return UINT32_MAX;
}

/* Of 2^-t, the mean: t rounds until it is used. */
static float slow_worth(float first, float second, float then) {
    const float away = 0.5f * (1 - first), longer = away * (0.5f * (1 - second));
    return first + away * second + longer * then / (0.5f + 0.5f * then);
}

/* The visit of s->layer is over. */
static void slow_learn(struct slow *s) {
    enum { N = SLOW_IDS / SLOW_LAYERS };
    const uint32_t first = (uint32_t)s->layer * N;
    float c[N][LODE_CHANCES_AHEAD];
    lode_chances_visit(s->chances, (uint32_t)s->layer, s->seen + first, c);
    for (uint32_t e = 0; e < N; e++) {
        s->worth[first + e] = slow_worth(c[e][0], c[e][1], c[e][2]);
        s->passed[first + e] = slow_worth(c[e][1], c[e][2], c[e][3]);
        s->seen[first + e] = s->expected[first + e] = false;
    }
}

static void slow_visit(struct slow *s, uint32_t id) {
    const int layer = (int)(id / (SLOW_IDS / SLOW_LAYERS));
    if (s->layer >= 0 && s->layer != layer)
        slow_learn(s);
    s->layer = layer;
}

static void slow_use(struct slow *s, uint32_t id, bool admitted) {
    s->last[id] = ++s->clock;
    if (slow_is(s, "lru")) {
        slow_drop(&s->a, id);
        slow_add(&s->a, id);
    } else if (slow_is(s, "slru")) {
        slow_drop(&s->a, id);
        slow_drop(&s->b, id);
        slow_add(admitted ? &s->a : &s->b, id);
        while (!admitted && slow_bytes(s, &s->b) > s->capacity / 5 * 4 && s->b.n > 1) {
            const uint32_t old = s->b.v[0];
            slow_drop(&s->b, old);
            slow_add(&s->a, old);
        }
    } else if (slow_is(s, "s3fifo")) {
        if (!admitted) {
            s->uses[id] += s->uses[id] < 3;
        } else {
            s->uses[id] = 0;
            slow_add(slow_drop(&s->ghosts, id) ? &s->b : &s->a, id);
        }
    } else if (slow_is(s, "lfu")) {
        s->uses[id]++;
        for (uint32_t i = 0; s->clock % (16 * SLOW_IDS) == 0 && i < SLOW_IDS; i++)
            s->uses[i] /= 2;
    } else {
        slow_visit(s, id);
        s->seen[id] = true;
        s->expected[id] = false;
        if (admitted)
            s->comes[s->layer] = s->size[id];
    }
}

/* Another would have to go besides. */
static bool slow_small(const struct slow *s, uint32_t id) {
    const uint64_t wanted = s->used + (s->layer < 0 ? 0 : s->comes[s->layer]);
    return wanted > s->capacity && s->size[id] < wanted - s->capacity;
}

/* What is worth least; of equals the first layer's, and of these the first. */
static uint32_t slow_least(const struct slow *s) {
    enum { N = SLOW_IDS / SLOW_LAYERS };
    uint32_t best = UINT32_MAX;
    float least = 16;
    for (int l = 0; l < SLOW_LAYERS; l++) {
        const bool here = l == s->layer;
        const int ahead = here ? SLOW_LAYERS : (l - s->layer + SLOW_LAYERS) % SLOW_LAYERS;
        const float near = (float)lode_pow(2, -(double)ahead / SLOW_LAYERS);
        uint32_t at = UINT32_MAX;
        float own = 16;
        for (uint32_t i = (uint32_t)l * N; i < (uint32_t)(l + 1) * N; i++) {
            const float w = here && !s->seen[i] ? s->passed[i] : s->worth[i];
            float leaves = !s->expected[i] ? w : here ? 1 / near : 1; /* nearer than any other layer's */
            if (here && slow_small(s, i))
                leaves *= 2;
            if (s->held[i] && !s->pins[i] && leaves < own) {
                own = leaves;
                at = i;
            }
        }
        if (at == UINT32_MAX)
            continue;
        own = own * near * (!here && slow_small(s, at) ? 2 : 1);
        if (own < least) {
            least = own;
            best = at;
        }
    }
    return best;
}

static uint32_t slow_victim(struct slow *s) {
    if (slow_is(s, "lru"))
        return slow_oldest(s, &s->a);
    if (slow_is(s, "slru")) {
        const uint32_t id = slow_oldest(s, &s->a);
        return id != UINT32_MAX ? id : slow_oldest(s, &s->b);
    }
    if (slow_is(s, "lfu")) {
        uint32_t best = UINT32_MAX;
        for (uint32_t i = 0; i < SLOW_IDS; i++)
            if (s->held[i] && !s->pins[i] &&
                (best == UINT32_MAX || s->uses[i] < s->uses[best] ||
                 (s->uses[i] == s->uses[best] && s->last[i] < s->last[best])))
                best = i;
        return best;
    }
    if (slow_is(s, "next"))
        return slow_least(s);
    for (;;) {
        const uint32_t small = slow_oldest(s, &s->a), main = slow_oldest(s, &s->b);
        const bool from_small = slow_bytes(s, &s->a) > s->capacity / 10 || main == UINT32_MAX;
        if (small != UINT32_MAX && from_small) {
            if (s->uses[small] < 2)
                return small;
            s->uses[small] = 0;
            slow_drop(&s->a, small);
            slow_add(&s->b, small);
        } else if (main == UINT32_MAX || s->uses[main] == 0) {
            return main;
        } else {
            s->uses[main]--;
            slow_drop(&s->b, main);
            slow_add(&s->b, main);
        }
    }
}

static void slow_leave(struct slow *s, uint32_t id, bool evicted) {
    const bool small = slow_drop(&s->a, id);
    slow_drop(&s->b, id);
    s->used -= s->size[id];
    s->held[id] = false;
    if (slow_is(s, "s3fifo") && small && evicted) {
        slow_add(&s->ghosts, id);
        while (s->ghosts.n > s->a.n + s->b.n)
            slow_drop(&s->ghosts, s->ghosts.v[0]);
    }
}

/* Two bytes an operation.  NULL, or what went apart. */
static const char *policy_drive(const char *name, const uint8_t *data, size_t n) {
    static char why[128];
    struct slow s = {.name = name, .capacity = 4000, .layer = -1};
    for (uint32_t i = 0; i < SLOW_IDS; i++)
        s.worth[i] = s.passed[i] = 1;
    struct lode_policy *p;
    struct lode_error err;
    const struct lode_policy_shape shape = {SLOW_LAYERS, SLOW_IDS / SLOW_LAYERS, s.capacity};
    s.chances = lode_chances_create(SLOW_LAYERS, SLOW_IDS / SLOW_LAYERS);
    if (!s.chances || lode_policy_create(&p, name, &shape, &err) < 0) {
        lode_chances_free(s.chances);
        return "out of memory";
    }
    *why = 0;
    for (size_t i = 0; i + 1 < n && !*why; i += 2) {
        const uint32_t e = data[i] % SLOW_IDS, op = data[i] / SLOW_IDS;
        const uint32_t id = lode_policy_id(p, e % SLOW_LAYERS, e / SLOW_LAYERS);
        const uint64_t size = 100 + data[i + 1] % 4 * 150;
        if (lode_policy_holds(p, id) != s.held[id]) {
            snprintf(why, sizeof why, "op %zu: %u is held by one of them", i / 2, id);
        } else if (op == 0 && s.held[id]) {
            lode_policy_pin(p, id);
            s.pins[id]++;
        } else if (op <= 2 && s.pins[id]) {
            lode_policy_unpin(p, id);
            s.pins[id]--;
        } else if (op == 3 && s.held[id] && !s.pins[id]) {
            lode_policy_remove(p, id);
            slow_leave(&s, id, false);
        } else if (op == 4 && data[i + 1] < 32) {
            s.capacity = 1000 + 100 * data[i + 1];
            lode_policy_set_capacity(p, s.capacity);
        } else if (op == 5 && s.held[id]) {
            lode_policy_expect(p, id);
            s.expected[id] = true;
        } else if (op == 6) {
            lode_policy_visit(p, id);
            slow_visit(&s, id);
        } else if (s.held[id]) {
            lode_policy_touch(p, id);
            slow_use(&s, id, false);
        } else {
            uint32_t was = 0, is = 0;
            bool room = true;
            while (room && !*why && s.used + size > s.capacity) {
                is = slow_victim(&s);
                room = lode_policy_victim(p, &was);
                if (room != (is != UINT32_MAX) || (room && was != is))
                    snprintf(why, sizeof why, "%s, op %zu: victim %d, not %d", name, i / 2,
                             room ? (int)was : -1, (int)is);
                else if (room)
                    slow_leave(&s, is, true);
            }
            if (room && !*why) {
                lode_policy_admit(p, id, size, false);
                s.held[id] = true;
                s.size[id] = size;
                s.used += size;
                slow_use(&s, id, true);
            }
        }
        if (!*why && lode_policy_used(p) != s.used)
            snprintf(why, sizeof why, "%s, op %zu: %llu bytes, not %llu", name, i / 2,
                     (unsigned long long)lode_policy_used(p), (unsigned long long)s.used);
    }
    lode_policy_free(p);
    lode_chances_free(s.chances);
    return *why ? why : NULL;
}

#endif
