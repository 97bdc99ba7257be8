#include "store/reader_parts.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/threads.h"
#include "store/sums.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { DEPTH = 16, PIECE = 512 << 10, MOST_STALLS = 64 };

/* ---- queues ---- */

static void push(struct lode_reader_queue *q, struct lode_read *r) {
    r->next = NULL;
    r->prev = q->last;
    *(q->last ? &q->last->next : &q->first) = r;
    q->last = r;
    r->queued = true;
}

static void drop(struct lode_reader_queue *q, struct lode_read *r) {
    *(r->prev ? &r->prev->next : &q->first) = r->next;
    *(r->next ? &r->next->prev : &q->last) = r->prev;
    r->queued = false;
}

static struct lode_reader_queue *queue_of(struct lode_reader *r, const struct lode_read *read) {
    return read->urgent ? &r->urgent : &r->lazy;
}

bool lode_reader_take(struct lode_reader *r, struct lode_piece *out) {
    struct lode_read *read = r->urgent.first;
    /* what is needed a moment later waits for all that is in flight: guesses keep the device busy
     * with as little as will do */
    if (!read && r->lazy_flying < (r->depth + 3) / 4)
        read = r->lazy.first;
    if (!read)
        return false;
    const struct lode_read_part *p = &read->parts[read->i_part];
    const size_t left = p->size - read->at;
    *out = (struct lode_piece){.read = read,
                               .part = read->i_part,
                               .offset = p->offset + read->at,
                               .to = read->base + p->to + read->at,
                               .size = left < r->piece ? left : r->piece};
    read->at += out->size;
    read->n_flying++;
    if (r->n_flying++ == 0)
        r->busy_since = lode_clock_ns();
    read->taken += out->size;
    r->lazy_flying += !read->urgent;
    if (read->at == p->size) {
        read->at = 0;
        if (++read->i_part == read->n_parts)
            drop(queue_of(r, read), read);
    }
    return true;
}

/* Whether the bytes of a piece that are there are all that its part needs. */
static bool is_tail(const struct lode_piece *p, size_t got) {
    const struct lode_read_part *part = &p->read->parts[p->part];
    return p->offset + got >= part->offset + part->needed;
}

/* Takes what arrived; true: the rest is to be read. */
static bool advance(struct lode_reader *r, struct lode_piece *p, ssize_t result) {
    struct lode_read_fault fault = {.file = p->read->parts[p->part].file, .offset = p->offset};
    if (result == -EINTR || result == -EAGAIN) {
        if (result == -EAGAIN && ++p->stalls > MOST_STALLS)
            fault.cause = EAGAIN;
        else
            return true;
    } else if (result < 0) {
        fault.cause = (int)-result;
    } else if ((size_t)result >= p->size || is_tail(p, (size_t)result)) {
        return false;
    } else {
        /* O_DIRECT wants whole blocks: what a short read left of one is read again */
        const size_t got = (size_t)result / LODE_READ_ALIGN * LODE_READ_ALIGN;
        p->offset += got;
        p->to += got;
        p->size -= got;
        p->stalls = got ? 0 : p->stalls + 1;
        if (result > 0 && p->stalls < 4)
            return true;
        fault.cause = LODE_READ_ENDED;
        fault.offset += (size_t)result;
    }
    pthread_mutex_lock(&r->lock);
    if (!p->read->fault.cause)
        p->read->fault = fault;
    pthread_mutex_unlock(&r->lock);
    return false;
}

bool lode_reader_put(struct lode_reader *r, struct lode_piece *p, ssize_t result) {
    struct lode_read *read = p->read;
    if (r->opts.fault)
        result = r->opts.fault(r->opts.fault_user, read->parts[p->part].file, p->offset, p->to,
                               p->size, result);
    if (advance(r, p, result))
        return true;
    pthread_mutex_lock(&r->lock);
    r->bytes += result > 0 ? (uint64_t)result : 0;
    r->lazy_flying -= !read->urgent;
    if (--r->n_flying == 0)
        r->busy_ns += lode_clock_ns() - r->busy_since;
    if (read->fault.cause && read->queued) /* the rest of it is of no use */
        drop(queue_of(r, read), read);
    const bool last = --read->n_flying == 0 && !read->queued;
    pthread_mutex_unlock(&r->lock);
    if (last)
        read->done(read);
    return false;
}

/* ---- threads that call pread ---- */

/* A device that waits for a thread while all cores compute stands still; from the page cache it is the
 * thread itself that copies, and that may wait. */
