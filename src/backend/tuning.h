/* tuning.h - a device's table of choices that change no result, only how long it takes.
 *
 * For each choice (a knob), type of weights and class of row lengths (those of 2^k .. 2^(k+1) - 1 numbers) one of
 * a few values; the defaults are what was best where the kernels were written.  `lode bench --tune` times the
 * others on the device at hand (engine/tune.c) and keeps what is better in the user's cache, where the device
 * finds it when it is opened:
 *
 *     lode-tuning 1
 *     device NVIDIA H200
 *     compute 9.0
 *     alone Q4_K 13 0          knob, type, class, value; what is not named is as by default
 *
 * Such a file comes from anywhere: what is not as it should be makes all of it ignored, and is said.
 */
#ifndef LODE_BACKEND_TUNING_H
#define LODE_BACKEND_TUNING_H

#include "base/error.h"
#include "tensor/dtype.h"

#include <stddef.h>
#include <stdint.h>

/* X(name, what is timed, values, the default first).
 *   alone   1: one long row is rounded by a launch of its own, and multiplied as few rows are
 *   ahead   KiB of weights that a product of one row asks for before it needs them
 *   next    MiB of the next product's weights that it asks for
 *   depth   items of few rows' products that a warp has on its way
 *   tile    tenths of the time of a tile of 128 rows that one of 64 takes, in products of many rows */
#define LODE_TUNING_LIST(X)                                                                        \
    X(alone, DECODE, 0, 1)                                                                         \
    X(ahead, DECODE, 96, 32, 64, 160)                                                              \
    X(next, DECODE, 10, 0, 4, 20)                                                                  \
    X(depth, FEW, 3, 2, 4)                                                                         \
    X(tile, PROMPT, 6, 5, 7, 8)

enum lode_tuning_work { LODE_TUNING_DECODE, LODE_TUNING_FEW, LODE_TUNING_PROMPT };
enum lode_tuning_knob {
#define KNOB(name, work, ...) LODE_TUNING_##name,
    LODE_TUNING_LIST(KNOB)
#undef KNOB
        LODE_TUNING_KNOBS
};
enum { LODE_TUNING_VALUES = 4, LODE_TUNING_CLASSES = 24, LODE_TUNING_LONG = 13 /* alone is 1 by default from here on */ };

struct lode_tuning_knob_info {
    const char *name;
    enum lode_tuning_work work;
    uint32_t n;
    uint16_t values[LODE_TUNING_VALUES];
};
extern const struct lode_tuning_knob_info lode_tuning_knobs[LODE_TUNING_KNOBS];

struct lode_tuning {
    uint16_t value[LODE_TUNING_KNOBS][LODE_DTYPE_COUNT][LODE_TUNING_CLASSES];
};

struct lode_tuning_device { /* what a table is for */
    const char *name;
    int major, minor; /* compute capability */
};

uint32_t lode_tuning_class(uint32_t cols);
uint16_t lode_tuning_default(enum lode_tuning_knob knob, uint32_t class);
void lode_tuning_defaults(struct lode_tuning *t);
/* The file's text (n bytes).  LODE_ERR_FORMAT names the line, LODE_ERR_UNSUPPORTED another device; t has the
 * defaults then. */
int lode_tuning_parse(struct lode_tuning *t, const struct lode_tuning_device *d, const char *text, size_t n,
                      struct lode_error *err);
/* Reads the device's file where there is one; *found says so. */
int lode_tuning_load(struct lode_tuning *t, const struct lode_tuning_device *d, bool *found, struct lode_error *err);
/* Where its file goes, to path (cap bytes); the folders are made. */
int lode_tuning_place(const struct lode_tuning_device *d, char *path, size_t cap, struct lode_error *err);
/* Writes it, complete or not at all; its path to path (cap bytes). */
int lode_tuning_save(const struct lode_tuning *t, const struct lode_tuning_device *d, char *path, size_t cap,
                     struct lode_error *err);

#endif
