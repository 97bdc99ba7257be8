/* scheduler.h - many requests on one model at once: continuous batching.
 *
 * A scheduler owns some slots, the pages of keys and values that they share, and a thread that steps
 * them.  Requests join and leave between steps: each step feeds every running request its last token,
 * and what room is left goes to the prompts of others, in chunks, so that no stream waits for
 * another's long prompt.
 *
 * Requests beyond the slots, or beyond what the pages hold, wait in a queue: higher priorities first,
 * within one fairly among clients, each client's by their deadlines, else in order of arrival.  Where pages run out, the
 * request that comes last goes back to the queue, and what it had read and written is read anew.
 *
 * What has been read stays as long as its pages are not wanted otherwise: a request that begins like
 * an earlier one goes on from where they part.
 *
 * A request's tokens depend on its prompt, its options and nothing else: not on its neighbours, on
 * what was kept, or on whether it had to give way.
 *
 *     struct lode_scheduler *s;
 *     lode_scheduler_create(&s, model, &(struct lode_scheduler_opts){ .slots = 8 }, &err);
 *     struct lode_generation *g;
 *     lode_generation_start(&g, s, &opts, &err);
 *     while ((rc = lode_generation_next(g, &token, -1, &err)) == LODE_GENERATION_TOKEN) ...
 *     lode_generation_free(g);                     at any time: cancels within one step
 *     lode_scheduler_free(s);                      after its generations
 *
 * Any thread may start generations; one thread at a time uses each.  All memory of a request is
 * allocated by lode_generation_start, so that what cannot be had fails that request alone.
 */
#ifndef LODE_SCHEDULER_H
#define LODE_SCHEDULER_H

#include "lode/sampler.h"
#include "lode/session.h"

