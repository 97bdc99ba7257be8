/* aside.h - a device that computes experts of the host's layers: those that its cache holds (cache.h), and some that
 * are brought while the host computes others.
 *
 * Of a step of few rows it takes what its cache has (aside.c, few_pairs.c), and where it reads experts from the host's memory by
 * itself as many of the others as arrive by the time the host would be done with the rest, which what earlier ones took says;
 * where none does, one may be brought for later.
 * What it gives are rows for pairs of a row and an expert, which the host weighs and adds up with its own.
 *
 * Of a prompt's step it takes all (whole.c), where that is quicker than the host: experts go up in halves of a double
 * buffer, the next while one is computed, and rows come back added up.
 *
 * A half has the matrices as files have them, one kind after the other (bring.c); the device lays them out in its own
 * planes as it does when a model is loaded. */
#ifndef LODE_BACKEND_CUDA_ASIDE_H
#define LODE_BACKEND_CUDA_ASIDE_H

#include "backend/cuda/cache.h"
#include "backend/cuda/half.h"
#include "backend/cuda/run.h"

enum {
    ASIDE_PAIRS = 256, /* of a take, at most */
    ASIDE_HALF_MOST = 16, /* experts of a half, at most */
    ASIDE_TILES = 64,  /* of a launch, so that the room for what is spread is bounded */
    ASIDE_ALIGN = 256,
    ASIDE_GRAPHS = 128, /* of few pairs */
    ASIDE_GRAPH_PAIRS = 32, /* of a take that they are used for, at most */
};

struct wanted {
    uint32_t share, expert;
    const char *w[3];
};

struct held { /* of a take */
    uint32_t share, slot, first; /* first: row of its results */
};

struct aside {
    struct lode_aside base;
    struct lode_cuda *c;
    struct lode_cuda_aside_opts o;
    struct run run; /* what launches want of one: stream, buffers */
    void *copies;   /* a stream: what goes up */
    struct half half[2];
    uint64_t half_size;
    lode_dev laid;  /* (half_size and padding): a half's experts as kernels read them */
    char *in;       /* pinned; (in_size), and there: routes, lists, rows of x */
    lode_dev in_there;
    char *tiles;    /* pinned; (most_tiles) structs, and there */
    lode_dev tiles_there;
    uint32_t most_tiles, n_tiles;
    lode_dev sum;   /* (max_rows, out_stride) */
    char *out;      /* pinned: results */
    void *done;     /* event: they are there */
    uint32_t most_pairs;

    struct lode_aside_job job; /* that is under way */
    struct lode_cuda_kept *kept;
    struct held held[ASIDE_PAIRS];
    uint32_t n_held, n_hits, n_rows_hit, n_rows; /* the first n_hits are hits, the others are brought */
    struct graph graphs[ASIDE_GRAPHS];
    uint64_t clock; /* of their uses */
    int rc;
    struct lode_error error;
    uint64_t begun;    /* ns */
    double took;       /* ns from there until results came, of late, at most, where nothing is brought; */
    double byte_ns;    /* and what a byte that is brought adds to it */
    uint32_t n_left;   /* takes that were not worth it */
    double bus;        /* bytes/s, of late */
    struct {
        struct lode_cuda_kept *kept; /* NULL: none is */
        uint32_t slot;
    } offered;
    uint32_t n_offers, n_takes;
    uint32_t later; /* of the take: a share that is to be brought, but not waited for; LODE_NO_PLACE: none */
    bool *have;      /* owned; (n_experts), as the next */
    uint32_t *slots;
};

static inline uint64_t aside_up(uint64_t n, uint64_t by) { return (n + by - 1) / by * by; }
/* Bytes of a row of n floats. */
static inline uint64_t aside_row(uint64_t n) { return aside_up(n * sizeof(float), ASIDE_ALIGN); }

/* ---- bring.c: experts on their way ---- */

/* Where a half's n experts lie: matrices of each of the three, then biases. */
struct places {
    uint64_t at[6], step[6], size[6], end;
};
struct places aside_places(const struct lode_cuda_kind *k, uint32_t n);
/* Bytes of a half for such experts. */
uint64_t aside_half_size(const struct lode_cuda_aside_opts *o);
/* Experts of a kind that a half has room for, also when they are laid out. */
uint32_t aside_half_room(const struct aside *a, const struct lode_cuda_kind *k);
/* n experts to a half, when nobody reads what it had, by the stream of copies.  host: whose threads copy them to
 * pinned memory; NULL: they are there. */
int aside_send(struct aside *a, struct half *h, const struct wanted *experts, uint32_t n,
               const struct lode_aside_host *host, struct lode_error *err);
/* Experts i .. i + n - 1 of a half's n_all to their planes, those of matrix m from to[m] on. */
int aside_lay_out(struct aside *a, void *stream, const struct half *h, uint32_t i, uint32_t n, uint32_t n_all,
                  const lode_dev to[3], struct lode_error *err);
/* One of a half's experts to a slot. */
int aside_lay_in_slot(struct aside *a, void *stream, const struct half *h, uint32_t i, uint32_t n_all, uint32_t slot,
                      struct lode_error *err);

/* ---- aside.c ---- */

/* Whether nothing that was offered is on its way; wait: until then. */
bool aside_settle_offer(struct aside *a, bool wait);
/* The call reads slots. */
void aside_set_slots(const struct lode_cuda_kind *k, struct lode_cuda_expert_call *e);

/* ---- few_pairs.c ---- */

/* All that a->held has, to a->out when a->done has come. */
int aside_begin_few(struct aside *a);
void aside_drop_graphs(struct aside *a);

/* ---- whole.c: lode_aside_ops' ---- */

uint32_t aside_most_rows(struct lode_aside *base, const struct lode_instr *in);
bool aside_wants_all(struct lode_aside *base, const struct lode_aside_job *job);
int aside_run_all(struct lode_aside *base, const struct lode_aside_job *job, const struct lode_aside_host *host,
                  struct lode_error *err);

#endif
