/* doctor.c - `lode doctor`: what this machine has, and what of it is used. */
#include "args.h"
#include "disk.h"
#include "gpu.h"
#include "out.h"
#include "progress.h"
#include "verbs.h"

#include "lode/model.h"
#include "lode/lode.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct opts {
    const char *where;
    bool no_disk, no_bandwidth;
};

static const struct arg_flag flags[] = {
    {"-m, --model", ARG_STR, ARG_AT(struct opts, where), .meta = "FILE|DIR", .pos = 1,
     .shown = "$TMPDIR or /tmp",
     .help = "measure the disk by reading this file, or with a temporary file in this directory"},
    {"--no-disk", ARG_BOOL, ARG_AT(struct opts, no_disk), .help = "leave the disk alone"},
    {"--no-bandwidth", ARG_BOOL, ARG_AT(struct opts, no_bandwidth),
     .help = "do not measure the memory"},
};

static const struct arg_spec spec = {
    .verb = "doctor",
    .usage = "[MODEL|DIR] [flags]",
    .brief = "what this machine has, and what of it lode uses",
    .about = "Lists the CPU and the kernels chosen for it, memory and its measured bandwidth, "
             "limits of\n"
             "the container, the disk's read speed past the page cache, and the GPUs found or the\n"
             "reason why there are none.  Takes a few seconds.  Paste it into a bug report.",
    .examples = "lode doctor\n"
                "lode doctor /data/models/big.gguf",
    .flags = flags,
    .n_flags = ARG_COUNT(flags),
};

static void heading(const char *text) {
    printf("%s%s%s\n", out_bold(stdout), text, out_plain(stdout));
}

static void show_cpu(const struct lode_machine *m) {
    char l2[32], l3[32];
    const char *const *isas = lode_machine_isas();
    heading("CPU");
    printf("  %s\n", m->cpu);
    printf("  this process may use %u logical and %u physical core%s; %u thread%s by default", m->logical_cores,
           m->physical_cores, m->physical_cores == 1 ? "" : "s", m->physical_cores, m->physical_cores == 1 ? "" : "s");
    if (m->threads_beside_gpu < m->physical_cores)
        printf(", %u where a GPU computes too", m->threads_beside_gpu);
    putchar('\n');
    if (m->cache_l2 || m->cache_l3)
        printf("  caches: L2 %s, L3 %s\n", format_bytes((double)m->cache_l2, l2),
               format_bytes((double)m->cache_l3, l3));
    printf("  features: %s\n", lode_machine_features());
    printf("  kernels: %s%s%s of", out_green(stdout), lode_machine_isa_best(), out_plain(stdout));
    for (size_t i = 0; isas[i]; i++)
        printf("%s %s%s", i ? "," : "", isas[i],
               lode_machine_isa_usable(isas[i]) ? "" : " (not here)");
    putchar('\n');
}

static void show_memory(const struct lode_machine *m, const struct opts *o) {
    char total[32], free_bytes[32], limit[32], speed[32];
    double best = 0;
    heading("Memory");
    printf("  %s, %s of it free; %s%s\n", format_bytes((double)m->ram_total, total),
           format_bytes((double)m->ram_available, free_bytes),
           m->cgroup_limit ? "the container's limit is " : "no limit from a container",
           m->cgroup_limit ? format_bytes((double)m->cgroup_limit, limit) : "");
    if (o->no_bandwidth)
        return;
    const bool in_cache = lode_machine_read_buffer(m) < m->cache_l3;
    const uint32_t counts[] = {1, m->physical_cores};
    for (size_t i = 0; i < (m->physical_cores > 1 ? 2u : 1u); i++) {
        struct lode_error err;
        const double v = lode_machine_read_bandwidth(counts[i], 0.6, &err);
        if (v < 0) {
            printf("  read bandwidth: not measured: %s\n", err.text);
            return;
        }
        printf("  read bandwidth, %u thread%s: %s/s%s\n", counts[i], counts[i] == 1 ? "" : "s",
               format_bytes(v, speed), in_cache ? ", of a buffer that the cache holds, as no more may be taken" : "");
        best = v > best ? v : best;
        out_flush();
    }
    printf("  so a model that reads 4 GB for each token gives at most %.1f tokens/s\n", best / 4e9);
}

