/* no_images.c - what a build for no GPU has instead of kernels: images that no driver takes. */
#include "backend/cuda/cuda.h"

#define IMAGE(name)                                                                                \
    extern const unsigned long long lode_cuda_image_##name[];                                      \
    const unsigned long long lode_cuda_image_##name[8] = {0};
LODE_CUDA_MODULE_LIST(IMAGE)
#undef IMAGE
