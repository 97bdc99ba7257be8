/* imatrix.h - importance matrices: what each column of a matrix is worth, as llama-imatrix measures
 * it (the mean square of the activation that meets it).  Two forms of file are read:
 *
 *     GGUF    general.type "imatrix"; for a tensor T of n columns: T.in_sum2, F32 (matrices, n),
 * sums of squares, and T.counts, F32 (matrices, 1), how many were summed .dat    i32 n_entries,
 * then each: i32 length, name, i32 n_calls, i32 n, n x f32 sums (what follows, the text's name, is
 * not read)
 *
 *     struct lode_imatrix *im;
 *     LODE_TRY(lode_imatrix_open(&im, path, err));
 *     const float *v;                                        borrowed
 *     LODE_TRY(lode_imatrix_get(im, "blk.0.ffn_up.weight", n_cols, n_matrices, &v, err));
 *     lode_imatrix_close(im);
 *
 * Once read it never changes and any thread may use it.
 */
#ifndef LODE_QUANT_IMATRIX_H
#define LODE_QUANT_IMATRIX_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct lode_imatrix;

int lode_imatrix_open(struct lode_imatrix **out, const char *path, struct lode_error *err);
/* The same from the bytes of a file, which are needed during the call only. */
int lode_imatrix_parse(struct lode_imatrix **out, const void *data, size_t len, const char *path,
                       struct lode_error *err);
void lode_imatrix_close(struct lode_imatrix *im);

size_t lode_imatrix_n(const struct lode_imatrix *im); /* entries */

/* *out: (n_matrices, n_cols) weights, all finite and above 0; NULL where there is no entry of that
 * name.  LODE_ERR_FORMAT where it is of another size, so of another model. */
int lode_imatrix_get(const struct lode_imatrix *im, const char *name, uint64_t n_cols,
                     uint64_t n_matrices, const float **out, struct lode_error *err);

#endif
