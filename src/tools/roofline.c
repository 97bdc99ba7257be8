/* roofline.c - `lode bench --roofline`: what this machine can do at best.
 *
 * Two limits stand over all that lode computes: how fast memory is read (answers) and how fast
 * numbers are multiplied (prompts).  Both are measured here, as lode's kernels would use them; of GPUs
 * what their memory and the bus to it give. */
#include "bench.h"

#include "load.h"
#include "out.h"

#include "lode/lode.h"

#include <string.h>

struct limit {
    const char *kind, *unit;
    char what[48];
    uint32_t threads;
    double value;
};

static const double seconds = 0.4; /* each */

/* 1, 2, 4 ... and all. */
static uint32_t next_threads(uint32_t n, uint32_t all) {
    return n == all ? all + 1 : 2 * n < all ? 2 * n : all;
}

static void put_limit(const char *format, const struct limit *l, size_t i) {
    const double v = l->value / 1e9;
    if (strcmp(format, "csv") == 0)
        printf("%s,%s,%u,%.1f,%s\n", l->kind, l->what, l->threads, v, l->unit);
    else if (format[0] == 'j')
        printf("%s{\"kind\": \"%s\", \"what\": \"%s\", \"threads\": %u, \"value\": %.1f, \"unit\": \"%s\"}%s",
               format[4] ? "" : i ? ",\n  " : "[\n  ", l->kind, l->what, l->threads, v, l->unit,
               format[4] ? "\n" : "");
    else
        printf("| %-17s | %-16s | %7u | %9.1f %s |\n", l->kind, l->what, l->threads, v, l->unit);
    out_flush();
}

static void put_end(const char *format) {
    if (strcmp(format, "json") == 0)
        printf("\n]\n");
}

static void put_begin(const char *format) {
    if (strcmp(format, "csv") == 0)
        printf("kind,what,threads,value,unit\n");
    else if (format[0] == 'm')
        printf("| %-17s | %-16s | %7s | %14s |\n| ----------------- | ---------------- | ------: | "
               "-------------: |\n",
               "limit", "of", "threads", "");
}

/* What cannot be measured has no lines; `lode doctor` says why. */
static void put_device(const char *format, int i, size_t *n) {
    struct lode_device_speeds s;
    if (lode_device_speeds(i, &s, NULL) < 0)
        return;
    const struct limit limits[] = {{.kind = "read bandwidth", .value = s.read}, {.kind = "copies both ways", .value = s.copy},
                                   {.kind = "from the host", .value = s.bus}};
    for (size_t k = 0; k < sizeof limits / sizeof *limits; k++) {
        struct limit l = limits[k];
        l.unit = "GB/s";
        l.threads = 1;
        snprintf(l.what, sizeof l.what, "cuda:%d", i);
        put_limit(format, &l, (*n)++);
    }
}

int bench_roofline(const char *format) {
    struct lode_machine m;
    struct lode_error err = {0};
    size_t n = 0;
    lode_machine_probe(&m);
    const uint32_t all = m.physical_cores;
    put_begin(format);
    for (uint32_t t = 1; t <= all; t = next_threads(t, all))
        for (uint32_t streams = 1; streams <= 16; streams *= 2) {
            struct limit l = {.kind = "read bandwidth", .unit = "GB/s", .threads = t};
            snprintf(l.what, sizeof l.what, "%u stream%s", streams, streams == 1 ? "" : "s");
            l.value = lode_machine_read_streams(t, streams, seconds, &err);
            if (l.value < 0)
                return tool_report(&err);
            put_limit(format, &l, n++);
        }
    for (const char *const *dot = lode_machine_dots(); *dot; dot++)
        for (uint32_t t = 1; t <= all; t = t < all ? all : all + 1) {
            struct limit l = {.kind = "dot products", .unit = "GOPS", .threads = t};
            snprintf(l.what, sizeof l.what, "%s", *dot);
            l.value = lode_machine_dot_peak(*dot, t, seconds, &err);
            if (l.value < 0)
                return tool_report(&err);
            put_limit(format, &l, n++);
        }
    for (int i = 0; i < lode_device_count(NULL); i++)
        put_device(format, i, &n);
    put_end(format);
    return 0;
}

double bench_dot_peak(const char *isa, bool integers, uint32_t threads, double how_long) {
    /* whose instructions floats and integers are multiplied by, where it is another set */
    static const struct {
        const char *isa, *by[2];
    } others[] = {{"avxvnni", {"avx2", "avxvnni"}},
                  {"avx512vnni", {"avx512", "avx512vnni"}},
                  {"avx512vbmi", {"avx512", "avx512vnni"}},
                  {"avx512zen4", {"avx512", "avx512vnni"}},
                  {"avx512intel", {"avx512", "avx512vnni"}},
                  {"amx", {"avx512", "amx"}}};
    char name[64];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(isa, others[i].isa) == 0) {
            isa = others[i].by[integers];
            break;
        }
    snprintf(name, sizeof name, "%s %s", isa, integers ? "int8" : "f32");
    const char *const *dot = lode_machine_dots();
    while (*dot && strcmp(*dot, name))
        dot++;
    const double v = *dot ? lode_machine_dot_peak(name, threads, how_long, NULL) : 0;
    return v > 0 ? v : 0;
}
