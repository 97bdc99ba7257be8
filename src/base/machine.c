#include "base/machine.h"

#include <ctype.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

enum { PATH = 1024, LINE = 1024 };

/* --- small files --------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static FILE *open_under(const char *root, const char *fmt,
                                                              ...) {
    char path[PATH];
    const int start = snprintf(path, sizeof path, "%s", root);
    if (start < 0 || start >= PATH)
        return NULL;
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(path + start, sizeof path - (size_t)start, fmt, ap);
    va_end(ap);
    return n < 0 || n >= PATH - start ? NULL : fopen(path, "re");
}

/* The first line of f, without its newline, which it closes; false: no file or empty. */
static bool first_line(FILE *f, char line[LINE]) {
    if (!f)
        return false;
    const bool ok = fgets(line, LINE, f) != NULL;
    fclose(f);
    if (ok)
        line[strcspn(line, "\n")] = 0;
    return ok;
}

/* The rest of the first line that begins with `key`, after any blanks and a colon. */
static bool value_of(FILE *f, const char *key, char value[LINE]) {
    char line[LINE];
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        const char *p = line + strlen(key);
        p += strspn(p, " \t:");
        snprintf(value, LINE, "%s", p);
        value[strcspn(value, "\n")] = 0;
        found = true;
    }
    if (f)
        fclose(f);
    return found;
}

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

/* --- control groups ------------------------------------------------------------------------ */

/* The quota of one group: CPUs' worth of time and bytes of memory; what is unlimited stays. */
struct limits {
    double cpus;
    uint64_t memory;
    uint64_t left; /* of the tightest group; UINT64_MAX: not limited */
};

/* A limit as its file has it, and of the group the bytes in use and those of them that hold files'
 * pages, which the kernel takes back before it kills. */
static void less_memory(struct limits *l, const char *line, uint64_t used, uint64_t files) {
    /* v2's "max" is no number and gives 0; v1's unlimited is 2^63 less a page */
    const uint64_t n = strtoull(line, NULL, 10);
    if (!n || n >= UINT64_C(1) << 60)
        return;
    if (!l->memory || n < l->memory)
        l->memory = n;
    used = used > files ? used - files : 0;
    const uint64_t left = n > used ? n - used : 0;
    l->left = left < l->left ? left : l->left;
}

static void less_cpus(struct limits *l, double quota, double period) {
    if (quota > 0 && period > 0 && (l->cpus <= 0 || quota / period < l->cpus))
        l->cpus = quota / period;
}

/* A group is limited by itself and by all above it.  In a container the path in
 * /proc/self/cgroup may be the host's and absent here; then only the root counts. */
static void walk_up(struct limits *l, const char *root, const char *group, const char *mount,
                    void (*read)(struct limits *, const char *, const char *, const char *)) {
    char path[PATH];
    snprintf(path, sizeof path, "%s", group);
    for (;;) {
        const size_t n = strlen(path);
        if (n && path[n - 1] == '/')
            path[n - 1] = 0;
        read(l, root, mount, path);
        char *slash = strrchr(path, '/');
        if (!slash)
            return;
        *slash = 0;
    }
}

static void read_v2(struct limits *l, const char *root, const char *mount, const char *path) {
    char line[LINE];
    double quota, period;
    if (first_line(open_under(root, "/sys/fs/cgroup%s%s/cpu.max", mount, path), line) &&
        sscanf(line, "%lf %lf", &quota, &period) == 2) /* "max 100000" is not limited */
        less_cpus(l, quota, period);
    if (!first_line(open_under(root, "/sys/fs/cgroup%s%s/memory.max", mount, path), line))
        return;
    char used[LINE] = "", files[LINE] = "";
    first_line(open_under(root, "/sys/fs/cgroup%s%s/memory.current", mount, path), used);
    value_of(open_under(root, "/sys/fs/cgroup%s%s/memory.stat", mount, path), "inactive_file ", files);
    less_memory(l, line, strtoull(used, NULL, 10), strtoull(files, NULL, 10));
    /* there the system takes pages back and makes the group wait */
    if (first_line(open_under(root, "/sys/fs/cgroup%s%s/memory.high", mount, path), line))
        less_memory(l, line, strtoull(used, NULL, 10), strtoull(files, NULL, 10));
}

