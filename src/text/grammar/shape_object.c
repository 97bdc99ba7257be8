/* shape_object.c - the shape of an object: its names, patterns, and one automaton that reads every
 * key and says what its value must be. */
#include "text/grammar/shape.h"

#include "base/utf8.h"

#include <stdlib.h>

/* The object under construction. */
struct object {
    struct solver *v;
    struct g_obj *o;
    struct shape_names names;
    bool some; /* an ATOM_SOME_KEY is met by a key without a name */
    GVEC(struct schema_pattern)
    patterns;           /* of all patternProperties, each once; json: the member */
    struct dfa allowed; /* propertyNames */
    GVEC(struct g_class) classes;
    struct lits lits;
    struct gintern masks; /* open classes: which patterns match; class n_names + index */
};

static int by_bytes(const void *a, const void *b) {
    const struct lode_str *x = a, *y = b;
    const size_t n = x->len < y->len ? x->len : y->len;
    const int c = n ? memcmp(x->data, y->data, n) : 0;
    return c ? c : (x->len > y->len) - (x->len < y->len);
}

bool shape_collect_names(const struct solver *v, struct shape_names *names) {
    const struct lode_json *m;
    bool ok = true;
    for (size_t i = 0; i < v->atoms.n && ok; i++) {
        const struct atom *a = &v->atoms.v[i];
        const struct lode_json *map = a->op == ATOM_MEMBERS ? shape_member(v, a, "properties")
                                      : a->op == ATOM_ONLY  ? &v->s->top[a->json]
                                                            : NULL;
        if (a->op == ATOM_MEMBER || a->op == ATOM_REQUIRED || a->op == ATOM_FORBID)
            ok = GVEC_PUSH(names, a->key);
        if (a->op == ATOM_SOME_KEY && a->min == SOME_OTHER)
            map = json_member(v->s, shape_rule_of(v, a), "properties");
        for (m = lode_json_first(map); m && ok; m = lode_json_next(map, m))
            ok = GVEC_PUSH(names, ((struct lode_str){m->key, m->key_len}));
    }
    if (!ok || !names->n)
        return ok;
    qsort(names->v, names->n, sizeof *names->v, by_bytes);
    size_t n = 0;
    for (size_t i = 0; i < names->n; i++)
        if (n == 0 || !lode_str_eq(names->v[n - 1], names->v[i]))
            names->v[n++] = names->v[i];
    names->n = n;
    return true;
}

enum { MAX_PATTERNS = 24 };

static int collect_patterns(struct object *x) {
    struct solver *v = x->v;
    for (size_t i = 0; i < v->atoms.n; i++) {
        const struct atom *a = &v->atoms.v[i];
        const struct lode_json *map = NULL;
        if (a->op == ATOM_MEMBERS)
            map = shape_member(v, a, "patternProperties");
        else if (a->op == ATOM_SOME_KEY)
            map = json_member(v->s, shape_rule_of(v, a), "patternProperties");
        const struct lode_json *m = lode_json_first(map);
        for (; m; m = lode_json_next(map, m)) {
            const struct dfa *d;
            const uint32_t at = json_index(v->s, m);
            bool known = false;
            for (size_t k = 0; k < x->patterns.n; k++)
                known = known || x->patterns.v[k].json == at;
            if (known)
                continue;
            if (x->patterns.n == MAX_PATTERNS)
                return schema_fail(v->s, LODE_ERR_LIMIT, at,
                                   "more than %d patternProperties apply to one object",
                                   MAX_PATTERNS);
            LODE_TRY(schema_pattern_dfa(v->s, at, (struct lode_str){m->key, m->key_len}, &d));
            if (!GVEC_PUSH(&x->patterns, ((struct schema_pattern){at, *d})))
                return shape_nomem(v);
        }
    }
    return 0;
}

static uint32_t matches_of(const struct object *x, struct lode_str key) {
    uint32_t mask = 0;
    for (size_t i = 0; i < x->patterns.n; i++)
        mask |= (uint32_t)dfa_accepts(&x->patterns.v[i].dfa, key) << i;
    return mask;
}

