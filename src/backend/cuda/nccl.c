#include "backend/cuda/nccl.h"

#include <dlfcn.h>
#include <string.h>

enum { LEAST = 20900 }; /* 2.9: the first whose collectives may be captured */

int lode_nccl_open(struct lode_nccl *nccl, struct lode_error *err) {
    memset(nccl, 0, sizeof *nccl);
    nccl->library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!nccl->library) {
        dlerror(); /* the C library keeps what it would say until it has been asked twice */
        dlerror();
        return lode_fail(err, LODE_ERR_MISSING, "--split-mode", "there is no libnccl.so.2 (NVIDIA's NCCL), by which "
                         "GPUs exchange rows");
    }
#define FIND(name, symbol, result, args)                                                           \
    {                                                                                              \
        void *at = dlsym(nccl->library, #symbol);                                                  \
        memcpy(&nccl->name, &at, sizeof at); /* ISO C has no cast from an object pointer */        \
        if (!at) {                                                                                 \
            lode_nccl_close(nccl);                                                                 \
            return lode_fail(err, LODE_ERR_MISSING, "--split-mode",                                \
                             "libnccl.so.2 lacks %s: it is too old", #symbol);                     \
        }                                                                                          \
    }
    LODE_NCCL_LIST(FIND)
#undef FIND
    int version = 0;
    if (nccl->version(&version) == 0 && version >= LEAST)
        return 0;
    lode_nccl_close(nccl);
    return lode_fail(err, LODE_ERR_MISSING, "--split-mode", "libnccl.so.2 is of version %d; %d or newer is needed",
                     version, LEAST);
}

void lode_nccl_close(struct lode_nccl *nccl) {
    if (nccl->library)
        dlclose(nccl->library);
    memset(nccl, 0, sizeof *nccl);
}

int lode_nccl_check(const struct lode_nccl *nccl, lode_nccl_result rc, const char *what, struct lode_error *err) {
    return rc == 0 ? 0
                   : lode_fail(err, LODE_ERR_DEVICE, "nccl", "%s: %s (NCCL_DEBUG=WARN says more)", what,
                               nccl->error_text(rc));
}
