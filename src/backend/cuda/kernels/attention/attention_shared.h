/* attention_shared.h - what attention's kernels are told, and how they lie in shared memory. */
#ifndef LODE_CUDA_ATTENTION_SHARED_H
#define LODE_CUDA_ATTENTION_SHARED_H

#include "backend/cuda/kernels/shared.h"

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

/* decode.cu: bytes from one key to the next in shared memory, where there is room for keys (keys_here): those of four keys
 * that threads read at once are in different banks. */
#define LODE_DECODE_KEY_PITCH(dim) (((2 * (dim) + 127) & ~127u) + 32)
/* Bytes of shared memory for a page: queries and a key, scores, their exponentials, values, keys. */
#define LODE_DECODE_PAGE(heads, dim, dim_v, keys_here)                                             \
    (4 * (((heads) + 1) * (dim) + 2 * 64 * (heads)) + 64 * (2 * (dim_v) + ((keys_here) ? LODE_DECODE_KEY_PITCH(dim) : 0)))
/* Threads of a page; pages of a block, at most: one of eight query heads. */
enum { LODE_DECODE_THREADS = 128, LODE_DECODE_PAGES = 4 };
struct lode_cuda_page_args {
    struct lode_cuda_decode_args decode;
    uint32_t keys_here, whole, page_bytes; /* whole: a block has all pages */
    uint32_t group;                        /* query heads of a head of keys, */
    struct lode_cuda_divisor parts;        /* whose blocks */
    struct lode_cuda_divisor each;         /* threads of a head's values */
    struct lode_cuda_divisor k_pieces, v_pieces; /* of 16 bytes, of a row */
};

/* decode_short.cu: threads of a page; pages of a block, at most; bytes from one key to the next in shared memory, so that pieces of
 * 16 bytes of eight keys have all banks; bytes of a page: keys, values, scores, weights as each warp finds them; of a block: a query
 * and a key's room, and its pages. */
enum { LODE_SHORT_THREADS = 256, LODE_SHORT_PAGES = 4 };
#define LODE_SHORT_KEY_PITCH(dim) (((2 * (dim) + 127) & ~127u) + 16)
#define LODE_SHORT_PAGE(dim, dim_v) (64 * (LODE_SHORT_KEY_PITCH(dim) + 2 * (dim_v) + 4 + 4 * LODE_SHORT_THREADS / 32))
#define LODE_SHORT_SHARED(dim, dim_v, pages) (8 * (dim) + (pages) * LODE_SHORT_PAGE(dim, dim_v))
/* own_head.cuh: whether a head of `dim` numbers, 64 or 128, is turned in a warp's registers, and needs no room of its own. */
#define LODE_TURNS_IN_REGISTERS(dim, pairs, normed, neighbours) ((pairs) == (dim) / 2 && !((normed) && (neighbours)))
struct lode_cuda_short_args {
    struct lode_cuda_decode_args decode;
    struct lode_cuda_divisor group; /* query heads of a head of keys */
    struct lode_cuda_divisor k_pieces, v_pieces; /* of 16 bytes, of a row */
};

/* decode_walk.cu: blocks of a multiprocessor, warps of a block (two are a pair), each with its ring of slots of so many
 * rows of keys or values. */
enum { LODE_WALK_BLOCKS = 4, LODE_WALK_WARPS = 4, LODE_WALK_SLOTS = 3, LODE_WALK_ROWS = 16 };
/* Bytes from one key in 16 bits to the next in a slot: an odd number of 16 bytes, so that neighbours are in other banks. */
#define LODE_WALK_KEY_STRIDE(dim) (16 * ((dim) / 8 | 1))
/* Keys of so many numbers lie in two panels (wgmma.cuh) instead, as copies by a map leave them. */
enum { LODE_WALK_PANELS = 128 };
/* Bytes of shared memory before what a launch asks for: barriers, and up to where panels may begin. */
enum { LODE_WALK_STATIC = 1024 };
/* Floats of a pair's scores, where the row's own key and value of up to dim numbers are prepared before. */
#define LODE_WALK_SCORES(heads, dim) (64 * (heads) > 2 * (dim) ? 64 * (heads) : 2 * (dim))
/* Where slots begin; dim: of keys, most: of keys and values. */
#define LODE_WALK_SLOTS_AT(heads, dim, most)                                                       \
    ((4 * (heads) * (dim) + 4 * (most) + LODE_WALK_WARPS / 2 * 4 * LODE_WALK_SCORES(heads, most) + 1023) / 1024 * 1024)
