#include "backend/cuda/brought.h"

#include "backend/cuda/half.h"
#include "base/alloc.h"

#include <string.h>

enum {
    LOADS = 4,         /* that may be on their way */
    LOAD = 24 << 20,   /* bytes of one, at most: half a millisecond of a fast bus, a few hundred of launches */
    PIECE = 256 << 10, /* that a thread copies at a time */
    WHOLE = 128,       /* rows of a matrix go up in multiples of so many, the tiles of kernels */
    LEAST_ROWS = 16,   /* of the longest that a load has room for */
    ALIGN = 256,
};

static uint64_t up(uint64_t n, uint64_t by) { return (n + by - 1) / by * by; }

struct load { /* rows of matrices of one instruction */
    struct half half;
    const struct lode_instr *in;
    uint32_t n; /* pieces: rows of a matrix, */
    struct lode_operand w[LODE_CUDA_PARTS], bias[LODE_CUDA_PARTS]; /* which are these operands of these parts */
    struct lode_part parts[LODE_CUDA_PARTS];
    uint64_t at[LODE_CUDA_PARTS];            /* in the half */
    lode_dev addresses[2 * LODE_CUDA_PARTS]; /* by the operands' ids: of rows that are laid out, of biases */
    uint64_t used, laid_used;                /* bytes of the half; of laid */
};

struct lode_cuda_bring {
    struct run *r;
    struct load load[LOADS]; /* a ring: n_done .. n_filled - 1 wait to be computed with */
    uint64_t n_filled, n_done;
    uint64_t size; /* bytes of a half, */
    lode_dev laid; /* and of this: one as kernels read it */
    void *copies;  /* a stream */
    /* what is filled next: rows of a part; in NULL: nothing is known */
    const struct lode_instr *in;
    uint32_t part, row;
};

/* ---- sizes ---- */

void lode_cuda_bring_grow(struct lode_cuda_bring_sizes *s, const struct lode_operand *w) {
    const uint64_t row = lode_cuda_row_size(w->type, w->cols), all = row * w->rows; /* no less than in files */
    s->row = row > s->row ? row : s->row;
    s->largest = all > s->largest ? all : s->largest;
}

/* Of a large matrix, so that its own parts overlap too. */
static uint64_t load_size(const struct lode_cuda_bring_sizes *s) {
    const uint64_t least = LEAST_ROWS * s->row, most = s->largest / 2 < LOAD ? s->largest / 2 : LOAD;
    return s->row ? up(most > least ? most : least, ALIGN) + 2 * LODE_CUDA_PARTS * ALIGN : 0;
}

uint64_t lode_cuda_bring_size(const struct lode_cuda_bring_sizes *s) { return (LOADS + 1) * load_size(s); }
uint64_t lode_cuda_bring_pinned(const struct lode_cuda_bring_sizes *s) { return LOADS * load_size(s); }

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

/* Rows of a matrix that a load has room for. */
static uint32_t room(const struct lode_cuda_bring *b, const struct load *l, const struct lode_operand *w, uint32_t left) {
    size_t row = 0;
    lode_dtype_row_size(w->type, w->cols, &row);
    const uint64_t raw = (b->size - l->used) / row, laid = (b->size - l->laid_used) / lode_cuda_row_size(w->type, w->cols);
    const uint64_t n = raw < laid ? raw : laid;
    return l->n == LODE_CUDA_PARTS ? 0 : n >= left ? left : n >= WHOLE ? (uint32_t)(n / WHOLE * WHOLE) : l->n ? 0 : (uint32_t)n;
}

