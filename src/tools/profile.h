/* profile.h - --profile: where the time of a run went, in all, by layers, and step by step.
 *
 *     profile_begin(&p, model, &opts, &err);
 *     profile_watch(p, &session_opts);            of each session whose steps are told apart
 *     ... load.h's flags are answered behind the work:
 *     rc = profile_finish(p, rc, &err);
 *
 * A step's own counts are the difference between two looks at the model's, so their sum is the whole, and
 * what is kept of them does not grow: the slowest few, and a line in a file each where one is named.
 */
#ifndef LODE_TOOLS_PROFILE_H
#define LODE_TOOLS_PROFILE_H

#include "load.h"

#include "lode/profile.h"

#include <stdio.h>

struct profile; /* private to profile.c */

/* *out is NULL, which is fine everywhere below, where o asks for nothing.  The model and o are borrowed. */
int profile_begin(struct profile **out, const struct lode_model *m, const struct load_opts *o,
                  struct lode_error *err);
/* The sessions' steps come from one thread at a time. */
void profile_watch(struct profile *p, struct lode_session_opts *so);
/* What happens between a call with `begin` and one without is left out. */
void profile_leave_out(struct profile *p, bool begin);
/* rc < 0: the work failed, and nothing is said.  Else writes what the flags ask for: the table on standard
 * error, the files, the list of hot experts.  Returns rc, or what went wrong here; frees p. */
int profile_finish(struct profile *p, int rc, struct lode_error *err);

/* ---- profile_print.c ---- */

struct profile_step {
    uint64_t number; /* from 1 on */
    double at;       /* seconds since profile_begin, at its end */
    uint32_t n_tokens, n_sequences, pos; /* pos: in its timeline, of the first token */
    double seconds, head;
    struct lode_profile_layer sum; /* of all layers */
    uint64_t cancelled;
    uint32_t worst; /* the layer that took longest, and how long: */
    double worst_seconds;
};

enum { PROFILE_SLOWEST = 8 };

struct profile_steps {
    uint64_t n_single; /* steps of one token for each sequence, as answers are made of, */
    double seconds;    /* and all their time */
    struct profile_step slowest[PROFILE_SLOWEST]; /* (n_slowest) of those, the slowest first */
    uint32_t n_slowest;
};

void profile_print_table(FILE *f, const struct lode_profile *p, const struct profile_steps *s);
void profile_print_json(FILE *f, const struct lode_profile *p, const struct profile_steps *s);
/* One line; p: the counts of this step alone. */
void profile_print_step(FILE *f, const struct profile_step *s, const struct lode_profile *p);

/* to += sign * by. */
void profile_add_layer(struct lode_profile_layer *to, const struct lode_profile_layer *by, int sign);

#endif
