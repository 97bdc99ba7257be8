/* grammar_walk.h - what the fuzz targets of the three front ends share: compile, then write.
 *
 * What compiles must be able to be written: from its state a mask is asked for, and bytes of the
 * input choose among what it allows; nothing may come to a dead end, and what is complete must be
 * accepted by the reader. */
#ifndef GRAMMAR_WALK_H
#define GRAMMAR_WALK_H

#include "lode/grammar.h"

#include <stdlib.h>
#include <string.h>

enum { WALK_VOCAB = 257, WALK_STEPS = 48 };

static inline struct lode_grammar_vocab *walk_vocab(void) {
    static struct lode_grammar_vocab *v;
    static char bytes[256][2];
    const char *text[WALK_VOCAB];
    size_t len[WALK_VOCAB];
    const int32_t ends[] = {256};
    for (int i = 0; i < 257; i++) {
        text[i] = bytes[i % 256];
        len[i] = i < 256;
        bytes[i % 256][0] = (char)(i % 256);
    }
    if (!v && lode_grammar_vocab_from_bytes(&v, text, len, WALK_VOCAB, ends, 1, NULL) < 0)
        abort();
    return v;
}

/* Half of the input is the source, half chooses; at most 2 KiB, so that a run is short. */
static inline void walk(enum lode_grammar_kind kind, const uint8_t *data, size_t size) {
    struct lode_grammar *g;
    struct lode_grammar_state *s;
    struct lode_error err;
    if (size > 2048)
        return;
    const size_t n = size > 64 ? size - 32 : size / 2 + 1;
    if (size == 0 || lode_grammar_compile(&g, kind, (const char *)data, n, &err) < 0)
        return;
    if (lode_grammar_state_create(&s, g, walk_vocab(), &err) == 0) {
        char text[WALK_STEPS];
        size_t len = 0;
        bool complete = false;
        for (size_t i = n; i < n + WALK_STEPS; i++) {
            uint64_t mask[(WALK_VOCAB + 63) / 64];
            int allowed[WALK_VOCAB], n_allowed = 0;
            if (lode_grammar_mask(s, mask, &err) < 0)
                break;
            for (int id = 0; id < WALK_VOCAB; id++)
                if (mask[id / 64] >> id % 64 & 1)
                    allowed[n_allowed++] = id;
            if (!n_allowed)
                abort();
            const int id = allowed[(i < size ? data[i] : i * 7) % (size_t)n_allowed];
            const int rc = lode_grammar_accept(s, id, &err);
            if (rc == LODE_ERR_LIMIT)
                break;
            if (rc < 0)
                abort();
            complete = id == 256;
            if (complete)
                break;
            text[len++] = (char)id;
        }
        bool yes;
        size_t at;
        if (complete && lode_grammar_check(g, text, len, &yes, &at, &err) == 0 && !yes)
            abort();
        lode_grammar_state_free(s);
    }
    lode_grammar_free(g);
}

#endif
