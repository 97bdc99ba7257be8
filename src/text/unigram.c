#include "text/unigram.h"

#include "base/alloc.h"
#include "text/unicode.h"

#include <float.h>

#define UNK_PENALTY 10.0f /* below the lowest score of a piece, in both references */

struct lode_unigram_node { /* the best way to reach a position */
    double score;
    uint32_t from; /* where its last piece starts; NOWHERE: not reached */
    int32_t id;
};
#define NOWHERE UINT32_MAX

int lode_unigram_init(struct lode_unigram *u, const struct lode_vocab *vocab, int32_t unk,
                      bool byte_fallback, bool all, struct lode_error *err) {
    *u = (struct lode_unigram){.vocab = vocab, .unk = unk, .single = !all};
    u->byte_fallback = lode_vocab_bytes(vocab, u->byte_id) && byte_fallback;
    struct lode_trie_item *items = lode_alloc(vocab->n, sizeof *items);
    if (!items)
        return lode_fail_nomem(err, "the vocabulary");
    float low = FLT_MAX, high = -FLT_MAX;
    size_t n = 0;
    for (uint32_t id = 0; id < vocab->n; id++) {
        const uint8_t kind = vocab->kinds[id];
        if (all || kind == LODE_PIECE_NORMAL) {
            low = vocab->scores[id] < low ? vocab->scores[id] : low;
            high = vocab->scores[id] > high ? vocab->scores[id] : high;
        }
        if ((all || kind == LODE_PIECE_NORMAL || kind == LODE_PIECE_USER) && vocab->pieces[id].len)
            items[n++] = (struct lode_trie_item){vocab->pieces[id], (int32_t)id};
    }
    u->unk_score = low - UNK_PENALTY;
    u->max_score = high;
    const int rc = lode_trie_build(&u->trie, items, n);
    lode_free(items);
    if (rc == LODE_ERR_LIMIT)
        return lode_fail(err, rc, "vocabulary", "a piece has more than %d bytes",
                         LODE_TRIE_MAX_LEN);
    return rc < 0 ? lode_fail_nomem(err, "the vocabulary") : 0;
}

void lode_unigram_deinit(struct lode_unigram *u) {
    lode_trie_free(&u->trie);
}

void lode_unigram_run_deinit(struct lode_unigram_run *run) {
    lode_free(run->nodes);
    *run = (struct lode_unigram_run){0};
}

static void offer(const struct lode_unigram *u, struct lode_unigram_node *node, double score,
                  uint32_t from, int32_t id) {
    if (node->from != NOWHERE && score <= node->score)
        return;
    *node = (struct lode_unigram_node){u->single ? (double)(float)score : score, from, id};
}

static void fill(const struct lode_unigram *u, struct lode_unigram_node *nodes,
                 struct lode_str text) {
    for (uint32_t at = 0, len; at < text.len; at += len) {
        size_t char_len;
        lode_char_at(text.data + at, &char_len);
        len = (uint32_t)char_len;
        const double here = nodes[at].score;
        bool has_char = false;
        uint32_t node = 0;
        for (uint32_t end = at; end < text.len;) {
            node = lode_trie_step(&u->trie, node, (uint8_t)text.data[end++]);
            if (node == 0)
                break;
            const int32_t id = u->trie.nodes[node].value;
            if (id < 0)
                continue;
            /* a user-defined piece must win over anything made of normal ones */
            const double score = u->single && u->vocab->kinds[id] == LODE_PIECE_USER
                                     ? (double)((float)(end - at) * u->max_score) - 0.1
                                     : (double)u->vocab->scores[id];
            offer(u, &nodes[end], u->single ? (double)((float)score + (float)here) : score + here,
                  at, id);
            has_char = has_char || end - at == len;
        }
        if (!has_char) {
            const double score =
                u->single ? (double)(u->unk_score + (float)here) : (double)u->unk_score + here;
            offer(u, &nodes[at + len], score, at, u->unk);
        }
    }
}

int lode_unigram_encode(const struct lode_unigram *u, struct lode_unigram_run *run,
                        struct lode_str text, struct lode_ids *out, struct lode_error *err) {
    if (text.len + 1 > run->cap) {
        struct lode_unigram_node *nodes = lode_realloc(run->nodes, text.len + 1, sizeof *nodes);
        if (!nodes)
            return lode_fail_nomem(err, "the lattice of a long text");
        run->nodes = nodes;
        run->cap = text.len + 1;
    }
    struct lode_unigram_node *nodes = run->nodes;
    for (size_t i = 1; i <= text.len; i++)
        nodes[i].from = NOWHERE;
    nodes[0] = (struct lode_unigram_node){0};
    fill(u, nodes, text);

    /* The best path leads backwards; turn its links round. */
    uint32_t at = (uint32_t)text.len, next = NOWHERE;
    int32_t id = -1;
    while (at > 0) {
        const uint32_t from = nodes[at].from;
        const int32_t own = nodes[at].id;
        nodes[at].from = next;
        nodes[at].id = id;
        next = at;
        id = own;
        at = from;
    }
    nodes[0].from = next;
    nodes[0].id = id;
    /* Now node 0 names the first piece and where it ends, and so on. */
    bool unknown = false;
    for (at = 0; at < text.len; at = nodes[at].from) {
        id = nodes[at].id;
        if (id != u->unk) {
            lode_ids_add(out, id);
        } else if (u->byte_fallback) {
            for (uint32_t i = at; i < nodes[at].from; i++)
                lode_ids_add(out, u->byte_id[(uint8_t)text.data[i]]);
        } else if (!unknown && id >= 0) {
            lode_ids_add(out, id);
        }
        unknown = id == u->unk;
    }
    return 0;
}
