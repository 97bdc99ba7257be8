/* json_call.c - calls as JSON: {"name": "f", "arguments": {...}}, one, several, or a list of them.
 *
 * Members may come in any order.  Arguments that follow the name are given out as they come; those
 * before it wait for it.  Arguments as a string of JSON are unwrapped.  Without a tag around it, an
 * object is a call only when it has the name of a known tool, or a name and arguments. */
#include "text/toolcall/parser.h"

#include "base/error.h"

#include <string.h>

enum step {
    OUTSIDE,   /* an object or a list of them */
    ITEM,      /* an object or the end of the list */
    NEXT_ITEM, /* an object behind a comma */
    FIRST_KEY, /* or the end of the object */
    KEY,
    IN_KEY,
    COLON,
    VALUE,
    IN_VALUE,
    ARGUMENTS, /* being given out */
    BEHIND,    /* a comma or the end of the object */
    BETWEEN,   /* a comma or the end of the list */
    TAIL,      /* the closing tag, or another object */
};

enum kind { OTHER, NAME, ARGS, ID, TYPE };

static enum kind kind_of(struct lode_str key) {
    static const struct {
        const char *key;
        enum kind kind;
    } keys[] = {{"name", NAME},      {"tool_name", NAME},  {"function", NAME},
                {"arguments", ARGS}, {"parameters", ARGS}, {"args", ARGS},
                {"id", ID},          {"tool_call_id", ID}, {"type", TYPE}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (lode_str_eqz(key, keys[i].key))
            return keys[i].kind;
    return OTHER;
}

static enum tc_result go(struct lode_toolcall *p, enum step step) {
    p->step = step;
    return TC_AGAIN;
}

/* The same behind the character at p->pos. */
static enum tc_result pass(struct lode_toolcall *p, enum step step) {
    p->pos++;
    return go(p, step);
}

static enum tc_result begin_object(struct lode_toolcall *p) {
    if (p->text[p->pos] != '{')
        return tc_bad(p, TC_REASON(bad_json));
    p->name[0] = p->id[0] = '\0';
    p->nested = false;
    p->args = p->args_end = 0;
    return pass(p, FIRST_KEY);
}

static bool is_known(const struct lode_toolcall *p) {
    return p->tools.n == 0 || tc_knows_tool(p, p->name);
}

/* Begins the call once its name and the sight of its arguments are there. */
static bool begin(struct lode_toolcall *p) {
    if (p->untagged && p->n_here == 0 && !is_known(p))
        return false;
    tc_begin(p);
    return true;
}

/* False: it is not JSON, or memory ran out, which p->rc says. */
static bool parse_json(struct lode_toolcall *p, struct lode_json_doc *doc, struct lode_str text) {
    const int rc = lode_json_parse(doc, text, "tool call", NULL);
    if (rc == LODE_ERR_NOMEM)
        p->rc = lode_fail_nomem(p->err, "tool call");
    return rc == 0;
}

/* Arguments that stood before the name, or as a string: text[args, args_end). */
static enum tc_result put_waiting(struct lode_toolcall *p) {
    const char *text = p->text + p->args;
    const size_t len = p->args_end - p->args;
    struct lode_json_doc doc = {0};
    struct lode_str s = {text, len};
    if (*text == 'n')
        s = LODE_STR("{}"); /* null */
    if (*text == '"') {
        if (!parse_json(p, &doc, s))
            return tc_bad(p, TC_REASON(bad_json));
        s = lode_json_str(doc.nodes);
        if (s.len == 0)
            s = LODE_STR("{}");
    }
    struct lode_json_doc inner = {0};
    const bool object = parse_json(p, &inner, s) && lode_json_is(inner.nodes, LODE_JSON_OBJECT);
    if (object)
        lode_buf_add(&p->out, s.data, s.len);
    lode_json_free(&inner);
    lode_json_free(&doc);
    if (!object)
        return tc_bad(p, TC_REASON(bad_arguments));
    tc_put_arguments(p);
    return TC_CLOSED;
}

static enum tc_result end_object(struct lode_toolcall *p) {
    if (p->nested) {
        p->nested = false;
        return pass(p, BEHIND);
    }
    if (!p->name[0])
        return tc_bad(p, TC_REASON(bad_name));
    if (!p->begun) {
        const bool has_arguments = p->args_end > p->args;
        if (p->untagged && p->n_here == 0 && !has_arguments && p->tools.n == 0)
            return TC_TEXT;
        if (!begin(p))
            return TC_TEXT;
        if (!has_arguments)
            lode_buf_addz(&p->out, "{}");
        const enum tc_result r = has_arguments ? put_waiting(p) : TC_CLOSED;
        if (r != TC_CLOSED)
            return r;
        tc_put_arguments(p);
    }
    p->pos++;
    tc_end(p);
    return go(p, p->in_list ? BETWEEN : TAIL);
}

static enum tc_result end_key(struct lode_toolcall *p) {
    const struct lode_str key = {p->text + p->mark + 1, p->pos - p->mark - 2};
    if (p->format->read == tc_key_call) {
        if (!tc_set_name(p, p->mark + 1, p->pos - 1))
            return tc_bad(p, TC_REASON(bad_name));
        p->kind = ARGS;
        return go(p, COLON);
    }
    p->kind = (uint8_t)kind_of(key);
    if (p->kind == OTHER && p->untagged && p->n_here == 0 && !p->begun)
        return TC_TEXT;
    return go(p, COLON);
}

static enum tc_result begin_value(struct lode_toolcall *p) {
    const char c = p->text[p->pos];
    p->mark = p->pos;
    tc_json_init(&p->json);
    if (c == '{' && p->kind == NAME && !p->nested) { /* "function": {"name": ...} */
        p->nested = true;
        return pass(p, FIRST_KEY);
    }
    if (p->kind == ARGS && !strchr("{\"n", c))
        return tc_bad(p, TC_REASON(bad_arguments));
    if (p->kind == ARGS && c == '{' && p->name[0] && !p->begun) {
        if (!begin(p))
            return TC_TEXT;
        return go(p, ARGUMENTS);
    }
    return go(p, IN_VALUE);
}

/* A string value, decoded, into p->name or p->id. */
static bool copy_string(struct lode_toolcall *p, char out[TC_MAX_NAME]) {
    struct lode_json_doc doc;
    const struct lode_str text = {p->text + p->mark, p->pos - p->mark};
    if (!parse_json(p, &doc, text))
        return false;
    const struct lode_str s = lode_json_str(doc.nodes);
    const bool fits = s.len < TC_MAX_NAME && !memchr(s.data ? s.data : "", '\0', s.len);
    if (fits && s.data)
        memcpy(out, s.data, s.len);
    out[fits ? s.len : 0] = '\0';
    lode_json_free(&doc);
    return fits;
}

static enum tc_result end_value(struct lode_toolcall *p) {
    if (p->kind == NAME) {
        if (!copy_string(p, p->name) || !p->name[0])
            return tc_bad(p, TC_REASON(bad_name));
    } else if (p->kind == ID && !p->begun) {
        copy_string(p, p->id); /* one of ours does as well */
    } else if (p->kind == ARGS && !p->begun) {
        p->args = p->mark;
        p->args_end = p->pos;
    }
    return go(p, BEHIND);
}

static enum tc_result read_value(struct lode_toolcall *p, bool key) {
    switch (tc_read_json(p)) {
    case TC_JSON_ON:
        return TC_MORE;
    case TC_JSON_END:
    case TC_JSON_BEFORE:
        return key ? end_key(p) : end_value(p);
    case TC_JSON_DEEP:
        return tc_bad(p, TC_REASON(too_deep));
    default:
        return tc_bad(p, TC_REASON(bad_json));
    }
}

/* Behind the object or the list. */
static enum tc_result tail(struct lode_toolcall *p) {
    const struct tc_tags *t = &p->format->tags;
    const char *close = t->close;
    /* what begins without a tag, or had one that closes, ends as it began */
    if (!close || p->untagged) {
        if (!t->bare)
            return TC_CLOSED;
        if (!tc_blanks(p))
            return TC_MORE;
        return p->text[p->pos] == ';' ? pass(p, OUTSIDE) : TC_CLOSED;
    }
    if (!tc_blanks(p))
        return TC_MORE;
    const int found = tc_tag(p, close);
    if (found < 0)
        return TC_MORE;
    if (found)
        return TC_CLOSED;
    if (p->text[p->pos] == '{')
        return begin_object(p);
    return tc_bad(p, TC_REASON(bad_syntax));
}

enum tc_result tc_json_call(struct lode_toolcall *p) {
    if (p->step == IN_KEY || p->step == IN_VALUE)
        return read_value(p, p->step == IN_KEY);
    if (p->step == ARGUMENTS) {
        const enum tc_result r = tc_read_arguments(p);
        return r == TC_CLOSED ? go(p, BEHIND) : r;
    }
    if (p->step == TAIL)
        return tail(p);
    if (!tc_blanks(p))
        return TC_MORE;
    const char c = p->text[p->pos];
    switch (p->step) {
    case OUTSIDE:
        p->in_list = c == '[';
        return c == '[' ? pass(p, ITEM) : begin_object(p);
    case ITEM:
        return c == ']' ? pass(p, TAIL) : begin_object(p);
    case NEXT_ITEM:
        return begin_object(p);
    case FIRST_KEY:
        if (c == '}')
            return end_object(p);
        /* fall through */
    case KEY:
        if (c != '"')
            return tc_bad(p, TC_REASON(bad_json));
        p->mark = p->pos;
        tc_json_init(&p->json);
        return go(p, IN_KEY);
    case COLON:
        return c == ':' ? pass(p, VALUE) : tc_bad(p, TC_REASON(bad_json));
    case VALUE:
        return begin_value(p);
    case BEHIND:
        if (c == '}')
            return end_object(p);
        return c == ',' ? pass(p, KEY) : tc_bad(p, TC_REASON(bad_json));
    default: /* BETWEEN */
        if (c == ',')
            return pass(p, NEXT_ITEM);
        return c == ']' ? pass(p, TAIL) : tc_bad(p, TC_REASON(bad_json));
    }
}

enum tc_result tc_key_call(struct lode_toolcall *p) { return tc_json_call(p); }
