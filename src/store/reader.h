/* reader.h - many reads at once, from files into memory, on threads of its own.
 *
 * A read is a few stretches of files.  It is cut into pieces of the size that devices like, many of
 * which are in flight together; urgent reads go before the others, and each kind in the order in
 * which it came, so that the first asked for is the first to be whole.  Files are read past the
 * page cache (O_DIRECT) where the file system can.
 *
 * One of two engines does it: io_uring, where the kernel has it and the build found liburing,
 * driven by one thread; else a few threads that call pread.  Interrupted, refused-for-now and short
 * reads go on where they stopped.
 *
 *     struct lode_read r = {.parts = parts, .n_parts = 2, .base = room, .done = arrived};
 *     lode_reader_submit(reader, &r);
 *     ...                                        arrived(&r) runs on a thread of the reader
 *
 * A lode_read belongs to the caller, who leaves it alone until `done`.  Any thread may call;
 * nothing is allocated after create.
 */
#ifndef LODE_STORE_READER_H
#define LODE_STORE_READER_H

#include "base/error.h"
#include "base/file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    LODE_READ_ALIGN = 4096, /* offsets, sizes and addresses of parts are multiples of it */
};

struct lode_reader;

/* [offset, offset + size) of a file to base + to.  The file may end early, but not before `needed`
 * bytes. */
struct lode_read_part {
    uint32_t file;
    uint64_t offset;
    size_t size, needed, to;
};

/* What went wrong: errno, or one of these. */
enum {
    LODE_READ_ENDED = -1,     /* the file is shorter than it was */
    LODE_READ_DAMAGED = -2,   /* a checksum differs */
    LODE_READ_CANCELLED = -3, /* and not all of it was read */
    LODE_READ_SOURCE = -4     /* assemble.h */
};
struct lode_read_fault {
    int cause; /* 0: nothing */
    uint32_t file;
    uint64_t offset;
};

struct lode_read {
    const struct lode_read_part *parts; /* (n_parts), borrowed */
    uint32_t n_parts;
    char *base;
    bool urgent;
    uint32_t tag;     /* the caller's */
    uint32_t room;    /* of opts.n_rooms, which begins at base and has room_size bytes; */
    size_t room_size; /* 0: base is in none */
    void (*done)(struct lode_read *r); /* fault is set; no lock is held */
    struct lode_read_fault fault;
    /* the reader's own */
    struct lode_read *next, *prev;
    uint32_t i_part, n_flying;
    size_t at;    /* of part i_part, the next piece */
    size_t taken; /* bytes handed to the device so far */
    bool queued;
};

enum lode_reader_engine { LODE_READER_AUTO, LODE_READER_URING, LODE_READER_THREADS };

struct lode_reader_opts { /* zero means the default */
    enum lode_reader_engine engine;
    uint32_t depth;   /* pieces in flight; 0: 16 */
    uint32_t piece;   /* bytes of one; 0: 512 KiB */
    bool page_cache;  /* read through it */
    /* Rooms: memory that is read into again and again, which the kernel may keep at hand. */
    uint32_t n_rooms;
    uint64_t rooms_size; /* bytes of all */
    /* For tests: sees each result before the reader does, and may change it and the bytes. */
    ssize_t (*fault)(void *user, uint32_t file, uint64_t offset, char *to, size_t n,
                     ssize_t result);
    void *fault_user;
};

/* files are borrowed, stay open, and must outlive the reader, which reads those very files: whatever has their paths by
 * now is another matter. */
int lode_reader_create(struct lode_reader **out, const struct lode_in_file *const *files, uint32_t n_files,
                       const struct lode_reader_opts *opts, struct lode_error *err);
/* Waits for what is in flight; what is queued is dropped, and its `done` not called. */
void lode_reader_free(struct lode_reader *r);

void lode_reader_submit(struct lode_reader *r, struct lode_read *read);
/* Reads n parts, each to base + its `to`, and waits for them.  0, or the fault's code with its words:
 * `what` names the bytes. */
int lode_reader_read(struct lode_reader *r, const struct lode_read_part *parts, uint32_t n, char *base,
                     const char *what, struct lode_error *err);
/* It is read behind all that were submitted before now, if it is not urgent. */
void lode_reader_put_last(struct lode_reader *r, struct lode_read *read);
/* It is needed now. */
void lode_reader_urge(struct lode_reader *r, struct lode_read *read);
/* What is not in flight yet will not be read.  GONE: nothing is in flight, `done` is not called;
 * CUT: `done` comes with the fault LODE_READ_CANCELLED; ALL_FLYING: it is too late, `done` comes as
 * ever. */
enum lode_reader_cut { LODE_READER_ALL_FLYING, LODE_READER_CUT, LODE_READER_GONE };
enum lode_reader_cut lode_reader_cancel(struct lode_reader *r, struct lode_read *read);

/* A room's memory goes back to the system.  Nothing may be reading into it. */
void lode_reader_release(struct lode_reader *r, uint32_t room);

const char *lode_reader_name(const struct lode_reader *r); /* "io_uring, direct", ... */
uint64_t lode_reader_bytes(const struct lode_reader *r);   /* read so far */
/* Nanoseconds in which anything was in flight. */
uint64_t lode_reader_busy(const struct lode_reader *r);
/* Fills err with what a fault says; returns its code. */
int lode_reader_fail(const struct lode_reader *r, const struct lode_read_fault *fault,
                     const char *what, struct lode_error *err);

#endif
