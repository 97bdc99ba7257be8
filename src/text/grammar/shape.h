/* shape.h - what arrays and objects share on the way from an alternative to its shape. */
#ifndef LODE_GRAMMAR_SHAPE_H
#define LODE_GRAMMAR_SHAPE_H

#include "text/grammar/literal.h"

static inline int shape_nomem(struct solver *v) { return gb_nomem(v->s->b); }

/* What an item or member must be. */
struct lits {
    g_lit *v;
    size_t n, cap;
};
static inline bool lits_add(struct lits *l, g_lit x) { return GVEC_PUSH(l, x); }

/* The node for it, noted as a child of the solver's. */
static inline int shape_child(struct solver *v, struct lits *l, uint32_t *out) {
    LODE_TRY(schema_node(v->s, l->v, l->n, out));
    struct node_parts *p = v->s->nodes.v[v->node];
    return GVEC_PUSH(&p->children, *out) ? 0 : shape_nomem(v);
}

/* Whether atom a's annotations reach the schema of entry `scope`. */
static inline bool shape_serves(const struct solver *v, const struct atom *a, uint32_t scope) {
    uint32_t e = a->entry;
    while (e != scope && e != G_NONE && !v->entries.v[e].apart)
        e = v->entries.v[e].parent;
    return e == scope;
}

static inline const struct lode_json *shape_member(const struct solver *v, const struct atom *a,
                                                   const char *key) {
    return json_member(v->s, a->json, key);
}

/* The schema whose rule an ATOM_SOME_KEY breaks. */
static inline uint32_t shape_rule_of(const struct solver *v, const struct atom *a) {
    return lit_node(v->entries.v[a->entry].lit);
}

/* The names of keys that an object's atoms name, sorted, each once; false: no memory. */
struct shape_names {
    struct lode_str *v;
    size_t n, cap;
};
bool shape_collect_names(const struct solver *v, struct shape_names *names);

/* shape_object.c: the node gets one more shape of object. */
int shape_add_object(struct solver *v);

/* shape_some.c: the shapes in which atom i, an ATOM_SOME_KEY, comes true. */
int shape_add_some(struct solver *v, size_t i);

#endif
