/* schema.c - the document, its references, and the compilation as a whole. */
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

/* ---- URIs (RFC 3986, 5.2, for what schemas use) ---- */

struct uri {
    struct lode_str scheme, authority, path; /* scheme with its ':', authority with its "//" */
};

static struct uri split_uri(struct lode_str s) {
    s.data = s.data ? s.data : "";
    struct uri u = {{s.data, 0}, {s.data, 0}, s};
    for (size_t i = 0; i < s.len && s.data[i] != '/' && s.data[i] != '?' && s.data[i] != '#'; i++)
        if (s.data[i] == ':') {
            u.scheme.len = i + 1;
            break;
        }
    u.path = (struct lode_str){s.data + u.scheme.len, s.len - u.scheme.len};
    if (lode_str_starts(u.path, LODE_STR("//"))) {
        size_t n = 2;
        while (n < u.path.len && u.path.data[n] != '/' && u.path.data[n] != '?')
            n++;
        u.authority = (struct lode_str){u.path.data, n};
        u.path = (struct lode_str){u.path.data + n, u.path.len - n};
    }
    return u;
}

/* Takes "." and ".." out of a path, in place. */
static size_t tidy_path(char *path, size_t n) {
    size_t out = 0, i = 0;
    while (i < n) {
        size_t end = i + (path[i] == '/');
        while (end < n && path[end] != '/')
            end++;
        const size_t at = i + (path[i] == '/'), len = end - at;
        const bool last = end == n;
        if (len == 1 && path[at] == '.') {
            if (last && path[i] == '/')
                path[out++] = '/';
        } else if (len == 2 && path[at] == '.' && path[at + 1] == '.') {
            while (out > 0 && path[--out] != '/')
                continue;
            if (last)
                path[out++] = '/';
        } else {
            memmove(path + out, path + i, end - i);
            out += end - i;
        }
        i = end;
    }
    return out;
}

/* ref against base, without fragments, into the arena; NULL without memory. */
static char *resolve_uri(struct lode_arena *a, struct lode_str base, struct lode_str ref) {
    const struct uri b = split_uri(base), r = split_uri(ref);
    const bool merge = !r.scheme.len && !r.authority.len;
    struct lode_str dir = {b.path.data, 0};
    if (merge && r.path.len && r.path.data[0] != '/') {
        dir = b.path;
        while (dir.len && dir.data[dir.len - 1] != '/')
            dir.len--;
    } else if (merge && !r.path.len) {
        dir = b.path;
    }
    const struct lode_str scheme = r.scheme.len ? r.scheme : b.scheme;
    const struct lode_str authority = merge ? b.authority : r.authority;
    const size_t head = scheme.len + authority.len;
    char *out = lode_arena_alloc(a, head + dir.len + r.path.len + 2, 1);
    if (!out)
        return NULL;
    memcpy(out, scheme.data ? scheme.data : "", scheme.len);
    memcpy(out + scheme.len, authority.data ? authority.data : "", authority.len);
    char *path = out + head;
    size_t n = 0;
    if (merge && authority.len && !dir.len && r.path.len && r.path.data[0] != '/')
        path[n++] = '/';
    memcpy(path + n, dir.data ? dir.data : "", dir.len);
    n += dir.len;
    memcpy(path + n, r.path.data ? r.path.data : "", r.path.len);
    n += r.path.len;
    if (!scheme.len || (n && path[0] == '/')) /* urn:a:b has no segments */
        n = tidy_path(path, n);
    path[n] = 0;
    return out;
}

/* ---- the schemas of the document ---- */

static const char *const one_schema[] = {"additionalProperties",
                                         "items",
                                         "contains",
                                         "not",
                                         "if",
                                         "then",
                                         "else",
                                         "propertyNames",
                                         "unevaluatedItems",
                                         "contentSchema",
                                         "unevaluatedProperties"};
static const char *const list_of_schemas[] = {"allOf", "anyOf", "oneOf", "prefixItems"};
static const char *const map_of_schemas[] = {"properties", "patternProperties", "$defs",
                                             "definitions", "dependentSchemas"};

static bool is_schema(const struct lode_json *v) {
    return v->type == LODE_JSON_OBJECT || v->type == LODE_JSON_TRUE || v->type == LODE_JSON_FALSE;
}

static int check_dialect(struct schema *s, uint32_t node) {
    static const char *const known[] = {"https://json-schema.org/draft/2020-12/schema",
                                        "https://json-schema.org/draft/2019-09/schema"};
    static const char *const older[] = {
        "http://json-schema.org/draft-07/schema", "https://json-schema.org/draft-07/schema",
        "http://json-schema.org/draft-06/schema", "http://json-schema.org/draft-04/schema",
        "http://json-schema.org/schema"};
    const struct lode_json *v = json_member(s, node, "$schema");
    if (!v)
        return 0;
    struct lode_str name = lode_json_str(v);
    if (name.len && name.data[name.len - 1] == '#')
        name.len--;
    for (size_t i = 0; i < 2; i++)
        if (lode_str_eqz(name, known[i]))
            return 0;
    for (size_t i = 0; i < sizeof older / sizeof *older; i++)
        if (lode_str_eqz(name, older[i])) {
            s->old = true;
            return 0;
        }
    return schema_fail(s, LODE_ERR_UNSUPPORTED, json_index(s, v),
                       "$schema names a dialect other than JSON Schema 2020-12 (or an older draft "
                       "of it): what its keywords mean is not known");
}