struct lode_cuda_walk_args {
    struct lode_cuda_map rows; /* of LODE_WALK_PANELS numbers: a map of all memory (lode_cuda_map_memory) */
    struct lode_cuda_decode_args decode;
    uint32_t slot_size; /* bytes */
    uint32_t early;     /* parts of a pair's first page that are asked for before the launch before has ended, 2 at most; 0: it puts
                         * other rows' keys into them */
};
/* decode_join: pages that are merged at a time, or twice as many, by a thread each, beside two warps that add; numbers of a head that a block
 * has; pages that are read before they are added; bytes of shared memory for so many pages: parts, factors, totals and words of their warps. */
enum { LODE_JOIN_PAGES = 128, LODE_JOIN_COLS = 32, LODE_JOIN_AHEAD = 16 };
/* decode_join_once.cu: pages, which are its threads too; bytes of shared memory that it asks for beside its own, so that blocks spread. */
enum { LODE_JOIN_ONCE_PAGES = 128, LODE_JOIN_ONCE_ROOM = 22000 };
/* decode_join_rows.cu: pages at most, bytes of shared memory of a warp's page, threads of a block. */
enum { LODE_JOIN_ROWS_PAGES = 160, LODE_JOIN_ROWS_PAGE = 4 * LODE_JOIN_COLS + 16, LODE_JOIN_ROWS_THREADS = 128 };
#define LODE_JOIN_THREADS(pages) ((pages) + 64)
#define LODE_JOIN_SLOT(pages) (4 * (((pages) + LODE_JOIN_AHEAD) * (LODE_JOIN_COLS + 3) + 2 * (pages) / 32))

/* attention_large.cu: threads of a block, which has 64 or 32 query rows; bytes of shared memory: queries or sums, keys or
 * values, scores, seven numbers a row, keys or values as stored. */
enum { LODE_LARGE_THREADS = 128 };
#define LODE_LARGE_SHARED(rows) (4 * ((rows) * 128 + 64 * (128 + 4) + 64 * ((rows) + 4) + 7 * (rows)) + 64 * (2 * 128 + 16))

/* attention_ring.cu: query rows of a block, its threads, slots of the ring; bytes of shared memory: the ring, queries or sums,
 * scores, seven numbers a row, and a few more. */
enum { LODE_RING_ROWS = 128, LODE_RING_THREADS = 384, LODE_RING_SLOTS = 3 };
#define LODE_RING_SHARED(dim)                                                                      \
    (4 * (LODE_RING_SLOTS * 64 * ((dim) + 4) + LODE_RING_ROWS * ((dim) + 64 + 7)) + 256)
struct lode_cuda_ring_args {
    struct lode_cuda_att_args att;
    uint32_t halves, pad; /* a block has rows of the last and of the first tokens, not neighbours */
};

/* attention_fast.cuh: query rows of a block of attention_fast.cu, threads of both kernels; bytes from one key or value to
 * the next in shared memory. */
enum { LODE_ATT_FAST_ROWS = 64, LODE_ATT_FAST_THREADS = 128 };
/* How many chains a row's pages are added up as, of all heads of keys and of one at least; pages that are a chain each. */
#define LODE_ATT_CHAINS 528u
#define LODE_ATT_LEAST_CHAINS 16u
#define LODE_ATT_NO_CHAINS (1u << 30)
#define LODE_ATT_FAST_STRIDE(dim) (2 * (dim) + 16)
/* .. as it is kept in Q8_0. */
#define LODE_ATT_Q8_0_STRIDE(dim) ((dim) / 32 * 34)
/* Rounded queries of sixteen rows. */
#define LODE_ATT_FAST_QUERIES(dim) (32 * (dim))
/* Bytes of shared memory: queries of the block's rows, keys, values. */
#define LODE_ATT_FAST_SHARED(dim, dim_v)                                                           \
    (LODE_ATT_FAST_ROWS / 16 * LODE_ATT_FAST_QUERIES(dim) + 64 * (LODE_ATT_FAST_STRIDE(dim) + LODE_ATT_FAST_STRIDE(dim_v)))
/* .. of keys and values in Q8_0: both as halves in one place, one of them as they are kept. */
#define LODE_ATT_FAST_MOST(dim, dim_v) ((dim) > (dim_v) ? (dim) : (dim_v))
#define LODE_ATT_FAST_Q8_0_SHARED(dim, dim_v)                                                      \
    (LODE_ATT_FAST_ROWS / 16 * LODE_ATT_FAST_QUERIES(dim) + 64 * LODE_ATT_FAST_STRIDE(LODE_ATT_FAST_MOST(dim, dim_v)) + \
     64 * LODE_ATT_Q8_0_STRIDE(LODE_ATT_FAST_MOST(dim, dim_v)))
