/* pack.h - a model as a directory whose experts can be read one by one.
 *
 * An expert's matrices, scattered over a GGUF file or made of parts in a Hugging Face directory,
 * become one stretch of a file: one read instead of three, checked by a checksum.  lode_model_load
 * takes the directory; every number is what it was, so results are the same bit for bit.
 *
 *     rc = lode_pack("model.gguf", "model.lode", progress, NULL, &info, &err);
 *
 * Packing goes on where it was stopped, however it was stopped, when it is called again with the
 * same source.  Memory is one expert's, or one tensor's rows'.
 */
#ifndef LODE_PACK_H
#define LODE_PACK_H

#include "lode/model.h"

#ifdef __cplusplus
extern "C" {
#endif

struct lode_pack_info {
    uint64_t size;     /* bytes of the weights */
    uint64_t kept;     /* of these, what an earlier call had written */
    uint32_t n_dense;  /* tensors */
    uint32_t n_experts; /* records, of all layers */
    uint64_t expert_size; /* bytes of the largest */
};

/* source: as for lode_model_load.  dir: made if it is not there.  info may be NULL.  LODE_ERR_IO: the
 * disk is full or broken, and what was written is kept; _CANCELLED: so it is; _ARG: dir holds
 * something else. */
LODE_API int lode_pack(const char *source, const char *dir, lode_progress_fn *progress, void *user,
                       struct lode_pack_info *info, struct lode_error *err);

/* Reads all of a packed model and compares checksums: LODE_ERR_IO names what is damaged. */
LODE_API int lode_pack_check(const char *dir, lode_progress_fn *progress, void *user,
                             struct lode_pack_info *info, struct lode_error *err);

#ifdef __cplusplus
}
#endif
#endif
