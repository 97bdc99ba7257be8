/* solve.c - a conjunction of schemas, for one type, to its alternatives.
 *
 * A depth-first walk.  `tasks` is a list, shared by branches, of what still has to hold; each task
 * adds atoms, adds tasks, or branches.  Where none is left, the atoms are one alternative.  What is
 * added behind a branching point is taken back when the next branch begins.
 *
 * Annotations (for unevaluatedItems and -Properties) are found by ancestry: an atom's entry leads
 * up to the schema that it serves.  anyOf collects the annotations of all branches that hold; so
 * below such a schema it is walked as all non-empty sets of its branches, which needs no negation:
 * more branches only ever evaluate more.
 */
#include "text/grammar/literal.h"

enum {
    MAX_WALKING = 1200, /* tasks under way at once: each is a few frames of the C stack */
    MAX_ANNOTATING = 6,
};

/* Where the walk can come back to. */
struct mark {
    size_t entries, tasks, atoms;
};

static struct mark mark_of(const struct solver *v) {
    return (struct mark){v->entries.n, v->tasks.n, v->atoms.n};
}
static void back_to(struct solver *v, struct mark m) {
    v->entries.n = m.entries;
    v->tasks.n = m.tasks;
    v->atoms.n = m.atoms;
}

static int walk(struct solver *v, uint32_t head);

static int add_task(struct solver *v, uint32_t entry, uint32_t keyword, uint32_t *head) {
    if (!GVEC_PUSH(&v->tasks, ((struct task){entry, keyword, *head})))
        return gb_nomem(v->s->b);
    *head = (uint32_t)v->tasks.n - 1;
    return 0;
}

static bool has_rest(const struct solver *v, uint32_t node) {
    return json_member(v->s, node,
                       v->type == TYPE_ARRAY ? "unevaluatedItems" : "unevaluatedProperties");
}

/* A literal that must hold, found while at `parent`. */
static int add_lit(struct solver *v, g_lit lit, uint32_t parent, bool apart, uint32_t *head) {
    struct entry e = {.lit = lit, .parent = parent, .apart = apart};
    for (size_t i = 0; i < v->entries.n && i < 64 && v->type < TYPE_ARRAY; i++)
        if (v->entries.v[i].lit == lit) /* said already, and no annotations hang on it */
            return 0;
    if (parent != G_NONE)
        e.scope = v->entries.v[parent].scope && !apart;
    if (!(lit & (LIT_CONST | LIT_NOT)) && v->type >= TYPE_ARRAY)
        e.scope = e.scope || has_rest(v, lit_node(lit));
    if (!GVEC_PUSH(&v->entries, e))
        return gb_nomem(v->s->b);
    return add_task(v, (uint32_t)v->entries.n - 1, G_NONE, head);
}

static int add_atom(struct solver *v, uint32_t entry, struct atom a) {
    a.entry = entry;
    return GVEC_PUSH(&v->atoms, a) ? 0 : gb_nomem(v->s->b);
}

static int refuse(struct solver *v, uint32_t entry, uint32_t keyword, const char *why) {
    return add_atom(v, entry, (struct atom){.op = ATOM_REFUSED, .json = keyword, .text = why});
}

static int require(struct solver *v, uint32_t entry, struct lode_str key, bool neg) {
    return add_atom(v, entry, (struct atom){.op = neg ? ATOM_FORBID : ATOM_REQUIRED, .key = key});
}

static int count_between(struct solver *v, uint32_t entry, uint32_t min, uint32_t max) {
    return add_atom(v, entry, (struct atom){.op = ATOM_COUNT, .min = min, .max = max});
}

/* ---- values ---- */

static const uint8_t json_type_of[] = {
    [TYPE_NULL] = LODE_JSON_NULL,     [TYPE_TRUE] = LODE_JSON_TRUE,
    [TYPE_FALSE] = LODE_JSON_FALSE,   [TYPE_NUMBER] = LODE_JSON_NUMBER,
    [TYPE_STRING] = LODE_JSON_STRING, [TYPE_ARRAY] = LODE_JSON_ARRAY,
    [TYPE_OBJECT] = LODE_JSON_OBJECT};

static int add_cond(struct solver *v, uint32_t entry, enum number_op op,
                    const struct lode_json *value) {
    struct atom a = {.op = ATOM_COND, .cond.op = op};
    if (value)
        LODE_TRY(number_of(v->s, value, &a.cond.value));
    return add_atom(v, entry, a);
}

