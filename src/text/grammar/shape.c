/* shape.c - one alternative of solve.c, a list of atoms, to a string, a number, or the shape of an
 * array or object; and what it leads to: the nodes of items and members. */
#include "text/grammar/literal.h"

#include "base/utf8.h"
#include "text/grammar/pattern.h"

#include <stdlib.h>

static int nomem(struct solver *v) { return gb_nomem(v->s->b); }

/* ---- strings ---- */

int schema_pattern_dfa(struct schema *s, uint32_t json, struct lode_str text,
                       const struct dfa **out) {
    for (size_t i = 0; i < s->patterns.n; i++)
        if (s->patterns.v[i].json == json) {
            *out = &s->patterns.v[i].dfa;
            return 0;
        }
    struct schema_pattern p = {.json = json};
    const char *before = schema_at(s, json);
    const int rc = pattern_compile(s->b, text, true, &p.dfa);
    s->b->where = before;
    LODE_TRY(rc);
    if (!GVEC_PUSH(&s->patterns, p))
        return gb_nomem(s->b);
    *out = &s->patterns.v[s->patterns.n - 1].dfa; /* until the next call */
    return 0;
}

/* The strings of "enum", or one of "const". */
static int words_dfa(struct schema *s, uint32_t json, struct dfa *out) {
    const struct lode_json *x = &s->top[json], *m;
    GVEC(struct lode_str) words = {0};
    bool ok = true;
    if (x->type == LODE_JSON_STRING)
        ok = GVEC_PUSH(&words, lode_json_str(x));
    for (m = lode_json_first(x); m && ok; m = lode_json_next(x, m))
        if (m->type == LODE_JSON_STRING)
            ok = GVEC_PUSH(&words, lode_json_str(m));
    const int rc = ok ? dfa_words(s->b, words.v, words.n, out) : gb_nomem(s->b);
    GVEC_FREE(&words);
    return rc;
}

/* What one alternative allows, as an automaton and bounds of length.  formats: those that are known
 * count too. */
static int string_of(struct solver *v, bool formats, struct g_str *out, bool *formatted) {
    struct schema *s = v->s;
    struct g_str r = {dfa_all, 0, G_MANY, false};
    bool plain = true;
    *formatted = false;
    for (size_t i = 0; i < v->atoms.n; i++) {
        const struct atom *a = &v->atoms.v[i];
        const struct dfa *d;
        struct dfa made, made2;
        if (a->op == ATOM_LENGTH) {
            r.min = a->min > r.min ? a->min : r.min;
            r.max = a->max < r.max ? a->max : r.max;
            continue;
        }
        if (a->op == ATOM_PATTERN) {
            LODE_TRY(schema_pattern_dfa(s, a->json, lode_json_str(&s->top[a->json]), &d));
            made = *d;
        } else if (a->op == ATOM_WORDS) {
            LODE_TRY(words_dfa(s, a->json, &made));
        } else if (a->op == ATOM_FORMAT && formats &&
                   format_pattern(lode_json_str(&s->top[a->json]))) {
            const char *text = format_pattern(lode_json_str(&s->top[a->json]));
            *formatted = true;
            LODE_TRY(pattern_compile(s->b, lode_str(text), false, &made));
        } else {
            continue;
        }
        if (plain && !a->neg)
            r.dfa = made;
        else {
            LODE_TRY(dfa_product(s->b, &r.dfa, &made, a->neg ? DFA_MINUS : DFA_AND, &made2));
            r.dfa = made2;
        }
        plain = false;
    }
    if (r.min > r.max)
        r.dfa = (struct dfa){0};
    const bool bounded = r.min > 0 || r.max != G_MANY;
    if (bounded && !plain && r.dfa.n) { /* with a pattern, lengths become part of the automaton */
        struct dfa made;
        LODE_TRY(dfa_bound(s->b, &r.dfa, r.min, r.max, &made));
        r.dfa = made;
    }
    r.counted = bounded && plain && r.dfa.n;
    if (!r.counted) {
        r.min = 0;
        r.max = G_MANY;
    }
    *out = r;
    return 0;
}

