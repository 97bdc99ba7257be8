/* render_lines.c - renders templates line by line, for tests/jinja_fuzz.py: each line read is
 * {"template", "vars"} (vars: JSON text), each line printed {"text"} or {"error", "line", "code"}.
 */
#include "lode/chat.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOW = 1768480496 }; /* 2026-01-15 12:34:56 UTC, as tests/data/templates/make.py has it */

static int render(const char *source, size_t len, const char *vars, char **text, size_t *n,
                  struct lode_error *err) {
    struct lode_template *t;
    int rc = lode_template_compile(&t, source, len, err);
    if (rc < 0)
        return rc;
    rc = lode_template_render(t, vars, strlen(vars), NOW, text, n, err);
    lode_template_free(t);
    return rc;
}

int main(void) {
    char *line = NULL;
    size_t cap = 0;
    for (ssize_t n; (n = getline(&line, &cap, stdin)) >= 0;) {
        json_t *in = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, NULL);
        const json_t *source = json_object_get(in, "template");
        const char *vars = json_string_value(json_object_get(in, "vars"));
        struct lode_error err = {0};
        char *text = NULL;
        size_t len = 0;
        if (!source || !vars)
            return 2;
        unsigned at = 0;
        const int rc =
            render(json_string_value(source), json_string_length(source), vars, &text, &len, &err);
        if (rc < 0)
            sscanf(err.where, "chat template line %u", &at);
        json_t *out =
            rc < 0 ? json_pack("{s:s, s:i, s:i}", "error", err.text, "line", (int)at, "code", rc)
                   : json_pack("{s:o}", "text", json_stringn(text, len));
        json_dumpf(out, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(out);
        json_decref(in);
        lode_chat_text_free(text);
    }
    free(line);
    return 0;
}
