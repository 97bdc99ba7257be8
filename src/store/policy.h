/* policy.h - which expert leaves a cache when another needs its room.
 *
 * A policy counts bytes and remembers uses; the bytes themselves are the store's.  Keys are small:
 * an id for each expert of each layer, so that everything a policy could want to remember, of those
 * that have left too, is one table, allocated when it is created and never after.  The same calls
 * give the same victims, always.
 *
 *     struct lode_policy *p;
 *     lode_policy_create(&p, NULL, &(struct lode_policy_shape){ 48, 128, bytes }, &err);
 *     id = lode_policy_id(p, layer, expert);
 *     if (lode_policy_holds(p, id)) {
 *         lode_policy_touch(p, id);
 *     } else {
 *         lode_policy_visit(p, id);
 *         while (lode_policy_used(p) + size > lode_policy_capacity(p)) {
 *             if (!lode_policy_victim(p, &old))
 *                 ...                             all that is here is pinned: wait, or refuse
 *             drop(old);                          it is out of the policy's books already
 *         }
 *         lode_policy_admit(p, id, size, false);  before or after its bytes arrive, as the store likes
 *     }
 *     lode_policy_pin(p, id); ... lode_policy_unpin(p, id);    while it is read into or computed with
 *
 * A touch is one use: for a batch of tokens one for each expert that they use, however many they
 * are.  Guesses (prefetch) are admitted as such; one that is used after all is touched.
 * Calls on one policy come from one thread at a time.
 */
#ifndef LODE_STORE_POLICY_H
#define LODE_STORE_POLICY_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* name, what leaves first.  The names are what --cache-policy takes. */
#define LODE_POLICY_LIST(X)                                                                        \
    X(next, "what is least likely to be needed soon, by layers to go and uses of late")        \
    X(lru, "what was used longest ago")                                                            \
    X(slru, "the same, in two segments: what was used twice stays longer")                         \
    X(s3fifo, "first in, first out, in a small queue for newcomers and a large one for others")    \
    X(lfu, "what was used least often; old uses count half, and half again")

enum { LODE_POLICY_MAX_IDS = 1 << 22 }; /* layers x experts: 64 bytes each at most */

struct lode_policy;

struct lode_policy_shape {
    uint32_t n_layers, n_experts;
    uint64_t capacity; /* bytes */
};

/* name: one of the list; NULL: the default.  LODE_ERR_ARG says which there are. */
int lode_policy_create(struct lode_policy **out, const char *name,
                       const struct lode_policy_shape *shape, struct lode_error *err);
void lode_policy_free(struct lode_policy *p);
const char *lode_policy_name(const struct lode_policy *p);
const char *lode_policy_default(void);

uint32_t lode_policy_id(const struct lode_policy *p, uint32_t layer, uint32_t expert);

bool lode_policy_holds(const struct lode_policy *p, uint32_t id);
uint64_t lode_policy_used(const struct lode_policy *p);     /* bytes admitted */
uint64_t lode_policy_capacity(const struct lode_policy *p); /* bytes; used may exceed it after a cut */
/* Memory pressure takes bytes away, and gives them back: the caller then asks for victims. */
void lode_policy_set_capacity(struct lode_policy *p, uint64_t capacity);

/* What is used from now on is of this id's layer, which need not be held: called before victims are asked
 * for on its behalf.  A touch or an admission, but for guesses, says the same. */
void lode_policy_visit(struct lode_policy *p, uint32_t id);
/* All uses of the visit have been told: what is to be learned of it is reckoned now.  Without, the next visit waits for
 * that.  Another use of the layer is a visit of its own. */
void lode_policy_end_visit(struct lode_policy *p);
/* It is held, and was used. */
void lode_policy_touch(struct lode_policy *p, uint32_t id);
/* It is not held, and now is: `size` bytes.  That is a use, unless it is a guess: a guess is used when
 * it is touched. */
void lode_policy_admit(struct lode_policy *p, uint32_t id, uint64_t size, bool guess);
/* It is held, and is guessed to be used when its layer is visited next, or known to be in this very visit. */
void lode_policy_expect(struct lode_policy *p, uint32_t id);
/* Takes the held, unpinned id whose bytes are worth least out of the books; false: there is none. */
bool lode_policy_victim(struct lode_policy *p, uint32_t *id);
/* Takes out one that is held and unpinned, because its bytes never came or turned out wrong. */
void lode_policy_remove(struct lode_policy *p, uint32_t id);

/* Held ids only; pins nest. */
void lode_policy_pin(struct lode_policy *p, uint32_t id);
void lode_policy_unpin(struct lode_policy *p, uint32_t id);

#endif
