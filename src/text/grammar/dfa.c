/* dfa.c - see dfa.h. */
#include "text/grammar/dfa.h"

#include "base/utf8.h"

#include <stdlib.h>

/* ---- tuples ---- */

static uint32_t hash_tuple(const uint32_t *v, uint32_t n) {
    uint64_t h = 0x9e3779b97f4a7c15u ^ n;
    for (uint32_t i = 0; i < n; i++) {
        h = (h ^ v[i]) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return (uint32_t)h;
}

static bool grow_slots(struct gintern *t) {
    const size_t cap = t->slots.n ? 2 * t->slots.n : 64;
    uint32_t *slots = lode_alloc_zero(cap, sizeof *slots);
    if (!slots)
        return false;
    for (uint32_t i = 0; i < t->start.n; i++) {
        uint32_t n;
        const uint32_t *v = gintern_at(t, i, &n);
        size_t at = hash_tuple(v, n) & (cap - 1);
        while (slots[at])
            at = (at + 1) & (cap - 1);
        slots[at] = i + 1;
    }
    lode_free(t->slots.v);
    t->slots.v = slots;
    t->slots.n = t->slots.cap = cap;
    return true;
}

uint32_t gintern_put(struct gintern *t, const uint32_t *tuple, uint32_t n, bool *fresh) {
    if (2 * (t->start.n + 1) > t->slots.n && !grow_slots(t))
        return UINT32_MAX;
    size_t at = hash_tuple(tuple, n) & (t->slots.n - 1);
    for (; t->slots.v[at]; at = (at + 1) & (t->slots.n - 1)) {
        uint32_t len;
        const uint32_t *v = gintern_at(t, t->slots.v[at] - 1, &len);
        if (len == n && (n == 0 || !memcmp(v, tuple, n * sizeof *v))) {
            if (fresh)
                *fresh = false;
            return t->slots.v[at] - 1;
        }
    }
    if (t->data.n + n > UINT32_MAX / 2 || !GVEC_ROOM(&t->data, n + 1) ||
        !GVEC_PUSH(&t->start, (uint32_t)t->data.n))
        return UINT32_MAX;
    if (n)
        memcpy(t->data.v + t->data.n, tuple, n * sizeof *tuple);
    t->data.n += n;
    t->slots.v[at] = (uint32_t)t->start.n;
    if (fresh)
        *fresh = true;
    return (uint32_t)t->start.n - 1;
}

void gintern_free(struct gintern *t) {
    GVEC_FREE(&t->data);
    GVEC_FREE(&t->start);
    GVEC_FREE(&t->slots);
}

/* ---- reading ---- */

static const uint32_t all_first[] = {0, 2};
static const struct dfa_range all_ranges[] = {{0, 0xd7ff, 0}, {0xe000, 0x10ffff, 0}};
static const uint8_t all_accept[] = {1};
const struct dfa dfa_all = {1, all_first, all_ranges, all_accept};

/* The first range of q that ends at or behind cp. */
static uint32_t find_range(const struct dfa *d, uint32_t q, uint32_t cp) {
    uint32_t low = d->first[q], n = d->first[q + 1] - low;
    while (n > 0) {
        const uint32_t half = n / 2;
        if (d->ranges[low + half].hi < cp) {
            low += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return low;
}

uint32_t dfa_next(const struct dfa *d, uint32_t q, uint32_t cp) {
    const uint32_t i = find_range(d, q, cp);
    return i < d->first[q + 1] && d->ranges[i].lo <= cp ? d->ranges[i].to : DFA_NONE;
}

bool dfa_any(const struct dfa *d, uint32_t q, uint32_t lo, uint32_t hi) {
    const uint32_t i = find_range(d, q, lo);
    return i < d->first[q + 1] && d->ranges[i].lo <= hi;
}

bool dfa_accepts(const struct dfa *d, struct lode_str text) {
    uint32_t q = d->n ? 0 : DFA_NONE;
    for (size_t i = 0; i < text.len && q != DFA_NONE;) {
        uint32_t cp;
        const size_t len = lode_utf8_decode(text.data + i, text.len - i, &cp);
        q = len ? dfa_next(d, q, cp) : DFA_NONE;
        i += len;
    }
    return q != DFA_NONE && d->accept[q];
}

int dfa_finite(struct gbuild *b, const struct dfa *d, bool *finite) {
    /* Kahn's order reaches every state exactly where there is no cycle. */
    uint32_t *in = lode_alloc_zero(2 * (size_t)d->n + 1, sizeof *in),
             *queue = in ? in + d->n : NULL;
    uint32_t n = 0, done = 0;
    if (!in)
        return gb_nomem(b);
    for (uint32_t i = 0; d->n && i < d->first[d->n]; i++)
        in[d->ranges[i].to]++;
    for (uint32_t q = 0; q < d->n; q++)
        if (!in[q])
            queue[n++] = q;
    for (; done < n; done++)
        for (uint32_t i = d->first[queue[done]]; i < d->first[queue[done] + 1]; i++)
            if (--in[d->ranges[i].to] == 0)
                queue[n++] = d->ranges[i].to;
    lode_free(in);
    *finite = done == d->n;
    return 0;
}

/* ---- making ---- */

void dfa_maker_free(struct dfa_maker *m) {
    GVEC_FREE(&m->first);
    GVEC_FREE(&m->ranges);
    GVEC_FREE(&m->accept);
}

bool dfa_maker_state(struct dfa_maker *m, uint8_t accept) {
    return GVEC_PUSH(&m->first, (uint32_t)m->ranges.n) && GVEC_PUSH(&m->accept, accept);
}

bool dfa_maker_range(struct dfa_maker *m, uint32_t lo, uint32_t hi, uint32_t to) {
    const size_t first = m->first.v[m->first.n - 1];
    if (m->ranges.n > first) {
        struct dfa_range *last = &m->ranges.v[m->ranges.n - 1];
        if (last->to == to && last->hi + 1 == lo) {
            last->hi = hi;
            return true;
        }
    }
    return GVEC_PUSH(&m->ranges, ((struct dfa_range){lo, hi, to}));
}

/* live[q]: an accepting state can be reached; by breadth first search along the reversed edges. */
static bool mark_live(const struct dfa_maker *m, uint8_t *live) {
    const uint32_t n = (uint32_t)m->accept.n, n_ranges = (uint32_t)m->ranges.n;
    uint32_t *start = lode_alloc_zero((size_t)n + 2, sizeof *start);
    uint32_t *from = lode_alloc((size_t)n_ranges + 1, sizeof *from);
    uint32_t *queue = lode_alloc((size_t)n + 1, sizeof *queue);
    const bool ok = start && from && queue;
    if (ok) {
        uint32_t n_queue = 0;
        for (uint32_t i = 0; i < n_ranges; i++)
            start[m->ranges.v[i].to + 2]++;
        for (uint32_t q = 0; q < n; q++)
            start[q + 1] += start[q];
        /* start[q + 1] is now where q's list begins, and moves to where it ends */
        for (uint32_t q = 0; q < n; q++)
            for (uint32_t i = m->first.v[q]; i < (q + 1 < n ? m->first.v[q + 1] : n_ranges); i++)
                from[start[m->ranges.v[i].to + 1]++] = q;
        for (uint32_t q = 0; q < n; q++)
            if (m->accept.v[q]) {
                live[q] = 1;
                queue[n_queue++] = q;
            }
        for (uint32_t k = 0; k < n_queue; k++)
            for (uint32_t i = start[queue[k]]; i < start[queue[k] + 1]; i++)
                if (!live[from[i]]) {
                    live[from[i]] = 1;
                    queue[n_queue++] = from[i];
                }
    }
    lode_free(start);
    lode_free(from);
    lode_free(queue);
    return ok;
}

int dfa_maker_finish(struct gbuild *b, struct dfa_maker *m, struct dfa *out, gvec_u32 *kept) {
    const uint32_t n = (uint32_t)m->accept.n;
    uint32_t n_live = 0, n_ranges = 0;
    *out = (struct dfa){0};
    uint8_t *live = lode_alloc_zero((size_t)n + 1, 1);
    uint32_t *index = lode_alloc((size_t)n + 1, sizeof *index);
    int rc = live && index && mark_live(m, live) ? gb_work(b, n + m->ranges.n) : gb_nomem(b);
    if (rc == 0 && n && live[0]) {
        for (uint32_t q = 0; q < n; q++)
            index[q] = live[q] ? n_live++ : DFA_NONE;
        uint32_t *first = lode_arena_alloc(b->arena, (size_t)n_live + 1, sizeof *first);
        struct dfa_range *ranges = lode_arena_alloc(b->arena, m->ranges.n + 1, sizeof *ranges);
        uint8_t *accept = lode_arena_alloc(b->arena, n_live, 1);
        if (!first || !ranges || !accept || (kept && !GVEC_ROOM(kept, n_live)))
            rc = gb_nomem(b);
        for (uint32_t q = 0; q < n && rc == 0; q++) {
            if (!live[q])
                continue;
            first[index[q]] = n_ranges;
            accept[index[q]] = m->accept.v[q];
            if (kept)
                kept->v[kept->n++] = q;
            for (uint32_t i = m->first.v[q]; i < (q + 1 < n ? m->first.v[q + 1] : m->ranges.n);
                 i++) {
                const struct dfa_range *r = &m->ranges.v[i];
                if (live[r->to])
                    ranges[n_ranges++] = (struct dfa_range){r->lo, r->hi, index[r->to]};
            }
        }
        if (rc == 0) {
            first[n_live] = n_ranges;
            *out = (struct dfa){n_live, first, ranges, accept};
        }
    }
    lode_free(live);
    lode_free(index);
    dfa_maker_free(m);
    return rc;
}

/* ---- products ---- */

static uint32_t n_ranges_of(const struct dfa *d, uint32_t q) {
    return q == DFA_NONE ? 0 : d->first[q + 1] - d->first[q];
}

/* The transitions of one pair of states; walks both lists of ranges side by side. */
static bool pair_ranges(struct dfa_maker *m, struct gintern *seen, const struct dfa *x, uint32_t p,
                        const struct dfa *y, uint32_t q, enum dfa_op op) {
    const uint32_t nx = n_ranges_of(x, p), ny = n_ranges_of(y, q);
    const struct dfa_range *a = nx ? x->ranges + x->first[p] : NULL;
    const struct dfa_range *c = ny ? y->ranges + y->first[q] : NULL;
    uint32_t i = 0, j = 0, at = 0;
    while (i < nx || j < ny) {
        /* the stretch from `at` in which neither list changes */
        const bool in_x = i < nx && a[i].lo <= at, in_y = j < ny && c[j].lo <= at;
        uint32_t end = 0x10ffff;
        if (i < nx)
            end = in_x ? a[i].hi : a[i].lo - 1;
        if (j < ny && (in_y ? c[j].hi : c[j].lo - 1) < end)
            end = in_y ? c[j].hi : c[j].lo - 1;
        const uint32_t to[2] = {in_x ? a[i].to : DFA_NONE, in_y ? c[j].to : DFA_NONE};
        const bool keep = op == DFA_AND ? in_x && in_y : op == DFA_MINUS ? in_x : in_x || in_y;
        if (keep) {
            const uint32_t t = gintern_put(seen, to, 2, NULL);
            if (t == UINT32_MAX || !dfa_maker_range(m, at, end, t))
                return false;
        }
        i += in_x && a[i].hi == end;
        j += in_y && c[j].hi == end;
        at = end + 1;
    }
    return true;
}

int dfa_product(struct gbuild *b, const struct dfa *x, const struct dfa *y, enum dfa_op op,
                struct dfa *out) {
    struct dfa_maker m = {0};
    struct gintern seen = {0};
    const uint32_t start[2] = {x->n ? 0 : DFA_NONE, y->n ? 0 : DFA_NONE};
    int rc = gintern_put(&seen, start, 2, NULL) == UINT32_MAX ? gb_nomem(b) : 0;
    for (uint32_t k = 0; k < gintern_count(&seen) && rc == 0; k++) {
        const uint32_t p = gintern_at(&seen, k, NULL)[0], q = gintern_at(&seen, k, NULL)[1];
        const bool in_x = p != DFA_NONE && x->accept[p], in_y = q != DFA_NONE && y->accept[q];
        const bool accept = op == DFA_AND     ? in_x && in_y
                            : op == DFA_MINUS ? in_x && !in_y
                                              : in_x || in_y;
        if (!dfa_maker_state(&m, accept) || !pair_ranges(&m, &seen, x, p, y, q, op))
            rc = gb_nomem(b);
        else
            rc = gb_work(b, 2 + n_ranges_of(x, p) + n_ranges_of(y, q));
    }
    gintern_free(&seen);
    if (rc < 0) {
        dfa_maker_free(&m);
        return rc;
    }
    return dfa_maker_finish(b, &m, out, NULL);
}

int dfa_bound(struct gbuild *b, const struct dfa *x, uint32_t min, uint32_t max, struct dfa *out) {
    struct dfa_maker m = {0};
    struct gintern seen = {0};
    const uint32_t start[2] = {0, 0};
    int rc = 0;
    *out = (struct dfa){0};
    if (!x->n || min > max)
        return 0;
    if (gintern_put(&seen, start, 2, NULL) == UINT32_MAX)
        rc = gb_nomem(b);
    for (uint32_t k = 0; k < gintern_count(&seen) && rc == 0; k++) {
        const uint32_t q = gintern_at(&seen, k, NULL)[0], len = gintern_at(&seen, k, NULL)[1];
        /* without an upper bound, lengths from min on are one */
        const uint32_t next = len + 1 > min && max == UINT32_MAX ? min : len + 1;
        if (!dfa_maker_state(&m, x->accept[q] && len >= min))
            rc = gb_nomem(b);
        for (uint32_t i = x->first[q]; i < x->first[q + 1] && len < max && rc == 0; i++) {
            const uint32_t to[2] = {x->ranges[i].to, next};
            const uint32_t t = gintern_put(&seen, to, 2, NULL);
            if (t == UINT32_MAX || !dfa_maker_range(&m, x->ranges[i].lo, x->ranges[i].hi, t))
                rc = gb_nomem(b);
        }
        rc = rc == 0 ? gb_work(b, 2 + n_ranges_of(x, q)) : rc;
    }
    gintern_free(&seen);
    if (rc < 0) {
        dfa_maker_free(&m);
        return rc;
    }
    return dfa_maker_finish(b, &m, out, NULL);
}

/* ---- words ---- */

static int by_bytes(const void *a, const void *b) {
    const struct lode_str *x = a, *y = b;
    const size_t n = x->len < y->len ? x->len : y->len;
    const int c = n ? memcmp(x->data, y->data, n) : 0;
    return c ? c : (x->len > y->len) - (x->len < y->len);
}

/* A trie, level by level: a state is a stretch of the sorted words with a common prefix. */
int dfa_words(struct gbuild *b, const struct lode_str *words, size_t n, struct dfa *out) {
    struct stretch {
        uint32_t lo, hi, at; /* words[lo, hi) agree in their first `at` bytes */
    };
    GVEC(struct stretch) todo = {0};
    struct dfa_maker m = {0};
    *out = (struct dfa){0};
    if (n == 0)
        return 0;
    struct lode_str *s = lode_alloc(n, sizeof *s);
    if (s) {
        memcpy(s, words, n * sizeof *s);
        qsort(s, n, sizeof *s, by_bytes);
    }
    int rc = s && GVEC_PUSH(&todo, ((struct stretch){0, (uint32_t)n, 0})) ? 0 : gb_nomem(b);
    for (size_t k = 0; k < todo.n && rc == 0; k++) {
        const struct stretch t = todo.v[k];
        uint32_t i = t.lo;
        const bool accept = s[i].len == t.at;
        while (i < t.hi && s[i].len == t.at)
            i++;
        if (!dfa_maker_state(&m, accept))
            rc = gb_nomem(b);
        while (i < t.hi && rc == 0) {
            uint32_t cp, end = i + 1;
            const size_t len = lode_utf8_decode(s[i].data + t.at, s[i].len - t.at, &cp);
            if (!len) /* not UTF-8: the word cannot be written */
                break;
            while (end < t.hi && s[end].len >= t.at + len &&
                   !memcmp(s[end].data + t.at, s[i].data + t.at, len))
                end++;
            if (!dfa_maker_range(&m, cp, cp, (uint32_t)todo.n) ||
                !GVEC_PUSH(&todo, ((struct stretch){i, end, t.at + (uint32_t)len})))
                rc = gb_nomem(b);
            else
                rc = gb_work(b, 1 + (end - i));
            i = end;
        }
    }
    lode_free(s);
    GVEC_FREE(&todo);
    if (rc < 0) {
        dfa_maker_free(&m);
        return rc;
    }
    return dfa_maker_finish(b, &m, out, NULL);
}
