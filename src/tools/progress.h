/* progress.h - bars on standard error, on a terminal only.
 *
 * Nothing shows during the first moments, so that short work stays silent, and the line is wiped
 * when the work is over.
 *
 *     struct progress p;
 *     progress_begin(&p, "reading", "B", total);
 *     progress_update(&p, done);
 *     progress_end(&p);
 */
#ifndef LODE_TOOLS_PROGRESS_H
#define LODE_TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what, *unit; /* unit: "B" for bytes, "tokens", ... */
    uint64_t total;
    double start, last;
    bool shown;
};

void progress_begin(struct progress *p, const char *what, const char *unit, uint64_t total);
void progress_update(struct progress *p, uint64_t done);
void progress_end(struct progress *p);

/* Seconds of a clock that only goes forward. */
double clock_now(void);

/* "15.2 MB", "1.4 GB": powers of 1000. */
const char *format_bytes(double bytes, char out[32]);
/* "5 s", "3 min 20 s" */
const char *format_seconds(double seconds, char out[32]);

#endif
