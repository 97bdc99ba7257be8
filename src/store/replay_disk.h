/* replay_disk.h - a disk as a replay has it: reads one after the other at a given speed, those that are
 * waited for before those that are guessed, while time passes.  The first bytes of what is guessed have been
 * sent for when nothing else is read (reader.h: a quarter of the queue), and come before all.
 *
 *     replay_disk_add(d, id, size, urgent);
 *     for (double s = 0.002; replay_disk_pass(d, &s, computing, &id);)
 *         ...                                     id has been read, and s seconds are left
 */
#ifndef LODE_STORE_REPLAY_DISK_H
#define LODE_STORE_REPLAY_DISK_H

#include <stdbool.h>
#include <stdint.h>

struct replay_read {
    uint32_t id;
    enum replay_haste { REPLAY_SENT, REPLAY_URGENT, REPLAY_GUESSED } haste; /* read in this order */
    double size, left;                                                      /* bytes */
};

struct replay_disk {
    struct replay_read *at; /* borrowed; in the order in which they are read: room for all at once */
    uint32_t n;
    double rate, rate_busy; /* bytes/s alone, and while cores compute; 0: all are read at once */
    double sent;            /* bytes of guesses in flight at once */
    double seconds;         /* that have passed */
};

#define REPLAY_NOTHING UINT32_MAX /* the id of what was called off, and is in flight */

void replay_disk_add(struct replay_disk *d, uint32_t id, uint64_t size, bool urgent);
/* Its place among those that are read; NULL: it is not. */
const struct replay_read *replay_disk_find(const struct replay_disk *d, uint32_t id);
/* Behind all others that are as urgent, unless it has been sent for. */
void replay_disk_move(struct replay_disk *d, uint32_t id, bool urgent);
/* False: all of it has been sent for, and will come.  True: *read bytes of it had been, or will be. */
bool replay_disk_cancel(struct replay_disk *d, uint32_t id, uint64_t *read);
/* Up to *seconds pass.  True: *id is read, and *seconds are left. */
bool replay_disk_pass(struct replay_disk *d, double *seconds, bool computing, uint32_t *id);

#endif
