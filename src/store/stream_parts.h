/* stream_parts.h - between stream.c, which is the store, stream_cache.c, which decides what is in
 * its memory, and stream_guess.c, which reads ahead. */
#ifndef LODE_STORE_STREAM_PARTS_H
#define LODE_STORE_STREAM_PARTS_H

#include "base/caches.h"
#include "store/assemble.h"
#include "store/layout.h"
#include "store/policy.h"
#include "store/rooms.h"
#include "store/stream.h"
#include "store/trial.h"

#include <pthread.h>

/* LEAVING: a guess that was called off while some of it was in flight. */
enum stream_state { STREAM_EMPTY, STREAM_LOADING, STREAM_LEAVING, STREAM_HERE, STREAM_FAILED };

/* What is in a room. */
struct stream_slot {
    struct lode_read read; /* first: `done` finds the slot by it; its tag is the group */
    struct stream *stream;
    enum stream_state state;
    uint32_t group, refs, pins; /* pins: refs > 0, and loading */
    bool guess;                 /* nobody has asked for it yet */
    uint32_t n_wanted;          /* lists of guesses that have it */
    uint64_t load;              /* which load of the stream this is */
    uint64_t mark;              /* of the latest call that named it as a guess (stream_guess.c) */
    bool touched;               /* its room has memory */
};

struct stream_count {
    uint64_t wait_ns, uses, hits, bytes, guesses, guessed;
};

struct stream {
    struct lode_store base;
    const struct lode_source *source;
    const struct lode_weight *weights;
    const struct lode_group *groups;
    uint32_t first_group, n_groups; /* of the model's list, the first of which is groups[0] */
    bool in_turn;
    bool check;                       /* checksums, where there are some */
    struct lode_store *resident;      /* owned, as all below: what has the other weights */
    struct lode_reader *reader;       /* NULL: no group lies in files as it is */
    struct lode_assembler *assembler; /* NULL: all do */
    struct lode_layouts layouts;
    uint32_t *group_of; /* by the policy's id */
    uint32_t n_experts, n_layers;
    struct lode_cache cache; /* listed while there is a policy */

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t arrived;
    uint64_t staged;               /* bytes of the budget that the assembler has */
    uint64_t budget, budget_first; /* now; as it was given, without those */
    struct lode_policy *policy;
    struct lode_rooms rooms;
    struct stream_slot *slots; /* (rooms.n) */
    uint32_t *where;           /* (n_groups): slot, or LODE_NO_ROOM */
    uint64_t news;
    uint32_t n_waiting;
    uint64_t n_loads, mark;
    uint32_t lot, lot_used, pause;               /* judged guesses; settled layers without any */
    struct lode_trial trial;
    uint64_t cancelled;
    struct stream_count *counts; /* (n_layers) */
    uint32_t *uses;              /* (n_groups) */
};

/* ---- stream_cache.c; all with the lock ---- */

/* A free slot for `size` bytes, within the budget; NULL: what would have to leave is in use. */
struct stream_slot *stream_make_room(struct stream *s, size_t size);
/* Starts reading a group into it. */
void stream_load(struct stream *s, struct stream_slot *slot, uint32_t group, bool guess);
/* Pins nest; a slot that is pinned stays. */
void stream_pin(struct stream *s, struct stream_slot *slot);
void stream_unpin(struct stream *s, struct stream_slot *slot);
/* Out of the cache, with nothing said to the policy's memory of uses. */
void stream_drop(struct stream *s, struct stream_slot *slot);
/* There is news for those who wait. */
void stream_tell(struct stream *s);
/* Evicts up to `bytes` and gives their memory back to the system; returns how many. */
uint64_t stream_give_back(struct stream *s, uint64_t bytes);

/* ---- stream_guess.c; with the lock ---- */

void stream_want(struct stream *s, struct lode_guesses *mine, const struct lode_wanted *groups,
                 uint32_t n); /* ids: groups */
void stream_settle(struct stream *s, struct lode_guesses *mine);
/* A guess is asked for. */
void stream_came_true(struct stream *s, struct stream_slot *slot);
/* One leaves, and was never asked for. */
static inline void stream_was_wrong(struct stream *s) { s->lot++; }

static inline struct stream_count *stream_count_of(struct stream *s, uint32_t group) {
    return &s->counts[s->groups[group].layer];
}

static inline uint32_t stream_policy_id(const struct stream *s, uint32_t group) {
    const struct lode_group *g = &s->groups[group];
    return lode_policy_id(s->policy, g->layer,
                          g->expert == LODE_NO_EXPERT ? s->n_experts : g->expert);
}

#endif
