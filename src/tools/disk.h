/* disk.h - how fast a disk reads, past the page cache. */
#ifndef LODE_TOOLS_DISK_H
#define LODE_TOOLS_DISK_H

#include "lode/error.h"

#include <stdint.h>

struct disk_speed {
    double bytes_per_second;
    double alone; /* seconds by which a read takes longer when there is no other */
    uint64_t bytes; /* that were read */
    double seconds;
    const char *filesystem; /* "ext4", ...; "" where the name is not known */
};

/* Reads a file (its first part) with O_DIRECT for about `seconds`. */
int disk_measure_file(struct disk_speed *out, const char *path, double seconds,
                      struct lode_error *err);
/* The same with a file made for it in a directory, which is removed again. */
int disk_measure_dir(struct disk_speed *out, const char *dir, double seconds,
                     struct lode_error *err);

#endif
