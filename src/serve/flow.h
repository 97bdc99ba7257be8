/* flow.h - an answer's text on its way out: stop texts found.
 *
 * Text comes in pieces of any size and leaves as soon as it can no longer be the beginning of a
 * stop text.
 */
#ifndef LODE_SERVE_FLOW_H
#define LODE_SERVE_FLOW_H

#include <stdbool.h>
#include <stddef.h>

/* Called with text that is settled; non-zero stops the flow (flow_push returns it). */
typedef int flow_put_fn(void *user, const char *text, size_t len);

struct flow {
    bool stopped;             /* a stop text was found; it and what follows is dropped */
    size_t found;             /* which */
    const char *const *stops; /* (n_stops), borrowed, none empty */
    size_t n_stops;
    flow_put_fn *put;
    void *user;
    char *held; /* owned */
    size_t n_held, cap;
};

void flow_init(struct flow *f, const char *const *stops, size_t n_stops, flow_put_fn *put,
               void *user);
void flow_deinit(struct flow *f);

/* 0, what put returned, or -1 without memory. */
int flow_push(struct flow *f, const char *text, size_t len);
/* The text is over: what was held back leaves. */
int flow_finish(struct flow *f);

#endif
