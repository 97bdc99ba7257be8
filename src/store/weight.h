/* weight.h - a weight is a handle, not a pointer.
 *
 * It has a home (a place in a file) and, while it is pinned, an address.  Whoever computes with it
 * pins it for one step and unpins it afterwards, and never keeps the address: between two steps a
 * weight may move, be evicted, or be read again.
 */
#ifndef LODE_STORE_WEIGHT_H
#define LODE_STORE_WEIGHT_H

#include "base/error.h"
#include "format/source.h"
#include "graph/graph.h"

struct lode_weight {
    struct lode_operand op; /* as it is computed with; op.id: its place in the model's list */
    const struct lode_gguf_tensor *home; /* borrowed from the source: name, place, type */
    size_t offset, size;                 /* bytes of the tensor that are this weight */
};

enum lode_residence { LODE_READY = 0, LODE_PENDING = 1 };

struct lode_store;

struct lode_store_ops {
    /* LODE_READY: *data is the weight, valid until unpin.  LODE_PENDING: its bytes are on their
     * way (this call started that, if nobody had); ask again after wait.  Negative: it can't be
     * had.  Each READY is paired with one unpin. */
    int (*pin)(struct lode_store *s, uint32_t id, const void **data, struct lode_error *err);
    void (*unpin)(struct lode_store *s, uint32_t id);
    /* Returns when at least one pending weight has arrived, or an error. */
    int (*wait)(struct lode_store *s, struct lode_error *err);
    /* After a step: whether any byte that was handed out turned out to be unreadable (a file that
     * shrank while it was mapped).  0 or LODE_ERR_IO. */
    int (*verify)(struct lode_store *s, struct lode_error *err);
    void (*free)(struct lode_store *s);
};

/* Thread-safe, shared by all sessions of a model. */
struct lode_store {
    const struct lode_store_ops *ops;
    uint64_t resident; /* bytes of its own that it holds (not mapped file pages) */
};

#endif
