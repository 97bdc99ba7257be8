/* jobs.h - whole jobs on a scheduler: many prompts at once, given continuations weighed, beams.
 *
 * They are requests like others (lode/scheduler.h): they share steps, pages and prefixes with each
 * other and with whoever else runs, and no number depends on that.  The calling thread waits.
 *
 *     struct lode_scored labels[] = {{.prompt = prompt, .text = yes}, {.prompt = prompt, .text = no}};
 *     lode_score(s, labels, 2, NULL, &err);
 */
#ifndef LODE_JOBS_H
#define LODE_JOBS_H

#include "lode/scheduler.h"

#ifdef __cplusplus
extern "C" {
#endif

struct lode_ids {
    const int32_t *ids; /* (n) */
    size_t n;
};

struct lode_job_opts { /* zero means the default */
    bool (*cancel)(void *user); /* asked some times a second; true: LODE_ERR_CANCELLED */
    void *cancel_user;
};

struct lode_scored {
    struct lode_ids prompt, text;
    double logprob; /* of the text after the prompt, under the plain softmax: the sum of its tokens' */
};
/* Fills in logprob.  Nothing is generated: a text costs what reading it costs.  A prompt that is that of the
 * pair before too (the same ids at the same place) is read once. */
LODE_API int lode_score(struct lode_scheduler *s, struct lode_scored *pairs, size_t n,
                        const struct lode_job_opts *opts, struct lode_error *err);

/* A token of request i (t), or its end (t NULL; result: a lode_generation_result or an error, which err
 * then describes).  Tokens of one request come in order.  Non-zero stops all: LODE_ERR_CANCELLED. */
typedef int lode_many_fn(void *user, size_t i, const struct lode_generation_token *t, int result,
                         const struct lode_error *err);
/* Runs all requests, as many at once as there are slots; a request that fails ends alone. */
LODE_API int lode_generate_many(struct lode_scheduler *s, const struct lode_generation_opts *requests,
                                size_t n, lode_many_fn *fn, void *user, struct lode_error *err);

struct lode_beam {
    int32_t *ids; /* (n): what follows the prompt, an end token included */
    size_t n;
    double logprob; /* of all of it */
    double score;   /* logprob / n ^ length_penalty: the order of the result */
    bool ended;     /* by the model, not by max_tokens or the context */
};
struct lode_beam_opts {   /* zero means the default */
    uint32_t width;       /* beams; 0: 4; at most LODE_GENERATION_TOP / 2 */
    uint32_t max_tokens;  /* 0: 64 */
    float length_penalty; /* 0: 1, the mean log-probability; negative: 0, the sum */
    struct lode_job_opts job;
};
/* The best continuations, the best first: *out (n at most the width), for lode_beams_free.  Stops when
 * as many have ended as the width and no other can become better. */
LODE_API int lode_beam_search(struct lode_scheduler *s, struct lode_ids prompt,
                              const struct lode_beam_opts *opts, struct lode_beam **out, size_t *n,
                              struct lode_error *err);
LODE_API void lode_beams_free(struct lode_beam *beams, size_t n);

#ifdef __cplusplus
}
#endif
#endif