/* Rows first .. first + n of a part's matrix, which lie at `from`, set out. */
static int add(struct lode_cuda_bring *b, struct load *l, const struct lode_part *p, const char *from, uint32_t first,
               uint32_t n, struct lode_error *err) {
    struct run *r = b->r;
    const uint32_t i = l->n;
    size_t row = 0;
    lode_dtype_row_size(p->w->type, p->w->cols, &row);
    from += first * row;
    if (!lode_cuda_is_registered(&r->c->layers, from, n * row)) {
        copy(r->o.host, l->half.host + l->used, from, n * row);
        from = l->half.host + l->used;
    }
    LODE_TRY(lode_cu_check(&r->c->cu, r->c->cu.to_device(l->half.raw + l->used, from, n * row, b->copies), "copies", err));
    l->w[i] = *p->w;
    l->w[i].id = i;
    l->w[i].rows = n;
    l->at[i] = l->used;
    l->addresses[i] = b->laid + l->laid_used;
    l->parts[i] = *p;
    l->parts[i].w = &l->w[i];
    l->parts[i].out.data += first * sizeof(float);
    l->parts[i].out.width = n;
    if (p->bias) { /* of the device's own */
        l->bias[i] = *p->bias;
        l->bias[i].id = LODE_CUDA_PARTS + i;
        l->parts[i].bias = &l->bias[i];
        l->addresses[LODE_CUDA_PARTS + i] = r->c->weights[p->bias->id] + first * sizeof(float);
    }
    l->used = up(l->used + n * row, ALIGN);
    l->laid_used = up(l->laid_used + n * lode_cuda_row_size(p->w->type, p->w->cols), ALIGN);
    l->n++;
    atomic_fetch_add_explicit(&r->c->brought, n * row, memory_order_relaxed);
    return 0;
}

/* To the next part that is brought; none: all of the instruction has set out. */
static bool find_part(struct lode_cuda_bring *b) {
    while (b->part < b->in->n_parts && !b->in->parts[b->part].brought)
        b->part++;
    return b->part < b->in->n_parts;
}

/* The next load of b->in. */
static int fill(struct lode_cuda_bring *b, bool (*cancel)(void *user), void *user, struct lode_error *err) {
    struct load *l = &b->load[b->n_filled % LOADS];
    struct lode_store *store = b->r->o.store;
    l->in = b->in;
    l->n = 0;
    l->used = l->laid_used = 0;
    LODE_TRY(lode_cuda_half_open(b->r->c, &l->half, b->copies, err));
    while (find_part(b)) {
        const struct lode_part *p = &b->in->parts[b->part];
        const uint32_t n = room(b, l, p->w, p->w->rows - b->row);
        const void *data;
        if (n == 0)
            break;
        LODE_TRY(lode_store_pin_now(store, p->w->id, &data, cancel, user, err));
        const int rc = add(b, l, p, data, b->row, n, err);
        store->ops->unpin(store, p->w->id);
        LODE_TRY(rc);
        b->row += n;
        if (b->row == p->w->rows) {
            b->row = 0;
            b->part++;
        }
    }
    b->n_filled++;
    return lode_cuda_half_sent(b->r->c, &l->half, b->copies, err);
}

/* The first load, laid out and multiplied. */
static int multiply(const struct op *o) {
    struct run *r = o->r;
    struct lode_cuda_bring *b = r->bring;
    struct load *l = &b->load[b->n_done++ % LOADS];
    struct lode_instr in = *o->in;
    struct op some = *o;
    LODE_TRY(lode_cuda_half_wait(r->c, &l->half, r->stream, o->err));
    for (uint32_t i = 0; i < l->n; i++)
        LODE_TRY(lode_cuda_repack(r->c, r->stream, l->w[i].type, l->w[i].cols, l->half.raw + l->at[i], l->addresses[i],
                                  l->w[i].rows, o->err));
    LODE_TRY(lode_cuda_half_done(r->c, &l->half, r->stream, o->err));
    in.parts = l->parts;
    in.n_parts = l->n;
    some.in = &in;
    const bool tensor = r->o.tensor;
    r->o.tensor = false; /* the host's numbers */
    r->weights = l->addresses;
    const int rc = lode_cuda_run_instr(&some);
    r->weights = NULL;
    r->o.tensor = tensor;
    return rc;
}

/* ---- an instruction ---- */

bool lode_cuda_is_brought(const struct lode_instr *in) {
    bool any = false;
    for (uint32_t i = 0; i < in->n_parts; i++)
        any |= in->parts[i].brought;
    return any;
}

static void begin(struct lode_cuda_bring *b, const struct lode_instr *in) {
    b->in = in;
    b->part = b->row = 0;
}

