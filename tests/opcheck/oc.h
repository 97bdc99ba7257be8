/* oc.h - the op checker: small graphs, each computed by the scalar CPU and by what is to be checked.
 *
 * A case builds a graph over weights and inputs that it asks for here; oc.c makes them, compiles the graph
 * for both places, runs the same steps of two sequences on both (one row, few, many, pages that fill up,
 * shapes that come again and are captured as graphs), and compares every number's bits, those of states and their
 * checkpoints, too.  So a GPU is held
 * to the same lines as the CPU's fast kernels.  Experts are also computed by the host with a device beside it,
 * or what stands in for one (beside.h).
 *
 *     static struct lode_node *build_scale(struct oc *t) {
 *         return lode_g_scale(t->g, oc_input(t, 384), 0.7f);
 *     }
 */
#ifndef OC_H
#define OC_H

#include "../kerncheck/kc_run.h"
#include "graph/graph.h"
#include "store/kv_pool.h"
#include "store/state.h"

struct oc {
    struct lode_graph *g;
    enum lode_dtype type; /* of the weights, where a case is run for each type */
    int variant;          /* else */
    uint32_t before;      /* rows that the first sequence has before the steps */
    bool many_rows;       /* steps of hundreds of rows follow the others: nothing depends on where rows are */
    struct kc *kc;        /* random numbers */
    struct lode_kv_layer kv;       /* n_heads 0: no cache */
    struct lode_state_layer state; /* zeros: none */
    uint32_t n_pairs;              /* of the rotary specification; 0: none */
    struct oc_attention {          /* of OC_ATTENTION, beside kv: */
        uint32_t n_heads;
        float scale, cap;
        bool normed; /* queries and keys, by the vectors asked for after the inputs */
    } attention;
    struct oc_weights *weights;    /* oc.c's */
};

/* Numbers that differ from row to row. */
struct lode_node *oc_input(struct oc *t, uint32_t width);
const struct lode_operand *oc_vector(struct oc *t, uint32_t n);
/* None of them above zero. */
const struct lode_operand *oc_negatives(struct oc *t, uint32_t n);
/* count of them, for experts. */
const struct lode_operand *oc_matrix(struct oc *t, enum lode_dtype type, uint32_t rows, uint32_t cols,
                                     uint32_t count);
/* The same with its columns in another order than its input. */
const struct lode_operand *oc_mixed_matrix(struct oc *t, enum lode_dtype type, uint32_t rows, uint32_t cols);

/* What of a case --numerics fast has a bound for, beside that a row has the same bits alone and among others. */
enum oc_bound {
    OC_NO_BOUND,
    OC_SAME,      /* none; but where each type has no case of its own its variants are cases of --numerics fast, too */
    OC_SUM,       /* a result is one product (and a bias) */
    OC_ATTENTION, /* of queries, keys and values that are the first three inputs */
    OC_ATTENTION_DEEP, /* the same with thousands of keys; of a device in --numerics fast alone, as to all others they are but many */
};

struct oc_case {
    const char *name;
    int variants; /* 0: one for each type of weights that has kernels (`by_act`: only those with activations) */
    bool by_act;
    struct lode_node *(*build)(struct oc *t);
    enum oc_bound bound;
};
extern const struct oc_case oc_cases[];
extern const size_t oc_n_cases;

struct lode_cuda;
struct oc_opts {
    struct lode_cuda *c; /* NULL: the CPU's best kernels are checked */
    bool fast;           /* those of --numerics fast, of which a row must have the same bits alone and among others, and be
                            near the scalar CPU's */
    bool launches;       /* what comes is not looked at: whether the device takes what it is asked for */
    uint64_t seed;
};
/* 1 held, 0 not (said on standard error), -1: the device leaves it to the CPU (said in skip). */
int oc_run(const struct oc_case *k, enum lode_dtype type, int variant, const struct oc_opts *o, char skip[256]);

#endif
