/* run.h - one backend at work, and one instruction of it: what the files that run plans share. */
#ifndef LODE_BACKEND_CUDA_RUN_H
#define LODE_BACKEND_CUDA_RUN_H

#include "backend/cuda/graphs.h"
#include "backend/cuda/kernels/draw.h"
#include "backend/cuda/kernels/unite.h"

enum {
    LODE_CUDA_SLOTS = 3,            /* host copies of steps that may be on their way */
    LODE_CUDA_TABLES = 8 << 20,     /* bytes for page tables, rotary frequencies and views */
    LODE_CUDA_SCRATCH = 128 << 20,  /* bytes for parts of attention, for spread activations */
    LODE_CUDA_GRAPHS = 32,          /* of a part of a plan */
    LODE_CUDA_DRAWS = 2,            /* that may be on their way */
    LODE_CUDA_BORDERS = 4,          /* values from elsewhere that may be on their way */
    LODE_CUDA_MANY = 16,            /* rows from which on the tensor cores are faster */
    LODE_CUDA_GEMV_TILES = 128,     /* that a block of threads may have: gemv.cuh's LODE_GEMV_TILES */
};

static inline struct lode_cuda_divisor lode_cuda_divisor(uint32_t by) {
    return (struct lode_cuda_divisor){by, by > 1 ? UINT32_MAX / by + 1 : 0};
}

struct run {
    struct lode_backend base;
    struct lode_cuda *c;
    struct lode_cuda_opts o;
    void *stream;
    struct {
        char *host; /* pinned; (step_size) */
        void *sent;
    } slot[LODE_CUDA_SLOTS];
    unsigned next_slot;
    size_t written; /* bytes of the next slot */
    lode_dev step; /* device; (step_size), after what was drawn */
    lode_dev views; /* in it, of the only sequence; 0: there are several */
    size_t step_size;
    const lode_dev *weights; /* by id; NULL: the device's own */
    struct lode_cuda_bring *bring; /* owned; NULL: all weights are there */
    lode_dev scratch;
    uint64_t scratch_size;
    char *read; /* pinned; (max_read, out_stride) or (max_rows) of what is traced or copied */
    size_t read_size;
    struct {
        int32_t *ids; /* pinned; (DRAW_ROWS), the first last, as they lie before the step */
        struct lode_cuda_draws *draws; /* pinned */
        void *sent;
    } draw[LODE_CUDA_DRAWS];
    unsigned next_draw;
    struct lode_best *best; /* pinned; (max_read, LODE_BEST_MAX) */
    struct {
        char *host; /* pinned; (read_size) */
        void *sent;
    } border[LODE_CUDA_BORDERS]; /* what comes from other places */
    unsigned next_border;
    void *done; /* event: what another device waits for before it copies */
    /* experts: (pairs of a wave, stride) */
    lode_dev gate, up, h, down;
    uint64_t ff_stride, out_stride;
    lode_dev tiles, list; /* of pairs sorted by expert: kernels/products/gemm.cu */
    /* of the step that runs */
    uint32_t pages, tiles_rows;
    struct graph *graphs; /* owned; (n_cuts, LODE_CUDA_GRAPHS): a part's shapes, the least used makes room */
    uint64_t clock;
    struct lode_cuda_ranks *ranks; /* that it is one of, NULL: none; the first one's to free */
};

/* An instruction on its way. */
struct op {
    struct run *r;
    const struct lode_instr *in;
    const struct lode_step *step;
    struct lode_error *err;
    uint32_t n; /* rows of the result */
};

/* Bytes from one to the next of rows in pinned memory. */
static inline size_t lode_cuda_row_apart(size_t row) { return (row + 63) & ~(size_t)63; }

/* run.c: n instructions, behind which others up to `left` from here read what they have made. */
int lode_cuda_run_all(struct run *r, const struct lode_instr *instrs, uint32_t n, uint32_t left,
                      const struct lode_step *step, struct lode_error *err);
/* Whether a step is one that is captured; the shape of a step of such a plan, false where it is not.  draws: that the step ends in, a
 * head before them; 0: none, and no head. */
bool lode_cuda_is_captured(const struct lode_step *step);
bool lode_cuda_graph_key(const struct run *r, const struct lode_instr *instrs, const struct lode_step *step, uint32_t draws,
                         struct graph_key *key);
