/* number.c - see number.h. */
#include "text/grammar/number.h"

enum {
    MAX_DIGITS = 1000,      /* of a bound, written out */
    MAX_DIVISOR = 20 * 1000 /* of a multipleOf, without its power of ten */
};

enum number_op number_negate(enum number_op op) {
    static const enum number_op negation[] = {
#define NEGATION(name, other) [NUMBER_##name] = NUMBER_##other,
        NUMBER_OP_LIST(NEGATION)
#undef NEGATION
    };
    return negation[op];
}

/* ---- values ---- */

void decimal_parse(struct lode_str s, char *room, struct decimal *out) {
    size_t i = 0;
    int64_t exp = 0, scale = 0;
    bool point = false;
    *out = (struct decimal){.digits = room, .neg = s.len && s.data[0] == '-'};
    for (i = out->neg; i < s.len && (s.data[i] | 32) != 'e'; i++) {
        if (s.data[i] == '.') {
            point = true;
            continue;
        }
        scale -= point;
        if (s.data[i] != '0' || out->n)
            room[out->n++] = s.data[i];
    }
    if (i < s.len) {
        const bool neg = s.data[++i] == '-';
        i += s.data[i] == '-' || s.data[i] == '+';
        for (; i < s.len; i++)
            if (exp < (int64_t)1e15)
                exp = exp * 10 + (s.data[i] - '0');
        exp = neg ? -exp : exp;
    }
    out->exp = exp + scale;
    while (out->n && room[out->n - 1] == '0') {
        out->n--;
        out->exp++;
    }
    if (!out->n)
        out->exp = 0;
}

/* |a| against |b| */
static int compare_size(const struct decimal *a, const struct decimal *b) {
    if (!a->n || !b->n)
        return (a->n > 0) - (b->n > 0);
    const int64_t x = a->exp + a->n, y = b->exp + b->n;
    if (x != y)
        return x < y ? -1 : 1;
    const uint32_t n = a->n < b->n ? a->n : b->n;
    const int c = memcmp(a->digits, b->digits, n);
    return c ? (c > 0) - (c < 0) : (a->n > b->n) - (a->n < b->n);
}

/* The order of two numbers from their signs and the order of their sizes. */
static int signed_order(bool a_neg, bool b_neg, bool a_zero, bool b_zero, int sizes) {
    if (a_zero && b_zero)
        return 0;
    a_neg = a_neg && !a_zero;
    b_neg = b_neg && !b_zero;
    if (a_neg != b_neg)
        return a_neg ? -1 : 1;
    return a_neg ? -sizes : sizes;
}

int decimal_compare(const struct decimal *a, const struct decimal *b) {
    return signed_order(a->neg, b->neg, !a->n, !b->n, compare_size(a, b));
}

bool decimal_count(const struct decimal *d, uint32_t most, uint32_t *out) {
    uint64_t v = 0;
    if ((d->neg && d->n) || d->exp < 0)
        return false;
    for (uint32_t i = 0; i < d->n; i++)
        if ((v = v * 10 + (uint64_t)(d->digits[i] - '0')) > most)
            v = most;
    for (int64_t i = 0; i < d->exp && d->n && v < most; i++)
        if ((v *= 10) > most)
            v = most;
    *out = (uint32_t)v; /* what is larger than `most` is as good as it */
    return true;
}

static uint64_t whole(const struct decimal *d) { /* its digits; at most 18 */
    uint64_t v = 0;
    for (uint32_t i = 0; i < d->n; i++)
        v = v * 10 + (uint64_t)(d->digits[i] - '0');
    return v;
}

__extension__ typedef unsigned __int128 wide;
static uint64_t mul_mod(uint64_t a, uint64_t b, uint64_t m) { return (uint64_t)((wide)a * b % m); }

/* d / m is whole: digits_d * 10^(exp_d - exp_m) divides by digits_m.  With a negative power it
 * cannot, for d has no zero at its end. */
static bool is_multiple(const struct decimal *d, const struct decimal *m) {
    const uint64_t by = whole(m);
    uint64_t rest = 0, ten = 10 % by;
    if (!d->n)
        return true;
    if (d->exp < m->exp)
        return false;
    for (uint32_t i = 0; i < d->n; i++)
        rest = (mul_mod(rest, 10, by) + (uint64_t)(d->digits[i] - '0')) % by;
    for (uint64_t e = (uint64_t)(d->exp - m->exp); e; e >>= 1) {
        if (e & 1)
            rest = mul_mod(rest, ten, by);
        ten = mul_mod(ten, ten, by);
    }
    return rest == 0;
}

