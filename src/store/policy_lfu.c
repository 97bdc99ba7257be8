/* policy_lfu.c - least frequently used, with ageing: uses are counted for all ids, held or not, and
 * halved every so often, so that what was popular long ago makes room.  Equal counts: the one used
 * longest ago leaves.
 *
 * The period is 16 uses an id on average: a steady pattern has been seen well enough by then, and one
 * that is over has half its say after a period, a quarter after two. */
#include "store/policy_parts.h"

enum { PERIOD = 16, CLOCK_BITS = 40 };

static uint64_t key_of(const struct policy_entry *e) {
    return (uint64_t)e->uses << CLOCK_BITS | (e->last & ((UINT64_C(1) << CLOCK_BITS) - 1));
}

static void age(struct lode_policy *p) {
    for (uint32_t i = 0; i < p->n_ids; i++) {
        struct policy_entry *e = &p->entries[i];
        e->uses /= 2;
        e->key = key_of(e);
    }
    policy_heap_rebuild(p);
}

static void count(struct lode_policy *p, uint32_t id) {
    struct policy_entry *e = &p->entries[id];
    e->uses++;
    e->key = key_of(e);
}

static bool period_ends(const struct lode_policy *p) {
    return p->clock % ((uint64_t)PERIOD * p->n_ids) == 0;
}

static void touch(struct lode_policy *p, uint32_t id) {
    count(p, id);
    policy_heap_moved(p, id);
    if (period_ends(p))
        age(p);
}

static void admit(struct lode_policy *p, uint32_t id) {
    count(p, id);
    policy_heap_push(p, id);
    if (period_ends(p))
        age(p);
}

static void guess(struct lode_policy *p, uint32_t id) {
    p->entries[id].key = key_of(&p->entries[id]);
    policy_heap_push(p, id);
}

const struct lode_policy_ops lode_policy_lfu = {.name = "lfu",
                                                .heap = true,
                                                .touch = touch,
                                                .admit = admit,
                                                .guess = guess,
                                                .victim = policy_heap_victim,
                                                .remove = policy_heap_remove,
                                                .pin = policy_heap_pin};
