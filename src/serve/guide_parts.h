/* guide_parts.h - what the guide's files share: its phases, and how it comes from one to the next
 * (guide_phases.c); guide.c has the masks, and the tokens that came. */
#ifndef LODE_SERVE_GUIDE_PARTS_H
#define LODE_SERVE_GUIDE_PARTS_H

#include "serve/guide.h"
#include "serve/picks.h"
#include "serve/tail.h"

enum phase {
    FREE, /* any text, until a trigger */
    PICK, /* one of the alternatives */
    FORM, /* the answer's form */
    JSON, /* a value, then one of the alternatives */
    TEXT, /* a value, up to its tag */
    OVER,
};

/* What follows a text that was picked. */
enum action { TO_TOOL, TO_KEY, TO_VALUE_END, TO_CALL_END, TO_END, TO_FREE, TO_THINKING, TO_FORM };

enum { MOST_BANNED = 64 };

struct guide {
    struct guide_opts o; /* tools is not kept */
    struct lode_toolcall *parser;
    struct lode_detok *detok;
    size_t n_words;
    uint64_t *mask; /* (n_words) */
    enum phase phase;
    bool begun;     /* the thinking is over, or there is none */
    bool in_string; /* of a call's arguments */
    bool escaped;
    struct picks picks; /* of PICK, and what may follow JSON */
    struct lode_grammar_state *state; /* of FORM and JSON */
    bool object;         /* JSON is over with the value's bracket */
    size_t tool, param, n_calls, n_written;
    const char *until;   /* TEXT */
    struct tail tail;    /* of FREE or TEXT */
    int32_t banned[MOST_BANNED];
    size_t n_banned;
};

/* What follows; what was to be picked before is forgotten. */
int guide_act(struct guide *g, enum action action, size_t arg, struct lode_error *err);
/* The answer begins: thinking is over, or there is none.  before: what stands before its first tag. */
int guide_begin_answer(struct guide *g, const char *before, struct lode_error *err);
int guide_begin_free(struct guide *g);
/* To pick: each tool's call up to its arguments, without `have`, which has come, and what is before that. */
int guide_add_heads(struct guide *g, const char *before, const char *have, struct lode_error *err);

#endif
