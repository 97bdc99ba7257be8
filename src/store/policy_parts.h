/* policy_parts.h - what policies are made of: entries, queues and a heap over them. */
#ifndef LODE_STORE_POLICY_PARTS_H
#define LODE_STORE_POLICY_PARTS_H

#include "store/policy.h"

#include <stddef.h>

#define POLICY_NONE UINT32_MAX

struct policy_entry {
    uint64_t size;       /* bytes, while held */
    uint64_t key;        /* heap: the smallest leaves first */
    uint64_t last;       /* when it was used last, on the policy's clock */
    uint32_t prev, next; /* in its queue; POLICY_NONE at the ends */
    uint32_t at;         /* place in the heap; POLICY_NONE: not there */
    uint32_t pins;
    uint32_t uses;
    uint8_t queue; /* the policy's own number of a queue; 0: in none */
    bool held;
    bool guess; /* held, and not used yet */
};

/* The oldest first. */
struct policy_queue {
    uint32_t head, tail;
    uint32_t n;
    uint64_t bytes; /* of its entries' sizes; 0 for ghosts */
    uint8_t number; /* not 0 */
    bool ghosts;    /* of ids that are not held */
};

enum { POLICY_GHOSTS = 2, POLICY_QUEUES };

struct lode_policy {
    const struct lode_policy_ops *ops;
    struct lode_policy_shape shape;
    uint32_t n_ids;
    uint64_t used, clock;         /* clock: touches and admissions so far */
    struct policy_entry *entries; /* owned; (n_ids) */
    uint32_t *heap;               /* owned; (n_ids), of policies that use it */
    uint32_t n_heap;
    struct policy_queue queues[POLICY_QUEUES];
    void *own; /* what only this policy remembers */
};

/* An entry's size, held, pins and last are kept by the caller of these: admit and touch are called
 * with them set, remove before they are cleared. */
struct lode_policy_ops {
    const char *name;
    bool heap;
    bool (*init)(struct lode_policy *p); /* p->own; may be NULL, false: out of memory */
    void (*deinit)(struct lode_policy *p); /* also after an init that failed */
    void (*visit)(struct lode_policy *p, uint32_t id); /* may be NULL, as the next */
    void (*end_visit)(struct lode_policy *p);
    void (*touch)(struct lode_policy *p, uint32_t id);
    void (*admit)(struct lode_policy *p, uint32_t id);
    void (*guess)(struct lode_policy *p, uint32_t id);  /* admit without a use; NULL: all the same */
    void (*expect)(struct lode_policy *p, uint32_t id); /* may be NULL */
    uint32_t (*victim)(struct lode_policy *p); /* only says which; POLICY_NONE */
    void (*remove)(struct lode_policy *p, uint32_t id, bool evicted);
    void (*pin)(struct lode_policy *p, uint32_t id, bool pinned); /* may be NULL: first and last pin */
};

#define POLICY_DECLARE(name, about) extern const struct lode_policy_ops lode_policy_##name;
LODE_POLICY_LIST(POLICY_DECLARE)
#undef POLICY_DECLARE

/* lode_policy_create with these. */
int policy_create(struct lode_policy **out, const struct lode_policy_ops *ops,
                  const struct lode_policy_shape *shape, struct lode_error *err);

void policy_queue_push(struct lode_policy *p, struct policy_queue *q, uint32_t id);
void policy_queue_take(struct lode_policy *p, struct policy_queue *q, uint32_t id);
/* The oldest that is not pinned, or POLICY_NONE. */
uint32_t policy_queue_oldest(const struct lode_policy *p, const struct policy_queue *q);

/* The smallest key is first; of equal ones the smallest id. */
void policy_heap_push(struct lode_policy *p, uint32_t id);
void policy_heap_take(struct lode_policy *p, uint32_t id);
void policy_heap_moved(struct lode_policy *p, uint32_t id); /* its key has changed; may be absent */
void policy_heap_rebuild(struct lode_policy *p);            /* all keys may have changed */
/* victim, remove and pin of a policy whose heap has what is held and not pinned: its first is always a victim. */
uint32_t policy_heap_victim(struct lode_policy *p);
void policy_heap_remove(struct lode_policy *p, uint32_t id, bool evicted);
void policy_heap_pin(struct lode_policy *p, uint32_t id, bool pinned);

#endif
