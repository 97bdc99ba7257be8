/* flow.c - see flow.h. */
#include "serve/flow.h"

#include <stdlib.h>
#include <string.h>

void flow_init(struct flow *f, const char *const *stops, size_t n_stops, flow_put_fn *put,
               void *user) {
    *f = (struct flow){.stops = stops, .n_stops = n_stops, .put = put, .user = user};
}

void flow_deinit(struct flow *f) {
    free(f->held);
    f->held = NULL;
}

/* How many bytes at the end of text might be the beginning of `word`. */
static size_t partial(const char *text, size_t len, const char *word, size_t n_word) {
    for (size_t n = n_word - 1 < len ? n_word - 1 : len; n > 0; n--)
        if (!memcmp(text + len - n, word, n))
            return n;
    return 0;
}

/* Emits the first n held bytes. */
static int emit(struct flow *f, size_t n) {
    const int rc = n ? f->put(f->user, f->held, n) : 0;
    f->n_held -= n;
    memmove(f->held, f->held + n, f->n_held);
    return rc;
}

static int settle(struct flow *f, bool last) {
    size_t cut = f->n_held, wait = 0;
    for (size_t i = 0; i < f->n_stops; i++) {
        const size_t n = strlen(f->stops[i]);
        const char *at = memmem(f->held, f->n_held, f->stops[i], n);
        if (at && (size_t)(at - f->held) < cut + !f->stopped) {
            cut = (size_t)(at - f->held);
            f->stopped = true;
            f->found = i;
        }
        const size_t p = last ? 0 : partial(f->held, f->n_held, f->stops[i], n);
        wait = p > wait ? p : wait;
    }
    const int rc = emit(f, f->stopped ? cut : f->n_held - wait);
    if (f->stopped)
        f->n_held = 0;
    return rc;
}

int flow_push(struct flow *f, const char *text, size_t len) {
    if (f->stopped || len == 0)
        return 0;
    if (f->n_held + len > f->cap) {
        const size_t cap = 2 * (f->n_held + len) + 64;
        char *held = realloc(f->held, cap);
        if (!held)
            return -1;
        f->held = held;
        f->cap = cap;
    }
    memcpy(f->held + f->n_held, text, len);
    f->n_held += len;
    return settle(f, false);
}

int flow_finish(struct flow *f) { return f->n_held ? settle(f, true) : 0; }
