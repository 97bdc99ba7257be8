/* scan.c - what grammars read: blanks, tags, names, JSON as it comes; and JSON as they write it. */
#include "text/toolcall/parser.h"

#include <string.h>

bool tc_is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

bool tc_blanks(struct lode_toolcall *p) {
    while (p->pos < p->n && tc_is_blank(p->text[p->pos]))
        p->pos++;
    return p->pos < p->n;
}

int tc_tag(struct lode_toolcall *p, const char *tag) {
    const size_t n = strlen(tag), left = p->n - p->pos;
    if (memcmp(p->text + p->pos, tag, n < left ? n : left) != 0)
        return 0;
    if (left < n)
        return p->last ? 0 : -1;
    p->pos += n;
    return 1;
}

int tc_find_tag(struct lode_toolcall *p, const char *const *tags, size_t n, size_t *at) {
    for (; p->scan < p->n; p->scan++) {
        const size_t left = p->n - p->scan;
        for (size_t i = 0; i < n; i++) {
            const size_t len = strlen(tags[i]);
            if (memcmp(p->text + p->scan, tags[i], len < left ? len : left) != 0)
                continue;
            *at = p->scan;
            if (len <= left)
                return (int)i;
            if (!p->last)
                return -1;
        }
    }
    *at = p->n;
    return -1;
}

bool tc_set_name(struct lode_toolcall *p, size_t from, size_t to) {
    while (from < to && tc_is_blank(p->text[from]))
        from++;
    while (to > from && tc_is_blank(p->text[to - 1]))
        to--;
    if (to == from || to - from >= TC_MAX_NAME)
        return false;
    for (size_t i = from; i < to; i++)
        if ((unsigned char)p->text[i] <= ' ' || p->text[i] == 0x7f)
            return false;
    memcpy(p->name, p->text + from, to - from);
    p->name[to - from] = '\0';
    return true;
}

/* ---- JSON in ---- */

enum {
    J_VALUE,
    J_FIRST_ITEM, /* or ] */
    J_FIRST_KEY,  /* or } */
    J_KEY,
    J_COLON,
    J_NEXT, /* a comma or the closing bracket */
    J_STRING,
    J_ESCAPE,
    J_HEX, /* count more digits */
    J_WORD,
    J_MINUS,
    J_ZERO,
    J_DIGITS,
    J_POINT,
    J_FRACTION,
    J_E,
    J_SIGN,
    J_EXPONENT,
};

void tc_json_init(struct tc_json *j) { *j = (struct tc_json){.state = J_VALUE}; }

static bool in_object(const struct tc_json *j) {
    return j->stack[(j->depth - 1) / 8] >> (j->depth - 1) % 8 & 1;
}

static enum tc_json_result open_bracket(struct tc_json *j, bool object) {
    if (j->depth == TC_MAX_DEPTH)
        return TC_JSON_DEEP;
    const uint8_t bit = (uint8_t)(1u << j->depth % 8);
    uint8_t *byte = &j->stack[j->depth / 8];
    *byte = (uint8_t)(object ? *byte | bit : *byte & ~bit);
    j->depth++;
    j->state = object ? J_FIRST_KEY : J_FIRST_ITEM;
    return TC_JSON_ON;
}

static enum tc_json_result end_value(struct tc_json *j) {
    j->state = J_NEXT;
    return j->depth ? TC_JSON_ON : TC_JSON_END;
}

static enum tc_json_result begin_string(struct tc_json *j, bool key) {
    j->key = key;
    j->state = J_STRING;
    return TC_JSON_ON;
}

static enum tc_json_result begin_value(struct tc_json *j, unsigned char c) {
    switch (c) {
    case '{':
    case '[':
        return open_bracket(j, c == '{');
    case '"':
        return begin_string(j, false);
    case '-':
        j->state = J_MINUS;
        return TC_JSON_ON;
    case '0':
        j->state = J_ZERO;
        return TC_JSON_ON;
    case 't':
    case 'f':
    case 'n':
        j->word = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
        j->state = J_WORD;
        return TC_JSON_ON;
    default:
        if (c < '1' || c > '9')
            return TC_JSON_BAD;
        j->state = J_DIGITS;
        return TC_JSON_ON;
    }
}

