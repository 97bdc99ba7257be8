/* shared.h - what host and device agree on: the arguments of kernels, the step as a device reads it,
 * how weights lie in its memory.  Included by C and by CUDA.
 *
 * Weights.  A row of a quantised matrix is kept as planes: a field of all its blocks, then the next
 * field of all its blocks (lode_cuda_planes below gives the order), so that a warp reads each with
 * whole 16-byte loads whatever the size of a block is in the file.  Rows lie a multiple of 16 bytes
 * apart.  The same bytes otherwise: nothing is converted.
 */
#ifndef LODE_BACKEND_CUDA_SHARED_H
#define LODE_BACKEND_CUDA_SHARED_H

#include <stdint.h>

typedef unsigned long long lode_dev; /* an address of device memory */

enum {
    LODE_CUDA_PARTS = 8,  /* products of one launch */
    LODE_CUDA_PLANES = 6, /* of a row of blocks, at most */
    LODE_CUDA_CONV_ROWS = 16, /* of a block of threads, at most */
    LODE_CUDA_CONV_COLUMNS = 128,
};

/* One row of a step. */
struct lode_cuda_row {
    uint32_t pos, segment;
    int32_t token;
    uint32_t part;     /* 1 in the second text of a pair */
    lode_dev views;    /* its segment's, */
    uint32_t step_pos; /* and position: a load that another waits for is spared */
    uint32_t pad;
};

struct lode_cuda_segment {
    uint32_t first_row, n_rows, pos;
    uint32_t mark;  /* rows before the checkpoint that the step leaves; UINT32_MAX: none */
    lode_dev views; /* (n_layers) struct lode_cuda_view */
    lode_dev ropes; /* (n specifications) struct lode_cuda_rope */
    lode_dev state, state_mark; /* the blocks of recurrent layers: now, and the checkpoint's */
};

/* Where a layer's keys and values lie: lode_kv_view with the pages' addresses in its table. */
enum { LODE_CUDA_NEAR_PAGES = 4 };
struct lode_cuda_view {
    lode_dev pages; /* (n_entries) addresses */
    uint32_t n_entries, k_stride, v_stride, type_k, type_v, v_in_k;
    unsigned long long k, v;
    lode_dev near[LODE_CUDA_NEAR_PAGES]; /* the table's first, where nobody has to ask for them anew */
};

struct lode_cuda_rope {
    lode_dev freq; /* (n_pairs) doubles */
    double scale;
};

/* The step in device memory; always at the same address, so that a captured graph finds it.  Its rows, (n_rows) struct
 * lode_cuda_row, follow at once, so that nobody has to read where they are. */
struct lode_cuda_step {
    lode_dev segments; /* (n_segments) */
    lode_dev out_rows; /* (n_out) uint32_t */
    uint32_t n_rows, n_segments, n_out, pad;
};

/* A number that a kernel divides by: its launch tells what makes that one multiplication (common.cuh's over), where a division of
 * its own is some twenty instructions, each of which waits for the one before.  part: 2^32 / by, rounded up; 0: by is 1. */
struct lode_cuda_divisor {
    uint32_t by, part;
};

/* A value: rows `stride` bytes apart. */
struct lode_cuda_mat {
    lode_dev data;
    unsigned long long stride;
};

/* Rows that are rounded where they are made, as a product of many that reads them wants them: tile after tile. */
enum lode_cuda_tile_kind {
    LODE_TILES_NONE,   /* they are not */
    LODE_TILES_PANELS, /* of LODE_FAST_TILE rows, for BF16 weights: as fast_x leaves them */
    LODE_TILES_SPREAD, /* of 64 or 128 rows, for weights that meet blocks of 32: as spread_floats_32 does (spread.cuh) */
};
struct lode_cuda_tiles {
    lode_dev data;
    unsigned long long size; /* bytes of one */
    uint32_t kind, rows;     /* rows: of one */
};

