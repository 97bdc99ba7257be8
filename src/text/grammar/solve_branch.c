/* solve_branch.c - values, and the keywords that lead to several alternatives: see solve.h. */
#include "text/grammar/solve.h"

enum { MAX_ANNOTATING = 6 };

/* Equal to a value of the document, or (neg) not; a branch for each way of being another. */
int solve_const(struct solver *v, uint32_t entry, uint32_t head) {
    const struct entry e = v->entries.v[entry];
    const uint32_t node = lit_node(e.lit);
    const struct lode_json *c = &v->s->top[node], *m;
    const bool neg = e.lit & LIT_NOT, same = c->type == solve_json_type[v->type];
    if (!same)
        return neg ? solve_walk(v, head) : 0;
    if (v->type <= TYPE_FALSE)
        return neg ? 0 : solve_walk(v, head);
    const struct mark m0 = mark_of(v);
    if (v->type == TYPE_NUMBER) {
        LODE_TRY(solve_add_cond(v, entry, neg ? NUMBER_NE : NUMBER_EQ, c));
        return solve_walk(v, head);
    }
    if (v->type == TYPE_STRING) {
        LODE_TRY(
            solve_add_atom(v, entry, (struct atom){.op = ATOM_WORDS, .neg = neg, .json = node}));
        return solve_walk(v, head);
    }
    uint32_t i = 0;
    const bool array = v->type == TYPE_ARRAY;
    if (!neg) {
        LODE_TRY(solve_count_between(v, entry, c->n, c->n));
        if (!array)
            LODE_TRY(solve_add_atom(v, entry, (struct atom){.op = ATOM_ONLY, .json = node}));
        for (m = lode_json_first(c); m; m = lode_json_next(c, m), i++) {
            const struct lode_str key = {m->key, m->key_len};
            LODE_TRY(solve_add_atom(v, entry,
                                    (struct atom){.op = array ? ATOM_ITEM : ATOM_MEMBER,
                                                  .min = i,
                                                  .key = key,
                                                  .lit = lit_const(json_index(v->s, m))}));
            if (!array)
                LODE_TRY(solve_require(v, entry, key, false));
        }
        return solve_walk(v, head);
    }
    if (array && c->n) { /* shorter */
        LODE_TRY(solve_count_between(v, entry, 0, c->n - 1));
        LODE_TRY(solve_walk(v, head));
        back_to(v, m0);
    }
    for (m = lode_json_first(c); m; m = lode_json_next(c, m), i++) {
        const struct lode_str key = {m->key, m->key_len};
        if (!array) { /* without this key */
            LODE_TRY(solve_require(v, entry, key, true));
            LODE_TRY(solve_walk(v, head));
            back_to(v, m0);
        }
        /* with another value here */
        LODE_TRY(solve_there_and(v, entry, array, i, key, lit_const(json_index(v->s, m)) | LIT_NOT));
        LODE_TRY(solve_walk(v, head));
        back_to(v, m0);
    }
    /* longer; or all keys, and more */
    for (m = lode_json_first(c); m && !array; m = lode_json_next(c, m))
        LODE_TRY(solve_require(v, entry, (struct lode_str){m->key, m->key_len}, false));
    LODE_TRY(solve_count_between(v, entry, c->n + 1, G_MANY));
    return solve_walk(v, head);
}

int solve_any_of(struct solver *v, uint32_t entry, uint32_t kw, uint32_t head) {
    const struct lode_json *l = &v->s->top[kw], *m;
    if (!v->entries.v[entry].scope)
        return solve_any_member(v, entry, kw, 0, false, head);
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
                LODE_TRY(solve_add_lit(v, lit_schema(json_index(v->s, m)), entry, false, &next));
        LODE_TRY(solve_walk(v, next));
        back_to(v, at);
    }
    return 0;
}

/* One branch holds, and those that could hold with it do not. */
int solve_one_of(struct solver *v, uint32_t entry, uint32_t kw, uint32_t head) {
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
                LODE_TRY(solve_add_lit(v, other | LIT_NOT, entry, true, &next));
        }
        LODE_TRY(solve_add_lit(v, one, entry, false, &next));
        LODE_TRY(solve_walk(v, next));
        back_to(v, at);
    }
    return 0;
}

