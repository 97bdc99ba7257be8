/* picks.h - one of a few texts must come next: each as the tokens that it is, told apart as they
 * come.
 *
 *     picks_add(&p, tokenizer, WHAT, arg, "<tool_call>", 11, &err);
 *     ...
 *     i = picks_take(&p, id);                      the one that is complete now: p.list[i].what
 *     picks_clear(&p);
 */
#ifndef LODE_SERVE_PICKS_H
#define LODE_SERVE_PICKS_H

#include "lode/tokenizer.h"

struct pick {
    int32_t *ids; /* owned; (n); none: nothing more has to come */
    size_t n, arg;
    int what; /* what and arg are the owner's */
    bool out; /* another token came */
};

struct picks {         /* zeroed: none */
    struct pick *list; /* owned; (n) */
    size_t n, cap, at; /* at: tokens that have come */
};

#define PICKS_NONE SIZE_MAX

void picks_clear(struct picks *p);
void picks_deinit(struct picks *p);
int picks_add(struct picks *p, const struct lode_tokenizer *t, int what, size_t arg,
              const char *text, size_t len, struct lode_error *err);
/* A token came: which text is complete with it, or PICKS_NONE. */
size_t picks_take(struct picks *p, int32_t id);
/* Whether one begins with this token. */
bool picks_begin_with(const struct picks *p, int32_t id);

#endif