/* Equal to a value of the document, or (neg) not; a branch for each way of being another. */
static int do_const(struct solver *v, uint32_t entry, uint32_t head) {
    const struct entry e = v->entries.v[entry];
    const uint32_t node = lit_node(e.lit);
    const struct lode_json *c = &v->s->top[node], *m;
    const bool neg = e.lit & LIT_NOT, same = c->type == json_type_of[v->type];
    if (!same)
        return neg ? walk(v, head) : 0;
    if (v->type <= TYPE_FALSE)
        return neg ? 0 : walk(v, head);
    const struct mark m0 = mark_of(v);
    if (v->type == TYPE_NUMBER) {
        LODE_TRY(add_cond(v, entry, neg ? NUMBER_NE : NUMBER_EQ, c));
        return walk(v, head);
    }
    if (v->type == TYPE_STRING) {
        LODE_TRY(add_atom(v, entry, (struct atom){.op = ATOM_WORDS, .neg = neg, .json = node}));
        return walk(v, head);
    }
    uint32_t i = 0;
    const bool array = v->type == TYPE_ARRAY;
    if (!neg) {
        LODE_TRY(count_between(v, entry, c->n, c->n));
        if (!array)
            LODE_TRY(add_atom(v, entry, (struct atom){.op = ATOM_ONLY, .json = node}));
        for (m = lode_json_first(c); m; m = lode_json_next(c, m), i++) {
            const struct lode_str key = {m->key, m->key_len};
            LODE_TRY(add_atom(v, entry,
                              (struct atom){.op = array ? ATOM_ITEM : ATOM_MEMBER,
                                            .min = i,
                                            .key = key,
                                            .lit = lit_const(json_index(v->s, m))}));
            if (!array)
                LODE_TRY(require(v, entry, key, false));
        }
        return walk(v, head);
    }
    if (array && c->n) { /* shorter */
        LODE_TRY(count_between(v, entry, 0, c->n - 1));
        LODE_TRY(walk(v, head));
        back_to(v, m0);
    }
    for (m = lode_json_first(c); m; m = lode_json_next(c, m), i++) {
        const struct lode_str key = {m->key, m->key_len};
        if (!array) { /* without this key */
            LODE_TRY(require(v, entry, key, true));
            LODE_TRY(walk(v, head));
            back_to(v, m0);
        }
        /* with another value here */
        LODE_TRY(array ? count_between(v, entry, i + 1, G_MANY) : require(v, entry, key, false));
        LODE_TRY(add_atom(v, entry,
                          (struct atom){.op = array ? ATOM_ITEM : ATOM_MEMBER,
                                        .min = i,
                                        .key = key,
                                        .lit = lit_const(json_index(v->s, m)) | LIT_NOT}));
        LODE_TRY(walk(v, head));
        back_to(v, m0);
    }
    /* longer; or all keys, and more */
    for (m = lode_json_first(c); m && !array; m = lode_json_next(c, m))
        LODE_TRY(require(v, entry, (struct lode_str){m->key, m->key_len}, false));
    LODE_TRY(count_between(v, entry, c->n + 1, G_MANY));
    return walk(v, head);
}

/* ---- branches ---- */

/* Goes on with one more literal, then takes it back. */
static int branch(struct solver *v, uint32_t entry, g_lit lit, bool apart, uint32_t head) {
    const struct mark m = mark_of(v);
    LODE_TRY(add_lit(v, lit, entry, apart, &head));
    LODE_TRY(walk(v, head));
    back_to(v, m);
    return 0;
}

static int branch_two(struct solver *v, uint32_t entry, g_lit a, bool apart_a, g_lit c,
                      uint32_t head) {
    const struct mark m = mark_of(v);
    LODE_TRY(add_lit(v, c, entry, false, &head));
    LODE_TRY(add_lit(v, a, entry, apart_a, &head));
    LODE_TRY(walk(v, head));
    back_to(v, m);
    return 0;
}

