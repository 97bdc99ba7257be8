/* rng.h - random numbers that depend on a seed and a position, and on nothing else.
 *
 * Counter based (Philox 4x32-10; Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3",
 * SC 2011), so that the number drawn for token 17 is the same however the first 16 were produced.
 */
#ifndef LODE_BASE_RNG_H
#define LODE_BASE_RNG_H

#include <stdint.h>

/* Four independent words for (seed, position). */
void lode_rng_philox(uint64_t seed, uint64_t position, uint32_t out[4]);

/* Uniform in [0, 1), 53 bits, the which-th (0 or 1) number of (seed, position). */
double lode_rng_uniform(uint64_t seed, uint64_t position, int which);

#endif
