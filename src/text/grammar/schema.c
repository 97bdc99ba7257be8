/* schema.c - the nodes of the program, which of them can be had, and the compilation as a whole. */
#include "text/grammar/literal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- places ---- */

uint32_t json_index(const struct schema *s, const struct lode_json *v) {
    return (uint32_t)(v - s->top);
}

const struct lode_json *json_member(const struct schema *s, uint32_t object, const char *key) {
    return lode_json_get(&s->top[object], key);
}

const struct lode_json *schema_first_items(const struct schema *s, uint32_t schema_node) {
    const struct lode_json *items = json_member(s, schema_node, "items");
    return lode_json_is(items, LODE_JSON_ARRAY) ? items
                                                : json_member(s, schema_node, "prefixItems");
}

const struct lode_json *schema_other_items(const struct schema *s, uint32_t schema_node) {
    const struct lode_json *items = json_member(s, schema_node, "items");
    return lode_json_is(items, LODE_JSON_ARRAY) ? json_member(s, schema_node, "additionalItems")
                                                : items;
}

/* The JSON pointer of a node, as a URI fragment. */
static void add_path(const struct schema *s, uint32_t node, struct lode_buf *out) {
    const struct lode_json *v = s->top, *target = s->top + node;
    lode_buf_addc(out, '#');
    while (v != target) {
        uint32_t i = 0;
        const struct lode_json *m = lode_json_first(v);
        while (m && !(target >= m && target < m + m->skip)) {
            m = lode_json_next(v, m);
            i++;
        }
        if (!m)
            return;
        lode_buf_addc(out, '/');
        if (v->type == LODE_JSON_ARRAY)
            lode_buf_addf(out, "%u", i);
        for (uint32_t k = 0; v->type == LODE_JSON_OBJECT && k < m->key_len; k++)
            if (m->key[k] == '~' || m->key[k] == '/')
                lode_buf_addz(out, m->key[k] == '~' ? "~0" : "~1");
            else
                lode_buf_addc(out, m->key[k]);
        v = m;
    }
}

const char *schema_at(struct schema *s, uint32_t node) {
    struct lode_buf path = {0};
    const char *before = s->b->where;
    add_path(s, node, &path);
    const char *copy = path.failed ? NULL : lode_arena_strndup(s->b->arena, path.data, path.len);
    s->b->where = copy ? copy : "schema";
    lode_buf_free(&path);
    return before;
}

int schema_fail(struct schema *s, int code, uint32_t node, const char *fmt, ...) {
    struct lode_buf path = {0};
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    add_path(s, node, &path);
    const int rc = lode_fail(s->b->err, code, path.failed ? "schema" : path.data, "%s", text);
    lode_buf_free(&path);
    return rc;
}

int number_of(struct schema *s, const struct lode_json *v, struct decimal *out) {
    if (!lode_json_is(v, LODE_JSON_NUMBER))
        return schema_fail(s, LODE_ERR_FORMAT, json_index(s, v), "a number was expected");
    char *room = lode_arena_alloc(s->b->arena, v->n + 1, 1);
    if (!room)
        return gb_nomem(s->b);
    decimal_parse((struct lode_str){v->text, v->n}, room, out);
    return 0;
}

/* ---- nodes ---- */

static int by_lit(const void *a, const void *b) {
    const g_lit x = *(const g_lit *)a, y = *(const g_lit *)b;
    return (x > y) - (x < y);
}

/* A literal that says nothing. */
static bool is_trivial(const struct schema *s, g_lit l) {
    const struct lode_json *v = &s->top[lit_node(l)];
    if (l & LIT_CONST)
        return false;
    return l & LIT_NOT ? v->type == LODE_JSON_FALSE
                       : v->type == LODE_JSON_TRUE || (v->type == LODE_JSON_OBJECT && !v->n);
}

int schema_node(struct schema *s, g_lit *lits, size_t n, uint32_t *out) {
    size_t kept = 0;
    bool fresh;
    if (n)
        qsort(lits, n, sizeof *lits, by_lit);
    for (size_t i = 0; i < n; i++)
        if (!is_trivial(s, lits[i]) && (kept == 0 || lits[kept - 1] != lits[i]))
            lits[kept++] = lits[i];
    *out = gintern_put(&s->sets, lits, (uint32_t)kept, &fresh);
    if (*out == UINT32_MAX)
        return gb_nomem(s->b);
    if (fresh) {
        struct node_parts *p = LODE_ARENA_NEW(s->b->arena, struct node_parts);
        if (!p || !GVEC_PUSH(&s->nodes, p))
            return gb_nomem(s->b);
    }
    return gb_work(s->b, 10 + n);
}

