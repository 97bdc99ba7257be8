/* order.h - orders for qsort. */
#ifndef LODE_TOOLS_ORDER_H
#define LODE_TOOLS_ORDER_H

/* Doubles, ascending. */
static inline int order_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#endif
