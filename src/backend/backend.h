/* backend.h - what a device runs: instructions over buffers, one step at a time.
 *
 * The runtime compiles a graph to instructions whose operands are places in buffers; a backend is
 * a table of functions indexed by op, or one function that runs all of a plan.
 *
 * A plan is cut in parts that run at several places in turn (store/memory.h): each place has a backend
 * of its own, and what a part reads of another's is copied to it before the part runs.
 *
 * The buffers and the pages of keys and values lie in the backend's memory, which the host may be
 * unable to read: outside the backend they are addresses, and what is in them is asked for by
 * `read` and moved by `copy`.
 *
 * A step is a batch of tokens of any mix of sequences.  Rows of one sequence are neighbours and
 * their positions follow one another (a segment).  Nothing that a row computes depends on the
 * rows beside it.
 */
#ifndef LODE_BACKEND_BACKEND_H
#define LODE_BACKEND_BACKEND_H

#include "base/draw.h"
#include "base/error.h"
#include "base/threads.h"
#include "graph/graph.h"
#include "kern/fast.h"
#include "kern/kern.h"
#include "lode/sampler.h"
#include "store/kv.h"
#include "store/memory.h"
#include "store/state.h"
#include "store/weight.h"

#include <limits.h>

/* One rotary specification as one session uses it: angle of pair i at position p is
 * p * freq[i]; cos and sin are multiplied by `scale` (YaRN's and longrope's attention factor). */
struct lode_rope {
    double *freq; /* (n_pairs) */
    uint32_t n_pairs;
    double scale;
};

struct lode_segment {
    struct lode_kv *kv;
    struct lode_state *state; /* NULL where the model has no recurrent layers */
    const struct lode_rope *ropes; /* (number of the model's specifications) */
    uint32_t first_row, n_rows;
    uint32_t pos; /* of the first row */
    uint32_t second; /* rows of the segment from here on are a pair's second text; n_rows: none */
};

struct lode_step {
    const struct lode_segment *segments; /* (n_segments), in order of rows */
    uint32_t n_segments;
    uint32_t n_rows;
    const int32_t *tokens;    /* (n_rows); -1 - i, of a backend that draws: what was drawn last for row i */
    const uint32_t *out_rows; /* (n_out), ascending: the rows whose logits are wanted */
    uint32_t n_out;
    /* After each layer, when set: the rows of the residual stream that a later op still needs. */
    void (*trace)(void *user, uint32_t layer, const struct lode_step *step, const float *x,
                  size_t stride, bool out_rows_only);
    /* The same of each router's choice: pairs of (expert as int32 bits, weight), n_used a row. */
    void (*routes)(void *user, uint32_t layer, const struct lode_step *step, const float *pairs,
                   size_t stride, uint32_t n_used, bool out_rows_only);
    /* What the layer's router is guessed to choose for a row, the surest first, before it does: `late` by
     * what the layer before it made, else by what that layer's router saw.  Not of all layers, nor always. */
    void (*guesses)(void *user, uint32_t layer, bool late, const struct lode_step *step, uint32_t row,
                    const uint32_t *experts, uint32_t n);
    void *trace_user; /* of all three */
};

/* A value as an instruction sees it: rows of `width` numbers, `stride` bytes apart. */
struct lode_value {
    char *data;
    size_t stride;
    uint32_t width;
    enum lode_dtype type;
    enum lode_rows rows;
};

/* A matrix product's weight with its result.  Products that read the same value are one
 * instruction with several parts. */
struct lode_part {
    const struct lode_operand *w, *bias;
    struct lode_value out;
    const void *w_data, *bias_data; /* pinned by the executor while the instruction runs */
    bool w_held, bias_held;         /* the executor's: pins to be given back */
    bool brought;                   /* a device that has its own copies of weights does not have w's */
};

struct lode_instr {
    enum lode_op op;
    union lode_op_params p;
    struct lode_value in[2];
    struct lode_part *parts; /* (n_parts); one for ops other than LINEAR */
    uint32_t n_parts;
    const struct lode_instr *next_brought; /* of those behind it at its place, the first with a part that is */
    struct lode_wanted *ahead; /* (n_ahead) EXPERTS: what the next layer's are likely to be */
    uint32_t n_ahead;
    struct lode_guesses *guesses; /* whose they are; NULL: nobody guesses */
};

static inline uint32_t lode_value_rows(const struct lode_value *v, const struct lode_step *step) {
    return v->rows == LODE_ROWS_ALL ? step->n_rows : step->n_out;
}

/* A step that ends in draws: a body, a head whose input is what the body has made of the step's n_out rows, and a draw for each
 * row of its logits. */
