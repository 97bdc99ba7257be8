/* own_files.h - where files of tests/ are: in $LODE_TESTS, else in the working directory's. */
#ifndef LODE_TESTS_OWN_FILES_H
#define LODE_TESTS_OWN_FILES_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* The path that format says, from tests/ on; until the next call. */
__attribute__((format(printf, 1, 2))) static inline const char *own_file(const char *format, ...) {
    static char path[4096];
    const char *tests = getenv("LODE_TESTS");
    const int n = snprintf(path, sizeof path, "%s/", tests ? tests : "tests");
    va_list args;
    va_start(args, format);
    if (n > 0 && (size_t)n < sizeof path)
        vsnprintf(path + n, sizeof path - (size_t)n, format, args);
    va_end(args);
    return path;
}
/* A model of tests/data; of tests/data/arch. */
static inline const char *own_model(const char *name) { return own_file("data/%s/model.gguf", name); }
static inline const char *own_arch(const char *name) { return own_file("data/arch/%s/model.gguf", name); }

#endif
