/* workers.h - the threads and work buffers that steps run on.
 *
 * Sessions that share workers can be fed in one step.  Reference-counted; one thread at a time.
 */
#ifndef LODE_ENGINE_WORKERS_H
#define LODE_ENGINE_WORKERS_H

#include "model/model.h"
#include "runtime/exec.h"

/* Rows that the head turns into logits at once: bounds the memory of n_vocab numbers a row, and
 * is enough for the product to read its weights once for all of a small batch. */
enum { LODE_HEAD_ROWS = 8, LODE_HEAD_ROWS_CUDA = 32 };

/* A step that was begun before anybody asked for it: its tokens are those that the step before draws, and a
 * draw follows it too. */
struct lode_flight {
    struct lode_session *sessions[LODE_HEAD_ROWS_CUDA]; /* (n): of each row; NULL: it went another way */
    uint32_t n; /* 0: there is none */
    int draw;
};

struct lode_workers {
    uint32_t refs;
    struct lode_model *model; /* borrowed */
    struct lode_backend *backends[LODE_PLACES]; /* of each place where the model runs; NULL */
    struct lode_aside *aside; /* owned; NULL: the host computes all of its experts */
    const struct lode_memory *memory[LODE_PLACES]; /* theirs, as pages and states want them */
    uint32_t threads;                /* of the host that compute */
    struct lode_exec *stages[LODE_STAGES];
    struct lode_exec *many;        /* owned: of steps of many_rows rows or more, instead of the body's; NULL: none */
    uint32_t many_rows;
    uint32_t batch;                /* most rows of a step */
    int32_t *tokens;               /* owned; (batch), as the next two */
    uint32_t *out_rows;            /* (batch) */
    uint32_t *wants;               /* (batch) of each out row: how many of its largest numbers; 0: all numbers */
    struct lode_segment *segments; /* (batch) */
    bool flies;                    /* steps may be begun before they are asked for */
    struct lode_flight flight;     /* engine/session.c's */
};

int lode_workers_create(struct lode_workers **out, struct lode_model *m, uint32_t batch,
                        uint32_t threads, struct lode_error *err);
struct lode_workers *lode_workers_share(struct lode_workers *w);
void lode_workers_release(struct lode_workers *w);

/* Bytes that create would allocate at each place, were the model's graphs compiled to such plans
 * (LODE_STAGES of them). */
void lode_workers_size(const struct lode_model *m, const struct lode_plan *plans, uint32_t batch,
                       uint32_t threads, uint64_t bytes[LODE_PLACES]);

/* fn(arg, i, worker) for each i below n, by the threads that compute where there are any; not within a
 * step. */
void lode_workers_each(struct lode_workers *w, lode_pool_fn *fn, void *arg, uint32_t n);

/* One row of the stage's result: out row i of the step; or where fewer are wanted, and the backend gives
 * them, best (n_best) with the largest numbers, y NULL.  Non-zero stops. */
typedef int lode_row_fn(void *user, uint32_t i, const float *y, const struct lode_best *best, uint32_t n_best);

/* Runs the body over a step whose arrays are the workers' own, then a stage over its out rows. */
int lode_workers_run(struct lode_workers *w, enum lode_stage stage, const struct lode_step *step,
                     lode_row_fn *row, void *user, bool (*cancel)(void *user), void *cancel_user,
                     struct lode_error *err);

/* The same up to the draws (n_out of them, at most lode_workers_draws), which is not waited for; what to ask
 * lode_exec_drawn of the head by, or an error. */
int lode_workers_begin(struct lode_workers *w, const struct lode_step *step, const struct lode_draw *draws,
                       bool (*cancel)(void *user), void *cancel_user, struct lode_error *err);
/* How many rows the backend draws for at once; 0: it does not. */
uint32_t lode_workers_draws(const struct lode_workers *w);

#endif
