/* flow.c - see flow.h. */
#include "flow.h"

#include <stdlib.h>
#include <string.h>

static const char open_tag[] = "<think>", close_tag[] = "</think>";

void flow_init(struct flow *f, enum flow_state state, const char *const *stops, size_t n_stops,
               flow_put_fn *put, void *user) {
    *f =
        (struct flow){.state = state, .stops = stops, .n_stops = n_stops, .put = put, .user = user};
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

static size_t count_space(const char *text, size_t len) {
    size_t n = 0;
    while (n < len && strchr(" \t\r\n", text[n]) && text[n])
        n++;
    return n;
}

/* Emits the first n held bytes and drops `drop` more. */
static int emit(struct flow *f, bool thinking, size_t n, size_t drop) {
    const int rc = n ? f->put(f->user, thinking, f->held, n) : 0;
    f->n_held -= n + drop;
    memmove(f->held, f->held + n + drop, f->n_held);
    return rc;
}

/* Each step returns whether the next state should look at what is held. */
static bool step_start(struct flow *f, bool last) {
    const size_t space = count_space(f->held, f->n_held);
    const char *text = f->held + space;
    const size_t n = f->n_held - space, n_tag = sizeof open_tag - 1;
    if (n >= n_tag && !memcmp(text, open_tag, n_tag)) {
        emit(f, true, 0, space + n_tag);
        f->state = FLOW_OPENED;
        return true;
    }
    if (!last && (n == 0 || (n < n_tag && !memcmp(text, open_tag, n))))
        return false; /* still undecided */
    f->state = FLOW_ANSWER;
    return true;
}

/* Skips blanks; true once something else is there. */
static bool step_blank(struct flow *f, enum flow_state next) {
    emit(f, false, 0, count_space(f->held, f->n_held));
    if (f->n_held)
        f->state = next;
    return f->n_held;
}

static bool step_thinking(struct flow *f, bool last, int *rc) {
    const size_t n_tag = sizeof close_tag - 1;
    const char *end = memmem(f->held, f->n_held, close_tag, n_tag);
    const size_t settled = end    ? (size_t)(end - f->held)
                           : last ? f->n_held
                                  : f->n_held - partial(f->held, f->n_held, close_tag, n_tag);
    size_t n = settled;
    while (n && strchr(" \t\r\n", f->held[n - 1]) && f->held[n - 1])
        n--;
    *rc = emit(f, true, n, end ? settled - n + n_tag : 0);
    if (end)
        f->state = FLOW_BETWEEN;
    return end;
}

static void step_answer(struct flow *f, bool last, int *rc) {
    size_t cut = f->n_held, wait = 0;
    bool stopped = false;
    for (size_t i = 0; i < f->n_stops; i++) {
        const size_t n = strlen(f->stops[i]);
        const char *at = memmem(f->held, f->n_held, f->stops[i], n);
        if (at && (size_t)(at - f->held) < cut + !stopped) {
            cut = (size_t)(at - f->held);
            stopped = true;
        }
        const size_t p = last ? 0 : partial(f->held, f->n_held, f->stops[i], n);
        wait = p > wait ? p : wait;
    }
    *rc = stopped ? emit(f, false, cut, f->n_held - cut) : emit(f, false, f->n_held - wait, 0);
    if (stopped)
        f->state = FLOW_STOPPED;
}

static int settle(struct flow *f, bool last) {
    int rc = 0;
    if (f->state == FLOW_START && !step_start(f, last))
        return 0;
    if (f->state == FLOW_OPENED && !step_blank(f, FLOW_THINKING))
        return 0;
    if (f->state == FLOW_THINKING && !step_thinking(f, last, &rc))
        return rc;
    if (rc == 0 && f->state == FLOW_BETWEEN && !step_blank(f, FLOW_ANSWER))
        return 0;
    if (rc == 0 && f->state == FLOW_ANSWER)
        step_answer(f, last, &rc);
    return rc;
}

int flow_push(struct flow *f, const char *text, size_t len) {
    if (f->state == FLOW_STOPPED || len == 0)
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

int flow_finish(struct flow *f) {
    return f->n_held ? settle(f, true) : 0;
}
