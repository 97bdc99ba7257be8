/* ids.h - where token ids go: the caller's array, as far as it reaches, and a count of all. */
#ifndef LODE_TEXT_IDS_H
#define LODE_TEXT_IDS_H

#include <stddef.h>
#include <stdint.h>

struct lode_ids {
    int32_t *ids;  /* (cap) borrowed */
    size_t cap, n; /* n may be more than cap */
};

static inline void lode_ids_add(struct lode_ids *out, int32_t id) {
    if (out->n < out->cap)
        out->ids[out->n] = id;
    out->n++;
}

#endif