/* The place of a shape's graph. */
struct graph *lode_cuda_graph_of(struct run *r, const struct graph_key *key);
/* The graph of what launch(r, arg, err) launches, captured the second time that a shape comes; NULL: it is to be launched plainly. */
typedef int lode_cuda_launch_fn(struct run *r, const void *arg, struct lode_error *err);
void *lode_cuda_captured(struct run *r, const struct graph_key *key, lode_cuda_launch_fn *launch, const void *arg);
int lode_cuda_forget_graphs(struct run *r, struct lode_error *err);
/* Until all that was asked of the stream, or of all ranks, is done. */
int lode_cuda_wait_for_step(struct run *r, struct lode_error *err);

/* draw.c: lode_backend_ops' best, draw, drawn and draw_step */
const struct lode_best *lode_cuda_best(struct lode_backend *b, const struct lode_value *v, uint32_t n, uint32_t k,
                                       struct lode_error *err);
int lode_cuda_draw(struct lode_backend *b, const struct lode_value *v, uint32_t n, const struct lode_draw *draws,
                   struct lode_error *err);
int lode_cuda_drawn(struct lode_backend *b, int draw, uint32_t n, int32_t *ids, struct lode_error *err);
int lode_cuda_draw_step(struct lode_backend *b, const struct lode_drawn_step *d, const struct lode_step *step,
                        bool (*cancel)(void *user), void *cancel_user, struct lode_error *err);

/* ranks.c */
int lode_cuda_run_ranks(struct lode_backend *const *all, const struct lode_instr *const *instrs, uint32_t n_ranks,
                        uint32_t n, const struct lode_step *step, bool (*cancel)(void *user), void *cancel_user,
                        struct lode_error *err);
/* Until r's stream is done, or one of the ranks has failed. */
int lode_cuda_wait_ranks(struct lode_cuda_ranks *k, struct run *r, struct lode_error *err);
/* Ends what lode_cuda_join began. */
void lode_cuda_part_ranks(struct lode_cuda_ranks *k);

/* ops.c: launches one instruction. */
int lode_cuda_run_instr(const struct op *o);
/* What a choice of experts asks for; whether choose_quick (route.cuh) can make it by so many threads. */
bool lode_cuda_route_args(const struct op *o, uint32_t threads, struct lode_cuda_route_args *a);
/* attend.c: of any step. */
int lode_cuda_run_attention(const struct op *o);
/* Attention of a step with one row a sequence, whose queries, keys and values are still to be prepared where
 * `heads` says so, or with few rows that see few pages, all prepared: 1, 0 where that is not such a step or the format
 * is another, or an error. */
int lode_cuda_run_decode(const struct op *o, const struct lode_instr *attention,
                         const struct lode_cuda_prepare_args *prepared);
/* An error where a step is to be given up; cancel may be NULL. */
int lode_cuda_ask_cancel(bool (*cancel)(void *user), void *cancel_user, struct lode_error *err);
/* Pairs of a row and an expert that experts' buffers hold. */
uint32_t lode_cuda_wave_pairs(const struct lode_cuda_opts *o);

/* Tiles of up to so many pairs of an expert that pairs may come to. */
static inline uint32_t lode_cuda_tiles(uint32_t pairs, uint32_t n_experts, uint32_t tile) {
    const uint64_t most = (uint64_t)pairs / tile + n_experts;
    return most < pairs ? (uint32_t)most : pairs;
}
/* Tiles of a wave of pairs, at most; with the number of them. */
static inline uint64_t lode_cuda_most_tiles(uint64_t pairs, uint32_t n_experts) {
    return pairs / LODE_GEMM_TILE_X + 2 * n_experts + 1; /* the 2: of LODE_FEW_PAIRS, up to that many for each expert */
}

/* What the ranks or the pairs of `rows` rows have to another place. */
int lode_cuda_unite(const struct op *o, const struct lode_cuda_unite_args *a, uint32_t rows, uint32_t ranks);
/* n rows of a->a as floats to a->y, rounded to `type`. */
int lode_cuda_run_quant(const struct op *o, enum lode_dtype type, struct lode_cuda_row_args *a, uint32_t n);
/* An RMS norm; after: NULL, or the ADD of which it is an operand, y = a + scale b, norm_first says whether a, or the GLU that multiplies it with
 * an activation of `to`.  y may be where the norm's input is or `to`, or apart from both. */
