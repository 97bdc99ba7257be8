/* chat.h - a conversation as OpenAI's messages, and the prompt that a template makes of it. */
#ifndef LODE_TOOLS_CHAT_H
#define LODE_TOOLS_CHAT_H

#include "input.h"

#include "lode/chat.h"
#include "lode/model.h"
#include "lode/toolcall.h"

#include <jansson.h>
#include <stdbool.h>

enum chat_think { CHAT_THINK_DEFAULT, CHAT_THINK_ON, CHAT_THINK_OFF };

struct chat {
    const struct lode_model *model;
    struct lode_template *tmpl; /* owned; NULL: the model has none, see chat_init */
    json_t *messages;           /* owned: [{"role", "content", ...}] */
    json_t *extra;              /* owned: more variables for the template; may be NULL */
    json_t *tools;              /* owned: those that the conversation's file names; may be NULL */
    enum chat_think think;
    struct lode_toolcall_style style; /* what the template speaks */
};

/* template: what to use instead of the model's (chat_source.h); NULL: the model's.
 * extra: a JSON object with more variables, or NULL. */
int chat_init(struct chat *c, const struct lode_model *model, const char *template,
              const char *extra, struct lode_error *err);
void chat_deinit(struct chat *c);

/* Appends a message.  thinking may be NULL. */
int chat_add(struct chat *c, const char *role, const char *content, const char *thinking,
             struct lode_error *err);
/* Appends an answer; calls: its "tool_calls", which may be empty or NULL. */
int chat_add_answer(struct chat *c, const char *content, const char *thinking, json_t *calls,
                    struct lode_error *err);
/* Replaces the system message ("" removes it). */
int chat_set_system(struct chat *c, const char *content, struct lode_error *err);
const char *chat_system(const struct chat *c); /* "" without one; borrowed */
void chat_drop_last(struct chat *c);
void chat_clear(struct chat *c); /* keeps the system message */
size_t chat_length(const struct chat *c);
/* Somebody has spoken since the last answer. */
bool chat_awaits_answer(const struct chat *c);

/* The prompt for the next answer.  *thinking: the template has already opened the thinking. */
int chat_prompt(const struct chat *c, struct ids *out, bool *thinking, struct lode_error *err);

int chat_save(const struct chat *c, const char *path, struct lode_error *err);
/* Replaces the conversation, and the tools if the file has some; on an error it stays as it was. */
int chat_load(struct chat *c, const char *path, struct lode_error *err);

#endif
