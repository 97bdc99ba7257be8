/* compare.h - how far a model's predictions are from another's, both at hand (kld.h: by way of a
 * file). */
#ifndef LODE_TOOLS_COMPARE_H
#define LODE_TOOLS_COMPARE_H

#include "kld.h"

#include "lode/model.h"

struct compare_text {
    const char *text; /* (size) */
    size_t size;
    int32_t window;   /* tokens of each stretch; its second half is scored */
    int64_t most;     /* stretches; negative: all */
    uint32_t threads; /* 0: the library's choice */
    bool (*cancel)(void);
};

/* Sums over the text, with `base` as what `model` should say; free them with kld_sums_free.
 * LODE_ERR_ARG where the text has less than one window, or the vocabularies differ. */
int compare_models(struct kld_sums *sums, struct lode_model *base, struct lode_model *model,
                   const struct compare_text *o, struct lode_error *err);

/* Prose, talk, code and numbers, written for this: some 1,200 tokens; parts, ended by NULL. */
extern const char *const sample_text[];

#endif