/* Adds one more way of being a good string: all ways are one automaton. */
static int join_string(struct schema *s, struct g_str *have, const struct g_str *more) {
    struct g_str x = *have, y = *more;
    struct dfa made;
    if (!y.dfa.n)
        return 0;
    if (!x.dfa.n) {
        *have = y;
        return 0;
    }
    if (x.counted) {
        LODE_TRY(dfa_bound(s->b, &x.dfa, x.min, x.max, &made));
        x = (struct g_str){made, 0, G_MANY, false};
    }
    if (y.counted) {
        LODE_TRY(dfa_bound(s->b, &y.dfa, y.min, y.max, &made));
        y.dfa = made;
    }
    LODE_TRY(dfa_product(s->b, &x.dfa, &y.dfa, DFA_OR, &made));
    x.dfa = made;
    *have = x;
    return 0;
}

static int add_string(struct solver *v) {
    struct node_parts *p = v->s->nodes.v[v->node];
    struct g_str free_form, written;
    bool formatted;
    LODE_TRY(string_of(v, false, &free_form, &formatted));
    if (!free_form.dfa.n)
        return 0;
    LODE_TRY(string_of(v, true, &written, &formatted));
    if (!written.dfa.n) /* a format that contradicts the rest is only an annotation after all */
        written = free_form;
    if (!p->strs.n) {
        if (!GVEC_PUSH(&p->strs, written) || !GVEC_PUSH(&p->strs_free, free_form))
            return nomem(v);
        return 0;
    }
    struct g_str a = p->strs.v[0], c = p->strs_free.v[0];
    LODE_TRY(join_string(v->s, &a, &written));
    LODE_TRY(join_string(v->s, &c, &free_form));
    p->strs.v[0] = a;
    p->strs_free.v[0] = c;
    return 0;
}

int shape_strings(struct schema *s, uint32_t node, struct dfa *out) {
    LODE_TRY(schema_build_node(s, node));
    const struct node_parts *p = s->nodes.v[node];
    *out = (struct dfa){0};
    if (!p->strs_free.n)
        return 0;
    if (!p->strs_free.v[0].counted) {
        *out = p->strs_free.v[0].dfa;
        return 0;
    }
    return dfa_bound(s->b, &p->strs_free.v[0].dfa, p->strs_free.v[0].min, p->strs_free.v[0].max,
                     out);
}

/* ---- numbers ---- */

static int add_number(struct solver *v) {
    struct node_parts *p = v->s->nodes.v[v->node];
    struct number_cond *conds = lode_arena_alloc(v->s->b->arena, v->atoms.n + 1, sizeof *conds);
    struct dfa spellings;
    uint32_t n = 0;
    if (!conds)
        return nomem(v);
    for (size_t i = 0; i < v->atoms.n; i++)
        if (v->atoms.v[i].op == ATOM_COND)
            conds[n++] = v->atoms.v[i].cond;
    const char *before = schema_at(v->s, lit_node(v->entries.n ? v->entries.v[0].lit : 0));
    const int rc = number_dfa(v->s->b, conds, n, &spellings);
    v->s->b->where = before;
    LODE_TRY(rc);
    if (!spellings.n) /* no spelling: no value */
        return 0;
    return GVEC_PUSH(&p->conds, ((struct g_conds){conds, n})) ? 0 : nomem(v);
}

/* ---- what items and members must be ---- */

struct lits {
    g_lit *v;
    size_t n, cap;
};

static bool add(struct lits *l, g_lit x) { return GVEC_PUSH(l, x); }

static int child(struct solver *v, struct lits *l, uint32_t *out) {
    LODE_TRY(schema_node(v->s, l->v, l->n, out));
    struct node_parts *p = v->s->nodes.v[v->node];
    return GVEC_PUSH(&p->children, *out) ? 0 : nomem(v);
}

/* Whether atom a's annotations reach the schema of entry `scope`. */
static bool serves(const struct solver *v, const struct atom *a, uint32_t scope) {
    uint32_t e = a->entry;
    while (e != scope && e != G_NONE && !v->entries.v[e].apart)
        e = v->entries.v[e].parent;
    return e == scope;
}

static const struct lode_json *schema_member(const struct solver *v, const struct atom *a,
                                             const char *key) {
    return json_member(v->s, a->json, key);
}

/* ---- arrays ---- */

