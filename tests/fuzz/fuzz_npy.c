/* fuzz_npy.c - .npy files from strangers: every number that npy_parse accepts can be read. */
#include "tools/npy.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct npy a;
    struct lode_error err;
    if (npy_parse(&a, data, size, "fuzz.npy", &err) == 0) {
        static volatile int64_t seen; /* so that all are read; what is compared with a constant fuzzers make equal */
        for (uint64_t i = 0; i < a.count; i++)
            seen = npy_int(&a, i);
        if (a.data + a.count * a.item > data + size)
            abort();
        if (a.count)
            seen = a.data[a.count * a.item - 1];
        (void)seen;
    } else if (!err.text[0] || !err.where[0]) {
        abort(); /* a refusal says why */
    }
    return 0;
}
