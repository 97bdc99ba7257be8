/* toolbox.h - tools that a model may call on this machine, each call asked for first.
 *
 * "builtin" is read_file, list_directory and run_command.  A file holds a JSON list of tools in
 * OpenAI's shape, each with a "command" beside its "function": a list of words, run without a
 * shell, which gets the call's arguments as JSON on standard input.
 *
 * Before each call its name and arguments are shown on the terminal and a person is asked: y this
 * once, a this tool from now on, anything else not.  Without a terminal nothing is run, unless `yes`
 * was given.  What a tool prints is cut at some tens of kilobytes, and says so.
 */
#ifndef LODE_TOOLS_TOOLBOX_H
#define LODE_TOOLS_TOOLBOX_H

#include "lode/error.h"

#include <jansson.h>
#include <stdbool.h>

struct toolbox;

int toolbox_open(struct toolbox **out, const char *source, bool yes, struct lode_error *err);
void toolbox_close(struct toolbox *t);
/* The tools as a request names them: borrowed. */
json_t *toolbox_list(const struct toolbox *t);
/* Does a call, having asked; arguments: JSON text.  What went wrong is a result too: the model is to
 * read it.  *result: free it.  Negative: no memory, or the person wants to stop. */
int toolbox_call(struct toolbox *t, const char *name, const char *arguments, char **result,
                 struct lode_error *err);
/* All calls of an assistant's message ({"tool_calls": ...}): their results are appended to messages
 * as the role "tool".  The number of calls, or an error. */
int toolbox_answer(struct toolbox *t, json_t *messages, const json_t *calls, struct lode_error *err);

#endif
