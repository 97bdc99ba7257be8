/* uring.c - the reader's engine over io_uring: one thread keeps the device's queue full.
 *
 * An eventfd that is itself being read wakes the thread when there is new work.  A ring that cannot
 * be made (an old kernel, a sandbox that forbids it) is no error: preads do the same.
 *
 * Files are registered with the ring, and so is a room when it is first read into, while the limit
 * of locked memory allows it: the kernel then need not look up its pages for each piece. */
#include "store/reader_parts.h"

#include "base/alloc.h"

#include <errno.h>
#include <linux/capability.h>
#include <liburing.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
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
    uint32_t *taken;  /* owned; (depth): pieces to be sent */
    bool *registered; /* owned; (n_rooms) */
    uint32_t n_rooms; /* that may be registered */
    bool fixed_files, full;
};

enum { MOST_ROOMS = 16384 /* the kernel's limit */ };

/* Whether the user may lock so much memory: the kernel counts registered memory so.  To register a
 * few rooms and then fail would gain nothing, and leave others of the user without. */
static bool may_lock(uint64_t bytes) {
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3] = {{0}};
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
        (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur / 2 >= bytes))
        return true;
    return syscall(SYS_capget, &head, caps) == 0 &&
           (caps[CAP_IPC_LOCK / 32].effective >> CAP_IPC_LOCK % 32 & 1);
}

/* What makes reads cheaper; without it they work as well. */
static void register_all(struct lode_uring *u) {
    const struct lode_reader *r = u->reader;
    u->fixed_files = io_uring_register_files(&u->ring, r->fds, r->n_files) == 0;
    if (r->opts.n_rooms == 0 || r->opts.n_rooms > MOST_ROOMS || !may_lock(r->opts.rooms_size))
        return;
    u->registered = LODE_NEW_ARRAY(bool, r->opts.n_rooms);
    if (u->registered && io_uring_register_buffers_sparse(&u->ring, r->opts.n_rooms) == 0)
        u->n_rooms = r->opts.n_rooms;
}

static void free_tables(struct lode_uring *u) {
    lode_free(u->flying);
    lode_free(u->spare);
    lode_free(u->taken);
    lode_free(u->registered);
    lode_free(u);
}

struct lode_uring *lode_uring_create(struct lode_reader *r) {
    struct lode_uring *u = LODE_NEW(struct lode_uring);
    if (!u)
        return NULL;
    u->reader = r;
    u->event = eventfd(0, EFD_CLOEXEC);
    u->flying = LODE_NEW_ARRAY(struct lode_piece, r->depth);
    u->spare = LODE_NEW_ARRAY(uint32_t, r->depth);
    u->taken = LODE_NEW_ARRAY(uint32_t, r->depth);
    /* room for every piece and the event */
    const bool made = u->event >= 0 && u->flying && u->spare && u->taken &&
                      io_uring_queue_init(2 * r->depth, &u->ring, 0) == 0;
    if (!made) {
        if (u->event >= 0)
            close(u->event);
        free_tables(u);
        return NULL;
    }
    register_all(u);
    for (uint32_t i = 0; i < r->depth; i++)
        u->spare[u->n_spare++] = i;
    return u;
}

void lode_uring_free(struct lode_uring *u) {
    if (!u)
        return;
    io_uring_queue_exit(&u->ring);
    close(u->event);
    free_tables(u);
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

/* Whether the room that a read goes to is registered, now if it was not. */
static bool is_registered(struct lode_uring *u, const struct lode_read *r) {
    if (r->room_size == 0 || r->room >= u->n_rooms)
        return false;
    if (!u->registered[r->room] && !u->full) {
        const struct iovec room = {r->base, r->room_size};
        u->registered[r->room] =
            io_uring_register_buffers_update_tag(&u->ring, r->room, &room, NULL, 1) == 1;
        u->full = !u->registered[r->room];
    }
    return u->registered[r->room];
}

/* The caller sees to it that the room's reads and this come one after the other. */
void lode_uring_release(struct lode_uring *u, uint32_t room) {
    const struct iovec none = {0};
    if (room >= u->n_rooms || !u->registered[room])
        return;
    io_uring_register_buffers_update_tag(&u->ring, room, &none, NULL, 1);
    u->registered[room] = false;
}

static void send_piece(struct lode_uring *u, uint32_t i) {
    const struct lode_piece *p = &u->flying[i];
    const uint32_t file = p->read->parts[p->part].file;
    const int fd = u->fixed_files ? (int)file : u->reader->fds[file];
    const unsigned n = (unsigned)(p->size < 1 << 30 ? p->size : 1 << 30);
    const bool fixed = is_registered(u, p->read);
    struct io_uring_sqe *e = io_uring_get_sqe(&u->ring);
    if (fixed)
        io_uring_prep_read_fixed(e, fd, p->to, n, p->offset, (int)p->read->room);
    else
        io_uring_prep_read(e, fd, p->to, n, p->offset);
    if (u->fixed_files)
        io_uring_sqe_set_flags(e, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data64(e, i);
}

/* Takes pieces while there are some and the device's queue has room. */
static bool fill(struct lode_uring *u) {
    struct lode_reader *r = u->reader;
    uint32_t n = 0;
    pthread_mutex_lock(&r->lock);
    while (u->n_spare && !r->stop) {
        const uint32_t i = u->spare[u->n_spare - 1];
        if (!lode_reader_take(r, &u->flying[i]))
            break;
        u->n_spare--;
        u->taken[n++] = i;
    }
    const bool stop = r->stop;
    pthread_mutex_unlock(&r->lock);
    for (uint32_t i = 0; i < n; i++)
        send_piece(u, u->taken[i]);
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
            /* The ring itself broke, which no kernel is known to do: everything that waits fails.
             */
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
        if (rc == -EAGAIN || rc == -EBUSY) /* the kernel is out of something, and this thread may
                                              be one that others cannot interrupt */
            usleep(100);
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
