/* step.h - one thread of the machine, one byte: what machine.c, step_json.c, step_rule.c share.
 *
 * Each step_X appends to `out` the threads that thread t becomes by byte c; equal ones among
 * out[first, n) are one.  What fails is noted in m->failed.
 */
#ifndef LODE_GRAMMAR_STEP_H
#define LODE_GRAMMAR_STEP_H

#include "text/grammar/machine.h"

void step_emit(struct machine *m, frame_list *out, size_t first, const struct frame *f);
/* Puts a frame below, as *out, and says how deep what stands above it is; false where that fails.
 */
bool step_push(struct machine *m, const struct frame *f, uint32_t *out, uint32_t *depth);
/* The thread goes on in the frame below. */
void step_back(struct machine *m, uint32_t parent, frame_list *out, size_t first);
/* A thread of any kind. */
void step_thread(struct machine *m, const struct frame *t, uint8_t c, frame_list *out,
                 size_t first);

/* ---- JSON ---- */

static inline bool step_is_blank(uint8_t c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}
typedef void step_fn(struct machine *m, struct frame t, uint8_t c, frame_list *out, size_t first);
step_fn step_value, step_literal, step_string, step_number, step_key, step_object, step_array;
/* Whether the number that F_NUMBER_FREE has read, in any spelling, is one of the node's. */
bool step_number_done(const struct machine *m, const struct frame *t);

/* ---- rules ---- */

step_fn step_rule;
/* Adds the threads that stand before a character when the rules are at state q, above `parent`. */
void step_close_rule(struct machine *m, uint32_t q, uint32_t parent, uint32_t depth,
                     frame_list *out, size_t first);

#endif
