#include "text/decode.h"

#include "base/utf8.h"
#include "text/bpe.h"
#include "text/unicode.h"

#define META "\xe2\x96\x81" /* U+2581 */

void lode_decode_run_init(struct lode_decode_run *run, const struct lode_decode *decode) {
    *run = (struct lode_decode_run){.decode = decode};
    lode_decode_run_reset(run);
}

void lode_decode_run_reset(struct lode_decode_run *run) {
    bool fused = false;
    for (uint32_t i = 0; i < run->decode->n; i++) {
        const enum lode_decode_op op = run->decode->steps[i].op;
        struct lode_decode_state *s = &run->states[i];
        lode_buf_clear(&s->held);
        *s = (struct lode_decode_state){.held = s->held, .work = s->work, .fused = fused};
        fused = fused || op == LODE_DECODE_FUSE || op == LODE_DECODE_BYTES;
    }
    lode_buf_clear(&run->out);
}

void lode_decode_run_deinit(struct lode_decode_run *run) {
    for (uint32_t i = 0; i < LODE_DECODE_MAX; i++) {
        lode_buf_free(&run->states[i].held);
        lode_buf_free(&run->states[i].work);
    }
    lode_buf_free(&run->out);
}

/* A token's text (or, behind a fusing stage, a part of the one string) enters stage i.  Recursion
 * is as deep as the list of stages. */
static bool push(struct lode_decode_run *run, uint32_t i, struct lode_str text, int32_t id);

static bool pass(struct lode_decode_run *run, uint32_t i, struct lode_buf *work, int32_t id) {
    return !work->failed && push(run, i + 1, lode_buf_str(work), id);
}

/* The same for a part of the text, of which there may be nothing yet: a buffer that is empty
 * because memory ran out is no such part. */
static bool pass_text(struct lode_decode_run *run, uint32_t i, struct lode_buf *work) {
    return !work->failed && (work->len == 0 || pass(run, i, work, -1));
}

/* The bytes that a token's characters stand for, or its text where one stands for none. */
static void add_bytes(struct lode_buf *out, struct lode_str text) {
    const size_t before = out->len;
    for (size_t i = 0, len; i < text.len; i += len) {
        uint32_t cp = 0;
        len = lode_utf8_decode(text.data + i, text.len - i, &cp);
        const int byte = len ? lode_char_byte(cp) : -1;
        if (byte < 0) {
            out->len = before;
            lode_buf_add(out, text.data, text.len);
            return;
        }
        lode_buf_addc(out, (char)byte);
    }
}

/* Whole characters and what is certainly invalid leave; an incomplete character is held. */
static bool lossy(struct lode_decode_run *run, uint32_t i, bool final) {
    struct lode_decode_state *s = &run->states[i];
    lode_buf_clear(&s->work);
    const size_t taken =
        lode_utf8_lossy(&s->work, s->held.data ? s->held.data : "", s->held.len, final);
    if (s->held.len) {
        memmove(s->held.data, s->held.data + taken, s->held.len - taken);
        s->held.len -= taken;
    }
    return !s->held.failed && pass_text(run, i, &s->work);
}

static bool flush_bytes(struct lode_decode_run *run, uint32_t i) {
    struct lode_decode_state *s = &run->states[i];
    if (s->held.len == 0)
        return !s->held.failed;
    lode_buf_clear(&s->work);
    if (lode_utf8_valid(s->held.data, s->held.len))
        lode_buf_add(&s->work, s->held.data, s->held.len);
    else
        for (size_t k = 0; k < s->held.len; k++)
            lode_buf_addz(&s->work, LODE_REPLACEMENT);
    lode_buf_clear(&s->held);
    return pass(run, i, &s->work, -1);
}

/* In the one string a match may span parts, so the longest end that could begin one is held. */
static bool replace_fused(struct lode_decode_run *run, uint32_t i, struct lode_str text,
                          bool final) {
    const struct lode_decode_step *step = &run->decode->steps[i];
    struct lode_decode_state *s = &run->states[i];
    lode_buf_add(&s->held, text.data, text.len);
    lode_buf_clear(&s->work);
    size_t done = 0;
    while (done < s->held.len) {
        const size_t left = s->held.len - done;
        const size_t n = left < step->from.len ? left : step->from.len;
        if (step->from.len && memcmp(s->held.data + done, step->from.data, n) == 0) {
            if (n < step->from.len && !final)
                break;
            if (n == step->from.len) {
                lode_buf_add(&s->work, step->to.data, step->to.len);
                done += n;
                continue;
            }
        }
        lode_buf_addc(&s->work, s->held.data[done++]);
    }
    if (s->held.len) {
        memmove(s->held.data, s->held.data + done, s->held.len - done);
        s->held.len -= done;
    }
    return !s->held.failed && pass_text(run, i, &s->work);
}

