/* prefix.h - what has been read already: beginnings of timelines, as a tree of pages.
 *
 * A node is a page's tokens after those of its parents; it holds the page of each group of layers
 * (store/kv_pool.h) and, of models with recurrent layers, here and there a copy of the state at its
 * end.  A page less than full may be a leaf: whoever continues it copies it first.
 *
 * Sequences that run pin the path that they share; what nobody pins goes when the room is wanted, the
 * least recently used leaf first.  Pages of sliding windows and copies of states go alone too: the
 * nodes stay, and a sequence can go on from where a window's worth of pages, or a state, is left.
 *
 * All memory is set aside by create.  One thread.
 */
#ifndef LODE_ENGINE_PREFIX_H
#define LODE_ENGINE_PREFIX_H

#include "store/kv.h"
#include "store/state.h"

#include <xxhash.h>

struct lode_prefix;
struct lode_prefix_node;

struct lode_prefix_opts {
    struct lode_kv_pool *pool; /* shared */
    uint32_t ctx;              /* longest timeline */
    uint64_t state_block;      /* bytes of a state; 0: the model has none */
    uint32_t max_states;       /* copies of states */
    uint64_t max_bytes;        /* of pages and states together, at all times; 0: nothing is kept */
};
int lode_prefix_create(struct lode_prefix **out, const struct lode_prefix_opts *o,
                       struct lode_error *err);
void lode_prefix_free(struct lode_prefix *p);

/* ---- finding ---- */

struct lode_prefix_match {
    struct lode_prefix_node *at;   /* the last full page */
    struct lode_prefix_node *part; /* a page of which the first n % LODE_KV_PAGE tokens are right; NULL */
    uint32_t n;                    /* tokens */
    uint32_t pinned;               /* pages on the way that others run on anyway */
};
/* The longest beginning of tokens, at most `most` of them, from whose end a sequence can go on. */
struct lode_prefix_match lode_prefix_find(struct lode_prefix *p, const int32_t *tokens, uint32_t most);
/* An empty sequence becomes that beginning, and pins m->at. */
void lode_prefix_enter(struct lode_prefix *p, const struct lode_prefix_match *m, struct lode_kv *kv,
                       struct lode_state *state);

struct lode_prefix_node *lode_prefix_root(struct lode_prefix *p);
/* Another sequence on the same path; and one less. */
void lode_prefix_pin(struct lode_prefix *p, struct lode_prefix_node *at);
void lode_prefix_unpin(struct lode_prefix *p, struct lode_prefix_node *at);

/* ---- growing ---- */

/* A page of n tokens (at most LODE_KV_PAGE) that kv holds, after `at`, which is pinned.  Where the tree has it already,
 * kv takes that copy instead of its own.  The node, or NULL where there is no room. */
struct lode_prefix_node *lode_prefix_add(struct lode_prefix *p, struct lode_prefix_node *at,
                                         const int32_t *tokens, uint32_t n, struct lode_kv *kv);
/* A full page that the caller has filled (pages: (groups), LODE_KV_NONE where there is none), which
 * the tree takes over, also when it fails. */
struct lode_prefix_node *lode_prefix_put(struct lode_prefix *p, struct lode_prefix_node *at,
                                         const int32_t *tokens, const uint32_t *pages);
/* Moves a sequence's pin on to a child of what it has pinned. */
void lode_prefix_advance(struct lode_prefix *p, struct lode_prefix_node *child);

/* Room for a copy of the state at the node's end, to be filled at once; NULL: there is none. */
void *lode_prefix_state(struct lode_prefix *p, struct lode_prefix_node *node);
void lode_prefix_forget_state(struct lode_prefix *p, struct lode_prefix_node *node);

/* ---- giving way ---- */

/* Lets things go until the pool has n free pages of the group; false: it has not so many. */
bool lode_prefix_reclaim(struct lode_prefix *p, uint32_t group, uint32_t n);
void lode_prefix_clear(struct lode_prefix *p);
/* Lets go what nobody pins until so many bytes are free, and gives the system what free pages and states
 * have touched; the bound falls by for_good. */
void lode_prefix_shrink(struct lode_prefix *p, uint64_t bytes, uint64_t for_good);
/* Keeps to a bound that fell while what is above it was pinned.  Cheap where nothing is above it. */
void lode_prefix_settle(struct lode_prefix *p);
/* The bound rises again by a sixteenth of what it was at first. */
void lode_prefix_grow(struct lode_prefix *p);

/* ---- looking ---- */

uint64_t lode_prefix_bytes(const struct lode_prefix *p);
uint64_t lode_prefix_idle(const struct lode_prefix *p); /* of them those that nobody pins */
/* Pages of the group on pinned paths. */
uint32_t lode_prefix_pinned(const struct lode_prefix *p, uint32_t group);
uint64_t lode_prefix_evicted(const struct lode_prefix *p); /* nodes, so far */

uint32_t lode_prefix_depth(const struct lode_prefix_node *node); /* pages from the beginning on */
struct lode_prefix_node *lode_prefix_parent(const struct lode_prefix_node *node);
/* Of all tokens from the beginning to the node's end. */
XXH128_hash_t lode_prefix_key(const struct lode_prefix_node *node);
/* The key of a page's tokens after those that have the key `before`. */
XXH128_hash_t lode_prefix_next_key(XXH128_hash_t before, const int32_t *tokens);
/* Whether the node is still the one that had this key. */
bool lode_prefix_is(const struct lode_prefix_node *node, XXH128_hash_t key);
struct lode_prefix_node *lode_prefix_child(struct lode_prefix *p, const struct lode_prefix_node *at,
                                           const int32_t *tokens);
const int32_t *lode_prefix_tokens(const struct lode_prefix_node *node); /* (LODE_KV_PAGE) of a full one */
uint32_t lode_prefix_page(const struct lode_prefix *p, const struct lode_prefix_node *node,
                          uint32_t group);
const void *lode_prefix_state_of(const struct lode_prefix *p, const struct lode_prefix_node *node);

#endif
