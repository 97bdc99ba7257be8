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
#include "text/grammar/solve.h"

const uint8_t solve_json_type[] = {
    [TYPE_NULL] = LODE_JSON_NULL,     [TYPE_TRUE] = LODE_JSON_TRUE,
    [TYPE_FALSE] = LODE_JSON_FALSE,   [TYPE_NUMBER] = LODE_JSON_NUMBER,
    [TYPE_STRING] = LODE_JSON_STRING, [TYPE_ARRAY] = LODE_JSON_ARRAY,
    [TYPE_OBJECT] = LODE_JSON_OBJECT};

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

int solve_add_lit(struct solver *v, g_lit lit, uint32_t parent, bool apart, uint32_t *head) {
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

int solve_add_atom(struct solver *v, uint32_t entry, struct atom a) {
    a.entry = entry;
    return GVEC_PUSH(&v->atoms, a) ? 0 : gb_nomem(v->s->b);
}

int solve_refuse(struct solver *v, uint32_t entry, uint32_t keyword, const char *why) {
    return solve_add_atom(v, entry,
                          (struct atom){.op = ATOM_REFUSED, .json = keyword, .text = why});
}

int solve_require(struct solver *v, uint32_t entry, struct lode_str key, bool neg) {
    return solve_add_atom(v, entry,
                          (struct atom){.op = neg ? ATOM_FORBID : ATOM_REQUIRED, .key = key});
}

int solve_count_between(struct solver *v, uint32_t entry, uint32_t min, uint32_t max) {
    return solve_add_atom(v, entry, (struct atom){.op = ATOM_COUNT, .min = min, .max = max});
}

int solve_there_and(struct solver *v, uint32_t entry, bool array, uint32_t i, struct lode_str key, g_lit lit) {
    LODE_TRY(array ? solve_count_between(v, entry, i + 1, G_MANY) : solve_require(v, entry, key, false));
    return solve_add_atom(v, entry, (struct atom){.op = array ? ATOM_ITEM : ATOM_MEMBER, .min = i, .key = key, .lit = lit});
}

int solve_add_cond(struct solver *v, uint32_t entry, enum number_op op,
                   const struct lode_json *value) {
    struct atom a = {.op = ATOM_COND, .cond.op = op};
    if (value)
        LODE_TRY(number_of(v->s, value, &a.cond.value));
    return solve_add_atom(v, entry, a);
}

int solve_branch(struct solver *v, uint32_t entry, g_lit lit, bool apart, uint32_t head) {
    const struct mark m = mark_of(v);
    LODE_TRY(solve_add_lit(v, lit, entry, apart, &head));
    LODE_TRY(solve_walk(v, head));
    back_to(v, m);
    return 0;
}

int solve_branch_two(struct solver *v, uint32_t entry, g_lit a, bool apart_a, g_lit c,
                     uint32_t head) {
    const struct mark m = mark_of(v);
    LODE_TRY(solve_add_lit(v, c, entry, false, &head));
    LODE_TRY(solve_add_lit(v, a, entry, apart_a, &head));
    LODE_TRY(solve_walk(v, head));
    back_to(v, m);
    return 0;
}

int solve_all_members(struct solver *v, uint32_t entry, uint32_t list, g_lit bits, bool apart,
                      uint32_t *head) {
    const struct lode_json *l = &v->s->top[list], *m;
    for (m = lode_json_first(l); m; m = lode_json_next(l, m))
        LODE_TRY(solve_add_lit(v, lit_schema(json_index(v->s, m)) | bits, entry, apart, head));
    return 0;
}

int solve_any_member(struct solver *v, uint32_t entry, uint32_t list, g_lit bits, bool apart,
                     uint32_t head) {
    const struct lode_json *l = &v->s->top[list], *m;
    for (m = lode_json_first(l); m; m = lode_json_next(l, m))
        LODE_TRY(solve_branch(v, entry, lit_schema(json_index(v->s, m)) | bits, apart, head));
    return 0;
}

/* keyword, the type it speaks about (7: all) */
#define KEYWORD_LIST(X)                                                                            \
    X(type, 7)                                                                                     \
    X(enum, 7)                                                                                     \
    X(const, 7)                                                                                    \
    X(allOf, 7)                                                                                    \
    X(anyOf, 7) X(oneOf, 7) X(not, 7) X(if, 7) X(minimum, 3) X(maximum, 3) X(exclusiveMinimum, 3)  \
        X(exclusiveMaximum, 3) X(multipleOf, 3) X(pattern, 4) X(minLength, 4) X(maxLength, 4)      \
            X(format, 4) X(minItems, 5) X(maxItems, 5) X(uniqueItems, 5) X(contains, 5)            \
                X(prefixItems, 5) X(items, 5) X(additionalItems, 5) X(dependencies, 6)             \
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
    KW_recursiveRef,
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
    if (lode_str_eqz(key, "$recursiveRef"))
        return KW_recursiveRef;
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

static bool says_true(const struct solver *v, uint32_t entry, const char *keyword) {
    const struct lode_json *x = json_member(v->s, lit_node(v->entries.v[entry].lit), keyword);
    return x && x->type == LODE_JSON_TRUE;
}

/* One keyword of a schema that holds, or (neg) that fails by this keyword. */
static int do_keyword(struct solver *v, uint32_t entry, uint32_t kw, uint32_t head) {
    const struct lode_json *x = &v->s->top[kw];
    const bool neg = v->entries.v[entry].lit & LIT_NOT;
    const uint32_t bits = neg ? LIT_NOT : 0;
    const uint32_t node = lit_node(v->entries.v[entry].lit);
    uint32_t target;
    switch (keyword_of(x, v->type)) {
    case KW_type:
        return solve_type(v, entry, kw, neg, head);
    case KW_enum:
        return solve_enum(v, entry, kw, neg, head);
    case KW_const:
        return solve_branch(v, entry, lit_const(kw) | bits, neg, head);
    case KW_recursiveRef: /* of draft 2019-09; with one resource there is one place to go to */
        if (v->s->resources.n > 1)
            return schema_fail(v->s, LODE_ERR_UNSUPPORTED, kw,
                               "$recursiveRef in a document with several $id depends on the way of "
                               "evaluation and cannot be enforced: write $ref");
        /* fall through */
    case KW_ref:
    case KW_dynamicRef:
        LODE_TRY(schema_resolve(v->s, node, kw, keyword_of(x, v->type) == KW_dynamicRef, &target));
        LODE_TRY(check_loop(v, entry, lit_schema(target), kw));
        return solve_branch(v, entry, lit_schema(target) | bits, neg, head);
    case KW_allOf:
        if (neg)
            return solve_any_member(v, entry, kw, LIT_NOT, true, head);
        LODE_TRY(solve_all_members(v, entry, kw, 0, false, &head));
        return solve_walk(v, head);
    case KW_anyOf:
        if (!neg)
            return solve_any_of(v, entry, kw, head);
        LODE_TRY(solve_all_members(v, entry, kw, LIT_NOT, true, &head));
        return solve_walk(v, head);
    case KW_oneOf:
        return neg ? solve_not_one_of(v, entry, kw, head) : solve_one_of(v, entry, kw, head);
    case KW_not:
        return solve_branch(v, entry, lit_schema(kw) | (neg ? 0 : LIT_NOT), true, head);
    case KW_if:
        return solve_if(v, entry, kw, neg, head);
    case KW_minimum:
        return solve_number(v, entry, kw,
                            says_true(v, entry, "exclusiveMinimum") ? NUMBER_GT : NUMBER_GE, neg,
                            head);
    case KW_maximum:
        return solve_number(v, entry, kw,
                            says_true(v, entry, "exclusiveMaximum") ? NUMBER_LT : NUMBER_LE, neg,
                            head);
    case KW_exclusiveMinimum:
    case KW_exclusiveMaximum:
        if (x->type == LODE_JSON_TRUE ||
            x->type == LODE_JSON_FALSE) /* draft 4: says how minimum is meant */
            return neg ? 0 : solve_walk(v, head);
        return solve_number(v, entry, kw,
                            keyword_of(x, v->type) == KW_exclusiveMinimum ? NUMBER_GT : NUMBER_LT,
                            neg, head);
    case KW_multipleOf:
        return solve_number(v, entry, kw, NUMBER_MULT, neg, head);
    case KW_minLength:
        return solve_bound(v, entry, kw, ATOM_LENGTH, true, neg, head);
    case KW_maxLength:
        return solve_bound(v, entry, kw, ATOM_LENGTH, false, neg, head);
    case KW_minItems:
    case KW_minProperties:
        return solve_bound(v, entry, kw, ATOM_COUNT, true, neg, head);
    case KW_maxItems:
    case KW_maxProperties:
        return solve_bound(v, entry, kw, ATOM_COUNT, false, neg, head);
    case KW_pattern:
        if (x->type != LODE_JSON_STRING)
            return schema_fail(v->s, LODE_ERR_FORMAT, kw, "a pattern is a string");
        LODE_TRY(
            solve_add_atom(v, entry, (struct atom){.op = ATOM_PATTERN, .neg = neg, .json = kw}));
        return solve_walk(v, head);
    case KW_format: /* an annotation: it cannot fail */
        if (neg)
            return 0;
        LODE_TRY(solve_add_atom(v, entry, (struct atom){.op = ATOM_FORMAT, .json = kw}));
        return solve_walk(v, head);
    case KW_required:
        return solve_required(v, entry, kw, neg, head);
    case KW_dependencies: /* both in one, before draft 2019-09 */
    case KW_dependentRequired:
    case KW_dependentSchemas:
        if (x->type != LODE_JSON_OBJECT)
            return schema_fail(v->s, LODE_ERR_FORMAT, kw, "an object was expected");
        return neg ? solve_not_dependent(v, entry, kw, head)
                   : solve_dependent(v, entry, x, lode_json_first(x), head);
    case KW_contains:
        return solve_contains(v, entry, kw, neg, head);
    case KW_uniqueItems:
        if (x->type == LODE_JSON_FALSE)
            return neg ? 0 : solve_walk(v, head);
        if (neg)
            LODE_TRY(solve_refuse(v, entry, kw, "uniqueItems cannot be negated"));
        else
            LODE_TRY(solve_add_atom(v, entry, (struct atom){.op = ATOM_UNIQUE, .json = kw}));
        return solve_walk(v, head);
    case KW_prefixItems:
    case KW_items:
    case KW_additionalItems:
        if (!neg)
            return solve_walk(v, head);
        if (x == schema_first_items(v->s, node))
            return solve_not_members(v, entry, kw, true, head);
        return x == schema_other_items(v->s, node) ? solve_not_items(v, entry, kw, head) : 0;
    case KW_properties:
        return neg ? solve_not_members(v, entry, kw, false, head) : solve_walk(v, head);
    case KW_patternProperties:
        return neg ? solve_not_patterns(v, entry, kw, head) : solve_walk(v, head);
    case KW_additionalProperties:
    case KW_propertyNames:
        if (neg && solve_says_true(v, kw))
            return 0;
        if (neg)
            LODE_TRY(solve_add_atom(v, entry,
                                    (struct atom){.op = ATOM_SOME_KEY,
                                                  .json = kw,
                                                  .lit = lit_schema(kw) | LIT_NOT,
                                                  .min = keyword_of(x, v->type) == KW_propertyNames
                                                             ? SOME_NAME
                                                             : SOME_OTHER}));
        else if (keyword_of(x, v->type) == KW_propertyNames)
            LODE_TRY(
                solve_add_atom(v, entry, (struct atom){.op = ATOM_KEYS, .lit = lit_schema(kw)}));
        return solve_walk(v, head);
    case KW_unevaluatedItems:
    case KW_unevaluatedProperties:
        if (neg)
            LODE_TRY(solve_refuse(v, entry, kw, "cannot be negated"));
        else
            LODE_TRY(solve_add_atom(
                v, entry, (struct atom){.op = ATOM_REST, .json = kw, .lit = lit_schema(kw)}));
        return solve_walk(v, head);
    case KW_none:
        break;
    }
    return neg ? 0 : solve_walk(v, head);
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
        return (x->type == LODE_JSON_TRUE) != neg ? solve_walk(v, head) : 0;
    const struct lode_json *ref = v->s->old ? lode_json_get(x, "$ref") : NULL;
    if (ref)
        return do_keyword(v, entry, json_index(v->s, ref), head);
    if (!neg && v->type == TYPE_OBJECT &&
        has_any(v, node, "properties", "patternProperties", "additionalProperties"))
        LODE_TRY(solve_add_atom(v, entry, (struct atom){.op = ATOM_MEMBERS, .json = node}));
    if (!neg && v->type == TYPE_ARRAY && has_any(v, node, "prefixItems", "items", NULL))
        LODE_TRY(solve_add_atom(v, entry, (struct atom){.op = ATOM_ITEMS, .json = node}));
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
    return solve_walk(v, head);
}

int solve_walk(struct solver *v, uint32_t head) {
    struct schema *s = v->s;
    if (s->walking > SOLVE_MAX_WALKING)
        return lode_fail(s->b->err, LODE_ERR_LIMIT, "schema",
                         "too many keywords apply to one value (more than %d on one way through "
                         "allOf, anyOf and $ref)",
                         SOLVE_MAX_WALKING);
    LODE_TRY(gb_work(s->b, 20));
    if (head == G_NONE)
        return shape_add(v);
    const struct task t = v->tasks.v[head];
    s->walking++;
    const int rc = t.keyword != G_NONE ? do_keyword(v, t.entry, t.keyword, t.next)
                   : v->entries.v[t.entry].lit & LIT_CONST ? solve_const(v, t.entry, t.next)
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
        rc = solve_add_lit(&v, lits.v[i], G_NONE, false, &head);
    rc = rc == 0 ? solve_walk(&v, head) : rc;
    GVEC_FREE(&lits);
    GVEC_FREE(&v.entries);
    GVEC_FREE(&v.tasks);
    GVEC_FREE(&v.atoms);
    return rc;
}
