/* run.h - what the files of `lode run` share: run.c (flags, one answer), repl.c (the chat). */
#ifndef LODE_TOOLS_RUN_H
#define LODE_TOOLS_RUN_H

#include "answer.h"
#include "chat.h"
#include "load.h"
#include "sampling.h"

struct run_opts {
    struct load_opts load;
    struct sampling_opts sampling;
    struct constraint_opts constraint;
    const char *prompt, *file, *messages, *system, *system_file, *template, *template_vars;
    const char *think, *show_thinking, *tool_format;
    const char *url, *key, *tools;
    struct arg_strs stops;
    int64_t n_predict;
    bool raw, interactive, special, stats, verbose, yes;
};

/* All that lives while `lode run` runs. */
struct run {
    struct run_opts o;
    struct args args;
    struct lode_model *model;
    struct profile *profile;
    struct lode_session *session;
    struct lode_sampler *sampler;
    struct constraint constraint;
    struct chat chat;
    bool raw;           /* no template: text is continued */
    bool show_thinking; /* on standard output */
    bool dimmed;        /* while thinking is being printed */
    bool midline;       /* the last that was printed does not end a line */
    double bandwidth;   /* of this machine, bytes/s; 0 until it was measured */
    uint64_t seed;      /* where --seed gives none */
    struct toolbox *tools; /* owned; NULL: none */
    char *kept;         /* owned: the text of the last /set of a text (--samplers) */
};

/* Answers what the chat holds (raw: `text`), streams it, adds it to the chat. */
int run_answer(struct run *r, const char *text, enum answer_end *end, struct lode_error *err);
/* The same, and the calls of tools that it makes, until it makes none. */
int run_turn(struct run *r, const char *text, enum answer_end *end, struct lode_error *err);
/* Makes the sampler anew from the options; on an error the old one stays. */
int run_make_sampler(struct run *r, struct lode_error *err);
/* One or two lines about model and session. */
void run_describe(const struct run *r, FILE *f);

/* The chat, until it is left; the exit status. */
int repl(struct run *r);

#endif
