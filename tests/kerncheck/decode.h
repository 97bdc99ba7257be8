/* decode.h - what decoding reads, beside what memory gives (decode.c). */
#ifndef LODE_KERNCHECK_DECODE_H
#define LODE_KERNCHECK_DECODE_H

#include "kc.h"

#include "base/threads.h"

/* With t->now, of the types that are named (n: 0, of the usual ones); prints tables.  Negative: it could
 * not be measured. */
int kc_decode(struct kc *t, uint32_t threads, char **names, int n);

/* One way to go through `bytes` of memory; rounds take three of them in turns. */
struct kc_pass {
    lode_pool_fn *task;
    void *arg;
    uint32_t tasks;
    double bytes;
};
enum { KC_PASSES = 3 };

#define KC_DECODE_SIZE ((size_t)1 << 28) /* far more than a core's caches */

struct kc_quartiles {
    double median, low, high;
};

struct kc_rounds {
    struct kc_quartiles reads;            /* bytes/s of plain reads */
    struct kc_quartiles speed[KC_PASSES]; /* bytes/s */
    struct kc_quartiles share[KC_PASSES]; /* of the round's reads */
    struct kc_quartiles cost[KC_PASSES];  /* time over that of the first pass */
};

void kc_rounds(struct kc_rounds *out, struct lode_pool *pool, const struct kc_pass p[static KC_PASSES]);

/* A line for keys and values of a type (decode_kv.c), after the table's head where one begins. */
int kc_decode_kv(struct kc *t, struct lode_pool *pool, enum lode_dtype type, bool head);

#endif
