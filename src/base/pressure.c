#include "base/pressure.h"

#include "base/caches.h"
#include "base/cgroup.h"

#include <stdio.h>
#include <string.h>

enum { STALLED_US = 100000, QUIET_SECONDS = 10, FEW = 16 /* of what is used, files' */ };

/* ---- reading ---- */

/* Calls fn for each "name number" line; false: there is no such file. */
static bool each_count(const char *path, void (*fn)(void *out, const char *name, uint64_t n), void *out) {
    char line[256], name[64];
    unsigned long long n;
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "%63s %llu", name, &n) == 2)
            fn(out, name, n);
    if (f)
        fclose(f);
    return f != NULL;
}

static void add_event(void *out, const char *name, uint64_t n) {
    struct lode_pressure *p = out;
    if (strcmp(name, "high") == 0 || strcmp(name, "max") == 0)
        p->reached += n;
    else if (strcmp(name, "oom") == 0)
        p->failed += n;
}

static void add_files(void *out, const char *name, uint64_t n) {
    struct lode_pressure *p = out;
    if (strcmp(name, "active_file") == 0 || strcmp(name, "inactive_file") == 0)
        p->files += n;
}

static bool read_stalls(const char *path, struct lode_pressure *out) {
    char line[256];
    unsigned long long total;
    bool found = false;
    FILE *f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        const char *at = strncmp(line, "some ", 5) == 0 ? strstr(line, "total=") : NULL;
        found = at && sscanf(at, "total=%llu", &total) == 1;
    }
    if (f)
        fclose(f);
    if (found)
        out->stalled = total;
    return found;
}

static bool read_number(const char *path, uint64_t *out) {
    unsigned long long n;
    char line[LODE_LINE];
    const bool found = lode_first_line(fopen(path, "re"), line) && sscanf(line, "%llu", &n) == 1;
    if (found)
        *out = n;
    return found;
}

static const char *file_of(char path[2 * LODE_LINE], const char *root, const char *group, const char *name) {
    snprintf(path, 2 * LODE_LINE, "%s/sys/fs/cgroup%s/%s", root, group, name);
    return path;
}

bool lode_pressure_read(const char *root, struct lode_pressure *out) {
    char group[LODE_LINE], path[2 * LODE_LINE];
    *out = (struct lode_pressure){0};
    if (lode_cgroup_own(root, group)) {
        /* the group's own: in a container that is what binds */
        out->has_stalls = read_stalls(file_of(path, root, group, "memory.pressure"), out);
        if (read_number(file_of(path, root, group, "memory.current"), &out->used))
            each_count(file_of(path, root, group, "memory.stat"), add_files, out);
        for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
            *end = 0; /* the group, then those around it */
            out->has_events |= each_count(file_of(path, root, group, "memory.events"), add_event, out);
        }
    }
    if (!out->has_stalls) {
        snprintf(path, sizeof path, "%s/proc/pressure/memory", root);
        out->has_stalls = read_stalls(path, out);
    }
    return out->has_stalls || out->has_events;
}

/* ---- watching ---- */

static bool is_pressed(const struct lode_pressure *before, const struct lode_pressure *now) {
    if (before->has_stalls && now->has_stalls && now->stalled > before->stalled &&
        now->stalled - before->stalled >= STALLED_US)
        return true;
    if (!before->has_events || !now->has_events)
        return false;
    return now->failed > before->failed ||
           (now->reached > before->reached && (!now->has_stalls || now->files < now->used / FEW));
}

void lode_watch_look(struct lode_watch *w, const struct lode_pressure *now) {
    const bool pressed = w->seen && is_pressed(&w->last, now);
    w->seen = true;
    w->last = *now;
    w->quiet = pressed ? 0 : w->quiet + 1;
    if (pressed) {
        lode_caches_shrink((lode_caches_held() + 7) / 8, true);
    } else if (w->quiet == QUIET_SECONDS) {
        w->quiet = 0;
        lode_caches_grow();
    }
}
