#include "tensor/dtype.h"

#include <strings.h>

const struct lode_dtype_info lode_dtypes[LODE_DTYPE_COUNT] = {
#define ROW(name, id, block, bytes, act) [LODE_##name] = {#name, id, block, bytes, LODE_##act},
    LODE_DTYPE_LIST(ROW)
#undef ROW
};

enum lode_dtype lode_dtype_from_gguf(uint32_t id) {
    for (int t = 0; t < LODE_DTYPE_COUNT; t++)
        if (lode_dtypes[t].id == id && id < 256)
            return (enum lode_dtype)t;
    return LODE_NONE;
}

enum lode_dtype lode_dtype_from_name(struct lode_str name) {
    for (int t = 0; t < LODE_DTYPE_COUNT; t++)
        if (strlen(lode_dtypes[t].name) == name.len && lode_dtypes[t].id < 256 &&
            strncasecmp(lode_dtypes[t].name, name.data, name.len) == 0)
            return (enum lode_dtype)t;
    return LODE_NONE;
}

bool lode_dtype_row_size(enum lode_dtype t, uint64_t n, size_t *bytes) {
    const struct lode_dtype_info *d = &lode_dtypes[t];
    return n % d->block == 0 && !__builtin_mul_overflow(n / d->block, (uint64_t)d->bytes, bytes);
}
