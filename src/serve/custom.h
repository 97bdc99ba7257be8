/* custom.h - custom tools: tools whose call is a text and not JSON (Codex's apply_patch).
 *
 * Templates, forms and parsers of calls know functions only, so such a tool goes to the model as a function
 * of one string, "input", and what is called comes back as that string.  A grammar that its text must follow
 * is shown to the model; one that is a regular expression is enforced, too.
 */
#ifndef LODE_SERVE_CUSTOM_H
#define LODE_SERVE_CUSTOM_H

#include "lode/error.h"

#include <jansson.h>
#include <stddef.h>

/* tool: {name, description, format}, in OpenAI's chats the member "custom", in Responses the tool itself;
 * where: its place in the request.  *out: {name, description, parameters, strict}. */
int custom_function(json_t **out, const json_t *tool, const char *name, const char *where,
                    struct lode_error *err);
/* What a call says: its "input", or, where the model wrote something else or was cut, that as it stands. */
json_t *custom_input(const char *arguments, size_t len);

#endif
