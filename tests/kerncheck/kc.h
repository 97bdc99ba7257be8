/* kc.h - the kernel checker.
 *
 * For every kernel NAME of LODE_KERN_LIST, and every dequant_TYPE of LODE_DEQUANT_LIST, somebody
 * defines check_NAME; without it the program does not link.  The function is called once for each
 * usable instruction set (the scalar one included) and each side of the guard pages, and holds
 *
 *   - the scalar kernel, t->ref, to double precision within a derived bound (kc_near), or to other kernels' bits: where
 *     that takes long, once (KC_OF_REF);
 *   - the kernel under test, t->now, to the scalar one, bit for bit (kc_same...);
 *   - both to their buffers (kc_tight: one byte too far is a fault, reported with the seed).
 *
 * The same function times the kernel: under --bench the KC_EACH loops are skipped and the KC_TIME
 * lines repeat their statement; otherwise they run it once.
 *
 *     void check_add(struct kc *t) {
 *         KC_EACH(n, kc_lengths) {
 *             float *a = kc_floats(t, n, KC_SPECIAL), *b = kc_floats(t, n, KC_SPECIAL);
 *             float *want = kc_tight(t, n * sizeof *want), *got = kc_tight(t, n * sizeof *got);
 *             kc_case(t, "n=%zu", n);
 *             t->ref->add(want, a, b, n);
 *             t->now->add(got, a, b, n);
 *             kc_same_floats(t, got, want, n);
 *         }
 *         const size_t n = 4096;
 *         float *y = kc_tight(t, n * sizeof *y), *a = kc_floats(t, n, KC_NORMAL);
 *         KC_TIME(t, "n=4096", 12.0 * n, n)
 *             t->now->add(y, a, a, n);
 *     }
 */
#ifndef KC_H
#define KC_H

#include "kern/kern.h"

struct kc {
    const struct lode_kern *ref; /* the scalar table */
    const struct lode_kern *now; /* the table under test */
    bool bench;
    struct kc_state *state; /* kc.c's */
};

/* Lengths 0, 1, around every unrolling step, then real row sizes. */
enum { KC_N_LENGTHS = 43 };
extern const size_t kc_lengths[KC_N_LENGTHS];

/* for each n of an array, or, by --some, of one out of two, by --few of one out of six, others with each seed; buffers taken
 * in the body are given back at its end.  The struct kc must be called t.  The outer loop runs
 * once: `continue` and `break` do what they do in any loop. */
struct kc_loop {
    const size_t *list;
    size_t count, i, mark;
    bool done;
    size_t one_of; /* of so many of the list; 0: all */
};
struct kc_loop kc_loop(struct kc *t, const size_t *list, size_t count);
bool kc_next(struct kc *t, struct kc_loop *l, size_t *n);
#define KC_EACH(n, list)                                                                           \
    for (struct kc_loop kc_##n = kc_loop(t, list, sizeof(list) / sizeof *(list)); !kc_##n.done;    \
         kc_##n.done = true)                                                                       \
        for (size_t n; kc_next(t, &kc_##n, &n);)

/* size bytes that end at (or, in the second round, begin after) an unreadable page; aligned only
 * as far as the size makes them.  Contents are random bytes.  Freed after the check or loop body.
 * kc_tight_aligned: the start is a multiple of align too, at most align-1 bytes from the page. */
void *kc_tight(struct kc *t, size_t size);
void *kc_tight_aligned(struct kc *t, size_t size, size_t align);

/* Random numbers of this check: they depend on the seed and the kernel's name only. */
uint64_t kc_bits(struct kc *t);
size_t kc_below(struct kc *t, size_t n); /* 0 .. n-1 */
double kc_uniform(struct kc *t);         /* [0, 1) */
float kc_normal(struct kc *t);           /* mean 0, deviation 1 */

enum kc_kind {
    KC_NORMAL,  /* normal numbers */
    KC_WIDE,    /* random sign and mantissa, exponents from 2^-40 to 2^40 */
    KC_SPECIAL, /* one in three is a zero of either sign, subnormal, huge, infinite or NaN */
};
float kc_float(struct kc *t, enum kc_kind kind);
void kc_fill(struct kc *t, float *x, size_t n, enum kc_kind kind);
float *kc_floats(struct kc *t, size_t n, enum kc_kind kind); /* kc_tight + kc_fill */

/* Before what holds the scalar kernel alone and draws no numbers: these are the same for all instruction sets and sides, so
 * with the scalar table alone and once. */
#define KC_OF_REF(t) if (kc_of_ref(t))
bool kc_of_ref(const struct kc *t);

/* What is being checked now, for the message of a failure. */
__attribute__((format(printf, 2, 3))) void kc_case(struct kc *t, const char *fmt, ...);

/* Each returns whether it held.  Any two NaNs are the same; all else is compared by its bits. */
bool kc_same(struct kc *t, float got, float want, size_t at);
bool kc_same_floats(struct kc *t, const float *got, const float *want, size_t n);
bool kc_same_bytes(struct kc *t, const void *got, const void *want, size_t n);
/* |got - exact| <= bound; infinities and NaN must be equal. */
bool kc_near(struct kc *t, double got, double exact, double bound, size_t at);
bool kc_true(struct kc *t, bool holds, const char *what);

/* KC_TIME(t, label, bytes read and written, operations) statement;  Under --bench a statement
 * whose operations would keep the scalar kernel for seconds is not timed there. */
struct kc_timer {
    struct kc *t;
    const char *label;
    double bytes, ops, start, best;
    uint64_t left, batch;
    int round;
};
struct kc_timer kc_timer(struct kc *t, const char *label, double bytes, double ops);
bool kc_timer_next(struct kc_timer *m);
#define KC_TIME(t, label, bytes, ops)                                                              \
    for (struct kc_timer kc_m_ = kc_timer(t, label, bytes, ops);                                   \
         kc_m_.left ? (kc_m_.left--, true) : kc_timer_next(&kc_m_);)

/* The checks that must exist. */
#define KC_DECLARE(name, ret, args) void check_##name(struct kc *t);
#define KC_DECLARE_DEQUANT(s, type) void check_dequant_##s(struct kc *t);
LODE_KERN_LIST(KC_DECLARE)
LODE_DEQUANT_LIST(KC_DECLARE_DEQUANT)

#endif
