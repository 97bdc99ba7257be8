/* remote.h - `lode run --url`: a chat through a server that runs somewhere else. */
#ifndef LODE_TOOLS_REMOTE_H
#define LODE_TOOLS_REMOTE_H

#include "run.h"

/* The exit status. */
int remote_run(struct run *r);

#endif
