/* hf_quant_read.c - rows of a linear, made from its parts a few at a time.
 *
 * Parts whose rows are the linear's are read as far as rows are wanted; the others (turned, or
 * small) for a matrix at once.  All by plain reads: mapped pages would stay in memory beside what
 * is made of them. */
#include "format/hf_quant.h"

#include "base/alloc.h"
#include "base/error.h"

enum { READ_AT_ONCE = 1 << 18 }; /* bytes of the largest part */

struct reader {
    const struct lode_st_from *from;
    const struct lode_hf_linear *l;
    uint8_t *data[LODE_HF_PARTS]; /* owned: a few rows of each part, or a matrix */
    uint8_t *unturned;            /* owned; codes as they lie, where they are turned */
    uint64_t matrix;              /* whose whole parts are there */
    uint64_t at, n;               /* rows that are there; n 0: none */
    uint64_t most;                /* rows there is room for */
    struct lode_hf_rows in;       /* q, d, m, z: owned */
    struct lode_error *err;
};

static bool is_whole(const struct reader *r, int p) { return r->l->scheme->whole >> p & 1; }
/* The others were read while opening. */
static bool is_read(const struct reader *r, int p) {
    return r->l->part[p] && p != LODE_HF_INDEX && p != LODE_HF_SHAPE;
}

static size_t part_row_size(const struct reader *r, int p) {
    return r->l->part[p]->size / (size_t)(r->l->n_matrices * r->l->rows);
}

/* Rows first: out (cols, rows) = in (rows, cols) turned, words of 32 bits, a cache line's worth of
 * each at a time. */
static void turn(uint32_t *out, const uint32_t *in, size_t rows, size_t cols) {
    enum { TILE = 16 };
    for (size_t r = 0; r < rows; r += TILE)
        for (size_t c = 0; c < cols; c += TILE)
            for (size_t j = c; j < c + TILE && j < cols; j++)
                for (size_t i = r; i < r + TILE && i < rows; i++)
                    out[j * rows + i] = in[i * cols + j];
}

static int reader_open(struct reader *r, uint64_t wanted) {
    const struct lode_hf_linear *l = r->l;
    r->matrix = UINT64_MAX;
    r->most = wanted;
    for (int p = 0; p < LODE_HF_PARTS; p++)
        if (is_read(r, p) && !is_whole(r, p) && part_row_size(r, p) * r->most > READ_AT_ONCE)
            r->most = READ_AT_ONCE / part_row_size(r, p);
    r->most = r->most ? r->most : 1;
    for (int p = 0; p < LODE_HF_PARTS; p++) {
        if (!is_read(r, p))
            continue;
        const size_t size = is_whole(r, p) ? l->part[p]->size / (size_t)l->n_matrices
                                           : part_row_size(r, p) * (size_t)r->most;
        if (!(r->data[p] = lode_alloc(size ? size : 1, 1)) ||
            (l->scheme->turned && p == LODE_HF_CODES && !(r->unturned = lode_alloc(size, 1))))
            return lode_fail_nomem(r->err, l->part[p]->name);
    }
    if (!l->scheme->codes)
        return 0;
    const size_t n_groups = (size_t)((l->cols + l->group - 1) / l->group);
    r->in.q = lode_alloc((size_t)l->cols, 1);
    r->in.d = lode_alloc(n_groups, sizeof(float));
    r->in.m = lode_alloc(n_groups, sizeof(float));
    r->in.z = lode_alloc(n_groups, sizeof(float));
    return r->in.q && r->in.d && r->in.m && r->in.z ? 0 : lode_fail_nomem(r->err, l->as.name);
}

static void reader_close(struct reader *r) {
    for (int p = 0; p < LODE_HF_PARTS; p++)
        lode_free(r->data[p]);
    lode_free(r->unturned);
    lode_free(r->in.q);
    lode_free(r->in.d);
    lode_free(r->in.m);
    lode_free(r->in.z);
}

/* The part of a matrix. */
static int read_whole(struct reader *r, int p, uint64_t matrix, size_t size) {
    const struct lode_st_tensor *t = r->l->part[p];
    const bool turned = r->l->scheme->turned && p == LODE_HF_CODES;
    LODE_TRY(lode_st_read_from(r->from, t, (size_t)matrix * size, turned ? r->unturned : r->data[p], size,
                          r->err));
    if (turned)
        turn((uint32_t *)(void *)r->data[p], (const uint32_t *)(const void *)r->unturned,
             (size_t)lode_hf_part_rows(t), (size_t)lode_hf_part_cols(t));
    return 0;
}

