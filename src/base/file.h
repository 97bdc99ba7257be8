/* file.h - files to read from: whole, by pieces, or mapped.
 *
 *     struct lode_in_file f;
 *     LODE_TRY(lode_in_open(&f, path, err));
 *     LODE_TRY(lode_in_read(&f, 0, header, sizeof header, err));     any thread, any time
 *     if (lode_in_map(&f, err) == 0)
 *         use(f.data, f.size);                                       any thread
 *     LODE_TRY(lode_in_check(&f, err));                              were those bytes there?
 *     lode_in_close(&f);
 *
 * Only regular files with at least one byte open.  Errors name the path.  A mapped file that
 * shrinks is not a crash but an error of lode_in_check where the program has installed the handler
 * of base/sigbus.h; after using mapped bytes, call it before trusting a result.
 */
#ifndef LODE_BASE_FILE_H
#define LODE_BASE_FILE_H

#include "lode/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lode_in_file {
    char *path; /* owned */
    uint64_t size;
    const unsigned char *data; /* (size) while mapped, else NULL */
    int fd, slot;              /* slot: of base/sigbus.h */
    int64_t written_ns;        /* when it was last written to, as it was opened */
};

/* LODE_ERR_MISSING, _IO (a directory, no permission, ...), _FORMAT (empty), _NOMEM.  On failure f
 * is safe to close. */
int lode_in_open(struct lode_in_file *f, const char *path, struct lode_error *err);
void lode_in_close(struct lode_in_file *f);
/* A descriptor of the same file with more of open(2)'s flags, the caller's to close, even where its path is another's
 * by now.  LODE_ERR_IO, errno as open(2) sets it; where the system does not tell files by their descriptors (no /proc)
 * and the path is another's: ESTALE. */
int lode_in_reopen(const struct lode_in_file *f, int flags, struct lode_error *err);

/* Maps the whole file read-only; a second call does nothing. */
int lode_in_map(struct lode_in_file *f, struct lode_error *err);
void lode_in_unmap(struct lode_in_file *f);

enum lode_in_hint {
    LODE_IN_WILLNEED,   /* start reading it now */
    LODE_IN_SEQUENTIAL, /* read ahead far */
    LODE_IN_RANDOM,     /* do not read ahead */
    LODE_IN_DONTNEED,   /* drop this process's pages; they may stay in the page cache */
};
/* Advice on [offset, offset + len) of the mapping.  WILLNEED widens to whole pages, DONTNEED
 * narrows.  Nothing happens where the file is not mapped. */
void lode_in_advise(const struct lode_in_file *f, uint64_t offset, uint64_t len,
                    enum lode_in_hint hint);

/* What this process has of the mapping, and the page cache of the file where no other process has it, is given
 * up; both come again when they are used. */
void lode_in_forget(const struct lode_in_file *f);

/* Exactly n bytes at offset, by pread.  LODE_ERR_IO names the offset, also when the file ends
 * first. */
int lode_in_read(const struct lode_in_file *f, uint64_t offset, void *out, size_t n,
                 struct lode_error *err);

/* LODE_ERR_IO when bytes of the mapping could not be read since it was made. */
int lode_in_check(const struct lode_in_file *f, struct lode_error *err);
/* The same when the file was written to since it was opened: what was read of it may be half of one file and half of
 * another.  For files without checksums, which find that where it matters. */
int lode_in_check_unwritten(const struct lode_in_file *f, struct lode_error *err);

#endif
