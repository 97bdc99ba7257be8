/* upload.c - the device's copy of the weights.
 *
 * One thread reads a file from the page cache at 5 to 10 GB/s, the bus takes 55.  So several go from piece to
 * piece, each with two pinned buffers and a stream of its own: one is filled while the other is on its way, and
 * nobody waits for another's.  They read and do not follow the mapping, whose pages would each have to be
 * mapped first.  Blocks are laid out in planes by the device (kernels/shared.h), beside the next copies.
 *
 * Pinning takes as long as sending a hundred times as much, unless pages are large and were there before: so each
 * thread pins its own when its first piece comes, while others send theirs.
 */
#include "backend/cuda/half.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/machine.h"
#include "base/threads.h"

#include <stdatomic.h>
#include <string.h>

enum {
    THREADS = 10,      /* that read */
    STAGES = 64 << 20, /* bytes of all their buffers, here and there, at most */
    PIECE = 3 << 20,   /* of one buffer: of 256 KiB copies are half as fast, of 8 MiB reads are */
    SMALL_PIECE = 1 << 20, /* of a small model */
    PAGE = 4096,
    WAVE = 256,            /* pieces between two looks at who waits */
};

/* Rows of a weight on their way. */
struct piece {
    const struct lode_weight *w;
    uint64_t first, n; /* rows */
    lode_dev dst;
};

struct sender { /* a thread's */
    char *host;      /* pinned: its two buffers; NULL before its first piece */
    bool registered; /* they are of our own memory, not the driver's */
    void *sent[2];   /* events: the buffer may be filled again */
    unsigned next;
    void *stream;
    struct lode_error error;
};

struct upload {
    struct lode_cuda *c;
    const struct lode_source *source;
    struct lode_kern kern;
    struct lode_pool *pool;
    size_t stage; /* bytes of a buffer: whole pages */
    lode_dev raw; /* what is in them, on the device, where it is laid out from there */
    struct sender senders[THREADS];
    struct piece pieces[WAVE]; /* (n) */
    uint32_t n;
    atomic_bool failed; /* the other pieces are left */
};

/* A vector that the file has in another type than F32, which is what kernels read, is widened as a whole. */
static bool is_widened(const struct lode_weight *w) { return w->op.type != w->home->type; }

static size_t row_size(const struct lode_weight *w) {
    size_t size;
    lode_dtype_row_size(w->op.type, w->op.cols, &size);
    return size;
}

/* Bytes that have to go at once. */
static size_t least_piece(const struct lode_weight *w) { return row_size(w) * (is_widened(w) ? w->op.rows : 1); }

static int begin(struct upload *u, uint64_t total, size_t least, struct lode_error *err) {
    const struct lode_cu *cu = &u->c->cu;
    uint32_t cpus[THREADS], cores, n = lode_machine_cpus(cpus, THREADS, &cores);
    u->stage = total < (uint64_t)1 << 30 ? SMALL_PIECE : PIECE;
    if (u->stage < least)
        u->stage = (least + PAGE - 1) & ~(size_t)(PAGE - 1);
    if (n > STAGES / 2 / u->stage)
        n = (uint32_t)(STAGES / 2 / u->stage);
    LODE_TRY(lode_pool_create(&u->pool, n, false, err));
    lode_kern_table(&u->kern, LODE_ISA_scalar);
    LODE_TRY(lode_cuda_take(u->c, &u->raw, 2 * n * u->stage, "--device cuda", "buffers to upload by", err));
    for (uint32_t i = 0; i < n; i++) {
        LODE_TRY(lode_cu_check(cu, cu->stream_create(&u->senders[i].stream, 1), "stream", err));
        for (int k = 0; k < 2; k++)
            LODE_TRY(lode_cu_check(cu, cu->event_create(&u->senders[i].sent[k], 2), "event", err));
    }
    return 0;
}

static void end(struct upload *u) {
    const struct lode_cu *cu = &u->c->cu;
    lode_pool_free(u->pool);
    for (struct sender *s = u->senders; s < u->senders + THREADS; s++) {
        if (s->stream) {
            cu->stream_wait(s->stream);
            cu->stream_destroy(s->stream);
        }
        for (int k = 0; k < 2; k++)
            if (s->sent[k])
                cu->event_destroy(s->sent[k]);
        if (s->registered) {
            cu->host_unregister(s->host);
            lode_free_aligned(s->host);
        } else if (s->host) {
            cu->host_free(s->host);
        }
    }
    if (u->raw)
        cu->free(u->raw);
}