static bool order_meets(enum number_op op, int order) {
    switch (op) {
    case NUMBER_GE:
        return order >= 0;
    case NUMBER_LT:
        return order < 0;
    case NUMBER_LE:
        return order <= 0;
    case NUMBER_GT:
        return order > 0;
    case NUMBER_EQ:
        return order == 0;
    default:
        return order != 0;
    }
}

bool decimal_meets(const struct decimal *d, const struct number_cond *conds, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const struct number_cond *c = &conds[i];
        bool good;
        if (c->op == NUMBER_INT || c->op == NUMBER_NOT_INT)
            good = (d->exp >= 0) == (c->op == NUMBER_INT);
        else if (c->op == NUMBER_MULT || c->op == NUMBER_NOT_MULT)
            good = is_multiple(d, &c->value) == (c->op == NUMBER_MULT);
        else
            good = order_meets(c->op, decimal_compare(d, &c->value));
        if (!good)
            return false;
    }
    return true;
}

/* ---- spellings ---- */

/* A state is a tuple: the phase, how many digits of its part were read (as far as it matters), what
 * the digits say so far, and a number for each condition: the order of what was read against the
 * bound's digits, or a remainder. */
enum { PHASE_START, PHASE_SIGN, PHASE_ZERO, PHASE_WHOLE, PHASE_POINT, PHASE_FRACTION };
enum { T_PHASE, T_NEG, T_WHOLE, T_FRACTION, T_NONZERO, T_NONZERO_FRACTION, T_CONDS };
enum { ORDER_SAME, ORDER_LESS, ORDER_MORE };
enum { MAX_CONDS = 64 };

/* A condition, as the automaton needs it. */
struct plain {
    enum number_op op;
    struct decimal value;
    uint32_t n_whole, n_fraction; /* digits of the bound before and behind its point */
    uint32_t by, scale;           /* MULT: times 10^scale it must divide by `by` */
};

static bool is_mult(enum number_op op) { return op == NUMBER_MULT || op == NUMBER_NOT_MULT; }
static bool is_int(enum number_op op) { return op == NUMBER_INT || op == NUMBER_NOT_INT; }

/* Digit i of the bound's whole part, or of its fraction; zeros around what is written. */
static uint32_t bound_digit(const struct plain *p, bool fraction, uint32_t i) {
    const struct decimal *d = &p->value;
    /* the power of ten that this digit stands for */
    const int64_t power = fraction ? -1 - (int64_t)i : (int64_t)p->n_whole - 1 - (int64_t)i;
    const int64_t at = d->exp + d->n - 1 - power;
    return at >= 0 && at < d->n ? (uint32_t)(d->digits[at] - '0') : 0;
}

static int prepare(struct gbuild *b, const struct number_cond *c, struct plain *p) {
    const struct decimal *d = &c->value;
    *p = (struct plain){.op = c->op, .value = *d, .n_whole = 1};
    if (is_int(c->op))
        return 0;
    const int64_t high = d->n ? d->exp + d->n : 1;
    if (high > MAX_DIGITS || d->exp < -MAX_DIGITS)
        return lode_fail(b->err, LODE_ERR_LIMIT, b->where,
                         "a number with more than %d digits written out cannot be enforced",
                         MAX_DIGITS);
    p->n_whole = high > 1 ? (uint32_t)high : 1;
    p->n_fraction = d->exp < 0 ? (uint32_t)-d->exp : 0;
    if (!is_mult(c->op))
        return 0;
    uint64_t by = d->n <= 18 ? whole(d) : UINT64_MAX;
    for (int64_t i = 0; i < d->exp && by <= MAX_DIVISOR; i++)
        by *= 10;
    if (by > MAX_DIVISOR)
        return lode_fail(b->err, LODE_ERR_UNSUPPORTED, b->where,
                         "multipleOf with a divisor above %d (of a fraction: its digits) cannot be "
                         "enforced: an automaton needs a state for each remainder",
                         MAX_DIVISOR);
    p->by = (uint32_t)by;
    p->scale = p->n_fraction;
    return 0;
}

/* The order against the bound once the whole part is over. */
static uint32_t order_of_whole(const struct plain *p, uint32_t n_whole, uint32_t order) {
    return n_whole < p->n_whole ? ORDER_LESS : n_whole > p->n_whole ? ORDER_MORE : order;
}

