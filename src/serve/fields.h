/* fields.h - the fields of a request's body, each with the type it must have.
 *
 * A field that is absent or null leaves *out as it is.  One of another type, or out of its range,
 * is LODE_ERR_ARG, whose `where` is the field.
 */
#ifndef LODE_SERVE_FIELDS_H
#define LODE_SERVE_FIELDS_H

#include "lode/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

int field_fail(struct lode_error *err, const char *name, const char *text, ...)
    __attribute__((format(printf, 3, 4)));
int field_bool(const json_t *body, const char *name, bool *out, struct lode_error *err);
int field_int(const json_t *body, const char *name, int64_t low, int64_t high, int64_t *out,
              struct lode_error *err);
int field_real(const json_t *body, const char *name, double low, double high, float *out,
               struct lode_error *err);
/* *out is borrowed. */
int field_string(const json_t *body, const char *name, const char **out, struct lode_error *err);
int field_array(const json_t *body, const char *name, json_t **out, struct lode_error *err);
int field_object(const json_t *body, const char *name, json_t **out, struct lode_error *err);

/* A text within the body, "" where there is none; errors name WHERE.NAME. */
int field_text(const json_t *v, const char *where, const char *name, const char **out, struct lode_error *err);

/* A value as JSON, malloc'd; NULL without memory.  (jansson's own json_dumps leaves out what it finds no
 * memory for, and says nothing.) */
char *json_text(const json_t *v);
char *json_text_as(const json_t *v, size_t flags); /* more of jansson's: JSON_SORT_KEYS and so on */

#endif
