/* expr.c - see expr.h. */
#include "text/grammar/expr.h"

#include <stdlib.h>

void expr_free(struct expr *e) {
    GVEC_FREE(&e->nodes);
    GVEC_FREE(&e->sets);
    GVEC_FREE(&e->spans);
}

size_t expr_bytes(const struct expr *e) {
    return e->nodes.cap * sizeof *e->nodes.v + e->sets.cap * sizeof *e->sets.v + e->spans.cap * sizeof *e->spans.v;
}

uint32_t expr_node(struct expr *e, enum expr_op op, uint32_t a, uint32_t b) {
    const struct expr_node node = {.op = (uint8_t)op, .a = a, .b = b};
    if (a == UINT32_MAX || b == UINT32_MAX || !GVEC_PUSH(&e->nodes, node))
        return UINT32_MAX;
    return (uint32_t)e->nodes.n - 1;
}

uint32_t expr_rep(struct expr *e, uint32_t a, uint32_t min, uint32_t max) {
    const uint32_t node = expr_node(e, EXPR_REP, a, 0);
    if (node != UINT32_MAX) {
        e->nodes.v[node].min = min;
        e->nodes.v[node].max = max;
    }
    return node;
}

static int by_start(const void *a, const void *b) {
    const struct expr_span *x = a, *y = b;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

/* Adds [lo, hi] without the surrogates. */
static bool add_span(struct expr *e, uint32_t lo, uint32_t hi) {
    bool ok = true;
    if (lo < 0xd800 && lo <= hi)
        ok = GVEC_PUSH(&e->spans, ((struct expr_span){lo, hi < 0xd800 ? hi : 0xd7ff}));
    if (ok && hi > 0xdfff && lo <= hi)
        ok = GVEC_PUSH(&e->spans, ((struct expr_span){lo > 0xdfff ? lo : 0xe000, hi}));
    return ok;
}

uint32_t expr_set_node(struct expr *e, struct expr_span *spans, size_t n, bool negate) {
    const uint32_t first = (uint32_t)e->spans.n;
    uint32_t at = 0; /* the first character that was not looked at */
    bool ok = true;
    if (n)
        qsort(spans, n, sizeof *spans, by_start);
    for (size_t i = 0; i < n && ok;) {
        struct expr_span s = spans[i++];
        while (i < n && spans[i].lo <= s.hi + 1) {
            s.hi = spans[i].hi > s.hi ? spans[i].hi : s.hi;
            i++;
        }
        if (negate)
            ok = s.lo == 0 || at > s.lo - 1 || add_span(e, at, s.lo - 1);
        else
            ok = add_span(e, s.lo, s.hi);
        at = s.hi + 1;
    }
    if (negate && ok && at <= 0x10ffff)
        ok = add_span(e, at, 0x10ffff);
    const struct expr_set set = {first, (uint32_t)e->spans.n - first};
    if (!ok || !GVEC_PUSH(&e->sets, set))
        return UINT32_MAX;
    return expr_node(e, EXPR_SET, (uint32_t)e->sets.n - 1, 0);
}

bool expr_set_has(const struct expr *e, uint32_t set, uint32_t lo, uint32_t hi) {
    const struct expr_span *s = e->spans.v + e->sets.v[set].first;
    uint32_t low = 0, n = e->sets.v[set].n;
    while (n > 0) {
        const uint32_t half = n / 2;
        if (s[low + half].hi < lo) {
            low += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return low < e->sets.v[set].n && s[low].lo <= hi;
}

/* ---- to an automaton ---- */

uint32_t nfa_add(struct nfa *n, enum nfa_op op, uint32_t a, uint32_t b) {
    const struct nfa_state s = {(uint8_t)op, a, b};
    return GVEC_PUSH(&n->states, s) ? (uint32_t)n->states.n - 1 : UINT32_MAX;
}

static int add(struct gbuild *b, struct nfa *n, enum nfa_op op, uint32_t x, uint32_t y,
               uint32_t *out) {
    if (n->states.n >= EXPR_MAX_STATES)
        return lode_fail(b->err, LODE_ERR_LIMIT, b->where,
                         "the expression is too large: repetitions write it out to more than %d "
                         "states",
                         EXPR_MAX_STATES);
    *out = nfa_add(n, op, x, y);
    return *out == UINT32_MAX ? gb_nomem(b) : gb_work(b, 1);
}

/* min copies, then either a loop or max - min copies that may be left out. */
static int emit_rep(struct gbuild *b, struct nfa *n, const struct expr *e,
                    const struct expr_node *r, uint32_t next, uint32_t *start) {
    uint32_t body;
    *start = next;
    if (r->max == EXPR_MANY) {
        uint32_t loop;
        LODE_TRY(add(b, n, NFA_SPLIT, next, next, &loop));
        LODE_TRY(nfa_emit(b, n, e, r->a, loop, &body));
        n->states.v[loop].a = body;
        *start = loop;
    } else {
        for (uint32_t i = r->min; i < r->max; i++) {
            const size_t before = n->states.n;
            LODE_TRY(nfa_emit(b, n, e, r->a, *start, &body));
            if (n->states.n == before)
                break; /* of nothing, however often */
            LODE_TRY(add(b, n, NFA_SPLIT, body, next, start));
        }
    }
    for (uint32_t i = 0; i < r->min; i++) {
        const size_t before = n->states.n;
        LODE_TRY(nfa_emit(b, n, e, r->a, *start, start));
        if (n->states.n == before)
            break;
    }
    return 0;
}

int nfa_emit(struct gbuild *b, struct nfa *n, const struct expr *e, uint32_t node, uint32_t next,
             uint32_t *start) {
    const struct expr_node *x = &e->nodes.v[node];
    uint32_t others = UINT32_MAX, one;
    for (; x->op == EXPR_CAT; x = &e->nodes.v[x->a])
        LODE_TRY(nfa_emit(b, n, e, x->b, next, &next));
    for (; x->op == EXPR_ALT; x = &e->nodes.v[x->a]) {
        LODE_TRY(nfa_emit(b, n, e, x->b, next, &one));
        if (others != UINT32_MAX)
            LODE_TRY(add(b, n, NFA_SPLIT, one, others, &one));
        others = one;
    }
    if (others != UINT32_MAX) { /* the first of an ALT's, which may be any node */
        LODE_TRY(nfa_emit(b, n, e, (uint32_t)(x - e->nodes.v), next, &one));
        return add(b, n, NFA_SPLIT, one, others, start);
    }
    switch ((enum expr_op)x->op) {
    case EXPR_SET:
        return add(b, n, NFA_SET, next, x->a, start);
    case EXPR_BOL:
        return add(b, n, NFA_BOL, next, 0, start);
    case EXPR_EOL:
        return add(b, n, NFA_EOL, next, 0, start);
    case EXPR_CALL:
        return add(b, n, NFA_CALL, next, x->a, start);
    case EXPR_REP:
        return emit_rep(b, n, e, x, next, start);
    case EXPR_EMPTY:
    case EXPR_CAT:
    case EXPR_ALT:
        break;
    }
    *start = next;
    return 0;
}

/* ---- made deterministic ---- */

/* The set of states under construction. */
struct subset {
    const struct nfa *n;
    uint32_t *mark; /* (n) == stamp: in the set, or passed through */
    uint32_t stamp;
    gvec_u32 stack, members; /* members: SET, EOL and MATCH states */
};

static bool visit(struct subset *s, uint32_t q) {
    if (s->mark[q] == s->stamp)
        return true;
    s->mark[q] = s->stamp;
    return GVEC_PUSH(&s->stack, q);
}

/* Follows what takes no character from what is on the stack.  at_start, at_end: which anchors
 * hold. */
static bool close_over(struct subset *s, bool at_start, bool at_end, bool *match) {
    bool ok = true;
    while (s->stack.n && ok) {
        const uint32_t q = s->stack.v[--s->stack.n];
        const struct nfa_state *x = &s->n->states.v[q];
        if (x->op == NFA_SPLIT)
            ok = visit(s, x->a) && visit(s, x->b);
        else if ((x->op == NFA_BOL && at_start) || (x->op == NFA_EOL && at_end))
            ok = visit(s, x->a);
        else if (x->op != NFA_BOL)
            ok = GVEC_PUSH(&s->members, q);
        *match = *match || x->op == NFA_MATCH;
    }
    return ok;
}

static int by_value(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Whether the text may end here: the anchors at the end hold, those at the start only if nothing
 * was read. */
static bool accepts_here(struct subset *s, const uint32_t *members, uint32_t n, bool at_start,
                         bool *accept) {
    bool ok = true;
    s->stamp++;
    s->members.n = 0;
    *accept = false;
    for (uint32_t i = 0; i < n && ok; i++)
        ok = visit(s, members[i]);
    return ok && close_over(s, at_start, true, accept);
}

struct determiniser {
    struct gbuild *b;
    const struct expr *e;
    struct subset s;
    gvec_u32 points; /* where sets begin and end: characters between two points are alike */
    struct gintern seen;
    struct dfa_maker m;
};

/* All points at which some set of the automaton changes. */
static bool find_points(struct determiniser *d) {
    bool ok =
        GVEC_PUSH(&d->points, 0) && GVEC_PUSH(&d->points, 0xd800) && GVEC_PUSH(&d->points, 0xe000);
    for (size_t i = 0; i < d->e->spans.n && ok; i++)
        ok = GVEC_PUSH(&d->points, d->e->spans.v[i].lo) &&
             GVEC_PUSH(&d->points, d->e->spans.v[i].hi + 1);
    if (!ok)
        return false;
    qsort(d->points.v, d->points.n, sizeof *d->points.v, by_value);
    size_t n = 0;
    for (size_t i = 0; i < d->points.n; i++)
        if (d->points.v[i] <= 0x10ffff && (n == 0 || d->points.v[n - 1] != d->points.v[i]))
            d->points.v[n++] = d->points.v[i];
    d->points.n = n;
    return true;
}

/* The states that one step over the characters at lo leads to, as a tuple. */
static int step_over(struct determiniser *d, const uint32_t *from, uint32_t n, uint32_t lo,
                     uint32_t *to) {
    struct subset *s = &d->s;
    bool ok = true, match = false;
    s->stamp++;
    s->members.n = 0;
    for (uint32_t i = 0; i < n && ok; i++) {
        const struct nfa_state *x = &s->n->states.v[from[i]];
        if (x->op == NFA_SET && expr_set_has(d->e, x->b, lo, lo))
            ok = visit(s, x->a);
    }
    *to = DFA_NONE;
    if (!ok || !close_over(s, false, false, &match))
        return gb_nomem(d->b);
    if (s->members.n == 0)
        return 0;
    qsort(s->members.v, s->members.n, sizeof *s->members.v, by_value);
    *to = gintern_put(&d->seen, s->members.v, (uint32_t)s->members.n, NULL);
    return *to == UINT32_MAX ? gb_nomem(d->b) : 0;
}

static int determinise_state(struct determiniser *d, uint32_t k) {
    gvec_u32 from = {0};
    uint32_t n;
    const uint32_t *members = gintern_at(&d->seen, k, &n);
    bool accept, ok = GVEC_ROOM(&from, n + 1);
    if (ok) /* the tuples move when one is added */
        memcpy(from.v, members, n * sizeof *members);
    int rc = ok && accepts_here(&d->s, from.v, n, k == 0, &accept) && dfa_maker_state(&d->m, accept)
                 ? gb_work(d->b, n + 1)
                 : gb_nomem(d->b);
    for (size_t i = 0; i < d->points.n && rc == 0; i++) {
        const uint32_t lo = d->points.v[i];
        const uint32_t hi = i + 1 < d->points.n ? d->points.v[i + 1] - 1 : 0x10ffff;
        uint32_t to;
        rc = gb_work(d->b, 1 + n / 4);
        if (rc < 0 || lo == 0xd800)
            continue;
        rc = step_over(d, from.v, n, lo, &to);
        if (rc == 0 && to != DFA_NONE && !dfa_maker_range(&d->m, lo, hi, to))
            rc = gb_nomem(d->b);
    }
    GVEC_FREE(&from);
    return rc;
}

static int determinise(struct determiniser *d, uint32_t start) {
    bool match = false;
    d->s.mark = lode_alloc_zero(d->s.n->states.n, sizeof *d->s.mark);
    if (!d->s.mark || !find_points(d))
        return gb_nomem(d->b);
    d->s.stamp = 1;
    if (!visit(&d->s, start) || !close_over(&d->s, true, false, &match))
        return gb_nomem(d->b);
    qsort(d->s.members.v, d->s.members.n, sizeof *d->s.members.v, by_value);
    if (gintern_put(&d->seen, d->s.members.v, (uint32_t)d->s.members.n, NULL) == UINT32_MAX)
        return gb_nomem(d->b);
    int rc = 0;
    for (uint32_t k = 0; k < gintern_count(&d->seen) && rc == 0; k++)
        rc = determinise_state(d, k);
    return rc;
}

int nfa_to_dfa(struct gbuild *b, const struct expr *e, uint32_t node, bool search,
               struct dfa *out) {
    struct nfa n = {0};
    uint32_t start, match;
    *out = (struct dfa){0};
    int rc = add(b, &n, NFA_MATCH, 0, 0, &match);
    /* a search is any characters, the match, any characters; any_set is the last set */
    const uint32_t any_set = (uint32_t)e->sets.n - 1;
    if (rc == 0 && search) {
        uint32_t loop, any;
        rc = add(b, &n, NFA_SPLIT, match, match, &loop);
        rc = rc == 0 ? add(b, &n, NFA_SET, loop, any_set, &any) : rc;
        if (rc == 0)
            n.states.v[loop].a = any;
        rc = rc == 0 ? nfa_emit(b, &n, e, node, loop, &start) : rc;
        rc = rc == 0 ? add(b, &n, NFA_SPLIT, start, start, &loop) : rc;
        rc = rc == 0 ? add(b, &n, NFA_SET, loop, any_set, &any) : rc;
        if (rc == 0)
            n.states.v[loop].a = any;
        start = loop;
    } else if (rc == 0) {
        rc = nfa_emit(b, &n, e, node, match, &start);
    }
    struct determiniser d = {.b = b, .e = e, .s.n = &n};
    if (rc == 0)
        rc = determinise(&d, start);
    if (rc == 0)
        rc = dfa_maker_finish(b, &d.m, out, NULL);
    dfa_maker_free(&d.m);
    gintern_free(&d.seen);
    GVEC_FREE(&d.points);
    GVEC_FREE(&d.s.stack);
    GVEC_FREE(&d.s.members);
    lode_free(d.s.mark);
    GVEC_FREE(&n.states);
    return rc;
}
