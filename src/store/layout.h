/* layout.h - where the weights of each group lie: in the files, and in the memory they are read
 * into.
 *
 * A group whose weights lie in files as they are computed with is a few stretches of them, each
 * with the pages that it begins and ends in; a packed model's is one stretch.  Others are put
 * together by their source, one weight behind the other.
 */
#ifndef LODE_STORE_LAYOUT_H
#define LODE_STORE_LAYOUT_H

#include "store/reader.h"
#include "store/weight.h"

struct lode_layout {
    uint32_t first_part, n_parts; /* n_parts 0: it is put together by the source */
    size_t size;                  /* bytes in memory, whole pages */
    uint32_t first_sum, n_sums;   /* checksums of what is read */
};

struct lode_layout_sum { /* of an expert's record, or of a tensor */
    size_t at, size;     /* bytes in memory */
    uint64_t sum;        /* their XXH3 */
    uint32_t file;       /* of files, and where in it they begin */
    uint64_t offset;
};

struct lode_layouts {             /* zeros: none */
    struct lode_layout *groups;   /* owned, as all below; (n_groups) */
    struct lode_read_part *parts; /* (n_parts) of all groups; their file is an index of files */
    struct lode_layout_sum *sums; /* (n_sums) of all groups */
    size_t n_parts, n_sums;
    const struct lode_in_file **files; /* (n_files); the source's */
    uint32_t n_files;
    size_t *at;               /* (n_weights): where a weight begins, from its group's first byte */
    size_t largest, smallest; /* group */
    uint64_t all;             /* bytes of all groups */
    bool assembled;           /* some are put together by the source */
};

/* out is to be freed after a failure too. */
int lode_layouts_make(struct lode_layouts *out, const struct lode_source *source,
                      const struct lode_weight *weights, uint32_t n_weights,
                      const struct lode_group *groups, uint32_t n_groups, struct lode_error *err);
void lode_layouts_free(struct lode_layouts *l);

/* The bytes in memory of one group. */
size_t lode_layout_size(const struct lode_source *source, const struct lode_weight *weights,
                        const struct lode_group *g);

#endif