struct lode_cuda_part {
    lode_dev w, bias, y;
    unsigned long long w_stride, y_stride; /* bytes of a row */
    uint32_t rows, first_tile;             /* tiles of the parts before */
};

struct lode_cuda_mul_args {
    struct lode_cuda_part parts[LODE_CUDA_PARTS];
    struct lode_cuda_mat x;
    uint32_t n_parts, n_x, cols;
    uint32_t rounds; /* one row of HEADS by quantised weights: x are floats, a head's of which (LODE_ROUNDED_HEAD at most) each block rounds */
    /* HEADS: the part's rows in n_heads pieces, each with its own columns of x (x_head bytes from one's to the next one's); y_head: bytes
     * between a head's results and the next one's. */
    uint32_t head_rows, x_head, y_head, pad;
};
enum { LODE_ROUNDED_HEAD = 512 }; /* numbers */

/* Products of many rows; of experts where there are tiles (gemm.cu). */
enum {
    LODE_GEMM_TILE_W = 128,
    LODE_GEMM_TILE_X = 64,
    LODE_GEMM_LARGE_X = 128,           /* of gemm_large_* */
    LODE_GEMM_THREADS = 4,             /* a row of x */
    LODE_GEMM_SHARED = 38 << 10,       /* bytes of shared memory */
    LODE_GEMM_LARGE_SHARED = 98 << 10,
    LODE_GEMM_FLOAT_SHARED = 64 << 10, /* of gemm_float.cu's, all that Turing has */
};
struct lode_cuda_gemm_tile { /* of pairs of one expert */
    uint32_t expert, first, n, pad;
};
struct lode_cuda_gemm_args {
    struct lode_cuda_part parts[LODE_CUDA_PARTS];
    unsigned long long expert_size[LODE_CUDA_PARTS];
    struct lode_cuda_mat x; /* of pairs: row by x_div */
    uint32_t n_parts, n_x, cols, x_div;
    lode_dev tiles, list; /* as group_pairs leaves them; 0: rows as they come */
    /* wide.cu: tiles of all parts; units (a tile of x by one of w) from first_unit on, n_units of them or, 0, all.  beside:
     * the launch before, one of wide.cu too, multiplies the same x: it need not have ended.  halved: x is spread in tiles
     * of twice the kernel's, two units each. */
    uint32_t w_tiles, first_unit, n_units, beside, halved;
    /* HEADS: a head's tiles of w, which are whole, bytes from a head's x to the next one's (wide.cu: from its spread tiles), and between
     * a head's results and the next one's; both 0: there are no heads. */
    struct lode_cuda_divisor head_tiles;
    uint32_t x_head, y_head;
};
/* The same on Hopper's warpgroups (wide.cu), where x is what spread leaves. */
enum {
    LODE_WIDE_W = 128,
    LODE_WIDE_SHARED = 227 << 10,
    LODE_WIDE_THREADS = 384,
};
struct lode_cuda_spread_args {
    struct lode_cuda_mat x;
    lode_dev y, tiles, list; /* y: tiles of `tile` rows, each of tile_size bytes */
    unsigned long long tile_size;
    uint32_t n_x, cols, tile, x_div;
    uint32_t x_head, y_head; /* HEADS: bytes of x, and of its tiles, from a head (blockIdx.z) to the next */
};
struct lode_cuda_spread_met_args { /* of pairs of a row and an expert, gate and up meet where they are rounded */
    struct lode_cuda_spread_args to; /* x: gate's rows, of pairs */
    struct lode_cuda_mat route;
    lode_dev up; /* rows as far apart as x's */
    uint32_t n_used, act, weigh_input, pad;
};
enum { LODE_GROUP_EXPERTS = 1024 }; /* at most */
struct lode_cuda_group_args {
    struct lode_cuda_mat route;
    lode_dev tiles, list; /* tiles: a number, padded to a tile; the tiles.  list: pairs by expert */
    uint32_t n_pairs, n_used, tile; /* pairs of a tile, at most */
};

/* EXPERTS: products for (row, place) pairs, pair = row * n_used + place.  w: expert e's matrix at
 * w + e * expert_size. */
