#include "base/small_file.h"

#include <stdarg.h>
#include <string.h>

enum { PATH = 1024 };

FILE *lode_open_under(const char *root, const char *fmt, ...) {
    char path[PATH];
    const int start = snprintf(path, sizeof path, "%s", root);
    if (start < 0 || start >= PATH)
        return NULL;
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(path + start, sizeof path - (size_t)start, fmt, ap);
    va_end(ap);
    return n < 0 || n >= PATH - start ? NULL : fopen(path, "re");
}

bool lode_first_line(FILE *f, char line[LODE_LINE]) {
    if (!f)
        return false;
    const bool ok = fgets(line, LODE_LINE, f) != NULL;
    fclose(f);
    if (ok)
        line[strcspn(line, "\n")] = 0;
    return ok;
}

bool lode_value_of(FILE *f, const char *key, char value[LODE_LINE]) {
    char line[LODE_LINE];
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        const char *p = line + strlen(key);
        p += strspn(p, " \t:");
        snprintf(value, LODE_LINE, "%s", p);
        value[strcspn(value, "\n")] = 0;
        found = true;
    }
    if (f)
        fclose(f);
    return found;
}
