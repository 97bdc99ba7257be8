#include "text/norm.h"

#include <utf8proc.h>

#define META "\xe2\x96\x81" /* U+2581, sentencepiece's visible space */

void lode_norm_deinit(struct lode_norm *norm) {
    for (uint32_t i = 0; i < norm->n; i++)
        lode_regex_free(norm->steps[i].regex);
    *norm = (struct lode_norm){0};
}

static void lower(struct lode_str in, struct lode_buf *out) {
    for (size_t i = 0, len; i < in.len; i += len)
        lode_buf_add_lower(out, lode_char_at(in.data + i, &len));
}

static void keep(struct lode_str in, struct lode_buf *out, bool (*dropped)(uint32_t)) {
    for (size_t i = 0, len; i < in.len; i += len)
        if (!dropped(lode_char_at(in.data + i, &len)))
            lode_buf_add(out, in.data + i, len);
}

static void strip(const struct lode_norm_step *s, struct lode_str in, struct lode_buf *out) {
    size_t low = 0, high = 0, len;
    for (size_t i = 0; i < in.len; i += len)
        if (!lode_char_is_space(lode_char_at(in.data + i, &len)))
            high = i + len;
    while (s->left && low < in.len && lode_char_is_space(lode_char_at(in.data + low, &len)))
        low += len;
    if (!s->right)
        high = in.len;
    if (low < high)
        lode_buf_add(out, in.data + low, high - low);
}

static int replace_regex(const struct lode_norm_step *s, struct lode_str in, struct lode_buf *out,
                         struct lode_error *err) {
    struct lode_regex_run *run;
    LODE_TRY(lode_regex_run_create(&run, s->regex, err));
    size_t done = 0, from = 0, start, end;
    int rc = 0;
    while (from <= in.len &&
           (rc = lode_regex_find(run, in.data, in.len, from, &start, &end, err)) > 0) {
        lode_buf_add(out, in.data + done, start - done);
        lode_buf_add(out, s->to.data, s->to.len);
        done = from = end;
        if (start == end) { /* an empty match: go on behind the next character */
            size_t len = 1;
            if (from < in.len)
                lode_char_at(in.data + from, &len);
            from += len;
        }
    }
    lode_regex_run_free(run);
    lode_buf_add(out, in.data + done, in.len - done);
    return rc;
}

