#include "base/error.h"

#include "base/alloc.h"

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
    const size_t limit = lode_alloc_limit(), held = lode_alloc_active() + lode_alloc_mapped();
    if (limit)
        return lode_fail(err, LODE_ERR_NOMEM, "", "out of memory (%s): %.0f MiB are held of the %.0f MiB that are allowed "
                         "(--ram, lode_memory_limit)", what, (double)held / 0x1p20, (double)limit / 0x1p20);
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
