/* state.h - what the recurrent layers of one sequence carry from token to token.
 *
 * The sibling of the KV cache (kv.h) for layers whose memory does not grow: a convolution's last
 * inputs and the delta rule's matrix, F32, of every layer one after the other in one block.  Unlike
 * keys and values they are overwritten as the sequence goes on, so going back needs a copy made in
 * passing: a few checkpoints, taken at multiples of LODE_STATE_EVERY positions.
 *
 * A step begins, its ops advance the block from where it stands, and it is committed; a step that
 * fails in between leaves a block that stands nowhere, until it is rewound to a checkpoint
 * (position 0 is always one: zeros) and the tokens from there on are evaluated again.  Since a
 * token's result does not depend on how it was reached, that gives the same bits.
 *
 * Which checkpoints are kept: a step of several tokens (a prompt) leaves one at the last multiple
 * at least LODE_STATE_BACK tokens before its end, because the next turn of a chat, rendered anew,
 * is often equal up to the mark-up that opened the answer and not to its end; it stays until the
 * next prompt leaves its own.  Single tokens leave one at every multiple.  When a place is needed,
 * that one and the newest stay; of the others the one goes that leaves the shortest gap.
 *
 * All memory is set aside by create and touched only when written; nothing below allocates.  One
 * thread at a time, but that ops of a step write different layers, heads and columns from many.
 */
#ifndef LODE_STORE_STATE_H
#define LODE_STORE_STATE_H

#include "base/error.h"
#include "store/memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LODE_STATE_EVERY = 64, LODE_STATE_BACK = 16, LODE_STATE_CHECKPOINTS = 4 };

struct lode_state_layer {           /* zeros: the layer carries nothing */
    uint32_t inputs, width;         /* rows before a token that its convolution reads, and theirs */
    uint32_t n_heads, dim_k, dim_v; /* of the delta rule; dim_v a multiple of 16 */
    uint8_t place;                  /* where that lies (memory.h) */
};

struct lode_state;

/* layers: (n_layers), copied.  memory: of each place that layers have, borrowed; the rest is the host's.
 * Where that is a device, what moves blocks cannot say that it failed: the next step does. */
int lode_state_create(struct lode_state **out, const struct lode_state_layer *layers,
                      uint32_t n_layers, const struct lode_memory *const memory[LODE_PLACES],
                      struct lode_error *err);
void lode_state_free(struct lode_state *s);
/* Bytes of one block (of some layers, of one), and of what of it lies at a place. */
uint64_t lode_state_block(const struct lode_state_layer *layers, uint32_t n_layers);
uint64_t lode_state_block_at(const struct lode_state_layer *layers, uint32_t n_layers, uint32_t place);

/* ---- a step ---- */

/* Positions pos .. pos + n - 1 follow; the state stands at pos. */
void lode_state_begin(struct lode_state *s, uint32_t pos, uint32_t n);
void lode_state_commit(struct lode_state *s);
/* Whether it stands at position n. */
bool lode_state_at(const struct lode_state *s, uint32_t n);
/* The timeline was cut to n tokens: checkpoints beyond it are of another one. */
void lode_state_truncate(struct lode_state *s, uint32_t n);
/* Goes to the newest checkpoint at or before n and says which position that is. */
uint32_t lode_state_rewind(struct lode_state *s, uint32_t n);

/* ---- its copies outside (in the host's memory), for caches of prefixes ---- */

/* The block, where the state stands somewhere: lode_state_block's bytes; false: a device failed.
 * Restoring one that was saved at position n of a sequence puts the state there; checkpoints beyond n go. */
bool lode_state_save(const struct lode_state *s, void *out);
void lode_state_restore(struct lode_state *s, const void *block, uint32_t n);
/* The checkpoint at position n, if there is one and its device does not fail. */
bool lode_state_checkpoint(const struct lode_state *s, uint32_t n, void *out);
/* The position of the newest checkpoint at or before n; 0: there is none. */
uint32_t lode_state_newest(const struct lode_state *s, uint32_t n);
/* Becomes what src is, of the same layers, without its checkpoints. */
void lode_state_fork(struct lode_state *s, const struct lode_state *src);

/* ---- for ops ---- */

/* How many rows of this step come before the checkpoint that it leaves; UINT32_MAX: it leaves none.
 */
uint32_t lode_state_mark(const struct lode_state *s);
/* Where the block, or the checkpoint that this step leaves, begins at a place; NULL: nothing lies there. */
float *lode_state_begins(const struct lode_state *s, uint32_t place, bool mark);
/* A layer's part of it. */
float *lode_state_inputs(const struct lode_state *s, uint32_t layer,
                         bool mark); /* (inputs, width) */
/* (dim_v / 16, dim_k, 16): LODE_DELTA_ARGS in kern/kern.h. */
float *lode_state_delta(const struct lode_state *s, uint32_t layer, uint32_t head, bool mark);

#endif
