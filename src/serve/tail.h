/* tail.h - the last bytes of a text that comes in pieces, for finding where a tag ends. */
#ifndef LODE_SERVE_TAIL_H
#define LODE_SERVE_TAIL_H

#include <stddef.h>

enum { TAIL_BYTES = 256, TAIL_PIECE = 512 /* bytes of a piece that are looked at */ };

struct tail { /* zeroed: nothing has come */
    char last[TAIL_BYTES];
    size_t n;
};

/* Looks for a tag in what has come and what this piece adds.  1: it ends here; 0: not yet; -1: it
 * ended within the piece. */
int tail_find(const struct tail *t, const char *piece, size_t len, const char *tag);
void tail_keep(struct tail *t, const char *piece, size_t len);

#endif
