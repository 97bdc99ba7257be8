/* loosen.c - see loosen.h. */
#include "serve/loosen.h"

#include "serve/fields.h"
#include "serve/request.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_TAKEN = 16 };

/* Undoes ~1 and ~0 of a pointer's step, in place. */
static void decode_step(char *s) {
    char *to = s;
    for (; *s; s++)
        *to++ = *s == '~' && (s[1] == '0' || s[1] == '1') ? *++s == '0' ? '~' : '/' : *s;
    *to = 0;
}

/* Takes out what "#/a/b/0" points to; a schema in a list becomes one that says nothing. */
static bool take_out(json_t *schema, const char *pointer) {
    char step[256];
    if (pointer[0] != '#' || pointer[1] != '/')
        return false;
    pointer += 2;
    for (json_t *v = schema; v;) {
        const size_t n = strcspn(pointer, "/");
        const bool last = !pointer[n];
        if (n >= sizeof step)
            return false;
        memcpy(step, pointer, n);
        step[n] = 0;
        decode_step(step);
        if (last && json_is_object(v))
            return json_object_del(v, step) == 0;
        if (last && json_is_array(v))
            return json_array_set_new(v, strtoul(step, NULL, 10), json_true()) == 0;
        if (last)
            return false;
        v = json_is_array(v) ? json_array_get(v, strtoul(step, NULL, 10)) : json_object_get(v, step);
        pointer += n + 1;
    }
    return false;
}

int loosened_form(struct forms *forms, const json_t *schema, struct form **out, struct lode_error *err) {
    json_t *copy = json_deep_copy(schema);
    int rc = copy ? 0 : LODE_ERR_NOMEM;
    *out = NULL;
    for (int taken = 0; rc == 0 && !*out && taken <= MOST_TAKEN; taken++) {
        char *text = json_text(copy);
        rc = text ? forms_get(forms, LODE_GRAMMAR_SCHEMA, text, strlen(text), out, err) : LODE_ERR_NOMEM;
        free(text);
        if (rc < 0 && rc != LODE_ERR_NOMEM && !take_out(copy, err->where))
            break;
        rc = rc == LODE_ERR_NOMEM ? rc : 0;
    }
    json_decref(copy);
    return rc < 0 ? request_no_memory(err) : 0;
}
