/* program.c - what compiler and machine both ask of a program. */
#include "text/grammar/program.h"

bool g_arr_live(const struct g_arr *a, uint32_t i, uint32_t have, node_ok_fn *ok, void *user) {
    /* how many items must count by now, and how many can */
    uint32_t low = have, high = have;
    if (a->min > a->max)
        return false;
    for (;; i++) {
        if (i >= a->min && low <= a->most && high >= a->least)
            return true;
        if (i >= a->max)
            return false;
        const bool last = i >= a->n_prefix;
        const uint32_t at = last ? a->n_prefix : i;
        const bool plain = ok(user, a->items[2 * at]);
        const bool counts = a->contains && ok(user, a->items[2 * at + 1]);
        if (!plain && !counts)
            return false;
        if (last) { /* all further items are like this one: as many as are needed */
            const uint64_t need = a->least > high ? a->least - high : 0;
            const uint64_t more = a->min > i ? a->min - i : 0, take = need > more ? need : more;
            if (need && !counts)
                return false;
            return take <= (uint64_t)a->max - i && low + (plain ? 0 : take) <= a->most;
        }
        low += !plain;
        high += counts;
    }
}
