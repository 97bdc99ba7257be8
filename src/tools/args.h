/* args.h - command-line flags as one table a verb.
 *
 * A verb describes its flags in a table; from it come the parser, the environment variables, the
 * checks of ranges, `--help` and `--help-debug`.  Values land in the verb's own struct of options.
 *
 *     struct opts { const char *model; int64_t ctx; bool json; };
 *     static const struct arg_flag flags[] = {
 *         ARG_MODEL(struct opts, model),
 *         { "-c, --ctx-size", ARG_INT, ARG_AT(struct opts, ctx), .meta = "N", .def = "0",
 *           .max = 1 << 24, .shown = "the model's", .help = "longest timeline in tokens" },
 *         { "--json", ARG_BOOL, ARG_AT(struct opts, json), .help = "print JSON" },
 *     };
 *     static const struct arg_spec spec = { .verb = "inspect", .usage = "MODEL [flags]",
 *         .about = "...", .examples = "...", .flags = flags, .n_flags = ARG_COUNT(flags) };
 *
 *     int verb_inspect(int argc, char **argv)
 *     {
 *         struct opts o;
 *         struct args a;
 *         int status = args_main(&a, &spec, &o, argc, argv);   prints help, or what is wrong
 *         if (status >= 0)
 *             return status;
 *
 * Precedence: flag > environment (LODE_CTX_SIZE for --ctx-size) > what the model's file says
 * (args_model_defaults) > `.def`.  `--flag value`, `--flag=value` and `--no-flag` for booleans all
 * work; underscores count as dashes.  Nothing is allocated: values point into argv, the environment
 * and the table.
 */
#ifndef LODE_TOOLS_ARGS_H
#define LODE_TOOLS_ARGS_H

#include "lode/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum arg_type {
    ARG_BOOL,    /* bool */
    ARG_INT,     /* int64_t in [min, max]; "32k" is 32768 */
    ARG_FLOAT,   /* double in [min, max] */
    ARG_SIZE,    /* uint64_t, bytes: "24G", "1.5M", "4096" */
    ARG_SHARE,   /* struct arg_share: a size as above, or a part of something: "75%" */
    ARG_SHARES,  /* struct arg_shares: the same, comma-separated; each use appends */
    ARG_STR,     /* const char * */
    ARG_CHOICE,  /* const char *, one of .choices (the pointer is the table's) */
    ARG_STRS,    /* struct arg_strs; each use of the flag appends one */
    ARG_INTS,    /* struct arg_ints: "1,2", "a-b", "a-b+step", "a-b*mult"; each use appends */
    ARG_CHOICES, /* struct arg_strs: comma-separated .choices; each use appends */
    ARG_FOREIGN, /* another program's flag with a value: accepted and explained, nothing stored */
    ARG_FOREIGN_BOOL, /* the same without a value */
};

enum {
    ARG_MAX_FLAGS = 112,
    ARG_MAX_LIST = 64,
};

struct arg_strs {
    const char *v[ARG_MAX_LIST];
    size_t n;
};
struct arg_ints {
    int64_t v[ARG_MAX_LIST];
    size_t n;
};
struct arg_share {
    uint64_t bytes;
    double share; /* of a whole, in (0, 1]; 0: bytes were given */
    bool given;
};
struct arg_shares {
    struct arg_share v[ARG_MAX_LIST];
    size_t n;
};
/* The bytes that a share of a whole is. */
uint64_t arg_share_of(const struct arg_share *s, uint64_t whole);

