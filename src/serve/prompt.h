/* prompt.h - what a request asks the model to continue, as token ids. */
#ifndef LODE_SERVE_PROMPT_H
#define LODE_SERVE_PROMPT_H

#include "serve/server.h"
#include "serve/talk.h"

struct prompt {
    int32_t *ids; /* (n), owned: prompt_free */
    size_t n;
    bool thinking; /* the template has opened the thinking */
    bool has_key;  /* of a chat, see recall.h */
    uint64_t key[2];
};

/* By the model's template, whose answers are in this style.  *text, if given, is the prompt as text
 * (lode_chat_text_free), and no ids are made. */
int prompt_chat(struct prompt *p, const struct served *m, const struct talk *t,
                const struct lode_toolcall_style *style, char **text, struct lode_error *err);
/* What the template makes of it (lode_chat_text_free). */
int prompt_render(const struct served *m, const struct talk *t, char **text, size_t *len,
                struct lode_error *err);
int prompt_tokenize(struct prompt *p, const struct served *m, const char *text, size_t len,
                    int flags, struct lode_error *err);
/* p, what stands before a gap, and the text behind it become what a model that was trained to fill gaps
 * continues with what belongs between.  LODE_ERR_ARG, of "suffix", where its vocabulary has no tokens for
 * that. */
int prompt_around(struct prompt *p, const struct served *m, const char *suffix, size_t len,
                  struct lode_error *err);
int prompt_ids(struct prompt *p, const json_t *list, const char *field, struct lode_error *err);
void prompt_free(struct prompt *p);

#endif
