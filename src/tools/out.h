/* out.h - what the program says, and where.
 *
 * Results go to standard output, everything else to standard error.  Colours and progress appear
 * on terminals only (NO_COLOR is respected).  SIGPIPE is ignored, so that a closed pipe is an error
 * like any other: out_finish says so in one sentence.
 *
 * An output file is written beside its target and renamed when complete (outfile_*): a failure or
 * an interrupt leaves what was there before.  Targets that are not regular files (/dev/stdout,
 * pipes) are written directly.  What is a model stays one: it is refused as a target.
 */
#ifndef LODE_TOOLS_OUT_H
#define LODE_TOOLS_OUT_H

#include "lode/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

void out_init(void);
/* Flushes and closes standard output; the exit status to leave with. */
int out_finish(int status);
/* Flushes; false once standard output can no longer be written, so that long work can stop. */
bool out_flush(void);

/* "text", escaped as JSON wants. */
void out_json_string(FILE *f, const char *s);

bool out_is_terminal(FILE *f);
/* Of the terminal that f is; SIZE_MAX where it is none. */
size_t out_columns(FILE *f);
/* Escape sequences, or "" where f is not a terminal that wants them. */
const char *out_bold(FILE *f);
const char *out_dim(FILE *f);
const char *out_red(FILE *f);
const char *out_green(FILE *f);
const char *out_plain(FILE *f);

/* Fills err (NULL is fine) and returns code. */
int tool_fail(struct lode_error *err, int code, const char *where, const char *text, ...)
    __attribute__((format(printf, 4, 5)));
/* Prints "lode: where: text" to standard error; returns the exit status 1. */
int tool_report(const struct lode_error *err);
/* The same, of a verb that was not built because a library was not there. */
int tool_left_out(const char *verb, const char *library);

/* Whether a file could be made or replaced there, asked before work whose result it takes; made by others or by
 * later, as the profile, a trace, a list of hot experts.  A model is never written over. */
int out_may_write(const char *path, struct lode_error *err);

struct outfile {
    FILE *f;
    const char *path;     /* borrowed */
    int cause;            /* errno of the first write that failed */
    char temporary[4096]; /* "" when the target is written directly */
};

int outfile_open(struct outfile *o, const char *path, struct lode_error *err);
/* The folders above path, the user's alone where they are made; path is as it was afterwards.  err: NULL or LODE_ERR_IO. */
int outfile_folders(char *path, struct lode_error *err);
/* False when it cannot be written; outfile_commit says why. */
bool outfile_write(struct outfile *o, const void *data, size_t size);
/* Flushes, checks, renames.  After an error nothing is left behind. */
int outfile_commit(struct outfile *o, struct lode_error *err);
/* Removes what was written; does nothing after commit. */
void outfile_abandon(struct outfile *o);

#endif
