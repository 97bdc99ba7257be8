/* Any bytes as a safetensors file: what the parser accepts must be as its header promises. */
#include "format/safetensors.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct lode_st *st;
    struct lode_error err;
    const size_t before = lode_alloc_active();
    if (lode_st_parse(&st, data, size, size, &err) == 0) {
        uint64_t sum = 0;
        for (size_t i = 0; i < lode_st_n_tensors(st); i++) {
            const struct lode_st_tensor *t = lode_st_tensor(st, i);
            if (lode_st_find(st, t->name) != t || t->offset + t->size > size ||
                t->n_dims > LODE_ST_MAX_DIMS || lode_st_data(st, t))
                abort();
            sum += t->size;
        }
        uint64_t header;
        memcpy(&header, data, sizeof header);
        if (8 + header + sum != size) /* no holes, no overlaps */
            abort();
    } else if (!err.text[0] || st) {
        abort();
    }
    lode_st_close(st);
    if (lode_alloc_active() != before)
        abort();
    return 0;
}
