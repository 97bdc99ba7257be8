/* gpu.h - which GPUs the drivers of this machine know: asked at run time, nothing is linked. */
#ifndef LODE_TOOLS_GPU_H
#define LODE_TOOLS_GPU_H

#include <stdbool.h>
#include <stdint.h>

enum { GPU_MAX = 8 };

struct gpu {
    char name[256];
    uint64_t memory; /* bytes; 0: not asked */
};

struct gpu_list {
    struct gpu v[GPU_MAX];
    uint32_t n;
    char why_none[256]; /* a sentence, when n is 0 */
};

void gpu_find_cuda(struct gpu_list *out);
void gpu_find_vulkan(struct gpu_list *out);

#endif
