/* Any bytes as a route trace; what is one is replayed. */
#include "lode/lode.h"

#include <stddef.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct lode_trace *t;
    struct lode_replay r;
    struct lode_error err;
    if (lode_trace_parse(&t, data, size, "fuzz", &err) < 0)
        return 0;
    const uint64_t bytes = lode_trace_bytes(t);
    if (lode_trace_shape(t)->n_layers <= 64 && lode_trace_shape(t)->n_experts <= 256) {
        lode_trace_replay(t, "belady", bytes / 2, &r, &err);
        lode_trace_replay(t, NULL, bytes / 4, &r, &err);
    }
    lode_trace_free(t);
    return 0;
}