/* Each member of a list of schemas, as literals with these bits. */
static int all_members(struct solver *v, uint32_t entry, uint32_t list, g_lit bits, bool apart,
                       uint32_t *head) {
    const struct lode_json *l = &v->s->top[list], *m;
    for (m = lode_json_first(l); m; m = lode_json_next(l, m))
        LODE_TRY(add_lit(v, lit_schema(json_index(v->s, m)) | bits, entry, apart, head));
    return 0;
}

static int any_member(struct solver *v, uint32_t entry, uint32_t list, g_lit bits, bool apart,
                      uint32_t head) {
    const struct lode_json *l = &v->s->top[list], *m;
    for (m = lode_json_first(l); m; m = lode_json_next(l, m))
        LODE_TRY(branch(v, entry, lit_schema(json_index(v->s, m)) | bits, apart, head));
    return 0;
}

static int do_any_of(struct solver *v, uint32_t entry, uint32_t kw, uint32_t head) {
    const struct lode_json *l = &v->s->top[kw], *m;
    if (!v->entries.v[entry].scope)
        return any_member(v, entry, kw, 0, false, head);
    if (l->n > MAX_ANNOTATING)
        return schema_fail(v->s, LODE_ERR_UNSUPPORTED, kw,
                           "anyOf with more than %d branches below unevaluatedItems or "
                           "unevaluatedProperties cannot be enforced: each set of branches "
                           "evaluates something else",
                           MAX_ANNOTATING);
    for (uint32_t set = 1; set < 1u << l->n; set++) {
        const struct mark at = mark_of(v);
        uint32_t i = 0, next = head;
        for (m = lode_json_first(l); m; m = lode_json_next(l, m), i++)
            if (set >> i & 1)
                LODE_TRY(add_lit(v, lit_schema(json_index(v->s, m)), entry, false, &next));
        LODE_TRY(walk(v, next));
        back_to(v, at);
    }
    return 0;
}

/* One branch holds, and those that could hold with it do not. */
static int do_one_of(struct solver *v, uint32_t entry, uint32_t kw, uint32_t head) {
    const struct lode_json *l = &v->s->top[kw], *m, *o;
    for (m = lode_json_first(l); m; m = lode_json_next(l, m)) {
        const struct mark at = mark_of(v);
        const g_lit one = lit_schema(json_index(v->s, m));
        uint32_t next = head;
        for (o = lode_json_first(l); o; o = lode_json_next(l, o)) {
            const g_lit other = lit_schema(json_index(v->s, o));
            bool apart = false;
            if (o == m)
                continue;
            LODE_TRY(schema_disjoint(v->s, one, other, v->type, &apart));
            if (!apart)
                LODE_TRY(add_lit(v, other | LIT_NOT, entry, true, &next));
        }
        LODE_TRY(add_lit(v, one, entry, false, &next));
        LODE_TRY(walk(v, next));
        back_to(v, at);
    }
    return 0;
}

/* None of them, or two. */
static int do_not_one_of(struct solver *v, uint32_t entry, uint32_t kw, uint32_t head) {
    const struct lode_json *l = &v->s->top[kw], *m, *o;
    const struct mark at = mark_of(v);
    uint32_t next = head;
    LODE_TRY(all_members(v, entry, kw, LIT_NOT, true, &next));
    LODE_TRY(walk(v, next));
    back_to(v, at);
    for (m = lode_json_first(l); m; m = lode_json_next(l, m))
        for (o = lode_json_next(l, m); o; o = lode_json_next(l, o)) {
            bool apart = false;
            const g_lit x = lit_schema(json_index(v->s, m)), y = lit_schema(json_index(v->s, o));
            LODE_TRY(schema_disjoint(v->s, x, y, v->type, &apart));
            if (!apart)
                LODE_TRY(branch_two(v, entry, x, true, y, head));
        }
    return 0;
}

static int do_if(struct solver *v, uint32_t entry, uint32_t kw, bool neg, uint32_t head) {
    const uint32_t schema = lit_node(v->entries.v[entry].lit);
    const struct lode_json *yes = json_member(v->s, schema, "then");
    const struct lode_json *no = json_member(v->s, schema, "else");
    const g_lit cond = lit_schema(kw), bits = neg ? LIT_NOT : 0;
    if (!yes && !no && !v->entries.v[entry].scope)
        return neg ? 0 : walk(v, head);
    if (yes)
        LODE_TRY(branch_two(v, entry, cond, neg, lit_schema(json_index(v->s, yes)) | bits, head));
    else if (!neg)
        LODE_TRY(branch(v, entry, cond, false, head));
    if (no)
        LODE_TRY(branch_two(v, entry, cond | LIT_NOT, true, lit_schema(json_index(v->s, no)) | bits,
                            head));
    else if (!neg)
        LODE_TRY(branch(v, entry, cond | LIT_NOT, true, head));
    return 0;
}

