#include "store/file_store.h"

#include "base/alloc.h"
#include "base/machine.h"
#include "base/threads.h"
#include "kern/kern.h"
#include "store/reader.h"
#include "store/sums.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

struct file_store {
    struct lode_store base;
    const struct lode_source *source;
    uint32_t n;
    const void **data; /* owned; (n): borrowed from the mapping, or from own */
    void **own;        /* owned; (n): copies, or NULL */
    size_t *locked;    /* owned; (n): bytes to unlock, only with mlock */
    struct lode_reader *reader; /* of `reading`, while weights are read; NULL: none */
    const struct lode_in_file *reading;
    uint64_t mapped;   /* bytes of the mapping that are data */
};

static const struct lode_store_ops ops;

static int pin(struct lode_store *s, uint32_t id, const void **data, struct lode_error *err) {
    (void)err;
    *data = ((struct file_store *)s)->data[id];
    return LODE_READY;
}

static void unpin(struct lode_store *s, uint32_t id) {
    (void)s;
    (void)id;
}

static uint64_t news(struct lode_store *s, uint32_t id) {
    (void)s;
    (void)id;
    return 0;
}

/* A resident weight never needs waiting for. */
static void wait(struct lode_store *s, uint64_t seen, uint32_t id) {
    (void)s;
    (void)id;
    (void)seen;
}

/* Of copies in memory nothing can be lost any more, whatever becomes of the files. */
static int verify(struct lode_store *s, struct lode_error *err) {
    const struct file_store *f = (const struct file_store *)s;
    return f->mapped ? lode_source_check(f->source, err) : 0;
}

static void store_free(struct lode_store *s) {
    struct file_store *f = (struct file_store *)s;
    if (!f)
        return;
    for (uint32_t i = 0; i < f->n; i++) {
        if (f->locked && f->locked[i])
            munlock(f->data[i], f->locked[i]);
        if (f->own)
            lode_free_aligned(f->own[i]);
    }
    lode_alloc_add_mapped(-(int64_t)f->mapped);
    lode_free(f->data);
    lode_free(f->own);
    lode_free(f->locked);
    lode_free(f);
}

static int read_copy(struct file_store *f, uint32_t i, const struct lode_weight *w,
                     struct lode_error *err) {
    f->own[i] = lode_alloc_aligned(64, w->size, 1);
    if (!f->own[i])
        return lode_fail(err, LODE_ERR_NOMEM, w->home->name, "out of memory for its %zu bytes",
                         w->size);
    f->base.resident += w->size;
    f->data[i] = f->own[i];
    return lode_source_read(f->source, w->home, w->offset, f->own[i], w->size, err);
}

/* The bytes and the ends of pages around them, past the page cache; the address is the bytes'. */
static int read_direct(struct file_store *f, uint32_t i, const struct lode_weight *w,
                       const struct lode_place *place, struct lode_error *err) {
    const size_t before = (size_t)(place->offset % LODE_READ_ALIGN), needed = before + w->size;
    const size_t size = (needed + LODE_READ_ALIGN - 1) / LODE_READ_ALIGN * LODE_READ_ALIGN;
    const struct lode_read_part part = {.offset = place->offset - before, .size = size, .needed = needed};
    if (!f->reader || f->reading != place->file) { /* weights of a file follow one another */
        lode_reader_free(f->reader);
        f->reader = NULL;
        f->reading = place->file;
        LODE_TRY(lode_reader_create(&f->reader, &f->reading, 1, &(struct lode_reader_opts){0}, err));
    }
    f->own[i] = lode_alloc_aligned(LODE_READ_ALIGN, size, 1);
    if (!f->own[i])
        return lode_fail(err, LODE_ERR_NOMEM, w->home->name, "out of memory for its %zu bytes", size);
    f->base.resident += size;
    f->data[i] = (char *)f->own[i] + before;
    return lode_reader_read(f->reader, &part, 1, f->own[i], w->home->name, err);
}

