/* flow.h - an answer's text on its way out: thinking told from answer, stop texts found.
 *
 * Text comes in pieces of any size and leaves as soon as it can no longer be the beginning of
 * "<think>", "</think>" or a stop text.  The blanks around the thinking are left out.
 */
#ifndef LODE_TOOLS_FLOW_H
#define LODE_TOOLS_FLOW_H

#include <stdbool.h>
#include <stddef.h>

enum flow_state {
    FLOW_START,    /* before the first letter: "<think>" may come */
    FLOW_OPENED,   /* the blank after "<think>" */
    FLOW_THINKING, /* until "</think>" and the blank before it */
    FLOW_BETWEEN,  /* the blank lines after it */
    FLOW_ANSWER,
    FLOW_STOPPED, /* a stop text was found; it and what follows is dropped */
};

/* Called with text that is settled; non-zero stops the flow (flow_push returns it). */
typedef int flow_put_fn(void *user, bool thinking, const char *text, size_t len);

struct flow {
    enum flow_state state;
    const char *const *stops; /* (n_stops), borrowed, none empty */
    size_t n_stops;
    flow_put_fn *put;
    void *user;
    char *held; /* owned */
    size_t n_held, cap;
};

/* state: FLOW_START where a model may think, FLOW_OPENED where the prompt already opened it,
 * FLOW_ANSWER for plain text. */
void flow_init(struct flow *f, enum flow_state state, const char *const *stops, size_t n_stops,
               flow_put_fn *put, void *user);
void flow_deinit(struct flow *f);

/* 0, what put returned, or -1 without memory. */
int flow_push(struct flow *f, const char *text, size_t len);
/* The text is over: what was held back leaves. */
int flow_finish(struct flow *f);

#endif
