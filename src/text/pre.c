#include "text/pre.h"

#include "text/unicode.h"

#include <utf8proc.h>

void lode_pre_deinit(struct lode_pre *pre) {
    for (uint32_t i = 0; i < pre->n; i++)
        lode_regex_free(pre->steps[i].regex);
    pre->n = 0;
}

int lode_pre_run_init(struct lode_pre_run *run, const struct lode_pre *pre,
                      struct lode_error *err) {
    *run = (struct lode_pre_run){.pre = pre, .err = err};
    for (uint32_t i = 0; i < pre->n; i++)
        if (pre->steps[i].regex)
            LODE_TRY(lode_regex_run_create(&run->regex[i], pre->steps[i].regex, err));
    return 0;
}

void lode_pre_run_deinit(struct lode_pre_run *run) {
    for (uint32_t i = 0; i < LODE_PRE_MAX; i++) {
        lode_regex_run_free(run->regex[i]);
        lode_buf_free(&run->text[i]);
    }
}

/* Recursion is as deep as the list of steps, not as the text. */
static int push(struct lode_pre_run *run, uint32_t i_step, struct lode_str text, bool first);

/* Splitting decides about a part only when it knows the next one: one part is held. */
struct splitter {
    struct lode_pre_run *run;
    uint32_t i_step;
    const char *text;
    bool first;
    size_t low, high;            /* the part held; empty: none */
    bool held_match, last_match; /* what it is; what came last */
};

static int flush(struct splitter *s) {
    const size_t low = s->low, high = s->high;
    s->low = s->high;
    if (low == high)
        return 0;
    return push(s->run, s->i_step + 1, (struct lode_str){s->text + low, high - low},
                s->first && low == 0);
}

static int part(struct splitter *s, size_t low, size_t high, bool match) {
    const struct lode_pre_step *step = &s->run->pre->steps[s->i_step];
    match = match != step->invert;
    const bool held = s->low < s->high;
    bool join = false;
    switch (step->behavior) {
    case LODE_SPLIT_REMOVED:
        if (match)
            return 0;
        break;
    case LODE_SPLIT_ISOLATED:
        break;
    case LODE_SPLIT_MERGED_WITH_PREVIOUS: /* the first match of a row joins what is before it */
        join = held && match && !s->last_match;
        break;
    case LODE_SPLIT_MERGED_WITH_NEXT: /* the last match of a row joins what follows */
        join = held && s->held_match && !match;
        break;
    case LODE_SPLIT_CONTIGUOUS:
        join = held && s->held_match == match;
        break;
    }
    s->last_match = match;
    if (join) {
        s->high = high;
        s->held_match = step->behavior == LODE_SPLIT_CONTIGUOUS && match;
        return 0;
    }
    LODE_TRY(flush(s));
    s->low = low;
    s->high = high;
    s->held_match = match;
    return 0;
}

static int next_match(struct splitter *s, struct lode_str text, size_t from, size_t *start,
                      size_t *end) {
    const struct lode_pre_step *step = &s->run->pre->steps[s->i_step];
    if (step->regex)
        return lode_regex_find(s->run->regex[s->i_step], text.data, text.len, from, start, end,
                               s->run->err);
    *start = lode_str_find(text, from, step->literal);
    if (*start == text.len)
        return 0;
    *end = *start + step->literal.len;
    return 1;
}

static int split(struct lode_pre_run *run, uint32_t i_step, struct lode_str text, bool first) {
    struct splitter s = {.run = run, .i_step = i_step, .text = text.data, .first = first};
    size_t done = 0, from = 0, start, end;
    while (from < text.len) {
        const int rc = next_match(&s, text, from, &start, &end);
        if (rc < 0)
            return rc;
        if (rc == 0)
            break;
        if (start > done)
            LODE_TRY(part(&s, done, start, false));
        if (end > start) {
            LODE_TRY(part(&s, start, end, true));
            from = end;
        } else { /* an empty match is a cut; look for the next behind the next character */
            size_t len = 1;
            if (start < text.len)
                lode_char_at(text.data + start, &len);
            from = start + len;
        }
        done = end;
    }
    if (done < text.len)
        LODE_TRY(part(&s, done, text.len, false));
    return flush(&s);
}

