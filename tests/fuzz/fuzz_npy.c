/* fuzz_npy.c - .npy files from strangers: every number that npy_parse accepts can be read. */
#include "tools/npy.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct npy a;
    struct lode_error err;
    if (npy_parse(&a, data, size, "fuzz.npy", &err) == 0) {
        int64_t sum = 0;
        for (uint64_t i = 0; i < a.count; i++)
            sum ^= npy_int(&a, i);
        if (a.count) /* the last byte is inside the file */
            sum ^= a.data[a.count * a.item - 1];
        if (a.data + a.count * a.item > data + size || sum == 1 - INT64_MAX)
            abort();
    } else if (!err.text[0] || !err.where[0]) {
        abort(); /* a refusal says why */
    }
    return 0;
}