static void read_v1(struct limits *l, const char *root, const char *mount, const char *path) {
    char quota[LINE], period[LINE], line[LINE];
    if (first_line(open_under(root, "/sys/fs/cgroup%s%s/cpu.cfs_quota_us", mount, path), quota) &&
        first_line(open_under(root, "/sys/fs/cgroup%s%s/cpu.cfs_period_us", mount, path), period))
        less_cpus(l, strtod(quota, NULL), strtod(period, NULL)); /* -1: not limited */
    if (first_line(open_under(root, "/sys/fs/cgroup%s%s/memory.limit_in_bytes", mount, path), line)) {
        char used[LINE] = "", files[LINE] = "";
        first_line(open_under(root, "/sys/fs/cgroup%s%s/memory.usage_in_bytes", mount, path), used);
        value_of(open_under(root, "/sys/fs/cgroup%s%s/memory.stat", mount, path),
                 "total_inactive_file ", files);
        less_memory(l, line, strtoull(used, NULL, 10), strtoull(files, NULL, 10));
    }
}

/* Whether the comma-separated list has the word. */
static bool has_word(const char *list, const char *word) {
    const size_t n = strlen(word);
    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
        if (strncmp(p, word, n) == 0 && (p[n] == ',' || p[n] == 0))
            return true;
    return false;
}

/* /proc/self/cgroup: "0::/path" for v2, "4:cpu,cpuacct:/path" for v1 (cgroups(7)). */
static struct limits cgroup_limits(const char *root) {
    struct limits l = {.left = UINT64_MAX};
    char line[LINE];
    FILE *f = open_under(root, "/proc/self/cgroup");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        controllers++;
        *path++ = 0;
        if (*controllers == 0) {
            walk_up(&l, root, path, "", read_v2);
            walk_up(&l, root, path, "/unified", read_v2);
        } else if (has_word(controllers, "cpu")) {
            walk_up(&l, root, path, "/cpu", read_v1);
            walk_up(&l, root, path, "/cpu,cpuacct", read_v1);
        } else if (has_word(controllers, "memory")) {
            walk_up(&l, root, path, "/memory", read_v1);
        }
    }
    if (f)
        fclose(f);
    return l;
}

/* --- cores --------------------------------------------------------------------------------- */

/* The lowest CPU of the list "0,64" or "0-1" that is in the set: it stands for its core. */
static uint32_t core_of(const char *root, uint32_t cpu, const cpu_set_t *set) {
    char line[LINE];
    const char *name = "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list";
    if (!first_line(open_under(root, name, cpu), line))
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
    const bool found = value_of(open_under(root, "/proc/meminfo"), key, value);
    return found ? strtoull(value, NULL, 10) << 10 : 0;
}

static void read_caches(struct lode_machine *m, const char *root) {
    for (int i = 0; i < 8; i++) {
        char level[LINE], size[LINE];
        const char *dir = "/sys/devices/system/cpu/cpu0/cache/index";
        if (!first_line(open_under(root, "%s%d/level", dir, i), level) ||
            !first_line(open_under(root, "%s%d/size", dir, i), size))
            return;
        if (level[0] == '2')
            m->cache_l2 = parse_size(size);
        if (level[0] == '3')
            m->cache_l3 = parse_size(size);
    }
}

/* What changes while a program runs. */
static void probe_memory(struct lode_machine *m, const char *root, const struct limits *limits) {
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
    if (!value_of(open_under(root, "/proc/cpuinfo"), "model name", name) &&
        !value_of(open_under(root, "/proc/device-tree/model"), "", name))
        snprintf(name, sizeof name, "unknown");
    snprintf(m->cpu, sizeof m->cpu, "%.*s", (int)sizeof m->cpu - 1, name);

    const struct limits limits = cgroup_limits(root);
    m->logical_cores = list_cpus(root, NULL, 0, &m->physical_cores);
    /* Rounded down: a thread more than the quota pays for is one that is stopped in every period. */
    if (limits.cpus > 0 && limits.cpus < (double)m->physical_cores)
        m->physical_cores = limits.cpus < 1 ? 1 : (uint32_t)limits.cpus;
    read_caches(m, root);
    probe_memory(m, root, &limits);
}

/* The sum over the page tables.  The counters of statm and status are kept by each CPU and added up now and
 * then: kernels before 6.17 tell them up to 32 pages a CPU wrong, for files' pages and others each. */
uint64_t lode_machine_resident(void) {
    char value[LINE];
    if (value_of(open_under("", "/proc/self/smaps_rollup"), "Rss", value))
        return strtoull(value, NULL, 10) << 10;
    unsigned long pages = 0, resident = 0;
    if (first_line(open_under("", "/proc/self/statm"), value) &&
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
        const struct limits limits = cgroup_limits("");
        probe_memory(m, "", &limits);
    }
    ask_system(m);
}

uint32_t lode_machine_default_threads(void) {
    struct lode_machine m;
    probe_once(&m);
    return m.physical_cores < 1 ? 1 : m.physical_cores;
}