struct lode_drawn_step {
    const struct lode_instr *body, *head;
    uint32_t n_body, n_head;
    const struct lode_value *made, *taken, *logits; /* the body's result, the head's input and result */
    const struct lode_draw *draws;                  /* (n_out) */
};

#define LODE_DRAW_APART INT_MAX

struct lode_backend;
struct lode_backend_ops {
    const char *name;
    void (*run[LODE_OP_COUNT])(struct lode_backend *b, const struct lode_instr *in,
                               const struct lode_step *step);
    /* How many of the n instructions treat rows one by one, so that row_by_row may run them together: each row
     * through all of them, then the next.  0 or 1: the first is run by itself. */
    uint32_t (*together)(const struct lode_instr *in, uint32_t n, const struct lode_step *step);
    void (*row_by_row)(struct lode_backend *b, const struct lode_instr *in, uint32_t n,
                       const struct lode_step *step);
    /* A step begins, some of whose parts run here.  May be NULL. */
    int (*begin)(struct lode_backend *b, const struct lode_step *step, struct lode_error *err);
    /* For a device that has its own copies of the weights and launches a part as a whole: used
     * instead of run[], with no weights pinned.  NULL where there is none.  cancel as
     * lode_exec_run's. */
    int (*run_plan)(struct lode_backend *b, const struct lode_instr *instrs, uint32_t n,
                    const struct lode_step *step, bool (*cancel)(void *user), void *cancel_user,
                    struct lode_error *err);
    /* The same for all ranks of a plan (runtime/plan.h), of which all[0] is asked: instrs[r] are all[r]'s.
     * After an error no rank waits for another. */
    int (*run_ranks)(struct lode_backend *const *all, const struct lode_instr *const *instrs, uint32_t n_ranks,
                     uint32_t n, const struct lode_step *step, bool (*cancel)(void *user), void *cancel_user,
                     struct lode_error *err);
    /* Instead of that where the ranks' instructions run one by one, by run[]: instrs[r] is rank r's ALL_GATHER. */
    void (*all_gather)(struct lode_backend *const *all, const struct lode_instr *const *instrs, uint32_t n_ranks,
                       const struct lode_step *step);
    /* The first n rows of v where the host can read them, *stride bytes apart, until the next
     * call; NULL: see error. */
    const char *(*read)(struct lode_backend *b, const struct lode_value *v, uint32_t n, size_t *stride,
                        struct lode_error *err);
    /* The k (at most LODE_BEST_MAX) largest numbers of each of the first n rows of v, a row after the other,
     * best first, where the host can read them, until the next call; NULL: see error.  NULL instead of it
     * where rows are read as fast. */
    const struct lode_best *(*best)(struct lode_backend *b, const struct lode_value *v, uint32_t n, uint32_t k,
                                    struct lode_error *err);
    /* Draws an id for each of the first n rows of v, logits, when the steps so far are done, which is not waited
     * for; the next step may have them as its tokens.  Returns a number to ask by, at least 0, or an error.
     * NULL: it draws nothing. */
    int (*draw)(struct lode_backend *b, const struct lode_value *v, uint32_t n, const struct lode_draw *draws,
                struct lode_error *err);
    /* Waits for that draw, the last or the one before, and gives its n ids. */
    int (*drawn)(struct lode_backend *b, int draw, uint32_t n, int32_t *ids, struct lode_error *err);
    /* begin, run_plan, copy, both again and draw as one, of a step all of which runs here.  LODE_DRAW_APART: nothing is done, as
     * that one is to be run one after the other.  NULL: they all are. */
    int (*draw_step)(struct lode_backend *b, const struct lode_drawn_step *d, const struct lode_step *step,
                     bool (*cancel)(void *user), void *cancel_user, struct lode_error *err);
    /* Rows first .. first + n - 1 of src, which is the backend from's (b's own or another's), to the
     * first n of dst, which are as wide and b's. */
    int (*copy)(struct lode_backend *b, const struct lode_value *dst, struct lode_backend *from,
                const struct lode_value *src, uint32_t first, uint32_t n, struct lode_error *err);
    /* fn(arg, i, worker) for each i below n, by the host's threads that compute; between steps, by the
     * thread that steps.  NULL where there are none. */
    void (*share)(struct lode_backend *b, lode_pool_fn *fn, void *arg, uint32_t n);
    void (*free)(struct lode_backend *b);
};
/* Belongs to one executor at a time.  An op that pins weights itself leaves what went wrong in
 * `error`; the others cannot fail. */
struct lode_backend {
    const struct lode_backend_ops *ops;
    const struct lode_memory *memory; /* what buffers and pages are taken from */
    uint32_t place;                   /* whose it is */
    uint32_t threads;                 /* of the host that compute */
    struct lode_error error;
    bool (*cancel)(void *user); /* while a step runs; NULL: asked by ops that wait for weights */
    void *cancel_user;
};