static bool strip_token(struct lode_decode_run *run, uint32_t i, struct lode_str text) {
    const struct lode_decode_step *step = &run->decode->steps[i];
    struct lode_decode_state *s = &run->states[i];
    for (uint32_t k = 0; k < step->start && lode_str_starts(text, step->from); k++) {
        text.data += step->from.len;
        text.len -= step->from.len;
    }
    for (uint32_t k = 0;
         k < step->stop && text.len >= step->from.len &&
         memcmp(text.data + text.len - step->from.len, step->from.data, step->from.len) == 0;
         k++)
        text.len -= step->from.len;
    lode_buf_clear(&s->work);
    lode_buf_add(&s->work, text.data, text.len);
    return pass(run, i, &s->work, -1);
}

/* The one string in parts: the start is counted off; an end that may have to go is held. */
static bool strip_fused(struct lode_decode_run *run, uint32_t i, struct lode_str text, bool final) {
    const struct lode_decode_step *step = &run->decode->steps[i];
    const struct lode_str c = step->from;
    struct lode_decode_state *s = &run->states[i];
    lode_buf_add(&s->held, text.data, text.len);
    if (s->held.failed)
        return false;
    size_t low = 0, high = s->held.len;
    while (!s->started && low < high) {
        const size_t n = high - low < c.len ? high - low : c.len;
        if (s->stripped < step->start && memcmp(s->held.data + low, c.data, n) == 0) {
            if (n < c.len && !final)
                break; /* may become one more */
            if (n == c.len) {
                s->stripped++;
                low += n;
                continue;
            }
        }
        s->started = true;
    }
    if (s->started) {
        uint32_t k = 0;
        while (k < step->stop && high - low >= c.len &&
               memcmp(s->held.data + high - c.len, c.data, c.len) == 0) {
            high -= c.len;
            k++;
        }
    } else {
        high = low;
    }
    lode_buf_clear(&s->work);
    lode_buf_add(&s->work, s->held.data ? s->held.data + low : "", high - low);
    if (s->held.len) {
        memmove(s->held.data, s->held.data + high, s->held.len - high);
        s->held.len -= high;
    }
    return pass_text(run, i, &s->work);
}

static void clean_up(struct lode_buf *text, struct lode_buf *tmp) {
    static const char *const rules[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (lode_str_find(lode_buf_str(text), 0, lode_str(rules[i][0])) == text->len)
            continue;
        lode_buf_clear(tmp);
        lode_buf_add_replaced(tmp, lode_buf_str(text), lode_str(rules[i][0]), lode_str(rules[i][1]));
        const struct lode_buf swap = *text;
        *text = *tmp;
        *tmp = swap;
    }
}

static bool wordpiece(struct lode_decode_run *run, uint32_t i, struct lode_str text) {
    const struct lode_decode_step *step = &run->decode->steps[i];
    struct lode_decode_state *s = &run->states[i];
    lode_buf_clear(&s->work);
    if (s->n_tokens++ > 0) {
        if (lode_str_starts(text, step->from)) {
            text.data += step->from.len;
            text.len -= step->from.len;
        } else {
            lode_buf_addc(&s->work, ' ');
        }
    }
    lode_buf_add(&s->work, text.data, text.len);
    if (step->cleanup && !s->work.failed)
        clean_up(&s->work, &s->held);
    return !s->held.failed && pass(run, i, &s->work, -1);
}

static bool metaspace(struct lode_decode_run *run, uint32_t i, struct lode_str text) {
    const struct lode_decode_step *step = &run->decode->steps[i];
    struct lode_decode_state *s = &run->states[i];
    const bool drop = s->n_tokens++ == 0 && !step->keep_first;
    lode_buf_clear(&s->work);
    lode_buf_add_replaced(&s->work, text, step->from, drop ? LODE_STR("") : LODE_STR(" "));
    return pass(run, i, &s->work, -1);
}

/* Which token is the last is known at the end: one is held. */
static bool bpe_suffix(struct lode_decode_run *run, uint32_t i, struct lode_str text, bool final) {
    const struct lode_decode_step *step = &run->decode->steps[i];
    struct lode_decode_state *s = &run->states[i];
    lode_buf_clear(&s->work);
    if (s->n_tokens > 0)
        lode_buf_add_replaced(&s->work, lode_buf_str(&s->held), step->from,
                              final ? LODE_STR("") : LODE_STR(" "));
    const bool any = s->n_tokens > 0;
    lode_buf_clear(&s->held);
    lode_buf_add(&s->held, text.data, text.len);
    s->n_tokens++;
    return !s->held.failed && (!any || pass(run, i, &s->work, -1));
}

/* sentencepiece: bytes that make characters do so one by one; leading spaces that the encoder
 * added (or does not keep) go until there is text. */
static bool spm_bytes(struct lode_decode_run *run, uint32_t i, bool final) {
    struct lode_decode_state *s = &run->states[i];
    size_t done = 0;
    uint32_t cp;
    lode_buf_clear(&s->work);
    while (done < s->held.len) {
        const size_t left = s->held.len - done;
        const size_t len = lode_utf8_decode(s->held.data + done, left, &cp);
        if (len == 0 && !final && lode_utf8_complete(s->held.data + done, left) == 0)
            break;
        if (len)
            lode_buf_add(&s->work, s->held.data + done, len);
        else
            lode_buf_addz(&s->work, LODE_REPLACEMENT);
        done += len ? len : 1;
    }
    if (s->held.len) {
        memmove(s->held.data, s->held.data + done, s->held.len - done);
        s->held.len -= done;
    }
    s->started = s->started || s->work.len > 0;
    return !s->held.failed && pass_text(run, i, &s->work);
}

