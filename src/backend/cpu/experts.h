/* experts.h - inside the CPU backend: a step's pairs of rows and experts as they are worked off, by experts.c (waves), experts_weights.c
 * (weights asked for), experts_compute.c (products and sums) and experts_beside.c (a device's part of them). */
#ifndef LODE_BACKEND_CPU_EXPERTS_H
#define LODE_BACKEND_CPU_EXPERTS_H

#include "backend/cpu/cpu.h"

#include "base/arena.h"

enum { LODE_EXPERTS_AHEAD = 16 }; /* shares of the next waves that are asked for */

enum share_state { UNASKED, ASKED, DONE };

/* One expert's share of the step. */
struct share {
    uint32_t expert, first, n; /* pairs of its wave */
    enum share_state state;
    bool held[3];     /* gate, up, down where they are used: pinned, here or not */
    const char *w[3]; /* where they are, once they are here */
};

struct lode_experts { /* owned by the backend; sized by its options */
    uint32_t capacity;   /* pairs of a wave, */
    uint32_t beside;     /* and of one that a device takes its part of, as much of each as it has room for */
    uint32_t *count;     /* (n_experts + 1): pairs of each, then where they start */
    struct lode_expert_pair *pairs;  /* (max_rows * n_used): ordered by expert, then row */
    struct share *shares; /* (n_experts): those that have pairs, ascending */
    uint32_t *ready;      /* (n_experts): shares that are computed together */
    uint32_t *todo;       /* (capacity): their pairs */
    char *x;             /* (capacity, x_stride): gathered activations */
    float *gate, *up;    /* (capacity, d_ff) */
    char *h;             /* (capacity, h_stride): down's activations */
    float *down;         /* (capacity, d_out) */
    uint32_t *of_row;    /* (max_rows, n_used): a row's pairs of this wave, ascending */
    uint32_t *n_of_row;  /* (max_rows) */
    size_t x_stride, h_stride;
    uint32_t ff_stride, out_stride; /* floats */
    struct lode_expert_share *asked; /* (n_experts): what the device is asked about */
    uint32_t *place;                 /* (n_experts): of those, where their results begin */
    double share_ns, pair_ns;        /* that computing took of late, a share of few pairs, a pair of many */
    struct lode_arena arena;
};

/* What the tasks of a wave see. */
struct wave {
    struct lode_cpu *cpu;
    struct lode_experts *x;
    const struct lode_instr *in;
    const struct lode_expert_pair *pairs; /* of the wave */
    uint32_t n_pairs, panel;
    uint32_t first, end, n_shares; /* shares of the wave; of the step */
    uint32_t n_ready, n_todo;      /* what is computed now */
    uint32_t n_rows;
    bool down; /* which product */
    bool settled;
    bool starts; /* the device begins along with the next products */
};

enum { GATE, UP, DOWN, KINDS }; /* of an expert's matrices */

static inline bool has(const struct lode_instr *in, int kind) {
    return in->op == LODE_OP_EXPERTS || (in->op == LODE_OP_EXPERTS_OUT) == (kind == DOWN);
}
/* Of a kind that it has. */
static inline const struct lode_part *part_of(const struct lode_instr *in, int kind) {
    return &in->parts[in->op == LODE_OP_EXPERTS_OUT ? kind - DOWN : kind];
}

/* ---- experts_weights.c ---- */

/* The store's number of an expert's matrix. */
uint32_t lode_experts_weight(const struct wave *w, const struct share *s, int kind);
/* LODE_READY: all of it is here.  LODE_FULL: it holds nothing. */
int lode_experts_ask(struct wave *w, struct share *s, struct lode_error *err);
void lode_experts_let_go(struct wave *w, struct share *s);
/* The wave's shares that are here, to ready; asks for what has not been asked for, in order, while there is room. */
int lode_experts_collect(struct wave *w, struct lode_error *err);
/* All that this layer needs has been asked for: what follows is for the next. */
void lode_experts_settle(struct wave *w);
/* For weights to arrive, after the store's news `seen`; any: one of them. */
int lode_experts_wait(struct wave *w, uint64_t seen, uint32_t any, struct lode_error *err);
/* So that none of the step's that is there makes room for another of them. */
void lode_experts_announce(struct wave *w);

/* ---- experts_compute.c ---- */

/* The ready shares' outputs of the wave's pairs. */
void lode_experts_compute(struct wave *w);
/* The wave's outputs to their rows. */
void lode_experts_add_up(struct wave *w);

/* ---- experts_beside.c ---- */

/* 1: the device has done the whole step; 0: it has not begun. */
int lode_experts_run_beside(struct wave *w, struct lode_error *err);
/* Shares of the wave that the device computes are not asked for here; returns their number. */
uint32_t lode_experts_take_beside(struct wave *w);
/* It begins; once a wave, where it has taken any. */
void lode_experts_start_beside(struct wave *w);
/* What it has computed, among what the host has. */
int lode_experts_finish_beside(struct wave *w, struct lode_error *err);
/* One of those that were just computed may stay with it. */
void lode_experts_offer_beside(struct wave *w);

#endif