/* ---- one piece ---- */

/* A sender's buffers: large pages of our own, or where the driver does not take those some of its own. */
static int open_buffers(struct upload *u, struct sender *s) {
    const size_t size = 2 * u->stage;
    char *own = lode_alloc_large(size, 1);
    for (size_t i = 0; own && i < size; i += PAGE)
        own[i] = 0;
    if (own && u->c->cu.host_register(own, size, 0) == 0) {
        s->host = own;
        s->registered = true;
        return 0;
    }
    lode_free_aligned(own);
    return lode_cuda_take_pinned(u->c, &s->host, size, &s->error);
}

static int widen(struct upload *u, const struct lode_weight *w, float *out, struct lode_error *err) {
    char *packed = lode_alloc(w->size, 1);
    int rc = packed ? lode_source_read(u->source, w->home, w->offset, packed, w->size, err)
                    : lode_fail_nomem(err, w->home->name);
    if (rc == 0)
        u->kern.dequant[w->home->type](out, packed, (size_t)w->op.rows * w->op.cols);
    lode_free(packed);
    return rc;
}

static int fill(struct upload *u, const struct piece *p, char *out, struct lode_error *err) {
    const size_t row = row_size(p->w);
    if (is_widened(p->w))
        return widen(u, p->w, (float *)(void *)out, err);
    return lode_source_read(u->source, p->w->home, p->w->offset + p->first * row, out, p->n * row, err);
}

static int send_piece(struct upload *u, const struct piece *p, const char *host, lode_dev raw, void *stream,
                      struct lode_error *err) {
    const struct lode_cu *cu = &u->c->cu;
    const enum lode_dtype type = p->w->op.type;
    const struct lode_cuda_layout *l = &lode_cuda_layouts[type];
    const size_t row = row_size(p->w), stride = lode_cuda_row_size(type, p->w->op.cols);
    const bool as_is = l->plain && stride == row;
    const lode_dev to = as_is ? p->dst : raw;
    LODE_TRY(lode_cu_check(cu, cu->to_device(to, host, p->n * row, stream), "upload", err));
    if (as_is)
        return 0;
    return lode_cuda_repack(u->c, stream, type, p->w->op.cols, to, p->dst, p->n, err);
}

static int move(struct upload *u, uint32_t sender, const struct piece *p) {
    const struct lode_cu *cu = &u->c->cu;
    struct sender *s = &u->senders[sender];
    const unsigned i = s->next++ % 2;
    LODE_TRY(lode_cuda_enter(u->c, &s->error));
    if (!s->host)
        LODE_TRY(open_buffers(u, s));
    char *host = s->host + i * u->stage;
    LODE_TRY(lode_cu_check(cu, cu->event_wait(s->sent[i]), "upload", &s->error));
    LODE_TRY(fill(u, p, host, &s->error));
    LODE_TRY(send_piece(u, p, host, u->raw + (2 * sender + i) * u->stage, s->stream, &s->error));
    return lode_cu_check(cu, cu->event_record(s->sent[i], s->stream), "upload", &s->error);
}

static void move_piece(void *arg, uint32_t task, uint32_t worker) {
    struct upload *u = arg;
    if (!atomic_load(&u->failed) && move(u, worker, &u->pieces[task]) < 0)
        atomic_store(&u->failed, true);
}

/* ---- all of them ---- */

/* What has been put together goes on its way. */
static int flush(struct upload *u, struct lode_error *err) {
    lode_pool_run(u->pool, move_piece, u, u->n);
    u->n = 0;
    for (int i = 0; i < THREADS; i++)
        if (u->senders[i].error.code < 0) {
            if (err)
                *err = u->senders[i].error;
            return u->senders[i].error.code;
        }
    return 0;
}

/* All rows of a weight to dst. */
static int send_rows(struct upload *u, lode_dev dst, const struct lode_weight *w,
                     struct lode_error *err) {
    const uint64_t some = is_widened(w) ? w->op.rows : u->stage / row_size(w);
    const size_t stride = lode_cuda_row_size(w->op.type, w->op.cols);
    for (uint64_t first = 0; first < w->op.rows; first += some) {
        const uint64_t left = w->op.rows - first;
        if (u->n == WAVE)
            LODE_TRY(flush(u, err));
        u->pieces[u->n++] = (struct piece){
            .w = w, .first = first, .n = left < some ? left : some, .dst = dst + first * stride};
    }
    return 0;
}