/* For each key of dependentSchemas and dependentRequired: it is not there, or what it asks for. */
static int do_dependent(struct solver *v, uint32_t entry, const struct lode_json *map,
                        const struct lode_json *m, uint32_t head) {
    if (!m)
        return walk(v, head);
    const struct lode_json *next = lode_json_next(map, m), *k;
    const struct lode_str key = {m->key, m->key_len};
    const struct mark at = mark_of(v);
    if (++v->s->walking > MAX_WALKING)
        return schema_fail(v->s, LODE_ERR_LIMIT, json_index(v->s, map), "too many keys");
    LODE_TRY(gb_work(v->s->b, 10));
    LODE_TRY(require(v, entry, key, true));
    LODE_TRY(do_dependent(v, entry, map, next, head));
    back_to(v, at);
    LODE_TRY(require(v, entry, key, false));
    if (m->type == LODE_JSON_ARRAY)
        for (k = lode_json_first(m); k; k = lode_json_next(m, k)) {
            if (k->type != LODE_JSON_STRING)
                return schema_fail(v->s, LODE_ERR_FORMAT, json_index(v->s, k),
                                   "a key was expected");
            LODE_TRY(require(v, entry, lode_json_str(k), false));
        }
    else
        LODE_TRY(add_lit(v, lit_schema(json_index(v->s, m)), entry, false, &head));
    LODE_TRY(do_dependent(v, entry, map, next, head));
    back_to(v, at);
    v->s->walking--;
    return 0;
}

static int do_not_dependent(struct solver *v, uint32_t entry, uint32_t kw, uint32_t head) {
    const struct lode_json *map = &v->s->top[kw], *m, *k;
    for (m = lode_json_first(map); m; m = lode_json_next(map, m)) {
        const struct mark at = mark_of(v);
        const struct lode_str key = {m->key, m->key_len};
        LODE_TRY(require(v, entry, key, false));
        if (m->type != LODE_JSON_ARRAY)
            LODE_TRY(branch(v, entry, lit_schema(json_index(v->s, m)) | LIT_NOT, true, head));
        else
            for (k = lode_json_first(m); k; k = lode_json_next(m, k)) {
                const struct mark inner = mark_of(v);
                LODE_TRY(require(v, entry, lode_json_str(k), true));
                LODE_TRY(walk(v, head));
                back_to(v, inner);
            }
        back_to(v, at);
    }
    return 0;
}

/* ---- keywords ---- */

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

static int do_type(struct solver *v, uint32_t entry, uint32_t kw, bool neg, uint32_t head) {
    bool allowed = false, whole = false;
    LODE_TRY(type_allows(v, kw, &allowed, &whole));
    if (whole)
        LODE_TRY(add_cond(v, entry, neg ? NUMBER_NOT_INT : NUMBER_INT, NULL));
    return whole || allowed != neg ? walk(v, head) : 0;
}

static int do_enum(struct solver *v, uint32_t entry, uint32_t kw, bool neg, uint32_t head) {
    const struct lode_json *l = &v->s->top[kw], *m;
    if (l->type != LODE_JSON_ARRAY)
        return schema_fail(v->s, LODE_ERR_FORMAT, kw, "enum is a list of values");
    if (v->type == TYPE_STRING) {
        LODE_TRY(add_atom(v, entry, (struct atom){.op = ATOM_WORDS, .neg = neg, .json = kw}));
        return walk(v, head);
    }
    for (m = lode_json_first(l); m; m = lode_json_next(l, m)) {
        LODE_TRY(gb_work(v->s->b, 1));
        if (m->type != json_type_of[v->type])
            continue;
        const g_lit lit = lit_const(json_index(v->s, m));
        if (neg)
            LODE_TRY(add_lit(v, lit | LIT_NOT, entry, true, &head));
        else
            LODE_TRY(branch(v, entry, lit, false, head));
        if (!neg && v->type <= TYPE_FALSE)
            return 0;
    }
    return neg ? walk(v, head) : 0;
}

