/* ini.h - settings in a file: [sections] of "key = value" lines, as llama.cpp's presets have them.
 *
 *     # the server
 *     port = 8080
 *
 *     [qwen]
 *     model = /models/qwen3-8b.gguf
 *
 * A line is empty, a comment (# or ; first), a section, or a key with its value.  A value reaches to
 * the end of its line, without the blanks around it; one within "quotes" keeps blanks.
 */
#ifndef LODE_TOOLS_INI_H
#define LODE_TOOLS_INI_H

#include "lode/error.h"

enum { INI_MAX_LINE = 8192 };

/* section: "" before the first one; begin of one: key is NULL.  A negative result ends the reading. */
typedef int ini_put_fn(void *user, const char *section, const char *key, const char *value, int line,
                       struct lode_error *err);

/* text is NUL-terminated and changed: what put is given points into it and stays as long as it does.
 * file: for errors, whose `where` is FILE:LINE. */
int ini_parse(char *text, const char *file, ini_put_fn *put, void *user, struct lode_error *err);

#endif