static int widen(struct file_store *f, uint32_t i, const struct lode_weight *w,
                 struct lode_error *err) {
    struct lode_kern kern;
    lode_kern_table(&kern, LODE_ISA_scalar);
    const size_t n = (size_t)w->op.rows * w->op.cols; /* an expert's each, where there are rows */
    float *wide = lode_alloc_aligned(64, n, sizeof *wide);
    if (!wide)
        return lode_fail_nomem(err, w->home->name);
    kern.dequant[w->home->type](wide, f->data[i], n);
    lode_free_aligned(f->own[i]);
    f->own[i] = wide;
    f->data[i] = wide;
    f->base.resident += n * sizeof *wide;
    return 0;
}

static int lock(struct file_store *f, uint32_t i, size_t size, struct lode_error *err) {
    if (mlock(f->data[i], size) < 0)
        return lode_fail(err, LODE_ERR_LIMIT, "--mlock",
                         "can't lock %zu bytes of weights in memory (%s): raise the limit with "
                         "'ulimit -l unlimited' or leave --mlock out",
                         size, strerror(errno));
    f->locked[i] = size;
    return 0;
}

static void count_mapped(struct file_store *f, size_t size) {
    f->mapped += size;
    lode_alloc_add_mapped((int64_t)size);
}

/* --- pages of the mapping, before they are needed ------------------------------------------- */

enum { PAGE = 4096 };

struct prefault {
    const struct file_store *f;
    const struct lode_weight *weights;
};

/* One weight: a byte of each page. */
static void prefault_task(void *arg, uint32_t i, uint32_t worker) {
    const struct prefault *p = arg;
    const volatile char *data = p->f->own[i] ? NULL : p->f->data[i];
    (void)worker;
    for (size_t at = 0; data && at < p->weights[i].size; at += PAGE)
        (void)data[at];
}

/* Threads in parallel: a page fault waits for the disk, and one thread would wait for each. */
static int prefault(const struct file_store *f, const struct lode_weight *weights,
                    struct lode_error *err) {
    struct lode_pool *pool;
    struct prefault p = {f, weights};
    for (uint32_t i = 0; i < f->n; i++)
        if (f->data[i] && !f->own[i])
            madvise((void *)((uintptr_t)f->data[i] & ~(uintptr_t)(PAGE - 1)),
                    weights[i].size + ((uintptr_t)f->data[i] & (PAGE - 1)), MADV_WILLNEED);
    LODE_TRY(lode_pool_create(&pool, 8, false, err));
    lode_pool_run(pool, prefault_task, &p, f->n);
    lode_pool_free(pool);
    return 0;
}

static bool skipped(const struct lode_weight *w, const struct lode_file_store_opts *o) {
    return w->elsewhere || w->group - o->skip_first < o->n_skip;
}

/* What must be copied fits, or the answer is no before any of it is read. */
static int admit(const struct lode_source *source, const struct lode_weight *weights,
                 uint32_t n_weights, const struct lode_file_store_opts *o, struct lode_error *err) {
    struct lode_machine machine;
    uint64_t copied = 0;
    for (uint32_t i = 0; i < n_weights; i++)
        if (!skipped(&weights[i], o) &&
            (o->direct ||
             !lode_source_data(source, weights[i].home, weights[i].offset, weights[i].size)))
            copied += weights[i].size;
    if (copied < 1 << 26) /* not worth asking */
        return 0;
    lode_machine_probe(&machine);
    const uint64_t available = machine.ram_left;
    if (!available || copied <= available)
        return 0;
    return lode_fail(err, LODE_ERR_LIMIT, source->path,
                     "its weights take %.0f MiB once they are repacked or read, but %.0f MiB of "
                     "memory are free",
                     (double)copied / 0x1p20, (double)available / 0x1p20);
}

/* Bytes as files have them: mapped, or read. */
static int take(struct file_store *f, uint32_t i, const struct lode_weight *w, bool direct,
                struct lode_error *err) {
    struct lode_place place;
    if (direct && lode_source_place(f->source, w->home, w->offset, w->size, &place))
        return read_direct(f, i, w, &place, err);
    f->data[i] = lode_source_data(f->source, w->home, w->offset, w->size);
    if (!f->data[i])
        return read_copy(f, i, w, err);
    if (w->op.type == w->home->type)
        count_mapped(f, w->size);
    return 0;
}

/* What is read past the page cache is of no use there, nor is what the source has read of headers, and of
 * weights that it converts. */
