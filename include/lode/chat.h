/* chat.h - messages to a prompt, by the model's own Jinja template.
 *
 * Messages, tools and variables travel as JSON text in OpenAI's shapes, so that what a client
 * sends reaches the template as it is.  Output equals that of transformers' apply_chat_template.
 * Templates are untrusted: sizes, steps and depth are bounded (src/text/jinja/value.h).
 */
#ifndef LODE_CHAT_H
#define LODE_CHAT_H

#include "lode/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct lode_template; /* compiled; immutable, shared by threads */

LODE_API int lode_template_compile(struct lode_template **out, const char *source, size_t len,
                                   struct lode_error *err);
LODE_API void lode_template_free(struct lode_template *t);

/* Errors name the template's line.  LODE_ERR_ARG: the template refused these messages, and the text
 * is what it gave to raise_exception, or vars are not JSON; LODE_ERR_FORMAT: an error in Jinja or
 * Python terms; LODE_ERR_LIMIT: a bound was reached. */
/* vars: a JSON object with the template's variables (messages, tools, add_generation_prompt,
 * bos_token, eos_token, enable_thinking, ...).  now: seconds since 1970 for strftime_now; 0: the
 * clock.  *text is owned by the caller (lode_chat_text_free), *len its length. */
LODE_API int lode_template_render(const struct lode_template *t, const char *vars, size_t vars_len,
                                  int64_t now, char **text, size_t *len, struct lode_error *err);
/* The same for what apply_chat_template of transformers is given.  input: a JSON array of messages,
 * or an object with messages and, each optional, tools, documents (null), add_generation_prompt
 * (false), and the objects kwargs (or chat_template_kwargs) and special_tokens, whose members become
 * variables; so do members of other names.  more: a JSON object of variables that input may
 * override, or NULL. */
LODE_API int lode_template_render_chat(const struct lode_template *t, const char *input,
                                       size_t input_len, const char *more, size_t more_len,
                                       int64_t now, char **text, size_t *len,
                                       struct lode_error *err);
LODE_API void lode_chat_text_free(char *text);

/* Templates that need no model's file: the source of one by name ("chatml", "llama3", ...), NULL
 * where there is none; and all names, NULL-terminated. */
LODE_API const char *lode_template_builtin(const char *name);
LODE_API const char *const *lode_template_names(void);

#ifdef __cplusplus
}
#endif
#endif
