/* policy_s3fifo.c - S3-FIFO (Yang, Zhang, Qiu, Yue, Rashmi, SOSP 2023): three queues, first in first
 * out.  Newcomers pass through a small one with a tenth of the bytes; those used twice while there go
 * on to the main one, the others leave and are remembered as ghosts, as many as there are entries.
 * A ghost that comes back goes to the main queue at once.  There, an entry that was used since it
 * came past goes round again, up to three times. */
#include "store/policy_parts.h"

enum { SMALL, MAIN };
enum { MOST_USES = 3, USES_TO_MAIN = 2 };

static void touch(struct lode_policy *p, uint32_t id) {
    struct policy_entry *e = &p->entries[id];
    e->uses += e->uses < MOST_USES;
}

static void admit(struct lode_policy *p, uint32_t id) {
    struct policy_entry *e = &p->entries[id];
    struct policy_queue *ghosts = &p->queues[POLICY_GHOSTS];
    const bool ghost = e->queue == ghosts->number;
    if (ghost)
        policy_queue_take(p, ghosts, id);
    e->uses = 0;
    policy_queue_push(p, &p->queues[ghost ? MAIN : SMALL], id);
}

static uint32_t victim(struct lode_policy *p) {
    struct policy_queue *small = &p->queues[SMALL], *main = &p->queues[MAIN];
    for (;;) { /* each turn moves an entry on or takes one of its uses away */
        const uint32_t s = policy_queue_oldest(p, small), m = policy_queue_oldest(p, main);
        if (s != POLICY_NONE && (small->bytes > p->shape.capacity / 10 || m == POLICY_NONE)) {
            if (p->entries[s].uses < USES_TO_MAIN)
                return s;
            policy_queue_take(p, small, s);
            p->entries[s].uses = 0;
            policy_queue_push(p, main, s);
        } else if (m != POLICY_NONE) {
            if (!p->entries[m].uses)
                return m;
            policy_queue_take(p, main, m);
            p->entries[m].uses--;
            policy_queue_push(p, main, m);
        } else {
            return POLICY_NONE;
        }
    }
}

static void take_out(struct lode_policy *p, uint32_t id, bool evicted) {
    struct policy_queue *from = &p->queues[p->entries[id].queue - 1];
    struct policy_queue *ghosts = &p->queues[POLICY_GHOSTS];
    policy_queue_take(p, from, id);
    if (!evicted || from != &p->queues[SMALL])
        return;
    policy_queue_push(p, ghosts, id);
    while (ghosts->n > p->queues[SMALL].n + p->queues[MAIN].n)
        policy_queue_take(p, ghosts, ghosts->head);
}

const struct lode_policy_ops lode_policy_s3fifo = {
    .name = "s3fifo", .touch = touch, .admit = admit, .victim = victim, .remove = take_out};
