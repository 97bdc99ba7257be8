/* schema_refs.c - the schemas of a document by their names: $id, $anchor, $ref. */
#include "text/grammar/literal.h"

#include <stdio.h>
#include <stdlib.h>

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

/* The keywords below which schemas are, and how they lie there. */
enum { ONE = 1, LIST = 2, MAP = 4 };
static const struct {
    const char *keyword;
    uint8_t forms;
} places[] = {{"additionalProperties", ONE},
              {"contains", ONE},
              {"not", ONE},
              {"if", ONE},
              {"then", ONE},
              {"else", ONE},
              {"propertyNames", ONE},
              {"unevaluatedItems", ONE},
              {"contentSchema", ONE},
              {"unevaluatedProperties", ONE},
              {"allOf", LIST},
              {"anyOf", LIST},
              {"oneOf", LIST},
              {"prefixItems", LIST},
              {"properties", MAP},
              {"patternProperties", MAP},
              {"$defs", MAP},
              {"definitions", MAP},
              {"dependentSchemas", MAP},
              {"items", ONE | LIST},
              {"additionalItems", ONE},
              {"dependencies", MAP} /* or names */};

static bool is_schema(const struct lode_json *v) {
    return v->type == LODE_JSON_OBJECT || v->type == LODE_JSON_TRUE || v->type == LODE_JSON_FALSE;
}

static int check_dialect(struct schema *s, uint32_t node) {
    static const char *const known[] = {"//json-schema.org/draft/2020-12/schema",
                                        "//json-schema.org/draft/2019-09/schema"};
    static const char *const older[] = {
        "//json-schema.org/draft-07/schema", "//json-schema.org/draft-06/schema",
        "//json-schema.org/draft-04/schema", "//json-schema.org/schema"};
    const struct lode_json *v = json_member(s, node, "$schema");
    if (!v)
        return 0;
    const struct uri u = split_uri(lode_json_str(v));
    struct lode_str name = {u.authority.data, u.authority.len + u.path.len}; /* http or https */
    if (name.len && name.data[name.len - 1] == '#')
        name.len--;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (lode_str_eqz(name, known[i]))
            return 0;
    for (size_t i = 0; i < sizeof older / sizeof *older; i++)
        if (lode_str_eqz(name, older[i])) {
            s->old = true;
            s->id = i == 2 ? "id" : "$id";
            return 0;
        }
    return schema_fail(s, LODE_ERR_UNSUPPORTED, json_index(s, v),
                       "$schema names a dialect other than JSON Schema 2020-12 (or an older draft "
                       "of it): what its keywords mean is not known");
}

static int add_resource(struct schema *s, uint32_t node, uint32_t outer, uint32_t *resource) {
    LODE_TRY(check_dialect(s, node));
    const struct lode_json *id = json_member(s, node, s->id);
    struct lode_str ref = lode_json_str(id), name = {NULL, 0};
    const char *base = outer == G_NONE ? "" : s->resources.v[outer].uri;
    if (id && id->type != LODE_JSON_STRING)
        return schema_fail(s, LODE_ERR_FORMAT, json_index(s, id), "%s is not a string", s->id);
    const char *hash = ref.len ? memchr(ref.data, '#', ref.len) : NULL;
    if (hash) {
        name = (struct lode_str){hash + 1, ref.len - (size_t)(hash + 1 - ref.data)};
        ref.len = (size_t)(hash - ref.data);
    }
    if (outer == G_NONE || ref.len) {
        const struct resource r = {node, resolve_uri(s->b->arena, lode_str(base), ref)};
        if (!r.uri || !GVEC_PUSH(&s->resources, r))
            return gb_nomem(s->b);
        *resource = (uint32_t)s->resources.n - 1;
    }
    /* drafts before 2019-09 have no $anchor: a fragment of the id is that */
    return !s->old || !name.len ||
                   GVEC_PUSH(&s->anchors, ((struct anchor){*resource, node, name, false}))
               ? 0
               : gb_nomem(s->b);
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

/* What is below one keyword. */
static int visit_place(struct schema *s, const struct lode_json *v, const char *keyword, int forms,
                       uint32_t resource) {
    const bool list = forms & LIST && v->type == LODE_JSON_ARRAY;
    if (forms & ONE && !list)
        return schema_visit(s, json_index(s, v), resource);
    if (forms & LIST && (!list || (!v->n && !(forms & ONE))))
        return schema_fail(s, LODE_ERR_FORMAT, json_index(s, v),
                           "%s is a list of at least one schema", keyword);
    if (forms & MAP && v->type != LODE_JSON_OBJECT)
        return schema_fail(s, LODE_ERR_FORMAT, json_index(s, v), "%s is not an object", keyword);
    const bool names = !strcmp(keyword, "dependencies");
    for (const struct lode_json *m = lode_json_first(v); m; m = lode_json_next(v, m))
        if (!names || m->type != LODE_JSON_ARRAY)
            LODE_TRY(schema_visit(s, json_index(s, m), resource));
    return 0;
}

int schema_visit(struct schema *s, uint32_t node, uint32_t resource) {
    const struct lode_json *v = &s->top[node], *m;
    if (!is_schema(v))
        return schema_fail(s, LODE_ERR_FORMAT, node, "a schema is an object, true or false");
    if (s->home[node])
        return 0;
    LODE_TRY(gb_work(s->b, 10));
    if (v->type == LODE_JSON_OBJECT && (resource == G_NONE || lode_json_get(v, s->id)) &&
        !(s->old && lode_json_get(v, "$ref")))
        LODE_TRY(add_resource(s, node, resource, &resource));
    s->home[node] = resource == G_NONE ? 1 : resource + 1;
    if (v->type != LODE_JSON_OBJECT)
        return 0;
    LODE_TRY(add_anchor(s, node, resource, "$anchor"));
    LODE_TRY(add_anchor(s, node, resource, "$dynamicAnchor"));
    if (lode_json_get(v, "prefixItems") && lode_json_is(lode_json_get(v, "items"), LODE_JSON_ARRAY))
        return schema_fail(s, LODE_ERR_FORMAT, json_index(s, lode_json_get(v, "items")),
                           "items as a list says what prefixItems beside it says: keep one");
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if ((m = lode_json_get(v, places[i].keyword)))
            LODE_TRY(visit_place(s, m, places[i].keyword, places[i].forms, resource));
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
    return schema_visit(s, *target, resource);
}