static bool spm(struct lode_decode_run *run, uint32_t i, struct lode_str text, int32_t id) {
    const struct lode_decode_step *step = &run->decode->steps[i];
    struct lode_decode_state *s = &run->states[i];
    const uint8_t kind = run->decode->vocab->kinds[id];
    if (kind == LODE_PIECE_BYTE) {
        const int byte = lode_piece_byte(text);
        if (byte >= 0) {
            lode_buf_addc(&s->held, (char)byte);
            return spm_bytes(run, i, false);
        }
    }
    if (!spm_bytes(run, i, true))
        return false;
    s->past_start = s->past_start || s->space_seen || s->started;
    s->space_seen = false;
    lode_buf_clear(&s->work);
    if (kind == LODE_PIECE_CONTROL) {
        if (!step->hide_control)
            lode_buf_add(&s->work, text.data, text.len);
    } else if (kind == LODE_PIECE_UNKNOWN) {
        const struct lode_str shown = step->hide_control ? step->to : text;
        lode_buf_add(&s->work, shown.data, shown.len);
    } else {
        if (!s->past_start && (step->drop_space || step->drop_spaces) &&
            lode_str_starts(text, LODE_STR(META))) {
            text.data += sizeof META - 1;
            text.len -= sizeof META - 1;
            s->space_seen = !step->drop_spaces;
        }
        lode_buf_add_replaced(&s->work, text, LODE_STR(META), LODE_STR(" "));
    }
    s->started = s->started || s->work.len > 0;
    return pass_text(run, i, &s->work);
}

static bool push(struct lode_decode_run *run, uint32_t i, struct lode_str text, int32_t id) {
    if (i == run->decode->n)
        return lode_buf_add(&run->out, text.data, text.len);
    const struct lode_decode_step *step = &run->decode->steps[i];
    struct lode_decode_state *s = &run->states[i];
    switch (step->op) {
    case LODE_DECODE_BYTES:
        add_bytes(&s->held, text);
        return lossy(run, i, false);
    case LODE_DECODE_BYTE_FALLBACK: {
        const int byte = lode_piece_byte(text);
        if (byte >= 0)
            return lode_buf_addc(&s->held, (char)byte);
        return flush_bytes(run, i) && push(run, i + 1, text, id);
    }
    case LODE_DECODE_REPLACE:
        if (s->fused)
            return replace_fused(run, i, text, false);
        lode_buf_clear(&s->work);
        lode_buf_add_replaced(&s->work, text, step->from, step->to);
        return pass(run, i, &s->work, id);
    case LODE_DECODE_FUSE:
        return push(run, i + 1, text, -1);
    case LODE_DECODE_STRIP:
        return s->fused ? strip_fused(run, i, text, false) : strip_token(run, i, text);
    case LODE_DECODE_METASPACE:
        return metaspace(run, i, text);
    case LODE_DECODE_WORDPIECE:
        return wordpiece(run, i, text);
    case LODE_DECODE_BPE:
        return bpe_suffix(run, i, text, false);
    case LODE_DECODE_JOIN:
        lode_buf_clear(&s->work);
        if (s->n_tokens++ > 0)
            lode_buf_addc(&s->work, ' ');
        lode_buf_add(&s->work, text.data, text.len);
        return pass(run, i, &s->work, -1);
    case LODE_DECODE_SPM:
        return spm(run, i, text, id);
    }
    return false;
}

bool lode_decode_push(struct lode_decode_run *run, int32_t id) {
    return push(run, 0, run->decode->vocab->pieces[id], id);
}

bool lode_decode_finish(struct lode_decode_run *run) {
    const struct lode_str nothing = LODE_STR("");
    bool ok = true;
    for (uint32_t i = 0; ok && i < run->decode->n; i++) {
        switch (run->decode->steps[i].op) {
        case LODE_DECODE_BYTES:
            ok = lossy(run, i, true);
            break;
        case LODE_DECODE_BYTE_FALLBACK:
            ok = flush_bytes(run, i);
            break;
        case LODE_DECODE_REPLACE:
            ok = !run->states[i].fused || replace_fused(run, i, nothing, true);
            break;
        case LODE_DECODE_STRIP:
            ok = !run->states[i].fused || strip_fused(run, i, nothing, true);
            break;
        case LODE_DECODE_BPE:
            ok = run->states[i].n_tokens == 0 || bpe_suffix(run, i, nothing, true);
            break;
        case LODE_DECODE_SPM:
            ok = spm_bytes(run, i, true);
            break;
        default:
            break;
        }
    }
    return ok && !run->out.failed;
}

bool lode_decode_in_character(const struct lode_decode_run *run) {
    for (uint32_t i = 0; i < run->decode->n; i++)
        if (run->decode->steps[i].op == LODE_DECODE_BYTES && run->states[i].held.len)
            return true;
    return false;
}
