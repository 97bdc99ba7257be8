#include "store/stream_parts.h"

#include <xxhash.h>

static uint32_t index_of(const struct stream *s, const struct stream_slot *slot) {
    return (uint32_t)(slot - s->slots);
}

void stream_tell(struct stream *s) {
    s->news++;
    if (s->n_waiting)
        pthread_cond_broadcast(&s->arrived);
}

/* The slot holds nothing any more; its memory stays, for whoever takes it next. */
static void empty(struct stream *s, struct stream_slot *slot) {
    if (slot->guess)
        stream_was_wrong(s);
    s->where[slot->group] = LODE_NO_ROOM;
    slot->state = STREAM_EMPTY;
    lode_rooms_give(&s->rooms, index_of(s, slot));
}

void stream_drop(struct stream *s, struct stream_slot *slot) {
    lode_policy_remove(s->policy, stream_policy_id(s, slot->group));
    empty(s, slot);
}

void stream_pin(struct stream *s, struct stream_slot *slot) {
    if (slot->pins++ > 0)
        return;
    lode_policy_pin(s->policy, stream_policy_id(s, slot->group));
    lode_rooms_set_busy(&s->rooms, index_of(s, slot), true);
}

void stream_unpin(struct stream *s, struct stream_slot *slot) {
    if (--slot->pins > 0)
        return;
    lode_policy_unpin(s->policy, stream_policy_id(s, slot->group));
    lode_rooms_set_busy(&s->rooms, index_of(s, slot), false);
}

struct stream_slot *stream_make_room(struct stream *s, size_t size) {
    uint32_t old;
    if (!lode_rooms_may_have(&s->rooms, size))
        return NULL;
    while (lode_policy_used(s->policy) + size > s->budget || !lode_rooms_has(&s->rooms, size)) {
        if (!lode_policy_victim(s->policy, &old))
            return NULL;
        empty(s, &s->slots[s->where[s->group_of[old]]]);
    }
    struct stream_slot *slot = &s->slots[lode_rooms_take(&s->rooms, size)];
    slot->touched = true;
    return slot;
}

uint64_t stream_give_back(struct stream *s, uint64_t bytes) {
    uint64_t given = 0;
    uint32_t old;
    while (given < bytes && lode_policy_victim(s->policy, &old)) {
        struct stream_slot *slot = &s->slots[s->where[s->group_of[old]]];
        given += s->layouts.groups[slot->group].size;
        empty(s, slot);
    }
    for (uint32_t i = 0; i < s->rooms.n; i++)
        if (s->slots[i].touched && s->slots[i].state == STREAM_EMPTY) {
            if (s->reader)
                lode_reader_release(s->reader, i);
            lode_rooms_release(&s->rooms, i);
            s->slots[i].touched = false;
        }
    return given;
}

/* Whether what was read is what was packed; else it is a fault of the read. */
static void check(const struct stream *s, struct lode_read *read, const struct lode_layout *l) {
    for (uint32_t i = 0; i < l->n_sums && !read->fault.cause; i++) {
        const struct lode_layout_sum *sum = &s->layouts.sums[l->first_sum + i];
        if (XXH3_64bits(read->base + sum->at, sum->size) != sum->sum)
            read->fault = (struct lode_read_fault){LODE_READ_DAMAGED, sum->file, sum->offset};
    }
}

/* A thread of the reader or the assembler has a group. */
static void arrive(struct lode_read *read) {
    struct stream_slot *slot = (struct stream_slot *)read;
    struct stream *s = slot->stream;
    const struct lode_layout *l = &s->layouts.groups[slot->group];
    if (s->check)
        check(s, read, l);
    pthread_mutex_lock(&s->lock);
    struct stream_count *c = stream_count_of(s, slot->group);
    c->bytes += l->n_parts ? read->taken : l->size;
    c->guesses += slot->guess; /* not before: one that is called off is none */
    slot->state = read->fault.cause ? STREAM_FAILED : STREAM_HERE;
    stream_unpin(s, slot); /* the load's own */
    if (slot->state == STREAM_FAILED && slot->refs == 0)
        stream_drop(s, slot);
    stream_tell(s);
    pthread_mutex_unlock(&s->lock);
}

void stream_load(struct stream *s, struct stream_slot *slot, uint32_t group, bool guess) {
    const struct lode_layout *l = &s->layouts.groups[group];
    slot->group = group;
    slot->state = STREAM_LOADING;
    slot->refs = slot->pins = 0;
    slot->guess = guess;
    slot->n_wanted = 0;
    slot->load = ++s->n_loads;
    s->where[group] = index_of(s, slot);
    lode_policy_admit(s->policy, stream_policy_id(s, group), l->size, guess);
    stream_pin(s, slot);
    slot->read = (struct lode_read){.parts = s->layouts.parts + l->first_part,
                                    .n_parts = l->n_parts,
                                    .base = lode_rooms_at(&s->rooms, index_of(s, slot)),
                                    .urgent = !guess,
                                    .tag = group,
                                    .room = index_of(s, slot),
                                    .room_size = lode_rooms_size(&s->rooms, index_of(s, slot)),
                                    .done = arrive};
    if (l->n_parts)
        lode_reader_submit(s->reader, &slot->read);
    else
        lode_assembler_submit(s->assembler, &slot->read);
}
