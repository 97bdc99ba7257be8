#include "base/cgroup.h"

#include <stdlib.h>
#include <string.h>

enum { PATH = 1024 };

/* A limit as its file has it, and of the group the bytes in use and those of them that hold files'
 * pages, which the kernel takes back before it kills. */
static void less_memory(struct lode_cgroup_limits *l, const char *line, uint64_t used, uint64_t files) {
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

static void less_cpus(struct lode_cgroup_limits *l, double quota, double period) {
    if (quota > 0 && period > 0 && (l->cpus <= 0 || quota / period < l->cpus))
        l->cpus = quota / period;
}

/* A group is limited by itself and by all above it.  In a container the path in
 * /proc/self/cgroup may be the host's and absent here; then only the root counts. */
static void walk_up(struct lode_cgroup_limits *l, const char *root, const char *group, const char *mount,
                    void (*read)(struct lode_cgroup_limits *, const char *, const char *, const char *)) {
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

static void read_v2(struct lode_cgroup_limits *l, const char *root, const char *mount, const char *path) {
    char line[LODE_LINE];
    double quota, period;
    if (lode_first_line(lode_open_under(root, "/sys/fs/cgroup%s%s/cpu.max", mount, path), line) &&
        sscanf(line, "%lf %lf", &quota, &period) == 2) /* "max 100000" is not limited */
        less_cpus(l, quota, period);
    if (!lode_first_line(lode_open_under(root, "/sys/fs/cgroup%s%s/memory.max", mount, path), line))
        return;
    char used[LODE_LINE] = "", files[LODE_LINE] = "";
    lode_first_line(lode_open_under(root, "/sys/fs/cgroup%s%s/memory.current", mount, path), used);
    lode_value_of(lode_open_under(root, "/sys/fs/cgroup%s%s/memory.stat", mount, path), "inactive_file ", files);
    less_memory(l, line, strtoull(used, NULL, 10), strtoull(files, NULL, 10));
    /* there the system takes pages back and makes the group wait */
    if (lode_first_line(lode_open_under(root, "/sys/fs/cgroup%s%s/memory.high", mount, path), line))
        less_memory(l, line, strtoull(used, NULL, 10), strtoull(files, NULL, 10));
}

static void read_v1(struct lode_cgroup_limits *l, const char *root, const char *mount, const char *path) {
    char quota[LODE_LINE], period[LODE_LINE], line[LODE_LINE];
    if (lode_first_line(lode_open_under(root, "/sys/fs/cgroup%s%s/cpu.cfs_quota_us", mount, path), quota) &&
        lode_first_line(lode_open_under(root, "/sys/fs/cgroup%s%s/cpu.cfs_period_us", mount, path), period))
        less_cpus(l, strtod(quota, NULL), strtod(period, NULL)); /* -1: not limited */
    if (lode_first_line(lode_open_under(root, "/sys/fs/cgroup%s%s/memory.limit_in_bytes", mount, path), line)) {
        char used[LODE_LINE] = "", files[LODE_LINE] = "";
        lode_first_line(lode_open_under(root, "/sys/fs/cgroup%s%s/memory.usage_in_bytes", mount, path), used);
        lode_value_of(lode_open_under(root, "/sys/fs/cgroup%s%s/memory.stat", mount, path),
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

/* Calls fn for each line of /proc/self/cgroup: "0::/path" of version 2, "4:cpu,cpuacct:/path" of version 1
 * (cgroups(7)). */
static void each_group(const char *root, void (*fn)(void *user, const char *root, const char *controllers, const char *path),
                       void *user) {
    char line[LODE_LINE];
    FILE *f = lode_open_under(root, "/proc/self/cgroup");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path = 0;
        fn(user, root, controllers + 1, path + 1);
    }
    if (f)
        fclose(f);
}

static void add_limits(void *user, const char *root, const char *controllers, const char *path) {
    struct lode_cgroup_limits *l = user;
    if (*controllers == 0) {
        walk_up(l, root, path, "", read_v2);
        walk_up(l, root, path, "/unified", read_v2);
    } else if (has_word(controllers, "cpu")) {
        walk_up(l, root, path, "/cpu", read_v1);
        walk_up(l, root, path, "/cpu,cpuacct", read_v1);
    } else if (has_word(controllers, "memory")) {
        walk_up(l, root, path, "/memory", read_v1);
    }
}

struct lode_cgroup_limits lode_cgroup_limits(const char *root) {
    struct lode_cgroup_limits l = {.left = UINT64_MAX};
    each_group(root, add_limits, &l);
    return l;
}

struct own {
    char *group;
    bool found;
};
static void take_own(void *user, const char *root, const char *controllers, const char *path) {
    struct own *own = user;
    (void)root;
    if (*controllers || own->found)
        return;
    own->found = true;
    snprintf(own->group, LODE_LINE, "%s", strcmp(path, "/") == 0 ? "" : path);
}

bool lode_cgroup_own(const char *root, char group[LODE_LINE]) {
    struct own own = {.group = group};
    each_group(root, take_own, &own);
    return own.found;
}
