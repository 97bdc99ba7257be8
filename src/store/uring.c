/* uring.c - the reader's engine over io_uring: one thread keeps the device's queue full.
 *
 * An eventfd that is itself being read wakes the thread when there is new work.  A ring that cannot
 * be made (an old kernel, a sandbox that forbids it) is no error: preads do the same. */
#include "store/reader_parts.h"

#include "base/alloc.h"

#include <errno.h>
#include <liburing.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct lode_uring {
    struct lode_reader *reader; /* borrowed */
    struct io_uring ring;
    int event;
    uint64_t count; /* what reading the event gives */
    atomic_bool asleep;
    struct lode_piece *flying; /* owned; (depth) */
    uint32_t *spare;           /* owned; (depth): indices of flying that are free */
    uint32_t n_spare;
};

struct lode_uring *lode_uring_create(struct lode_reader *r) {
    struct lode_uring *u = LODE_NEW(struct lode_uring);
    if (!u)
        return NULL;
    u->reader = r;
    u->event = eventfd(0, EFD_CLOEXEC);
    u->flying = LODE_NEW_ARRAY(struct lode_piece, r->depth);
    u->spare = LODE_NEW_ARRAY(uint32_t, r->depth);
    /* room for every piece and the event */
    const bool made = u->event >= 0 && u->flying && u->spare &&
                      io_uring_queue_init(2 * r->depth, &u->ring, 0) == 0;
    if (!made) {
        if (u->event >= 0)
            close(u->event);
        lode_free(u->flying);
        lode_free(u->spare);
        lode_free(u);
        return NULL;
    }
    for (uint32_t i = 0; i < r->depth; i++)
        u->spare[u->n_spare++] = i;
    return u;
}

void lode_uring_free(struct lode_uring *u) {
    if (!u)
        return;
    io_uring_queue_exit(&u->ring);
    close(u->event);
    lode_free(u->flying);
    lode_free(u->spare);
    lode_free(u);
}

void lode_uring_poke(struct lode_uring *u) {
    static const uint64_t one = 1;
    if (atomic_exchange(&u->asleep, false))
        (void)!write(u->event, &one, sizeof one);
}

static void await_work(struct lode_uring *u) {
    struct io_uring_sqe *e = io_uring_get_sqe(&u->ring);
    io_uring_prep_read(e, u->event, &u->count, sizeof u->count, 0);
    io_uring_sqe_set_data64(e, UINT64_MAX);
}

static void send_piece(struct lode_uring *u, uint32_t i) {
    const struct lode_piece *p = &u->flying[i];
    struct io_uring_sqe *e = io_uring_get_sqe(&u->ring);
    const unsigned n = (unsigned)(p->size < 1 << 30 ? p->size : 1 << 30);
    io_uring_prep_read(e, u->reader->fds[p->read->parts[p->part].file], p->to, n, p->offset);
    io_uring_sqe_set_data64(e, i);
}

/* Takes pieces while there are some and the device's queue has room. */
static bool fill(struct lode_uring *u) {
    struct lode_reader *r = u->reader;
    pthread_mutex_lock(&r->lock);
    while (u->n_spare && !r->stop) {
        const uint32_t i = u->spare[u->n_spare - 1];
        if (!lode_reader_take(r, &u->flying[i]))
            break;
        u->n_spare--;
        send_piece(u, i);
    }
    const bool stop = r->stop;
    pthread_mutex_unlock(&r->lock);
    return !stop;
}

void lode_uring_run(struct lode_uring *u) {
    await_work(u);
    for (;;) {
        /* set before looking at the queue: work that comes after the look finds it, and writes */
        atomic_store(&u->asleep, u->n_spare > 0);
        const bool go = fill(u);
        if (!go && u->n_spare == u->reader->depth)
            return;
        const int rc = io_uring_submit_and_wait(&u->ring, 1);
        if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY) {
            /* The ring itself broke, which no kernel is known to do: everything that waits fails. */
            for (uint32_t i = 0; i < u->reader->depth; i++) {
                bool spare = false;
                for (uint32_t k = 0; k < u->n_spare; k++)
                    spare |= u->spare[k] == i;
                if (!spare) {
                    lode_reader_put(u->reader, &u->flying[i], rc);
                    u->spare[u->n_spare++] = i;
                }
            }
            usleep(10000);
            continue;
        }
        struct io_uring_cqe *c;
        while (io_uring_peek_cqe(&u->ring, &c) == 0) {
            const uint64_t data = io_uring_cqe_get_data64(c);
            const int result = c->res;
            io_uring_cqe_seen(&u->ring, c);
            if (data == UINT64_MAX) {
                await_work(u);
                continue;
            }
            if (lode_reader_put(u->reader, &u->flying[data], result))
                send_piece(u, (uint32_t)data);
            else
                u->spare[u->n_spare++] = (uint32_t)data;
        }
    }
}