struct lode_cuda_moe_args {
    lode_dev w[2], bias[2], y[2]; /* of gate and up, or of down alone */
    struct lode_cuda_mat x;       /* row of pair / x_div */
    struct lode_cuda_mat route;
    unsigned long long expert_size, w_stride, y_stride;
    uint32_t n_kinds, n_used, x_div, rows, cols, n_pairs;
};

struct lode_cuda_moe_act_args {
    lode_dev gate, up, y; /* (n_pairs, stride) */
    struct lode_cuda_mat route;
    unsigned long long stride;
    uint32_t n, n_used, act, weigh_input;
};

struct lode_cuda_moe_sum_args {
    lode_dev down;
    struct lode_cuda_mat route, y;
    unsigned long long stride;
    uint32_t n, n_used, weigh_input;
};

struct lode_cuda_route_args {
    struct lode_cuda_mat x, y;
    lode_dev bias;
    uint32_t n, n_used, gating, normalise, n_groups, n_groups_used;
    float scale;
    uint32_t part_bits; /* choose_quick: 1 << this many threads an expert, up to LODE_QUICK_PARTS */
};
/* choose_quick: experts, and of them those that a row goes to, at most; bytes of shared memory. */
enum { LODE_QUICK_EXPERTS = 256, LODE_QUICK_USED = 32, LODE_QUICK_PARTS = 3, LODE_QUICK_CHOICE = 8 * LODE_QUICK_EXPERTS + 4 * 32 + 8 * LODE_QUICK_USED };

struct lode_cuda_embed_args {
    lode_dev step, w;
    struct lode_cuda_mat y;
    unsigned long long w_stride;
    uint32_t cols, by;
    float scale;
};

/* Ops on rows: y = f(a, b).  rms_norm: b, if it is there, is added to the norm, scale and product_first tell how; or, where it `gates`, is
 * what the norm is multiplied with after the activation `kind`.  glu: where n is not 0, a's numbers are `group` from number `first` on of each
 * n of a row. */
struct lode_cuda_row_args {
    lode_dev step;
    struct lode_cuda_mat y, a, b;
    lode_dev w, bias;
    uint32_t width, width_a, width_b; /* numbers; of y, a, b */
    uint32_t group, n, first, kind, product_first, gates;
    float scale, eps;
    struct lode_cuda_divisor head; /* CUT, JOIN */
};
/* ROW_GATE, and ADDs of what it gives to other rows. */
enum { LODE_GATE_SUMS = 2, LODE_GATE_NUMBERS = 4 /* of a thread, at most */ };
struct lode_cuda_row_gate_args {
    struct lode_cuda_mat x, gate, y;
    struct lode_cuda_row_sum {
        struct lode_cuda_mat to;
        float scale;
        uint32_t product_first;
    } sums[LODE_GATE_SUMS];
    uint32_t width, n_sums;
};
/* rms_norm: numbers of a thread, in fours; threads of a block at most, and at least where there is a four for each. */
enum { LODE_NORM_FOURS = 2, LODE_NORM_THREADS = 1024, LODE_NORM_LEAST = 128, LODE_NORM_COLS = 4 * LODE_NORM_FOURS * LODE_NORM_THREADS };

struct lode_cuda_gather_args {
    lode_dev order; /* (width) uint32_t */
    struct lode_cuda_mat x, y;
    uint32_t width, pad;
};

struct lode_cuda_put_args {
    lode_dev step;
    struct lode_cuda_mat k, v;
    uint32_t layer, n_heads, head_dim, head_dim_v;
};

