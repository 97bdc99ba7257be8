/* progress.c - see progress.h. */
#include "progress.h"

#include "out.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

double clock_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *format_bytes(double bytes, char out[32]) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    size_t u = 0;
    for (; bytes >= 999.5 && u + 1 < sizeof units / sizeof *units; u++)
        bytes /= 1000;
    snprintf(out, 32, "%.*f %s",
             u == 0 || bytes >= 99.95 ? 0
             : bytes >= 9.995         ? 1
                                      : 2,
             bytes, units[u]);
    return out;
}

const char *format_seconds(double seconds, char out[32]) {
    const long s = (long)(seconds + 0.5);
    if (s < 60)
        snprintf(out, 32, "%ld s", s);
    else if (s < 3600)
        snprintf(out, 32, "%ld min %02ld s", s / 60, s % 60);
    else
        snprintf(out, 32, "%ld h %02ld min", s / 3600, s / 60 % 60);
    return out;
}

void progress_begin(struct progress *p, const char *what, const char *unit, uint64_t total) {
    *p = (struct progress){.what = what, .unit = unit, .total = total, .start = clock_now()};
}

void progress_update(struct progress *p, uint64_t done) {
    enum { WIDTH = 24 };
    const double now = clock_now(), spent = now - p->start;
    if (!out_is_terminal(stderr) || spent < 0.3 || now - p->last < 0.1 || !p->total)
        return;
    p->last = now;
    p->shown = true;
    const double share = done >= p->total ? 1 : (double)done / (double)p->total;
    const double rate = (double)done / spent;
    char bar[WIDTH + 1], speed[48], amount[32], left[32];
    memset(bar, ' ', WIDTH);
    memset(bar, '=', (size_t)(share * WIDTH));
    bar[WIDTH] = 0;
    if (!strcmp(p->unit, "B"))
        snprintf(speed, sizeof speed, "%s/s", format_bytes(rate, amount));
    else
        snprintf(speed, sizeof speed, rate < 10 ? "%.2f %s/s" : "%.0f %s/s", rate, p->unit);
    fprintf(stderr, "\r%s [%s] %3.0f %%  %s  %s left\033[K", p->what, bar, 100 * share, speed,
            rate > 0 ? format_seconds((double)p->total * (1 - share) / rate, left) : "?");
    fflush(stderr);
}

void progress_end(struct progress *p) {
    if (p->shown)
        fprintf(stderr, "\r\033[K");
    p->shown = false;
}