struct lode_cuda_after_norm {
    struct lode_cuda_mat to, y;
    float scale;
    bool norm_first, gates;
    uint32_t act;
};
int lode_cuda_run_rms_norm(const struct op *o, const struct lode_cuda_after_norm *after);
/* A GLU; cut: NULL, or the CUT that makes its gate. */
int lode_cuda_run_glu(const struct op *o, const struct lode_instr *cut);
/* A ROW_GATE, then ADDs of what it gives, up to LODE_GATE_SUMS, to y. */
int lode_cuda_run_row_gate(const struct op *o, const struct lode_value *y, const struct lode_cuda_row_sum *sums, uint32_t n_sums);
/* Rows of w that a block of threads takes, with 1 << i rows of x (kernels/products/mul.cuh). */
uint32_t lode_cuda_mul_tile(enum lode_dtype type, int i);
/* The kernel of a product of many rows (kernels/products/gemm.cu, gemm_float.cu); NULL: there is none.  Its launch with weights of w's type. */
void *lode_cuda_many_kernel(const struct op *o, const struct lode_operand *w);
int lode_cuda_run_gemm(const struct op *o, const struct lode_operand *w, uint32_t x_tiles, uint32_t w_tiles,
                       const struct lode_cuda_gemm_args *a);

/* Rows of a product that may be a router's: of one matrix, or of one and beside it another with a row, the gate of an expert that all rows
 * go to.  UINT32_MAX: it is none. */
static inline uint32_t lode_cuda_router_rows(const struct lode_part *parts, uint32_t n) {
    return n == 1 || (n == 2 && parts[1].w->rows == 1) ? parts[0].w->rows : UINT32_MAX;
}
/* stream.c: rows of a unit of each part if a product of one row, of which a's columns, number of parts and input are
 * set, goes by gemv_stream.cu; 0: it does not.  Launches it. */
uint32_t lode_cuda_streams(const struct op *o, const struct lode_part *parts, const struct lode_cuda_gemv_args *a);
int lode_cuda_run_stream(const struct op *o, const struct lode_cuda_gemv_args *a);
/* The same of products of a's rows of x that go by gemv_stream_fast.cu, with lode_cuda_fast_parts' weights; what is launched has x
 * as that kernel reads it. */
uint32_t lode_cuda_streams_fast(const struct op *o, const struct lode_part *parts, const struct lode_cuda_gemv_args *a);
int lode_cuda_run_stream_fast(const struct op *o, const struct lode_cuda_few_args *f);

/* ops.c: a HEADS instruction from and to wherever that is said: bytes from a head's columns of x to the next one's, and between a head's
 * results and the next one's.  rounds: of one row, x are floats that are still to be rounded (LODE_ROUNDED_HEAD). */
struct lode_cuda_heads {
    struct lode_cuda_mat x, y;
    uint32_t x_head, y_head;
    bool rounds;
};
int lode_cuda_run_heads(const struct op *o, const struct lode_cuda_heads *h);

/* experts.c: an EXPERTS instruction whose weights are all here. */
int lode_cuda_run_experts(const struct op *o);
/* Its parts, for those that are computed wherever they lie (aside.c): pairs of a row and an expert, a row's
 * n_used beside each other in `route`, whose numbers (or those of the tiles) tell where an expert's matrices
 * begin: at w + number * size. */
struct lode_cuda_expert_call {
    lode_dev w[3], bias[3]; /* gate, up, down; bias: 0 where there is none */
    uint64_t size[3];
    struct lode_cuda_mat x, route; /* x: row of pair / x_div */
    uint32_t pairs, n_used, x_div;
    uint32_t n_tiles; /* of pairs sorted by expert, at most, that r->tiles and r->list have; 0: pair by pair */
    bool few;         /* these are of LODE_FEW_PAIRS pairs, for few_experts.c */
};
/* One of an instruction's products: pairs of rows and experts with gate and up, or with down. */
struct lode_cuda_expert_product {
    const struct lode_part *parts;
    const struct lode_cuda_expert_call *call;
    uint32_t first, n_parts, x_div; /* first: of the call's three; row of pair / x_div */
    struct lode_cuda_mat x;
    lode_dev up; /* where x is gate's rows: up's, which meet them first (few_experts.c, wide.c); else 0 */
    lode_dev y[2];
    uint64_t y_stride;
};
/* few_experts.c: whether a call's products are best made by groups of LODE_FEW_PAIRS pairs of one expert, as group_pairs leaves them;
 * and one of these.  x of gate and up is rounded, of down floats. */
