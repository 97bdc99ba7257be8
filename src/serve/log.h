/* log.h - the server's log: a line for each event, as text or as a JSON object.
 *
 * Levels: 0 errors, 1 warnings, 2 what is done (a line for each request), 3 details.  A line is
 * written whole, so that lines of several threads do not mix.  What clients said and what they were
 * told is never logged, but where that is asked for (log_prompts).
 *
 *     log_event(log, LOG_INFO, "request", json_pack("{s:s, s:i}", "id", x->id, "status", 200));
 */
#ifndef LODE_SERVE_LOG_H
#define LODE_SERVE_LOG_H

#include "lode/error.h"

#include <jansson.h>
#include <stdbool.h>

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DETAIL };

struct log;

struct log_opts {
    const char *file; /* appended to; NULL: standard error */
    int level;        /* what is above it is left out */
    bool json;
};

int log_open(struct log **out, const struct log_opts *opts, struct lode_error *err);
void log_close(struct log *l);
bool log_wants(const struct log *l, enum log_level level);
/* Opens the file again, where it was moved away (logrotate); on an error it goes on as it was. */
void log_reopen(struct log *l);
/* fields: an object, taken; NULL: none.  Strings, numbers and booleans. */
void log_event(struct log *l, enum log_level level, const char *event, json_t *fields);

#endif
