/* gpu.c - see gpu.h.  The declarations below are those of the CUDA driver API and of Vulkan
 * 1.0, whose binary interfaces do not change. */
#include "gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void none(struct gpu_list *out, const char *format, int code) {
    snprintf(out->why_none, sizeof out->why_none, format, code);
}

/* dlsym gives an object pointer; ISO C has no cast from it to a function's. */
static bool find(void *library, const char *name, void *function) {
    void *at = dlsym(library, name);
    memcpy(function, &at, sizeof at);
    return at;
}

void gpu_find_cuda(struct gpu_list *out) {
    int (*init)(unsigned flags) = NULL, (*count)(int *n) = NULL, (*get)(int *device, int i) = NULL;
    int (*get_name)(char *name, int len, int device) = NULL;
    int (*get_memory)(size_t * bytes, int device) = NULL;
    int n = 0, rc;
    memset(out, 0, sizeof *out);
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        none(out, "there is no libcuda.so.1, so no NVIDIA driver", 0);
        return;
    }
    if (!find(library, "cuInit", &init) || !find(library, "cuDeviceGetCount", &count) ||
        !find(library, "cuDeviceGet", &get) || !find(library, "cuDeviceGetName", &get_name) ||
        !find(library, "cuDeviceTotalMem_v2", &get_memory))
        none(out, "libcuda.so.1 lacks the functions of the driver API", 0);
    else if ((rc = init(0)) != 0)
        none(out, "the NVIDIA driver is installed but does not start (cuInit says %d)", rc);
    else if ((rc = count(&n)) != 0 || n <= 0)
        none(out, "the NVIDIA driver runs but shows no device (%d)", rc);
    for (int i = 0; i < n && out->n < GPU_MAX; i++) {
        int device;
        size_t bytes = 0;
        struct gpu *g = &out->v[out->n];
        if (get(&device, i) || get_name(g->name, (int)sizeof g->name, device))
            continue;
        get_memory(&bytes, device);
        g->memory = bytes;
        out->n++;
    }
    dlclose(library);
}

struct instance_info { /* VkInstanceCreateInfo */
    int type;
    const void *next;
    uint32_t flags;
    const void *application;
    uint32_t n_layers;
    const char *const *layers;
    uint32_t n_extensions;
    const char *const *extensions;
};

union device_properties { /* VkPhysicalDeviceProperties: 824 bytes in version 1.0 */
    struct {
        uint32_t api, driver, vendor, device, type;
        char name[256];
    } v;
    char room[4096];
};

void gpu_find_vulkan(struct gpu_list *out) {
    int (*create)(const struct instance_info *info, const void *allocator, void **instance);
    int (*list)(void *instance, uint32_t *n, void **devices);
    void (*properties)(void *device, union device_properties *p);
    void (*destroy)(void *instance, const void *allocator);
    void *instance = NULL, *devices[GPU_MAX];
    uint32_t n = GPU_MAX;
    int rc;
    memset(out, 0, sizeof *out);
    void *library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        none(out, "there is no libvulkan.so.1, so no Vulkan loader", 0);
        return;
    }
    const struct instance_info info = {.type = 1}; /* VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO */
    if (!find(library, "vkCreateInstance", &create) ||
        !find(library, "vkEnumeratePhysicalDevices", &list) ||
        !find(library, "vkGetPhysicalDeviceProperties", &properties) ||
        !find(library, "vkDestroyInstance", &destroy)) {
        none(out, "libvulkan.so.1 lacks the functions of Vulkan 1.0", 0);
    } else if ((rc = create(&info, NULL, &instance)) != 0) {
        none(out, "Vulkan is installed without a driver for a device here (%d)", rc);
    } else {
        rc = list(instance, &n, devices);
        if (rc < 0 || n == 0)
            none(out, "Vulkan runs but shows no device (%d)", rc);
        for (uint32_t i = 0; rc >= 0 && i < n; i++) {
            union device_properties p;
            properties(devices[i], &p);
            snprintf(out->v[out->n++].name, sizeof out->v[0].name, "%.255s", p.v.name);
        }
        destroy(instance, NULL);
    }
    dlclose(library);
}
