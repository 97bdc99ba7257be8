#include "base/machine.h"

#include "base/cgroup.h"
#include "base/small_file.h"

#include <ctype.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

enum { LINE = LODE_LINE };

/* "32K", "1024", "8M"; 0 when it is none of these */
static uint64_t parse_size(const char *s) {
    char *end;
    const uint64_t n = strtoull(s, &end, 10);
    switch (toupper((unsigned char)*end)) {
    case 'K':
        return n << 10;
    case 'M':
        return n << 20;
    case 'G':
        return n << 30;
    default:
        return n;
    }
}

/* --- cores --------------------------------------------------------------------------------- */

/* The lowest CPU of the list "0,64" or "0-1" that is in the set: it stands for its core. */
static uint32_t core_of(const char *root, uint32_t cpu, const cpu_set_t *set) {
    char line[LINE];
    const char *name = "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list";
    if (!lode_first_line(lode_open_under(root, name, cpu), line))
        return cpu;
    for (char *p = line; *p;) {
        char *end;
        unsigned long first = strtoul(p, &end, 10), last = first;
        if (end == p)
            break;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (unsigned long c = first; c <= last && c < CPU_SETSIZE; c++)
            if (CPU_ISSET(c, set))
                return (uint32_t)c;
        p = end + (*end == ',');
    }
    return cpu;
}

/* Fills cpus (may be NULL) as lode_machine_cpus; *n_cores: of them first of their core. */
static uint32_t list_cpus(const char *root, uint32_t *cpus, uint32_t max, uint32_t *n_cores) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        CPU_ZERO(&set);
        CPU_SET(0, &set);
    }
    uint32_t n = 0;
    for (int siblings = 0; siblings < 2; siblings++) {
        for (uint32_t c = 0; c < CPU_SETSIZE; c++) {
            if (!CPU_ISSET(c, &set) || (core_of(root, c, &set) != c) != siblings)
                continue;
            if (cpus && n < max)
                cpus[n] = c;
            n++;
        }
        if (!siblings)
            *n_cores = n;
    }
    return cpus && n > max ? max : n;
}

uint32_t lode_machine_cpus(uint32_t *cpus, uint32_t max, uint32_t *n_cores) {
    return list_cpus("", cpus, max, n_cores);
}

/* --- the whole ----------------------------------------------------------------------------- */

static uint64_t kilobytes_of(const char *root, const char *key) {
    char value[LINE];
    const bool found = lode_value_of(lode_open_under(root, "/proc/meminfo"), key, value);
    return found ? strtoull(value, NULL, 10) << 10 : 0;
}

static void read_caches(struct lode_machine *m, const char *root) {
    for (int i = 0; i < 8; i++) {
        char level[LINE], size[LINE];
        const char *dir = "/sys/devices/system/cpu/cpu0/cache/index";
        if (!lode_first_line(lode_open_under(root, "%s%d/level", dir, i), level) ||
            !lode_first_line(lode_open_under(root, "%s%d/size", dir, i), size))
            return;
        if (level[0] == '2')
            m->cache_l2 = parse_size(size);
        if (level[0] == '3')
            m->cache_l3 = parse_size(size);
    }
}

/* What changes while a program runs. */
static void probe_memory(struct lode_machine *m, const char *root, const struct lode_cgroup_limits *limits) {
    m->ram_total = kilobytes_of(root, "MemTotal");
    m->ram_available = kilobytes_of(root, "MemAvailable");
    m->cgroup_limit = limits->memory < m->ram_total ? limits->memory : 0;
    m->ram_left = limits->left < m->ram_available ? limits->left : m->ram_available;
}

/* /proc may be missing, or closed to us by a failed allocation inside fopen.  "None available" would
 * refuse every session with a wrong reason; the system call knows less (not what of the page cache could
 * be dropped), but it cannot fail. */
static void ask_system(struct lode_machine *m) {
    struct sysinfo s;
    if ((m->ram_total == 0 || m->ram_available == 0) && sysinfo(&s) == 0) {
        m->ram_total = (uint64_t)s.totalram * s.mem_unit;
        m->ram_available = ((uint64_t)s.freeram + s.bufferram) * s.mem_unit;
        m->ram_left = m->ram_left ? m->ram_left : m->ram_available;
    }
}

void lode_machine_probe_at(struct lode_machine *m, const char *root) {
    memset(m, 0, sizeof *m);
    char name[LINE];
    if (!lode_value_of(lode_open_under(root, "/proc/cpuinfo"), "model name", name) &&
        !lode_value_of(lode_open_under(root, "/proc/device-tree/model"), "", name))
        snprintf(name, sizeof name, "unknown");
    snprintf(m->cpu, sizeof m->cpu, "%.*s", (int)sizeof m->cpu - 1, name);

    const struct lode_cgroup_limits limits = lode_cgroup_limits(root);
    m->logical_cores = list_cpus(root, NULL, 0, &m->physical_cores);
    /* Rounded down: a thread more than the quota pays for is one that is stopped in every period. */
    if (limits.cpus > 0 && limits.cpus < (double)m->physical_cores)
        m->physical_cores = (uint32_t)limits.cpus;
    if (m->physical_cores < 1)
        m->physical_cores = 1;
    /* One core is left to the GPU's driver and to the system: all threads wait for the slowest, so where they have all cores
     * each of them that is interrupted costs every one of them. */
    enum { SPARED_FROM = 8 };
    m->threads_beside_gpu = m->physical_cores - (m->physical_cores >= SPARED_FROM);
    read_caches(m, root);
    probe_memory(m, root, &limits);
}

/* The sum over the page tables.  The counters of statm and status are kept by each CPU and added up now and
 * then: kernels before 6.17 tell them up to 32 pages a CPU wrong, for files' pages and others each. */
uint64_t lode_machine_resident(void) {
    char value[LINE];
    if (lode_value_of(lode_open_under("", "/proc/self/smaps_rollup"), "Rss", value))
        return strtoull(value, NULL, 10) << 10;
    unsigned long pages = 0, resident = 0;
    if (lode_first_line(lode_open_under("", "/proc/self/statm"), value) &&
        sscanf(value, "%lu %lu", &pages, &resident) == 2)
        return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
    return 0;
}

/* The machine as the first probe found it, unless that could not read all: cores, caches and names stay
 * as they are, and a program asks many times. */
static struct lode_machine kept_machine;
static bool is_kept;
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

/* Whether this call made the first probe, and so knows the memory too. */
static bool probe_once(struct lode_machine *m) {
    pthread_mutex_lock(&kept_lock);
    const bool first = !is_kept;
    if (first) {
        lode_machine_probe_at(m, "");
        is_kept = m->ram_total && m->logical_cores && strcmp(m->cpu, "unknown") != 0;
        kept_machine = *m;
    }
    *m = kept_machine;
    pthread_mutex_unlock(&kept_lock);
    return first;
}

void lode_machine_probe(struct lode_machine *m) {
    if (!probe_once(m)) {
        const struct lode_cgroup_limits limits = lode_cgroup_limits("");
        probe_memory(m, "", &limits);
    }
    ask_system(m);
}

uint32_t lode_machine_default_threads(void) {
    struct lode_machine m;
    probe_once(&m);
    return m.physical_cores;
}

uint32_t lode_machine_default_threads_beside_gpu(void) {
    struct lode_machine m;
    probe_once(&m);
    return m.threads_beside_gpu;
}
