/* line.h - lines typed by a person: edited and remembered with libedit where the build has it. */
#ifndef LODE_TOOLS_LINE_H
#define LODE_TOOLS_LINE_H

#include <stddef.h>

struct line;

enum line_result { LINE_TEXT, LINE_END, LINE_INTERRUPTED };

/* words: NULL-terminated; Tab completes a line's first word from them.  NULL without memory. */
struct line *line_open(const char *const *words);
void line_close(struct line *l);

/* *text (borrowed until the next call) has no newline at its end. */
enum line_result line_read(struct line *l, const char *prompt, const char **text);
/* Remembers an entry for the arrow keys, and for the next time. */
void line_remember(struct line *l, const char *text);

#endif