struct lode_cuda_att_args {
    lode_dev step, sinks, scratch;
    lode_dev views; /* of all rows, if they are of one sequence; else 0 */
    struct lode_cuda_mat q, y;
    uint32_t layer, n_heads, n_kv_heads, head_dim, head_dim_v, window, chunk, both_ways;
    uint32_t max_pages; /* of the scratch; of --numerics tensor chains */
    uint32_t chains;    /* of --numerics tensor: pages from one of a chain to its next (attention_fast.cuh) */
    float scale, cap;
    uint32_t first_row; /* of the launch, among the step's: decode.cu, decode_walk.cu, decode_join.cu, attention_fast.cu's parts */
    uint32_t n_rows;    /* from there on, of one sequence: attention_fast.cu's parts */
    uint32_t kv_rows;   /* attention.cu: keys or values that there is shared memory for, a page's or a power of two below */
    struct lode_cuda_tiles tiles; /* attention_fast.cu, attention_wide.cu: where results go, not to y */
};

/* ---- a product of one row with what surrounds it (gemv.cu) ---- */

enum lode_cuda_gemv_input {
    LODE_GEMV_AS_IS, /* x is rounded already (float weights: x are floats) */
    LODE_GEMV_ROUND, /* x are floats */
    LODE_GEMV_NORM,  /* x are floats that an RMS norm comes before */
};
enum lode_cuda_gemv_output {
    LODE_GEMV_STORE,
    LODE_GEMV_ADD, /* a residual is added to the one part */
    LODE_GEMV_GLU, /* gate and up to their gated product; of one matrix each, or of the chosen experts */
    LODE_GEMV_SUM, /* the chosen experts' results, weighed and summed */
};
enum { LODE_GEMV_TILE = 16 }; /* rows of a tile */

struct lode_cuda_gemv_part {
    lode_dev w, bias, y;
    unsigned long long expert_size;
    uint32_t w_stride, rows, type, first_unit;
};

/* A unit of work is a tile of rows of one part (STORE, ADD), of gate and up (GLU: of one expert), of all
 * chosen experts (SUM); a block of threads takes every gridDim-th. */
struct lode_cuda_gemv_args {
    struct lode_cuda_gemv_part parts[LODE_CUDA_PARTS];
    lode_dev x, norm; /* norm: weights; may be 0 */
    lode_dev x_out, q_out; /* where the normed and the rounded row go; 0: nobody else reads them */
    lode_dev residual, route;
    unsigned long long x_stride, y_stride; /* bytes; of the experts' rows */
    uint32_t n_parts, cols, input, output, n_units, per_unit /* tiles */;
    uint32_t n_x, n_used, act, weigh_input, product_first;
    uint32_t ld;    /* floats of a row of the stage */
    uint32_t phase; /* units that the stage has room for */
    uint32_t x_at;  /* bytes of shared memory before x */
    uint32_t ahead; /* tiles to fetch before they are needed */
    float eps, scale;
    lode_dev next; /* weights that the next product begins with, to be fetched when this one's are read */
    uint32_t next_size; /* bytes for each block of threads */
    uint32_t rows_at;   /* gemv_float.cu: bytes of shared memory before a block's only unit of rows; 0: not there */
};
enum { LODE_ROWS_APART = 64 }; /* bytes between rows there, for the banks */
enum { LODE_FLOAT_ROWS = 4 };  /* of a unit of gemv_float.cu, and of a block of gemv_near.cu at most */

/* Numbers of a row in one of the sixteen lanes of a norm's sum, and some for the banks. */
#define LODE_LANE_PITCH(cols) ((((cols) / 16 + 31) & ~31u) + 4)
/* Bytes of a row that lies so. */
#define LODE_LANES_SIZE(cols) (16 * 4 * LODE_LANE_PITCH(cols))
/* gemv_near.cu: threads of a block, its rows of weights are 1 << i, i below LODE_NEAR_SIZES; numbers of a row, at most, in multiples of
 * LODE_NEAR_STEP; bytes of shared memory: x, rows, the norm's weights. */
enum { LODE_NEAR_THREADS = 512, LODE_NEAR_SIZES = 3, LODE_NEAR_COLS = 8192, LODE_NEAR_STEP = 16 };
#define LODE_NEAR_SHARED(cols, rows) ((1 + (rows)) * LODE_LANES_SIZE(cols) + 4 * (cols))

