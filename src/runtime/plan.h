/* plan.h - a graph made ready to run: instructions over reused buffers.
 *
 * Compiling decides, once per model: where activations are rounded for quantised weights (once per
 * value, shared by all that read it), which products that read the same value run as one
 * instruction, which results overwrite their input, and which buffers values share because they
 * are never alive together.  A plan is immutable and shared by sessions; an executor gives it
 * memory.
 *
 * Instructions may run at several places (store/memory.h).  Those that follow one another at one place
 * are a part; every value lies where it is made, and what another part reads of it is a copy at that
 * part's place, made once and before the part begins.
 *
 * A plan may have ranks: all of it is one part, at place 1, which the places 1 .. n_ranks run in lock step, each
 * with its own parts of the weights and its own layers of keys, values and states (model/shard.h).
 */
#ifndef LODE_RUNTIME_PLAN_H
#define LODE_RUNTIME_PLAN_H

#include "backend/backend.h"

struct lode_plan_slot { /* memory that several values use one after the other */
    size_t row_size;    /* bytes, a multiple of 64 */
    enum lode_rows rows;
    uint8_t place;
    bool busy;         /* while compiling, as the next */
    uint32_t last_cut; /* the last part in which it was */
};

struct lode_plan_value {
    uint32_t slot;
    uint32_t offset; /* bytes into the slot's row */
    uint32_t width;
    enum lode_dtype type;
    enum lode_rows rows;
};

#define LODE_NO_VALUE UINT32_MAX

struct lode_plan_part {
    const struct lode_operand *w, *bias; /* borrowed from the model */
    uint32_t out;                        /* a value, or LODE_NO_VALUE */
    bool brought;                        /* w does not live at the place: each step brings it anew */
};

struct lode_plan_instr {
    enum lode_op op;
    union lode_op_params p;
    uint32_t in[2];
    uint32_t first_part, n_parts;
    uint8_t place;
};

struct lode_plan_copy {
    uint32_t to, from; /* values, at different places */
};

/* Instructions first .. first + n_instrs - 1, all at one place, and what is copied there before. */
struct lode_plan_cut {
    uint8_t place;
    uint32_t first, n_instrs, first_copy, n_copies;
};

struct lode_plan {
    struct lode_plan_instr *instrs; /* (n_instrs), owned, as are the next five */
    struct lode_plan_part *parts;   /* (n_parts) */
    struct lode_plan_value *values; /* (n_values) */
    struct lode_plan_slot *slots;   /* (n_slots) */
    struct lode_plan_cut *cuts;     /* (n_cuts), in the order in which they run */
    struct lode_plan_copy *copies;  /* (n_copies) */
    uint32_t n_instrs, n_parts, n_values, n_slots, n_cuts, n_copies;
    uint32_t input, result; /* values; input: LODE_NO_VALUE where the graph has none */
    uint32_t max_cols, max_heads, max_head_dim;
    struct lode_expert_sizes experts;
    uint8_t beside; /* the place that computes some of the host's experts (backend.h); LODE_HOST: none */
    uint32_t n_ranks;    /* 0: none */
    uint32_t n_layers;   /* rank r's layer l is the caches' r * n_layers + l */
    uint64_t weight_bytes; /* read by a step of one row, by one rank */
    uint64_t int_macs, float_macs; /* multiply-adds of its matrix products, by what they multiply */
};

struct lode_plan_opts {
    const uint8_t *places; /* (g->n_nodes), where each node runs; NULL: all on the host */
    bool float_act;        /* no product's rows are rounded */
    /* Whether a LINEAR's rows are not rounded for weights w at a place, which multiplies them as they are; NULL:
     * all are. */
    bool (*takes_floats)(const void *user, uint8_t place, const struct lode_operand *w);
    const void *user; /* of takes_floats */
};
int lode_plan_compile(struct lode_plan *plan, const struct lode_graph *g, const struct lode_plan_opts *opts,
                      struct lode_error *err);
void lode_plan_deinit(struct lode_plan *plan);
/* Whether what the plan has at place `has` is at `place`. */
static inline bool lode_plan_at(const struct lode_plan *plan, uint32_t has, uint32_t place) {
    return has == place || (has == 1 && place > 1 && place <= plan->n_ranks);
}
/* Bytes of buffers at a place for steps of up to max_rows rows, max_out of them with logits. */
uint64_t lode_plan_buffer_size(const struct lode_plan *plan, uint32_t place, uint32_t max_rows,
                               uint32_t max_out);
/* Bytes of a row of a value, 0 of LODE_NO_VALUE; of the longest that is copied between places. */
size_t lode_plan_row_size(const struct lode_plan *plan, uint32_t value);
size_t lode_plan_longest_copy(const struct lode_plan *plan);

struct lode_cost lode_plan_part_cost(const struct lode_plan *plan,
                                     const struct lode_plan_instr *in,
                                     const struct lode_plan_part *part);

#endif