static int do_number(struct solver *v, uint32_t entry, uint32_t kw, enum number_op op, bool neg,
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
    LODE_TRY(add_cond(v, entry, neg ? number_negate(op) : op, x));
    return walk(v, head);
}

/* minLength and the like; op: ATOM_LENGTH or ATOM_COUNT. */
static int do_bound(struct solver *v, uint32_t entry, uint32_t kw, enum atom_op op, bool lower,
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
    LODE_TRY(add_atom(v, entry, a));
    return walk(v, head);
}

static int do_required(struct solver *v, uint32_t entry, uint32_t kw, bool neg, uint32_t head) {
    const struct lode_json *l = &v->s->top[kw], *m;
    if (l->type != LODE_JSON_ARRAY)
        return schema_fail(v->s, LODE_ERR_FORMAT, kw, "required is a list of keys");
    for (m = lode_json_first(l); m; m = lode_json_next(l, m)) {
        const struct mark at = mark_of(v);
        if (m->type != LODE_JSON_STRING)
            return schema_fail(v->s, LODE_ERR_FORMAT, json_index(v->s, m), "a key was expected");
        LODE_TRY(require(v, entry, lode_json_str(m), neg));
        if (neg) {
            LODE_TRY(walk(v, head));
            back_to(v, at);
        }
    }
    return neg ? 0 : walk(v, head);
}

static int do_contains(struct solver *v, uint32_t entry, uint32_t kw, bool neg, uint32_t head) {
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
        LODE_TRY(add_atom(v, entry, a));
        return walk(v, head);
    }
    struct atom fewer = a, more = a;
    fewer.max = a.min - 1;
    fewer.min = 0;
    more.min = a.max + 1;
    more.max = G_MANY;
    if (a.min > 0) {
        LODE_TRY(add_atom(v, entry, fewer));
        LODE_TRY(walk(v, head));
        back_to(v, at);
    }
    if (a.max != G_MANY) {
        LODE_TRY(add_atom(v, entry, more));
        LODE_TRY(walk(v, head));
    }
    return 0;
}

static bool says_true(const struct solver *v, uint32_t node) {
    const struct lode_json *x = &v->s->top[node];
    return x->type == LODE_JSON_TRUE || (x->type == LODE_JSON_OBJECT && !x->n);
}

/* Some member fails its schema; the other applicators of negated schemas that ask "some". */
static int do_not_members(struct solver *v, uint32_t entry, uint32_t kw, bool array,
                          uint32_t head) {
    const struct lode_json *l = &v->s->top[kw], *m;
    uint32_t i = 0;
    for (m = lode_json_first(l); m; m = lode_json_next(l, m), i++) {
        const struct mark at = mark_of(v);
        const struct lode_str key = {m->key, m->key_len};
        LODE_TRY(array ? count_between(v, entry, i + 1, G_MANY) : require(v, entry, key, false));
        LODE_TRY(add_atom(v, entry,
                          (struct atom){.op = array ? ATOM_ITEM : ATOM_MEMBER,
                                        .min = i,
                                        .key = key,
                                        .lit = lit_schema(json_index(v->s, m)) | LIT_NOT}));
        LODE_TRY(walk(v, head));
        back_to(v, at);
    }
    return 0;
}

static int do_not_items(struct solver *v, uint32_t entry, uint32_t kw, uint32_t head) {
    const struct lode_json *prefix =
        json_member(v->s, lit_node(v->entries.v[entry].lit), "prefixItems");
    const uint32_t n = lode_json_count(prefix);
    if (says_true(v, kw))
        return 0;
    if (v->s->top[kw].type == LODE_JSON_FALSE)
        LODE_TRY(count_between(v, entry, n + 1, G_MANY));
    else if (n)
        LODE_TRY(refuse(v, entry, kw, "items behind prefixItems cannot be negated"));
    else
        LODE_TRY(add_atom(v, entry,
                          (struct atom){.op = ATOM_CONTAINS,
                                        .json = kw,
                                        .lit = lit_schema(kw) | LIT_NOT,
                                        .min = 1,
                                        .max = G_MANY}));
    return walk(v, head);
}

