/* workers.h - threads that do jobs, one each at a time: started as they are needed, up to a bound, ended when
 * they were idle for a while.
 *
 *     workers_create(&w, 32, run, user, &err);
 *     workers_submit(w, &job->link);        any thread; run(user, &job->link) on some thread
 *     workers_stop(w);                       waits for all that was submitted; more is refused
 *     workers_free(w);
 */
#ifndef LODE_SERVE_WORKERS_H
#define LODE_SERVE_WORKERS_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct workers;

struct worker_job { /* within what is to be done */
    struct worker_job *next;
};

int workers_create(struct workers **out, uint32_t most, void (*run)(void *user, struct worker_job *job),
                   void *user, struct lode_error *err);
/* False: no thread can be had, or workers_stop was called; the job is the caller's again. */
bool workers_submit(struct workers *w, struct worker_job *job);
void workers_stop(struct workers *w);
void workers_free(struct workers *w); /* stopped; NULL is fine */
void workers_count(struct workers *w, uint32_t *threads, uint32_t *busy);

#endif
