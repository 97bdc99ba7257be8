/* stream_guess.c - experts that are read before they are asked for.
 *
 * While a layer is computed, those of the next that its router would choose now are read, behind
 * all that was asked for.  When who guesses knows better, or that layer has asked for what it needs,
 * what was guessed wrong is called off, also where some of it has been read: what a wrong guess costs
 * the disk is what would have been idle time, and the few pieces that are in flight at that moment.
 * Each session has its own list of guesses; what two have guessed is called off by the second.
 *
 * What is less likely than not to be used is not read.  Besides, guesses are judged in lots, all but
 * those called off: fewer than half of a lot used, and there are none for a while.  Then they fill
 * the cache with what nobody wants.  And now and then it is tried out whether layers take less time without
 * any (trial.h): where the disk is all that counts, they do. */
#include "store/stream_parts.h"

#include "base/clock.h"
#include "store/foresight.h"

enum { LOT = 256, PAUSE = 4096 /* settled layers */ };

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
    if (cut == LODE_READER_CUT) {
        slot->state = STREAM_LEAVING;
        return;
    }
    c->bytes += slot->read.taken;
    stream_unpin(s, slot); /* the load's own */
    stream_drop(s, slot);
    stream_tell(s);
}

/* What a call has named, kept from before, and seen to, are told apart by marks: its own, and the two
 * behind it. */
enum { NAMED, KEPT, SEEN, MARKS };

/* A guess that is still being read, and that nobody has asked for; NULL: it is not that any more. */
static struct stream_slot *open_guess(struct stream *s, uint32_t room, uint64_t load) {
    struct stream_slot *slot = &s->slots[room];
    return slot->load == load && slot->guess && slot->state == STREAM_LOADING && !slot->refs ? slot : NULL;
}

/* All of a list but what is named again; what no other list has is called off. */
static void let_go(struct stream *s, struct lode_guesses *mine) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < mine->n; i++) {
        struct stream_slot *slot = open_guess(s, mine->at[i].room, mine->at[i].load);
        if (!slot)
            continue;
        if (slot->mark == s->mark + NAMED) {
            slot->mark = s->mark + KEPT;
            mine->at[n++] = mine->at[i];
        } else if (--slot->n_wanted == 0) {
            call_off(s, slot);
        }
    }
    mine->n = n;
}

static void add(struct stream *s, struct lode_guesses *mine, struct stream_slot *slot) {
    mine->at[mine->n].room = s->where[slot->group];
    mine->at[mine->n++].load = slot->load;
    slot->n_wanted++;
    slot->mark = s->mark + SEEN;
}

/* It is there, or on its way. */
static void want_again(struct stream *s, struct lode_guesses *mine, struct stream_slot *slot) {
    lode_policy_expect(s->policy, stream_policy_id(s, slot->group));
    if (slot->mark == s->mark + KEPT && slot->n_wanted == 1)
        lode_reader_put_last(s->reader, &slot->read); /* in the order that is wanted now */
    if (slot->mark == s->mark + NAMED && mine->n < LODE_GUESSES &&
        open_guess(s, s->where[slot->group], slot->load))
        add(s, mine, slot);
    slot->mark = s->mark + SEEN;
}

static void want_one(struct stream *s, struct lode_guesses *mine, const struct lode_wanted *w) {
    const uint32_t group = w->id;
    if (s->where[group] != LODE_NO_ROOM) {
        want_again(s, mine, &s->slots[s->where[group]]);
        return;
    }
    if (w->chance < LODE_FORESIGHT_LEAST || mine->n == LODE_GUESSES)
        return;
    struct stream_slot *slot = stream_make_room(s, s->layouts.groups[group].size);
    if (!slot)
        return;
    stream_load(s, slot, group, true);
    add(s, mine, slot);
}

void stream_want(struct stream *s, struct lode_guesses *mine, const struct lode_wanted *groups,
                 uint32_t n) {
    s->mark += MARKS;
    for (uint32_t i = 0; i < n; i++)
        if (s->where[groups[i].id] != LODE_NO_ROOM)
            s->slots[s->where[groups[i].id]].mark = s->mark + NAMED;
    let_go(s, mine);
    judge(s);
    mine->asked = true;
    const bool none = s->trial.off || (s->pause && !s->trial.part); /* a trial is of guesses, not of pauses */
    for (uint32_t i = 0; i < n && !none; i++)
        want_one(s, mine, &groups[i]);
}

void stream_came_true(struct stream *s, struct stream_slot *slot) {
    slot->guess = false;
    stream_count_of(s, slot->group)->guesses += slot->state == STREAM_LOADING;
    s->lot++;
    s->lot_used++;
    stream_count_of(s, slot->group)->guessed++;
}

void stream_settle(struct stream *s, struct lode_guesses *mine) {
    s->mark += MARKS;
    let_go(s, mine);
    s->pause -= s->pause > 0;
    const uint64_t now = (uint64_t)(lode_clock() * 1e9);
    if (mine->asked && mine->when) /* others, of prompts, are not guessed for */
        lode_trial_add(&s->trial, now - mine->when);
    mine->when = now;
    mine->asked = false;
}
