/* bring.h - from how many rows on a GPU computes the host's layers, with weights that are brought to it.
 *
 * The plan for steps of many rows (model/split.h) brings B bytes whatever their number, which the bus takes
 * B / bus seconds for; the host multiplies M times for each row, at a speed that is measured.  What crosses
 * between the two besides, R bytes a row in n pieces, counts against it:
 *
 *     B / (0.8 bus) + 20 us * n + rows * R / (0.8 bus)   <   rows * M / speed
 *
 * The GPU's own products are not counted: they take a small part of either, and run while the next are brought. */
#ifndef LODE_ENGINE_BRING_H
#define LODE_ENGINE_BRING_H

#include "model/model.h"

struct lode_bringing { /* of a step */
    uint64_t bytes;     /* of weights */
    uint64_t macs;      /* with them, of a row */
    double row_bytes;   /* a row's that cross between host and devices, more than where nothing is brought, */
    double borders;     /* in so many pieces */
    enum lode_dtype type; /* that most multiply-adds are with, in rows of */
    uint32_t cols;
};

/* plans: LODE_PLANS of them.  All zero where nothing is brought. */
struct lode_bringing lode_bringing(const struct lode_plan *plans);

/* Multiply-adds a second that `threads` threads (0: the default) come to with many rows; 0: no memory to try. */
double lode_product_speed(const struct lode_model *m, enum lode_dtype type, uint32_t cols, uint32_t threads);

/* Seconds that bringing takes for a step, and the least rows for which that is less than the host's; UINT32_MAX:
 * never. */
double lode_bring_seconds(const struct lode_bringing *b, double bus, uint32_t rows);
uint32_t lode_bring_rows(const struct lode_bringing *b, double bus, double speed);

/* The same by what is measured here. */
uint32_t lode_bring_least_rows(const struct lode_model *m, const struct lode_plan *plans, uint32_t threads);

#endif
