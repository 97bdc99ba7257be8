/* tools.c - what the tools' schemas say of a call's parameters. */
#include "text/toolcall/parser.h"

#include <string.h>

enum { MAX_REFS = 16 }; /* schemas within schemas that are followed */

/* OpenAI's shape has all within "function". */
static const struct lode_json *function_of(const struct lode_json *tool) {
    const struct lode_json *f = lode_json_get(tool, "function");
    return lode_json_is(f, LODE_JSON_OBJECT) ? f : tool;
}

static const struct lode_json *find_tool(const struct lode_toolcall *p, const char *name) {
    const struct lode_json *tools = p->tools.n ? p->tools.nodes : NULL;
    if (!lode_json_is(tools, LODE_JSON_ARRAY))
        return NULL;
    for (const struct lode_json *t = lode_json_first(tools); t; t = lode_json_next(tools, t)) {
        const struct lode_json *n = lode_json_get(function_of(t), "name");
        if (lode_json_is(n, LODE_JSON_STRING) && lode_str_eqz(lode_json_str(n), name))
            return t;
    }
    return NULL;
}

bool tc_knows_tool(const struct lode_toolcall *p, const char *name) {
    return find_tool(p, name) != NULL;
}

const struct lode_json *tc_tool_schema(const struct lode_toolcall *p, const char *name) {
    static const char *const names[] = {"parameters", "input_schema", "inputSchema"};
    const struct lode_json *f = function_of(find_tool(p, name));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct lode_json *schema = lode_json_get(f, names[i]);
        if (schema)
            return schema;
    }
    return NULL;
}

static uint32_t type_named(struct lode_str s) {
    static const struct {
        const char *name;
        uint32_t type;
    } types[] = {{"string", TC_STRING}, {"number", TC_NUMBER}, {"integer", TC_NUMBER},
                 {"boolean", TC_BOOL},  {"null", TC_NULL},     {"array", TC_ARRAY},
                 {"object", TC_OBJECT}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (lode_str_eqz(s, types[i].name))
            return types[i].type;
    return 0;
}

static uint32_t type_of(const struct lode_json *v) {
    static const uint32_t types[] = {[LODE_JSON_NULL] = TC_NULL,     [LODE_JSON_FALSE] = TC_BOOL,
                                     [LODE_JSON_TRUE] = TC_BOOL,     [LODE_JSON_NUMBER] = TC_NUMBER,
                                     [LODE_JSON_STRING] = TC_STRING, [LODE_JSON_ARRAY] = TC_ARRAY,
                                     [LODE_JSON_OBJECT] = TC_OBJECT};
    return types[v->type];
}

static uint32_t types_of(const struct lode_json *root, const struct lode_json *schema, int *refs);

static uint32_t union_of(const struct lode_json *root, const struct lode_json *list, int *refs) {
    uint32_t types = 0;
    for (const struct lode_json *s = lode_json_first(list); s; s = lode_json_next(list, s))
        types |= types_of(root, s, refs);
    return types;
}

/* "#/$defs/Name" */
static const struct lode_json *follow(const struct lode_json *root, struct lode_str ref) {
    static const char *const places[] = {"$defs", "definitions"};
    for (size_t i = 0; i < 2; i++) {
        char prefix[32] = "#/";
        strcat(strcat(prefix, places[i]), "/");
        const struct lode_str start = lode_str(prefix);
        if (lode_str_starts(ref, start))
            return lode_json_getn(lode_json_get(root, places[i]),
                                  (struct lode_str){ref.data + start.len, ref.len - start.len});
    }
    return NULL;
}

static uint32_t types_of(const struct lode_json *root, const struct lode_json *schema, int *refs) {
    static const char *const unions[] = {"anyOf", "oneOf", "allOf"};
    uint32_t types = 0;
    if (!lode_json_is(schema, LODE_JSON_OBJECT) || --*refs < 0)
        return 0;
    const struct lode_json *type = lode_json_get(schema, "type");
    const struct lode_json *ref = lode_json_get(schema, "$ref");
    const struct lode_json *values = lode_json_get(schema, "enum");
    const struct lode_json *value = lode_json_get(schema, "const");
    if (lode_json_is(type, LODE_JSON_STRING))
        return type_named(lode_json_str(type));
    for (const struct lode_json *t = lode_json_first(type); t; t = lode_json_next(type, t))
        if (lode_json_is(t, LODE_JSON_STRING))
            types |= type_named(lode_json_str(t));
    if (types)
        return types;
    if (lode_json_is(ref, LODE_JSON_STRING))
        return types_of(root, follow(root, lode_json_str(ref)), refs);
    for (size_t i = 0; i < 3; i++)
        types |= union_of(root, lode_json_get(schema, unions[i]), refs);
    if (lode_json_is(values, LODE_JSON_ARRAY))
        for (const struct lode_json *v = lode_json_first(values); v; v = lode_json_next(values, v))
            types |= type_of(v);
    return value ? types | type_of(value) : types;
}

uint32_t tc_param_types(const struct lode_json *schema, const char *key, size_t len) {
    int refs = MAX_REFS;
    return types_of(
        schema, lode_json_getn(lode_json_get(schema, "properties"), (struct lode_str){key, len}),
        &refs);
}
