/* npy.h - NumPy's .npy files: one array, little-endian, C order.
 *
 * Layout: "\x93NUMPY", major, minor, length of the header (u16 for version 1, u32 after), the
 * header (a Python dictionary, spaces, a newline), the numbers.  Files come from strangers:
 * npy_parse checks everything and only points into the bytes it was given.
 */
#ifndef LODE_TOOLS_NPY_H
#define LODE_TOOLS_NPY_H

#include "lode/error.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { NPY_MAX_DIMS = 8 };

struct npy {
    char kind;     /* 'i', 'u', 'f', 'b' */
    uint32_t item; /* bytes of one number: 1, 2, 4 or 8 */
    uint32_t n_dims;
    uint64_t dims[NPY_MAX_DIMS]; /* outermost first */
    uint64_t count;              /* product of dims */
    const unsigned char *data;   /* borrowed: (count * item) bytes, any alignment */
};

int npy_parse(struct npy *out, const void *bytes, size_t size, const char *where,
              struct lode_error *err);

/* The i-th number of an integer array; saturates where an int64_t cannot hold it. */
int64_t npy_int(const struct npy *a, uint64_t i);

/* Writes the header of a float32 array; the numbers come after it.  0 or -1 (errno). */
int npy_write_header(FILE *f, uint32_t n_dims, const uint64_t *dims);

#endif
