/* shape.c - one alternative of solve.c, a list of atoms, to a string, a number, or the shape of an
 * array or object; and what it leads to: the nodes of items and members. */
#include "text/grammar/shape.h"

#include "text/grammar/pattern.h"

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
            return shape_nomem(v);
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
        return shape_nomem(v);
    for (size_t i = 0; i < v->atoms.n; i++)
        if (v->atoms.v[i].op == ATOM_COND)
            conds[n++] = v->atoms.v[i].cond;
    const char *before = schema_at(v->s, lit_node(v->entries.n ? v->entries.v[0].lit : 0));
    const int rc = number_dfa(v->s->b, conds, n, &spellings);
    v->s->b->where = before;
    LODE_TRY(rc);
    if (!spellings.n) /* no spelling: no value */
        return 0;
    return GVEC_PUSH(&p->conds, ((struct g_conds){conds, n})) ? 0 : shape_nomem(v);
}

/* ---- arrays ---- */

static uint32_t n_prefix_of(const struct solver *v, const struct atom *a) {
    return lode_json_count(schema_first_items(v->s, a->json));
}

/* Item i is evaluated by some atom below the schema of `rest`. */
static bool item_evaluated(const struct solver *v, const struct atom *rest, uint32_t i) {
    for (size_t k = 0; k < v->atoms.n; k++) {
        const struct atom *a = &v->atoms.v[k];
        if (a == rest || !shape_serves(v, a, rest->entry))
            continue;
        if (a->op == ATOM_REST ||
            (a->op == ATOM_ITEMS && (i < n_prefix_of(v, a) || schema_other_items(v->s, a->json))))
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
            ok = lits_add(l, a->lit);
        } else if (a->op == ATOM_ITEMS) {
            const struct lode_json *m = i < n_prefix_of(v, a)
                                            ? lode_json_at(schema_first_items(v->s, a->json), i)
                                            : schema_other_items(v->s, a->json);
            ok = !m || lits_add(l, lit_schema(json_index(v->s, m)));
        } else if (a->op == ATOM_REST && !item_evaluated(v, a, i)) {
            ok = lits_add(l, a->lit);
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
        return shape_nomem(v);
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
            if (v->atoms.v[k].op == ATOM_CONTAINS &&
                shape_serves(v, &v->atoms.v[k], v->atoms.v[i].entry))
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
    rc =
        r->items ? gb_work(v->s->b, 10 * (uint64_t)r->n_prefix * (v->atoms.n + 1)) : shape_nomem(v);
    for (uint32_t i = 0; i <= r->n_prefix && rc == 0; i++) {
        r->items[2 * i + 1] = G_NONE;
        if (!item_lits(v, i, &l))
            rc = shape_nomem(v);
        /* where the number of those that count is bounded above, the others must not count */
        if (rc == 0 && contains && r->most != G_MANY && !lits_add(&l, contains->lit ^ LIT_NOT))
            rc = shape_nomem(v);
        rc = rc == 0 ? shape_child(v, &l, &r->items[2 * i]) : rc;
        if (rc < 0 || !contains)
            continue;
        if (!item_lits(v, i, &l) || !lits_add(&l, contains->lit))
            rc = shape_nomem(v);
        else
            rc = shape_child(v, &l, &r->items[2 * i + 1]);
    }
    GVEC_FREE(&l);
    LODE_TRY(rc);
    return GVEC_PUSH(&p->arrs, r) ? 0 : shape_nomem(v);
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
        return shape_add_object(v);
    }
    return 0;
}