bool lode_cuda_takes_few_experts(const struct op *o, const struct lode_cuda_expert_call *e);
int lode_cuda_multiply_few_experts(const struct op *o, const struct lode_cuda_expert_product *p);
/* Their outputs, not weighed, to r->down. */
int lode_cuda_multiply_experts(const struct op *o, const struct lode_cuda_expert_call *e);
/* Those of n rows, weighed and added up. */
int lode_cuda_sum_experts(const struct op *o, struct lode_cuda_mat route, struct lode_cuda_mat y, uint32_t n,
                          uint32_t n_used);

/* recur.c: the same for instructions of recurrent layers.  CONV with an L2_NORM of what it gives, of groups of up to
 * LODE_CUDA_CONV_COLUMNS numbers, and with DELTA_GATES, where these are not NULL.  DELTA_GATES as `a` says; NULL: as the instruction does,
 * which is what lode_cuda_gates_args tells. */
int lode_cuda_run_conv(const struct op *o, const struct lode_instr *norm, const struct lode_cuda_gates_args *gates);
struct lode_cuda_gates_args lode_cuda_gates_args(const struct op *o);
int lode_cuda_run_delta_gates(const struct op *o, const struct lode_cuda_gates_args *a);
int lode_cuda_run_delta(const struct op *o);

/* wide.c: products of pairs sorted by expert on Hopper's warpgroups, in at most x_tiles tiles; g: as for gemm.cu, all types
 * w's: 1, or 0 where the device or the type has none, which lode_cuda_takes_wide_sorted says too. */
bool lode_cuda_takes_wide_sorted(const struct op *o, const struct lode_operand *w, uint32_t x_tiles);
int lode_cuda_run_wide_sorted(const struct op *o, const struct lode_cuda_expert_product *e, struct lode_cuda_gemm_args g, uint32_t x_tiles,
                              uint32_t w_tiles);

/* The same of a HEADS instruction's part, head_rows rows of w a head, whose heads' rows of x lie in rows of `a`, which is as for gemm.cu but for
 * its parts. */
int lode_cuda_run_wide_heads(const struct op *o, const struct lode_part *p, uint32_t head_rows, struct lode_cuda_gemm_args a);

/* chain.c: a part of a product of few rows, whose first unit of work is `first`. */
struct lode_cuda_gemv_part lode_cuda_gemv_part(const struct op *o, const struct lode_part *p, uint32_t first);

/* fuse_few.c: which of few.cuh's kernels knows all types of a product; those that know few are quicker. */
enum lode_cuda_few_kind { LODE_CUDA_FEW_A256, LODE_CUDA_FEW_A32, LODE_CUDA_FEW_OWN, LODE_CUDA_FEW_Q4_Q6, LODE_CUDA_FEW_Q5_Q6 };
enum lode_cuda_few_kind lode_cuda_few_kind(const struct lode_part *parts, uint32_t n);
/* Bytes of an item of 16 rows by 256 numbers in shared memory. */
uint32_t lode_cuda_few_slot(enum lode_dtype type);
/* Warps of a block of threads, a tile each at most, of which there are `tiles` with `sums` bytes each: as many as have room for two
 * items of slot_size each; 0: too few. */
uint32_t lode_cuda_few_warps(const struct op *o, uint32_t tiles, uint32_t sums, uint32_t slot_size);
/* Items of each warp, all warps' first ones `items` bytes: as many as there is room for and as are of use for that type and row. */
uint32_t lode_cuda_few_depth(const struct op *o, uint32_t room, uint32_t items, enum lode_dtype type, uint32_t cols);
/* few.cuh's walk with `columns` groups of eight: its launch, and of f->a: tiles, depth, slot_size, x_slots.
 * x_block: bytes of a block of x that comes to shared memory; 0: it stays where it is.  False: no room. */
