/* ini.c - see ini.h. */
#include "ini.h"

#include "out.h"

#include <stdio.h>
#include <string.h>

static char *trim(char *s) {
    s += strspn(s, " \t");
    size_t n = strlen(s);
    while (n && (s[n - 1] == ' ' || s[n - 1] == '\t' || s[n - 1] == '\r'))
        n--;
    s[n] = 0;
    return s;
}

static bool is_name(const char *s) {
    for (; *s; s++)
        if ((unsigned char)*s < ' ' || *s == 0x7f)
            return false;
    return true;
}

static int parse_line(char *line, const char **section, const char *where, int at, ini_put_fn *put,
                      void *user, struct lode_error *err) {
    if (!*line || *line == '#' || *line == ';')
        return 0;
    if (!is_name(line))
        return tool_fail(err, LODE_ERR_FORMAT, where, "a control character");
    if (*line == '[') {
        char *end = strchr(line, ']');
        if (!end || end[1])
            return tool_fail(err, LODE_ERR_FORMAT, where, "a section is [NAME], alone on its line");
        *end = 0;
        *section = trim(line + 1);
        if (!**section)
            return tool_fail(err, LODE_ERR_FORMAT, where, "a section without a name");
        return put(user, *section, NULL, NULL, at, err);
    }
    char *equals = strchr(line, '=');
    if (!equals)
        return tool_fail(err, LODE_ERR_FORMAT, where, "\"key = value\" expected, not \"%.60s\"", line);
    *equals = 0;
    char *key = trim(line), *value = trim(equals + 1);
    const size_t n = strlen(value);
    if (!*key)
        return tool_fail(err, LODE_ERR_FORMAT, where, "a value without a key");
    if (*value == '"') {
        if (n < 2 || value[n - 1] != '"')
            return tool_fail(err, LODE_ERR_FORMAT, where, "a quote that does not end");
        value[n - 1] = 0;
        value++;
    }
    return put(user, *section, key, value, at, err);
}

int ini_parse(char *text, const char *file, ini_put_fn *put, void *user, struct lode_error *err) {
    const char *section = "";
    int rc = 0, at = 0;
    if (!strncmp(text, "\xef\xbb\xbf", 3)) /* as some editors begin a file */
        text += 3;
    while (rc == 0 && text && *text) {
        char where[256], *end = strchr(text, '\n');
        snprintf(where, sizeof where, "%.230s:%d", file, ++at);
        if (end)
            *end++ = 0;
        if (strlen(text) > INI_MAX_LINE)
            rc = tool_fail(err, LODE_ERR_LIMIT, where, "the line is longer than %d bytes", INI_MAX_LINE);
        else
            rc = parse_line(trim(text), &section, where, at, put, user, err);
        text = end;
    }
    return rc;
}
