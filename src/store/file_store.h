/* file_store.h - weights that stay where the file has them: mapped, or read into memory once.
 *
 * Vectors (norms, biases) that the file keeps in another type than F32 are widened here, since
 * kernels read them as floats.  Pinning never waits.
 */
#ifndef LODE_STORE_FILE_STORE_H
#define LODE_STORE_FILE_STORE_H

#include "lode/model.h"
#include "store/weight.h"

struct lode_file_store_opts {
    uint32_t skip_first, n_skip; /* weights of these groups are somebody else's: they are not pinned here */
    bool direct;   /* read past the page cache into memory, where files have them as they are */
    bool no_checksum; /* do not compare those that packed models have */
    bool prefault; /* have the pages of the mapping read in before create returns, and those of the
                      cache of what is streamed taken */
    bool mlock; /* keep the pages in memory; refused with the limit's name when not allowed */
    lode_progress_fn *progress;
    void *progress_user;
};

/* source and weights are borrowed and must outlive the store.  A file that is not mapped is read. */
int lode_file_store_create(struct lode_store **out, const struct lode_source *source,
                           const struct lode_weight *weights, uint32_t n_weights,
                           const struct lode_file_store_opts *opts, struct lode_error *err);

#endif