struct number_build {
    struct plain *p;
    uint32_t n, max_whole, max_fraction;
    bool whole_only;    /* no fraction is written */
    uint32_t max_scale; /* digits of a fraction at most; UINT32_MAX: any number */
};

static void take_digit(const struct number_build *x, uint32_t *t, uint32_t digit) {
    const bool fraction = t[T_PHASE] == PHASE_FRACTION || t[T_PHASE] == PHASE_POINT;
    const uint32_t at = fraction ? t[T_FRACTION] : t[T_WHOLE];
    for (uint32_t i = 0; i < x->n; i++) {
        const struct plain *p = &x->p[i];
        uint32_t *state = &t[T_CONDS + i];
        if (is_mult(p->op)) {
            /* `by` itself, which is no remainder: a digit behind the scale is not zero */
            if (fraction && at >= p->scale)
                *state = digit ? p->by : *state;
            else
                *state = (*state * 10 + digit) % p->by;
        } else if (!is_int(p->op) && *state == ORDER_SAME && (fraction || at < p->n_whole)) {
            const uint32_t other = bound_digit(p, fraction, at);
            *state = digit < other ? ORDER_LESS : digit > other ? ORDER_MORE : ORDER_SAME;
        }
    }
    t[T_NONZERO] |= digit != 0;
    if (fraction) {
        t[T_FRACTION] = at < x->max_fraction ? at + 1 : at;
        t[T_NONZERO_FRACTION] |= digit != 0;
        t[T_PHASE] = PHASE_FRACTION;
    } else {
        t[T_PHASE] = t[T_WHOLE] == 0 && digit == 0 ? PHASE_ZERO : PHASE_WHOLE;
        t[T_WHOLE] = at <= x->max_whole ? at + 1 : at;
    }
}

static bool tuple_accepts(const struct number_build *x, const uint32_t *t) {
    if (t[T_PHASE] != PHASE_ZERO && t[T_PHASE] != PHASE_WHOLE && t[T_PHASE] != PHASE_FRACTION)
        return false;
    for (uint32_t i = 0; i < x->n; i++) {
        const struct plain *p = &x->p[i];
        uint32_t state = t[T_CONDS + i];
        bool good;
        if (is_int(p->op)) {
            good = (t[T_NONZERO_FRACTION] == 0) == (p->op == NUMBER_INT);
        } else if (is_mult(p->op)) {
            /* what a shorter fraction leaves out are zeros */
            for (uint32_t k = t[T_FRACTION]; k < p->scale; k++)
                state = state * 10 % p->by;
            good = (state == 0) == (p->op == NUMBER_MULT);
        } else {
            const bool fraction = t[T_PHASE] == PHASE_FRACTION;
            if (!fraction)
                state = order_of_whole(p, t[T_WHOLE], state);
            if (state == ORDER_SAME)
                for (uint32_t k = t[T_FRACTION]; k < p->n_fraction && state == ORDER_SAME; k++)
                    state = bound_digit(p, true, k) ? ORDER_LESS : ORDER_SAME;
            const int sizes = state == ORDER_SAME ? 0 : state == ORDER_LESS ? -1 : 1;
            good = order_meets(
                p->op, signed_order(t[T_NEG], p->value.neg, !t[T_NONZERO], !p->value.n, sizes));
        }
        if (!good)
            return false;
    }
    return true;
}