enum { LODE_MAX_EXPERTS = 4096, LODE_MAX_USED = 64 /* of one row */ };

/* The largest of any EXPERTS op; zeros where a plan has none. */
struct lode_expert_sizes {
    uint32_t n, n_used, d_in, d_ff, d_out;
};

/* ---- a device beside the host (cuda/aside.c) ----
 *
 * It computes some of the experts that rows of the host's EXPERTS instructions were routed to: those that its memory
 * holds, or gets meanwhile.  Which these are changes no bit, as a device's products and activations are the host's
 * (law 1), and whoever adds up does so in the order of experts. */

struct lode_expert_pair {
    uint32_t row, place; /* place: among the row's choices */
    float weight;
};
struct lode_expert_share { /* an expert's pairs */
    uint32_t expert, first, n;
};

struct lode_aside_job {
    const struct lode_instr *in; /* with its biases pinned */
    const struct lode_expert_share *shares; /* (n_shares), ascending */
    const struct lode_expert_pair *pairs;   /* (n_pairs), by expert, then row */
    uint32_t n_shares, n_pairs, n_rows;
    double share_ns; /* that the host would take for one of the shares, about */
};

/* What the host does for it while it takes a whole job. */
struct lode_aside_host {
    void *user;
    /* fn(arg, i, worker) for each i below n, by all threads. */
    void (*each)(void *user, lode_pool_fn *fn, void *arg, uint32_t n);
    /* Up to `most` of the shares that are not in `have` and were not given before, in shares[], with their
     * matrices, which stay where they are until drop.  Waits for one; 0: there are no more. */
    int (*get)(void *user, const bool *have, uint32_t *shares, const char *(*w)[3], uint32_t most,
               struct lode_error *err);
    void (*drop)(void *user, uint32_t share);
};

struct lode_aside;
struct lode_aside_ops {
    /* Which shares it computes: place[i] is the first row of share i's results, LODE_NO_PLACE where the host is
     * to compute it.  Returns their number; if not 0, start and finish follow, once each. */
    uint32_t (*take)(struct lode_aside *a, const struct lode_aside_job *job, uint32_t *place);
    /* Begins with what was taken, from any thread; what goes wrong is finish's to say. */
    void (*start)(struct lode_aside *a);
    /* Waits for the results, unweighed rows of floats *stride bytes apart, until the next take; NULL: see err. */
    const char *(*finish)(struct lode_aside *a, size_t *stride, struct lode_error *err);
    /* The host has computed a share, and its matrices are still in memory: they may be wanted for later. */
    void (*offer)(struct lode_aside *a, const struct lode_aside_job *job, uint32_t share, const char *const w[3],
                  const struct lode_aside_host *host);
    /* Most rows of a job that it can take as a whole; 0: none of such an instruction. */
    uint32_t (*most_rows)(struct lode_aside *a, const struct lode_instr *in);
    /* Whether taking all of it is quicker than the host. */
    bool (*wants_all)(struct lode_aside *a, const struct lode_aside_job *job);
    /* All shares, weighed and added up, to the instruction's result. */
    int (*run_all)(struct lode_aside *a, const struct lode_aside_job *job, const struct lode_aside_host *host,
                   struct lode_error *err);
    void (*free)(struct lode_aside *a);
};
/* Belongs to one backend of the host at a time. */
struct lode_aside {
    const struct lode_aside_ops *ops;
};
#define LODE_NO_PLACE UINT32_MAX

/* What the CPU backend needs to know before the first step, so that it allocates nothing later. */
struct lode_cpu_opts {
    enum lode_isa isa; /* usable here */
    uint32_t threads;
    bool float_act;        /* quantised weights are widened instead of activations rounded */
    enum lode_fast fast;   /* usable here; for weights that have such products (kern/fast.h) */
    uint32_t max_cols;     /* longest row of any weight */
    uint32_t max_rows;     /* of a step */
    uint32_t max_heads;    /* query heads of any attention */
    uint32_t max_head_dim; /* of its values */
    struct lode_expert_sizes experts;
    struct lode_store *store; /* borrowed; for weights that ops pin themselves */
    struct lode_aside *aside; /* borrowed; NULL: the host computes all experts */
    bool takes_turns;         /* with devices: its threads stay awake for theirs */
};
int lode_cpu_create(struct lode_backend **out, const struct lode_cpu_opts *opts,
                    struct lode_error *err);
/* Bytes of work memory for such options, with what kernels take of threads' stacks. */
uint64_t lode_cpu_work_size(const struct lode_cpu_opts *opts);

#endif
