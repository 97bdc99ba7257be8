/* solve_keyword.c - the keywords that say one thing of a value, and their opposites: see solve.h.
 */
#include "text/grammar/solve.h"

static int count_of(struct solver *v, uint32_t kw, uint32_t *out) {
    const struct lode_json *x = &v->s->top[kw];
    struct decimal d;
    LODE_TRY(number_of(v->s, x, &d));
    if (decimal_count(&d, 1u << 30, out))
        return 0;
    return schema_fail(v->s, LODE_ERR_FORMAT, kw, "a whole number from 0 on was expected");
}

/* Whether values of this type are allowed by "type"; *whole: only whole numbers. */
static int type_allows(struct solver *v, uint32_t kw, bool *allowed, bool *whole) {
    static const char *const names[] = {"null",   "boolean", "boolean", "number",
                                        "string", "array",   "object"};
    static const char *const known[] = {"null",   "boolean", "number", "integer",
                                        "string", "array",   "object"};
    const struct lode_json *t = &v->s->top[kw];
    bool integer = false;
    *allowed = *whole = false;
    const struct lode_json *m = t->type == LODE_JSON_ARRAY ? lode_json_first(t) : t;
    for (; m; m = t->type == LODE_JSON_ARRAY ? lode_json_next(t, m) : NULL) {
        const struct lode_str name = lode_json_str(m);
        bool good = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            good = good || lode_str_eqz(name, known[i]);
        if (m->type != LODE_JSON_STRING || !good)
            return schema_fail(v->s, LODE_ERR_FORMAT, json_index(v->s, m),
                               "a type is null, boolean, number, integer, string, array or object");
        *allowed = *allowed || lode_str_eqz(name, names[v->type]);
        integer = integer || lode_str_eqz(name, "integer");
    }
    *whole = v->type == TYPE_NUMBER && integer && !*allowed;
    *allowed = *allowed || *whole;
    return 0;
}

int solve_type(struct solver *v, uint32_t entry, uint32_t kw, bool neg, uint32_t head) {
    bool allowed = false, whole = false;
    LODE_TRY(type_allows(v, kw, &allowed, &whole));
    if (whole)
        LODE_TRY(solve_add_cond(v, entry, neg ? NUMBER_NOT_INT : NUMBER_INT, NULL));
    return whole || allowed != neg ? solve_walk(v, head) : 0;
}

int solve_enum(struct solver *v, uint32_t entry, uint32_t kw, bool neg, uint32_t head) {
    const struct lode_json *l = &v->s->top[kw], *m;
    if (l->type != LODE_JSON_ARRAY)
        return schema_fail(v->s, LODE_ERR_FORMAT, kw, "enum is a list of values");
    if (v->type == TYPE_STRING) {
        LODE_TRY(solve_add_atom(v, entry, (struct atom){.op = ATOM_WORDS, .neg = neg, .json = kw}));
        return solve_walk(v, head);
    }
    for (m = lode_json_first(l); m; m = lode_json_next(l, m)) {
        LODE_TRY(gb_work(v->s->b, 1));
        if (m->type != solve_json_type[v->type])
            continue;
        const g_lit lit = lit_const(json_index(v->s, m));
        if (neg)
            LODE_TRY(solve_add_lit(v, lit | LIT_NOT, entry, true, &head));
        else
            LODE_TRY(solve_branch(v, entry, lit, false, head));
        if (!neg && v->type <= TYPE_FALSE)
            return 0;
    }
    return neg ? solve_walk(v, head) : 0;
}

int solve_number(struct solver *v, uint32_t entry, uint32_t kw, enum number_op op, bool neg,
                 uint32_t head) {
    const struct lode_json *x = &v->s->top[kw];
    struct decimal d;
    LODE_TRY(number_of(v->s, x, &d));
    if (op == NUMBER_MULT && (!d.n || d.neg))
        return schema_fail(v->s, LODE_ERR_FORMAT, kw, "multipleOf is a number above 0");
    const char *before = schema_at(v->s, kw);
    struct number_cond cond = {op, d};
    struct dfa alone;
    const int rc = number_dfa(v->s->b, &cond, 1, &alone); /* says what it cannot do, by name */
    v->s->b->where = before;
    LODE_TRY(rc);
    LODE_TRY(solve_add_cond(v, entry, neg ? number_negate(op) : op, x));
    return solve_walk(v, head);
}

/* minLength and the like; op: ATOM_LENGTH or ATOM_COUNT. */
int solve_bound(struct solver *v, uint32_t entry, uint32_t kw, enum atom_op op, bool lower,
                bool neg, uint32_t head) {
    uint32_t n;
    LODE_TRY(count_of(v, kw, &n));
    struct atom a = {.op = op, .max = G_MANY};
    if (neg && lower && n == 0)
        return 0; /* not at least nothing */
    if (lower != neg)
        a.min = neg ? n + 1 : n;
    else
        a.max = neg ? n - 1 : n;
    LODE_TRY(solve_add_atom(v, entry, a));
    return solve_walk(v, head);
}