/* The schemas that this "properties" and its kin hold ready for a key; *found: there is one. */
static bool member_lits(struct object *x, const struct atom *a, const struct lode_str *key,
                        uint32_t mask, bool *found) {
    struct solver *v = x->v;
    const struct lode_json *props = shape_member(v, a, "properties");
    const struct lode_json *patterns = shape_member(v, a, "patternProperties");
    const struct lode_json *rest = shape_member(v, a, "additionalProperties");
    const struct lode_json *m = props && key ? lode_json_getn(props, *key) : NULL;
    bool ok = true, any = m != NULL;
    if (m)
        ok = lits_add(&x->lits, lit_schema(json_index(v->s, m)));
    for (m = lode_json_first(patterns); m && ok; m = lode_json_next(patterns, m))
        for (size_t i = 0; i < x->patterns.n && ok; i++)
            if (x->patterns.v[i].json == json_index(v->s, m) && mask >> i & 1) {
                any = true;
                ok = lits_add(&x->lits, lit_schema(json_index(v->s, m)));
            }
    if (ok && !any && rest) {
        any = true;
        ok = lits_add(&x->lits, lit_schema(json_index(v->s, rest)));
    }
    *found = any;
    return ok;
}

/* Sets x->lits to all that holds for the value of a key: a named one, or (NULL) any other for which
 * these patterns match.  *forbidden: there must be no such key. */
static bool key_lits(struct object *x, const struct lode_str *key, uint32_t mask, bool *forbidden) {
    struct solver *v = x->v;
    bool ok = true, found;
    x->lits.n = 0;
    *forbidden = key && !dfa_accepts(&x->allowed, *key);
    for (size_t i = 0; i < v->atoms.n && ok; i++) {
        const struct atom *a = &v->atoms.v[i];
        const bool this_key = key && a->key.data && lode_str_eq(a->key, *key);
        if (a->op == ATOM_MEMBERS) {
            ok = member_lits(x, a, key, mask, &found);
        } else if (a->op == ATOM_MEMBER && this_key) {
            ok = lits_add(&x->lits, a->lit);
        } else if (a->op == ATOM_FORBID && this_key) {
            *forbidden = true;
        } else if (a->op == ATOM_ONLY) {
            *forbidden = *forbidden || !key || !lode_json_getn(&v->s->top[a->json], *key);
        } else if (a->op == ATOM_REST) {
            bool evaluated = false;
            for (size_t k = 0; k < v->atoms.n && ok; k++) {
                const struct atom *other = &v->atoms.v[k];
                if (other == a || !shape_serves(v, other, a->entry))
                    continue;
                const size_t n = x->lits.n;
                if (other->op == ATOM_MEMBERS) {
                    ok = member_lits(x, other, key, mask, &found);
                    evaluated = evaluated || found;
                }
                x->lits.n = n;
                evaluated = evaluated || other->op == ATOM_REST;
            }
            ok = ok && (evaluated || lits_add(&x->lits, a->lit));
        }
    }
    return ok;
}

/* Says "required" of a name, and whether it must not be. */
static int add_name_class(struct object *x, uint32_t i, bool *impossible) {
    struct solver *v = x->v;
    const struct lode_str key = x->names.v[i];
    struct g_class c = {.name = i};
    bool forbidden;
    if (!key_lits(x, &key, matches_of(x, key), &forbidden))
        return shape_nomem(v);
    for (size_t k = 0; k < v->atoms.n; k++)
        c.required = c.required ||
                     (v->atoms.v[k].op == ATOM_REQUIRED && lode_str_eq(v->atoms.v[k].key, key));
    *impossible = *impossible || (forbidden && c.required);
    LODE_TRY(shape_child(v, &x->lits, &c.node));
    if (forbidden)
        c.node = G_NONE;
    x->o->n_required += c.required;
    return GVEC_PUSH(&x->classes, c) ? gb_work(v->s->b, 5 * v->atoms.n) : shape_nomem(v);
}

/* Whether keys for which these patterns match are such as must be there once. */
static bool is_wanted(const struct object *x, uint32_t mask) {
    const struct solver *v = x->v;
    const struct lode_json *map, *m;
    for (size_t i = 0; i < v->atoms.n; i++) {
        const struct atom *a = &v->atoms.v[i];
        if (a->op != ATOM_SOME_KEY)
            continue;
        map = json_member(v->s, shape_rule_of(v, a), "patternProperties");
        for (m = lode_json_first(map); m; m = lode_json_next(map, m))
            for (size_t k = 0; k < x->patterns.n; k++)
                if (x->patterns.v[k].json == json_index(v->s, m) && mask >> k & 1 &&
                    (a->min == SOME_OTHER || a->json == json_index(v->s, m)))
                    return a->min == SOME_MATCH;
        return a->min == SOME_OTHER;
    }
    return false;
}

