#include "text/added.h"

#include "base/alloc.h"
#include "text/norm.h"
#include "text/unicode.h"

static int build(const struct lode_added *a, struct lode_trie *t, struct lode_trie_item *items,
                 bool normalized, bool special) {
    size_t n = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        const struct lode_added_token *token = &a->tokens[i];
        if (token->normalized == normalized && (special || !token->special) && token->normal.len)
            items[n++] = (struct lode_trie_item){token->normal, (int32_t)i};
    }
    return lode_trie_build(t, items, n);
}

static int normalize_tokens(struct lode_added *a, struct lode_arena *arena,
                            const struct lode_norm *norm, struct lode_error *err) {
    struct lode_buf buf[2] = {{0}, {0}};
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < a->n; i++) {
        struct lode_added_token *token = &a->tokens[i];
        token->normal = token->text;
        if (!token->normalized || norm->n == 0)
            continue;
        rc = lode_norm_apply(norm, token->text, buf, &token->normal, err);
        if (rc == 0) {
            token->normal.data = lode_arena_strndup(arena, token->normal.data, token->normal.len);
            rc = token->normal.data ? 0 : lode_fail_nomem(err, "added tokens");
        }
    }
    lode_buf_free(&buf[0]);
    lode_buf_free(&buf[1]);
    return rc;
}

int lode_added_init(struct lode_added *a, struct lode_arena *arena, const struct lode_norm *norm,
                    struct lode_error *err) {
    LODE_TRY(normalize_tokens(a, arena, norm, err));
    struct lode_trie_item *items = lode_alloc(a->n, sizeof *items);
    int rc = items ? 0 : LODE_ERR_NOMEM;
    if (rc == 0)
        rc = build(a, &a->raw, items, false, true);
    if (rc == 0)
        rc = build(a, &a->raw_plain, items, false, false);
    if (rc == 0)
        rc = build(a, &a->normalized, items, true, true);
    if (rc == 0)
        rc = build(a, &a->normalized_plain, items, true, false);
    lode_free(items);
    if (rc == LODE_ERR_LIMIT)
        return lode_fail(err, rc, "added tokens", "one of them has more than %d bytes",
                         LODE_TRIE_MAX_LEN);
    return rc < 0 ? lode_fail_nomem(err, "added tokens") : 0;
}

void lode_added_deinit(struct lode_added *a) {
    lode_trie_free(&a->raw);
    lode_trie_free(&a->raw_plain);
    lode_trie_free(&a->normalized);
    lode_trie_free(&a->normalized_plain);
}

/* The start of the last character before i. */
static size_t back(struct lode_str s, size_t i) {
    do
        i--;
    while (i > 0 && ((uint8_t)s.data[i] & 0xc0) == 0x80);
    return i;
}

static bool word_before(struct lode_str s, size_t i) {
    size_t len;
    return i > 0 && lode_char_is_word(lode_char_at(s.data + back(s, i), &len));
}

static bool word_at(struct lode_str s, size_t i) {
    size_t len;
    return i < s.len && lode_char_is_word(lode_char_at(s.data + i, &len));
}

int lode_added_split(const struct lode_added *a, bool normalized, bool special, struct lode_str s,
                     bool first, const struct lode_added_sink *sink) {
    const struct lode_trie *set = normalized ? special ? &a->normalized : &a->normalized_plain
                                  : special  ? &a->raw
                                             : &a->raw_plain;
    size_t done = 0, len, char_len;
    for (size_t i = 0; set->nodes && i < s.len;) {
        if (!set->root[(uint8_t)s.data[i]]) {
            i++;
            continue;
        }
        const int32_t found = lode_trie_longest(set, s.data + i, s.len - i, &len);
        if (found < 0) {
            i++;
            continue;
        }
        const struct lode_added_token *t = &a->tokens[found];
        size_t start = i, end = i + len;
        i = end; /* white space that a match takes may still be part of the next one */
        if (t->single_word && (word_before(s, start) || word_at(s, end)))
            continue;
        while (t->lstrip && start > done) {
            const size_t before = back(s, start);
            if (!lode_char_is_space(lode_char_at(s.data + before, &char_len)))
                break;
            start = before;
        }
        if (t->rstrip && end < done)
            end = done; /* the match before took all white space up to there */
        while (t->rstrip && end < s.len &&
               lode_char_is_space(lode_char_at(s.data + end, &char_len)))
            end += char_len;
        if (start > done)
            LODE_TRY(sink->gap(sink->ctx, (struct lode_str){s.data + done, start - done},
                               first && done == 0));
        LODE_TRY(sink->token(sink->ctx, t));
        done = end > done ? end : done;
    }
    if (done < s.len)
        LODE_TRY(sink->gap(sink->ctx, (struct lode_str){s.data + done, s.len - done},
                           first && done == 0));
    return 0;
}
