/* chance.h - how likely each expert of a layer is used when its layer is visited next, learned from visits.
 *
 * A chance is a weighted sum of how often the expert was used of late, for six meanings of "of late"
 * (averages that halve in 0.5, 2, 8, 32, 128 and 512 visits), and of the layer's mean.  The weights, one set for all
 * layers, are those that would have been best so far (least squares over what each visit turned out to use, where
 * a visit counts e times less after 200 rounds): from the first dozens of visits on a text that sticks to few
 * experts and one that wanders both get their due.
 *
 *     lode_chances_create(&c, n_layers, n_experts)
 *     lode_chances_visit(c, layer, used, ahead);     a visit is over: used[e] says of which experts
 *
 * A visit costs some 80 multiplications an expert.  Sums have a fixed order and nothing is contracted: the same on
 * every machine.  Calls on one come from one thread at a time.
 */
#ifndef LODE_STORE_CHANCE_H
#define LODE_STORE_CHANCE_H

#include <stdbool.h>
#include <stdint.h>

struct lode_chances;

/* That it is used in the 1st, 2nd, ... visit of its layer from now on, if it is in none before. */
enum { LODE_CHANCES_AHEAD = 4 };

struct lode_chances *lode_chances_create(uint32_t n_layers, uint32_t n_experts); /* NULL: out of memory */
void lode_chances_free(struct lode_chances *c);
/* used: (n_experts); ahead: (n_experts), each between 1e-5 and 1. */
void lode_chances_visit(struct lode_chances *c, uint32_t layer, const bool *used,
                        float (*ahead)[LODE_CHANCES_AHEAD]);

#endif
