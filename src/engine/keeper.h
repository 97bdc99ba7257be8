/* keeper.h - the tree of prefixes and the disk beneath it.
 *
 * Pages that the tree gets are written behind its back, by a thread of its own, in the order they
 * came; what a request begins with is brought from the disk into the tree before the request gets a
 * seat, a little at a time while others run.  Nothing fails where the disk does: it is counted, and
 * what could not be kept is read anew.
 *
 * All of this is called with the scheduler's lock, on its thread but for what concerns words.
 */
#ifndef LODE_ENGINE_KEEPER_H
#define LODE_ENGINE_KEEPER_H

#include "engine/disk.h"
#include "engine/prefix.h"

struct lode_keeper;

struct lode_keeper_opts {
    const char *path;
    uint64_t max_bytes;
    XXH128_hash_t identity;
    struct lode_prefix *prefix; /* borrowed */
    struct lode_kv_pool *pool;  /* borrowed */
    size_t state_block;         /* bytes; 0: the model has none */
    void (*wake)(void *user);   /* something was written; from its thread */
    void *user;
};
int lode_keeper_create(struct lode_keeper **out, const struct lode_keeper_opts *o,
                       struct lode_error *err);
/* Writes what is still to be written, for `seconds` at most. */
void lode_keeper_free(struct lode_keeper *k, double seconds);

/* The node's pages, or its state, are to be written. */
void lode_keeper_save(struct lode_keeper *k, struct lode_prefix_node *node, enum lode_disk_kind kind);
/* Hands work over and takes back what is done; whether some is left. */
bool lode_keeper_turn(struct lode_keeper *k);

/* Brings what the disk has of tokens (n) into the tree, for some `seconds`; true: no more of it. */
bool lode_keeper_fetch(struct lode_keeper *k, const int32_t *tokens, uint32_t n, double seconds);

/* Tokens under a key of their owner's, written at once. */
void lode_keeper_put_words(struct lode_keeper *k, const uint64_t key[2], const int32_t *tokens, size_t n);
/* A copy of them, to be freed, and how many; NULL: there are none. */
int32_t *lode_keeper_get_words(struct lode_keeper *k, const uint64_t key[2], size_t *n);

struct lode_keeper_stats {
    struct lode_disk_stats disk;
    uint64_t written, read, errors, dropped; /* entries; dropped: gone before they could be written */
};
void lode_keeper_stats(const struct lode_keeper *k, struct lode_keeper_stats *out);

#endif