/* attention_wide.cu: pages of the rings; bytes of shared memory: where panels may begin, queries of each warpgroup that multiplies, keys and
 * values, barriers.  Of pages of Q8_0, which are widened on their way (widen_pages.cuh): as many of keys and of values in stages, and
 * barriers of those. */
enum { LODE_ATT_WIDE_SLOTS = 3, LODE_ATT_WIDE_STAGES = 2 };
#define LODE_ATT_WIDE_SHARED(dim, groups) (1024 + ((groups) + 2 * LODE_ATT_WIDE_SLOTS) * 64 * 2 * (dim) + 1024)
#define LODE_ATT_WIDE_Q8_0_SHARED(dim, groups)                                                     \
    (LODE_ATT_WIDE_SHARED(dim, groups) + 2 * LODE_ATT_WIDE_STAGES * 64 * LODE_ATT_Q8_0_STRIDE(dim) + 1024)
struct lode_cuda_att_wide_args {
    struct lode_cuda_map rows; /* of all memory (lode_cuda_map_memory); of nothing for pages of Q8_0 */
    struct lode_cuda_att_args att;
};
/* attention_long.cu: numbers of a key and of a value, at most, threads of a block, floats from a row's scores to the next's; how many chains a row's
 * pages are added up as: what one leaves is about as long as its page; bytes of shared memory of so many query rows, beside slots, and of a slot for
 * keys or values. */
enum { LODE_ATT_LONG_DIM = 576, LODE_ATT_LONG_DIM_V = 512, LODE_ATT_LONG_THREADS = 256, LODE_ATT_LONG_SCORES = 64 + 8, LODE_ATT_LONG_CHAINS = 128 };
/* What its blocks take beside what a launch gives them: less than LODE_CUDA_OWN_SHARED, so that a slot fits where there are 99 KB. */
enum { LODE_ATT_LONG_OWN = 256 };
#define LODE_ATT_LONG_SLOT(dim) (64 * LODE_ATT_FAST_STRIDE(dim))
#define LODE_ATT_LONG_SHARED(rows, dim, slots) ((rows) * (2 * (dim) + 4 * LODE_ATT_LONG_SCORES) + (slots) * LODE_ATT_LONG_SLOT(dim))
struct lode_cuda_att_long_args {
    struct lode_cuda_att_args att;
    uint32_t slots, slot_size;
};
/* attention_latent.cu: pages of the ring; bytes of shared memory: where panels may begin, queries, pages, barriers. */
enum { LODE_ATT_LATENT_SLOTS = 2 };
#define LODE_ATT_LATENT_SHARED (1024 + (1 + LODE_ATT_LATENT_SLOTS) * 64 * 2 * LODE_ATT_LONG_DIM + 1024)
/* decode_fast.cu: query heads of a head of keys at a time, at most; floats from one's scores to the next's; blocks of a
 * multiprocessor; bytes of shared memory: queries rounded, keys, values, scores, room for each query and the row's own key and value. */
enum { LODE_DECODE_FAST_HEADS = 16, LODE_DECODE_FAST_SCORES = 64 + 8, LODE_DECODE_FAST_BLOCKS = 4 };
#define LODE_DECODE_FAST_SHARED(heads, dim, dim_v)                                                 \
    (((heads) + 64) * LODE_ATT_FAST_STRIDE(dim) + 64 * LODE_ATT_FAST_STRIDE(dim_v) +                \
     4 * ((heads) * LODE_DECODE_FAST_SCORES + ((heads) + 2) * (dim)))
/* .. of keys and values in Q8_0: both as halves in one place, each as they are kept. */
#define LODE_DECODE_FAST_Q8_0_SHARED(heads, dim, dim_v)                                            \
    ((heads) * LODE_ATT_FAST_STRIDE(dim) + 64 * LODE_ATT_FAST_STRIDE(LODE_ATT_FAST_MOST(dim, dim_v)) + \
     64 * LODE_ATT_Q8_0_STRIDE((dim) + (dim_v)) + 4 * ((heads) * LODE_DECODE_FAST_SCORES + ((heads) + 2) * (dim)))
/* decode_ring.cu: warps of a block that have chains, beside one that begins, and pages of a warp that there is room for, at most; bytes of shared
 * memory: where panels may begin, `pages` of all warps, and what is beside them. */
