/* constraint.h - an answer held to a form: the flags, and the answer's way through the grammar. */
#ifndef LODE_TOOLS_CONSTRAINT_H
#define LODE_TOOLS_CONSTRAINT_H

#include "args.h"

#include "lode/grammar.h"
#include "lode/model.h"

struct constraint_opts {
    const char *schema, *schema_file, *grammar, *grammar_file, *regex;
};

/* Rows of a verb's table, for a `struct constraint_opts constraint` within its options. */
#define CONSTRAINT_FLAGS(type)                                                                     \
    {"-j, --json-schema", ARG_STR, ARG_AT(type, constraint.schema), .meta = "JSON",                \
     .group = "Form", .help = "hold the answer to a JSON Schema ('{}': any JSON); docs/"           \
                              "structured-output.md"},                                             \
        {"-jf, --json-schema-file", ARG_STR, ARG_AT(type, constraint.schema_file), .meta = "FILE", \
         .help = "the schema from a file"},                                                        \
        {"--grammar", ARG_STR, ARG_AT(type, constraint.grammar), .meta = "GBNF",                   \
         .help = "hold the answer to a GBNF grammar"},                                             \
        {"--grammar-file", ARG_STR, ARG_AT(type, constraint.grammar_file), .meta = "FILE",         \
         .help = "the grammar from a file"},                                                       \
        {"--regex", ARG_STR, ARG_AT(type, constraint.regex), .meta = "REGEX",                      \
         .help = "hold the answer to a regular expression (ECMA-262), from end to end"}

/* Zeroed: no constraint. */
struct constraint {
    struct lode_grammar *grammar;
    struct lode_grammar_vocab *vocab;
    struct lode_grammar_state *state;
    uint64_t *mask;  /* (as many words as the model's vocabulary needs) */
    size_t n_words;
};

int constraint_create(struct constraint *c, const struct constraint_opts *o,
                      const struct lode_model *m, struct lode_error *err);
void constraint_free(struct constraint *c);

/* Before an answer. */
int constraint_begin(struct constraint *c, struct lode_error *err);
/* The mask of the next token.  think: the token that opens thinking, which may come too; or -1.
 * *over: nothing but the end may come. */
int constraint_mask(struct constraint *c, const struct lode_model *m, int32_t think, bool *over,
                    struct lode_error *err);
int constraint_accept(struct constraint *c, int32_t id, struct lode_error *err);

#endif