static bool forgets(const struct lode_file_store_opts *o) { return o->direct || o->n_skip; }

static int take_all(struct file_store *f, const struct lode_weight *weights,
                    const struct lode_file_store_opts *o, struct lode_error *err) {
    enum { A_LITTLE = 32 << 20 };
    uint64_t total = 0, done = 0, cached = 0;
    for (uint32_t i = 0; i < f->n; i++)
        total += weights[i].size;
    for (uint32_t i = 0; i < f->n; i++) {
        if (skipped(&weights[i], o))
            continue;
        LODE_TRY(take(f, i, &weights[i], o->direct, err));
        done += weights[i].size;
        cached += weights[i].size;
        if (cached > A_LITTLE && forgets(o)) { /* not all of it twice, here and in the page cache */
            lode_source_forget(f->source);
            cached = 0;
        }
        if (o->progress && o->progress(o->progress_user, "loading", done, total))
            return lode_fail(err, LODE_ERR_CANCELLED, "", "loading was cancelled");
    }
    return 0;
}

/* As it is computed with. */
static int finish(struct file_store *f, uint32_t i, const struct lode_weight *w,
                  const struct lode_file_store_opts *o, struct lode_error *err) {
    const bool widened = w->op.type != w->home->type;
    if (widened)
        LODE_TRY(widen(f, i, w, err));
    return o->mlock ? lock(f, i, widened ? (size_t)w->op.rows * w->op.cols * sizeof(float) : w->size, err)
                    : 0;
}

int lode_file_store_create(struct lode_store **out, const struct lode_source *source,
                           const struct lode_weight *weights, uint32_t n_weights,
                           const struct lode_file_store_opts *opts, struct lode_error *err) {
    *out = NULL;
    struct file_store *f = LODE_NEW(struct file_store);
    if (!f)
        return lode_fail_nomem(err, "weights");
    *f = (struct file_store){.base = {.ops = &ops}, .source = source, .n = n_weights};
    f->data = LODE_NEW_ARRAY(const void *, n_weights);
    f->own = LODE_NEW_ARRAY(void *, n_weights);
    f->locked = opts->mlock ? LODE_NEW_ARRAY(size_t, n_weights) : NULL;
    int rc = f->data && f->own && (f->locked || !opts->mlock) ? 0 : lode_fail_nomem(err, "weights");
    if (rc == 0)
        rc = admit(source, weights, n_weights, opts, err);
    if (rc == 0 && opts->mlock && opts->direct)
        rc = lode_fail(err, LODE_ERR_ARG, "--mlock", "--direct has the weights in memory already");
    if (rc == 0)
        rc = take_all(f, weights, opts, err);
    if (rc == 0 && !opts->no_checksum)
        rc = lode_sums_check(source, weights, n_weights,
                             &(struct lode_sums_opts){f->data, opts->skip_first, opts->n_skip}, err);
    for (uint32_t i = 0; rc == 0 && i < n_weights; i++)
        if (!skipped(&weights[i], opts))
            rc = finish(f, i, &weights[i], opts, err);
    if (rc == 0 && lode_alloc_limit() && lode_alloc_active() + lode_alloc_mapped() > lode_alloc_limit())
        rc = lode_fail(err, LODE_ERR_LIMIT, source->path,
                       "its weights take %.0f MiB, and with what else is held that is more than the "
                       "limit of %.0f MiB (lode_memory_limit)",
                       (double)f->mapped / 0x1p20, (double)lode_alloc_limit() / 0x1p20);
    lode_reader_free(f->reader);
    f->reader = NULL;
    if (rc == 0 && forgets(opts))
        lode_source_forget(source);
    if (rc == 0 && opts->prefault)
        rc = prefault(f, weights, err);
    if (rc == 0) /* what was copied is all of one file */
        rc = lode_source_check(source, err);
    if (rc < 0) {
        store_free(&f->base);
        return rc;
    }
    *out = &f->base;
    return 0;
}

static const struct lode_store_ops ops = {.pin = pin,
                                          .look = pin,
                                          .unpin = unpin,
                                          .news = news,
                                          .wait = wait,
                                          .verify = verify,
                                          .free = store_free};