enum { LODE_DECODE_RING_WARPS = 7, LODE_DECODE_RING_PAGES = 4 };
#define LODE_DECODE_RING_SMALL(heads, dim)                                                         \
    ((heads) * LODE_ATT_FAST_STRIDE(dim) + 4 * (dim) + 4 * (heads) + 4 * ((heads) + 2) * (dim) +    \
     16 * LODE_DECODE_RING_WARPS * LODE_DECODE_RING_PAGES + 64)
#define LODE_DECODE_RING_SHARED(heads, dim, pages) (1024 + (pages) * 2 * 64 * 2 * (dim) + LODE_DECODE_RING_SMALL(heads, dim))
struct lode_cuda_ring_decode_args {
    struct lode_cuda_map rows; /* of all memory (lode_cuda_map_memory) */
    struct lode_cuda_decode_args decode;
    uint32_t pages, pad; /* of a warp */
};
/* parts_ring.cu: warps of a block that multiply, beside one that brings; sixteens of query rows, a warp each, that have the same chains; slots of the
 * ring, for keys or values of a page; heads of keys that a block may have chains of; bytes of shared memory: where panels may begin, slots, what is
 * beside them, queries. */
enum { LODE_PARTS_RING_WARPS = 11, LODE_PARTS_RING_TILES = 8, LODE_PARTS_RING_SLOTS = 16, LODE_PARTS_RING_HEADS = 2 };
enum { LODE_PARTS_RING_BARRIERS = LODE_PARTS_RING_SLOTS + 3 * LODE_PARTS_RING_WARPS }; /* at most: parts_ring.cu's `later` */
#define LODE_PARTS_RING_SLOT(dim) (64 * 2 * (dim))
#define LODE_PARTS_RING_OWN (16 * LODE_PARTS_RING_BARRIERS + 64 * LODE_PARTS_RING_HEADS * LODE_PARTS_RING_TILES)
#define LODE_PARTS_RING_SHARED(tiles, dim, slots)                                                        \
    (1024 + (slots) * LODE_PARTS_RING_SLOT(dim) + LODE_PARTS_RING_OWN + 16 * LODE_PARTS_RING_HEADS * (tiles) * LODE_ATT_FAST_STRIDE(dim))
struct lode_cuda_parts_ring_args {
    struct lode_cuda_map rows; /* of all memory (lode_cuda_map_memory) */
    struct lode_cuda_att_args att;
    uint32_t tiles, groups, slots, pad; /* sixteens of query rows; chains at a time; of the ring: two for each of those, at least */
};
/* decode_short_fast.cu: query heads of a head of keys, at most; where pages begin, behind queries and a room for each and the row's own key
 * and value; of a page: keys, values, scores. */
enum { LODE_SHORT_FAST_HEADS = 8 };
#define LODE_SHORT_FAST_PAGES_AT(dim)                                                              \
    (LODE_SHORT_FAST_HEADS * LODE_ATT_FAST_STRIDE(dim) + (LODE_SHORT_FAST_HEADS + 2) * 4 * (dim))
#define LODE_SHORT_FAST_PAGE(dim, dim_v)                                                           \
    (64 * (LODE_ATT_FAST_STRIDE(dim) + LODE_ATT_FAST_STRIDE(dim_v)) + 4 * LODE_SHORT_FAST_HEADS * LODE_DECODE_FAST_SCORES)
#define LODE_SHORT_FAST_SHARED(dim, dim_v, pages) (LODE_SHORT_FAST_PAGES_AT(dim) + (pages) * LODE_SHORT_FAST_PAGE(dim, dim_v))
/* .. of keys and values in Q8_0: behind all that as they are kept. */
#define LODE_SHORT_FAST_Q8_0_PAGE(dim, dim_v) (LODE_SHORT_FAST_PAGE(dim, dim_v) + 64 * LODE_ATT_Q8_0_STRIDE((dim) + (dim_v)))
#define LODE_SHORT_FAST_Q8_0_SHARED(dim, dim_v, pages) (LODE_SHORT_FAST_PAGES_AT(dim) + (pages) * LODE_SHORT_FAST_Q8_0_PAGE(dim, dim_v))
struct lode_cuda_short_fast_args {
    struct lode_cuda_decode_args decode;
    struct lode_cuda_divisor parts; /* of a head of keys' query heads, */
    uint32_t group, heads;          /* all of which are so many, and of a part so many */
    struct lode_cuda_divisor k_pieces, v_pieces; /* of 16 bytes, of a row */
};

#endif