static enum tc_json_result close_bracket(struct tc_json *j, unsigned char c) {
    if (c != (in_object(j) ? '}' : ']'))
        return TC_JSON_BAD;
    j->depth--;
    return end_value(j);
}

static enum tc_json_result in_number(struct tc_json *j, unsigned char c) {
    static const struct {
        uint8_t from, to;
        const char *by; /* "0": any digit */
    } moves[] = {
        {J_MINUS, J_ZERO, "z"},        {J_MINUS, J_DIGITS, "0"},     {J_DIGITS, J_DIGITS, "0"},
        {J_ZERO, J_POINT, "."},        {J_DIGITS, J_POINT, "."},     {J_POINT, J_FRACTION, "0"},
        {J_FRACTION, J_FRACTION, "0"}, {J_ZERO, J_E, "eE"},          {J_DIGITS, J_E, "eE"},
        {J_FRACTION, J_E, "eE"},       {J_E, J_SIGN, "+-"},          {J_E, J_EXPONENT, "0"},
        {J_SIGN, J_EXPONENT, "0"},     {J_EXPONENT, J_EXPONENT, "0"}};
    const bool digit = c >= '0' && c <= '9';
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        const char *by = moves[i].by;
        if (moves[i].from == j->state && (*by == 'z'   ? c == '0'
                                          : *by == '0' ? digit
                                                       : c && strchr(by, c) != NULL)) {
            j->state = moves[i].to;
            return TC_JSON_ON;
        }
    }
    if (!tc_json_done(j))
        return TC_JSON_BAD;
    if (end_value(j) == TC_JSON_END)
        return TC_JSON_BEFORE;
    return tc_json_byte(j, c);
}

static bool is_number_end(uint8_t state) {
    return state == J_ZERO || state == J_DIGITS || state == J_FRACTION || state == J_EXPONENT;
}

bool tc_json_done(const struct tc_json *j) { return is_number_end(j->state); }

enum tc_json_result tc_json_byte(struct tc_json *j, unsigned char c) {
    const bool blank = tc_is_blank((char)c);
    switch (j->state) {
    case J_VALUE:
        return blank ? TC_JSON_ON : begin_value(j, c);
    case J_FIRST_ITEM:
        return blank ? TC_JSON_ON : c == ']' ? close_bracket(j, c) : begin_value(j, c);
    case J_FIRST_KEY:
    case J_KEY:
        if (blank)
            return TC_JSON_ON;
        if (c == '}' && j->state == J_FIRST_KEY)
            return close_bracket(j, c);
        return c == '"' ? begin_string(j, true) : TC_JSON_BAD;
    case J_COLON:
        if (c == ':')
            j->state = J_VALUE;
        return blank || c == ':' ? TC_JSON_ON : TC_JSON_BAD;
    case J_NEXT:
        if (blank)
            return TC_JSON_ON;
        if (c != ',')
            return close_bracket(j, c);
        j->state = in_object(j) ? J_KEY : J_VALUE;
        return TC_JSON_ON;
    case J_STRING:
        if (c == '\\')
            j->state = J_ESCAPE;
        if (c != '"')
            return TC_JSON_ON;
        if (!j->key)
            return end_value(j);
        j->state = J_COLON;
        return TC_JSON_ON;
    case J_ESCAPE:
        if (!c || !strchr("\"\\/bfnrtu", c))
            return TC_JSON_BAD;
        j->state = c == 'u' ? J_HEX : J_STRING;
        j->count = 4;
        return TC_JSON_ON;
    case J_HEX:
        if (!c || !strchr("0123456789abcdefABCDEF", c))
            return TC_JSON_BAD;
        if (--j->count == 0)
            j->state = J_STRING;
        return TC_JSON_ON;
    case J_WORD:
        if (c != (unsigned char)*j->word)
            return TC_JSON_BAD;
        return *++j->word ? TC_JSON_ON : end_value(j);
    default:
        return in_number(j, c);
    }
}

