#include "backend/cuda/brought.h"

#include "backend/cuda/half.h"
#include "base/alloc.h"

#include <string.h>

enum {
    HALF = 24 << 20,   /* bytes of a half, at most: half a millisecond of a fast bus, a few hundred of launches */
    PIECE = 256 << 10, /* that a thread copies at a time */
    WHOLE = 128,       /* rows of a matrix go up in multiples of so many, the tiles of kernels */
    LEAST_ROWS = 16,   /* of the longest that a half has room for */
    ALIGN = 256,
};

static uint64_t up(uint64_t n, uint64_t by) { return (n + by - 1) / by * by; }

struct lode_cuda_bring {
    struct run *r;
    struct half half[2];
    unsigned next;    /* the half that is being filled, of which */
    uint64_t size;    /* bytes of one, */
    uint64_t used, laid_used; /* so many are filled; of laid, will be */
    lode_dev laid;    /* (size): a half as kernels read it */
    void *copies;     /* a stream */
    uint32_t n;       /* pieces in it: rows of matrices, */
    struct lode_operand w[LODE_CUDA_PARTS], bias[LODE_CUDA_PARTS]; /* which are these operands of these parts */
    struct lode_part parts[LODE_CUDA_PARTS];
    uint64_t at[LODE_CUDA_PARTS];                /* in the half */
    lode_dev addresses[2 * LODE_CUDA_PARTS];     /* by the operands' ids: of rows that are laid out, of biases */
};

/* ---- sizes ---- */

void lode_cuda_bring_grow(struct lode_cuda_bring_sizes *s, const struct lode_operand *w) {
    const uint64_t row = lode_cuda_row_size(w->type, w->cols), all = row * w->rows; /* no less than in files */
    s->row = row > s->row ? row : s->row;
    s->largest = all > s->largest ? all : s->largest;
}

/* Of a large matrix, so that its own parts overlap too. */
static uint64_t half_size(const struct lode_cuda_bring_sizes *s) {
    const uint64_t least = LEAST_ROWS * s->row, most = s->largest / 2 < HALF ? s->largest / 2 : HALF;
    return s->row ? up(most > least ? most : least, ALIGN) + 2 * LODE_CUDA_PARTS * ALIGN : 0;
}

uint64_t lode_cuda_bring_size(const struct lode_cuda_bring_sizes *s) { return 3 * half_size(s); }
uint64_t lode_cuda_bring_pinned(const struct lode_cuda_bring_sizes *s) { return 2 * half_size(s); }

/* ---- a half ---- */

struct copying {
    char *to;
    const char *from;
    uint64_t n;
};

static void copy_piece(void *arg, uint32_t task, uint32_t worker) {
    const struct copying *c = arg;
    const uint64_t at = (uint64_t)task * PIECE, left = c->n - at;
    (void)worker;
    memcpy(c->to + at, c->from + at, left < PIECE ? left : PIECE);
}

static void copy(struct lode_backend *host, char *to, const char *from, uint64_t n) {
    struct copying c = {to, from, n};
    const uint32_t tasks = (uint32_t)((n + PIECE - 1) / PIECE);
    if (tasks > 1 && host && host->ops->share)
        host->ops->share(host, copy_piece, &c, tasks);
    else
        memcpy(to, from, n);
}

/* What the half has is laid out and multiplied. */
static int flush(const struct op *o) {
    struct run *r = o->r;
    struct lode_cuda_bring *b = r->bring;
    struct half *h = &b->half[b->next % 2];
    struct lode_instr in = *o->in;
    if (b->n == 0)
        return 0;
    LODE_TRY(lode_cuda_half_sent(r->c, h, b->copies, o->err));
    LODE_TRY(lode_cuda_half_wait(r->c, h, r->stream, o->err));
    for (uint32_t i = 0; i < b->n; i++)
        LODE_TRY(lode_cuda_repack(r->c, r->stream, b->w[i].type, b->w[i].cols, h->raw + b->at[i], b->addresses[i],
                                  b->w[i].rows, o->err));
    LODE_TRY(lode_cuda_half_done(r->c, h, r->stream, o->err));
    in.parts = b->parts;
    in.n_parts = b->n;
    struct op some = *o;
    some.in = &in;
    const bool fast = r->o.fast;
    r->o.fast = false; /* the host's numbers */
    r->weights = b->addresses;
    const int rc = lode_cuda_run_instr(&some);
    r->weights = NULL;
    r->o.fast = fast;
    b->next++;
    b->n = 0;
    b->used = b->laid_used = 0;
    return rc;
}

/* Rows of a matrix that the half has room for. */
static uint32_t room(const struct lode_cuda_bring *b, const struct lode_operand *w, uint32_t left) {
    size_t row = 0;
    lode_dtype_row_size(w->type, w->cols, &row);
    const uint64_t a = (b->size - b->used) / row, laid = (b->size - b->laid_used) / lode_cuda_row_size(w->type, w->cols);
    const uint64_t n = a < laid ? a : laid;
    return b->n == LODE_CUDA_PARTS ? 0 : n >= left ? left : n >= WHOLE ? (uint32_t)(n / WHOLE * WHOLE) : b->n ? 0 : (uint32_t)n;
}

