/* trace.h - the verbs below `lode trace`. */
#ifndef LODE_TOOLS_TRACE_H
#define LODE_TOOLS_TRACE_H

int trace_replay(int argc, char **argv); /* argv[0]: "replay" */

#endif
