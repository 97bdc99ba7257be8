/* vocab_trie.c - see vocab_trie.h. */
#include "text/grammar/vocab_trie.h"

#include "base/utf8.h"
#include "text/grammar/masks.h"
#include "text/tok.h"

#include <stdatomic.h>
#include <stdlib.h>

struct entry {
    struct lode_str s;
    int32_t id;
};

static int by_bytes(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    const size_t n = x->s.len < y->s.len ? x->s.len : y->s.len;
    const int c = n ? memcmp(x->s.data, y->s.data, n) : 0;
    return c                      ? c
           : x->s.len != y->s.len ? (x->s.len > y->s.len) - (x->s.len < y->s.len)
                                  : (x->id > y->id) - (x->id < y->id);
}

/* Nodes for sorted entries; open[d] is the node at depth d on the way to the last entry. */
static int build_nodes(struct lode_grammar_vocab *v, const struct entry *e, uint32_t n,
                       struct lode_error *err) {
    GVEC(struct vocab_node) nodes = {0};
    uint32_t open[VOCAB_MAX_TOKEN], depth = 0;
    bool ok = true;
    for (uint32_t i = 0; i < n && ok; i++) {
        uint32_t same = 0;
        while (i && same < e[i].s.len && same < e[i - 1].s.len &&
               e[i].s.data[same] == e[i - 1].s.data[same])
            same++;
        while (depth > same)
            nodes.v[open[--depth]].end = (uint32_t)nodes.n;
        for (; depth < e[i].s.len && ok; depth++) {
            open[depth] = (uint32_t)nodes.n;
            ok = GVEC_PUSH(&nodes,
                           ((struct vocab_node){.parent = depth ? open[depth - 1] : UINT32_MAX,
                                                .tokens = i,
                                                .depth = (uint16_t)depth,
                                                .byte = (uint8_t)e[i].s.data[depth]}));
        }
        v->ids[i] = e[i].id;
    }
    while (depth > 0 && ok)
        nodes.v[open[--depth]].end = (uint32_t)nodes.n;
    v->n_nodes = (uint32_t)nodes.n;
    v->nodes = ok ? lode_arena_alloc(&v->arena, nodes.n + 1, sizeof *v->nodes) : NULL;
    if (v->nodes) {
        if (nodes.n)
            memcpy(v->nodes, nodes.v, nodes.n * sizeof *nodes.v);
        /* a node's tokens are those that end at it: between its own and the next node's first; what
         * was put there when it was made is the first entry below it, which is right for both */
        v->nodes[nodes.n] = (struct vocab_node){.tokens = n};
    }
    GVEC_FREE(&nodes);
    return v->nodes ? 0 : lode_fail_nomem(err, "a vocabulary's tree");
}

int lode_grammar_vocab_from_bytes(struct lode_grammar_vocab **out, const char *const *text,
                                  const size_t *len, uint32_t n, const int32_t *ends, size_t n_ends,
                                  struct lode_error *err) {
    static _Atomic uint64_t serials;
    struct lode_grammar_vocab *v = LODE_NEW(struct lode_grammar_vocab);
    struct entry *e = lode_alloc((size_t)n + 1, sizeof *e);
    uint32_t n_text = 0;
    int rc = 0;
    *out = NULL;
    if (v) {
        v->n = n;
        v->serial = ++serials;
        v->bytes = LODE_ARENA_ARRAY(&v->arena, struct lode_str, (size_t)n + 1);
        v->ids = lode_arena_alloc(&v->arena, (size_t)n + 1, sizeof *v->ids);
        v->ends = lode_arena_alloc(&v->arena, n_ends + 1, sizeof *v->ends);
        v->plain = mask_cache_create();
    }
    if (!v || !e || !v->bytes || !v->ids || !v->ends || !v->plain)
        rc = lode_fail_nomem(err, "a vocabulary");
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        if (!len[i] || len[i] > VOCAB_MAX_TOKEN)
            continue;
        char *copy = lode_arena_strndup(&v->arena, text[i], len[i]);
        if (!copy)
            rc = lode_fail_nomem(err, "a vocabulary");
        v->bytes[i] = (struct lode_str){copy, len[i]};
        v->longest = len[i] > v->longest ? (uint32_t)len[i] : v->longest;
        e[n_text++] = (struct entry){v->bytes[i], (int32_t)i};
    }
    if (rc == 0) {
        qsort(e, n_text, sizeof *e, by_bytes);
        for (size_t i = 0; i < n_ends; i++)
            if (ends[i] >= 0 && (uint32_t)ends[i] < n)
                v->ends[v->n_ends++] = ends[i];
        rc = build_nodes(v, e, n_text, err);
    }
    lode_free(e);
    if (rc < 0)
        lode_grammar_vocab_free(v);
    else
        *out = v;
    return rc;
}

void lode_grammar_vocab_free(struct lode_grammar_vocab *v) {
    if (!v)
        return;
    mask_cache_free(v->plain);
    lode_arena_free(&v->arena);
    lode_free(v);
}

uint32_t lode_grammar_vocab_size(const struct lode_grammar_vocab *v) { return v->n; }

