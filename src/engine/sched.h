/* sched.h - what the scheduler's files share: requests, seats, and who may touch what.
 *
 * A request waits in the queue (queue.c), gets a seat, which is a session, and is fed (batch.c) until
 * it ends, or until others need its pages: then it waits again, and what it had read and written is
 * read anew.  One mutex guards the queue, the seats' assignments and the rings of tokens; the
 * scheduler's thread holds it between steps and not during them.  What a step reads of a request
 * (its tokens, its sampler) belongs to that thread from the moment it has a seat, as sessions, pages
 * and the tree of prefixes always do.
 */
#ifndef LODE_ENGINE_SCHED_H
#define LODE_ENGINE_SCHED_H

#include "base/caches.h"
#include "base/clock.h"
#include "engine/keeper.h"
#include "engine/recall.h"
#include "engine/timeline.h"
#include "lode/scheduler.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    LODE_SCHED_RING = 64,     /* tokens that wait for their reader before a request pauses */
    LODE_SCHED_CLIENTS = 256, /* told apart for fairness */
};

enum lode_sched_state { LODE_SCHED_QUEUED, LODE_SCHED_RUNNING, LODE_SCHED_DONE };

struct lode_generation {
    struct lode_scheduler *s;
    struct lode_generation *next; /* in the queue */
    struct lode_sampler *sampler; /* owned */
    int32_t *tokens;              /* owned; (room): the prompt, then the answer */
    size_t n_prompt, n_tokens, room;
    bool has_end; /* the model ended it: by the token that lies behind them */
    int64_t max_tokens;
    bool ignore_end, logprobs, no_cache;
    uint32_t n_top;
    struct lode_generation_token *given; /* owned; (n_prompt - given_from): the prompt's own; NULL: not wanted */
    size_t given_from, given_next;       /* the first of them, the first that is not known yet */
    size_t given_shown;                  /* as given_next, for the owner */
    struct lode_generation_guide guide; /* owned; next NULL: there is none */
    int32_t priority;
    uint64_t client, number; /* number: of its arrival */
    double share;            /* its place in the order of clients' shares, see queue.c, */
    uint64_t turn;           /* and among equal ones */
    double deadline;         /* clock; 0: none */
    struct lode_generation *like; /* queued: waits until that one has read the same prompt; or NULL */
    pthread_cond_t moved;         /* a token came, or the end */

    enum lode_sched_state state;
    atomic_bool abandoned; /* its owner is gone: whoever finishes it frees it */
    int result;     /* once DONE: a lode_generation_result, or an error, and then err */
    struct lode_error err;
    struct lode_generation_token ring[LODE_SCHED_RING];
    size_t first, n_ring;
    size_t n_read, n_reused, n_generated;
    uint32_t n_preempted;
    bool fetched; /* what the disk has of it is in the tree */
    bool suspect; /* was in a step that failed: goes on alone */
    double queued, started, answered, ended; /* clock */
};

struct lode_seat {
    struct lode_session *session;
    struct lode_generation *g;   /* NULL: free */
    struct lode_prefix_node *at; /* pinned: the last of its pages that the tree has */
    struct lode_prefix_node *state_at; /* the last node to which it gave a state; on its path */
    bool fed;                    /* in the step that is being formed */
    bool ahead;                  /* fed, and its next token is likely to be the next step's, with no others */
};

struct lode_choice { /* of the token after a step */
    struct lode_seat *seat;
    struct lode_generation_token t;
    int rc;
    struct lode_error err; /* where rc is negative */
};

