/* sums.h - checksums of what stays in memory: whether its bytes are those that were packed.
 *
 * A packed model has one of each dense tensor and of each expert's record (format/packed.h).  What is
 * read when it is used is compared then (layout.h, stream.h); all else here, once, when it is loaded.
 */
#ifndef LODE_STORE_SUMS_H
#define LODE_STORE_SUMS_H

#include "store/weight.h"

struct lode_sums_opts {
    const void *const *data;     /* (n_weights) their bytes as the file has them; NULL: they are mapped,
                                    or are read for this */
    uint32_t skip_first, n_skip; /* weights of these groups are compared by who reads them */
};

/* Compares all that the source has a checksum of and these weights make up, on threads of its own;
 * nothing where it has none.  LODE_ERR_IO names file, offset, and tensor or expert and layer. */
int lode_sums_check(const struct lode_source *source, const struct lode_weight *weights,
                    uint32_t n_weights, const struct lode_sums_opts *opts, struct lode_error *err);

/* The error for bytes that are not what was packed: of `what`, at byte `at`. */
int lode_sums_fail(const char *path, const char *what, uint64_t at, struct lode_error *err);

#endif
