/* error.h - making errors.  The struct and the codes are public: lode/error.h.
 *
 *     if (n_dims > LODE_MAX_DIMS)
 *         return lode_fail(err, LODE_ERR_FORMAT, name, "%u dimensions, at most %d expected", ...);
 *     LODE_TRY(read_shape(&cur, &t, err));
 */
#ifndef LODE_BASE_ERROR_H
#define LODE_BASE_ERROR_H

#include "lode/error.h"

/* Fills err (may be NULL) and returns code.  where may be NULL. */
__attribute__((format(printf, 4, 5))) int lode_fail(struct lode_error *err, int code,
                                                    const char *where, const char *fmt, ...);

/* "out of memory: N bytes for WHAT"; returns LODE_ERR_NOMEM. */
int lode_fail_nomem(struct lode_error *err, const char *what);

#define LODE_TRY(call)                                                                             \
    do {                                                                                           \
        const int lode_try_rc_ = (call);                                                           \
        if (lode_try_rc_ < 0)                                                                      \
            return lode_try_rc_;                                                                   \
    } while (0)

#endif