static int build_states(struct gbuild *b, const struct number_build *x, struct gintern *seen,
                        struct dfa_maker *m) {
    uint32_t start[T_CONDS + MAX_CONDS] = {0}, t[T_CONDS + MAX_CONDS], to;
    const uint32_t n = T_CONDS + x->n;
    if (gintern_put(seen, start, n, NULL) == UINT32_MAX)
        return gb_nomem(b);
    for (uint32_t k = 0; k < gintern_count(seen); k++) {
        uint32_t from[T_CONDS + MAX_CONDS];
        memcpy(from, gintern_at(seen, k, NULL), n * sizeof *from);
        const uint32_t phase = from[T_PHASE];
        bool ok = dfa_maker_state(m, tuple_accepts(x, from));
        LODE_TRY(gb_work(b, 10 * n));
        if (phase == PHASE_START) {
            memcpy(t, from, n * sizeof *t);
            t[T_PHASE] = PHASE_SIGN;
            t[T_NEG] = 1;
            to = gintern_put(seen, t, n, NULL);
            ok = ok && to != UINT32_MAX && dfa_maker_range(m, '-', '-', to);
        } else if ((phase == PHASE_ZERO || phase == PHASE_WHOLE) && !x->whole_only) {
            memcpy(t, from, n * sizeof *t);
            t[T_PHASE] = PHASE_POINT;
            for (uint32_t i = 0; i < x->n; i++)
                if (!is_mult(x->p[i].op) && !is_int(x->p[i].op))
                    t[T_CONDS + i] = order_of_whole(&x->p[i], t[T_WHOLE], t[T_CONDS + i]);
            to = gintern_put(seen, t, n, NULL);
            ok = ok && to != UINT32_MAX && dfa_maker_range(m, '.', '.', to);
        }
        const bool full = phase == PHASE_FRACTION && from[T_FRACTION] >= x->max_scale;
        for (uint32_t digit = 0; digit < 10 && ok && phase != PHASE_ZERO && !full; digit++) {
            memcpy(t, from, n * sizeof *t);
            take_digit(x, t, digit);
            to = gintern_put(seen, t, n, NULL);
            ok = to != UINT32_MAX && dfa_maker_range(m, '0' + digit, '0' + digit, to);
        }
        if (!ok)
            return gb_nomem(b);
    }
    return 0;
}

/* Any number, as JSON writes it; exponents of at most three digits. */
static int any_number(struct gbuild *b, struct dfa *out) {
    /* start, sign, zero, whole, point, fraction, e, sign of it, 1, 2, 3 digits of it */
    static const struct {
        uint8_t accept, n;
        struct dfa_range to[4];
    } states[] = {
        {0, 3, {{'-', '-', 1}, {'0', '0', 2}, {'1', '9', 3}}},
        {0, 2, {{'0', '0', 2}, {'1', '9', 3}}},
        {1, 3, {{'.', '.', 4}, {'E', 'E', 6}, {'e', 'e', 6}}},
        {1, 4, {{'.', '.', 4}, {'0', '9', 3}, {'E', 'E', 6}, {'e', 'e', 6}}},
        {0, 1, {{'0', '9', 5}}},
        {1, 3, {{'0', '9', 5}, {'E', 'E', 6}, {'e', 'e', 6}}},
        {0, 3, {{'+', '+', 7}, {'-', '-', 7}, {'0', '9', 8}}},
        {0, 1, {{'0', '9', 8}}},
        {1, 1, {{'0', '9', 9}}},
        {1, 1, {{'0', '9', 10}}},
        {1, 0, {{0, 0, 0}}},
    };
    struct dfa_maker m = {0};
    bool ok = true;
    for (size_t i = 0; i < sizeof states / sizeof *states && ok; i++) {
        ok = dfa_maker_state(&m, states[i].accept);
        for (unsigned k = 0; k < states[i].n && ok; k++)
            ok = dfa_maker_range(&m, states[i].to[k].lo, states[i].to[k].hi, states[i].to[k].to);
    }
    if (!ok) {
        dfa_maker_free(&m);
        return gb_nomem(b);
    }
    return dfa_maker_finish(b, &m, out, NULL);
}

int number_dfa(struct gbuild *b, const struct number_cond *conds, size_t n, struct dfa *out) {
    struct plain p[MAX_CONDS];
    struct number_build x = {.p = p, .n = (uint32_t)n, .max_scale = UINT32_MAX};
    struct gintern seen = {0};
    struct dfa_maker m = {0};
    *out = (struct dfa){0};
    if (n == 0)
        return any_number(b, out);
    if (n > MAX_CONDS)
        return lode_fail(b->err, LODE_ERR_LIMIT, b->where, "more than %d conditions on one number",
                         MAX_CONDS);
    for (size_t i = 0; i < n; i++) {
        LODE_TRY(prepare(b, &conds[i], &p[i]));
        x.max_whole = p[i].n_whole > x.max_whole ? p[i].n_whole : x.max_whole;
        x.max_fraction = p[i].n_fraction > x.max_fraction ? p[i].n_fraction : x.max_fraction;
        x.whole_only = x.whole_only || conds[i].op == NUMBER_INT ||
                       (conds[i].op == NUMBER_MULT && p[i].scale == 0);
        if (conds[i].op == NUMBER_MULT && p[i].scale < x.max_scale)
            x.max_scale = p[i].scale;
    }
    int rc = build_states(b, &x, &seen, &m);
    gintern_free(&seen);
    if (rc < 0) {
        dfa_maker_free(&m);
        return rc;
    }
    return dfa_maker_finish(b, &m, out, NULL);
}
