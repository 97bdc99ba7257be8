/* cgroup.h - the control groups that this process is in (cgroups(7)), versions 1 and 2. */
#ifndef LODE_BASE_CGROUP_H
#define LODE_BASE_CGROUP_H

#include "base/small_file.h"

#include <stdint.h>

/* The tightest of the process's groups and all above them. */
struct lode_cgroup_limits {
    double cpus;     /* CPUs' worth of time; 0: not limited */
    uint64_t memory; /* bytes; 0: not limited */
    uint64_t left;   /* bytes, of the group with the least; UINT64_MAX: not limited */
};
/* The files are those under `root` ("" but in tests). */
struct lode_cgroup_limits lode_cgroup_limits(const char *root);

/* The process's group of version 2, from the hierarchy's root: "/a/b", "" for the root itself; false: none. */
bool lode_cgroup_own(const char *root, char group[LODE_LINE]);

#endif
