/* Any bytes as what happens to an expert cache: each policy does what its slow model does. */
#include "../unit/policy_model.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {
#define NAME(name, about) #name,
        LODE_POLICY_LIST(NAME)
#undef NAME
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *why = policy_drive(names[i], data, size);
        if (why) {
            fprintf(stderr, "%s\n", why);
            abort();
        }
    }
    return 0;
}