static int metaspace(struct lode_pre_run *run, uint32_t i_step, struct lode_str text, bool first) {
    const struct lode_pre_step *step = &run->pre->steps[i_step];
    const struct lode_str mark = step->literal;
    struct lode_buf *out = &run->text[i_step];
    lode_buf_clear(out);
    const bool marked = text.data[0] == ' ' || lode_str_starts(text, mark);
    if (!marked &&
        (step->prepend == LODE_PREPEND_ALWAYS || (step->prepend == LODE_PREPEND_FIRST && first)))
        lode_buf_add(out, mark.data, mark.len);
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] == ' ')
            lode_buf_add(out, mark.data, mark.len);
        else
            lode_buf_addc(out, text.data[i]);
    }
    if (out->failed)
        return lode_fail_nomem(run->err, "a pre-tokenizer");
    const struct lode_str all = lode_buf_str(out);
    if (!step->cut)
        return push(run, i_step + 1, all, first);
    /* a first part without a mark in front ends where the first mark stands */
    for (size_t low = 0, high; low < all.len; low = high) {
        const bool starts = low > 0 || lode_str_starts(all, mark);
        high = lode_str_find(all, low + (starts ? mark.len : 0), mark);
        LODE_TRY(push(run, i_step + 1, (struct lode_str){all.data + low, high - low},
                      first && low == 0));
    }
    return 0;
}

/* \d in both references is Nd. */
static bool is_digit(uint32_t cp) {
    return cp < 0x80 ? cp >= '0' && cp <= '9'
                     : utf8proc_category((int32_t)cp) == UTF8PROC_CATEGORY_ND;
}

static int digits(struct lode_pre_run *run, uint32_t i_step, struct lode_str text, bool first) {
    const struct lode_pre_step *step = &run->pre->steps[i_step];
    struct splitter s = {.run = run, .i_step = i_step, .text = text.data, .first = first};
    size_t len, low = 0; /* low: where the part begins that has not been handed on */
    for (size_t i = 0; i < text.len;) {
        size_t end = i, n = 0;
        while (end < text.len && is_digit(lode_char_at(text.data + end, &len))) {
            end += len;
            n++;
        }
        const bool cut = n > 0 && !(step->boundary && end < text.len &&
                                    lode_char_is_word(lode_char_at(text.data + end, &len)));
        if (!cut) {
            if (n == 0)
                lode_char_at(text.data + i, &len);
            i = n ? end : i + len;
            continue;
        }
        /* with a boundary the digits are matches, set off on both sides; else only cuts between
         * them, and one in front where the row is all triples */
        if (low < i && (step->boundary || n % 3 == 0)) {
            LODE_TRY(part(&s, low, i, false));
            low = i;
        }
        for (size_t left = n; i < end; left--) {
            if (left % 3 == 0 && i > low) {
                LODE_TRY(part(&s, low, i, false));
                low = i;
            }
            lode_char_at(text.data + i, &len);
            i += len;
        }
        if (step->boundary) {
            LODE_TRY(part(&s, low, end, false));
            low = end;
        }
    }
    if (low < text.len)
        LODE_TRY(part(&s, low, text.len, false));
    return flush(&s);
}

static int push(struct lode_pre_run *run, uint32_t i_step, struct lode_str text, bool first) {
    if (text.len == 0)
        return 0;
    if (i_step == run->pre->n)
        return run->sink(run->ctx, text);
    const struct lode_pre_step *step = &run->pre->steps[i_step];
    switch (step->op) {
    case LODE_PRE_SPLIT:
        return split(run, i_step, text, first);
    case LODE_PRE_METASPACE:
        return metaspace(run, i_step, text, first);
    case LODE_PRE_DIGITS:
        return digits(run, i_step, text, first);
    case LODE_PRE_SPACE:
        if (text.data[0] == ' ')
            return push(run, i_step + 1, text, first);
        lode_buf_clear(&run->text[i_step]);
        lode_buf_addc(&run->text[i_step], ' ');
        lode_buf_add(&run->text[i_step], text.data, text.len);
        if (run->text[i_step].failed)
            return lode_fail_nomem(run->err, "a pre-tokenizer");
        return push(run, i_step + 1, lode_buf_str(&run->text[i_step]), first);
    }
    return 0;
}

int lode_pre_apply(struct lode_pre_run *run, struct lode_str text, bool first) {
    return push(run, 0, text, first);
}
