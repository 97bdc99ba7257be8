#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

int lode_fail(struct lode_error *err, int code, const char *where, const char *fmt, ...) {
    if (err) {
        err->code = code;
        snprintf(err->where, sizeof err->where, "%s", where ? where : "");
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(err->text, sizeof err->text, fmt, ap);
        va_end(ap);
    }
    return code;
}

int lode_fail_nomem(struct lode_error *err, const char *what) {
    return lode_fail(err, LODE_ERR_NOMEM, "", "out of memory (%s)", what);
}

const char *lode_error_name(int code) {
    switch (code) {
    case 0:
        return "success";
#define CASE(name, value, text)                                                                    \
    case value:                                                                                    \
        return text;
        LODE_ERROR_LIST(CASE)
#undef CASE
    default:
        return "unknown error";
    }
}
