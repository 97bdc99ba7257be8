/* assemble.h - groups that no file has as they are computed with are put together by their source, on
 * threads.
 *
 *     lode_assembler_submit(a, &read);     read.tag: which group; r.done comes on one of the
 *                                          threads
 *
 * Each thread has the stretches of the files that its group is made of read at once, past the page
 * cache (reader.h), and the source makes the group of these.  Where the memory for that would be too
 * much of the budget, the source reads by itself, and the page cache forgets it.
 *
 * Like the reader's, a read belongs to the caller, who leaves it alone until `done`; but these are
 * never urgent, and come in the order in which they were asked for.
 */
#ifndef LODE_STORE_ASSEMBLE_H
#define LODE_STORE_ASSEMBLE_H

#include "store/layout.h"
#include "store/weight.h"

struct lode_assembler;

struct lode_assembler_opts {
    uint64_t memory;                /* bytes at most for stretches that are read */
    bool by_weight;                 /* threads share a group, a weight each: of few large groups */
    struct lode_reader_opts reader; /* its rooms are set here */
};

/* For the groups that layouts have no parts of.  All borrowed.  *memory: bytes that it holds. */
int lode_assembler_create(struct lode_assembler **out, const struct lode_source *source,
                          const struct lode_weight *weights, const struct lode_group *groups,
                          uint32_t n_groups, const struct lode_layouts *layouts,
                          const struct lode_assembler_opts *opts, uint64_t *memory,
                          struct lode_error *err);
/* Waits for what is being put together; what is queued is dropped, and its `done` not called. */
void lode_assembler_free(struct lode_assembler *a);

/* The fault's cause is 0 or LODE_READ_SOURCE. */
void lode_assembler_submit(struct lode_assembler *a, struct lode_read *read);
/* The latest LODE_READ_SOURCE of a group in words (of the last few, else another's); returns its code. */
int lode_assembler_fail(struct lode_assembler *a, uint32_t tag, struct lode_error *err);

/* Bytes of the stretches of one weight; 0: the source does not know them. */
size_t lode_assembler_stage(const struct lode_source *source, const struct lode_weight *weights, uint32_t id);

const char *lode_assembler_name(const struct lode_assembler *a); /* "io_uring, direct, converted" */
uint64_t lode_assembler_busy(const struct lode_assembler *a);    /* as lode_reader_busy */

#endif
