/* policy_lru.c - least recently used. */
#include "store/policy_parts.h"

static void touch(struct lode_policy *p, uint32_t id) {
    policy_queue_take(p, &p->queues[0], id);
    policy_queue_push(p, &p->queues[0], id);
}

static void admit(struct lode_policy *p, uint32_t id) { policy_queue_push(p, &p->queues[0], id); }

static uint32_t victim(struct lode_policy *p) { return policy_queue_oldest(p, &p->queues[0]); }

static void take_out(struct lode_policy *p, uint32_t id, bool evicted) {
    (void)evicted;
    policy_queue_take(p, &p->queues[0], id);
}

const struct lode_policy_ops lode_policy_lru = {
    .name = "lru", .touch = touch, .admit = admit, .victim = victim, .remove = take_out};
