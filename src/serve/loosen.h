/* loosen.h - a schema without what cannot be enforced.
 *
 * A tool that is not strict still gets arguments as near to its schema as can be held: one keyword
 * that no grammar can hold (uniqueItems, say) does not let the others go. */
#ifndef LODE_SERVE_LOOSEN_H
#define LODE_SERVE_LOOSEN_H

#include "serve/forms.h"

#include <jansson.h>

/* The form of the schema, or of what is left when keywords that cannot be enforced are taken out, some at
 * most.  *out is NULL where that is not enough.  LODE_ERR_NOMEM. */
int loosened_form(struct forms *forms, const json_t *schema, struct form **out, struct lode_error *err);

#endif
