/* stream_guess.c - experts that are read before they are asked for.
 *
 * While a layer is computed, those of the next that its router would choose now are read, behind
 * all that was asked for.  When who guesses knows better, or that layer has asked for what it needs,
 * what was guessed wrong is called off, also where some of it has been read: what a wrong guess costs
 * the disk is what would have been idle time, and the few pieces that are in flight at that moment.
 *
 * What is less likely than not to be used is not read.  Besides, guesses are judged in lots, all but
 * those called off: fewer than half of a lot used, and there are none for a while.  Then they fill
 * the cache with what nobody wants. */
#include "store/stream_parts.h"

enum { LOT = 256, PAUSE = 4096 /* settled layers */ };
static const float LEAST = 0.5f; /* chance of being used */

static void judge(struct stream *s) {
    if (s->lot < LOT)
        return;
    s->pause = s->lot_used < LOT / 2 ? PAUSE : 0;
    s->lot = s->lot_used = 0;
}

static void call_off(struct stream *s, struct stream_slot *slot) {
    const enum lode_reader_cut cut = lode_reader_cancel(s->reader, &slot->read);
    struct stream_count *c = stream_count_of(s, slot->group);
    if (cut == LODE_READER_ALL_FLYING)
        return;
    s->cancelled++;
    slot->guess = false;
    c->guesses--;
    if (cut == LODE_READER_CUT) {
        slot->state = STREAM_LEAVING;
        return;
    }
    c->bytes += slot->read.taken;
    stream_unpin(s, slot); /* the load's own */
    stream_drop(s, slot);
    stream_tell(s);
}

/* All guesses that are still being read, but those of them that are made again. */
static void call_off_all(struct stream *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_guesses; i++) {
        struct stream_slot *slot = &s->slots[s->guesses[i]];
        if (!slot->guess || slot->state != STREAM_LOADING || slot->refs)
            continue;
        if (slot->again)
            s->guesses[n++] = s->guesses[i];
        else
            call_off(s, slot);
        slot->again = false;
    }
    s->n_guesses = n;
}

static void want_one(struct stream *s, const struct lode_wanted *w) {
    const uint32_t group = w->id;
    if (s->where[group] != LODE_NO_ROOM) {
        lode_policy_expect(s->policy, stream_policy_id(s, group));
        if (s->slots[s->where[group]].guess)
            lode_reader_put_last(s->reader, &s->slots[s->where[group]].read);
        return;
    }
    if (w->chance < LEAST || s->n_guesses == STREAM_GUESSES)
        return;
    struct stream_slot *slot = stream_make_room(s, s->layouts.groups[group].size);
    if (!slot)
        return;
    stream_load(s, slot, group, true);
    s->guesses[s->n_guesses++] = s->where[group];
    stream_count_of(s, group)->guesses++;
}

void stream_want(struct stream *s, const struct lode_wanted *groups, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (s->where[groups[i].id] != LODE_NO_ROOM)
            s->slots[s->where[groups[i].id]].again = true;
    call_off_all(s);
    judge(s);
    for (uint32_t i = 0; i < n && !s->pause; i++)
        want_one(s, &groups[i]);
}

void stream_came_true(struct stream *s, struct stream_slot *slot) {
    slot->guess = false;
    s->lot++;
    s->lot_used++;
    stream_count_of(s, slot->group)->guessed++;
}

void stream_settle(struct stream *s) {
    call_off_all(s);
    s->pause -= s->pause > 0;
}
