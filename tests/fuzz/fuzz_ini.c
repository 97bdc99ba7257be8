/* fuzz_ini.c - files of settings: whatever is put has a key, and lines that ascend. */
#include "tools/ini.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int put(void *user, const char *section, const char *key, const char *value, int line,
               struct lode_error *err) {
    int *last = user;
    (void)err;
    if (line <= *last || !section || (key && (!*key || !value)) || (!key && !*section))
        abort();
    *last = line;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    struct lode_error err = {0};
    int last = 0;
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    const int rc = ini_parse(text, "fuzz", put, &last, &err);
    if (rc < 0 && (!err.where[0] || !err.text[0]))
        abort();
    free(text);
    return 0;
}
