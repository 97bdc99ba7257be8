/* build.h - what the compilers of constraints share: memory, effort and growing arrays.
 *
 * What a compiled grammar keeps lies in its arena.  Effort is counted in `work`, about one unit for
 * each transition or list entry that is made; a compilation that passes LODE_GRAMMAR_WORK ends in
 * LODE_ERR_LIMIT.  So time and memory of every front end are bounded by one number, whatever the
 * input: products, repetitions and determinisation all pay here.
 */
#ifndef LODE_GRAMMAR_BUILD_H
#define LODE_GRAMMAR_BUILD_H

#include "base/alloc.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"

enum { LODE_GRAMMAR_WORK = 30 * 1000 * 1000 };

struct gbuild {
    struct lode_arena *arena; /* of the grammar */
    uint64_t work;
    const char *where; /* the place in the source, for errors; borrowed */
    struct lode_error *err;
};

static inline int gb_nomem(struct gbuild *b) { return lode_fail_nomem(b->err, "a grammar"); }

static inline int gb_work(struct gbuild *b, uint64_t n) {
    b->work += n;
    if (b->work <= LODE_GRAMMAR_WORK)
        return 0;
    return lode_fail(
        b->err, LODE_ERR_LIMIT, b->where,
        "the constraint is too large to enforce: it needs more than %d transitions "
        "(bounded repetitions multiply; make counts or the number of branches smaller)",
        LODE_GRAMMAR_WORK);
}

/* A growing array on the heap; init is zeroing. */
#define GVEC(type)                                                                                 \
    struct {                                                                                       \
        type *v;                                                                                   \
        size_t n, cap;                                                                             \
    }

static inline bool gvec_room_(void **v, size_t *cap, size_t n, size_t size) {
    if (n <= *cap)
        return true;
    const size_t want = n > SIZE_MAX / 2 ? n : n + n / 2 + 8;
    void *p = lode_realloc(*v, want, size);
    if (!p)
        return false;
    *v = p;
    *cap = want;
    return true;
}
/* Room for `more` items behind the last. */
#define GVEC_ROOM(x, more) gvec_room_((void **)&(x)->v, &(x)->cap, (x)->n + (more), sizeof *(x)->v)
#define GVEC_PUSH(x, item) (GVEC_ROOM(x, 1) && ((x)->v[(x)->n++] = (item), true))
#define GVEC_FREE(x) (lode_free((x)->v), (x)->v = NULL, (x)->n = (x)->cap = 0)

typedef GVEC(uint32_t) gvec_u32;

/* Tuples of numbers, numbered in the order in which they were first seen. */
struct gintern {
    gvec_u32 data;  /* all tuples, one behind the other */
    gvec_u32 start; /* (n_tuples) offset in data */
    gvec_u32 slots; /* open addressing: index + 1, or 0 */
};

static inline uint32_t gintern_count(const struct gintern *t) { return (uint32_t)t->start.n; }
static inline const uint32_t *gintern_at(const struct gintern *t, uint32_t i, uint32_t *n) {
    const size_t end = i + 1 < t->start.n ? t->start.v[i + 1] : t->data.n;
    if (n)
        *n = (uint32_t)(end - t->start.v[i]);
    return t->data.v + t->start.v[i];
}
/* The tuple's number; UINT32_MAX without memory.  *fresh (may be NULL): it is new. */
uint32_t gintern_put(struct gintern *t, const uint32_t *tuple, uint32_t n, bool *fresh);
void gintern_free(struct gintern *t);

#endif
