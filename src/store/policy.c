#include "store/policy_parts.h"

#include "base/alloc.h"
#include "lode/trace.h"

#include <assert.h>
#include <string.h>

static const struct lode_policy_ops *const policies[] = {
#define POLICY_ROW(name, about) &lode_policy_##name,
    LODE_POLICY_LIST(POLICY_ROW)
#undef POLICY_ROW
};

const char *lode_policy_default(void) { return policies[0]->name; }

/* --- for programs -------------------------------------------------------------------------- */

const char *const *lode_trace_policies(void) {
#define POLICY_WORD(name, about) #name,
    static const char *const names[] = {LODE_POLICY_LIST(POLICY_WORD) NULL};
#undef POLICY_WORD
    return names;
}

const char *lode_trace_policy_about(const char *name) {
#define POLICY_ABOUT(name_, about)                                                                 \
    if (strcmp(name, #name_) == 0)                                                                 \
        return about;
    LODE_POLICY_LIST(POLICY_ABOUT)
#undef POLICY_ABOUT
    return "";
}

/* ------------------------------------------------------------------------------------------- */

static const struct lode_policy_ops *find(const char *name) {
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        if (strcmp(policies[i]->name, name) == 0)
            return policies[i];
    return NULL;
}

int lode_policy_create(struct lode_policy **out, const char *name,
                       const struct lode_policy_shape *shape, struct lode_error *err) {
    const struct lode_policy_ops *ops = find(name ? name : lode_policy_default());
    *out = NULL;
    if (!ops)
#define POLICY_TEXT(name, about) " " #name
        return lode_fail(err, LODE_ERR_ARG, "--cache-policy",
                         "'%.40s' is no cache policy:" LODE_POLICY_LIST(POLICY_TEXT), name);
#undef POLICY_TEXT
    return policy_create(out, ops, shape, err);
}

int policy_create(struct lode_policy **out, const struct lode_policy_ops *ops,
                  const struct lode_policy_shape *shape, struct lode_error *err) {
    *out = NULL;
    const uint64_t n = (uint64_t)shape->n_layers * shape->n_experts;
    if (n == 0 || n > LODE_POLICY_MAX_IDS)
        return lode_fail(err, LODE_ERR_LIMIT, "expert cache",
                         "%u layers of %u experts: 1 to %d experts in all expected",
                         shape->n_layers, shape->n_experts, (int)LODE_POLICY_MAX_IDS);
    struct lode_policy *p = LODE_NEW(struct lode_policy);
    if (!p)
        return lode_fail_nomem(err, "expert cache");
    *p = (struct lode_policy){.ops = ops, .shape = *shape, .n_ids = (uint32_t)n};
    p->entries = LODE_NEW_ARRAY(struct policy_entry, n);
    p->heap = ops->heap ? LODE_NEW_ARRAY(uint32_t, n) : NULL;
    if (!p->entries || (ops->heap && !p->heap)) {
        lode_policy_free(p);
        return lode_fail_nomem(err, "expert cache");
    }
    for (uint32_t i = 0; i < n; i++)
        p->entries[i].prev = p->entries[i].next = p->entries[i].at = POLICY_NONE;
    for (uint8_t i = 0; i < POLICY_QUEUES; i++)
        p->queues[i] = (struct policy_queue){.head = POLICY_NONE,
                                             .tail = POLICY_NONE,
                                             .number = i + 1,
                                             .ghosts = i == POLICY_GHOSTS};
    if (ops->init && !ops->init(p)) {
        lode_policy_free(p);
        return lode_fail_nomem(err, "expert cache");
    }
    *out = p;
    return 0;
}

void lode_policy_free(struct lode_policy *p) {
    if (!p)
        return;
    if (p->ops->deinit)
        p->ops->deinit(p);
    lode_free(p->entries);
    lode_free(p->heap);
    lode_free(p);
}

const char *lode_policy_name(const struct lode_policy *p) { return p->ops->name; }

uint32_t lode_policy_id(const struct lode_policy *p, uint32_t layer, uint32_t expert) {
    assert(layer < p->shape.n_layers && expert < p->shape.n_experts);
    return layer * p->shape.n_experts + expert;
}

bool lode_policy_holds(const struct lode_policy *p, uint32_t id) { return p->entries[id].held; }
uint64_t lode_policy_used(const struct lode_policy *p) { return p->used; }
uint64_t lode_policy_capacity(const struct lode_policy *p) { return p->shape.capacity; }
void lode_policy_set_capacity(struct lode_policy *p, uint64_t c) { p->shape.capacity = c; }

void lode_policy_visit(struct lode_policy *p, uint32_t id) {
    if (p->ops->visit)
        p->ops->visit(p, id);
}

void lode_policy_end_visit(struct lode_policy *p) {
    if (p->ops->end_visit)
        p->ops->end_visit(p);
}

void lode_policy_touch(struct lode_policy *p, uint32_t id) {
    struct policy_entry *e = &p->entries[id];
    assert(e->held);
    e->last = ++p->clock;
    if (e->guess) { /* as though it came only now */
        e->guess = false;
        p->ops->remove(p, id, false);
        p->ops->admit(p, id);
        if (e->pins && p->ops->pin)
            p->ops->pin(p, id, true);
        return;
    }
    p->ops->touch(p, id);
}

void lode_policy_expect(struct lode_policy *p, uint32_t id) {
    assert(p->entries[id].held);
    if (p->ops->expect)
        p->ops->expect(p, id);
}

void lode_policy_admit(struct lode_policy *p, uint32_t id, uint64_t size, bool guess) {
    struct policy_entry *e = &p->entries[id];
    assert(!e->held && !e->pins);
    e->last = ++p->clock;
    e->held = true;
    e->guess = guess;
    e->size = size;
    p->used += size;
    (guess && p->ops->guess ? p->ops->guess : p->ops->admit)(p, id);
}

static void leave(struct lode_policy *p, uint32_t id, bool evicted) {
    struct policy_entry *e = &p->entries[id];
    assert(e->held && !e->pins);
    p->ops->remove(p, id, evicted);
    p->used -= e->size;
    e->held = false;
    e->size = 0;
}

bool lode_policy_victim(struct lode_policy *p, uint32_t *id) {
    *id = p->ops->victim(p);
    if (*id == POLICY_NONE)
        return false;
    leave(p, *id, true);
    return true;
}

void lode_policy_remove(struct lode_policy *p, uint32_t id) { leave(p, id, false); }

void lode_policy_pin(struct lode_policy *p, uint32_t id) {
    assert(p->entries[id].held);
    if (p->entries[id].pins++ == 0 && p->ops->pin)
        p->ops->pin(p, id, true);
}

void lode_policy_unpin(struct lode_policy *p, uint32_t id) {
    assert(p->entries[id].pins);
    if (--p->entries[id].pins == 0 && p->ops->pin)
        p->ops->pin(p, id, false);
}

/* --- queues -------------------------------------------------------------------------------- */

void policy_queue_push(struct lode_policy *p, struct policy_queue *q, uint32_t id) {
    struct policy_entry *e = &p->entries[id];
    assert(!e->queue);
    e->queue = q->number;
    e->prev = q->tail;
    e->next = POLICY_NONE;
    *(q->tail == POLICY_NONE ? &q->head : &p->entries[q->tail].next) = id;
    q->tail = id;
    q->bytes += q->ghosts ? 0 : e->size;
    q->n++;
}

void policy_queue_take(struct lode_policy *p, struct policy_queue *q, uint32_t id) {
    struct policy_entry *e = &p->entries[id];
    assert(e->queue == q->number);
    *(e->prev == POLICY_NONE ? &q->head : &p->entries[e->prev].next) = e->next;
    *(e->next == POLICY_NONE ? &q->tail : &p->entries[e->next].prev) = e->prev;
    e->queue = 0;
    q->bytes -= q->ghosts ? 0 : e->size;
    q->n--;
}

uint32_t policy_queue_oldest(const struct lode_policy *p, const struct policy_queue *q) {
    uint32_t id = q->head;
    while (id != POLICY_NONE && p->entries[id].pins)
        id = p->entries[id].next;
    return id;
}

/* --- the heap ------------------------------------------------------------------------------ */

static bool before(const struct lode_policy *p, uint32_t a, uint32_t b) {
    const uint64_t ka = p->entries[a].key, kb = p->entries[b].key;
    return ka < kb || (ka == kb && a < b);
}

static void put(struct lode_policy *p, uint32_t at, uint32_t id) {
    p->heap[at] = id;
    p->entries[id].at = at;
}

/* Moves the id at `at` up or down to where it belongs. */
static void settle(struct lode_policy *p, uint32_t at) {
    const uint32_t id = p->heap[at];
    while (at && before(p, id, p->heap[(at - 1) / 2])) {
        put(p, at, p->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (uint32_t child; (child = 2 * at + 1) < p->n_heap; at = child) {
        if (child + 1 < p->n_heap && before(p, p->heap[child + 1], p->heap[child]))
            child++;
        if (!before(p, p->heap[child], id))
            break;
        put(p, at, p->heap[child]);
    }
    put(p, at, id);
}

void policy_heap_push(struct lode_policy *p, uint32_t id) {
    assert(p->entries[id].at == POLICY_NONE);
    put(p, p->n_heap++, id);
    settle(p, p->n_heap - 1);
}

void policy_heap_take(struct lode_policy *p, uint32_t id) {
    const uint32_t at = p->entries[id].at;
    if (at == POLICY_NONE)
        return;
    p->entries[id].at = POLICY_NONE;
    if (at == --p->n_heap)
        return;
    put(p, at, p->heap[p->n_heap]);
    settle(p, at);
}

uint32_t policy_heap_victim(struct lode_policy *p) { return p->n_heap ? p->heap[0] : POLICY_NONE; }

void policy_heap_remove(struct lode_policy *p, uint32_t id, bool evicted) {
    (void)evicted;
    policy_heap_take(p, id);
}

void policy_heap_pin(struct lode_policy *p, uint32_t id, bool pinned) {
    if (pinned)
        policy_heap_take(p, id);
    else
        policy_heap_push(p, id);
}

void policy_heap_moved(struct lode_policy *p, uint32_t id) {
    if (p->entries[id].at != POLICY_NONE)
        settle(p, p->entries[id].at);
}

void policy_heap_rebuild(struct lode_policy *p) {
    const uint32_t n = p->n_heap;
    p->n_heap = 0;
    for (uint32_t i = 0; i < n; i++) { /* each goes up past those before it */
        p->n_heap++;
        settle(p, i);
    }
}
