/* parser.h - inside of lode/toolcall.h.
 *
 * parser.c tells thinking, text and calls apart; the grammar of a format reads what lies between a
 * call's tags.  A grammar is a function called again and again with more text: it moves p->pos over
 * what it has understood and keeps where it is in p->step.
 *
 *   parser.c    the stream           scan.c     tags, names, JSON as it comes
 *   tools.c     the tools' schemas   detect.c   which format a template speaks
 *   json_call.c     {"name": ..., "arguments": {...}}, one or a list
 *   named_call.c    a name, a tag, {...}
 *   params_call.c   tags around every parameter
 *   python_call.c   [name(a=1), ...]
 *   gemma_call.c    call:name{a:1}
 *   harmony.c       channels
 *   formats.c       the list
 */
#ifndef LODE_TEXT_TOOLCALL_PARSER_H
#define LODE_TEXT_TOOLCALL_PARSER_H

#include "base/buf.h"
#include "base/json.h"
#include "lode/toolcall.h"

enum {
    TC_MAX_NAME = 256,  /* bytes of a name or an id, with its NUL */
    TC_MAX_KEY = 1024,  /* bytes of a parameter's name */
    TC_MAX_DEPTH = 128, /* of arguments */
    TC_MAX_TAGS = 4,
};

enum tc_result {
    TC_MORE,   /* more text is needed */
    TC_AGAIN,  /* call me again: I have moved on */
    TC_CLOSED, /* the calls are over at p->pos */
    TC_BAD,    /* p->reason */
    TC_TEXT,   /* this is no call, but text; only before the first has begun */
};

struct tc_json { /* checks JSON byte by byte */
    uint8_t state, back, count;
    bool key;         /* the string is an object's key */
    uint32_t depth;   /* of open brackets */
    const char *word; /* what is left of true, false, null */
    uint8_t stack[TC_MAX_DEPTH / 8];
};

enum tc_json_result { TC_JSON_BAD, TC_JSON_DEEP, TC_JSON_ON, TC_JSON_END, TC_JSON_BEFORE };

void tc_json_init(struct tc_json *j);
/* TC_JSON_END: c completes the value; TC_JSON_BEFORE: it was complete before c.  Control characters
 * in strings are let through. */
enum tc_json_result tc_json_byte(struct tc_json *j, unsigned char c);
bool tc_json_done(const struct tc_json *j); /* a number that the end of the text completes */

struct tc_tags {                   /* of a format whose calls are pieces of a text */
    const char *open[TC_MAX_TAGS]; /* any of them begins calls */
    const char *close;             /* NULL: nothing ends them */
    const char *drop[TC_MAX_TAGS]; /* tags in the text that say nothing */
    bool bare;                     /* calls may also begin without a tag, where the answer begins */
};

struct tc_params { /* tags around names and values */
    const char *name, *name_end, *key, *key_end, *value, *value_end, *end;
    bool newline;    /* one after the opening tag and one before the closing are not the value's */
    bool attributes; /* key_end is followed by more of the tag, which may say string="true" */
};

struct tc_format {
    const char *name, *about;
    enum tc_result (*read)(struct lode_toolcall *p);
    bool whole; /* read gets the stream from its beginning, thinking and text too */
    struct tc_tags tags;
    const struct tc_params *params;
    const char *const *words; /* tags within calls, for lode_toolcall_wants; NULL-terminated */
    const char *marks[TC_MAX_TAGS]; /* all of these stand in a template that speaks this format */
};

extern const struct tc_format tc_formats[]; /* ended by one without a name */
extern const char *const tc_thinks[][2];    /* opening and closing tag; ended by NULLs */
const struct tc_format *tc_find_format(const char *name);

enum tc_state {
    TC_START,    /* blanks, or the tag that opens thinking */
    TC_OPENED,   /* the blanks behind it */
    TC_THINKING, /* until the tag that closes it */
    TC_BETWEEN,  /* the blanks behind it, or behind a call */
    TC_CONTENT,
    TC_CALL,
    TC_RECOVER, /* within a malformed call, until its closing tag or another's opening */
    TC_WHOLE,   /* the format reads everything */
    TC_STOPPED,
};

struct lode_toolcall {
    const struct tc_format *format;
    const char *const *think; /* two tags, or NULL */
    lode_toolcall_fn *put;
    void *user;
    struct lode_json_doc tools;
    uint64_t seed;
    int rc; /* of the first failure */
    struct lode_error *err;

    enum tc_state state;
    bool last; /* no more text will come */
    bool bare; /* nothing but blanks has been said: calls without a tag may begin */

    /* text[done, n) is not accounted for yet, text[pos, n) is not read.  scan: where a search goes
     * on; mark: where what is being read began; args: arguments that wait for a name.  All are
     * moved when text is dropped. */
    char *text;
    size_t n, cap, done, pos, scan, mark, args, args_end;

    /* the call being read */
    const char *reason;
    int step;
    int64_t n_calls;
    size_t n_here; /* calls since the tag */
    bool begun;    /* BEGIN was given out, END was not */
    bool untagged; /* it began without a tag: what is no call is text */
    char name[TC_MAX_NAME], id[TC_MAX_NAME];
    struct lode_buf out;            /* arguments on their way out */
    const struct lode_json *schema; /* of its parameters; NULL: unknown */