static int send_order(struct upload *u, lode_dev dst, const struct lode_operand *w,
                      struct lode_error *err) {
    const struct lode_cu *cu = &u->c->cu; /* from the model's own memory */
    void *stream = u->senders[0].stream;
    LODE_TRY(lode_cu_check(cu, cu->to_device(dst, w->order, w->cols * sizeof *w->order, stream),
                           "upload", err));
    return lode_cu_check(cu, cu->stream_wait(stream), "upload", err);
}

static int send_all(struct upload *u, const struct lode_weight *weights, uint32_t n,
                    const uint16_t *uses, uint16_t bit, uint64_t total,
                    int (*progress)(void *user, const char *what, uint64_t done, uint64_t total),
                    void *user, struct lode_error *err) {
    uint64_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct lode_weight *w = &weights[i];
        if (!(uses[i] & bit))
            continue;
        u->c->weights[i] = u->c->arena + at;
        at += lode_cuda_weight_size(w);
        LODE_TRY(send_rows(u, u->c->weights[i], w, err));
        if (w->op.order)
            LODE_TRY(send_order(u, u->c->weights[i] + lode_cuda_matrix_size(&w->op), &w->op, err));
        if (progress && progress(user, "uploading", at, total))
            return lode_fail(err, LODE_ERR_CANCELLED, "", "loading was cancelled");
    }
    LODE_TRY(flush(u, err));
    for (int i = 0; i < THREADS; i++)
        if (u->senders[i].stream)
            LODE_TRY(lode_cu_check(&u->c->cu, u->c->cu.stream_wait(u->senders[i].stream), "upload",
                                   err));
    return 0;
}

int lode_cuda_load(struct lode_cuda *c, const struct lode_source *source,
                   const struct lode_weight *weights, uint32_t n, const uint16_t *uses,
                   uint16_t bit,
                   int (*progress)(void *user, const char *what, uint64_t done, uint64_t total),
                   void *user, struct lode_error *err) {
    const double start = lode_clock();
    uint64_t total = 0;
    size_t least = 0;
    if (c->arena && lode_cuda_enter(c, NULL) == 0)
        c->cu.free(c->arena);
    lode_free(c->weights);
    c->arena = 0;
    c->weights = NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (!(uses[i] & bit))
            continue;
        total += lode_cuda_weight_size(&weights[i]);
        if (least_piece(&weights[i]) > least)
            least = least_piece(&weights[i]);
        if (least > STAGES / 2 - PAGE)
            return lode_fail(err, LODE_ERR_UNSUPPORTED, "cuda",
                             "%s: a row of %zu bytes is too long", weights[i].home->name, least);
    }
    const uint64_t available = lode_cuda_available(c);
    if (total + STAGES > available)
        return lode_fail(
            err, LODE_ERR_LIMIT, "--device cuda",
            "the weights and the buffers to upload them by take %.0f MiB, but %.0f MiB of the "
            "memory of '%s' are free: use a smaller or more strongly quantised model, or "
            "--device cpu",
            (double)(total + STAGES) / 0x1p20, (double)available / 0x1p20, c->name);
    c->weights = LODE_NEW_ARRAY(lode_dev, n);
    if (!c->weights)
        return lode_fail_nomem(err, "weights");
    c->n_weights = n;
    LODE_TRY(lode_cuda_enter(c, err));
    LODE_TRY(lode_cuda_take(c, &c->arena, total, "--device cuda", "the weights", err));
    /* what lies between rows and matrices: kernels read some of it with what they want, and use nothing of it */
    LODE_TRY(lode_cu_check(&c->cu, c->cu.set8(c->arena, 0, total, NULL), "the weights", err));
    LODE_TRY(lode_cu_check(&c->cu, c->cu.context_wait(), "the weights", err));
    struct upload *u = LODE_NEW(struct upload);
    if (!u)
        return lode_fail_nomem(err, "upload");
    u->c = c;
    u->source = source;
    int rc = begin(u, total, least, err);
    if (rc == 0)
        rc = send_all(u, weights, n, uses, bit, total, progress, user, err);
    end(u);
    lode_free(u);
    c->uploaded = total;
    c->upload_seconds = lode_clock() - start;
    return rc < 0 ? rc : lode_source_check(source, err);
}

uint64_t lode_cuda_uploaded(const struct lode_cuda *c, double *seconds) {
    *seconds = c->upload_seconds;
    return c->uploaded;
}
