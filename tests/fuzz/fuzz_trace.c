/* Any bytes as a route trace, with the checksum that they should have too; what is one is replayed, in time and with its
 * guesses. */
#include "lode/lode.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static void replay(const uint8_t *data, size_t size) {
    struct lode_trace *t;
    struct lode_replay r;
    struct lode_error err;
    if (lode_trace_parse(&t, data, size, "fuzz", &err) < 0)
        return;
    const uint64_t bytes = lode_trace_bytes(t);
    if (lode_trace_shape(t)->n_layers <= 64 && lode_trace_shape(t)->n_experts <= 256) {
        lode_trace_replay(t, "belady", bytes / 2, &r, &err);
        lode_trace_replay(t, NULL, bytes / 4, &r, &err);
        const struct lode_replay_pace pace = {.ram = 1e9, .disk = 1e7, .layer = 1e-5};
        lode_trace_replay_at(t, NULL, bytes / 3, &pace, true, &r, &err);
    }
    lode_trace_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    replay(data, size);
    const uint64_t sum = XXH3_64bits(data, size);
    uint8_t *summed = malloc(size + sizeof sum);
    if (!summed)
        return 0;
    memcpy(summed, data, size);
    memcpy(summed + size, &sum, sizeof sum);
    replay(summed, size + sizeof sum);
    free(summed);
    return 0;
}
