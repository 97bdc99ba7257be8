#include "backend/cuda/driver.h"

#include <dlfcn.h>
#include <string.h>

int lode_cu_open(struct lode_cu *cu, struct lode_error *err) {
    memset(cu, 0, sizeof *cu);
    cu->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!cu->library) {
        dlerror(); /* the C library keeps what it would say until it has been asked twice */
        dlerror();
        return lode_fail(err, LODE_ERR_MISSING, "cuda",
                         "there is no libcuda.so.1, so no NVIDIA driver");
    }
#define FIND(name, symbol, args)                                                                   \
    {                                                                                              \
        void *at = dlsym(cu->library, #symbol);                                                    \
        memcpy(&cu->name, &at, sizeof at); /* ISO C has no cast from an object pointer */          \
        if (!at) {                                                                                 \
            lode_cu_close(cu);                                                                     \
            return lode_fail(err, LODE_ERR_MISSING, "cuda",                                        \
                             "libcuda.so.1 lacks %s: the NVIDIA driver is too old", #symbol);      \
        }                                                                                          \
    }
    LODE_CU_LIST(FIND)
#undef FIND
#define FIND(name, symbol, args)                                                                   \
    {                                                                                              \
        void *at = dlsym(cu->library, #symbol);                                                    \
        memcpy(&cu->name, &at, sizeof at);                                                         \
    }
    LODE_CU_OPTIONAL_LIST(FIND)
#undef FIND
    const lode_cu_result rc = cu->init(0);
    if (rc != 0) {
        lode_cu_close(cu);
        return lode_fail(err, LODE_ERR_MISSING, "cuda",
                         "the NVIDIA driver is installed but does not start (cuInit says %d)", rc);
    }
    return 0;
}

void lode_cu_close(struct lode_cu *cu) {
    if (cu->library)
        dlclose(cu->library);
    memset(cu, 0, sizeof *cu);
}

int lode_cu_check(const struct lode_cu *cu, lode_cu_result rc, const char *what,
                  struct lode_error *err) {
    const char *name = NULL, *text = NULL;
    if (rc == 0)
        return 0;
    if (cu->failed && rc != LODE_CU_NO_MEMORY)
        atomic_store(cu->failed, true);
    cu->error_name(rc, &name);
    cu->error_text(rc, &text);
    return lode_fail(err, rc == LODE_CU_NO_MEMORY ? LODE_ERR_NOMEM : LODE_ERR_DEVICE, "cuda", "%s: %s (%s)",
                     what, text ? text : "unknown error", name ? name : "?");
}