enum tc_json_result tc_read_json(struct lode_toolcall *p) {
    while (p->pos < p->n) {
        const enum tc_json_result r = tc_json_byte(&p->json, (unsigned char)p->text[p->pos]);
        p->pos += r == TC_JSON_ON || r == TC_JSON_END;
        if (r != TC_JSON_ON)
            return r;
    }
    return TC_JSON_ON;
}

enum tc_result tc_read_arguments(struct lode_toolcall *p) {
    enum tc_json_result r = TC_JSON_ON;
    while (r == TC_JSON_ON && p->pos < p->n) {
        const char c = p->text[p->pos];
        const bool in_string = p->json.state == J_STRING;
        r = tc_json_byte(&p->json, (unsigned char)c);
        if (r != TC_JSON_ON && r != TC_JSON_END)
            break;
        if (in_string && (unsigned char)c < ' ')
            tc_escape(p, &c, 1); /* a newline as it is: models write that */
        else
            lode_buf_addc(&p->out, c);
        p->pos++;
    }
    tc_put_arguments(p);
    return r == TC_JSON_ON     ? TC_MORE
           : r == TC_JSON_END  ? TC_CLOSED
           : r == TC_JSON_DEEP ? tc_bad(p, TC_REASON(too_deep))
                               : tc_bad(p, TC_REASON(bad_json));
}

/* ---- JSON out ---- */

void tc_escape(struct lode_toolcall *p, const char *text, size_t len) {
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    for (size_t i = 0; i < len; i++) {
        const char *known = text[i] ? strchr(from, text[i]) : NULL;
        if (known)
            lode_buf_addf(&p->out, "\\%c", to[known - from]);
        else if ((unsigned char)text[i] < ' ')
            lode_buf_addf(&p->out, "\\u%04x", (unsigned)text[i]);
        else
            lode_buf_addc(&p->out, text[i]);
    }
}

void tc_add_key(struct lode_toolcall *p, const char *key, size_t len) {
    lode_buf_addz(&p->out, p->first ? "{\"" : ", \"");
    p->first = false;
    tc_escape(p, key, len);
    lode_buf_addz(&p->out, "\": ");
}

static void add_string(struct lode_toolcall *p, const char *text, size_t len) {
    lode_buf_addc(&p->out, '"');
    tc_escape(p, text, len);
    lode_buf_addc(&p->out, '"');
}

static bool is_json(const char *text, size_t len) {
    struct tc_json j;
    enum tc_json_result r = TC_JSON_ON;
    size_t i = 0;
    tc_json_init(&j);
    while (i < len && r == TC_JSON_ON) {
        /* a control character would have to be escaped */
        if (j.state == J_STRING && (unsigned char)text[i] < ' ')
            return false;
        r = tc_json_byte(&j, (unsigned char)text[i++]);
    }
    return i == len && (r == TC_JSON_END || (r == TC_JSON_ON && tc_json_done(&j) && !j.depth));
}

void tc_add_value(struct lode_toolcall *p, uint32_t types, const char *text, size_t len) {
    static const char *const python[][2] = {{"None", "null"}, {"True", "true"}, {"False", "false"}};
    size_t from = 0, to = len;
    while (from < to && tc_is_blank(text[from]))
        from++;
    while (to > from && tc_is_blank(text[to - 1]))
        to--;
    const struct lode_str v = {text + from, to - from};
    const bool null = lode_str_eqz(v, "null") || lode_str_eqz(v, "None");
    if (types == 0 || (types & TC_STRING)) {
        if (null && (types & TC_NULL))
            lode_buf_addz(&p->out, "null");
        else
            add_string(p, text, len);
        return;
    }
    for (size_t i = 0; i < 3; i++) {
        if (lode_str_eqz(v, python[i][0])) {
            lode_buf_addz(&p->out, python[i][1]);
            return;
        }
    }
    if (is_json(v.data, v.len))
        lode_buf_add(&p->out, v.data, v.len);
    else
        add_string(p, text, len);
}
