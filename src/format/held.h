/* held.h - bytes of files that are in memory already, for who makes numbers of them. */
#ifndef LODE_FORMAT_HELD_H
#define LODE_FORMAT_HELD_H

#include "base/file.h"

#include <stddef.h>
#include <stdint.h>

struct lode_stretch {                /* of a file */
    const struct lode_in_file *file; /* the source's; one pointer a file */
    uint64_t offset;
    size_t size;
};

struct lode_held { /* all borrowed */
    const struct lode_stretch *stretches; /* (n) */
    const char *const *data;              /* (n): their bytes */
    uint32_t n;
};

#endif
