/* policy_slru.c - segmented LRU (Karedla, Love, Wherry 1994): newcomers are on probation; a second
 * use moves them to a protected segment of four fifths of the bytes, whose oldest go back on
 * probation.  So a burst of experts that are used once cannot drive out those in steady use. */
#include "store/policy_parts.h"

enum { PROBATION, PROTECTED };

static void touch(struct lode_policy *p, uint32_t id) {
    struct policy_queue *probation = &p->queues[PROBATION], *protected = &p->queues[PROTECTED];
    policy_queue_take(p, p->entries[id].queue == protected->number ? protected : probation, id);
    policy_queue_push(p, protected, id);
    while (protected->bytes > p->shape.capacity / 5 * 4 && protected->n > 1) {
        const uint32_t oldest = protected->head;
        policy_queue_take(p, protected, oldest);
        policy_queue_push(p, probation, oldest);
    }
}

static void admit(struct lode_policy *p, uint32_t id) {
    policy_queue_push(p, &p->queues[PROBATION], id);
}

static uint32_t victim(struct lode_policy *p) {
    const uint32_t id = policy_queue_oldest(p, &p->queues[PROBATION]);
    return id != POLICY_NONE ? id : policy_queue_oldest(p, &p->queues[PROTECTED]);
}

static void take_out(struct lode_policy *p, uint32_t id, bool evicted) {
    (void)evicted;
    policy_queue_take(p, &p->queues[p->entries[id].queue - 1], id);
}

const struct lode_policy_ops lode_policy_slru = {
    .name = "slru", .touch = touch, .admit = admit, .victim = victim, .remove = take_out};