int solve_required(struct solver *v, uint32_t entry, uint32_t kw, bool neg, uint32_t head) {
    const struct lode_json *l = &v->s->top[kw], *m;
    if (l->type != LODE_JSON_ARRAY)
        return schema_fail(v->s, LODE_ERR_FORMAT, kw, "required is a list of keys");
    for (m = lode_json_first(l); m; m = lode_json_next(l, m)) {
        const struct mark at = mark_of(v);
        if (m->type != LODE_JSON_STRING)
            return schema_fail(v->s, LODE_ERR_FORMAT, json_index(v->s, m), "a key was expected");
        LODE_TRY(solve_require(v, entry, lode_json_str(m), neg));
        if (neg) {
            LODE_TRY(solve_walk(v, head));
            back_to(v, at);
        }
    }
    return neg ? 0 : solve_walk(v, head);
}

int solve_contains(struct solver *v, uint32_t entry, uint32_t kw, bool neg, uint32_t head) {
    const uint32_t schema = lit_node(v->entries.v[entry].lit);
    const struct lode_json *least = json_member(v->s, schema, "minContains");
    const struct lode_json *most = json_member(v->s, schema, "maxContains");
    struct atom a = {
        .op = ATOM_CONTAINS, .json = kw, .lit = lit_schema(kw), .min = 1, .max = G_MANY};
    const struct mark at = mark_of(v);
    if (least)
        LODE_TRY(count_of(v, json_index(v->s, least), &a.min));
    if (most)
        LODE_TRY(count_of(v, json_index(v->s, most), &a.max));
    if (!neg) {
        LODE_TRY(solve_add_atom(v, entry, a));
        return solve_walk(v, head);
    }
    struct atom fewer = a, more = a;
    fewer.max = a.min - 1;
    fewer.min = 0;
    more.min = a.max + 1;
    more.max = G_MANY;
    if (a.min > 0) {
        LODE_TRY(solve_add_atom(v, entry, fewer));
        LODE_TRY(solve_walk(v, head));
        back_to(v, at);
    }
    if (a.max != G_MANY) {
        LODE_TRY(solve_add_atom(v, entry, more));
        LODE_TRY(solve_walk(v, head));
    }
    return 0;
}

bool solve_says_true(const struct solver *v, uint32_t node) {
    const struct lode_json *x = &v->s->top[node];
    return x->type == LODE_JSON_TRUE || (x->type == LODE_JSON_OBJECT && !x->n);
}

/* Some member fails its schema; the other applicators of negated schemas that ask "some". */
int solve_not_members(struct solver *v, uint32_t entry, uint32_t kw, bool array, uint32_t head) {
    const struct lode_json *l = &v->s->top[kw], *m;
    uint32_t i = 0;
    for (m = lode_json_first(l); m; m = lode_json_next(l, m), i++) {
        const struct mark at = mark_of(v);
        const struct lode_str key = {m->key, m->key_len};
        LODE_TRY(solve_there_and(v, entry, array, i, key, lit_schema(json_index(v->s, m)) | LIT_NOT));
        LODE_TRY(solve_walk(v, head));
        back_to(v, at);
    }
    return 0;
}

int solve_not_items(struct solver *v, uint32_t entry, uint32_t kw, uint32_t head) {
    const uint32_t node = lit_node(v->entries.v[entry].lit);
    const uint32_t n = lode_json_count(schema_first_items(v->s, node));
    if (solve_says_true(v, kw))
        return 0;
    if (v->s->top[kw].type == LODE_JSON_FALSE)
        LODE_TRY(solve_count_between(v, entry, n + 1, G_MANY));
    else if (n)
        LODE_TRY(solve_refuse(v, entry, kw,
                              "what other items are cannot be negated beside a list of the first"));
    else
        LODE_TRY(solve_add_atom(v, entry,
                                (struct atom){.op = ATOM_CONTAINS,
                                              .json = kw,
                                              .lit = lit_schema(kw) | LIT_NOT,
                                              .min = 1,
                                              .max = G_MANY}));
    return solve_walk(v, head);
}

int solve_not_patterns(struct solver *v, uint32_t entry, uint32_t kw, uint32_t head) {
    const struct lode_json *map = &v->s->top[kw], *m;
    for (m = lode_json_first(map); m; m = lode_json_next(map, m))
        if (!solve_says_true(v, json_index(v->s, m))) {
            const struct mark at = mark_of(v);
            const uint32_t json = json_index(v->s, m);
            LODE_TRY(solve_add_atom(v, entry,
                                    (struct atom){.op = ATOM_SOME_KEY,
                                                  .json = json,
                                                  .lit = lit_schema(json) | LIT_NOT,
                                                  .min = SOME_MATCH}));
            LODE_TRY(solve_walk(v, head));
            back_to(v, at);
        }
    return 0;
}
