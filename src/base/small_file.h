/* small_file.h - what the kernel tells in files of a few lines (/proc, /sys). */
#ifndef LODE_BASE_SMALL_FILE_H
#define LODE_BASE_SMALL_FILE_H

#include <stdbool.h>
#include <stdio.h>

enum { LODE_LINE = 1024 }; /* longer lines are cut */

/* The file below `root`; NULL where there is none, or its path is too long. */
__attribute__((format(printf, 2, 3))) FILE *lode_open_under(const char *root, const char *fmt, ...);

/* These take f (may be NULL) and close it. */

/* The first line, without its newline; false: no file, or empty. */
bool lode_first_line(FILE *f, char line[LODE_LINE]);
/* The rest of the first line that begins with `key`, after any blanks and a colon. */
bool lode_value_of(FILE *f, const char *key, char value[LODE_LINE]);

#endif
