/* toolcall.h - what a model wrote, told apart while it is being written: thinking, answer, calls of
 * tools.
 *
 * Models are trained to write calls in different ways; each way is a format with a name, chosen by
 * what the chat template itself writes for a call (lode_toolcall_detect).
 *
 *     struct lode_toolcall_style style;
 *     lode_toolcall_detect(&style, template, &err);
 *     struct lode_toolcall *p;
 *     lode_toolcall_create(&p, &(struct lode_toolcall_opts){.style = style, .put = put}, &err);
 *     lode_toolcall_push(p, text, len, &err);      as text comes, in pieces of any size
 *     lode_toolcall_finish(p, &err);
 *     lode_toolcall_free(p);
 *
 * Nothing is lost: the texts of all events but BEGIN and ARGUMENTS, one after the other, are the
 * text that was pushed, to the byte.  Cutting it differently gives the same events, but for where
 * CONTENT, REASONING and ARGUMENTS are cut.  Text is held back only while it may still be part of a
 * tag, of the blanks around one, or of a call.  Time is linear in the text; a parser belongs to one
 * thread at a time.
 */
#ifndef LODE_TOOLCALL_H
#define LODE_TOOLCALL_H

#include "lode/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct lode_template; /* lode/chat.h */
struct lode_toolcall;

enum lode_toolcall_kind {
    LODE_TOOLCALL_CONTENT,   /* text of the answer */
    LODE_TOOLCALL_REASONING, /* text of the thinking */
    LODE_TOOLCALL_MARKUP,    /* tags, and the blanks around them: what is none of these */
    LODE_TOOLCALL_BEGIN,     /* a call begins: index, id, name */
    LODE_TOOLCALL_ARGUMENTS, /* text: the next piece of its arguments; together one JSON object */
    LODE_TOOLCALL_END,       /* the call is complete; text: as the model wrote it */
    /* Text that set out to be a call and is none; reason says why.  Where index is not
     * LODE_TOOLCALL_NONE, that call had begun, and must be forgotten. */
    LODE_TOOLCALL_MALFORMED,
};

enum { LODE_TOOLCALL_NONE = -1 };

/* reason of a malformed call, what it means */
#define LODE_TOOLCALL_REASON_LIST(X)                                                               \
    X(unclosed, "the text ended within the call")                                                  \
    X(bad_name, "the tool's name is missing, too long, or holds blanks")                           \
    X(bad_json, "the call or its arguments are not JSON")                                          \
    X(bad_arguments, "the arguments are no JSON object")                                           \
    X(bad_syntax, "something stands where the format has another tag")                             \
    X(no_call, "the tags hold no call")                                                            \
    X(too_deep, "the arguments are nested too deeply")

struct lode_toolcall_event {
    enum lode_toolcall_kind kind;
    const char *text; /* (len), not NUL-terminated; borrowed until put returns */
    size_t len;
    int64_t index;      /* of the call, from 0; BEGIN, ARGUMENTS, END, MALFORMED */
    const char *id;     /* BEGIN, END: the model's, or 9 letters and digits of ours */
    const char *name;   /* BEGIN, END */
    const char *reason; /* MALFORMED: a name of the list above */
};

/* A result other than 0 stops the parser; lode_toolcall_push returns it if it is negative, else
 * LODE_ERR_CANCELLED. */
typedef int lode_toolcall_fn(void *user, const struct lode_toolcall_event *e);

struct lode_toolcall_style {
    const char *format; /* lode_toolcall_format; NULL: "none" */
    const char *think;  /* the tag that opens thinking, "<think>"; NULL: there is no thinking */
};

/* The name of the i-th format, "none" first, and what it is, in a line; NULL behind the last. */
LODE_API const char *lode_toolcall_format(size_t i, const char **about);
/* What a template speaks.  The format is the first whose parser reads back a call of a made-up tool
 * that the template was given to write; where it writes none, or refuses, the first whose tags
 * stand in the template.  The thinking is that whose opening tag stands in it; "<think>" where none
 * does.  t NULL: "none" and "<think>". */
LODE_API int lode_toolcall_detect(struct lode_toolcall_style *out, const struct lode_template *t,
                                  struct lode_error *err);
/* Has the prompt's end already opened the thinking? */
LODE_API bool lode_toolcall_thinks(const struct lode_toolcall_style *s, const char *prompt,
                                   size_t len);

struct lode_toolcall_opts {
    struct lode_toolcall_style style;
    bool thinking;     /* the prompt has opened it */
    const char *tools; /* (tools_len) JSON: the tools as the template got them; NULL: unknown */
    size_t tools_len;
    uint64_t seed; /* of the ids that models leave out */
    lode_toolcall_fn *put;
    void *user;
};

LODE_API int lode_toolcall_create(struct lode_toolcall **out, const struct lode_toolcall_opts *opts,
                                  struct lode_error *err);
LODE_API void lode_toolcall_free(struct lode_toolcall *p);
/* After an error nothing more can be pushed. */
LODE_API int lode_toolcall_push(struct lode_toolcall *p, const char *text, size_t len,
                                struct lode_error *err);
/* The text is over: all that was held back leaves. */
LODE_API int lode_toolcall_finish(struct lode_toolcall *p, struct lode_error *err);
/* Where the text so far ends: nothing but blanks were read and thinking may still begin; within
 * thinking; behind it, or where there is none; within a call.  Thinking that has not ended holds no
 * constraint. */
enum lode_toolcall_stage {
    LODE_TOOLCALL_AT_START,
    LODE_TOOLCALL_AT_THINKING,
    LODE_TOOLCALL_AT_ANSWER,
    LODE_TOOLCALL_AT_CALL, /* its tags included; not in formats that read everything (harmony) */
};
LODE_API enum lode_toolcall_stage lode_toolcall_stage(const struct lode_toolcall *p);
/* Does the parser look for this piece of text?  Special tokens that it does must be pushed, and not
 * be left out as special tokens otherwise are. */
LODE_API bool lode_toolcall_wants(const struct lode_toolcall *p, const char *piece, size_t len);

#ifdef __cplusplus
}
#endif
#endif