    /* what grammars remember */
    struct tc_json json;
    bool first;           /* no parameter has been written yet */
    bool other;           /* another grammar reads this call */
    bool in_list;         /* calls stand in brackets */
    uint8_t kind;         /* json_call.c: what the member is */
    bool nested;          /* json_call.c: within "function": {...} */
    bool streaming;       /* the value leaves as it comes */
    bool fence_seen;      /* named_call.c: the ``` behind the arguments was looked for */
    bool no_outer;        /* params_call.c: the call's own tag began it */
    bool newline_due;     /* params_call.c: the value's first newline is not its own */
    bool quoted, escaped; /* within a string, behind a backslash */
    char quote;           /* python_call.c: the one that is open, or NUL */
    uint32_t types;       /* params_call.c: that the parameter takes */
    uint32_t depth;       /* python_call.c: of open brackets */
};

/* ---- parser.c ---- */

/* Gives out text[done, to). */
void tc_put_text(struct lode_toolcall *p, enum lode_toolcall_kind kind, size_t to);
/* p->name, p->id ("": one is made) are set. */
void tc_begin(struct lode_toolcall *p);
void tc_put_arguments(struct lode_toolcall *p); /* p->out, which is then empty */
void tc_end(struct lode_toolcall *p);           /* the call reaches to p->pos */
/* TC_BAD, or TC_TEXT where this may yet be text. */
enum tc_result tc_bad(struct lode_toolcall *p, const char *reason);
/* Gives out text up to the next of the tags, without the blanks before it, which are markup.  True:
 * the tag is at p->pos, *len bytes.  p->mark: behind the last that is no blank. */
bool tc_read_text(struct lode_toolcall *p, enum lode_toolcall_kind kind, const char *const *tags,
                  size_t n_tags, size_t *which, size_t *len);
#define TC_REASON(name) ((void)TC_REASON_##name, #name)
enum tc_reason { /* so that no reason is given that is not in the list */
#define TC_REASON_ENUM(name, about) TC_REASON_##name,
                 LODE_TOOLCALL_REASON_LIST(TC_REASON_ENUM)
#undef TC_REASON_ENUM
};

/* ---- scan.c ---- */

/* Moves pos over blanks; false: the text ends with them. */
bool tc_blanks(struct lode_toolcall *p);
/* 1: moved over `tag`; 0: it is not there; -1: the text ends within it. */
int tc_tag(struct lode_toolcall *p, const char *tag);
/* The first of the tags from p->scan on: its index, and *at; -1: none yet, and none can begin
 * before *at. */
int tc_find_tag(struct lode_toolcall *p, const char *const *tags, size_t n, size_t *at);
/* Whether that search has come farther from p->mark than what it ends may be long.  Asked whether or
 * not a tag was found, so that the answer does not depend on how the text was cut. */
static inline bool tc_too_far(const struct lode_toolcall *p, size_t most) {
    return p->scan - p->mark > most;
}
/* Moves pos over a JSON value that tc_json_init began: the result of its last byte; TC_JSON_ON: the
 * text ends within. */
enum tc_json_result tc_read_json(struct lode_toolcall *p);
/* The same while it is the arguments, given out as they are read.  TC_CLOSED: at their end. */
enum tc_result tc_read_arguments(struct lode_toolcall *p);
/* text[from, to) without the blanks around into p->name; false: it is no name. */
bool tc_set_name(struct lode_toolcall *p, size_t from, size_t to);
bool tc_is_blank(char c);
/* p->out += the text within a JSON string, escaped where JSON wants it. */
void tc_escape(struct lode_toolcall *p, const char *text, size_t len);
/* p->out += key, as `"key": `, with what must stand before it. */
void tc_add_key(struct lode_toolcall *p, const char *key, size_t len);
/* p->out += a value as JSON of a type that the schema takes: JSON as it is, anything else a string.
 */
void tc_add_value(struct lode_toolcall *p, uint32_t types, const char *text, size_t len);

/* ---- tools.c ---- */

enum { TC_STRING = 1, TC_NUMBER = 2, TC_BOOL = 4, TC_NULL = 8, TC_ARRAY = 16, TC_OBJECT = 32 };

bool tc_knows_tool(const struct lode_toolcall *p, const char *name);
/* The schema of a tool's parameters, or NULL. */
const struct lode_json *tc_tool_schema(const struct lode_toolcall *p, const char *name);
/* The JSON types that a parameter takes, 0: unknown. */
uint32_t tc_param_types(const struct lode_json *schema, const char *key, size_t len);

/* ---- grammars ---- */

enum tc_result tc_llama_call(struct lode_toolcall *p);
enum tc_result tc_json_call(struct lode_toolcall *p);
enum tc_result tc_key_call(struct lode_toolcall *p); /* [{name: {...}}] */
enum tc_result tc_mistral_call(struct lode_toolcall *p);
enum tc_result tc_deepseek_call(struct lode_toolcall *p);
enum tc_result tc_kimi_call(struct lode_toolcall *p);
enum tc_result tc_functionary_call(struct lode_toolcall *p);
enum tc_result tc_params_call(struct lode_toolcall *p);
enum tc_result tc_python_call(struct lode_toolcall *p);
enum tc_result tc_gemma_call(struct lode_toolcall *p);
enum tc_result tc_harmony(struct lode_toolcall *p);

#endif
