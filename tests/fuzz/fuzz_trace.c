/* Any bytes as a route trace; what is one is replayed, in time and with its guesses too. */
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
        const struct lode_replay_pace pace = {.ram = 1e9, .disk = 1e7, .layer = 1e-5};
        lode_trace_replay_at(t, NULL, bytes / 3, &pace, true, &r, &err);
    }
    lode_trace_free(t);
    return 0;
}
