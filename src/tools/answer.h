/* answer.h - one answer: evaluates a prompt, samples until something ends it, streams the text. */
#ifndef LODE_TOOLS_ANSWER_H
#define LODE_TOOLS_ANSWER_H

#include "constraint.h"
#include "input.h"

#include "lode/model.h"
#include "lode/sampler.h"
#include "lode/session.h"
#include "lode/toolcall.h"

#include <jansson.h>

#include <stdbool.h>
#include <stdint.h>

enum answer_end {
    ANSWER_ENDED,       /* the model ended it */
    ANSWER_STOPPED,     /* a stop text appeared */
    ANSWER_LIMIT,       /* as many tokens as allowed */
    ANSWER_FULL,        /* the context is full */
    ANSWER_INTERRUPTED, /* Ctrl+C */
    ANSWER_CLOSED,      /* put said so: nobody reads the output */
};

struct answer_opts {
    struct lode_model *model;
    struct lode_session *session;
    struct lode_sampler *sampler;
    struct constraint *constraint;          /* the form of what follows the thinking; or NULL */
    int64_t n_predict;                      /* tokens at most; negative: no limit */
    const struct lode_toolcall_opts *parse; /* how the text is read; its put gets the events */
    const char *const *stops;               /* (n_stops): texts that end the answer */
    size_t n_stops;
    bool keep_special; /* special tokens appear in the text */
};

struct answer {
    char *text, *thinking; /* owned, NUL-terminated: what put was given; malformed calls are text */
    json_t *calls;         /* owned: a list as messages have it in "tool_calls"; may be empty */
    enum answer_end end;
    size_t n_prompt, n_reused, n_answer; /* tokens */
    double prompt_seconds, answer_seconds;
};

/* Makes the session's timeline equal to the prompt and generates.  An answer is handed out also
 * when it was cut (see end); errors are those of the library, and prompts longer than the
 * context. */
int answer_generate(struct answer *a, const struct answer_opts *o, const struct ids *prompt,
                    struct lode_error *err);
void answer_free(struct answer *a);

/* Why an answer is incomplete, in a sentence for the user; NULL where it is not. */
const char *answer_notice(const struct answer *a, const struct answer_opts *o, char *out,
                          size_t cap);

#endif