/* None of them, or two. */
int solve_not_one_of(struct solver *v, uint32_t entry, uint32_t kw, uint32_t head) {
    const struct lode_json *l = &v->s->top[kw], *m, *o;
    const struct mark at = mark_of(v);
    uint32_t next = head;
    LODE_TRY(solve_all_members(v, entry, kw, LIT_NOT, true, &next));
    LODE_TRY(solve_walk(v, next));
    back_to(v, at);
    for (m = lode_json_first(l); m; m = lode_json_next(l, m))
        for (o = lode_json_next(l, m); o; o = lode_json_next(l, o)) {
            bool apart = false;
            const g_lit x = lit_schema(json_index(v->s, m)), y = lit_schema(json_index(v->s, o));
            LODE_TRY(schema_disjoint(v->s, x, y, v->type, &apart));
            if (!apart)
                LODE_TRY(solve_branch_two(v, entry, x, true, y, head));
        }
    return 0;
}

int solve_if(struct solver *v, uint32_t entry, uint32_t kw, bool neg, uint32_t head) {
    const uint32_t schema = lit_node(v->entries.v[entry].lit);
    const struct lode_json *yes = json_member(v->s, schema, "then");
    const struct lode_json *no = json_member(v->s, schema, "else");
    const g_lit cond = lit_schema(kw), bits = neg ? LIT_NOT : 0;
    if (!yes && !no && !v->entries.v[entry].scope)
        return neg ? 0 : solve_walk(v, head);
    if (yes)
        LODE_TRY(
            solve_branch_two(v, entry, cond, neg, lit_schema(json_index(v->s, yes)) | bits, head));
    else if (!neg)
        LODE_TRY(solve_branch(v, entry, cond, false, head));
    if (no)
        LODE_TRY(solve_branch_two(v, entry, cond | LIT_NOT, true,
                                  lit_schema(json_index(v->s, no)) | bits, head));
    else if (!neg)
        LODE_TRY(solve_branch(v, entry, cond | LIT_NOT, true, head));
    return 0;
}

/* For each key of dependentSchemas and dependentRequired: it is not there, or what it asks for. */
int solve_dependent(struct solver *v, uint32_t entry, const struct lode_json *map,
                    const struct lode_json *m, uint32_t head) {
    if (!m)
        return solve_walk(v, head);
    const struct lode_json *next = lode_json_next(map, m), *k;
    const struct lode_str key = {m->key, m->key_len};
    const struct mark at = mark_of(v);
    if (++v->s->walking > SOLVE_MAX_WALKING)
        return schema_fail(v->s, LODE_ERR_LIMIT, json_index(v->s, map), "too many keys");
    LODE_TRY(gb_work(v->s->b, 10));
    LODE_TRY(solve_require(v, entry, key, true));
    LODE_TRY(solve_dependent(v, entry, map, next, head));
    back_to(v, at);
    LODE_TRY(solve_require(v, entry, key, false));
    if (m->type == LODE_JSON_ARRAY)
        for (k = lode_json_first(m); k; k = lode_json_next(m, k)) {
            if (k->type != LODE_JSON_STRING)
                return schema_fail(v->s, LODE_ERR_FORMAT, json_index(v->s, k),
                                   "a key was expected");
            LODE_TRY(solve_require(v, entry, lode_json_str(k), false));
        }
    else
        LODE_TRY(solve_add_lit(v, lit_schema(json_index(v->s, m)), entry, false, &head));
    LODE_TRY(solve_dependent(v, entry, map, next, head));
    back_to(v, at);
    v->s->walking--;
    return 0;
}

int solve_not_dependent(struct solver *v, uint32_t entry, uint32_t kw, uint32_t head) {
    const struct lode_json *map = &v->s->top[kw], *m, *k;
    for (m = lode_json_first(map); m; m = lode_json_next(map, m)) {
        const struct mark at = mark_of(v);
        const struct lode_str key = {m->key, m->key_len};
        LODE_TRY(solve_require(v, entry, key, false));
        if (m->type != LODE_JSON_ARRAY)
            LODE_TRY(solve_branch(v, entry, lit_schema(json_index(v->s, m)) | LIT_NOT, true, head));
        else
            for (k = lode_json_first(m); k; k = lode_json_next(m, k)) {
                const struct mark inner = mark_of(v);
                LODE_TRY(solve_require(v, entry, lode_json_str(k), true));
                LODE_TRY(solve_walk(v, head));
                back_to(v, inner);
            }
        back_to(v, at);
    }
    return 0;
}
