/* guide.h - which tokens of an answer may come: a form for all of it, or calls of tools as they must
 * be written (lode_generation_guide of lode/scheduler.h).
 *
 * Thinking is free; what is held begins behind it.  Tags and names of calls are the likeliest of what
 * is possible, whatever the sampler is set to; what stands in their arguments is sampled.
 */
#ifndef LODE_SERVE_GUIDE_H
#define LODE_SERVE_GUIDE_H

#include "serve/calls.h"

#include "lode/scheduler.h"

struct guide_opts {
    struct forms *forms;
    const struct lode_tokenizer *tokenizer;
    struct lode_toolcall_style style;
    bool thinking;       /* the prompt has opened it */
    struct form *form;   /* held by the guide too; NULL: any text */
    struct calls *calls; /* the same; NULL: none */
    const char *tools;   /* JSON, for the parser; copied by it */
};

/* Its memory is the guide's own: it may outlive the request.  Both NULL gives an empty guide. */
int guide_create(struct lode_generation_guide *out, const struct guide_opts *o,
                 struct lode_error *err);

#endif