static uint32_t n_prefix_of(const struct solver *v, const struct atom *a) {
    return lode_json_count(schema_member(v, a, "prefixItems"));
}

/* Item i is evaluated by some atom below the schema of `rest`. */
static bool item_evaluated(const struct solver *v, const struct atom *rest, uint32_t i) {
    for (size_t k = 0; k < v->atoms.n; k++) {
        const struct atom *a = &v->atoms.v[k];
        if (a == rest || !serves(v, a, rest->entry))
            continue;
        if (a->op == ATOM_REST ||
            (a->op == ATOM_ITEMS && (i < n_prefix_of(v, a) || schema_member(v, a, "items"))))
            return true;
    }
    return false;
}

static bool item_lits(struct solver *v, uint32_t i, struct lits *l) {
    bool ok = true;
    l->n = 0;
    for (size_t k = 0; k < v->atoms.n && ok; k++) {
        const struct atom *a = &v->atoms.v[k];
        if (a->op == ATOM_ITEM && a->min == i) {
            ok = add(l, a->lit);
        } else if (a->op == ATOM_ITEMS) {
            const struct lode_json *m = i < n_prefix_of(v, a)
                                            ? lode_json_at(schema_member(v, a, "prefixItems"), i)
                                            : schema_member(v, a, "items");
            ok = !m || add(l, lit_schema(json_index(v->s, m)));
        } else if (a->op == ATOM_REST && !item_evaluated(v, a, i)) {
            ok = add(l, a->lit);
        }
    }
    return ok;
}

static int add_array(struct solver *v) {
    struct node_parts *p = v->s->nodes.v[v->node];
    struct g_arr *r = LODE_ARENA_NEW(v->s->b->arena, struct g_arr);
    const struct atom *contains = NULL, *unique = NULL;
    struct lits l = {0};
    int rc = 0;
    if (!r)
        return nomem(v);
    r->max = r->most = G_MANY;
    for (size_t i = 0; i < v->atoms.n; i++) {
        const struct atom *a = &v->atoms.v[i];
        uint32_t prefix = 0;
        if (a->op == ATOM_COUNT) {
            r->min = a->min > r->min ? a->min : r->min;
            r->max = a->max < r->max ? a->max : r->max;
        } else if (a->op == ATOM_ITEM) {
            prefix = a->min + 1;
        } else if (a->op == ATOM_ITEMS) {
            prefix = n_prefix_of(v, a);
        } else if (a->op == ATOM_UNIQUE) {
            unique = a;
        } else if (a->op == ATOM_CONTAINS && (a->min > 0 || a->max != G_MANY)) {
            if (contains && (contains->lit != a->lit))
                return schema_fail(v->s, LODE_ERR_UNSUPPORTED, a->json,
                                   "a second contains for the same array cannot be enforced");
            contains = a;
            r->least = a->min > r->least ? a->min : r->least;
            r->most = a->max < r->most ? a->max : r->most;
        }
        r->n_prefix = prefix > r->n_prefix ? prefix : r->n_prefix;
    }
    for (size_t i = 0; i < v->atoms.n; i++) { /* contains evaluates the items that it finds */
        if (v->atoms.v[i].op != ATOM_REST)
            continue;
        for (size_t k = 0; k < v->atoms.n; k++)
            if (v->atoms.v[k].op == ATOM_CONTAINS && serves(v, &v->atoms.v[k], v->atoms.v[i].entry))
                return schema_fail(v->s, LODE_ERR_UNSUPPORTED, v->atoms.v[i].json,
                                   "unevaluatedItems together with contains cannot be enforced");
    }
    if (r->min > r->max || r->least > r->most)
        return 0;
    if (r->max != G_MANY && r->n_prefix > r->max)
        r->n_prefix = r->max;
    if (unique && r->max > 1)
        return schema_fail(v->s, LODE_ERR_UNSUPPORTED, unique->json,
                           "uniqueItems cannot be enforced by a grammar for arrays of more than "
                           "one item: all items so far would have to be remembered (leave it out, "
                           "or use an object with the items as keys)");
    r->contains = contains != NULL;
    r->items = LODE_ARENA_ARRAY(v->s->b->arena, uint32_t, 2 * ((size_t)r->n_prefix + 1));
    rc = r->items ? gb_work(v->s->b, 10 * (uint64_t)r->n_prefix * (v->atoms.n + 1)) : nomem(v);
    for (uint32_t i = 0; i <= r->n_prefix && rc == 0; i++) {
        r->items[2 * i + 1] = G_NONE;
        if (!item_lits(v, i, &l))
            rc = nomem(v);
        /* where the number of those that count is bounded above, the others must not count */
        if (rc == 0 && contains && r->most != G_MANY && !add(&l, contains->lit ^ LIT_NOT))
            rc = nomem(v);
        rc = rc == 0 ? child(v, &l, &r->items[2 * i]) : rc;
        if (rc < 0 || !contains)
            continue;
        if (!item_lits(v, i, &l) || !add(&l, contains->lit))
            rc = nomem(v);
        else
            rc = child(v, &l, &r->items[2 * i + 1]);
    }
    GVEC_FREE(&l);
    LODE_TRY(rc);
    return GVEC_PUSH(&p->arrs, r) ? 0 : nomem(v);
}