/* The class of keys without a name for which these patterns match; G_NONE: forbidden. */
static int open_class(struct object *x, uint32_t mask, uint32_t *out) {
    struct solver *v = x->v;
    struct g_class c = {.name = G_NONE};
    bool fresh, forbidden;
    const uint32_t i = gintern_put(&x->masks, &mask, 1, &fresh);
    if (i == UINT32_MAX)
        return shape_nomem(v);
    *out = (uint32_t)x->names.n + i;
    if (fresh) {
        if (!key_lits(x, NULL, mask, &forbidden))
            return shape_nomem(v);
        LODE_TRY(shape_child(v, &x->lits, &c.node));
        c.node = forbidden ? G_NONE : c.node;
        c.required = is_wanted(x, mask);
        if (!GVEC_PUSH(&x->classes, c))
            return shape_nomem(v);
    }
    *out = x->classes.v[*out].node == G_NONE ? G_NONE : *out;
    return 0;
}

/* A state of the automaton of keys: where all automata of patterns stand, and which names begin
 * like this: names [low, high) agree in their first `at` bytes (none: low == high). */
enum { K_LOW, K_HIGH, K_AT, K_ALLOWED, K_PATTERNS };

/* The names among [low, high) that go on with cp. */
static void narrow(const struct object *x, uint32_t *t, uint32_t cp) {
    char utf8[4];
    const size_t n = lode_utf8_encode(cp, utf8);
    uint32_t i = t[K_LOW];
    while (i < t[K_HIGH] &&
           (x->names.v[i].len < t[K_AT] + n || memcmp(x->names.v[i].data + t[K_AT], utf8, n) != 0))
        i++;
    t[K_LOW] = i;
    while (i < t[K_HIGH] && x->names.v[i].len >= t[K_AT] + n &&
           !memcmp(x->names.v[i].data + t[K_AT], utf8, n))
        i++;
    t[K_HIGH] = i;
    t[K_AT] += (uint32_t)n;
    if (t[K_LOW] == t[K_HIGH])
        t[K_LOW] = t[K_HIGH] = t[K_AT] = 0;
}

/* Points where any of the automata, or the names, change. */
static bool state_points(const struct object *x, const uint32_t *t, gvec_u32 *points) {
    bool ok = GVEC_PUSH(points, 0) && GVEC_PUSH(points, 0xd800) && GVEC_PUSH(points, 0xe000);
    for (size_t k = 0; k <= x->patterns.n && ok; k++) {
        const struct dfa *d = k ? &x->patterns.v[k - 1].dfa : &x->allowed;
        const uint32_t q = t[K_ALLOWED + k];
        for (uint32_t i = q == DFA_NONE ? 0 : d->first[q];
             q != DFA_NONE && i < d->first[q + 1] && ok; i++)
            ok = GVEC_PUSH(points, d->ranges[i].lo) && GVEC_PUSH(points, d->ranges[i].hi + 1);
    }
    for (uint32_t i = t[K_LOW]; i < t[K_HIGH] && ok; i++) {
        uint32_t cp;
        if (x->names.v[i].len > t[K_AT] &&
            lode_utf8_decode(x->names.v[i].data + t[K_AT], x->names.v[i].len - t[K_AT], &cp))
            ok = GVEC_PUSH(points, cp) && GVEC_PUSH(points, cp + 1);
    }
    return ok;
}

static int by_value(const void *a, const void *b) {
    const uint32_t p = *(const uint32_t *)a, q = *(const uint32_t *)b;
    return (p > q) - (p < q);
}

struct key_states {
    struct gintern seen;
    struct dfa_maker m;
    gvec_u32 label, points;
};