static int add_resource(struct schema *s, uint32_t node, uint32_t outer, uint32_t *resource) {
    const struct lode_json *id = json_member(s, node, "$id");
    struct lode_str ref = lode_json_str(id);
    const char *base = outer == G_NONE ? "" : s->resources.v[outer].uri;
    if (id && id->type != LODE_JSON_STRING)
        return schema_fail(s, LODE_ERR_FORMAT, json_index(s, id), "$id is not a string");
    for (size_t i = 0; i < ref.len; i++)
        if (ref.data[i] == '#')
            ref.len = i;
    if (outer != G_NONE && !ref.len)
        return 0; /* "#name" of old drafts: no resource of its own */
    const struct resource r = {node, resolve_uri(s->b->arena, lode_str(base), ref)};
    if (!r.uri || !GVEC_PUSH(&s->resources, r))
        return gb_nomem(s->b);
    *resource = (uint32_t)s->resources.n - 1;
    return check_dialect(s, node);
}

static int add_anchor(struct schema *s, uint32_t node, uint32_t resource, const char *keyword) {
    const struct lode_json *v = json_member(s, node, keyword);
    if (!v)
        return 0;
    if (v->type != LODE_JSON_STRING)
        return schema_fail(s, LODE_ERR_FORMAT, json_index(s, v), "%s is not a string", keyword);
    const struct anchor a = {resource, node, lode_json_str(v), keyword[1] == 'd'};
    return GVEC_PUSH(&s->anchors, a) ? 0 : gb_nomem(s->b);
}

int schema_visit(struct schema *s, uint32_t node, uint32_t resource, uint32_t depth) {
    const struct lode_json *v = &s->top[node], *m;
    if (!is_schema(v))
        return schema_fail(s, LODE_ERR_FORMAT, node, "a schema is an object, true or false");
    if (s->home[node])
        return 0;
    LODE_TRY(gb_work(s->b, 10));
    if (v->type == LODE_JSON_OBJECT && (resource == G_NONE || lode_json_get(v, "$id")) &&
        !(s->old && lode_json_get(v, "$ref")))
        LODE_TRY(add_resource(s, node, resource, &resource));
    s->home[node] = resource == G_NONE ? 1 : resource + 1;
    if (v->type != LODE_JSON_OBJECT)
        return 0;
    LODE_TRY(add_anchor(s, node, resource, "$anchor"));
    LODE_TRY(add_anchor(s, node, resource, "$dynamicAnchor"));
    for (size_t i = 0; i < sizeof one_schema / sizeof *one_schema; i++)
        if ((m = lode_json_get(v, one_schema[i]))) {
            if (m->type == LODE_JSON_ARRAY && !strcmp(one_schema[i], "items"))
                return schema_fail(s, LODE_ERR_UNSUPPORTED, json_index(s, m),
                                   "items as an array belongs to drafts before 2020-12: write "
                                   "prefixItems");
            LODE_TRY(schema_visit(s, json_index(s, m), resource, depth + 1));
        }
    for (size_t i = 0; i < sizeof list_of_schemas / sizeof *list_of_schemas; i++) {
        const struct lode_json *list = lode_json_get(v, list_of_schemas[i]);
        if (list && (list->type != LODE_JSON_ARRAY || !list->n))
            return schema_fail(s, LODE_ERR_FORMAT, json_index(s, list),
                               "%s is a list of at least one schema", list_of_schemas[i]);
        for (m = lode_json_first(list); m; m = lode_json_next(list, m))
            LODE_TRY(schema_visit(s, json_index(s, m), resource, depth + 1));
    }
    for (size_t i = 0; i < sizeof map_of_schemas / sizeof *map_of_schemas; i++) {
        const struct lode_json *map = lode_json_get(v, map_of_schemas[i]);
        if (map && map->type != LODE_JSON_OBJECT)
            return schema_fail(s, LODE_ERR_FORMAT, json_index(s, map), "%s is not an object",
                               map_of_schemas[i]);
        for (m = lode_json_first(map); m; m = lode_json_next(map, m))
            LODE_TRY(schema_visit(s, json_index(s, m), resource, depth + 1));
    }
    return 0;
}

/* ---- references ---- */

/* Undoes %41 in a fragment; into the arena. */
static bool decode_fragment(struct schema *s, struct lode_str in, struct lode_str *out) {
    char *text = lode_arena_alloc(s->b->arena, in.len + 1, 1);
    if (!text)
        return false;
    *out = (struct lode_str){text, 0};
    for (size_t i = 0; i < in.len; i++) {
        char c = in.data[i];
        if (c == '%' && i + 2 < in.len) {
            const char hex[3] = {in.data[i + 1], in.data[i + 2], 0};
            char *end;
            const unsigned long x = strtoul(hex, &end, 16);
            if (end == hex + 2) {
                c = (char)x;
                i += 2;
            }
        }
        text[out->len++] = c;
    }
    return true;
}

