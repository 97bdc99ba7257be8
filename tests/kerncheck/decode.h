/* decode.h - products with few columns beside what memory gives (decode.c). */
#ifndef LODE_KERNCHECK_DECODE_H
#define LODE_KERNCHECK_DECODE_H

#include "kc.h"

/* With t->now, of the types that are named (n: 0, of the usual ones); prints a table.  Negative: it could
 * not be measured. */
int kc_decode(struct kc *t, uint32_t threads, char **names, int n);

#endif