/* ---- the bytes of a tokenizer's tokens ---- */

static void replace_all(struct lode_buf *b, struct lode_str from, struct lode_str to) {
    struct lode_buf made = {0};
    for (size_t i = 0; i < b->len;) {
        const struct lode_str rest = {b->data + i, b->len - i};
        if (from.len && lode_str_starts(rest, from)) {
            lode_buf_add(&made, to.data, to.len);
            i += from.len;
        } else {
            lode_buf_addc(&made, b->data[i++]);
        }
    }
    made.failed = made.failed || b->failed;
    lode_buf_free(b);
    *b = made;
}

static void from_alphabet(struct lode_buf *b) {
    struct lode_buf made = {0};
    for (size_t i = 0; i < b->len;) {
        uint32_t cp;
        const size_t n = lode_utf8_decode(b->data + i, b->len - i, &cp);
        const int byte = n ? lode_char_byte(cp) : -1;
        if (byte >= 0)
            lode_buf_addc(&made, (char)byte);
        else
            lode_buf_add(&made, b->data + i, n ? n : 1);
        i += n ? n : 1;
    }
    made.failed = made.failed || b->failed;
    lode_buf_free(b);
    *b = made;
}

/* What a token in the middle of a text stands for: the decoder's stages (text/decode.h), but for
 * what they do at the ends and for making broken UTF-8 readable. */
static void token_bytes(const struct lode_tokenizer *t, uint32_t id, struct lode_buf *b) {
    const struct lode_str piece = t->vocab.pieces[id];
    const int byte = lode_piece_byte(piece);
    lode_buf_clear(b);
    if (t->vocab.kinds[id] == LODE_PIECE_BYTE && byte >= 0) {
        lode_buf_addc(b, (char)byte);
        return;
    }
    lode_buf_add(b, piece.data, piece.len);
    for (uint32_t i = 0; i < t->decode.n; i++) {
        const struct lode_decode_step *s = &t->decode.steps[i];
        switch (s->op) {
        case LODE_DECODE_BYTES:
            from_alphabet(b);
            break;
        case LODE_DECODE_REPLACE:
            replace_all(b, s->from, s->to);
            break;
        case LODE_DECODE_METASPACE:
            replace_all(b, s->from, LODE_STR(" "));
            break;
        case LODE_DECODE_SPM:
            replace_all(b, LODE_STR(LODE_TOK_META), LODE_STR(" "));
            break;
        case LODE_DECODE_BPE:
            replace_all(b, s->from, LODE_STR(" "));
            break;
        case LODE_DECODE_BYTE_FALLBACK:
            if (byte >= 0) {
                lode_buf_clear(b);
                lode_buf_addc(b, (char)byte);
            }
            break;
        case LODE_DECODE_WORDPIECE:
        case LODE_DECODE_JOIN: {
            struct lode_buf made = {0};
            const struct lode_str whole = lode_buf_str(b);
            const bool goes_on = s->from.len && lode_str_starts(whole, s->from);
            if (!goes_on)
                lode_buf_addc(&made, ' ');
            lode_buf_add(&made, b->data + (goes_on ? s->from.len : 0),
                         b->len - (goes_on ? s->from.len : 0));
            made.failed = made.failed || b->failed;
            lode_buf_free(b);
            *b = made;
            break;
        }
        case LODE_DECODE_FUSE:
        case LODE_DECODE_STRIP:
            break;
        }
    }
}

int lode_grammar_vocab_create(struct lode_grammar_vocab **out, const struct lode_tokenizer *t,
                              struct lode_error *err) {
    const uint32_t n = t->vocab.n;
    struct lode_arena arena = {0};
    struct lode_buf b = {0};
    const char **text = lode_alloc_zero((size_t)n + 1, sizeof *text);
    size_t *len = lode_alloc_zero((size_t)n + 1, sizeof *len);
    int rc = text && len ? 0 : lode_fail_nomem(err, "a vocabulary");
    *out = NULL;
    for (uint32_t id = 0; id < n && rc == 0; id++) {
        const uint8_t kind = t->vocab.kinds[id];
        if (t->vocab.special[id] ||
            (kind != LODE_PIECE_NORMAL && kind != LODE_PIECE_USER && kind != LODE_PIECE_BYTE))
            continue;
        token_bytes(t, id, &b);
        text[id] = b.failed ? NULL : lode_arena_strndup(&arena, b.data ? b.data : "", b.len);
        len[id] = b.len;
        if (!text[id])
            rc = lode_fail_nomem(err, "a vocabulary");
    }
    if (rc == 0)
        rc = lode_grammar_vocab_from_bytes(out, text, len, n, t->ends, t->n_ends, err);
    lode_buf_free(&b);
    lode_arena_free(&arena);
    lode_free(text);
    lode_free(len);
    return rc;
}

const char *lode_grammar_vocab_bytes(const struct lode_grammar_vocab *v, int32_t id, size_t *len) {
    const bool known = id >= 0 && (uint32_t)id < v->n;
    *len = known ? v->bytes[id].len : 0;
    return *len ? v->bytes[id].data : "";
}