int schema_build_node(struct schema *s, uint32_t node) {
    struct node_parts *p = s->nodes.v[node];
    if (p->state)
        return 0;
    p->state = 1;
    for (enum g_type t = TYPE_NULL; t <= TYPE_OBJECT; t++)
        LODE_TRY(solve_node(s, node, t));
    p->state = 2;
    return 0;
}

/* ---- emptiness ---- */

static bool strs_exist(const struct node_parts *p) {
    for (size_t i = 0; i < p->strs_free.n; i++)
        if (p->strs_free.v[i].dfa.n && p->strs_free.v[i].min <= p->strs_free.v[i].max)
            return true;
    return false;
}

static bool obj_ok(const struct g_obj *o, node_ok_fn *ok, void *user) {
    uint32_t names = 0;
    bool open = false, some = !o->some;
    if (!o->keys.n) /* no key at all */
        return o->min == 0 && o->n_required == 0;
    for (uint32_t i = 0; i < o->n_classes; i++) {
        const bool good = ok(user, o->classes[i].node);
        const bool named = o->classes[i].name != G_NONE;
        if (named && o->classes[i].required && !good)
            return false;
        names += good && named;
        open = open || (good && !named);
        some = some || (good && !named && o->classes[i].required);
    }
    return some && o->n_required <= o->max && o->min <= o->max && (open || o->min <= names);
}

struct emptiness {
    struct schema *s;
    uint8_t *ok; /* of the final answer; NULL while asking in advance */
    uint32_t depth;
    bool failed;
};

static bool parts_ok(const struct node_parts *p, enum g_type t, node_ok_fn *ok, void *user) {
    if (t <= TYPE_FALSE)
        return p->literals >> t & 1;
    if (t == TYPE_NUMBER)
        return p->conds.n > 0;
    if (t == TYPE_STRING)
        return strs_exist(p);
    for (size_t i = 0; t == TYPE_ARRAY && i < p->arrs.n; i++)
        if (g_arr_live(p->arrs.v[i], 0, 0, ok, user))
            return true;
    for (size_t i = 0; t == TYPE_OBJECT && i < p->objs.n; i++)
        if (obj_ok(p->objs.v[i], ok, user))
            return true;
    return false;
}

static bool known_ok(void *user, uint32_t node) {
    const struct emptiness *e = user;
    return node != G_NONE && e->ok[node];
}

/* Asked while nodes are being made: yes where it is not certain that there is no value. */
static bool maybe_ok(void *user, uint32_t node) {
    struct emptiness *e = user;
    if (node == G_NONE)
        return false;
    struct node_parts *p = e->s->nodes.v[node];
    if (e->depth >= 6 || e->failed || p->state == 1 || p->state == 3)
        return true;
    if (p->state == 0) {
        struct lode_error ignored, *err = e->s->b->err;
        e->s->b->err = &ignored;
        const int rc = schema_build_node(e->s, node);
        e->s->b->err = err;
        if (rc < 0) {
            p->state = 3; /* cannot be enforced; it matters only where it is reached */
            e->failed = e->failed || rc == LODE_ERR_NOMEM;
            return true;
        }
        p = e->s->nodes.v[node];
    }
    e->depth++;
    bool ok = false;
    for (enum g_type t = TYPE_NULL; t <= TYPE_OBJECT && !ok; t++)
        ok = parts_ok(p, t, maybe_ok, e);
    e->depth--;
    return ok;
}

int schema_disjoint(struct schema *s, g_lit a, g_lit c, enum g_type type, bool *out) {
    g_lit both[2] = {a, c};
    uint32_t node;
    struct emptiness e = {.s = s};
    *out = false;
    LODE_TRY(gb_work(s->b, 20));
    if (s->depth >= 8)
        return 0;
    s->depth++;
    int rc = schema_node(s, both, 2, &node);
    if (rc == 0) {
        maybe_ok(&e, node); /* makes it */
        if (!e.failed && s->nodes.v[node]->state == 2)
            *out = !parts_ok(s->nodes.v[node], type, maybe_ok, &e);
        rc = e.failed ? gb_nomem(s->b) : 0;
    }
    s->depth--;
    return rc == 0 ? gb_work(s->b, 1) : rc;
}

