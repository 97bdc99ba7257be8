/* profile.h - the list of experts that a cache begins with (lode/profile.h: lode_model_save_hot). */
#ifndef LODE_MODEL_PROFILE_H
#define LODE_MODEL_PROFILE_H

#include "model/model.h"

/* *out: the caller's to free; (*n) groups, the most used first.  A file that is not there is an empty
 * list. */
int lode_hot_read(const struct lode_model *m, const char *path, uint32_t **out, uint32_t *n,
                  struct lode_error *err);
int lode_hot_parse(const struct lode_model *m, struct lode_str text, const char *where,
                   uint32_t **out, uint32_t *n, struct lode_error *err);

#endif
