/* assemble.h - groups that no file has in one piece are put together by their source, on threads.
 *
 *     lode_assembler_submit(a, &read);     read.tag: which group; r.done comes on one of the
 * threads
 *
 * Like the reader's (reader.h), a read belongs to the caller, who leaves it alone until `done`; but
 * these are never urgent, and come in the order in which they were asked for.
 */
#ifndef LODE_STORE_ASSEMBLE_H
#define LODE_STORE_ASSEMBLE_H

#include "store/reader.h"
#include "store/weight.h"

struct lode_assembler;

/* at: of each weight, from base (layout.h).  All borrowed. */
int lode_assembler_create(struct lode_assembler **out, const struct lode_source *source,
                          const struct lode_weight *weights, const struct lode_group *groups,
                          const size_t *at, struct lode_error *err);
/* Waits for what is being put together; what is queued is dropped, and its `done` not called. */
void lode_assembler_free(struct lode_assembler *a);

/* The fault's cause is 0 or LODE_READ_SOURCE. */
void lode_assembler_submit(struct lode_assembler *a, struct lode_read *read);
/* The latest LODE_READ_SOURCE in words; returns its code. */
int lode_assembler_fail(struct lode_assembler *a, struct lode_error *err);

#endif
