/* prompt.h - what a request asks the model to continue, as token ids. */
#ifndef LODE_SERVE_PROMPT_H
#define LODE_SERVE_PROMPT_H

#include "serve/server.h"

struct prompt {
    int32_t *ids; /* (n), owned: prompt_free */
    size_t n;
    bool thinking; /* the template has opened the thinking */
};

struct talk { /* a chat, in OpenAI's shapes, which are those that templates know */
    json_t *messages; /* owned, and ours to change */
    json_t *tools;    /* owned; NULL: none */
    json_t *kwargs;   /* owned; variables of the template; NULL: none */
};
void talk_deinit(struct talk *t);

/* By the model's template.  *text, if given, is the prompt as text (lode_chat_text_free), and no ids
 * are made. */
int prompt_chat(struct prompt *p, const struct served *m, struct talk *t, char **text,
                struct lode_error *err);
/* messages, tools, tool_choice, chat_template_kwargs and what else OpenAI's bodies say of a chat. */
int talk_read(struct talk *t, const json_t *body, struct lode_error *err);
int prompt_tokenize(struct prompt *p, const struct served *m, const char *text, size_t len,
                    int flags, struct lode_error *err);
int prompt_ids(struct prompt *p, const json_t *list, const char *field, struct lode_error *err);
void prompt_free(struct prompt *p);

#endif