struct lode_cuda_few_launch {
    uint32_t grid, warps, shared;
};
bool lode_cuda_lay_out_few(const struct op *o, uint32_t columns, uint32_t x_block, struct lode_cuda_few_args *f,
                           struct lode_cuda_few_launch *l);

/* wide.c: rows of x, 64 or 128, of a block of threads of w_tiles * up(n_x, rows). */
uint32_t lode_cuda_wide_rows(const struct op *o, const struct lode_operand *w, uint32_t w_tiles, uint32_t n_x);
/* Whether a gate and what it gates can be multiplied where they are stored, by these kernels, which know of a type each. */
bool lode_cuda_can_gate(const struct op *o, void *const *kernels, const struct lode_part parts[2], uint32_t n_x);
/* How many of the n parts, from the first on, Hopper's warpgroups multiply with the same rounded rows; at most
 * LODE_CUDA_PARTS. */
uint32_t lode_cuda_wide_parts(const struct op *o, const struct lode_part *parts, uint32_t n);

/* fast.c: how many of the n parts, from the first on, are multiplied alike as --numerics tensor and fast have it, at most
 * LODE_CUDA_PARTS; x: the type of their rows.  Whatever their number is. */
uint32_t lode_cuda_fast_parts(const struct op *o, const struct lode_part *parts, uint32_t n, enum lode_dtype x);
uint64_t lode_cuda_fast_tile(uint32_t cols); /* bytes of LODE_FAST_TILE rows as Hopper's kernels want them */
/* An RMS norm that comes before. */
struct lode_cuda_norm {
    lode_dev weight; /* 0: none */
    float eps;
    struct lode_cuda_mat copy; /* of the normed rows, for others; may be 0 */
};
/* A residual or an activation that comes after, and where its result goes. */
struct lode_cuda_after {
    struct lode_cuda_fast_end end;
    struct lode_cuda_mat y;
};
/* Rows of x that are rounded, or floats, which may have a norm before them. */
struct lode_cuda_wide_x {
    struct lode_cuda_mat x;
    bool floats;
    const struct lode_cuda_norm *norm; /* NULL: none */
};
/* wide.c: n_x rows of x by parts that lode_cuda_wide_parts has counted; after: NULL or what comes after: 1, or 0 and nothing
 * done where that is to be launched by itself. */
int lode_cuda_run_wide(const struct op *o, const struct lode_part *parts, uint32_t n_parts,
                       const struct lode_cuda_wide_x *x, uint32_t n_x, const struct lode_cuda_after *after);
/* A product of n_x rows of x that are rounded where they are made: the tiles that it wants them in, `used` bytes of the scratch behind
 * which are free; false: this one takes none, or there is no room.  Then the product.  And the scratch that gate and up want for all
 * their n_x rows at once, which what they give may be rounded behind. */
bool lode_cuda_wide_tiles(const struct op *o, const struct lode_part *p, uint32_t n_x, uint64_t used, struct lode_cuda_tiles *x);
int lode_cuda_run_wide_rounded(const struct op *o, const struct lode_part *p, const struct lode_cuda_tiles *x, uint32_t n_x,
                               const struct lode_cuda_after *after);
uint64_t lode_cuda_wide_gated_size(const struct lode_operand *gate, uint32_t n_x);
/* fast.c: n_x rows of x by such parts; norm, after: NULL or what comes before and after (more than LODE_FEW_ROWS rows): 1, or 0 and
 * nothing done where that is to be launched by itself. */
int lode_cuda_run_fast(const struct op *o, const struct lode_part *parts, uint32_t n_parts, struct lode_cuda_mat x,
                       uint32_t n_x, const struct lode_cuda_norm *norm, const struct lode_cuda_after *after);
/* wide.c's lode_cuda_wide_tiles and those that follow it, of 16-bit weights. */
bool lode_cuda_fast_tiles(const struct op *o, const struct lode_part *p, uint32_t n_x, uint64_t used, struct lode_cuda_tiles *x);
int lode_cuda_run_fast_rounded(const struct op *o, const struct lode_part *p, const struct lode_cuda_tiles *x, uint32_t n_x,
                               const struct lode_cuda_after *after);
