/* json.h - reading members of JSON objects (jansson), with errors that name them.  Internal to
 * text/.
 */
#ifndef LODE_TEXT_JSON_H
#define LODE_TEXT_JSON_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"

#include <jansson.h>

/* NULL, and err, where the text is not one JSON object. */
json_t *lode_json_object(struct lode_str text, const char *where, struct lode_error *err);

bool lode_json_bool(const json_t *object, const char *key, bool otherwise);
/* The member's text, borrowed from the object; data NULL where it is absent, null or no string. */
struct lode_str lode_json_str(const json_t *object, const char *key);
/* A copy in the arena; false: out of memory. */
bool lode_json_copy(struct lode_arena *arena, const json_t *string, struct lode_str *out);

#endif
