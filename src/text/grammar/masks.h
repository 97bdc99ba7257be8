/* masks.h - which tokens may follow.
 *
 * The tokens that a set of threads allows are those that any of its threads does.  For one thread,
 * most tokens are settled by its topmost frame alone: a token that stays within the string, or
 * breaks it, does so whatever the string stands in.  So for each kind of place (a frame without
 * what is below it) one walk over all tokens finds those that are allowed and those that run out of
 * the frame; the former are kept as a mask, the latter as a list, and only these are tried again
 * where the frame stands in full.  Masks of places belong to the grammar and are shared by all its
 * states; beside them each state keeps the last whole masks.
 */
#ifndef LODE_GRAMMAR_MASKS_H
#define LODE_GRAMMAR_MASKS_H

#include "text/grammar/machine.h"
#include "text/grammar/vocab_trie.h"

struct mask_cache; /* of a grammar, or of a vocabulary: of texts of any kind, which are alike in all grammars */
struct mask_cache *mask_cache_create(void);
void mask_cache_free(struct mask_cache *c);
size_t mask_cache_bytes(struct mask_cache *c);

enum { MASKS_KEPT = 16 };

struct masker { /* of a state */
    const struct lode_grammar_vocab *vocab;
    struct frame *keys[MASKS_KEPT]; /* owned: the threads that a mask is for */
    size_t n_keys[MASKS_KEPT];
    uint64_t *masks[MASKS_KEPT]; /* owned */
    uint32_t next;
    frame_list walk; /* threads of all depths */
    gvec_u32 ends;   /* where each depth's threads end */
};
void masker_free(struct masker *k);
/* Forgets whole masks: the numbers of frames have changed. */
void masker_forget(struct masker *k);
int masker_mask(struct masker *k, struct machine *m, uint64_t *mask, struct lode_error *err);
/* Masks of places that a text will come to, for so many seconds at most. */
int masker_ahead(struct masker *k, struct machine *m, double seconds, struct lode_error *err);

#endif
