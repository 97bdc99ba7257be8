/* rows.c - the numbers of a tensor, a few rows at a time: read, turned, widened, quantised,
 * written.
 *
 * A piece has at most PIECE numbers (or one row), so memory does not grow with the model.  What
 * needs no change goes from the mapping to the file. */
#include "convert/parts.h"

#include "base/alloc.h"
#include "base/error.h"
#include "kern/kern.h"
#include "quant/quant.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>

enum { PIECE = 4 << 20 };

/* A piece of one matrix while it is worked on. */
struct piece {
    const struct lode_convert_step *step;
    struct lode_kern kern;
    lode_quant_fn *quantise;
    lode_repack_fn *repack; /* instead, where there is one */
    uint64_t n_cols;
    size_t from_row, to_row; /* bytes */
    const char *from;
    char *to;              /* owned */
    float *wide;           /* owned; (threads, n_cols) */
    const float *weights;  /* (n_cols), or NULL */
    const uint32_t *order; /* of the source's columns, or NULL */
    atomic_uint bad;       /* a row with a number that the target does not hold; UINT_MAX: none */
};

/* The row of the source that becomes row r. */
static uint64_t source_row(const struct lode_convert_step *s, uint64_t r) {
    const uint64_t head = r / s->head_dim, i = r % s->head_dim;
    return i < 2 * (uint64_t)s->n_pairs ? head * s->head_dim + i / 2 + (i & 1) * s->n_pairs : r;
}

/* Bytes [row, row + n) rows of matrix m, in the order of the file: *out points into the mapping,
 * or to buffer.  For a vector a row is one number here. */
static int fetch(struct lode_convert *c, const struct lode_convert_step *s, size_t matrix,
                 uint64_t row, uint64_t n, size_t row_size, char *buffer, const char **out,
                 struct lode_error *err) {
    const size_t size = s->t->size / (size_t)(s->t->dims[2] * s->t->dims[3]);
    const char *mapped = lode_source_data(c->source, s->t, matrix, size);
    *out = mapped ? mapped + row * row_size : buffer;
    if (!s->n_pairs)
        return mapped ? 0
                      : lode_source_read(c->source, s->t, matrix + row * row_size, buffer,
                                         n * row_size, err);
    *out = buffer;
    for (uint64_t r = 0; r < n; r++) {
        const size_t at = source_row(s, row + r) * row_size;
        if (mapped)
            memcpy(buffer + r * row_size, mapped + at, row_size);
        else
            LODE_TRY(lode_source_read(c->source, s->t, matrix + at, buffer + r * row_size, row_size,
                                      err));
    }
    return 0;
}

/* Whether the target holds all of x: finite, and no larger than its scales or numbers can be. */
static bool holds(enum lode_dtype to, const float *x, uint64_t n) {
    static const float half_max = 65504.0f;
    const bool wide = to == LODE_F32 || to == LODE_BF16;
    for (uint64_t i = 0; i < n; i++)
        if (!(fabsf(x[i]) <= half_max) && !wide)
            return false;
    return true;
}

static void one_row(void *arg, uint32_t task, uint32_t worker) {
    struct piece *p = arg;
    float *wide = p->wide + worker * p->n_cols * (p->order ? 2 : 1);
    if (p->repack) {
        p->repack(p->to + task * p->to_row, p->from + task * p->from_row, p->n_cols);
        return;
    }
    float *lying = p->order ? wide + p->n_cols : wide; /* as the row has them */
    p->kern.dequant[p->step->t->type](lying, p->from + task * p->from_row, p->n_cols);
    for (uint64_t i = 0; i < p->n_cols && p->order; i++)
        wide[p->order[i]] = lying[i];
    if (holds(p->step->to, wide, p->n_cols)) {
        p->quantise(p->to + task * p->to_row, wide, p->weights, p->n_cols);
        return;
    }
    unsigned seen = atomic_load(&p->bad);
    while (task < seen && !atomic_compare_exchange_weak(&p->bad, &seen, task)) {}
}

