/* upload.c - the device's copy of the weights.
 *
 * Weights go up through two pinned buffers, the next one filled while the last is on its way.  One thread
 * fills a buffer at 5 to 10 GB/s, the bus takes 55: so several read at once, a piece each, whether the file
 * lies in the page cache or a disk has many reads to order.  They read and do not follow the mapping, whose
 * pages would each have to be mapped first.  The first buffers are sent when little is in them, so that the bus is
 * busy soon.  Blocks are laid out in planes by the device (kernels/shared.h).
 */
#include "backend/cuda/half.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/machine.h"
#include "base/threads.h"

#include <string.h>

enum {
    STAGE = 32 << 20, /* bytes of a buffer */
    FIRST = 64 << 10, /* after which the first is sent; each time twice as many */
    PIECE = 1 << 20,  /* bytes that a thread reads at once, or a row */
    SENDINGS = 512,   /* of one buffer */
    THREADS = 12,     /* that read */
};

/* Rows of a weight on their way; `widened`: a vector that the file has in another type than F32, which is what
 * kernels read, all of it at once. */
struct sending {
    const struct lode_weight *w;
    uint64_t first, n; /* rows */
    size_t row, at;    /* bytes of a row; in the buffer */
    lode_dev dst;
    bool widened;
    uint32_t first_task;
};

struct upload {
    struct lode_cuda *c;
    const struct lode_source *source;
    struct lode_kern kern;
    struct lode_pool *pool;
    void *stream;
    struct {
        char *host;
        lode_dev raw;
        void *sent; /* event: the buffer may be filled again */
    } stage[2];
    unsigned next;
    struct sending sendings[SENDINGS]; /* (n), of the buffer that is next */
    uint32_t n, n_tasks;
    size_t used, limit; /* bytes of it; when it is sent */
    struct lode_error errors[THREADS];
};

static int begin(struct upload *u, struct lode_error *err) {
    const struct lode_cu *cu = &u->c->cu;
    uint32_t cpus[THREADS], cores;
    LODE_TRY(lode_pool_create(&u->pool, lode_machine_cpus(cpus, THREADS, &cores), false, err));
    lode_kern_table(&u->kern, LODE_ISA_scalar);
    u->limit = FIRST;
    LODE_TRY(lode_cu_check(cu, cu->stream_create(&u->stream, 1), "stream", err));
    for (int i = 0; i < 2; i++) {
        LODE_TRY(lode_cuda_take_pinned(u->c, &u->stage[i].host, STAGE, err));
        LODE_TRY(lode_cuda_take(u->c, &u->stage[i].raw, STAGE, "--device cuda", "buffers to upload by", err));
        LODE_TRY(lode_cu_check(cu, cu->event_create(&u->stage[i].sent, 2), "event", err));
    }
    return 0;
}

static void end(struct upload *u) {
    const struct lode_cu *cu = &u->c->cu;
    if (u->stream)
        cu->stream_wait(u->stream);
    for (int i = 0; i < 2; i++) {
        if (u->stage[i].host)
            cu->host_free(u->stage[i].host);
        if (u->stage[i].raw)
            cu->free(u->stage[i].raw);
        if (u->stage[i].sent)
            cu->event_destroy(u->stage[i].sent);
    }
    if (u->stream)
        cu->stream_destroy(u->stream);
    lode_pool_free(u->pool);
}

/* ---- filling a buffer ---- */

static uint64_t piece_rows(const struct sending *s) { return s->row < PIECE ? PIECE / s->row : 1; }

static uint32_t count_tasks(const struct sending *s) {
    return s->widened ? 1 : (uint32_t)((s->n + piece_rows(s) - 1) / piece_rows(s));
}

static int widen(struct upload *u, const struct sending *s, float *out, struct lode_error *err) {
    const struct lode_weight *w = s->w;
    char *packed = lode_alloc(w->size, 1);
    int rc = packed ? lode_source_read(u->source, w->home, w->offset, packed, w->size, err)
                    : lode_fail_nomem(err, w->home->name);
    if (rc == 0)
        u->kern.dequant[w->home->type](out, packed, (size_t)w->op.rows * w->op.cols);
    lode_free(packed);
    return rc;
}

/* A piece of one sending. */
static void fill(void *arg, uint32_t task, uint32_t worker) {
    struct upload *u = arg;
    struct lode_error *err = &u->errors[worker];
    uint32_t low = 0, high = u->n; /* the last that begins with this task or before */
    while (high - low > 1) {
        const uint32_t mid = low + (high - low) / 2;
        if (u->sendings[mid].first_task <= task)
            low = mid;
        else
            high = mid;
    }
    const struct sending *s = &u->sendings[low];
    char *out = u->stage[u->next % 2].host + s->at;
    if (err->code < 0)
        return;
    if (s->widened) {
        widen(u, s, (float *)out, err);
        return;
    }
    const uint64_t some = piece_rows(s), at = (task - s->first_task) * some;
    const uint64_t n = s->n - at < some ? s->n - at : some;
    lode_source_read(u->source, s->w->home, s->w->offset + (s->first + at) * s->row, out + at * s->row, n * s->row, err);
}

/* ---- sending it ---- */

static int send_one(struct upload *u, const struct sending *s, const char *host, lode_dev raw, struct lode_error *err) {
    const struct lode_cu *cu = &u->c->cu;
    const enum lode_dtype type = s->w->op.type;
    const struct lode_cuda_layout *l = &lode_cuda_layouts[type];
    const size_t stride = lode_cuda_row_size(type, s->w->op.cols);
    const bool as_is = l->plain && stride == s->row;
    const lode_dev to = as_is ? s->dst : raw + s->at;
    LODE_TRY(lode_cu_check(cu, cu->to_device(to, host + s->at, s->n * s->row, u->stream), "upload", err));
    if (as_is)
        return 0;
    return lode_cuda_repack(u->c, u->stream, type, s->w->op.cols, to, s->dst, s->n, err);
}

