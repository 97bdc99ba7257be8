/* pressure.h - whether memory is short, as the kernel tells it.
 *
 * Stalls (kernel's accounting/psi.rst): how long programs of the control group, else of the machine, stood
 * still for want of memory.  Events of control groups (admin-guide/cgroup-v2.rst, memory.events): how
 * often the group, or one that it lies in, was about to pass its limits or found nothing to take back.
 * A group that reads files is at its limit all the time without harm, as their pages are taken back: so
 * where stalls are told, a reached limit counts only where few such pages are left.
 */
#ifndef LODE_BASE_PRESSURE_H
#define LODE_BASE_PRESSURE_H

#include <stdbool.h>
#include <stdint.h>

struct lode_pressure {
    bool has_stalls, has_events;
    uint64_t stalled;     /* microseconds so far in which some stood still */
    uint64_t reached;     /* so often memory.high or memory.max was reached */
    uint64_t failed;      /* so often nothing could be taken back */
    uint64_t used, files; /* bytes of the group; of these, pages of files */
};

/* The files are those under `root` ("" but in tests); false: the kernel tells neither. */
bool lode_pressure_read(const char *root, struct lode_pressure *out);

/* Looks once a second; zeros at first. */
struct lode_watch {
    bool seen;
    struct lode_pressure last;
    uint32_t quiet; /* seconds */
};
/* Has caches (caches.h) give back an eighth of what they hold after a second with pressure, and lets
 * them grow after ten without. */
void lode_watch_look(struct lode_watch *w, const struct lode_pressure *now);

#endif
