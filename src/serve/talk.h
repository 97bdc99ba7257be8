/* talk.h - a chat: its messages and tools in OpenAI's shapes, which are those that templates know. */
#ifndef LODE_SERVE_TALK_H
#define LODE_SERVE_TALK_H

#include "serve/calls.h"


struct talk {
    json_t *messages; /* owned, and ours to change */
    json_t *tools;    /* owned; NULL: none */
    json_t *custom;   /* owned; names of those that are custom tools (custom.h); NULL: none */
    json_t *kwargs;   /* owned; variables of the template; NULL: none */
    enum tool_choice choice;
    const char *only; /* the one tool that must be called; borrowed from the body; NULL: any */
    bool one_call;    /* not several in one answer */
    bool goes_on;     /* the answer goes on where the last message, an assistant's text, ends */
};
void talk_deinit(struct talk *t);

/* messages, tools, tool_choice and what else OpenAI's bodies say of a chat. */
int talk_read(struct talk *t, const json_t *body, struct lode_error *err);
/* A chat's list: functions, custom tools; those that OpenAI's servers would run are left out. */
int talk_chat_tools(struct talk *t, const json_t *list, const json_t *choice, struct lode_error *err);
bool talk_is_custom(const struct talk *t, const char *name);
/* Checks {name, description, strict} and the schema under this name; where: its place in the request. */
int talk_function(const json_t *f, const char *where, const char *parameters, struct lode_error *err);
/* Tools as a list of functions (kept), and what tool_choice says of them. */
int talk_tools(struct talk *t, json_t *tools, const json_t *choice, struct lode_error *err);
/* Messages as templates want them: text joined, roles that they know, arguments as objects. */
int talk_settle(struct talk *t, struct lode_error *err);
/* A variable of the template that has no value yet; takes value. */
int talk_default(struct talk *t, const char *name, json_t *value, struct lode_error *err);
/* For templates without tools. */
int talk_tools_as_text(struct talk *t, struct lode_error *err);

#endif
