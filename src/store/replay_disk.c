#include "store/replay_disk.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static void put(struct replay_disk *d, struct replay_read r) {
    uint32_t to = d->n++;
    for (; to && d->at[to - 1].haste > r.haste; to--)
        d->at[to] = d->at[to - 1];
    d->at[to] = r;
}

static struct replay_read take(struct replay_disk *d, uint32_t at) {
    const struct replay_read r = d->at[at];
    memmove(d->at + at, d->at + at + 1, (--d->n - at) * sizeof *d->at);
    return r;
}

/* Bytes of a guess that are in flight: none while there is something urgent. */
static double flying(const struct replay_disk *d, uint32_t at) {
    double sent = d->sent;
    for (uint32_t i = 0; i < at && sent > 0; i++)
        sent = d->at[i].haste == REPLAY_URGENT ? 0 : sent - d->at[i].left;
    return fmin(fmax(sent, 0), d->at[at].left);
}

/* What is in flight stays before what is urgent from now on. */
static void send_guesses(struct replay_disk *d) {
    for (uint32_t i = 0; i < d->n; i++)
        if (d->at[i].haste == REPLAY_GUESSED && flying(d, i) >= d->at[i].left)
            d->at[i].haste = REPLAY_SENT;
}

void replay_disk_add(struct replay_disk *d, uint32_t id, uint64_t size, bool urgent) {
    if (urgent)
        send_guesses(d);
    put(d, (struct replay_read){id, urgent ? REPLAY_URGENT : REPLAY_GUESSED, (double)size, (double)size});
}

const struct replay_read *replay_disk_find(const struct replay_disk *d, uint32_t id) {
    for (uint32_t i = 0; i < d->n; i++)
        if (d->at[i].id == id)
            return &d->at[i];
    return NULL;
}

void replay_disk_move(struct replay_disk *d, uint32_t id, bool urgent) {
    send_guesses(d);
    struct replay_read r = take(d, (uint32_t)(replay_disk_find(d, id) - d->at));
    if (r.haste != REPLAY_SENT)
        r.haste = urgent ? REPLAY_URGENT : REPLAY_GUESSED;
    put(d, r);
}

bool replay_disk_cancel(struct replay_disk *d, uint32_t id, uint64_t *read) {
    send_guesses(d);
    const uint32_t at = (uint32_t)(replay_disk_find(d, id) - d->at);
    if (d->at[at].haste == REPLAY_SENT)
        return false;
    const double coming = flying(d, at);
    struct replay_read r = take(d, at);
    *read = (uint64_t)(r.size - r.left + coming);
    struct replay_read *nothing = coming > 0 ? (struct replay_read *)replay_disk_find(d, REPLAY_NOTHING) : NULL;
    if (nothing) /* one for all of them */
        nothing->left += coming;
    else if (coming > 0)
        put(d, (struct replay_read){REPLAY_NOTHING, REPLAY_SENT, coming, coming});
    return true;
}

bool replay_disk_pass(struct replay_disk *d, double *seconds, bool computing, uint32_t *id) {
    const double rate = computing ? d->rate_busy : d->rate;
    const double needed = d->n == 0 ? *seconds : rate > 0 ? d->at[0].left / rate : 0;
    const bool done = d->n && needed <= *seconds;
    const double took = done ? needed : *seconds;
    d->seconds += took;
    *seconds -= took;
    if (done)
        *id = take(d, 0).id;
    else if (d->n)
        d->at[0].left -= took * rate;
    return done;
}