static int do_not_patterns(struct solver *v, uint32_t entry, uint32_t kw, uint32_t head) {
    const struct lode_json *map = &v->s->top[kw], *m;
    for (m = lode_json_first(map); m; m = lode_json_next(map, m))
        if (!says_true(v, json_index(v->s, m))) {
            LODE_TRY(refuse(v, entry, kw, "cannot be negated"));
            return walk(v, head);
        }
    return 0;
}

/* keyword, the type it speaks about (7: all) */
#define KEYWORD_LIST(X)                                                                            \
    X(type, 7)                                                                                     \
    X(enum, 7) X(const, 7) X(allOf, 7) X(anyOf, 7) X(oneOf, 7) X(not, 7) X(if, 7) X(minimum, 3)    \
        X(maximum, 3) X(exclusiveMinimum, 3) X(exclusiveMaximum, 3) X(multipleOf, 3) X(pattern, 4) \
            X(minLength, 4) X(maxLength, 4) X(format, 4) X(minItems, 5) X(maxItems, 5)             \
                X(uniqueItems, 5) X(contains, 5) X(prefixItems, 5) X(items, 5)                     \
                    X(unevaluatedItems, 5) X(required, 6) X(minProperties, 6) X(maxProperties, 6)  \
                        X(dependentRequired, 6) X(dependentSchemas, 6) X(propertyNames, 6)         \
                            X(properties, 6) X(patternProperties, 6) X(additionalProperties, 6)    \
                                X(unevaluatedProperties, 6)
enum keyword {
#define KEYWORD(name, type) KW_##name,
    KEYWORD_LIST(KEYWORD)
#undef KEYWORD
        KW_ref,
    KW_dynamicRef,
    KW_older,
    KW_none
};

static enum keyword keyword_of(const struct lode_json *m, enum g_type type) {
    static const struct {
        const char *name;
        uint8_t type;
    } known[] = {
#define KEYWORD(name, type) {#name, type},
        KEYWORD_LIST(KEYWORD)
#undef KEYWORD
    };
    const struct lode_str key = {m->key, m->key_len};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (lode_str_eqz(key, known[i].name))
            return known[i].type == 7 || known[i].type == type ? (enum keyword)i : KW_none;
    if (lode_str_eqz(key, "$ref"))
        return KW_ref;
    if (lode_str_eqz(key, "$dynamicRef"))
        return KW_dynamicRef;
    if (lode_str_eqz(key, "$recursiveRef") || lode_str_eqz(key, "dependencies") ||
        lode_str_eqz(key, "additionalItems"))
        return KW_older;
    return KW_none;
}

/* A literal of the same value above this one, and only references and the like between: there is
 * no end to it. */
static int check_loop(struct solver *v, uint32_t parent, g_lit lit, uint32_t kw) {
    for (uint32_t e = parent; e != G_NONE; e = v->entries.v[e].parent)
        if (((v->entries.v[e].lit ^ lit) & ~(uint32_t)LIT_NOT) == 0)
            return schema_fail(v->s, LODE_ERR_FORMAT, kw,
                               "the reference leads back to itself without reading anything: it "
                               "has no meaning");
    return 0;
}