/* sentencepiece's nmt rules as the tokenizers library has them. */
static void nmt(struct lode_str in, struct lode_buf *out) {
    for (size_t i = 0, len; i < in.len; i += len) {
        const uint32_t c = lode_char_at(in.data + i, &len);
        if ((c >= 0x01 && c <= 0x08) || c == 0x0b || (c >= 0x0e && c <= 0x1f) || c == 0x7f ||
            c == 0x8f || c == 0x9f)
            continue;
        const bool space = c == 0x09 || c == 0x0a || c == 0x0c || c == 0x0d || c == 0x1680 ||
                           (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 ||
                           c == 0x2581 || c == 0xfeff || c == 0xfffd;
        if (space)
            lode_buf_addc(out, ' ');
        else
            lode_buf_add(out, in.data + i, len);
    }
}

static void bert_clean(struct lode_str in, struct lode_buf *out) {
    for (size_t i = 0, len; i < in.len; i += len) {
        const uint32_t c = lode_char_at(in.data + i, &len);
        const bool blank = c == '\t' || c == '\n' || c == '\r' || lode_char_is_space(c);
        if (c == 0 || c == 0xfffd ||
            (!(c == '\t' || c == '\n' || c == '\r') && lode_char_is_control(c)))
            continue;
        if (blank)
            lode_buf_addc(out, ' ');
        else
            lode_buf_add(out, in.data + i, len);
    }
}

static void bert_cjk(struct lode_str in, struct lode_buf *out) {
    for (size_t i = 0, len; i < in.len; i += len) {
        const bool cjk = lode_char_is_cjk(lode_char_at(in.data + i, &len));
        if (cjk)
            lode_buf_addc(out, ' ');
        lode_buf_add(out, in.data + i, len);
        if (cjk)
            lode_buf_addc(out, ' ');
    }
}

/* BERT's steps in their order; the result ends up in out, tmp is scratch. */
static bool bert(const struct lode_norm_step *s, struct lode_str in, struct lode_buf *out,
                 struct lode_buf *tmp) {
    bool ok = true;
    lode_buf_clear(tmp);
#define NEXT(call)                                                                                 \
    do {                                                                                           \
        lode_buf_clear(tmp);                                                                       \
        call;                                                                                      \
        ok = ok && !tmp->failed;                                                                   \
        const struct lode_buf swap = *tmp;                                                         \
        *tmp = *out;                                                                               \
        *out = swap;                                                                               \
        in = lode_buf_str(out);                                                                    \
    } while (0)
    NEXT(lode_buf_add(tmp, in.data, in.len));
    if (s->clean)
        NEXT(bert_clean(in, tmp));
    if (s->cjk)
        NEXT(bert_cjk(in, tmp));
    if (s->strip_accents) {
        NEXT(ok = lode_normalize(tmp, in.data, in.len, LODE_NFD) && ok);
        NEXT(keep(in, tmp, lode_char_is_mn));
    }
    if (s->lower)
        NEXT(lower(in, tmp));
#undef NEXT
    return ok;
}

/* The tokenizers library maps whole graphemes of up to five bytes, else character by character,
 * and in both takes the shortest mapped start for the whole. */
static void charsmap(const struct lode_norm_step *s, struct lode_str in, struct lode_buf *out) {
    size_t len = 0, used;
    for (size_t i = 0; i < in.len;) {
        int32_t state = 0;
        uint32_t cp = lode_char_at(in.data + i, &len);
        size_t end = i + len;
        while (end < in.len) {
            const uint32_t next = lode_char_at(in.data + end, &len);
            if (utf8proc_grapheme_break_stateful((int32_t)cp, (int32_t)next, &state))
                break;
            cp = next;
            end += len;
        }
        struct lode_str mapped = {0};
        if (end - i < 6)
            mapped = lode_charsmap_find(&s->map, in.data + i, end - i, false, &used);
        if (mapped.data) {
            lode_buf_add(out, mapped.data, mapped.len);
            i = end;
        }
        for (; i < end; i += len) {
            lode_char_at(in.data + i, &len);
            mapped = lode_charsmap_find(&s->map, in.data + i, len, false, &used);
            if (mapped.data)
                lode_buf_add(out, mapped.data, mapped.len);
            else
                lode_buf_add(out, in.data + i, len);
        }
    }
}

/* What the next bytes of in become (sentencepiece's NormalizePrefix), *used of them. */
static struct lode_str spm_next(const struct lode_norm_step *s, struct lode_str in, size_t *used) {
    if (s->user && lode_trie_longest(s->user, in.data, in.len, used) >= 0)
        return (struct lode_str){in.data, *used};
    const struct lode_str mapped = lode_charsmap_find(&s->map, in.data, in.len, true, used);
    if (mapped.data)
        return mapped;
    lode_char_at(in.data, used);
    return (struct lode_str){in.data, *used};
}

static void spm(const struct lode_norm_step *s, struct lode_str in, struct lode_buf *out) {
    const struct lode_str space = s->escape ? LODE_STR(META) : LODE_STR(" ");
    size_t used;
    while (s->remove_extra && in.len && lode_str_eqz(spm_next(s, in, &used), " ")) {
        in.data += used;
        in.len -= used;
    }
    if (in.len == 0)
        return;
    if (s->add_prefix && !s->suffix)
        lode_buf_add(out, space.data, space.len);
    bool after_space = s->remove_extra;
    for (; in.len; in.data += used, in.len -= used) {
        struct lode_str next = spm_next(s, in, &used);
        while (after_space && next.len && next.data[0] == ' ') {
            next.data++;
            next.len--;
        }
        for (size_t i = 0; i < next.len; i++) {
            if (next.data[i] == ' ')
                lode_buf_add(out, space.data, space.len);
            else
                lode_buf_addc(out, next.data[i]);
        }
        if (next.len)
            after_space = next.data[next.len - 1] == ' ';
        if (!s->remove_extra)
            after_space = false;
    }
    while (s->remove_extra && out->len >= space.len &&
           memcmp(out->data + out->len - space.len, space.data, space.len) == 0)
        out->data[out->len -= space.len] = '\0';
    if (s->add_prefix && s->suffix)
        lode_buf_add(out, space.data, space.len);
}

int lode_norm_apply(const struct lode_norm *norm, struct lode_str text, struct lode_buf buf[2],
                    struct lode_str *result, struct lode_error *err) {
    *result = text;
    for (uint32_t i = 0; i < norm->n; i++) {
        const struct lode_norm_step *s = &norm->steps[i];
        struct lode_buf *out = &buf[result->data == buf[0].data && buf[0].data ? 1 : 0];
        bool ok = true;
        lode_buf_clear(out);
        lode_buf_reserve(out, result->len);
        switch (s->op) {
        case LODE_NORM_FORM:
            ok = lode_normalize(out, result->data, result->len, s->form);
            break;
        case LODE_NORM_LOWER:
            lower(*result, out);
            break;
        case LODE_NORM_STRIP_ACCENTS:
            keep(*result, out, lode_char_is_mark);
            break;
        case LODE_NORM_STRIP:
            strip(s, *result, out);
            break;
        case LODE_NORM_REPLACE:
            lode_buf_add_replaced(out, *result, s->from, s->to);
            break;
        case LODE_NORM_REPLACE_REGEX:
            LODE_TRY(replace_regex(s, *result, out, err));
            break;
        case LODE_NORM_PREPEND:
            if (result->len)
                lode_buf_add(out, s->to.data, s->to.len);
            lode_buf_add(out, result->data, result->len);
            break;
        case LODE_NORM_NMT:
            nmt(*result, out);
            break;
        case LODE_NORM_BERT: {
            struct lode_buf tmp = {0};
            ok = bert(s, *result, out, &tmp);
            lode_buf_free(&tmp);
            break;
        }
        case LODE_NORM_CHARSMAP:
            charsmap(s, *result, out);
            break;
        case LODE_NORM_SPM:
            spm(s, *result, out);
            break;
        }
        if (!ok || out->failed)
            return lode_fail_nomem(err, "the normalised text");
        *result = lode_buf_str(out);
    }
    return 0;
}
