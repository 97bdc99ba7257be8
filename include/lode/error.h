/* error.h - how a call says what went wrong.
 *
 * Every function that can fail returns 0 or one of the negative codes below and, where it takes a
 * struct lode_error, fills it: `where` names the file, request field or line, `text` says what is
 * wrong there and what to do.  The struct is plain memory owned by the caller; NULL is allowed
 * everywhere and means "the code is enough".
 *
 *     struct lode_error err;
 *     if (lode_model_load(&model, path, NULL, &err) < 0)
 *         fprintf(stderr, "%s: %s\n", err.where, err.text);
 */
#ifndef LODE_ERROR_H
#define LODE_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

#ifndef LODE_API
#define LODE_API __attribute__((visibility("default")))
#endif

/* name, value, one-line meaning */
#define LODE_ERROR_LIST(X)                                                                         \
    X(LODE_ERR_ARG, -1, "invalid argument")                                                        \
    X(LODE_ERR_NOMEM, -2, "out of memory")                                                         \
    X(LODE_ERR_IO, -3, "input/output error")                                                       \
    X(LODE_ERR_FORMAT, -4, "malformed file or text")                                               \
    X(LODE_ERR_UNSUPPORTED, -5, "not supported")                                                   \
    X(LODE_ERR_LIMIT, -6, "a limit was exceeded")                                                  \
    X(LODE_ERR_CANCELLED, -7, "cancelled")                                                         \
    X(LODE_ERR_MISSING, -8, "not found")                                                           \
    X(LODE_ERR_INTERNAL, -9, "internal error")                                                     \
    X(LODE_ERR_DEVICE, -10, "a device failed")

enum lode_error_code {
#define LODE_ERROR_ENUM(name, value, text) name = value,
    LODE_ERROR_LIST(LODE_ERROR_ENUM)
#undef LODE_ERROR_ENUM
};

struct lode_error {
    int code;       /* 0 or a lode_error_code */
    char where[256]; /* file, field or line; "" when it does not apply */
    char text[768]; /* one sentence */
};

/* The list's meaning of a code, "success" for 0, "unknown error" for others; never NULL. */
LODE_API const char *lode_error_name(int code);

#ifdef __cplusplus
}
#endif
#endif
