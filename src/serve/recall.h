/* recall.h - a chat's prompt from the tokens that the model sampled, where it wrote a message itself.
 *
 * A message is known by what it says: an assistant's text without the spaces around it and without
 * thinking, its calls by name and by the value of their arguments; ids, spacing and the order of keys
 * do not matter.  A conversation is known by its tools, the template's variables and its messages so
 * far.  The last answer of a conversation that is known this way, with all that led to it, stands in
 * the prompt as it was sampled, thinking included, and only what comes after it is rendered anew.
 */
#ifndef LODE_SERVE_RECALL_H
#define LODE_SERVE_RECALL_H

#include "serve/answers.h"

/* rendered: the prompt by the template, (len).  1: p has its tokens, from memory in part; 0: nothing is known, but
 * p->key is set. */
int recall_prompt(struct prompt *p, const struct served *m, const struct talk *t,
                  const char *rendered, size_t len, struct lode_error *err);
/* The answer's timeline is to be found when the message comes back. */
void recall_answer(const struct prompt *p, const struct choice *c, struct lode_generation *g);

#endif
