/* tune.h - which of several ways a GPU takes through a model's products: what is fastest on the GPU at hand.
 *
 * No choice changes a result.  Those that are better than the default by more than measurements vary are kept in
 * the user's cache, for the device and for types and lengths of rows, and found when a model is loaded.
 */
#ifndef LODE_TUNE_H
#define LODE_TUNE_H

#include "lode/model.h"

#ifdef __cplusplus
extern "C" {
#endif

struct lode_tune_result {
    uint32_t n_timed, n_changed; /* choices; those that are now others than before */
    char path[1024];             /* of the file that keeps them */
};

/* Times the choices of the first GPU that the model runs on, by steps of it (some ten seconds), and keeps what is
 * best.  progress may be NULL; on the calling thread.  No session of the model may exist.  LODE_ERR_UNSUPPORTED:
 * it runs on no GPU; LODE_ERR_IO: nothing could be kept, though the model goes by it. */
LODE_API int lode_tune(struct lode_model *m, lode_progress_fn *progress, void *user, struct lode_tune_result *out,
                       struct lode_error *err);

#ifdef __cplusplus
}
#endif
#endif
