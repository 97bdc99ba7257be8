/* trial.h - whether reading ahead pays, tried out.
 *
 * Guesses that are right spare waiting; all that are read take time of the disk and of memory.  Which of it
 * weighs more depends on the model, the machine and the cache.  So now and then a few hundred layers are computed with
 * guesses and as many without, in turn, and the way that took less time is kept until the next time.
 *
 *     struct lode_trial t = LODE_TRIAL;
 *     if (!t.off) ... guess ...
 *     lode_trial_add(&t, took);            after each layer that could have been guessed for
 */
#ifndef LODE_STORE_TRIAL_H
#define LODE_STORE_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

enum {
    LODE_TRIAL_FIRST = 2048,    /* layers before the first, in which caches fill */
    LODE_TRIAL_PART = 256,      /* of one way, */
    LODE_TRIAL_PARTS = 8,       /* with and without in turn */
    LODE_TRIAL_BETWEEN = 16384, /* from one to the next: 1 layer in 18 is computed without where guesses pay */
    LODE_TRIAL_OUTLIER = 8,     /* times the mean: no layer counts for more, or a disk's hiccup would decide */
};

struct lode_trial {
    uint32_t left, part; /* of this part; part 0: none is being tried */
    uint64_t took[2];    /* with, without */
    uint64_t mean;       /* of late, of a layer */
    bool off;
};
#define LODE_TRIAL {.left = LODE_TRIAL_FIRST}

/* took: nanoseconds.  Without is kept where it took less by a twentieth. */
static inline void lode_trial_add(struct lode_trial *t, uint64_t took) {
    const uint64_t most = LODE_TRIAL_OUTLIER * t->mean;
    took = t->mean && took > most ? most : took;
    t->mean += took / LODE_TRIAL_PART - t->mean / LODE_TRIAL_PART;
    if (t->part)
        t->took[t->off] += took;
    if (--t->left)
        return;
    if (t->part == 0)
        t->took[0] = t->took[1] = 0;
    t->part = t->part < LODE_TRIAL_PARTS ? t->part + 1 : 0;
    t->off = t->part ? t->part % 2 == 0 : t->took[1] < t->took[0] - t->took[0] / 20;
    t->left = t->part ? LODE_TRIAL_PART : LODE_TRIAL_BETWEEN;
}

#endif