/* Brings row `row` of all, and up to `more` behind it, into memory. */
static int reader_seek(struct reader *r, uint64_t row, uint64_t more) {
    const struct lode_hf_linear *l = r->l;
    const uint64_t matrix = row / l->rows;
    if (r->n && row >= r->at && row - r->at < r->n)
        return 0;
    r->at = row;
    r->n = more + 1 < r->most ? more + 1 : r->most;
    for (int p = 0; p < LODE_HF_PARTS; p++) {
        if (!is_read(r, p))
            continue;
        const size_t size = is_whole(r, p) ? l->part[p]->size / (size_t)l->n_matrices
                                           : part_row_size(r, p);
        if (!is_whole(r, p))
            LODE_TRY(lode_st_read_from(r->from, l->part[p], (size_t)row * size, r->data[p],
                                  (size_t)r->n * size, r->err));
        else if (matrix != r->matrix)
            LODE_TRY(read_whole(r, p, matrix, size));
    }
    if (matrix != r->matrix) /* rows of the next one need its own */
        r->matrix = matrix;
    const uint64_t left = (matrix + 1) * l->rows - row;
    r->n = r->n < left ? r->n : left;
    return 0;
}

static int reader_row(struct reader *r, uint64_t row, void *out) {
    const struct lode_hf_linear *l = r->l;
    r->in.row = row % l->rows;
    for (int p = 0; p < LODE_HF_PARTS; p++)
        r->in.part[p] = !is_read(r, p)   ? NULL
                        : is_whole(r, p) ? r->data[p]
                                         : r->data[p] + (size_t)(row - r->at) * part_row_size(r, p);
    if (!l->scheme->codes)
        return l->scheme->row(l, &r->in, out, r->err);
    l->scheme->codes(l, &r->in);
    lode_hf_pack_row(l, &r->in, out);
    return 0;
}

int lode_hf_linear_rows(const struct lode_st_from *from, const struct lode_hf_linear *l, uint64_t first,
                        uint64_t step, uint64_t n, void *out, struct lode_error *err) {
    if (n == 0)
        return 0;
    struct reader r = {.from = from, .l = l, .err = err};
    const size_t size = l->row_size;
    char *row = NULL; /* where out is no place for blocks' floats */
    int rc = reader_open(&r, (n - 1) * step + 1);
    if (rc == 0 && ((uintptr_t)out | size) % 4 != 0 && !(row = lode_alloc(size, 1)))
        rc = lode_fail_nomem(err, l->as.name);
    for (uint64_t i = 0; rc == 0 && i < n; i++) {
        char *to = (char *)out + (size_t)i * size;
        rc = reader_seek(&r, first + i * step, (n - 1 - i) * step);
        if (rc == 0)
            rc = reader_row(&r, first + i * step, row ? row : to);
        if (rc == 0 && row)
            memcpy(to, row, size);
    }
    lode_free(row);
    reader_close(&r);
    return rc;
}

int lode_hf_linear_read(const struct lode_st_from *from, const struct lode_hf_linear *l, size_t offset,
                        void *out, size_t n, struct lode_error *err) {
    const size_t size = l->row_size;
    char *to = out, *row = NULL;
    int rc = 0;
    while (rc == 0 && n) { /* what is left of a row, whole rows, the beginning of one */
        const size_t at = offset % size;
        size_t take = size - at < n ? size - at : n;
        if (take == size) {
            take = n - n % size;
            rc = lode_hf_linear_rows(from, l, offset / size, 1, take / size, to, err);
        } else {
            if (!row && !(row = lode_alloc(size, 1)))
                return lode_fail_nomem(err, l->as.name);
            rc = lode_hf_linear_rows(from, l, offset / size, 1, 1, row, err);
            if (rc == 0)
                memcpy(to, row + at, take);
        }
        offset += take;
        to += take;
        n -= take;
    }
    lode_free(row);
    return rc;
}

uint32_t lode_hf_linear_stretches(const struct lode_st *st, const struct lode_hf_linear *l, uint64_t first,
                                  uint64_t n, struct lode_stretch out[LODE_HF_PARTS]) {
    const struct reader r = {.l = l};
    uint32_t n_out = 0;
    for (int p = 0; p < LODE_HF_PARTS; p++) {
        const struct lode_st_tensor *t = l->part[p];
        if (!is_read(&r, p) || !lode_st_file(st, t->shard))
            continue;
        const uint64_t matrices[2] = {first / l->rows, (first + n - 1) / l->rows + 1};
        const size_t size = is_whole(&r, p) ? t->size / (size_t)l->n_matrices : part_row_size(&r, p);
        const uint64_t begin = is_whole(&r, p) ? matrices[0] : first;
        const uint64_t end = is_whole(&r, p) ? matrices[1] : first + n;
        out[n_out++] = (struct lode_stretch){lode_st_file(st, t->shard), t->offset + begin * size,
                                             (size_t)(end - begin) * size};
    }
    return n_out;
}