/* What the device has of it. */
static int run_others(const struct op *o) {
    for (uint32_t i = 0; i < o->in->n_parts; i++) {
        struct lode_instr in = *o->in;
        struct op one = *o;
        in.parts += i;
        in.n_parts = 1;
        one.in = &in;
        if (!in.parts->brought)
            LODE_TRY(lode_cuda_run_instr(&one));
    }
    return 0;
}

static int run(const struct op *o, bool (*cancel)(void *user), void *user) {
    struct lode_cuda_bring *b = o->r->bring;
    if (b->n_done < b->n_filled && b->load[b->n_done % LOADS].in != o->in) { /* of a step that was given up */
        b->n_done = b->n_filled;
        b->in = NULL;
    }
    if (b->in != o->in && b->n_done == b->n_filled)
        begin(b, o->in);
    LODE_TRY(run_others(o));
    for (;;) {
        if (b->n_done == b->n_filled) {
            if (!find_part(b)) {
                b->in = NULL;
                return 0;
            }
            LODE_TRY(fill(b, cancel, user, o->err));
        }
        LODE_TRY(multiply(o));
    }
}

static int give_up(struct lode_cuda_bring *b, int rc) {
    const struct lode_cu *cu = &b->r->c->cu;
    if (rc < 0) { /* whatever was begun must not meet what the next step fills */
        cu->stream_wait(b->copies);
        cu->stream_wait(b->r->stream);
        b->n_done = b->n_filled;
        b->in = NULL;
    }
    return rc;
}

int lode_cuda_run_brought(const struct op *o, bool (*cancel)(void *user), void *user) {
    return give_up(o->r->bring, run(o, cancel, user));
}

int lode_cuda_bring_ahead(struct run *r, const struct lode_instr *next, struct lode_error *err) {
    struct lode_cuda_bring *b = r->bring;
    int rc = 0;
    if (!next || !r->c->layers.n)
        return 0;
    begin(b, next);
    while (rc == 0 && b->n_filled - b->n_done < LOADS && find_part(b))
        rc = fill(b, NULL, NULL, err);
    return give_up(b, rc);
}

/* ---- where weights are mapped ---- */

int lode_cuda_fetch_layers(struct lode_cuda *c, const struct lode_source *source, const struct lode_weight *weights,
                           const uint32_t *brought, uint32_t n, struct lode_error *err) {
    struct lode_cuda_range *all = LODE_NEW_ARRAY(struct lode_cuda_range, n + 1);
    bool mapped = n > 0;
    if (!all)
        return lode_fail_nomem(err, "layers that a GPU is brought");
    for (uint32_t i = 0; mapped && i < n; i++) {
        const struct lode_weight *w = &weights[brought[i]];
        const char *at = lode_source_data(source, w->home, w->offset, w->size);
        all[i] = (struct lode_cuda_range){(char *)(uintptr_t)at, w->size};
        mapped = at;
    }
    if (!mapped || lode_cuda_enter(c, NULL) < 0 || !lode_cuda_register(c, &c->layers, all, n))
        lode_free(all);
    return 0;
}

bool lode_cuda_fetches_layers(const struct lode_cuda *c) { return c->layers.n; }

/* ---- making one ---- */

void lode_cuda_bring_deinit(struct lode_cuda_bring *b) {
    if (!b)
        return;
    struct lode_cuda *c = b->r->c;
    if (b->copies)
        c->cu.stream_wait(b->copies);
    for (int i = 0; i < LOADS; i++)
        lode_cuda_half_deinit(c, &b->load[i].half);
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
    *b = (struct lode_cuda_bring){.r = r, .size = load_size(&r->o.bring)};
    for (int i = 0; i < LOADS; i++)
        LODE_TRY(lode_cuda_half_init(r->c, &b->load[i].half, b->size, what, err));
    LODE_TRY(lode_cuda_take(r->c, &b->laid, b->size, "-nopo", what, err));
    return lode_cu_check(&r->c->cu, r->c->cu.stream_create(&b->copies, 1), "stream", err);
}