/* ---- the whole ---- */

static int find_ok(struct schema *s, uint8_t *ok) {
    struct emptiness e = {.s = s, .ok = ok};
    bool changed = true;
    while (changed) { /* the least solution: what can be built from leaves */
        changed = false;
        for (size_t i = s->nodes.n; i-- > 0;) {
            const struct node_parts *p = s->nodes.v[i];
            bool good = ok[i];
            for (enum g_type t = TYPE_NULL; t <= TYPE_OBJECT && !good && p->listed; t++)
                good = parts_ok(p, t, known_ok, &e);
            changed = changed || good != ok[i];
            ok[i] = good;
            LODE_TRY(gb_work(s->b, 1 + p->objs.n + p->arrs.n));
        }
    }
    return 0;
}

static bool class_ok(const struct g_obj *o, uint32_t c, const uint8_t *ok) {
    return o->classes[c].node != G_NONE && ok[o->classes[c].node];
}

/* Adds to a set of states those that lead to it. */
static int lead_back(struct schema *s, const struct dfa *d, uint8_t *set) {
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t q = d->n; q-- > 0;)
            for (uint32_t i = d->first[q]; i < d->first[q + 1] && !set[q]; i++)
                changed = (set[q] = set[d->ranges[i].to]) || changed;
        LODE_TRY(gb_work(s->b, d->n));
    }
    return 0;
}

/* Keys whose values cannot be: out; then which states can still reach a key of an open class. */
static int finish_obj(struct schema *s, struct g_obj *o, const uint8_t *ok) {
    bool changed = true;
    for (uint32_t i = 0; i < o->n_names; i++) {
        o->dead[i + 1] = o->dead[i] + !class_ok(o, i, ok);
        o->required[i + 1] = o->required[i] + o->classes[i].required;
    }
    for (uint32_t q = 0; q < o->keys.n; q++) {
        const uint32_t c = o->label[q];
        o->open[q] = c != G_NONE && o->classes[c].name == G_NONE && class_ok(o, c, ok);
        if (o->some)
            o->some[q] = o->open[q] && o->classes[c].required;
    }
    LODE_TRY(lead_back(s, &o->keys, o->open));
    if (o->some)
        LODE_TRY(lead_back(s, &o->keys, o->some));
    /* from leaves up: what is on a cycle never becomes finite */
    for (changed = true; changed;) {
        changed = false;
        for (uint32_t q = o->keys.n; q-- > 0;) {
            bool finite = !o->finite[q];
            for (uint32_t i = o->keys.first[q]; i < o->keys.first[q + 1] && finite; i++)
                finite = !o->open[o->keys.ranges[i].to] || o->finite[o->keys.ranges[i].to];
            changed = changed || finite;
            o->finite[q] = o->finite[q] || finite;
        }
        LODE_TRY(gb_work(s->b, o->keys.n));
    }
    return 0;
}

