/* recall.h - timelines by a key of their owner's: what the model wrote, as the tokens that were sampled.
 *
 * Bounded; what was used least recently goes.  Any thread.
 */
#ifndef LODE_ENGINE_RECALL_H
#define LODE_ENGINE_RECALL_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct lode_recall;

int lode_recall_create(struct lode_recall **out, uint64_t max_bytes, struct lode_error *err);
void lode_recall_free(struct lode_recall *r);

/* tokens: (n), copied.  One that is longer than the bound is not kept, which is no error. */
int lode_recall_put(struct lode_recall *r, const uint64_t key[2], const int32_t *tokens, size_t n,
                    struct lode_error *err);
/* How many there are under the key, of which up to cap are copied; 0: none. */
size_t lode_recall_get(struct lode_recall *r, const uint64_t key[2], int32_t *out, size_t cap);
/* What is kept, at most max_bytes. */
uint64_t lode_recall_bytes(struct lode_recall *r);

#endif