/* One keyword of a schema that holds, or (neg) that fails by this keyword. */
static int do_keyword(struct solver *v, uint32_t entry, uint32_t kw, uint32_t head) {
    const struct lode_json *x = &v->s->top[kw];
    const bool neg = v->entries.v[entry].lit & LIT_NOT;
    const uint32_t bits = neg ? LIT_NOT : 0;
    uint32_t target;
    switch (keyword_of(x, v->type)) {
    case KW_type:
        return do_type(v, entry, kw, neg, head);
    case KW_enum:
        return do_enum(v, entry, kw, neg, head);
    case KW_const:
        return branch(v, entry, lit_const(kw) | bits, neg, head);
    case KW_ref:
    case KW_dynamicRef:
        LODE_TRY(schema_resolve(v->s, lit_node(v->entries.v[entry].lit), kw,
                                keyword_of(x, v->type) == KW_dynamicRef, &target));
        LODE_TRY(check_loop(v, entry, lit_schema(target), kw));
        return branch(v, entry, lit_schema(target) | bits, neg, head);
    case KW_older:
        return schema_fail(v->s, LODE_ERR_UNSUPPORTED, kw,
                           "%.*s belongs to a draft before 2020-12: write dependentRequired, "
                           "dependentSchemas, prefixItems with items, or $dynamicRef",
                           (int)x->key_len, x->key);
    case KW_allOf:
        if (neg)
            return any_member(v, entry, kw, LIT_NOT, true, head);
        LODE_TRY(all_members(v, entry, kw, 0, false, &head));
        return walk(v, head);
    case KW_anyOf:
        if (!neg)
            return do_any_of(v, entry, kw, head);
        LODE_TRY(all_members(v, entry, kw, LIT_NOT, true, &head));
        return walk(v, head);
    case KW_oneOf:
        return neg ? do_not_one_of(v, entry, kw, head) : do_one_of(v, entry, kw, head);
    case KW_not:
        return branch(v, entry, lit_schema(kw) | (neg ? 0 : LIT_NOT), true, head);
    case KW_if:
        return do_if(v, entry, kw, neg, head);
    case KW_minimum:
        return do_number(v, entry, kw, NUMBER_GE, neg, head);
    case KW_maximum:
        return do_number(v, entry, kw, NUMBER_LE, neg, head);
    case KW_exclusiveMinimum:
        return do_number(v, entry, kw, NUMBER_GT, neg, head);
    case KW_exclusiveMaximum:
        return do_number(v, entry, kw, NUMBER_LT, neg, head);
    case KW_multipleOf:
        return do_number(v, entry, kw, NUMBER_MULT, neg, head);
    case KW_minLength:
        return do_bound(v, entry, kw, ATOM_LENGTH, true, neg, head);
    case KW_maxLength:
        return do_bound(v, entry, kw, ATOM_LENGTH, false, neg, head);
    case KW_minItems:
    case KW_minProperties:
        return do_bound(v, entry, kw, ATOM_COUNT, true, neg, head);
    case KW_maxItems:
    case KW_maxProperties:
        return do_bound(v, entry, kw, ATOM_COUNT, false, neg, head);
    case KW_pattern:
        if (x->type != LODE_JSON_STRING)
            return schema_fail(v->s, LODE_ERR_FORMAT, kw, "a pattern is a string");
        LODE_TRY(add_atom(v, entry, (struct atom){.op = ATOM_PATTERN, .neg = neg, .json = kw}));
        return walk(v, head);
    case KW_format: /* an annotation: it cannot fail */
        if (neg)
            return 0;
        LODE_TRY(add_atom(v, entry, (struct atom){.op = ATOM_FORMAT, .json = kw}));
        return walk(v, head);
    case KW_required:
        return do_required(v, entry, kw, neg, head);
    case KW_dependentRequired:
    case KW_dependentSchemas:
        if (x->type != LODE_JSON_OBJECT)
            return schema_fail(v->s, LODE_ERR_FORMAT, kw, "an object was expected");
        return neg ? do_not_dependent(v, entry, kw, head)
                   : do_dependent(v, entry, x, lode_json_first(x), head);
    case KW_contains:
        return do_contains(v, entry, kw, neg, head);
    case KW_uniqueItems:
        if (x->type == LODE_JSON_FALSE)
            return neg ? 0 : walk(v, head);
        if (neg)
            LODE_TRY(refuse(v, entry, kw, "uniqueItems cannot be negated"));
        else
            LODE_TRY(add_atom(v, entry, (struct atom){.op = ATOM_UNIQUE, .json = kw}));
        return walk(v, head);
    case KW_prefixItems:
        return neg ? do_not_members(v, entry, kw, true, head) : walk(v, head);
    case KW_items:
        return neg ? do_not_items(v, entry, kw, head) : walk(v, head);
    case KW_properties:
        return neg ? do_not_members(v, entry, kw, false, head) : walk(v, head);
    case KW_patternProperties:
        return neg ? do_not_patterns(v, entry, kw, head) : walk(v, head);
    case KW_additionalProperties:
    case KW_propertyNames:
        if (neg && says_true(v, kw))
            return 0;
        if (neg)
            LODE_TRY(refuse(v, entry, kw,
                            "cannot be negated: \"some key ...\" would have to be enforced (it "
                            "stands below not, if or oneOf, or beside an overlapping branch)"));
        else if (keyword_of(x, v->type) == KW_propertyNames)
            LODE_TRY(add_atom(v, entry, (struct atom){.op = ATOM_KEYS, .lit = lit_schema(kw)}));
        return walk(v, head);
    case KW_unevaluatedItems:
    case KW_unevaluatedProperties:
        if (neg)
            LODE_TRY(refuse(v, entry, kw, "cannot be negated"));
        else
            LODE_TRY(add_atom(v, entry,
                              (struct atom){.op = ATOM_REST, .json = kw, .lit = lit_schema(kw)}));
        return walk(v, head);
    case KW_none:
        break;
    }
    return neg ? 0 : walk(v, head);
}

