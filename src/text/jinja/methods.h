/* methods.h - what the methods of strings share. All return false with the run's error set. */
#ifndef LODE_TEXT_JINJA_METHODS_H
#define LODE_TEXT_JINJA_METHODS_H

#include "text/jinja/jinja.h"

/* The bytes from..to of s; Markup stays Markup. */
bool jinja_piece(struct jinja_run *r, struct jv s, size_t from, size_t to, struct jv *out);

/* Arguments: v must be a string; v is an int, or absent where it is not given or None. */
bool jinja_need_text(struct jinja_run *r, struct jv v, const char *what);
bool jinja_need_int(struct jinja_run *r, struct jv v, int64_t absent, int64_t *out);

/* The last occurrence of what in s, or SIZE_MAX (also when the steps run out: r->rc says so). */
size_t jinja_find_last(struct jinja_run *r, struct lode_str s, struct lode_str what);

/* methods_split.c: a holds the separator (none: white space) and the most splits. */
bool jinja_split(struct jinja_run *r, struct jv self, const struct jv *a, bool from_right,
                 struct jv *out);
bool jinja_split_lines(struct jinja_run *r, struct jv self, bool keep_ends, struct jv *out);
bool jinja_partition(struct jinja_run *r, struct jv self, struct jv by, bool last, struct jv *out);

#endif
