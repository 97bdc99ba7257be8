/* Any text as a GBNF grammar, and what it allows: grammar_walk.h. */
#include "grammar_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    walk(LODE_GRAMMAR_GBNF, data, size);
    return 0;
}
