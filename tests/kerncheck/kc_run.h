/* kc_run.h - between main.c, which chooses what to check, and kc.c, which checks it. */
#ifndef KC_RUN_H
#define KC_RUN_H

#include "kc.h"

enum { KC_MAX_ERRORS = 5, KC_MAX_TIMES = 64 };
enum kc_side { KC_END, KC_START }; /* of a buffer, where the unreadable page lies */

struct kc_time {
    const char *label;
    double ns;
};

struct kc_state {
    uint64_t seed, rng;
    size_t one_of; /* sizes out of each list: one of so many; 0: all */
    const char *name; /* of the kernel */
    enum kc_side side;
    size_t slack; /* bytes between a buffer's end and that page */
    char what[160];
    unsigned n_errors;
    struct kc_buffer *buffers; /* owned; (cap_buffers) */
    size_t n_buffers, cap_buffers;
    struct kc_time scalar[KC_MAX_TIMES]; /* of this kernel, for the ratio */
    size_t n_scalar;
};

typedef void kc_check(struct kc *t);

enum { KC_SOME = 2, KC_FEW = 6 };
static inline const char *kc_sizes_flag(const struct kc_state *s) {
    return s->one_of == KC_SOME ? "--some " : s->one_of == KC_FEW ? "--few " : "";
}

/* Runs one check on t->now; false: something did not hold. */
bool kc_run(struct kc *t, const char *name, kc_check *check);

#endif
