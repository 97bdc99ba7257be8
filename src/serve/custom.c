/* custom.c - see custom.h. */
#include "serve/custom.h"

#include "serve/fields.h"
#include "serve/json_read.h"
#include "serve/request.h"

#include <stdio.h>
#include <string.h>

static const char *text_member(const json_t *v, const char *name) {
    return json_string_value(json_object_get(v, name));
}

/* {"type": "grammar", "syntax", "definition"}, where chats have the last two in a "grammar" of their own. */
static int read_format(const json_t *tool, const char *where, const char **syntax, const char **definition,
                       struct lode_error *err) {
    const json_t *format = json_object_get(tool, "format"), *inner = json_object_get(format, "grammar");
    const json_t *from = inner ? inner : format;
    const char *type = text_member(format, "type");
    char place[128];
    *syntax = *definition = NULL;
    if (!format || json_is_null(format) || (type && !strcmp(type, "text")))
        return 0;
    snprintf(place, sizeof place, "%.100s.format", where);
    if (!type || strcmp(type, "grammar"))
        return field_fail(err, place, "its type must be \"text\" or \"grammar\"");
    *syntax = text_member(from, "syntax");
    *definition = text_member(from, "definition");
    if (!*definition || !*syntax || (strcmp(*syntax, "lark") && strcmp(*syntax, "regex")))
        return field_fail(err, place, "a \"syntax\", \"lark\" or \"regex\", and a \"definition\" expected");
    return 0;
}

int custom_function(json_t **out, const json_t *tool, const char *name, const char *where,
                    struct lode_error *err) {
    const char *about = text_member(tool, "description"), *syntax, *definition;
    *out = NULL;
    const int rc = read_format(tool, where, &syntax, &definition, err);
    if (rc < 0)
        return rc;
    const bool regex = syntax && !strcmp(syntax, "regex");
    json_t *input = json_pack("{s:s}", "type", "string");
    if (regex && json_object_set_new(input, "pattern", json_sprintf("^(?:%s)$", definition))) {
        json_decref(input);
        return request_no_memory(err);
    }
    json_t *f = json_pack("{s:s, s:{s:s, s:{s:o}, s:[s], s:b}, s:b}", "name", name, "parameters", "type",
                          "object", "properties", "input", input, "required", "input", "additionalProperties", 0,
                          "strict", regex);
    json_t *text = definition ? json_sprintf("%s%sThe input follows this grammar (%s):\n%s", about ? about : "",
                                             about ? "\n" : "", syntax, definition)
                   : about    ? json_string(about)
                              : NULL;
    if (!f)
        json_decref(text);
    if (!f || ((about || definition) && json_object_set_new(f, "description", text))) {
        json_decref(f);
        return request_no_memory(err);
    }
    *out = f;
    return 0;
}

json_t *custom_input(const char *arguments, size_t len) {
    json_t *all = json_read(arguments, len, 0, NULL), *input = json_incref(json_object_get(all, "input"));
    json_decref(all);
    if (json_is_string(input))
        return input;
    json_decref(input);
    return json_stringn(arguments, len);
}