/* The class of the key that ends in this state. */
static int label_of(struct object *x, const uint32_t *t, uint32_t *label) {
    uint32_t mask = 0;
    *label = G_NONE;
    if (!x->allowed.accept[t[K_ALLOWED]])
        return 0;
    if (t[K_LOW] < t[K_HIGH] && x->names.v[t[K_LOW]].len == t[K_AT]) {
        *label = x->classes.v[t[K_LOW]].node == G_NONE ? G_NONE : t[K_LOW];
        return 0;
    }
    for (uint32_t i = 0; i < x->patterns.n; i++) {
        const uint32_t q = t[K_PATTERNS + i];
        mask |= (uint32_t)(q != DFA_NONE && x->patterns.v[i].dfa.accept[q]) << i;
    }
    return open_class(x, mask, label);
}

static int key_state(struct object *x, struct key_states *k, uint32_t at) {
    struct gbuild *b = x->v->s->b;
    uint32_t t[K_PATTERNS + MAX_PATTERNS], to[K_PATTERNS + MAX_PATTERNS], label;
    const uint32_t n = K_PATTERNS + (uint32_t)x->patterns.n;
    memcpy(t, gintern_at(&k->seen, at, NULL), n * sizeof *t);
    k->points.n = 0;
    LODE_TRY(label_of(x, t, &label));
    if (!GVEC_PUSH(&k->label, label) || !dfa_maker_state(&k->m, label != G_NONE) ||
        !state_points(x, t, &k->points))
        return gb_nomem(b);
    LODE_TRY(gb_work(b, k->points.n * (n + 2)));
    qsort(k->points.v, k->points.n, sizeof *k->points.v, by_value);
    for (size_t i = 0; i < k->points.n; i++) {
        const uint32_t lo = k->points.v[i];
        const uint32_t hi = i + 1 < k->points.n ? k->points.v[i + 1] - 1 : 0x10ffff;
        if (lo == 0xd800 || lo > 0x10ffff || (i + 1 < k->points.n && k->points.v[i + 1] == lo))
            continue;
        memcpy(to, t, n * sizeof *to);
        to[K_ALLOWED] = dfa_next(&x->allowed, t[K_ALLOWED], lo);
        if (to[K_ALLOWED] == DFA_NONE)
            continue;
        for (uint32_t p = 0; p < x->patterns.n; p++)
            if (t[K_PATTERNS + p] != DFA_NONE)
                to[K_PATTERNS + p] = dfa_next(&x->patterns.v[p].dfa, t[K_PATTERNS + p], lo);
        narrow(x, to, lo);
        const uint32_t next = gintern_put(&k->seen, to, n, NULL);
        if (next == UINT32_MAX || !dfa_maker_range(&k->m, lo, hi, next))
            return gb_nomem(b);
    }
    return 0;
}

/* The automaton of keys, and what its states need at run time. */
static int build_keys(struct object *x) {
    struct gbuild *b = x->v->s->b;
    struct key_states k = {0};
    struct g_obj *o = x->o;
    uint32_t start[K_PATTERNS + MAX_PATTERNS] = {0};
    gvec_u32 kept = {0};
    int rc = 0;
    start[K_HIGH] = (uint32_t)x->names.n;
    for (size_t i = 0; i < x->patterns.n; i++)
        start[K_PATTERNS + i] = x->patterns.v[i].dfa.n ? 0 : DFA_NONE;
    if (!x->allowed.n)
        return 0;
    if (gintern_put(&k.seen, start, K_PATTERNS + (uint32_t)x->patterns.n, NULL) == UINT32_MAX)
        rc = gb_nomem(b);
    for (uint32_t i = 0; i < gintern_count(&k.seen) && rc == 0; i++)
        rc = key_state(x, &k, i);
    if (rc == 0)
        rc = dfa_maker_finish(b, &k.m, &o->keys, &kept);
    else
        dfa_maker_free(&k.m);
    if (rc == 0) {
        uint32_t *all = lode_arena_alloc(b->arena, 3 * (size_t)o->keys.n + 1, sizeof *all);
        o->open = lode_arena_alloc_zero(b->arena, 2 * (size_t)o->keys.n + 1, 1);
        o->finite = o->open ? o->open + o->keys.n : NULL;
        if (x->some)
            o->some = lode_arena_alloc_zero(b->arena, (size_t)o->keys.n + 1, 1);
        rc = all && o->open && !o->some == !x->some ? 0 : gb_nomem(b);
        for (uint32_t q = 0; q < o->keys.n && rc == 0; q++) {
            const uint32_t *t = gintern_at(&k.seen, kept.v[q], NULL);
            all[q] = k.label.v[kept.v[q]];
            all[o->keys.n + q] = t[K_LOW];
            all[2 * o->keys.n + q] = t[K_HIGH];
        }
        o->label = all;
        o->low = all ? all + o->keys.n : NULL;
        o->high = all ? all + 2 * o->keys.n : NULL;
    }
    gintern_free(&k.seen);
    GVEC_FREE(&k.label);
    GVEC_FREE(&k.points);
    GVEC_FREE(&kept);
    return rc;
}

