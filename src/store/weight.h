/* weight.h - a weight is a handle, not a pointer.
 *
 * It has a home (a place in a file) and, while it is pinned, an address.  Whoever computes with it
 * pins it for one step and unpins it afterwards, and never keeps the address: between two steps a
 * weight may move, be evicted, or be read again.
 *
 * Weights that are always used together (an expert's three matrices, the matrices of a layer) are a
 * group: they are read and evicted as one.
 */
#ifndef LODE_STORE_WEIGHT_H
#define LODE_STORE_WEIGHT_H

#include "base/error.h"
#include "format/source.h"
#include "graph/graph.h"
#include "lode/profile.h"

#include <stdatomic.h>

#define LODE_NO_GROUP UINT32_MAX

struct lode_weight {
    struct lode_operand op; /* as it is computed with; op.id: its place in the model's list */
    const struct lode_gguf_tensor *home; /* borrowed from the source: name, place, type */
    size_t offset, size;                 /* bytes of the tensor that are this weight */
    uint32_t group; /* of the model's list; LODE_NO_GROUP: it stays in memory */
    bool elsewhere; /* only devices compute with it, which have copies: stores leave it in the file */
};

#define LODE_NO_EXPERT UINT32_MAX
enum { LODE_GROUP_WEIGHTS = 32 }; /* at most, of one group */

struct lode_group {
    uint32_t layer, expert;                          /* LODE_NO_EXPERT: the layer's own matrices */
    uint32_t n_weights, weights[LODE_GROUP_WEIGHTS]; /* ids */
};

enum lode_residence { LODE_READY = 0, LODE_PENDING = 1, LODE_FULL = 2 };

struct lode_store;

struct lode_wanted {
    uint32_t id;
    float chance; /* that it will be pinned */
    bool away;    /* want's answer: it was not there */
};

/* What someone has guessed and not taken back: it belongs to who guesses, zeros at first; inside, the
 * store's. */
enum { LODE_GUESSES = 64 };
struct lode_guesses {
    uint32_t n;
    bool asked;    /* since the last settle, */
    uint64_t when; /* which was then; ns */
    struct {
        uint32_t room;
        uint64_t load; /* which of the store's it was */
    } at[LODE_GUESSES];
};

struct lode_store_ops {
    /* LODE_READY: *data is the weight, valid until unpin.  LODE_PENDING: its bytes are on their way
     * (this call started that, if nobody had); look again after wait.  LODE_FULL: there is no room
     * while others hold theirs; compute with what you hold, unpin it, and ask again.  Negative: it
     * can't be had.  READY and PENDING are each paired with one unpin, the others with none. */
    int (*pin)(struct lode_store *s, uint32_t id, const void **data, struct lode_error *err);
    /* The same question about a weight that a pin left pending, without pinning it again.  After a
     * negative answer it is still to be unpinned. */
    int (*look)(struct lode_store *s, uint32_t id, const void **data, struct lode_error *err);
    void (*unpin)(struct lode_store *s, uint32_t id);
    /* It will be pinned in this step: while others are that are not here, it stays if it is.  NULL where all is. */
    void (*need)(struct lode_store *s, uint32_t id);
    /* Guesses: these n may be pinned soon, read in this order.  They take the place of mine before
     * them, which are off where they have not been read to the end and nobody else has guessed them.
     * NULL where that gains nothing; so is settle. */
    void (*want)(struct lode_store *s, struct lode_guesses *mine, struct lode_wanted *wanted, uint32_t n);
    /* What is needed of the layer that my guesses were for has been pinned, or who guesses leaves:
     * those that have not been read to the end are off, as above. */
    void (*settle)(struct lode_store *s, struct lode_guesses *mine);
    /* Counts arrivals and rooms that became free, where weight `id` is kept; wait returns when it is no
     * longer `seen`, and now and then before, so that who waits can look whether it still should. */
    uint64_t (*news)(struct lode_store *s, uint32_t id);
    void (*wait)(struct lode_store *s, uint64_t seen, uint32_t id);
    /* Adds the counts of what is streamed to a profile; NULL where nothing is. */
    void (*count)(struct lode_store *s, struct lode_profile *out);
    /* How often each expert's group was pinned; (n_groups).  NULL where none are streamed. */
    const uint32_t *(*uses)(struct lode_store *s);
    /* After a step: whether any byte that was handed out turned out to be unreadable (a file that
     * shrank while it was mapped).  0 or LODE_ERR_IO. */
    int (*verify)(struct lode_store *s, struct lode_error *err);
    void (*free)(struct lode_store *s);
};

/* What executors note of their steps (lode/profile.h); nanoseconds. */
struct lode_times {
    atomic_uint_least64_t steps, rows, all, head, layers[LODE_PROFILE_LAYERS];
};

/* Thread-safe, shared by all sessions of a model. */
struct lode_store {
    const struct lode_store_ops *ops;
    uint64_t resident; /* bytes of its own that it holds or may come to hold (not mapped file pages) */
    bool guesses; /* want gains something */
    struct lode_times times;
};

/* Pins it and waits until it is there; for whoever holds nothing else that others may wait for.  cancel (may be
 * NULL) is asked while it waits; true: LODE_ERR_CANCELLED. */
int lode_store_pin_now(struct lode_store *s, uint32_t id, const void **data, bool (*cancel)(void *user), void *user,
                       struct lode_error *err);

#endif