uint64_t lode_cuda_fast_size(uint32_t cols, uint32_t n_x); /* bytes of so many rows in tiles */
/* At most LODE_FEW_ROWS rows with what comes before and after them: f without x's place, tiles and shared memory; streams: its units have
 * as many rows as lode_cuda_streams_fast said; x and x_out: the rows' strides. */
int lode_cuda_run_few_fast(const struct op *o, struct lode_cuda_few_args *f, bool streams, uint64_t x_stride, uint64_t x_out_stride);

/* fast_packed.c: the same of packed weights: whether they are such; a few rows; n_x rows that lie in tiles of tile_size
 * bytes in the scratch, to y (n_parts). */
bool lode_cuda_is_packed(enum lode_dtype type);
int lode_cuda_run_few_packed(const struct op *o, struct lode_cuda_few_args *f, struct lode_cuda_fast_x_args *x);
int lode_cuda_multiply_packed(const struct op *o, const struct lode_part *parts, uint32_t n_parts,
                              const struct lode_cuda_mat *y, uint64_t tile_size, uint32_t n_x,
                              const struct lode_cuda_fast_end *end);

/* attend_fast.c: attention on the tensor cores: 1, or 0 where the layer's is exact.  Of one row a sequence, whose pages'
 * parts are still to be merged; of any step. */
bool lode_cuda_attends_fast(const struct op *o, const struct lode_cuda_att_args *a); /* whether it is */
/* Then: how its pages are added up, and how many parts that leaves; all_kv_heads: of the model, of which a rank may have some. */
void lode_cuda_set_chains(struct lode_cuda_att_args *a, uint32_t all_kv_heads);
int lode_cuda_run_decode_fast(const struct op *o, const struct lode_cuda_decode_args *d);
int lode_cuda_run_attention_fast(const struct op *o, const struct lode_cuda_att_args *a);
/* Of one row a sequence, or few of some, that see few pages: 1, or 0. */
int lode_cuda_run_short_fast(const struct op *o, const struct lode_cuda_decode_args *d);
/* attend.c: blocks of threads of a head of keys, for tiles of so many query rows. */
uint32_t lode_cuda_attention_tiles(const struct op *o, uint32_t group, uint32_t rows);
/* Bytes of the scratch for what a row's pages leave: of each head and page its numbers, its largest score and its weights' total. */
static inline uint64_t lode_cuda_parts_size(const struct lode_cuda_att_args *a) {
    return 4ull * (a->head_dim_v + 2) * a->n_heads * a->max_pages;
}
/* join.c: what pages of `rows` rows from a->first_row on have left in the scratch, to one. */
int lode_cuda_merge_parts(const struct op *o, const struct lode_cuda_att_args *a, uint32_t rows);
/* attend.c: which of the kernels that know the numbers of heads: 0 for any, 1 for 64, 2 for 128. */
int lode_cuda_size_of_heads(const struct lode_cuda_att_args *a);
/* All memory from LODE_CUDA_MAP_FROM on, for copies of boxes of so many rows of dim numbers of 16 bits, 64 or 128, as panels (Hopper).
 * false: keys and values do not lie as such rows, or the driver doesn't take it. */
bool lode_cuda_map_memory(const struct lode_cuda *c, const struct lode_kv_view *v, uint32_t dim, uint32_t rows, struct lode_cuda_map *map);
/* The same of pages of keys of any multiple of 64 numbers, each brought whole. */
bool lode_cuda_map_long_rows(const struct lode_cuda *c, const struct lode_kv_view *v, uint32_t dim, struct lode_cuda_map *map);
/* Blocks of threads of decode_walk.cu, decode_short.cu and the like that a multiprocessor has shared memory for: each takes 1 KB of its own
 * beside, and its kernel up to LODE_WALK_STATIC. */
uint32_t lode_cuda_blocks_by_shared(const struct lode_cuda *c, uint32_t shared);
/* The second of many rows, to tiles. */
int lode_cuda_run_attention_rounded(const struct op *o, const struct lode_cuda_tiles *tiles);

/* fuse.c: launches o->in and what follows it as one, where it can; n instructions are left, o->in the
 * first.  Returns how many it ran, 0 for none, or an error. */
