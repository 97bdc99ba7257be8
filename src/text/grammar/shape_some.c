/* shape_some.c - objects in which some key must break a rule of keys: what "not" leaves of
 * additionalProperties, patternProperties and propertyNames.
 *
 * Where no keys but named ones can be, "some key" is one of them, so the alternative falls into one
 * for each name.  Where any key can be, the object would have to remember whether one of them did.
 */
#include "text/grammar/shape.h"

#include <stdlib.h>

/* No keys can be but those that the document names somewhere. */
static bool is_closed(const struct solver *v) {
    for (size_t i = 0; i < v->atoms.n; i++) {
        const struct atom *a = &v->atoms.v[i];
        if (a->op == ATOM_ONLY)
            return true;
        if (a->op == ATOM_MEMBERS && !shape_member(v, a, "patternProperties") &&
            lode_json_is(shape_member(v, a, "additionalProperties"), LODE_JSON_FALSE))
            return true;
    }
    return false;
}

static int matches(struct solver *v, const struct lode_json *m, struct lode_str name, bool *out) {
    const struct dfa *d;
    LODE_TRY(
        schema_pattern_dfa(v->s, json_index(v->s, m), (struct lode_str){m->key, m->key_len}, &d));
    *out = dfa_accepts(d, name);
    return 0;
}

/* Whether the rule speaks about a key of this name: then its value, or its being there, breaks it.
 * good: the names that propertyNames allows. */
static int speaks(struct solver *v, const struct atom *a, const struct dfa *good,
                  struct lode_str name, bool *out) {
    const struct lode_json *keyword = &v->s->top[a->json], *m;
    const uint32_t schema = shape_rule_of(v, a);
    if (a->min == SOME_NAME) {
        *out = !good->n || !dfa_accepts(good, name);
        return 0;
    }
    if (a->min == SOME_MATCH)
        return matches(v, keyword, name, out);
    const struct lode_json *patterns = json_member(v->s, schema, "patternProperties");
    bool known = lode_json_is(json_member(v->s, schema, "properties"), LODE_JSON_OBJECT) &&
                 lode_json_getn(json_member(v->s, schema, "properties"), name);
    for (m = lode_json_first(patterns); m && !known; m = lode_json_next(patterns, m))
        LODE_TRY(matches(v, m, name, &known));
    *out = !known;
    return 0;
}

/* The alternative in which the key of this name breaks rule number i. */
static int add_alternative(struct solver *v, size_t i, const struct atom *a, const struct dfa *good,
                           struct lode_str name) {
    const size_t n = v->atoms.n;
    bool about;
    LODE_TRY(gb_work(v->s->b, 10 * n));
    LODE_TRY(speaks(v, a, good, name, &about));
    if (!about)
        return 0;
    v->atoms.v[i] = (struct atom){.op = ATOM_REQUIRED, .entry = a->entry, .key = name};
    if (a->min != SOME_NAME &&
        !GVEC_PUSH(
            &v->atoms,
            ((struct atom){.op = ATOM_MEMBER, .entry = a->entry, .key = name, .lit = a->lit})))
        return shape_nomem(v);
    const int rc = shape_add_object(v);
    v->atoms.n = n;
    return rc;
}

/* The alternative in which a key without a name breaks rule number i: whatever its value is, or
 * there would be two kinds of values for one kind of keys; and of one rule only, or each would have
 * to be remembered. */
static int add_nameless(struct solver *v, size_t i) {
    struct atom *a = &v->atoms.v[i];
    bool can = a->min != SOME_NAME && v->s->top[a->json].type == LODE_JSON_FALSE;
    for (size_t k = 0; k < v->atoms.n; k++)
        can = can && (v->atoms.v[k].op != ATOM_SOME_KEY || !v->atoms.v[k].max);
    if (!can)
        return schema_fail(
            v->s, LODE_ERR_UNSUPPORTED, a->json,
            "cannot be negated where any key may be: that \"some key\" breaks it would "
            "have to be remembered (it stands below not, if or oneOf, or beside an "
            "overlapping branch, and the other branch has no additionalProperties: "
            "false)");
    a->max = 1;
    return shape_add_object(v);
}

int shape_add_some(struct solver *v, size_t i) {
    const struct atom a = v->atoms.v[i];
    struct shape_names names = {0};
    struct dfa good = {0};
    int rc = 0;
    if (a.min == SOME_NAME) {
        g_lit lit[1] = {lit_schema(a.json)};
        uint32_t node;
        LODE_TRY(schema_node(v->s, lit, 1, &node));
        LODE_TRY(shape_strings(v->s, node, &good));
    }
    if (!shape_collect_names(v, &names))
        rc = shape_nomem(v);
    for (size_t k = 0; k < names.n && rc == 0; k++)
        rc = add_alternative(v, i, &a, &good, names.v[k]);
    v->atoms.v[i] = a;
    if (rc == 0 && !is_closed(v))
        rc = add_nameless(v, i);
    v->atoms.v[i] = a;
    GVEC_FREE(&names);
    return rc;
}
