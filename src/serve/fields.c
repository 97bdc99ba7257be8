/* fields.c - see fields.h. */
#include "serve/fields.h"

#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int field_fail(struct lode_error *err, const char *name, const char *text, ...) {
    va_list args;
    va_start(args, text);
    *err = (struct lode_error){.code = LODE_ERR_ARG};
    snprintf(err->where, sizeof err->where, "%s", name);
    vsnprintf(err->text, sizeof err->text, text, args);
    va_end(args);
    return LODE_ERR_ARG;
}

static const char *type_name(const json_t *v) {
    static const char *const names[] = {"an object", "an array",  "a string", "a whole number",
                                        "a number",  "a boolean", "a boolean"};
    const size_t type = (size_t)json_typeof(v);
    return type < sizeof names / sizeof *names ? names[type] : "null";
}

/* The field, or NULL where there is none. */
static const json_t *get(const json_t *body, const char *name) {
    const json_t *v = json_object_get(body, name);
    return json_is_null(v) ? NULL : v;
}

static int wrong_type(struct lode_error *err, const char *name, const char *want, const json_t *v) {
    return field_fail(err, name, "%s expected, not %s", want, type_name(v));
}

int field_bool(const json_t *body, const char *name, bool *out, struct lode_error *err) {
    const json_t *v = get(body, name);
    if (v && !json_is_boolean(v))
        return wrong_type(err, name, "a boolean", v);
    if (v)
        *out = json_is_true(v);
    return 0;
}

int field_int(const json_t *body, const char *name, int64_t low, int64_t high, int64_t *out,
              struct lode_error *err) {
    const json_t *v = get(body, name);
    if (v && !json_is_integer(v))
        return wrong_type(err, name, "a whole number", v);
    if (v && (json_integer_value(v) < low || json_integer_value(v) > high))
        return field_fail(err, name, "%lld; %lld to %lld expected",
                          (long long)json_integer_value(v), (long long)low, (long long)high);
    if (v)
        *out = json_integer_value(v);
    return 0;
}

int field_real(const json_t *body, const char *name, double low, double high, float *out,
               struct lode_error *err) {
    const json_t *v = get(body, name);
    if (v && !json_is_number(v))
        return wrong_type(err, name, "a number", v);
    if (v && !(json_number_value(v) >= low && json_number_value(v) <= high))
        return field_fail(err, name, "%g; %g to %g expected", json_number_value(v), low, high);
    if (v)
        *out = (float)json_number_value(v);
    return 0;
}

int field_string(const json_t *body, const char *name, const char **out, struct lode_error *err) {
    const json_t *v = get(body, name);
    if (v && !json_is_string(v))
        return wrong_type(err, name, "a string", v);
    if (v)
        *out = json_string_value(v);
    return 0;
}

int field_text(const json_t *v, const char *where, const char *name, const char **out, struct lode_error *err) {
    const json_t *text = get(v, name);
    char place[160];
    *out = json_is_string(text) ? json_string_value(text) : "";
    if (!text || json_is_string(text))
        return 0;
    snprintf(place, sizeof place, "%.120s.%.36s", where, name);
    return wrong_type(err, place, "a string", text);
}

int field_array(const json_t *body, const char *name, json_t **out, struct lode_error *err) {
    const json_t *v = get(body, name);
    if (v && !json_is_array(v))
        return wrong_type(err, name, "an array", v);
    if (v)
        *out = (json_t *)v;
    return 0;
}

int field_object(const json_t *body, const char *name, json_t **out, struct lode_error *err) {
    const json_t *v = get(body, name);
    if (v && !json_is_object(v))
        return wrong_type(err, name, "an object", v);
    if (v)
        *out = (json_t *)v;
    return 0;
}

static int add_text(const char *text, size_t len, void *user) {
    return lode_buf_add(user, text, len) ? 0 : -1;
}

char *json_text_as(const json_t *v, size_t flags) {
    struct lode_buf b = {0};
    const int rc = json_dump_callback(v, add_text, &b, JSON_COMPACT | JSON_ENCODE_ANY | flags);
    char *text = rc || b.failed ? NULL : strndup(lode_buf_str(&b).data, b.len);
    lode_buf_free(&b);
    return text;
}

char *json_text(const json_t *v) { return json_text_as(v, 0); }