/* Moves *node to where a JSON pointer leads from it; G_NONE: nowhere. */
static int follow_pointer(struct schema *s, uint32_t *node, struct lode_str p) {
    const struct lode_json *v = &s->top[*node];
    size_t i = 0;
    bool failed = false;
    while (i < p.len && v && !failed) {
        struct lode_buf step = {0};
        for (i++; i < p.len && p.data[i] != '/'; i++)
            if (p.data[i] == '~' && i + 1 < p.len && (p.data[i + 1] == '0' || p.data[i + 1] == '1'))
                lode_buf_addc(&step, p.data[++i] == '0' ? '~' : '/');
            else
                lode_buf_addc(&step, p.data[i]);
        const struct lode_str key = lode_buf_str(&step);
        if (v->type == LODE_JSON_OBJECT) {
            v = lode_json_getn(v, key);
        } else {
            char *end = NULL;
            const unsigned long at = key.len ? strtoul(key.data, &end, 10) : 0;
            v = end && !*end && at < UINT32_MAX ? lode_json_at(v, (uint32_t)at) : NULL;
        }
        failed = step.failed;
        lode_buf_free(&step);
    }
    *node = v ? json_index(s, v) : G_NONE;
    return failed ? gb_nomem(s->b) : 0;
}

int schema_resolve(struct schema *s, uint32_t schema_node, uint32_t keyword, bool dynamic,
                   uint32_t *target) {
    const struct lode_json *v = &s->top[keyword];
    uint32_t resource = s->home[schema_node] - 1;
    const struct anchor *anchor = NULL;
    struct lode_str ref, fragment = {NULL, 0};
    if (v->type != LODE_JSON_STRING)
        return schema_fail(s, LODE_ERR_FORMAT, keyword, "a reference is a string");
    ref = lode_json_str(v);
    const char *hash = ref.len ? memchr(ref.data, '#', ref.len) : NULL;
    if (hash) {
        if (!decode_fragment(
                s, (struct lode_str){hash + 1, ref.len - (size_t)(hash + 1 - ref.data)}, &fragment))
            return gb_nomem(s->b);
        ref.len = (size_t)(hash - ref.data);
    }
    if (ref.len) {
        const char *uri = resolve_uri(s->b->arena, lode_str(s->resources.v[resource].uri), ref);
        if (!uri)
            return gb_nomem(s->b);
        for (resource = 0; resource < s->resources.n; resource++)
            if (!strcmp(s->resources.v[resource].uri, uri))
                break;
        if (resource == s->resources.n)
            return schema_fail(s, LODE_ERR_UNSUPPORTED, keyword,
                               "the reference to %.200s leads out of this document: only "
                               "references within it are followed (put the schema under $defs)",
                               uri);
    }
    *target = s->resources.v[resource].node;
    if (fragment.len && fragment.data[0] == '/') {
        LODE_TRY(follow_pointer(s, target, fragment));
    } else if (fragment.len) {
        for (size_t i = 0; i < s->anchors.n && !anchor; i++)
            if (s->anchors.v[i].resource == resource && lode_str_eq(s->anchors.v[i].name, fragment))
                anchor = &s->anchors.v[i];
        *target = anchor ? anchor->node : G_NONE;
    }
    if (*target == G_NONE)
        return schema_fail(s, LODE_ERR_FORMAT, keyword, "the reference leads nowhere: %.*s",
                           (int)(v->n < 200 ? v->n : 200), v->text);
    for (size_t i = 0; dynamic && anchor && anchor->dynamic && i < s->anchors.n; i++)
        if (&s->anchors.v[i] != anchor && s->anchors.v[i].dynamic &&
            lode_str_eq(s->anchors.v[i].name, fragment))
            return schema_fail(s, LODE_ERR_UNSUPPORTED, keyword,
                               "$dynamicRef to one of several $dynamicAnchor of this name depends "
                               "on the way of evaluation and cannot be enforced");
    return schema_visit(s, *target, resource, 0);
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
    bool open = false;
    if (!o->keys.n) /* no key at all */
        return o->min == 0 && o->n_required == 0;
    for (uint32_t i = 0; i < o->n_classes; i++) {
        const bool good = ok(user, o->classes[i].node);
        if (o->classes[i].required && !good)
            return false;
        if (good)
            names += o->classes[i].name != G_NONE;
        open = open || (good && o->classes[i].name == G_NONE);
    }
    return o->n_required <= o->max && o->min <= o->max && (open || o->min <= names);
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
    }
    while (changed) {
        changed = false;
        for (uint32_t q = o->keys.n; q-- > 0;)
            for (uint32_t i = o->keys.first[q]; i < o->keys.first[q + 1] && !o->open[q]; i++)
                changed = (o->open[q] = o->open[o->keys.ranges[i].to]) || changed;
        LODE_TRY(gb_work(s->b, o->keys.n));
    }
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
    LODE_TRY(schema_visit(s, 0, G_NONE, 0));
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
    struct schema s = {.b = b};
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