static void be_prompt(const struct lode_reader *r) {
    if (r->direct)
        lode_thread_wakes_first();
}

static void *work(void *arg) {
    struct lode_reader *r = arg;
    struct lode_piece p;
    be_prompt(r);
    pthread_mutex_lock(&r->lock);
    while (!r->stop) {
        if (!lode_reader_take(r, &p)) {
            pthread_cond_wait(&r->work, &r->lock);
            continue;
        }
        pthread_mutex_unlock(&r->lock);
        ssize_t got;
        do {
            got = pread(r->fds[p.read->parts[p.part].file], p.to, p.size, (off_t)p.offset);
        } while (lode_reader_put(r, &p, got < 0 ? -errno : got));
        pthread_mutex_lock(&r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

static void *drive_uring(void *arg) {
    struct lode_reader *r = arg;
    be_prompt(r);
    lode_uring_run(r->uring);
    return NULL;
}

/* ---- interface ---- */

/* Past the page cache where all files can be read so. */
static int open_files(struct lode_reader *r, bool direct, struct lode_error *err) {
    for (uint32_t i = 0; i < r->n_files; i++) {
        if (r->fds[i] >= 0)
            close(r->fds[i]);
        r->fds[i] = lode_in_reopen(r->files[i], direct ? O_DIRECT : 0, err);
        if (r->fds[i] < 0 && direct && errno == EINVAL)
            return open_files(r, false, err);
        if (r->fds[i] < 0)
            return r->fds[i];
    }
    r->direct = direct;
    return 0;
}

static int start(struct lode_reader *r, struct lode_error *err) {
    if (r->opts.engine != LODE_READER_THREADS)
        r->uring = lode_uring_create(r);
    if (!r->uring && r->opts.engine == LODE_READER_URING)
        return lode_fail(err, LODE_ERR_UNSUPPORTED, "io_uring", "this system or build has none");
    const uint32_t n = r->uring ? 1 : r->depth;
    r->threads = LODE_NEW_ARRAY(pthread_t, n);
    if (!r->threads)
        return lode_fail_nomem(err, "reader");
    while (r->n_threads < n &&
           pthread_create(&r->threads[r->n_threads], NULL, r->uring ? drive_uring : work, r) == 0)
        r->n_threads++;
    return r->n_threads ? 0 : lode_fail(err, LODE_ERR_LIMIT, "reader", "no thread can be started");
}

int lode_reader_create(struct lode_reader **out, const struct lode_in_file *const *files, uint32_t n_files,
                       const struct lode_reader_opts *opts, struct lode_error *err) {
    *out = NULL;
    struct lode_reader *r = LODE_NEW(struct lode_reader);
    if (!r)
        return lode_fail_nomem(err, "reader");
    *r = (struct lode_reader){.files = files,
                              .n_files = n_files,
                              .depth = opts->depth ? opts->depth : DEPTH,
                              .piece = opts->piece ? opts->piece : PIECE,
                              .opts = *opts};
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->work, NULL);
    r->fds = LODE_NEW_ARRAY(int, n_files);
    for (uint32_t i = 0; r->fds && i < n_files; i++)
        r->fds[i] = -1;
    int rc = r->fds ? open_files(r, !opts->page_cache, err) : lode_fail_nomem(err, "reader");
    if (rc == 0)
        rc = start(r, err);
    if (rc < 0)
        lode_reader_free(r);
    else
        *out = r;
    return rc;
}

void lode_reader_free(struct lode_reader *r) {
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    r->urgent = r->lazy = (struct lode_reader_queue){0};
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->lock);
    if (r->uring)
        lode_uring_poke(r->uring);
    for (uint32_t i = 0; i < r->n_threads; i++)
        pthread_join(r->threads[i], NULL);
    lode_uring_free(r->uring);
    for (uint32_t i = 0; r->fds && i < r->n_files; i++)
        if (r->fds[i] >= 0)
            close(r->fds[i]);
    pthread_cond_destroy(&r->work);
    pthread_mutex_destroy(&r->lock);
    lode_free(r->threads);
    lode_free(r->fds);
    lode_free(r);
}

void lode_reader_submit(struct lode_reader *r, struct lode_read *read) {
    read->i_part = read->n_flying = 0;
    read->at = read->taken = 0;
    read->fault = (struct lode_read_fault){0};
    pthread_mutex_lock(&r->lock);
    push(queue_of(r, read), read);
    if (!r->uring)
        pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->lock);
    if (r->uring)
        lode_uring_poke(r->uring);
}