/* ---- objects ---- */

/* The object under construction. */
struct object {
    struct solver *v;
    struct g_obj *o;
    GVEC(struct lode_str) names; /* sorted, each once */
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

static bool collect_names(struct object *x) {
    struct solver *v = x->v;
    const struct lode_json *m;
    bool ok = true;
    for (size_t i = 0; i < v->atoms.n && ok; i++) {
        const struct atom *a = &v->atoms.v[i];
        const struct lode_json *map = a->op == ATOM_MEMBERS ? schema_member(v, a, "properties")
                                      : a->op == ATOM_ONLY  ? &v->s->top[a->json]
                                                            : NULL;
        if (a->op == ATOM_MEMBER || a->op == ATOM_REQUIRED || a->op == ATOM_FORBID)
            ok = GVEC_PUSH(&x->names, a->key);
        for (m = lode_json_first(map); m && ok; m = lode_json_next(map, m))
            ok = GVEC_PUSH(&x->names, ((struct lode_str){m->key, m->key_len}));
    }
    if (!ok || !x->names.n)
        return ok;
    qsort(x->names.v, x->names.n, sizeof *x->names.v, by_bytes);
    size_t n = 0;
    for (size_t i = 0; i < x->names.n; i++)
        if (n == 0 || !lode_str_eq(x->names.v[n - 1], x->names.v[i]))
            x->names.v[n++] = x->names.v[i];
    x->names.n = n;
    return true;
}

enum { MAX_PATTERNS = 24 };

static int collect_patterns(struct object *x) {
    struct solver *v = x->v;
    for (size_t i = 0; i < v->atoms.n; i++) {
        const struct atom *a = &v->atoms.v[i];
        const struct lode_json *map =
            a->op == ATOM_MEMBERS ? schema_member(v, a, "patternProperties") : NULL;
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
                return nomem(v);
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
    const struct lode_json *props = schema_member(v, a, "properties");
    const struct lode_json *patterns = schema_member(v, a, "patternProperties");
    const struct lode_json *rest = schema_member(v, a, "additionalProperties");
    const struct lode_json *m = props && key ? lode_json_getn(props, *key) : NULL;
    bool ok = true, any = m != NULL;
    if (m)
        ok = add(&x->lits, lit_schema(json_index(v->s, m)));
    for (m = lode_json_first(patterns); m && ok; m = lode_json_next(patterns, m))
        for (size_t i = 0; i < x->patterns.n && ok; i++)
            if (x->patterns.v[i].json == json_index(v->s, m) && mask >> i & 1) {
                any = true;
                ok = add(&x->lits, lit_schema(json_index(v->s, m)));
            }
    if (ok && !any && rest) {
        any = true;
        ok = add(&x->lits, lit_schema(json_index(v->s, rest)));
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
            ok = add(&x->lits, a->lit);
        } else if (a->op == ATOM_FORBID && this_key) {
            *forbidden = true;
        } else if (a->op == ATOM_ONLY) {
            *forbidden = *forbidden || !key || !lode_json_getn(&v->s->top[a->json], *key);
        } else if (a->op == ATOM_REST) {
            bool evaluated = false;
            for (size_t k = 0; k < v->atoms.n && ok; k++) {
                const struct atom *other = &v->atoms.v[k];
                if (other == a || !serves(v, other, a->entry))
                    continue;
                const size_t n = x->lits.n;
                if (other->op == ATOM_MEMBERS) {
                    ok = member_lits(x, other, key, mask, &found);
                    evaluated = evaluated || found;
                }
                x->lits.n = n;
                evaluated = evaluated || other->op == ATOM_REST;
            }
            ok = ok && (evaluated || add(&x->lits, a->lit));
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
        return nomem(v);
    for (size_t k = 0; k < v->atoms.n; k++)
        c.required = c.required ||
                     (v->atoms.v[k].op == ATOM_REQUIRED && lode_str_eq(v->atoms.v[k].key, key));
    *impossible = *impossible || (forbidden && c.required);
    LODE_TRY(child(v, &x->lits, &c.node));
    if (forbidden)
        c.node = G_NONE;
    x->o->n_required += c.required;
    return GVEC_PUSH(&x->classes, c) ? gb_work(v->s->b, 5 * v->atoms.n) : nomem(v);
}

/* The class of keys without a name for which these patterns match; G_NONE: forbidden. */
static int open_class(struct object *x, uint32_t mask, uint32_t *out) {
    struct solver *v = x->v;
    struct g_class c = {.name = G_NONE};
    bool fresh, forbidden;
    const uint32_t i = gintern_put(&x->masks, &mask, 1, &fresh);
    if (i == UINT32_MAX)
        return nomem(v);
    *out = (uint32_t)x->names.n + i;
    if (fresh) {
        if (!key_lits(x, NULL, mask, &forbidden))
            return nomem(v);
        LODE_TRY(child(v, &x->lits, &c.node));
        c.node = forbidden ? G_NONE : c.node;
        if (!GVEC_PUSH(&x->classes, c))
            return nomem(v);
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
        rc = all && o->open ? 0 : gb_nomem(b);
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
        if (v->atoms.v[i].op == ATOM_KEYS && !add(&x->lits, v->atoms.v[i].lit))
            return nomem(v);
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
    if (!collect_names(x))
        return nomem(v);
    LODE_TRY(collect_patterns(x));
    for (uint32_t i = 0; i < x->names.n; i++)
        LODE_TRY(add_name_class(x, i, impossible));
    if (*impossible || o->n_required > o->max)
        return 0;
    LODE_TRY(build_keys(x));
    o->n_names = (uint32_t)x->names.n;
    o->n_classes = (uint32_t)x->classes.n;
    o->classes = lode_arena_alloc(v->s->b->arena, x->classes.n + 1, sizeof *o->classes);
    o->dead = LODE_ARENA_ARRAY(v->s->b->arena, uint32_t, 2 * (x->names.n + 1));
    if (!o->classes || !o->dead)
        return nomem(v);
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

static int add_object(struct solver *v) {
    struct node_parts *p = v->s->nodes.v[v->node];
    struct object x = {.v = v, .o = LODE_ARENA_NEW(v->s->b->arena, struct g_obj)};
    bool impossible = false;
    if (!x.o)
        return nomem(v);
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
    return GVEC_PUSH(&p->objs, x.o) ? 0 : nomem(v);
}

/* ---- */

int shape_add(struct solver *v) {
    struct node_parts *p = v->s->nodes.v[v->node];
    for (size_t i = 0; i < v->atoms.n; i++)
        if (v->atoms.v[i].op == ATOM_REFUSED)
            return schema_fail(v->s, LODE_ERR_UNSUPPORTED, v->atoms.v[i].json, "%s",
                               v->atoms.v[i].text);
    switch (v->type) {
    case TYPE_NULL:
        p->literals |= 1 << G_NULL;
        return 0;
    case TYPE_TRUE:
        p->literals |= 1 << G_TRUE;
        return 0;
    case TYPE_FALSE:
        p->literals |= 1 << G_FALSE;
        return 0;
    case TYPE_NUMBER:
        return add_number(v);
    case TYPE_STRING:
        return add_string(v);
    case TYPE_ARRAY:
        return add_array(v);
    case TYPE_OBJECT:
        return add_object(v);
    }
    return 0;
}