/* What propertyNames leaves of all keys. */
static int allowed_keys(struct object *x) {
    struct solver *v = x->v;
    uint32_t node;
    x->lits.n = 0;
    for (size_t i = 0; i < v->atoms.n; i++)
        if (v->atoms.v[i].op == ATOM_KEYS && !lits_add(&x->lits, v->atoms.v[i].lit))
            return shape_nomem(v);
    x->allowed = dfa_all;
    if (!x->lits.n)
        return 0;
    LODE_TRY(schema_node(v->s, x->lits.v, x->lits.n, &node));
    return shape_strings(v->s, node, &x->allowed);
}

static int make_object(struct object *x, bool *impossible) {
    struct solver *v = x->v;
    struct g_obj *o = x->o;
    LODE_TRY(allowed_keys(x));
    if (!shape_collect_names(v, &x->names))
        return shape_nomem(v);
    LODE_TRY(collect_patterns(x));
    for (uint32_t i = 0; i < x->names.n; i++)
        LODE_TRY(add_name_class(x, i, impossible));
    o->n_required += x->some;
    if (*impossible || o->n_required > o->max)
        return 0;
    LODE_TRY(build_keys(x));
    o->n_names = (uint32_t)x->names.n;
    o->n_classes = (uint32_t)x->classes.n;
    o->classes = lode_arena_alloc(v->s->b->arena, x->classes.n + 1, sizeof *o->classes);
    o->dead = LODE_ARENA_ARRAY(v->s->b->arena, uint32_t, 2 * (x->names.n + 1));
    if (!o->classes || !o->dead)
        return shape_nomem(v);
    o->required = o->dead + x->names.n + 1;
    bool finite = false;
    if (o->min > o->n_names && x->classes.n > x->names.n)
        LODE_TRY(dfa_finite(v->s->b, &o->keys, &finite));
    if (finite)
        return schema_fail(v->s, LODE_ERR_UNSUPPORTED, lit_node(v->entries.v[0].lit),
                           "minProperties above the number of named keys, where patterns allow "
                           "only finitely many others, cannot be enforced");
    if (x->classes.n)
        memcpy(o->classes, x->classes.v, x->classes.n * sizeof *o->classes);
    return 0;
}

int shape_add_object(struct solver *v) {
    struct node_parts *p = v->s->nodes.v[v->node];
    struct object x = {.v = v, .o = LODE_ARENA_NEW(v->s->b->arena, struct g_obj)};
    bool impossible = false;
    for (size_t i = 0; i < v->atoms.n; i++)
        if (v->atoms.v[i].op == ATOM_SOME_KEY) {
            if (!v->atoms.v[i].max)
                return shape_add_some(v, i);
            x.some = true;
        }
    if (!x.o)
        return shape_nomem(v);
    x.o->max = G_MANY;
    for (size_t i = 0; i < v->atoms.n; i++) {
        const struct atom *a = &v->atoms.v[i];
        if (a->op != ATOM_COUNT)
            continue;
        x.o->min = a->min > x.o->min ? a->min : x.o->min;
        x.o->max = a->max < x.o->max ? a->max : x.o->max;
    }
    int rc = 0;
    if (x.o->min <= x.o->max)
        rc = make_object(&x, &impossible);
    else
        impossible = true;
    GVEC_FREE(&x.names);
    GVEC_FREE(&x.patterns);
    GVEC_FREE(&x.classes);
    GVEC_FREE(&x.lits);
    gintern_free(&x.masks);
    if (rc < 0 || impossible)
        return rc;
    return GVEC_PUSH(&p->objs, x.o) ? 0 : shape_nomem(v);
}