#ifdef __cplusplus
extern "C" {
#endif

struct lode_scheduler;
struct lode_generation;

struct lode_scheduler_opts {          /* zero means the default */
    struct lode_session_opts session; /* of each slot; with, trace and cancel are not used */
    uint32_t slots;                   /* requests that run at once; 0: 4 */
    uint32_t queue;                   /* requests that may wait; 0: 64 */
    uint32_t chunk; /* prompt tokens of one step while others are answered; 0: 64 */
    uint64_t kv_tokens; /* that the pages hold for all slots and prefixes together, at least a context;
                           0: a context for each slot, or what memory has room for */
    uint64_t cache_bytes; /* the most of it that prefixes may hold; 0: what no request needs */
    bool no_cache;        /* nothing is kept */
    const char *cache_dir; /* prefixes are kept here too, and found again by the next process; NULL: they
                              are not */
    uint64_t cache_dir_bytes; /* the most that the directory may hold; 0: 16 GiB */
};

/* LODE_ERR_LIMIT with the numbers where not even one context fits the memory. */
LODE_API int lode_scheduler_create(struct lode_scheduler **out, struct lode_model *m,
                                   const struct lode_scheduler_opts *opts, struct lode_error *err);
/* Its generations must have been freed. */
LODE_API void lode_scheduler_free(struct lode_scheduler *s);
/* Of NULL, a model that has none because it gives vectors only: nothing. */
LODE_API uint32_t lode_scheduler_ctx(const struct lode_scheduler *s); /* of each slot */
LODE_API uint32_t lode_scheduler_slots(const struct lode_scheduler *s);

enum { LODE_SCHEDULER_BATCHES = 11 };

struct lode_disk_info {      /* of cache_dir */
    uint64_t bytes, entries; /* bytes: of all entries; an entry is 64 tokens, or a recurrent state */
    uint64_t foreign;        /* entries of another model, numerics, device or format: kept, not used */
    uint64_t corrupt, evicted;
    uint64_t written, read, errors; /* by this process */
};

struct lode_scheduler_stats {
    uint32_t running, waiting;           /* requests now */
    uint64_t kv_used, kv_size;           /* tokens that running requests hold; that all pages can hold */
    uint32_t pages, free_pages;          /* of 64 tokens; free: held neither by requests nor by prefixes */
    uint64_t cached_bytes;               /* of prefixes, shared with running requests or not */
    uint64_t evictions;                  /* pages of prefixes that gave way */
    uint64_t recall_bytes;               /* of remembered answers, 64 MiB at most */
    uint64_t finished, cancelled, failed; /* requests that have run, by how they ended */
    uint64_t refused;                    /* requests that found the queue full */
    uint64_t expired;                    /* requests whose deadline passed; counted as failed too */
    uint64_t started;                    /* requests that have left the queue, and how long they waited: */
    double queue_seconds;
    uint64_t preemptions;                /* requests that had to give way, */
    uint64_t recomputed_tokens;          /* and what was read again for it */
    uint64_t forks;                      /* requests that took another's prompt over */
    uint64_t prompt_tokens, reused_tokens, generated_tokens; /* prompts: reused ones included */
    uint64_t steps, fed_tokens;          /* steps, and the tokens they evaluated */
    uint64_t batches[LODE_SCHEDULER_BATCHES]; /* steps by their requests: 1, 2 to 3, 4 to 7, ... */
    uint32_t last_batch;                 /* requests of the last step */
    double seconds;                      /* spent in steps */
    struct lode_disk_info disk;
    /* Of the model's experts, whoever used it: streamed through memory, and beside a GPU (lode/profile.h).  hits: found
     * in memory, in the GPU's; bytes read from the disk, brought to the GPU. */
    uint64_t expert_uses, expert_hits, expert_bytes, gpu_expert_uses, gpu_expert_hits, gpu_expert_bytes;
};
LODE_API void lode_scheduler_stats(struct lode_scheduler *s, struct lode_scheduler_stats *out);

/* Prefixes that no running request uses are forgotten, before the next step; not those on disk. */
LODE_API void lode_scheduler_forget(struct lode_scheduler *s);

struct lode_slot_info {
    bool running;
    uint64_t number; /* of the request, in order of arrival */
    int32_t priority;
    size_t n_prompt, n_read, n_reused, n_generated;
    uint32_t n_preempted;
};
/* false: there is no such slot. */
LODE_API bool lode_scheduler_slot(struct lode_scheduler *s, uint32_t slot, struct lode_slot_info *out);

enum { LODE_GENERATION_TOP = 20 };

/* What may come next, by its owner's rules (a grammar, the syntax of a call): asked on the
 * scheduler's thread, for one request at a time, between a step and the next. */
struct lode_generation_hint {
    const uint64_t *mask; /* ((n_vocab + 63) / 64), bits as lode_sampler_next_masked reads them;
                             borrowed until the next call; NULL: all tokens may come */
    bool greedy;          /* the likeliest of them, whatever the sampler is set to */
    bool over;            /* nothing may come any more: the answer ends here */
};
struct lode_generation_guide {
    int (*next)(void *user, struct lode_generation_hint *out, struct lode_error *err);
    /* Of the token that was chosen, end tokens included.  0: it is taken; 1: it must not come after
     * all, and next is asked again (its mask no longer has it); negative: the request fails. */
    int (*accept)(void *user, int32_t id, struct lode_error *err);
    void (*free)(void *user); /* NULL: nothing to free */
    void *user;
};

struct lode_generation_opts {
    const int32_t *prompt; /* (n_prompt), copied */
    size_t n_prompt;
    struct lode_sampler_opts sampler;
    int64_t max_tokens; /* negative: until the model ends or the context is full; 0: none */
    bool ignore_end;    /* tokens that end an answer are tokens like others */
    bool logprobs;
    uint32_t n_top;     /* of them, for each token; at most LODE_GENERATION_TOP */
    /* Log-probabilities of the prompt's own tokens, from this one on (at least 1: nothing comes before the
     * first), for lode_generation_prompt; 0: none.  What is cached of them is evaluated anew. */
    size_t prompt_logprobs;
    int32_t priority;   /* higher goes first; 0 is usual */
    uint64_t client;    /* who asks, for fairness; 0: nobody in particular */
    double deadline;    /* seconds from now, waiting included: LODE_ERR_LIMIT (where: "deadline") then;
                           0: none */
    bool no_cache;      /* reads all of the prompt itself */
    /* Another request with the same prompt, which need not be read twice: this one waits until that
     * has read it, and goes on beside it (n choices of one answer).  May end before this. */
    struct lode_generation *like;
    /* Taken over: freed with the request, or by lode_generation_start where that fails.  Zeroed: all
     * tokens may come. */
    struct lode_generation_guide guide;
};

struct lode_generation_token {
    int32_t id;
    float logprob; /* under the plain softmax; 0 unless asked for, as n_top */
    uint32_t n_top;
    struct lode_logprob top[LODE_GENERATION_TOP]; /* (n_top), the likeliest first */
};

/* LODE_ERR_LIMIT: the prompt does not fit a slot's context (where: "context"), or the queue is full
 * (where: "queue"; trying again later may help). */
LODE_API int lode_generation_start(struct lode_generation **out, struct lode_scheduler *s,
                                   const struct lode_generation_opts *opts, struct lode_error *err);

enum lode_generation_result {
    LODE_GENERATION_WAIT,  /* nothing within the time */
    LODE_GENERATION_TOKEN, /* *out is the next */
    LODE_GENERATION_ENDED, /* the model ended it */
    LODE_GENERATION_LIMIT, /* as many as allowed */
    LODE_GENERATION_FULL,  /* the context is full */
};
/* wait_ms: how long to wait for a token; negative: for ever.  A negative result is an error, for
 * good.  A request whose tokens nobody takes stops after some, and goes on when they are taken. */
LODE_API int lode_generation_next(struct lode_generation *g, struct lode_generation_token *out,
                                  int wait_ms, struct lode_error *err);

/* Of the prompt's tokens from prompt_logprobs on, those that have been read, up to cap: how many were
 * copied to out. */
LODE_API size_t lode_generation_prompt(struct lode_generation *g, struct lode_generation_token *out,
                                       size_t cap);

struct lode_generation_stats {
    size_t n_prompt, n_read; /* tokens of the prompt, and those evaluated or reused so far */
    size_t n_reused;         /* of them, found as they were: read by an earlier request */
    size_t n_generated;
    uint32_t n_preempted;    /* times that it had to give way */
    size_t place;            /* in the queue, from 1; 0: not in it (any more) */
    double queue_seconds, prompt_seconds, answer_seconds;
};
LODE_API void lode_generation_stats(struct lode_generation *g, struct lode_generation_stats *out);

/* ---- what the model wrote, found again ----
 *
 * Clients send an answer back as its message, which a template writes in another way than the model
 * did: other spaces in a call's arguments, thinking left out.  Whoever knows that it is the same
 * message goes on from the tokens that were sampled, which keeps their prefix.  The key is the
 * caller's: a hash of all that led to the answer, and of what it says. */

/* Keeps the timeline of a request that the model has ended: prompt, answer and the token that ended
 * it.  LODE_ERR_ARG where it has not; bounded, what is used least recently is forgotten. */
LODE_API int lode_generation_remember(struct lode_generation *g, const uint64_t key[2],
                                      struct lode_error *err);
/* How many tokens are kept under the key, of which up to cap are copied to out; 0: none. */
LODE_API size_t lode_scheduler_recall(struct lode_scheduler *s, const uint64_t key[2], int32_t *out,
                                      size_t cap);

/* Cancels it where it still runs; its slot is free within one step, which is cut short where nobody
 * else is in it. */
LODE_API void lode_generation_free(struct lode_generation *g);

#ifdef __cplusplus
}
#endif
#endif