/* ---- the same of a few rows (few.cu) ---- */

enum {
    LODE_FEW_ROWS = 32,   /* at most */
    LODE_FEW_WARPS = 16,  /* of a block of threads, at most: half or a quarter where shared memory is small */
    LODE_FEW_SUMS = 512,  /* bytes of a tile's, of eight columns */
    LODE_FEW_X256 = 2624, /* bytes of 256 numbers of eight rows of x, rounded to A256 */
    LODE_FEW_X32 = 2560,  /* to A32 */
    LODE_X_SLOTS = 64, /* of x's ring, at most */
    LODE_FEW_X_SHARED = 2, /* groups of eight columns from which on there is one, of A256 */
};

/* Rows of x to the order in which few.cuh reads them: (cols / 256, groups) blocks. */
struct lode_cuda_few_x_args {
    struct lode_cuda_mat x, x_out; /* x_out: normed, for others; may be 0 */
    lode_dev norm, y;
    uint32_t cols, n_x, input, groups; /* groups: of eight columns */
    float eps;
};

/* a.x: such blocks; a.q_out: 0; a.x_out, a.route: not used.  A block of threads computes `tiles` tiles at a
 * time, at most one for each warp. */
struct lode_cuda_few_args {
    struct lode_cuda_gemv_args a;
    uint32_t y_stride[LODE_CUDA_PARTS], residual_stride; /* bytes */
    uint32_t tiles;
    uint32_t depth, slot_size; /* items that a warp has room for; bytes of one */
    struct lode_cuda_divisor x_slots; /* blocks of x that there is room for; on Hopper (few_x.cuh) */
};

/* ---- routed experts of a few rows (few_experts.cu), by group_pairs' tiles of so many pairs ---- */

enum { LODE_FEW_PAIRS = 8 };

/* Pairs' rows of x to the order in which few.cuh reads them: (tiles, cols / 256) blocks. */
struct lode_cuda_few_pairs_args {
    struct lode_cuda_mat x, route; /* row of pair / x_div: rounded (input LODE_GEMV_AS_IS), or floats */
    lode_dev up;                   /* 0, or x is gate and this up, whose activation is meant; rows as far apart as x's */
    lode_dev tiles, list, y;
    uint32_t cols, x_div, n_used, input, act, weigh_input;
};
struct lode_cuda_few_experts_part {
    lode_dev w, bias, y;
    unsigned long long expert_size, w_stride;
    uint32_t type, rows, tiles; /* tiles: of 16 rows of an expert */
};
struct lode_cuda_few_experts_args {
    struct lode_cuda_few_experts_part parts[2];
    lode_dev x, tiles, list;
    unsigned long long y_stride; /* of pairs */
    struct lode_cuda_divisor each; /* an expert's tiles of all parts */
    uint32_t n_parts, cols, depth, slot_size;
};

/* ---- 16-bit weights in --numerics tensor (fast.cuh) ---- */

enum {
    LODE_FAST_SLICE = 256, /* numbers of K between float additions */
    LODE_FAST_TILE = 128,  /* rows of w, and of x, of a block of threads */
    LODE_FAST_PANEL = LODE_FAST_TILE * 128, /* bytes of 64 numbers of a tile's rows */
    LODE_FAST_THREADS = 384,
    LODE_FAST_SHARED = 6 * 2 * LODE_FAST_PANEL + 2048,
    LODE_FAST_TILE_SHARED = 2 * 2 * LODE_FAST_PANEL + 1024,
    LODE_FAST_CLUSTER_X = 1, /* tiles of x, and of w, whose blocks share what they load */
    LODE_FAST_CLUSTER_W = 2,
};

/* Rows of x to tiles of panels (fast_x: tile_size bytes each, then the rows' factors), or to the order in
 * which few rows are read (few_fast_x: for each 16 numbers `groups` times 32 pieces of 8 bytes, then 8 factors
 * a group).  Of exact products to spread tiles (spread_floats, wide.cu). */
