/* calls.h - how a call of a tool is written, and what of a request's tools a guide must know.
 *
 * A syntax is the pieces around a call's name and arguments in one format (lode/toolcall.h).  Either
 * the arguments are one JSON object, or every parameter stands between tags of its own.
 *
 *     open pre NAME post ARGUMENTS end_call (between pre NAME post ARGUMENTS end_call)* close
 *     ARGUMENTS, tagged: (sep key_pre KEY key_post VALUE value_post)*
 */
#ifndef LODE_SERVE_CALLS_H
#define LODE_SERVE_CALLS_H

#include "serve/forms.h"

#include "lode/toolcall.h"

#include <jansson.h>
#include <stdatomic.h>

struct call_syntax {
    const char *format, *mark; /* the mark stands in the template; NULL: any */
    const char *open, *pre, *post, *end_call, *between, *close; /* between NULL: one call only; '#' in
                                                                   pre or post: the call's number */
    const char *trigger; /* how a call can be seen to begin within an answer; NULL: post of open+pre */
    bool tagged;
    const char *sep, *key_pre, *key_post, *value_post;
    const char *text_pre, *text_post; /* around a text, instead of value_post; NULL: texts are JSON */
    bool typed_keys;                  /* DSML: the key's tag says string="true" or "false" */
};

/* Of what a template speaks; "none" writes as Hermes does (prompt.h).  NULL: unknown. */
const struct call_syntax *call_syntax(const char *format, const char *template);

struct call_param {
    char *name;
    bool required, text; /* written as it is, not as JSON */
    struct form *form;   /* NULL: a text */
    char **choices;      /* (n_choices) of a text; 0: any */
    size_t n_choices;
};

struct call_tool {
    char *name;
    struct form *form;         /* of the arguments as one object; NULL where they are tagged */
    struct call_param *params; /* (n_params) where they are tagged */
    size_t n_params;
};

enum tool_choice { TOOLS_AUTO, TOOLS_NONE, TOOLS_REQUIRED };

struct calls { /* shared by a request's answers, which may outlive it */
    atomic_uint holders;
    const struct call_syntax *syntax;
    struct call_tool *tools; /* (n_tools) that may be called */
    size_t n_tools;
    enum tool_choice choice;
    bool several, strict; /* strict: the arguments are held to the schemas in AUTO too */
};

/* tools: OpenAI's list.  only: the one name that may be called; NULL: all.  Schemas that cannot be
 * enforced are refused for strict tools, and are objects of any form for others. */
int calls_create(struct calls **out, struct forms *forms, const struct call_syntax *syntax,
                 const json_t *tools, enum tool_choice choice, const char *only, bool several,
                 struct lode_error *err);
void calls_hold(struct calls *c);
void calls_put(struct calls *c);

#endif