/* Rows first .. first + n of a part's matrix, which lie at `from`, set out. */
static int add(const struct op *o, const struct lode_part *p, const char *from, uint32_t first, uint32_t n) {
    struct run *r = o->r;
    struct lode_cuda_bring *b = r->bring;
    struct half *h = &b->half[b->next % 2];
    const uint32_t i = b->n;
    size_t row = 0;
    lode_dtype_row_size(p->w->type, p->w->cols, &row);
    if (i == 0)
        LODE_TRY(lode_cuda_half_open(r->c, h, b->copies, o->err));
    copy(r->o.host, h->host + b->used, from + first * row, n * row);
    LODE_TRY(lode_cu_check(&r->c->cu, r->c->cu.to_device(h->raw + b->used, h->host + b->used, n * row, b->copies),
                           "copies", o->err));
    b->w[i] = *p->w;
    b->w[i].id = i;
    b->w[i].rows = n;
    b->at[i] = b->used;
    b->addresses[i] = b->laid + b->laid_used;
    b->parts[i] = *p;
    b->parts[i].w = &b->w[i];
    b->parts[i].out.data += first * sizeof(float);
    b->parts[i].out.width = n;
    if (p->bias) { /* of the device's own */
        b->bias[i] = *p->bias;
        b->bias[i].id = LODE_CUDA_PARTS + i;
        b->parts[i].bias = &b->bias[i];
        b->addresses[LODE_CUDA_PARTS + i] = r->c->weights[p->bias->id] + first * sizeof(float);
    }
    b->used = up(b->used + n * row, ALIGN);
    b->laid_used = up(b->laid_used + n * lode_cuda_row_size(p->w->type, p->w->cols), ALIGN);
    b->n++;
    atomic_fetch_add_explicit(&r->c->brought, n * row, memory_order_relaxed);
    return 0;
}

/* ---- an instruction ---- */

bool lode_cuda_is_brought(const struct lode_instr *in) {
    bool any = false;
    for (uint32_t i = 0; i < in->n_parts; i++)
        any |= in->parts[i].brought;
    return any;
}

static int bring(const struct op *o, const struct lode_part *p, bool (*cancel)(void *user), void *user) {
    struct lode_store *store = o->r->o.store;
    const void *data;
    LODE_TRY(lode_store_pin_now(store, p->w->id, &data, cancel, user, o->err));
    int rc = 0;
    for (uint32_t first = 0, n; rc == 0 && first < p->w->rows; first += n) {
        n = room(o->r->bring, p->w, p->w->rows - first);
        rc = n ? add(o, p, data, first, n) : flush(o);
    }
    store->ops->unpin(store, p->w->id);
    return rc;
}

static int run(const struct op *o, bool (*cancel)(void *user), void *user) {
    for (uint32_t i = 0; i < o->in->n_parts; i++) {
        struct lode_part *p = &o->in->parts[i];
        if (p->brought) {
            LODE_TRY(bring(o, p, cancel, user));
            continue;
        }
        struct lode_instr in = *o->in;
        struct op one = *o;
        in.parts = p;
        in.n_parts = 1;
        one.in = &in;
        LODE_TRY(lode_cuda_run_instr(&one));
    }
    return flush(o);
}

int lode_cuda_run_brought(const struct op *o, bool (*cancel)(void *user), void *user) {
    struct lode_cuda_bring *b = o->r->bring;
    const int rc = run(o, cancel, user);
    if (rc < 0) { /* whatever was begun must not meet what the next step fills */
        const struct lode_cu *cu = &o->r->c->cu;
        cu->stream_wait(b->copies);
        cu->stream_wait(o->r->stream);
        b->n = 0;
        b->used = b->laid_used = 0;
    }
    return rc;
}

/* ---- making one ---- */

void lode_cuda_bring_deinit(struct lode_cuda_bring *b) {
    if (!b)
        return;
    struct lode_cuda *c = b->r->c;
    if (b->copies)
        c->cu.stream_wait(b->copies);
    for (int i = 0; i < 2; i++)
        lode_cuda_half_deinit(c, &b->half[i]);
    if (b->laid)
        c->cu.free(b->laid);
    if (b->copies)
        c->cu.stream_destroy(b->copies);
}

int lode_cuda_bring_create(struct lode_cuda_bring **out, struct run *r, struct lode_error *err) {
    static const char what[] = "buffers for weights that are brought (-nopo: none are)";
    struct lode_cuda_bring *b = *out = LODE_NEW(struct lode_cuda_bring);
    if (!b)
        return lode_fail_nomem(err, what);
    *b = (struct lode_cuda_bring){.r = r, .size = half_size(&r->o.bring)};
    for (int i = 0; i < 2; i++)
        LODE_TRY(lode_cuda_half_init(r->c, &b->half[i], b->size, what, err));
    LODE_TRY(lode_cuda_take(r->c, &b->laid, b->size, "-nopo", what, err));
    return lode_cu_check(&r->c->cu, r->c->cu.stream_create(&b->copies, 1), "stream", err);
}