struct lode_cuda_fast_x_args {
    struct lode_cuda_mat x, x_out; /* x_out: normed, for others; may be 0 */
    lode_dev norm, y;
    unsigned long long tile_size;
    uint32_t cols, n_x, input, groups;
    uint32_t paired; /* few: numbers 2 q, 2 q + 1, 2 q + 8 and 2 q + 9 of sixteen are thread q's, not 4 q and on (gemv_stream_fast.cu) */
    float eps;
};

/* What comes after a product of many rows, before it is stored: nothing, a residual (LODE_GEMV_ADD), or the gated
 * product of the two parts (LODE_GEMV_GLU), which goes where the first part says, or to tiles: panels where these weights are BF16,
 * spread ones where they are blocks of 32. */
struct lode_cuda_fast_end {
    lode_dev residual;
    unsigned long long residual_stride;
    struct lode_cuda_tiles tiles;
    uint32_t output, act, product_first;
    float scale;
};

/* CUtensorMap */
struct __attribute__((aligned(64))) lode_cuda_map { unsigned long long opaque[16]; };
#define LODE_CUDA_MAP_FROM (1ull << 30) /* where maps of all memory begin */
/* g.x: such tiles; maps: of each part's w, for Hopper.  Of gate and up a tile has half the rows of both. */
struct lode_cuda_fast_args {
    struct lode_cuda_map maps[LODE_CUDA_PARTS];
    struct lode_cuda_gemm_args g;
    struct lode_cuda_fast_end end;
    uint32_t w_tiles, x_tiles;
};
/* The same of packed weights (wide.cu, wide_glu.cu; --numerics fast: wide_fast.cu, wide_gated.cu). */
struct lode_cuda_packed_args {
    struct lode_cuda_gemm_args g;
    struct lode_cuda_fast_end end;
};

/* Norms and rotations of queries and keys, and the cache's entry, in one. */
struct lode_cuda_prepare_args {
    lode_dev step, norm_q, norm_k;
    struct lode_cuda_mat q, k, v, q_out, k_out, table;
    uint32_t layer, n_heads, n_kv_heads, head_dim, head_dim_v;
    uint32_t q_apart;              /* numbers from a head of q to the next */
    uint32_t norms_q, norms_k;     /* whether there is a norm */
    uint32_t pairs_q, pairs_k;     /* that are turned; 0: no rotation */
    uint32_t kind_q, kind_k;       /* pairs are neighbours */
    float eps_q, eps_k;
};

/* Latent attention between its products (latent.cu). */
enum { LODE_LATENT_NUMBERS = 576, LODE_LATENT_WARPS = 4 }; /* of a row that is kept, at most; of a block of threads */
struct lode_cuda_latent_args {
    lode_dev step, norm;           /* norm: c's weights; 0: it has none */
    struct lode_cuda_mat c, r;     /* a token's row, not normed and not turned: rank numbers, 2 pairs numbers */
    struct lode_cuda_mat table;
    struct lode_cuda_mat q, turned, rounded; /* turned: where the first head's turned numbers go; rounded.data 0: nothing is rounded */
    uint32_t layer, rank, pairs;
    uint32_t kind, kind_q;         /* pairs are neighbours */
    uint32_t n_heads;              /* of queries; 0: they are left alone */
    uint32_t head, turned_head;    /* numbers from a head to the next, of q and of what is turned */
    uint32_t plain_at, plain, rope_at; /* of a head: what is rounded, and 2 pairs numbers that are turned */
    float eps;
};

/* Attention of one row a sequence; where there are heads to prepare, with what `prepare` does. */
struct lode_cuda_decode_args {
    struct lode_cuda_att_args att;
    struct lode_cuda_prepare_args heads;
    uint32_t prepares, pad;
};

/* Numbers of rows of x: number h of a row is number first + h / each * apart + h % each. */
struct lode_cuda_numbers {
    struct lode_cuda_mat x;
    uint32_t first, apart;
    struct lode_cuda_divisor each;
};