struct waiting {
    struct lode_read read; /* first: `done` finds the rest by it */
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool is_done;
};

static void wake(struct lode_read *read) {
    struct waiting *w = (struct waiting *)read;
    pthread_mutex_lock(&w->lock);
    w->is_done = true;
    pthread_cond_signal(&w->done);
    pthread_mutex_unlock(&w->lock);
}

int lode_reader_read(struct lode_reader *r, const struct lode_read_part *parts, uint32_t n, char *base,
                     const char *what, struct lode_error *err) {
    struct waiting w = {
        .read = {.parts = parts, .n_parts = n, .base = base, .urgent = true, .done = wake}};
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.done, NULL);
    lode_reader_submit(r, &w.read);
    pthread_mutex_lock(&w.lock);
    while (!w.is_done)
        pthread_cond_wait(&w.done, &w.lock);
    pthread_mutex_unlock(&w.lock);
    pthread_cond_destroy(&w.done);
    pthread_mutex_destroy(&w.lock);
    return w.read.fault.cause ? lode_reader_fail(r, &w.read.fault, what, err) : 0;
}

void lode_reader_urge(struct lode_reader *r, struct lode_read *read) {
    pthread_mutex_lock(&r->lock);
    if (!read->urgent) {
        const bool queued = read->queued;
        if (queued)
            drop(&r->lazy, read);
        r->lazy_flying -= read->n_flying;
        read->urgent = true;
        if (queued)
            push(&r->urgent, read);
        if (!r->uring)
            pthread_cond_broadcast(&r->work);
    }
    pthread_mutex_unlock(&r->lock);
    if (r->uring)
        lode_uring_poke(r->uring);
}

void lode_reader_put_last(struct lode_reader *r, struct lode_read *read) {
    pthread_mutex_lock(&r->lock);
    if (read->queued && !read->urgent) {
        drop(&r->lazy, read);
        push(&r->lazy, read);
    }
    pthread_mutex_unlock(&r->lock);
}

enum lode_reader_cut lode_reader_cancel(struct lode_reader *r, struct lode_read *read) {
    enum lode_reader_cut cut = LODE_READER_ALL_FLYING;
    pthread_mutex_lock(&r->lock);
    if (read->queued) {
        drop(queue_of(r, read), read);
        cut = read->n_flying ? LODE_READER_CUT : LODE_READER_GONE;
        if (!read->fault.cause)
            read->fault.cause = LODE_READ_CANCELLED;
    }
    pthread_mutex_unlock(&r->lock);
    return cut;
}

void lode_reader_release(struct lode_reader *r, uint32_t room) {
    if (r->uring)
        lode_uring_release(r->uring, room);
}

const char *lode_reader_name(const struct lode_reader *r) {
    return r->uring    ? r->direct ? "io_uring, direct" : "io_uring, page cache"
           : r->direct ? "threads, direct"
                       : "threads, page cache";
}

uint64_t lode_reader_busy(const struct lode_reader *r) {
    struct lode_reader *w = (struct lode_reader *)(uintptr_t)r; /* for its lock */
    pthread_mutex_lock(&w->lock);
    const uint64_t busy = r->busy_ns + (r->n_flying ? lode_clock_ns() - r->busy_since : 0);
    pthread_mutex_unlock(&w->lock);
    return busy;
}

uint64_t lode_reader_bytes(const struct lode_reader *r) {
    struct lode_reader *w = (struct lode_reader *)(uintptr_t)r; /* for its lock */
    pthread_mutex_lock(&w->lock);
    const uint64_t bytes = r->bytes;
    pthread_mutex_unlock(&w->lock);
    return bytes;
}

int lode_reader_fail(const struct lode_reader *r, const struct lode_read_fault *fault,
                     const char *what, struct lode_error *err) {
    const char *path = r->files[fault->file]->path;
    if (fault->cause == LODE_READ_ENDED)
        return lode_fail(err, LODE_ERR_IO, path,
                         "the file ends at byte %" PRIu64 ", within %s: it is not what it was when "
                         "it was opened; restore it",
                         fault->offset, what);
    if (fault->cause == LODE_READ_DAMAGED)
        return lode_sums_fail(path, what, fault->offset, err);
    return lode_fail(err, LODE_ERR_IO, path, "cannot read %s at byte %" PRIu64 ": %s", what,
                     fault->offset, strerror(fault->cause));
}