static void show_disk(const struct opts *o) {
    struct disk_speed d;
    struct lode_error err;
    struct stat st;
    char speed[32], bytes[32];
    const char *tmp = getenv("TMPDIR");
    const char *where = o->where ? o->where : tmp && *tmp ? tmp : "/tmp";
    heading("Disk");
    const bool is_file = !stat(where, &st) && S_ISREG(st.st_mode);
    const int rc =
        is_file ? disk_measure_file(&d, where, 1.0, &err) : disk_measure_dir(&d, where, 1.0, &err);
    if (rc < 0)
        printf("  not measured: %s: %s\n", err.where, err.text);
    else
        printf("  %s%s%s%s reads %s/s past the page cache (%s in %.1f s)\n", where,
               *d.filesystem ? " (" : "", d.filesystem, *d.filesystem ? ")" : "",
               format_bytes(d.bytes_per_second, speed), format_bytes((double)d.bytes, bytes),
               d.seconds);
}

static void show_gpus(const char *kind, const struct gpu_list *list) {
    char bytes[32];
    if (list->n == 0)
        printf("  %s: none: %s\n", kind, list->why_none);
    for (uint32_t i = 0; i < list->n; i++)
        printf("  %s: %s%s%s\n", kind, list->v[i].name, list->v[i].memory ? ", " : "",
               list->v[i].memory ? format_bytes((double)list->v[i].memory, bytes) : "");
}

/* What of the GPUs models can run on, which is known when each has been opened. */
static void show_devices(const struct gpu_list *cuda) {
    struct lode_error why = {0};
    char read_text[32], copy_text[32], bus_text[32];
    const int n = lode_device_count(&why);
    int usable = 0;
    for (int i = 0; i < n; i++) {
        struct lode_device_speeds s;
        const int rc = lode_device_speeds(i, &s, &why);
        usable += rc == 0 || rc == LODE_ERR_NOMEM;
        if (rc < 0)
            printf("  cuda:%d is not %s: %s\n", i, rc == LODE_ERR_NOMEM ? "measured" : "used", why.text);
        else
            printf("  cuda:%d reads %s/s of its memory, copies %s/s in it, counting reads and writes, and gets %s/s from "
                   "the host\n", i, format_bytes(s.read, read_text), format_bytes(s.copy, copy_text),
                   format_bytes(s.bus, bus_text));
        if (rc == 0 || rc == LODE_ERR_NOMEM)
            printf("  cuda:%d has %s\n", i, s.fast ? "tensor cores for --numerics tensor and fast"
                                                : "nothing for --numerics tensor and fast: all numbers are exact there");
    }
    if (usable)
        printf("  Models run there, or as many of their layers as fit (--device, -ngl).\n");
    else
        printf("  Models run on the CPU%s%s.\n", cuda->n && n == 0 ? ": " : "", cuda->n && n == 0 ? why.text : "");
}

int verb_doctor(int argc, char **argv) {
    struct opts o;
    struct args a;
    struct lode_machine m;
    struct gpu_list cuda, vulkan;
    const int status = args_main(&a, &spec, &o, argc, argv);
    if (status >= 0)
        return status;
    lode_machine_probe(&m);
    printf("lode %s\n", lode_version());
    show_cpu(&m);
    out_flush();
    show_memory(&m, &o);
    out_flush();
    if (!o.no_disk)
        show_disk(&o);
    gpu_find_cuda(&cuda);
    gpu_find_vulkan(&vulkan);
    heading("GPU");
    show_gpus("CUDA", &cuda);
    show_gpus("Vulkan", &vulkan);
    show_devices(&cuda);
    return 0;
}
