/* entry.c - see entry.h. */
#include "entry.h"

#include "interrupt.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum line_result read_once(struct line *lines, char **text) {
    static const char quotes[] = "\"\"\"";
    size_t size = 0;
    FILE *f = open_memstream(text, &size);
    if (!f)
        return LINE_END;
    bool quoted = false, more = true;
    enum line_result got = LINE_TEXT;
    for (int i = 0; more && got == LINE_TEXT; i++) {
        const char *line = "";
        got = line_read(lines, i ? "... " : ">>> ", &line);
        if (got != LINE_TEXT)
            break;
        size_t n = strlen(line);
        if (i == 0 && !strncmp(line, quotes, 3)) {
            quoted = true;
            line += 3;
            n -= 3;
        }
        if (quoted) {
            more = !(n >= 3 && !strcmp(line + n - 3, quotes));
            fprintf(f, "%.*s%s", (int)(more ? n : n - 3), line, more && (n || i) ? "\n" : "");
        } else {
            more = n && line[n - 1] == '\\';
            fprintf(f, "%.*s%s", (int)(more ? n - 1 : n), line, more ? "\n" : "");
        }
    }
    /* an end of input within an entry ends the entry */
    if (got == LINE_END && ftell(f) > 0)
        got = LINE_TEXT;
    if (fclose(f)) {
        free(*text);
        *text = NULL;
        return LINE_END;
    }
    return got;
}

enum line_result entry_read(struct line *lines, char **text) {
    for (bool warned = false;; warned = true) {
        interrupt_clear();
        const enum line_result got = read_once(lines, text);
        if (got != LINE_INTERRUPTED)
            return got;
        fprintf(stderr, "\n%s", warned ? "" : "(Ctrl+C again, or Ctrl+D, leaves)\n");
        if (warned)
            return got;
        free(*text);
        *text = NULL;
    }
}
