/* shared.h - what host and device agree on, whatever runs: the step as a device reads it, and how a kernel is told of rows.  The arguments
 * of kernels are in *_shared.h, how weights lie in planes.h.  All of these are included by C and by CUDA. */
#ifndef LODE_BACKEND_CUDA_SHARED_H
#define LODE_BACKEND_CUDA_SHARED_H

#include <stdint.h>

typedef unsigned long long lode_dev; /* an address of device memory */

enum {
    LODE_CUDA_PARTS = 8,  /* products of one launch */
    LODE_CUDA_PLANES = 6, /* of a row of blocks, at most */
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

/* CUtensorMap, and where maps of all memory begin. */
struct __attribute__((aligned(64))) lode_cuda_map { unsigned long long opaque[16]; };
#define LODE_CUDA_MAP_FROM (1ull << 30)

#endif
