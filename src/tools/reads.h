/* reads.h - how fast the memory can be read that a model's weights lie in. */
#ifndef LODE_TOOLS_READS_H
#define LODE_TOOLS_READS_H

#include "lode/lode.h"

/* Bytes/s: the machine's by so many threads, measured for about so many seconds; or, of a model that is wholly on one
 * GPU, that GPU's, which does not change and is measured the first time.  0: not known, as the model is some here,
 * some there, or there is no room to measure in. */
double reads_of_model(const struct lode_model *m, uint32_t threads, double seconds);

#endif