static int convert_piece(struct lode_convert *c, struct piece *p, uint64_t row, uint32_t n,
                         struct lode_error *err) {
    atomic_store(&p->bad, UINT32_MAX);
    lode_pool_run(c->pool, one_row, p, n);
    const uint32_t bad = atomic_load(&p->bad);
    if (bad == UINT32_MAX)
        return lode_gguf_writer_data(c->writer, p->to, n * p->to_row, err);
    LODE_TRY(lode_source_check(c->source, err)); /* zeros of a file that shrank are no news */
    return lode_fail(err, LODE_ERR_FORMAT, p->step->t->name,
                     "row %" PRIu64 " has a number that is not finite or beyond 65504, which %s "
                     "cannot hold: --type BF16 or F32 can",
                     row + bad, lode_dtypes[p->step->to].name);
}

static int piece_init(struct lode_convert *c, struct piece *p, const struct lode_convert_step *s,
                      uint64_t rows, struct lode_error *err) {
    *p = (struct piece){.step = s,
                        .n_cols = s->t->dims[0],
                        .quantise = lode_quantiser(s->to),
                        .repack = lode_repacker(s->t->type, s->to),
                        .order = lode_source_order(c->source, s->t)};
    if (p->order)
        p->repack = NULL; /* it would keep the order */
    lode_kern_table(&p->kern, lode_isa_best());
    if (!lode_dtype_row_size(s->t->type, p->n_cols, &p->from_row) ||
        !lode_dtype_row_size(s->to, p->n_cols, &p->to_row))
        return lode_fail(err, LODE_ERR_INTERNAL, s->t->name, "no whole blocks in a row");
    if (s->to == s->t->type)
        return 0;
    if (!p->quantise || !p->kern.dequant[s->t->type])
        return lode_fail(err, LODE_ERR_UNSUPPORTED, s->t->name, "%s cannot become %s",
                         lode_dtypes[s->t->type].name, lode_dtypes[s->to].name);
    p->to = lode_alloc(rows, p->to_row);
    p->wide =
        lode_alloc(lode_pool_threads(c->pool) * p->n_cols * (p->order ? 2 : 1), sizeof *p->wide);
    return p->to && p->wide ? 0 : lode_fail_nomem(err, s->t->name);
}

static int convert_matrix(struct lode_convert_stream *st, struct piece *p, size_t matrix,
                          uint64_t n_rows, uint64_t most, char *buffer, struct lode_error *err) {
    struct lode_convert *c = st->c;
    const bool vector = p->step->t->n_dims == 1;
    for (uint64_t row = 0; row < n_rows; row += most) {
        const uint64_t n = n_rows - row < most ? n_rows - row : most;
        const uint64_t parts =
            vector ? p->n_cols : n; /* a vector's numbers are turned one by one */
        LODE_TRY(fetch(c, p->step, matrix, row, parts,
                       vector ? p->from_row / p->n_cols : p->from_row, buffer, &p->from, err));
        if (p->step->to == p->step->t->type)
            LODE_TRY(lode_gguf_writer_data(c->writer, p->from, n * p->from_row, err));
        else
            LODE_TRY(convert_piece(c, p, row, (uint32_t)n, err));
        st->done += n * p->from_row;
        if (st->progress && st->progress(st->user, "writing", st->done, c->info.work) != 0)
            return lode_fail(err, LODE_ERR_CANCELLED, c->source->path, "stopped; nothing was kept");
    }
    return lode_source_check(c->source, err);
}

int lode_convert_rows(struct lode_convert_stream *st, const struct lode_convert_step *s,
                      struct lode_error *err) {
    const struct lode_gguf_tensor *t = s->t;
    struct piece p;
    if (t->size == 0)
        return 0;
    const uint64_t n_rows = t->dims[1], n_matrices = t->dims[2] * t->dims[3];
    uint64_t most = PIECE / t->dims[0];
    most = most < 1 ? 1 : most > n_rows ? n_rows : most;
    int rc = piece_init(st->c, &p, s, most, err);
    char *buffer = rc == 0 ? lode_alloc(most, p.from_row) : NULL;
    if (rc == 0 && !buffer)
        rc = lode_fail_nomem(err, t->name);
    for (uint64_t m = 0; rc == 0 && m < n_matrices; m++) {
        p.weights = s->weights ? s->weights + m * p.n_cols : NULL;
        rc = convert_matrix(st, &p, (size_t)m * (size_t)n_rows * p.from_row, n_rows, most, buffer,
                            err);
    }
    lode_free(buffer);
    lode_free(p.to);
    lode_free(p.wide);
    return rc;
}