/* What has been put together goes on its way. */
static int flush(struct upload *u, struct lode_error *err) {
    const struct lode_cu *cu = &u->c->cu;
    const unsigned i = u->next % 2;
    if (u->n == 0)
        return 0;
    LODE_TRY(lode_cu_check(cu, cu->event_wait(u->stage[i].sent), "upload", err));
    lode_pool_run(u->pool, fill, u, u->n_tasks);
    for (int k = 0; k < THREADS; k++)
        if (u->errors[k].code < 0) {
            if (err)
                *err = u->errors[k];
            return u->errors[k].code;
        }
    for (uint32_t k = 0; k < u->n; k++)
        LODE_TRY(send_one(u, &u->sendings[k], u->stage[i].host, u->stage[i].raw, err));
    LODE_TRY(lode_cu_check(cu, cu->event_record(u->stage[i].sent, u->stream), "upload", err));
    u->next++;
    u->n = u->n_tasks = 0;
    u->used = 0;
    u->limit = u->limit < STAGE ? 2 * u->limit : STAGE;
    return 0;
}

static int add(struct upload *u, struct sending s, struct lode_error *err) {
    s.at = u->used;
    s.first_task = u->n_tasks;
    u->sendings[u->n++] = s;
    u->n_tasks += count_tasks(&s);
    u->used = (u->used + s.n * s.row + 255) & ~(size_t)255;
    return u->used >= u->limit || u->n == SENDINGS ? flush(u, err) : 0;
}

/* All rows of a weight to dst. */
static int send_rows(struct upload *u, lode_dev dst, const struct lode_weight *w, struct lode_error *err) {
    struct sending s = {.w = w, .widened = w->op.type != w->home->type};
    const size_t stride = lode_cuda_row_size(w->op.type, w->op.cols);
    lode_dtype_row_size(w->op.type, w->op.cols, &s.row);
    const uint64_t least = s.widened ? w->op.rows : 1; /* at once */
    if (least * s.row > STAGE)
        return lode_fail(err, LODE_ERR_UNSUPPORTED, "cuda", "%s: a row of %zu bytes is too long", w->home->name,
                         (size_t)(least * s.row));
    for (; s.first < w->op.rows; s.first += s.n) {
        if (u->used + least * s.row > STAGE)
            LODE_TRY(flush(u, err));
        const uint64_t left = w->op.rows - s.first, most = (STAGE - u->used) / s.row;
        s.n = left < most ? left : most;
        s.dst = dst + s.first * stride;
        LODE_TRY(add(u, s, err));
    }
    return 0;
}

static int send_order(struct upload *u, lode_dev dst, const struct lode_operand *w,
                      struct lode_error *err) {
    const struct lode_cu *cu = &u->c->cu; /* from the model's own memory, while nothing else goes */
    LODE_TRY(lode_cu_check(cu, cu->stream_wait(u->stream), "upload", err));
    LODE_TRY(lode_cu_check(cu, cu->to_device(dst, w->order, w->cols * sizeof *w->order, u->stream),
                           "upload", err));
    return lode_cu_check(cu, cu->stream_wait(u->stream), "upload", err);
}

static int send_all(struct upload *u, const struct lode_weight *weights, uint32_t n, const uint16_t *uses, uint16_t bit,
                    uint64_t total, int (*progress)(void *user, const char *what, uint64_t done, uint64_t total),
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
    return lode_cu_check(&u->c->cu, u->c->cu.stream_wait(u->stream), "upload", err);
}

int lode_cuda_load(struct lode_cuda *c, const struct lode_source *source,
                   const struct lode_weight *weights, uint32_t n, const uint16_t *uses, uint16_t bit,
                   int (*progress)(void *user, const char *what, uint64_t done, uint64_t total),
                   void *user, struct lode_error *err) {
    const double start = lode_clock();
    uint64_t total = 0;
    if (c->arena && lode_cuda_enter(c, NULL) == 0)
        c->cu.free(c->arena);
    lode_free(c->weights);
    c->arena = 0;
    c->weights = NULL;
    for (uint32_t i = 0; i < n; i++)
        total += uses[i] & bit ? lode_cuda_weight_size(&weights[i]) : 0;
    const uint64_t available = lode_cuda_available(c);
    if (total + 2 * (uint64_t)STAGE > available)
        return lode_fail(err, LODE_ERR_LIMIT, "--device cuda",
                         "the weights and the buffers to upload them by take %.0f MiB, but %.0f MiB of the "
                         "memory of '%s' are free: use a smaller or more strongly quantised model, or "
                         "--device cpu",
                         (double)(total + 2 * (uint64_t)STAGE) / 0x1p20, (double)available / 0x1p20, c->name);
    c->weights = LODE_NEW_ARRAY(lode_dev, n);
    if (!c->weights)
        return lode_fail_nomem(err, "weights");
    c->n_weights = n;
    LODE_TRY(lode_cuda_enter(c, err));
    LODE_TRY(lode_cuda_take(c, &c->arena, total, "--device cuda", "the weights", err));
    struct upload *u = LODE_NEW(struct upload);
    if (!u)
        return lode_fail_nomem(err, "upload");
    u->c = c;
    u->source = source;
    int rc = begin(u, err);
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
