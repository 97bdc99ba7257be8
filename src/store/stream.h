/* stream.h - weights of a model that is larger than the memory it may use.
 *
 * Groups of weights (weight.h) are read when they are asked for and stay in a cache of a fixed
 * number of bytes until others need the room; a policy (policy.h) says which leave.  All other
 * weights are where file_store has them.  What a pinned weight's bytes are never depends on any of
 * this, so a streamed model computes what a resident one does.
 *
 * Reading is the reader's (reader.h), straight from the files where they have the bytes as they are
 * computed with, else through the source on a few threads.  A group in flight has its room already,
 * so the budget holds at every moment.
 */
#ifndef LODE_STORE_STREAM_H
#define LODE_STORE_STREAM_H

#include "store/file_store.h"
#include "store/reader.h"

struct lode_stream_opts {
    uint64_t budget;    /* bytes of the cache; at least the largest group's */
    const char *policy; /* NULL: the default */
    bool no_prefetch;   /* guesses are not taken */
    bool no_checksum;   /* do not compare those that packed models have */
    struct lode_reader_opts reader;
    const uint32_t *hot; /* (n_hot) groups that the cache begins with, the most used first */
    uint32_t n_hot;
    bool in_turn; /* groups are used one after the other, as layers are: the next is read early */
    struct lode_store *under; /* what has all other weights; owned from now on, also on failure;
                                 NULL: one is made where files have them, as `resident` says */
    struct lode_file_store_opts resident;
};

/* The groups first .. first + n_groups - 1 of the model's list.  All borrowed; they must outlive
 * the store.  LODE_ERR_LIMIT, with the number that would do, where the budget does not hold the
 * largest group. */
int lode_stream_create(struct lode_store **out, const struct lode_source *source,
                       const struct lode_weight *weights, uint32_t n_weights,
                       const struct lode_group *groups, uint32_t first, uint32_t n_groups,
                       const struct lode_stream_opts *opts, struct lode_error *err);

/* Bytes that the cache must have at least, and what it has when nothing ever has to leave. */
void lode_stream_sizes(const struct lode_source *source, const struct lode_weight *weights,
                       const struct lode_group *groups, uint32_t n_groups, uint64_t *least,
                       uint64_t *most);

#endif