/* DELTA_GATES: of each head a decay and a rate, made of two numbers and two weights. */
struct lode_cuda_gates_args {
    lode_dev a, dt; /* weights */
    struct lode_cuda_numbers alpha, beta;
    struct lode_cuda_mat y;
    struct lode_cuda_divisor n_heads;
};

/* CONV, and what may come with it: an L2_NORM of what it gives, and DELTA_GATES. */
struct lode_cuda_conv_args {
    lode_dev step, w;
    struct lode_cuda_mat x, y;
    unsigned long long at, w_stride; /* at: bytes from a block's start to the layer's part */
    uint32_t width, taps, silu;
    uint32_t columns, blocks; /* of a block of threads; of these, behind which are those that make gates */
    uint32_t group, n, n_scaled; /* the norm's, whose groups are parts of a block's columns; n 0: there is none */
    struct lode_cuda_divisor groups; /* of a block's columns */
    float scale, eps;
    struct lode_cuda_gates_args gates;
};

/* DELTA. */
struct lode_cuda_recur_args {
    lode_dev step;
    struct lode_cuda_mat x, gates, y;
    unsigned long long at;
    uint32_t n_k_heads, n_heads, dim_k, dim_v, tiled, pad;
};

/* The largest numbers of rows (best.cu). */
enum {
    LODE_BEST_MOST = 256,    /* that are wanted */
    LODE_BEST_SLICES = 1024, /* of a row, at most */
    LODE_BEST_SLICE_THREADS = 256,
    LODE_BEST_THREADS = LODE_BEST_SLICES, /* a slice each */
};
struct lode_cuda_best_args {
    struct lode_cuda_mat x;
    lode_dev tops; /* (rows, n_slices): the largest of each slice */
    lode_dev y;    /* the host's: (rows, k) pairs of a number and its place, -1: there are no more; draws: none */
    uint32_t width, log_slice, n_slices, k; /* log_slice: of a slice's numbers, 32 and more */
};

enum { LODE_READS_THREADS = 256 };
struct lode_cuda_reads_args {
    lode_dev at;
    unsigned long long n; /* pieces of 16 bytes */
};

struct lode_cuda_repack_args {
    lode_dev dst, src;
    unsigned long long rows, dst_stride;
    uint32_t blocks, block_size, n_planes;
    uint32_t offset[LODE_CUDA_PLANES], size[LODE_CUDA_PLANES];
};

/* X(suffix, type, numbers in a block, {offset in the block, bytes} of each plane).  Widest first. */
#define LODE_CUDA_QUANT_LIST(X)                                                                    \
    X(q4_0, Q4_0, 32, {2, 16}, {0, 2})                                                             \
    X(q4_1, Q4_1, 32, {4, 16}, {0, 4})                                                             \
    X(q5_0, Q5_0, 32, {6, 16}, {2, 4}, {0, 2})                                                     \
    X(q5_1, Q5_1, 32, {8, 16}, {4, 4}, {0, 4})                                                     \
    X(q8_0, Q8_0, 32, {2, 32}, {0, 2})                                                             \
    X(iq4_nl, IQ4_NL, 32, {2, 16}, {0, 2})                                                         \
    X(mxfp4, MXFP4, 32, {1, 16}, {0, 1})                                                           \
    X(q2_k, Q2_K, 256, {16, 64}, {0, 16}, {80, 4})                                                 \
    X(q3_k, Q3_K, 256, {32, 64}, {0, 32}, {96, 12}, {108, 2})                                      \
    X(q4_k, Q4_K, 256, {16, 128}, {0, 16})                                                         \
    X(q5_k, Q5_K, 256, {48, 128}, {16, 32}, {0, 16})                                               \
    X(q6_k, Q6_K, 256, {0, 128}, {128, 64}, {192, 16}, {208, 2})                                   \
    X(iq4_xs, IQ4_XS, 256, {8, 128}, {0, 8})