struct arg_flag {
    const char *names; /* "-c, --ctx-size, --ctx": the first two are shown, all are accepted */
    enum arg_type type;
    size_t offset;     /* of the value in the verb's options */
    const char *meta;  /* the value's name in the help: "N", "FILE" */
    const char *def;   /* built-in default, as it would be typed; NULL: 0, false, NULL, empty */
    const char *shown; /* the default in words, where .def does not say it */
    const char *help;
    const char *group; /* heading in the help; NULL: the one before */
    const char *key;   /* of lode_model_sampling_default; NULL: models do not set this */
    double min, max;   /* ARG_INT, ARG_INTS, ARG_FLOAT; both 0: any */
    const char *const *choices; /* NULL-terminated */
    const char *const *(*choices_of)(void); /* the same, where another has the list */
    int pos;           /* 1, 2, ...: also the first, second, ... argument without a flag */
    bool debug;        /* a diagnostic switch: shown by --help-debug only */
};
/* The list of an ARG_CHOICE or ARG_CHOICES; NULL: it is neither. */
const char *const *args_choices(const struct arg_flag *f);

struct arg_spec {
    const char *verb;
    const char *usage;    /* one line or several, without "lode verb" */
    const char *brief;    /* one line */
    const char *about;    /* what it does, in paragraphs of at most 90 columns */
    const char *examples; /* lines */
    const struct arg_flag *flags;
    size_t n_flags;
};

enum arg_origin { ARG_FROM_DEFAULT, ARG_FROM_MODEL, ARG_FROM_ENV, ARG_FROM_FLAG };

struct args { /* where each value came from */
    const struct arg_spec *spec;
    void *opts;
    enum arg_origin origin[ARG_MAX_FLAGS];
};

#define ARG_AT(type, field) .offset = offsetof(type, field)
#define ARG_COUNT(a) (sizeof(a) / sizeof(a)[0])

/* The model as the first argument or -m, in every verb that has one. */
#define ARG_MODEL(type_, field_)                                                                   \
    { "-m, --model", ARG_STR, ARG_AT(type_, field_), .meta = "FILE", .pos = 1, .group = "Model",   \
      .help = "the model (also the first argument)" }

/* The KV cache formats that -ctk and -ctv take. */
extern const char *const arg_kv_types[];

enum args_result { ARGS_OK, ARGS_HELP, ARGS_HELP_DEBUG, ARGS_BAD };

/* Pure: argv[0] is the verb, env a getenv (NULL: no environment).  On ARGS_BAD err says which flag
 * and what it takes.  *opts is filled from the defaults, the environment and argv. */
enum args_result args_parse(struct args *a, const struct arg_spec *spec, void *opts, int argc,
                            char *const *argv, const char *(*env)(const char *name),
                            struct lode_error *err);

/* args_parse for a verb: prints help to standard output or the complaint to standard error.
 * Returns the exit status to leave with, or -1 to go on. */
int args_main(struct args *a, const struct arg_spec *spec, void *opts, int argc, char **argv);

/* Fills values that neither flag nor environment gave from the model: get(user, key, &value) for
 * every flag with a key. */
void args_model_defaults(struct args *a, bool (*get)(const void *user, const char *key, double *v),
                         const void *user);

/* Where the value at this offset came from. */
enum arg_origin args_origin(const struct args *a, size_t offset);

void args_help(FILE *f, const struct arg_spec *spec);
void args_help_debug(FILE *f, const struct arg_spec *spec);

/* Prints `message` and where to read more to standard error; returns the exit status 2. */
int args_usage_error(const struct arg_spec *spec, const char *message, ...)
    __attribute__((format(printf, 2, 3)));

/* Sets one value from text, as if it had been typed after the flag (the chat's /set). */
int args_set(struct args *a, const struct arg_flag *flag, const char *text, struct lode_error *err);
/* The flag with this name, with or without dashes ("top_k", "--top-k"); NULL if none. */
const struct arg_flag *args_find(const struct arg_spec *spec, const char *name);
/* The value as text, as it could be typed. */
void args_show(const struct args *a, const struct arg_flag *flag, char *out, size_t cap);

/* The nearest of the NULL-terminated names within a third of its length, or NULL. */
const char *args_nearest(const char *word, const char *const *names);

#endif
