/* chat_source.h - where a chat template and the variables around it come from. */
#ifndef LODE_TOOLS_CHAT_SOURCE_H
#define LODE_TOOLS_CHAT_SOURCE_H

#include "lode/error.h"
#include "lode/tokenizer.h"

#include <jansson.h>
#include <stdbool.h>

/* A template's source: a built-in by its name, Jinja text as it is (what holds "{{" or "{%"), or
 * else a file.  free(*source). */
int chat_template_source(const char *name, char **source, struct lode_error *err);

/* What a model at path, a GGUF file or a directory (weights or not), has: its template,
 * free(*source) (source NULL: not wanted), and its special tokens as bos_token, eos_token, ... in
 * vars. */
int chat_model_source(const char *path, char **source, json_t *vars, struct lode_error *err);

/* Is there a format of tool calls with this name? */
bool chat_knows_format(const char *name);

/* --chat-template-kwargs.  json_decref(*out). */
int chat_parse_kwargs(const char *text, json_t **out, struct lode_error *err);

/* The text of a special token, or "" where the model has none (id -1). */
json_t *chat_token_text(const struct lode_tokenizer *t, int32_t id);

#endif
