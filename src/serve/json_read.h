/* json_read.h - JSON as jansson reads it, and integers of any length.
 *
 * jansson's integers have 64 bits, and a longer one ends the whole text for it.  JSON knows no such bound
 * (RFC 8259, 6): schemas name 2^64 - 1, and models write long identifiers.  Here it becomes the nearest real
 * number, as every reader with doubles has it; a field that wants an integer still says that this is none.
 */
#ifndef LODE_SERVE_JSON_READ_H
#define LODE_SERVE_JSON_READ_H

#include <jansson.h>

/* flags: jansson's.  A new reference; NULL, and *why (if not NULL), where the text is not JSON, or a number
 * larger than a double. */
json_t *json_read(const char *text, size_t len, size_t flags, json_error_t *why);

#endif
