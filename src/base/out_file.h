/* out_file.h - a file that is there complete or not at all.
 *
 * Bytes go to a temporary file beside the target, PATH.lode-part, which takes the target's name
 * once everything is on the disk.  Whenever the process dies, PATH is what it was before or what it
 * was to become; what then lies about as PATH.lode-part is written over by the next run for the
 * same target.  Two processes never write one target at a time: the second is refused.
 *
 *     struct lode_out_file f;
 *     LODE_TRY(lode_out_open(&f, path, size, err));
 *     int rc = lode_out_write(&f, bytes, n, err);          in order, large pieces
 *     if (rc == 0)
 *         rc = lode_out_commit(&f, err);
 *     lode_out_abandon(&f);                                removes it; nothing after a commit
 *
 * A link is written through: what it points at is replaced.  A file that nobody may write is kept.
 */
#ifndef LODE_BASE_OUT_FILE_H
#define LODE_BASE_OUT_FILE_H

#include "lode/error.h"

#include <stddef.h>
#include <stdint.h>

struct lode_out_file {
    char *path, *temporary; /* owned */
    uint64_t size;          /* written so far */
    int fd;                 /* -1: not open */
};

/* size: bytes to come; room for them is asked for now, so that a disk that is too small is an
 * error before the work and not after it.  LODE_ERR_IO, _ARG (a directory, a device), _NOMEM.
 * On failure f is safe to abandon. */
int lode_out_open(struct lode_out_file *f, const char *path, uint64_t size, struct lode_error *err);
int lode_out_write(struct lode_out_file *f, const void *data, size_t n, struct lode_error *err);
/* To the disk, then into its place, and the directory's entry to the disk too. */
int lode_out_commit(struct lode_out_file *f, struct lode_error *err);
void lode_out_abandon(struct lode_out_file *f);
/* All of a file whose bytes are there.  Another process that writes it as well is waited for, for two seconds: what
 * is small is soon written, and the later one stays. */
int lode_out_whole(const char *path, const void *data, size_t n, struct lode_error *err);
/* The folders above a file of the user's own, nobody else's where they are made.  LODE_ERR_IO names the one that can't
 * be; LODE_ERR_ARG: the path is too long. */
int lode_out_folders(const char *path, struct lode_error *err);

#endif
