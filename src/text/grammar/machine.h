/* machine.h - a compiled constraint at work: which bytes may follow.
 *
 * A thread is a frame: where it stands in its string, number, key, object, array or rule, and the
 * frame below, to which it returns.  Frames below never change; equal frames are one (a pool with a
 * hash), so that threads that have come to the same place are found by comparing a few words.  The
 * machine follows all threads that fit what was read: ambiguity costs threads, not correctness.
 *
 * Every thread can be completed: what leads nowhere is dropped at its first byte.
 */
#ifndef LODE_GRAMMAR_MACHINE_H
#define LODE_GRAMMAR_MACHINE_H

#include "text/grammar/pool.h"
#include "text/grammar/program.h"

enum {
    MACHINE_MAX_DEPTH = 4096, /* open brackets, or calls of rules */
    MACHINE_MAX_THREADS = 2000,
};

enum frame_kind {
    F_END,         /* the text is complete */
    F_UNKNOWN,     /* below what is being looked at alone (masks.c) */
    F_VALUE,       /* before a value of node id; spaces so far */
    F_LITERAL,     /* of null, true, false (id), q bytes are read */
    F_STRING,      /* string id, state q, within a character lex, count characters */
    F_NUMBER,      /* node id, state q */
    F_NUMBER_FREE, /* node id, in any spelling; q: which part of it */
    F_KEY,         /* object sub of node id, state q, lex; count and req: a hash of the key */
    F_OBJECT,      /* object sub of node id; count members, req required ones, keys: a list */
    F_ARRAY,       /* array sub of node id; count items, req that count */
    F_TEXT,        /* the text's automaton at q, lex */
    F_RULE,        /* state q of the rules, which takes a character; lex */
    F_RETURN,      /* goes on at state q of the rules */
};

enum { AT_FIRST, AT_NEXT, AT_COLON, AT_KEY }; /* phases of F_OBJECT and F_ARRAY */

struct frame {
    uint8_t kind, phase;
    uint16_t space; /* blanks just read */
    uint32_t id, sub;
    uint32_t q, lex;
    uint32_t count, req;
    uint32_t keys;   /* the first cell of a list; 0: none */
    uint32_t parent; /* in the pool */
    uint32_t depth;
};

struct cell {     /* of a list of the keys that were seen */
    uint64_t key; /* a name's index, or a hash of other keys with the top bit set */
    uint32_t next, pad;
};

typedef GVEC(struct frame) frame_list;

struct machine {
    const struct lode_grammar *g;
    bool free_form;         /* any blanks and spellings of numbers: reading, not writing */
    struct pool frames;     /* item 0: F_END, item 1: F_UNKNOWN */
    struct pool cells;      /* item 0 is no cell */
    frame_list now;         /* the threads */
    struct lode_buf number; /* free_form: the number being read */
    struct lode_buf digits; /* as much room, for number_good */
    uint64_t serial, number_at;
    GVEC(uint64_t) visited;
    int failed; /* LODE_ERR_NOMEM or _LIMIT: the threads are not all there */
};

int machine_init(struct machine *m, const struct lode_grammar *g, bool free_form);
void machine_free(struct machine *m);
int machine_copy(struct machine *to, const struct machine *from); /* to: zeroed */

/* Where the threads of from[0, n) are after one more byte, appended to out. */
void machine_step(struct machine *m, const struct frame *from, size_t n, uint8_t byte,
                  frame_list *out);
bool machine_complete(const struct machine *m, const struct frame *threads, size_t n);

static inline const struct frame *machine_frame(const struct machine *m, uint32_t i) {
    return (const struct frame *)(const void *)m->frames.v + i;
}
/* Whether a key that is not required still leaves room in the object for those that are. */
bool machine_key_slack(const struct machine *m, const struct frame *object);

#endif
