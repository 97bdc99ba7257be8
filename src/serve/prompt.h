/* prompt.h - what a request asks the model to continue, as token ids. */
#ifndef LODE_SERVE_PROMPT_H
#define LODE_SERVE_PROMPT_H

#include "serve/server.h"

struct prompt {
    int32_t *ids; /* (n), owned: prompt_free */
    size_t n;
    bool thinking; /* the template has opened the thinking */
    json_t *tools; /* borrowed from the body; NULL: none */
};

/* Of a chat: messages, tools, chat_template_kwargs, by the model's template.  *text, if given, is the
 * prompt as text (lode_chat_text_free), and no ids are made. */
int prompt_chat(struct prompt *p, const struct server *s, const json_t *body, char **text,
                struct lode_error *err);
/* Of a completion: a string, or a list of token ids. */
int prompt_plain(struct prompt *p, const struct server *s, const json_t *body,
                 struct lode_error *err);
int prompt_tokenize(struct prompt *p, const struct server *s, const char *text, size_t len,
                    int flags, struct lode_error *err);
int prompt_ids(struct prompt *p, const json_t *list, const char *field, struct lode_error *err);
void prompt_free(struct prompt *p);

#endif