struct lode_scheduler {
    struct lode_model *model;
    const struct lode_tokenizer *tokenizer;
    struct lode_workers *workers;
    struct lode_kv_pool *pool;
    struct lode_prefix *prefix;
    struct lode_recall *recall;
    struct lode_keeper *keeper; /* NULL: nothing is kept on disk */
    struct lode_seat *seats;      /* (n_seats) */
    struct lode_feed *feeds;      /* (n_seats) */
    struct lode_seat **fed;       /* (n_seats): the seat of each feed */
    size_t n_fed;                 /* of the step that runs */
    uint32_t *from;               /* (n_seats): of each feed, the first row whose logits are wanted */
    struct lode_choice *choices;  /* (n_seats) */
    struct lode_seat **order;     /* (n_seats): the running ones, who goes before whom first */
    uint32_t *reserved;           /* (groups): pages that the step's feeds take */
    uint32_t n_seats, chunk, max_queue, ctx, batch;
    bool keep;     /* prefixes */
    bool fetching; /* the next request's beginning comes from the disk */
    bool forget;   /* all prefixes, before the next step */
    bool grow, listed;
    uint64_t give, give_for_good; /* bytes of prefixes, before the next step; and not to be taken again */
    struct lode_cache cache;
    pthread_t thread;
    bool has_thread, has_lock, stop;
    pthread_mutex_t lock;
    pthread_cond_t work; /* something to do for the thread */
    struct lode_generation *queue;
    double shares[LODE_SCHED_CLIENTS], share; /* where each client's, and the served requests' are */
    uint64_t arrivals;
    struct lode_scheduler_stats stats;
};

/* ---- pressure.c ---- */

/* Among the caches that give way (base/caches.h); without the lock. */
void lode_sched_list(struct lode_scheduler *s);
void lode_sched_unlist(struct lode_scheduler *s);
/* What was asked for since; with the lock, by the scheduler's thread. */
void lode_sched_give(struct lode_scheduler *s);

/* ---- generation.c; with the lock ---- */

void lode_sched_destroy(struct lode_generation *g);
void lode_sched_finish(struct lode_generation *g, int result);

/* ---- queue.c; with the lock ---- */

/* LODE_ERR_LIMIT where it is full. */
int lode_queue_add(struct lode_scheduler *s, struct lode_generation *g, struct lode_error *err);
void lode_queue_return(struct lode_scheduler *s, struct lode_generation *g); /* a preempted one */
void lode_queue_remove(struct lode_scheduler *s, struct lode_generation *g);
size_t lode_queue_place(const struct lode_scheduler *s, const struct lode_generation *g);
/* Nobody waits for it any more. */
void lode_queue_forget(struct lode_scheduler *s, const struct lode_generation *g);
/* Ends those whose time is over; when the next one's is (0: never). */
double lode_queue_expire(struct lode_scheduler *s, double now);
/* Whether a goes before b. */
bool lode_queue_before(const struct lode_generation *a, const struct lode_generation *b);

/* ---- seat.c; with the lock ---- */

struct lode_seat *lode_seat_free(struct lode_scheduler *s);
/* The first of the queue, as long as there are a seat and pages. */
void lode_seat_admit(struct lode_scheduler *s);
/* Gives those who wait for g's prompt a seat beside it, as far as there are any; they are
 * s->fed[n .. return value). */
size_t lode_seat_fork(struct lode_scheduler *s, struct lode_seat *seat, size_t n);
/* What it has read stays in the tree. */
void lode_seat_publish(struct lode_scheduler *s, struct lode_seat *seat);
/* The copy of its recurrent state that will be wanted again goes to the disk. */
void lode_seat_save_state(struct lode_scheduler *s, struct lode_seat *seat);
void lode_seat_leave(struct lode_scheduler *s, struct lode_seat *seat, int result);
void lode_seat_preempt(struct lode_scheduler *s, struct lode_seat *seat);

/* ---- batch.c; with the lock ---- */

/* Forms the next step in s->feeds and s->fed: how many feeds. */
size_t lode_batch_form(struct lode_scheduler *s);

/* ---- choose.c ---- */

/* Keeps what logits after position pos say of the token that follows in the prompt; without the lock. */
void lode_choose_given(const struct lode_scheduler *s, struct lode_generation *g, uint32_t pos,
                       const float *logits);

/* Tells the session what the token after the next step is to be chosen by. */
void lode_choose_want(const struct lode_seat *seat);

enum { LODE_CHOOSE_OVER = -1 }; /* no token: the guide says that the answer is complete */
/* The token that follows; without the lock.  Seats without a guide may be asked about at once. */
int lode_choose(const struct lode_scheduler *s, const struct lode_seat *seat,
                struct lode_generation_token *t, struct lode_error *err);

#endif
