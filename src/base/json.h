/* json.h - reading JSON documents that may be large and may be hostile.
 *
 * jansson serves requests and templates well, but a tokenizer.json of tens of megabytes is a heap
 * block for every piece to it, and it asserts when one of them cannot be had.  Here a document is
 * one copy of its text, in which strings are decoded in place, and one array of 32-byte nodes.
 *
 *     struct lode_json_doc doc;
 *     LODE_TRY(lode_json_parse(&doc, text, "tokenizer.json", err));
 *     const struct lode_json *model = lode_json_get(doc.nodes, "model");
 *     for (const struct lode_json *c = lode_json_first(model); c; c = lode_json_next(model, c)) ...
 *     lode_json_free(&doc);
 *
 * Strings are valid UTF-8 and may hold NUL.  Nesting is at most LODE_JSON_DEPTH deep.  Every
 * accessor takes NULL for "not there" and answers with nothing, so that paths need no checks.
 */
#ifndef LODE_BASE_JSON_H
#define LODE_BASE_JSON_H

#include "base/buf.h"
#include "base/error.h"

enum { LODE_JSON_DEPTH = 64, LODE_JSON_MAX_NODES = 1 << 25 };

enum lode_json_type {
    LODE_JSON_NULL,
    LODE_JSON_FALSE,
    LODE_JSON_TRUE,
    LODE_JSON_NUMBER,
    LODE_JSON_STRING,
    LODE_JSON_ARRAY,
    LODE_JSON_OBJECT,
};

struct lode_json {
    const char *key;     /* (key_len) within an object, else NULL; borrowed from the document */
    const char *text;    /* (n): a string's bytes, a number as it is written */
    uint32_t key_len, n; /* n: bytes, or members of an array or object */
    uint32_t skip;       /* nodes of this value, itself included: the next one's distance */
    uint8_t type;
};

struct lode_json_doc {
    char *text;              /* owned */
    struct lode_json *nodes; /* owned; (n) in the order of the text; the root first */
    uint32_t n, cap;
};

/* where names the document in errors.  On failure *doc is empty. */
int lode_json_parse(struct lode_json_doc *doc, struct lode_str text, const char *where,
                    struct lode_error *err);
void lode_json_free(struct lode_json_doc *doc);

static inline bool lode_json_is(const struct lode_json *v, enum lode_json_type type) {
    return v && v->type == type;
}
/* Members of arrays and objects. */
static inline uint32_t lode_json_count(const struct lode_json *v) {
    return v && v->type >= LODE_JSON_ARRAY ? v->n : 0;
}
static inline const struct lode_json *lode_json_first(const struct lode_json *v) {
    return lode_json_count(v) ? v + 1 : NULL;
}
static inline const struct lode_json *lode_json_next(const struct lode_json *v,
                                                     const struct lode_json *member) {
    return member + member->skip < v + v->skip ? member + member->skip : NULL;
}

/* An object's member; of equal keys the last.  An array's element, counted from 0. */
const struct lode_json *lode_json_get(const struct lode_json *object, const char *key);
const struct lode_json *lode_json_getn(const struct lode_json *object, struct lode_str key);
const struct lode_json *lode_json_at(const struct lode_json *array, uint32_t i);

/* {NULL, 0} where it is no string. */
struct lode_str lode_json_str(const struct lode_json *v);
/* The member, where it is a boolean, else otherwise. */
bool lode_json_bool(const struct lode_json *object, const char *key, bool otherwise);
/* Whether v is a whole number in [low, high]; then *out is it. */
bool lode_json_int(const struct lode_json *v, int64_t low, int64_t high, int64_t *out);
/* Whether v is a finite number. */
bool lode_json_real(const struct lode_json *v, double *out);

#endif