int lode_cuda_run_fused(const struct op *o, uint32_t n);

/* step.c: writes a step, with the draws that it ends in (n_out; NULL: none), for the device; r->pages and r->views are its. */
size_t lode_cuda_step_size(const struct lode_cuda_opts *o);
int lode_cuda_write_step(struct run *r, const struct lode_step *step, const struct lode_cuda_draws *draws,
                         struct lode_error *err);
/* Sends what was written.  to_graph: a graph comes next, which waits until it is there; of kernels the second one may begin, and
 * look at pages, while the first still waits for the one before it. */
int lode_cuda_send_step(struct run *r, bool to_graph, struct lode_error *err);
/* Where the draws lie on the device. */
lode_dev lode_cuda_step_draws(const struct run *r, const struct lode_step *step);

/* Bytes of so many numbers of a value's row. */
static inline uint32_t lode_cuda_numbers_size(enum lode_dtype type, uint32_t n) {
    size_t size = 0;
    lode_dtype_row_size(type, n, &size);
    return (uint32_t)size;
}
static inline uint32_t lode_cuda_up(uint32_t n, uint32_t by) { return (n + by - 1) / by; }
/* Rows of the step's sequence that has most of them: one at least. */
static inline uint32_t lode_cuda_rows_of_longest(const struct lode_step *step) {
    uint32_t rows = 1;
    for (uint32_t i = 0; i < step->n_segments; i++)
        rows = step->segments[i].n_rows > rows ? step->segments[i].n_rows : rows;
    return rows;
}
/* Groups of eight that up to LODE_FEW_ROWS rows are for the kernels that take a few: one, two or four. */
static inline uint32_t lode_cuda_groups_of(uint32_t n) { return n > 16 ? 4 : n > 8 ? 2 : 1; }
/* Which of the kernels for one row, 8, 16 and 32 takes so many groups; 0: the one row by itself. */
static inline uint32_t lode_cuda_few_size(uint32_t groups) { return groups ? 1 + groups / 2 : 0; }
/* Blocks of threads for n chains or pages, of which `most` run at once. */
static inline uint32_t lode_cuda_blocks_for(uint32_t n, uint32_t most) { return most < 1 ? 1 : most < n ? most : n; }

static inline struct lode_cuda_mat lode_cuda_mat(const struct lode_value *v) {
    return (struct lode_cuda_mat){(lode_dev)(uintptr_t)v->data, v->stride};
}
static inline lode_dev lode_cuda_weight(const struct op *o, const struct lode_operand *w) {
    return w ? (o->r->weights ? o->r->weights : o->r->c->weights)[w->id] : 0;
}
/* One matrix of a product: first_tile tiles are those of the matrices before. */
static inline struct lode_cuda_part lode_cuda_part(const struct op *o, const struct lode_part *p,
                                                   uint32_t first_tile) {
    return (struct lode_cuda_part){.w = lode_cuda_weight(o, p->w),
                                   .bias = lode_cuda_weight(o, p->bias),
                                   .y = (lode_dev)(uintptr_t)p->out.data,
                                   .w_stride = lode_cuda_row_size(p->w->type, p->w->cols),
                                   .y_stride = p->out.stride,
                                   .rows = p->w->rows,
                                   .first_tile = first_tile};
}
/* Bytes from one expert's matrix to the next. */
static inline uint64_t lode_cuda_expert_size(const struct op *o, const struct lode_operand *w) {
    return w->count > 1 ? o->r->c->weights[w->id + 1] - o->r->c->weights[w->id] : 0;
}
static inline int lode_cuda_run_kernel(const struct op *o, void *kernel, uint32_t x, uint32_t y, uint32_t z,
                                       uint32_t threads, uint32_t shared, const void *args) {
    return lode_cuda_launch(o->r->c, o->r->stream, kernel, x, y, z, threads, shared, args, o->err);
}
/* The same of products of few rows: of a model larger than the second cache they read weights that are wanted again when the cache
 * has long had others. */
int lode_cuda_run_product(const struct op *o, const struct lode_cuda_gemv_args *a, void *kernel, uint32_t x, uint32_t threads,
                          uint32_t shared, const void *args);

#endif
