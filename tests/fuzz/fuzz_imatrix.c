/* fuzz_imatrix.c - importance matrices from strangers, in both forms: what is accepted has weights
 * that can be used, and a refusal says why. */
#include "quant/imatrix.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"a", "blk.0.ffn_up.weight"};
    struct lode_imatrix *im;
    struct lode_error err = {0};
    if (lode_imatrix_parse(&im, data, size, "fuzz", &err) < 0) {
        if (!err.text[0] || !err.where[0])
            abort();
        return 0;
    }
    if (lode_imatrix_n(im) == 0)
        abort();
    for (int i = 0; i < 2; i++)
        for (uint64_t cols = 1; cols <= 8; cols *= 2)
            for (uint64_t matrices = 1; matrices <= 2; matrices++) {
                const float *v;
                if (lode_imatrix_get(im, names[i], cols, matrices, &v, &err) < 0 || !v)
                    continue;
                for (uint64_t k = 0; k < cols * matrices; k++)
                    if (!(v[k] > 0) || !isfinite(v[k]))
                        abort();
            }
    lode_imatrix_close(im);
    return 0;
}