#define LODE_CUDA_FLOAT_LIST(X) X(f32, F32) X(f16, F16) X(bf16, BF16)
/* lode's own: blocks of 64 are pairs of 32, in planes of the first and of the second.  Of fused kernels those of one row
 * know them (gemv_own.cu). */
/* What GPTQ, AWQ and MLX directories of 4 bits become. */
#define LODE_CUDA_U4_LIST(X) X(u4, U4, 64, {4, 16}, {24, 16}, {0, 4}, {20, 4})
#define LODE_CUDA_U_LIST(X)                                                                        \
    X(u2, U2, 64, {4, 8}, {16, 8}, {0, 4}, {12, 4})                                                \
    X(u3, U3, 64, {4, 8}, {20, 8}, {12, 4}, {28, 4}, {0, 4}, {16, 4})                              \
    LODE_CUDA_U4_LIST(X)                                                                           \
    X(u5, U5, 64, {4, 16}, {28, 16}, {20, 4}, {44, 4}, {0, 4}, {24, 4})                            \
    X(u6, U6, 64, {4, 16}, {32, 16}, {20, 8}, {48, 8}, {0, 4}, {28, 4})                            \
    X(u4g32, U4G32, 32, {8, 16}, {0, 8})
/* The same with codes of eight bits, which gemm.cu, whose codes have signs, does not take. */
#define LODE_CUDA_U8_LIST(X)                                                                       \
    X(u8, U8, 64, {4, 32}, {40, 32}, {0, 4}, {36, 4})                                              \
    X(u8g32, U8G32, 32, {8, 32}, {0, 8})
/* Blocks of several 32, whose scales lie together (parts.cuh): as those. */
#define LODE_CUDA_BITS_LIST(X) X(q1_0, Q1_0, 128, {2, 16}, {0, 2}) X(q2_0, Q2_0, 64, {2, 16}, {0, 2})
#define LODE_CUDA_PART_LIST(X)                                                                     \
    LODE_CUDA_BITS_LIST(X)                                                                         \
    X(nvfp4, NVFP4, 64, {4, 32}, {0, 4})                                                           \
    X(nvfp4g, NVFP4G, 64, {8, 32}, {0, 8})
/* Of these, what kernels of a few rows and Hopper's warpgroups know too (few_own.cu, wide_own.cu). */
#define LODE_CUDA_OWN_LIST(X) LODE_CUDA_U4_LIST(X) LODE_CUDA_BITS_LIST(X)
/* Codebooks and ternary digits (codebook.cuh): of fused kernels those of one row know them. */
#define LODE_CUDA_CODEBOOK_LIST(X)                                                                 \
    X(tq1_0, TQ1_0, 256, {0, 32}, {32, 16}, {48, 4}, {52, 2})                                      \
    X(tq2_0, TQ2_0, 256, {0, 64}, {64, 2})                                                         \
    X(iq1_s, IQ1_S, 256, {2, 32}, {34, 16}, {0, 2})                                                \
    X(iq1_m, IQ1_M, 256, {0, 32}, {32, 16}, {48, 8})                                               \
    X(iq2_xxs, IQ2_XXS, 256, {2, 64}, {0, 2})                                                      \
    X(iq2_xs, IQ2_XS, 256, {2, 64}, {66, 8}, {0, 2})                                               \
    X(iq2_s, IQ2_S, 256, {2, 32}, {34, 32}, {66, 8}, {74, 8}, {0, 2})                              \
    X(iq3_xxs, IQ3_XXS, 256, {2, 64}, {66, 32}, {0, 2})                                            \
    X(iq3_s, IQ3_S, 256, {2, 64}, {74, 32}, {66, 8}, {106, 4}, {0, 2})
enum { LODE_CODEBOOK_GRIDS = 33792 }; /* bytes of shared memory that gemv_codebook.cu keeps for grids */
/* X(suffix, type): as they lie in the file, with products in float (packed.cuh). */
#define LODE_CUDA_PACKED_LIST(X) X(e4m3, E4M3) X(e5m2, E5M2)

#endif
