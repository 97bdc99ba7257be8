/* fuzz_tuning.c - kept choices of a device: what is taken is one of the values that there are, what is not names a line. */
#include "backend/tuning.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct lode_tuning t, defaults;
    const struct lode_tuning_device d = {"G", 9, 0};
    struct lode_error err = {0};
    const int rc = lode_tuning_parse(&t, &d, (const char *)data, size, &err);
    lode_tuning_defaults(&defaults);
    if (rc < 0 && (memcmp(&t, &defaults, sizeof t) != 0 || !err.text[0]))
        abort();
    for (uint32_t k = 0; k < LODE_TUNING_KNOBS; k++)
        for (uint32_t i = 0; i < LODE_DTYPE_COUNT * LODE_TUNING_CLASSES; i++) {
            const uint16_t v = t.value[k][i / LODE_TUNING_CLASSES][i % LODE_TUNING_CLASSES];
            uint32_t n = 0;
            while (n < lode_tuning_knobs[k].n && lode_tuning_knobs[k].values[n] != v)
                n++;
            if (n == lode_tuning_knobs[k].n)
                abort();
        }
    return 0;
}