static bool has_any(const struct solver *v, uint32_t node, const char *a, const char *b,
                    const char *c) {
    return json_member(v->s, node, a) || json_member(v->s, node, b) ||
           (c && json_member(v->s, node, c));
}

/* A whole schema: holds, so each keyword does; or fails, by one of them. */
static int do_schema(struct solver *v, uint32_t entry, uint32_t head) {
    const g_lit lit = v->entries.v[entry].lit;
    const uint32_t node = lit_node(lit);
    const struct lode_json *x = &v->s->top[node], *m;
    const bool neg = lit & LIT_NOT;
    if (x->type != LODE_JSON_OBJECT)
        return (x->type == LODE_JSON_TRUE) != neg ? walk(v, head) : 0;
    const struct lode_json *ref = v->s->old ? lode_json_get(x, "$ref") : NULL;
    if (ref)
        return do_keyword(v, entry, json_index(v->s, ref), head);
    if (!neg && v->type == TYPE_OBJECT &&
        has_any(v, node, "properties", "patternProperties", "additionalProperties"))
        LODE_TRY(add_atom(v, entry, (struct atom){.op = ATOM_MEMBERS, .json = node}));
    if (!neg && v->type == TYPE_ARRAY && has_any(v, node, "prefixItems", "items", NULL))
        LODE_TRY(add_atom(v, entry, (struct atom){.op = ATOM_ITEMS, .json = node}));
    for (m = lode_json_first(x); m; m = lode_json_next(x, m)) {
        const uint32_t kw = json_index(v->s, m);
        if (keyword_of(m, v->type) == KW_none)
            continue;
        if (!neg) {
            LODE_TRY(add_task(v, entry, kw, &head));
            continue;
        }
        const struct mark at = mark_of(v);
        LODE_TRY(do_keyword(v, entry, kw, head));
        back_to(v, at);
    }
    if (neg)
        return 0;
    /* what needs no branches first: "type" drops most alternatives before they multiply */
    const struct lode_json *type = lode_json_get(x, "type");
    if (type)
        LODE_TRY(add_task(v, entry, json_index(v->s, type), &head));
    return walk(v, head);
}

/* Does the next task; at the end of the list the alternative is complete. */
static int walk(struct solver *v, uint32_t head) {
    struct schema *s = v->s;
    if (s->walking > MAX_WALKING)
        return lode_fail(s->b->err, LODE_ERR_LIMIT, "schema",
                         "too many keywords apply to one value (more than %d on one way through "
                         "allOf, anyOf and $ref)",
                         MAX_WALKING);
    LODE_TRY(gb_work(s->b, 20));
    if (head == G_NONE)
        return shape_add(v);
    const struct task t = v->tasks.v[head];
    s->walking++;
    const int rc = t.keyword != G_NONE ? do_keyword(v, t.entry, t.keyword, t.next)
                   : v->entries.v[t.entry].lit & LIT_CONST ? do_const(v, t.entry, t.next)
                                                           : do_schema(v, t.entry, t.next);
    s->walking--;
    return rc;
}

int solve_node(struct schema *s, uint32_t node, enum g_type type) {
    struct solver v = {.s = s, .type = type, .node = node};
    uint32_t n, head = G_NONE;
    int rc = 0;
    gvec_u32 lits = {0};
    const uint32_t *set = gintern_at(&s->sets, node, &n);
    if (!GVEC_ROOM(&lits, n + 1))
        return gb_nomem(s->b);
    if (n)
        memcpy(lits.v, set, n * sizeof *set); /* the sets move when one is added */
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = add_lit(&v, lits.v[i], G_NONE, false, &head);
    rc = rc == 0 ? walk(&v, head) : rc;
    GVEC_FREE(&lits);
    GVEC_FREE(&v.entries);
    GVEC_FREE(&v.tasks);
    GVEC_FREE(&v.atoms);
    return rc;
}