static int move_node(struct schema *s, struct lode_grammar *g, uint32_t i, uint8_t *ok) {
    struct node_parts *p = s->nodes.v[i];
    struct g_node *n = &g->nodes[i];
    n->ok = ok[i];
    n->literals = p->literals;
    n->str = n->str_free = G_NONE;
    if (p->strs_free.n) {
        n->str_free = g->n_strs;
        g->strs[g->n_strs++] = p->strs_free.v[0];
        n->str = n->str_free;
        if (p->strs.n) {
            n->str = g->n_strs;
            g->strs[g->n_strs++] = p->strs.v[0];
        }
    }
    for (size_t k = 0; k < p->conds.n; k++) {
        struct dfa one;
        LODE_TRY(number_dfa(s->b, p->conds.v[k].v, p->conds.v[k].n, &one));
        LODE_TRY(k ? dfa_product(s->b, &n->number, &one, DFA_OR, &n->number)
                   : (n->number = one, 0));
    }
    struct g_obj **objs;
    struct g_arr **arrs;
#define MOVE(to, count, type, from)                                                                \
    do {                                                                                           \
        type *copy_ = lode_arena_alloc(s->b->arena, (from).n + 1, sizeof *copy_);                  \
        if (!copy_)                                                                                \
            return gb_nomem(s->b);                                                                 \
        if ((from).n)                                                                              \
            memcpy(copy_, (from).v, (from).n * sizeof *copy_);                                     \
        (to) = copy_;                                                                              \
        (count) = (uint32_t)(from).n;                                                              \
    } while (0)
    MOVE(n->conds, n->n_conds, struct g_conds, p->conds);
    MOVE(objs, n->n_objs, struct g_obj *, p->objs);
    MOVE(arrs, n->n_arrs, struct g_arr *, p->arrs);
#undef MOVE
    struct emptiness e = {.s = s, .ok = ok};
    uint32_t kept = 0;
    for (uint32_t k = 0; k < n->n_objs; k++) {
        LODE_TRY(finish_obj(s, objs[k], ok));
        if (obj_ok(objs[k], known_ok, &e))
            objs[kept++] = objs[k];
    }
    n->n_objs = kept;
    kept = 0;
    for (uint32_t k = 0; k < n->n_arrs; k++)
        if (g_arr_live(arrs[k], 0, 0, known_ok, &e))
            arrs[kept++] = arrs[k];
    n->n_arrs = kept;
    n->objs = objs;
    n->arrs = arrs;
    return 0;
}

static int build_all(struct schema *s, struct lode_grammar *g) {
    g_lit root[1] = {lit_schema(0)};
    uint32_t node;
    LODE_TRY(schema_visit(s, 0, G_NONE));
    LODE_TRY(schema_node(s, root, 1, &node));
    /* a document that is {} or true is node 0 too: the empty set */
    if (!GVEC_PUSH(&s->queue, node))
        return gb_nomem(s->b);
    s->nodes.v[node]->listed = true;
    for (size_t k = 0; k < s->queue.n; k++) {
        struct node_parts *p = s->nodes.v[s->queue.v[k]];
        if (p->state == 3) /* begun when it was a question; now it is needed, and says why not */
            p->state = 0;
        LODE_TRY(schema_build_node(s, s->queue.v[k]));
        p = s->nodes.v[s->queue.v[k]];
        for (size_t i = 0; i < p->children.n; i++) {
            struct node_parts *c = s->nodes.v[p->children.v[i]];
            if (c->listed)
                continue;
            c->listed = true;
            if (!GVEC_PUSH(&s->queue, p->children.v[i]))
                return gb_nomem(s->b);
        }
    }
    g->n_nodes = (uint32_t)s->nodes.n;
    g->nodes = LODE_ARENA_ARRAY(&g->arena, struct g_node, s->nodes.n);
    g->strs = LODE_ARENA_ARRAY(&g->arena, struct g_str, 2 * s->nodes.n);
    uint8_t *ok = lode_alloc_zero(s->nodes.n, 1);
    int rc = ok && g->nodes && g->strs ? find_ok(s, ok) : gb_nomem(s->b);
    for (uint32_t i = 0; i < s->nodes.n && rc == 0; i++)
        if (s->nodes.v[i]->listed)
            rc = move_node(s, g, i, ok);
    lode_free(ok);
    return rc;
}

int schema_compile(struct gbuild *b, struct lode_grammar *g, struct lode_str text) {
    struct schema s = {.b = b, .id = "$id"};
    g->root = G_ROOT_JSON;
    int rc = lode_json_parse(&s.doc, text, "schema", b->err);
    if (rc < 0)
        return rc;
    s.top = s.doc.nodes;
    s.home = lode_alloc_zero(s.doc.n, sizeof *s.home);
    rc = s.home ? build_all(&s, g) : gb_nomem(b);
    for (size_t i = 0; i < s.nodes.n; i++) {
        struct node_parts *p = s.nodes.v[i];
        GVEC_FREE(&p->strs);
        GVEC_FREE(&p->strs_free);
        GVEC_FREE(&p->conds);
        GVEC_FREE(&p->objs);
        GVEC_FREE(&p->arrs);
        GVEC_FREE(&p->children);
    }
    GVEC_FREE(&s.nodes);
    GVEC_FREE(&s.queue);
    GVEC_FREE(&s.resources);
    GVEC_FREE(&s.anchors);
    GVEC_FREE(&s.patterns);
    gintern_free(&s.sets);
    lode_free(s.home);
    lode_json_free(&s.doc);
    return rc;
}
