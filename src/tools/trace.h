/* trace.h - the verbs below `lode trace`. */
#ifndef LODE_TOOLS_TRACE_H
#define LODE_TOOLS_TRACE_H

#include "lode/trace.h"

int trace_replay(int argc, char **argv); /* argv[0]: "replay" */

/* lode_trace_open, and a note where damage would not have been seen. */
int trace_open(struct lode_trace **t, const char *path, struct lode_error *err);

#endif
