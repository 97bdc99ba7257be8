#include "text/bpe.h"

#include "base/alloc.h"
#include "base/map.h"
#include "base/utf8.h"
#include "text/unicode.h"

struct lode_bpe_symbol {
    int32_t id;          /* negative: not in the vocabulary (NO_PIECE), or not to be joined */
    uint32_t start;      /* in the text; a symbol ends where the next one starts */
    uint32_t prev, next; /* neighbours; NONE at the ends */
    uint32_t rank;       /* of joining it to the next; NONE: cannot */
    int32_t joined;      /* what the two become */
};

__extension__ typedef unsigned __int128 uint128; /* no name of ISO C's */

#define NONE UINT32_MAX
enum { SHORT = 32 }; /* symbols up to which the plain loop is faster than a heap */
#define NO_PIECE (-1)
#define DEAD (-2) /* joined into the one before it */

/* -- GPT-2's alphabet ------------------------------------------------------------------ */

static bool stands_for_itself(uint32_t b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
}

uint32_t lode_byte_char(uint8_t byte) {
    if (stands_for_itself(byte))
        return byte;
    /* 0..32, 127..160 and 173 follow one another from U+0100 */
    return 0x100u + (byte <= 32 ? byte : byte <= 160 ? byte - 127 + 33 : 67);
}

int lode_char_byte(uint32_t cp) {
    if (cp < 0x100)
        return stands_for_itself(cp) ? (int)cp : -1;
    if (cp > 0x143)
        return -1;
    const int i = (int)cp - 0x100;
    return i <= 32 ? i : i <= 66 ? i - 33 + 127 : 173;
}

/* -- building -------------------------------------------------------------------------- */

/* sentencepiece's mark for a space, U+2581 */
static const struct lode_str mark = {"\xe2\x96\x81", 3};

/* The next mark behind a character that is none, from i > 0 on; len if there is no more. */
static size_t next_cut(struct lode_str text, size_t i) {
    while ((i = lode_str_find(text, i, mark)) < text.len) {
        if (i < mark.len || memcmp(text.data + i - mark.len, mark.data, mark.len) != 0)
            return i;
        i += mark.len;
    }
    return text.len;
}

/* Whether no piece goes on over a mark, as in most vocabularies: words are then independent of one
 * another, and a text need not be joined as a whole. */
static bool cuts_at_marks(const struct lode_vocab *v) {
    const int32_t id = lode_vocab_find(v, mark.data, mark.len);
    if (id < 0 || v->kinds[id] != LODE_PIECE_NORMAL)
        return false;
    for (uint32_t i = 0; i < v->n; i++)
        if (next_cut(v->pieces[i], 1) < v->pieces[i].len)
            return false;
    return true;
}

void lode_bpe_init(struct lode_bpe *b, enum lode_bpe_family family,
                   const struct lode_vocab *vocab) {
    *b = (struct lode_bpe){.family = family, .vocab = vocab, .unk = -1};
    if (family != LODE_BPE_BYTES) {
        lode_vocab_bytes(vocab, b->byte_id);
        b->cuts = cuts_at_marks(vocab);
        return;
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        char c[4];
        const size_t len = lode_utf8_encode(lode_byte_char((uint8_t)byte), c);
        b->byte_id[byte] = lode_vocab_find(vocab, c, len);
    }
}

void lode_bpe_deinit(struct lode_bpe *b) {
    lode_free(b->pairs);
    b->pairs = NULL;
    b->cap = 0;
}

int lode_bpe_reserve(struct lode_bpe *b, uint32_t n) {
    if (n > INT32_MAX / 4)
        return LODE_ERR_LIMIT;
    b->cap = 64;
    b->seed = lode_hash_seed();
    while (b->cap < n + n / 2)
        b->cap *= 2;
    lode_free(b->pairs);
    b->n_pairs = 0;
    b->pairs = lode_alloc_zero(b->cap, sizeof *b->pairs);
    return b->pairs ? 0 : LODE_ERR_NOMEM;
}

static struct lode_bpe_pair *find_pair(const struct lode_bpe *b, uint32_t left, uint32_t right) {
    /* the two halves of a 128-bit product, the mixing step of wyhash */
    const uint64_t key = ((uint64_t)left << 32 | right) ^ b->seed;
    const uint128 product = (uint128)key * (UINT64_C(0x9e3779b97f4a7c15) ^ b->seed << 1);
    uint32_t i = (uint32_t)((uint64_t)product ^ (uint64_t)(product >> 64)) & (b->cap - 1);
    while (b->pairs[i].left1 && (b->pairs[i].left1 != left + 1 || b->pairs[i].right != right))
        i = (i + 1) & (b->cap - 1);
    return &b->pairs[i];
}

int lode_bpe_add(struct lode_bpe *b, struct lode_str left, struct lode_str right, uint32_t rank) {
    const struct lode_vocab *v = b->vocab;
    const int32_t left_id = lode_vocab_find(v, left.data, left.len);
    const int32_t right_id = lode_vocab_find(v, right.data, right.len);
    if (left_id < 0 || right_id < 0)
        return LODE_ERR_MISSING;
    const size_t skip = lode_str_starts(right, b->prefix) ? b->prefix.len : 0;
    const size_t len = left.len + right.len - skip;
    char joined[2 * LODE_TRIE_MAX_LEN];
    if (len > v->max_len || len > sizeof joined)
        return LODE_ERR_MISSING;
    memcpy(joined, left.data, left.len);
    memcpy(joined + left.len, right.data + skip, right.len - skip);
    /* Vocabularies list what merges make in the order of the merges: look there first. */
    const struct lode_str *guess = &v->pieces[b->next_id < v->n ? b->next_id : 0];
    const int32_t id = guess->len == len && memcmp(guess->data, joined, len) == 0
                           ? (int32_t)(guess - v->pieces)
                           : lode_vocab_find(v, joined, len);
    if (id < 0)
        return LODE_ERR_MISSING;
    b->next_id = (uint32_t)id + 1;
    struct lode_bpe_pair *p = find_pair(b, (uint32_t)left_id, (uint32_t)right_id);
    if (!p->left1) {
        if (b->n_pairs + 1 >= b->cap)
            return LODE_ERR_LIMIT;
        b->n_pairs++;
    }
    *p = (struct lode_bpe_pair){(uint32_t)left_id + 1, (uint32_t)right_id, rank, id};
    return 0;
}

void lode_bpe_run_deinit(struct lode_bpe_run *run) {
    lode_free(run->symbols);
    lode_free(run->heap);
    *run = (struct lode_bpe_run){0};
}

/* -- encoding -------------------------------------------------------------------------- */

/* Scores in the order of ranks: the highest becomes the lowest. */
static uint32_t score_rank(float score) {
    uint32_t bits;
    score += 0.0f; /* -0 is 0 */
    memcpy(&bits, &score, sizeof bits);
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u; /* ascending as the floats do */
    return ~bits;
}

/* The rank of joining two neighbours, and what they become; NONE: they do not join. */
static inline uint32_t rank_of(const struct lode_bpe *b, const char *text,
                               const struct lode_bpe_symbol *left,
                               const struct lode_bpe_symbol *right, uint32_t end, int32_t *id) {
    if (b->family == LODE_BPE_SCORES) {
        if (left->id < NO_PIECE || right->id < NO_PIECE)
            return NONE;
        *id = lode_vocab_find(b->vocab, text + left->start, end - left->start);
        if (*id < 0)
            return NONE;
        const uint8_t kind = b->vocab->kinds[*id];
        if (kind != LODE_PIECE_NORMAL && kind != LODE_PIECE_USER)
            return NONE;
        return score_rank(b->vocab->scores[*id]);
    }
    if (left->id < 0 || right->id < 0 || !b->cap)
        return NONE;
    const struct lode_bpe_pair *p = find_pair(b, (uint32_t)left->id, (uint32_t)right->id);
    *id = p->id;
    return p->left1 ? p->rank : NONE;
}

/* A user-defined piece that joins with nothing (SCORES): its id, kept below NO_PIECE. */
static int32_t frozen(int32_t id) { return -3 - id; }

static int grow(struct lode_bpe_run *run, size_t n) {
    if (n <= run->cap)
        return 0;
    struct lode_bpe_symbol *s = lode_realloc(run->symbols, n, sizeof *s);
    if (!s)
        return LODE_ERR_NOMEM;
    run->symbols = s;
    run->cap = n;
    return 0;
}

/* The symbols a piece begins with; their number, at most text.len. */
static uint32_t begin(const struct lode_bpe *b, struct lode_str text,
                      struct lode_bpe_symbol *symbols) {
    uint32_t n = 0;
    bool unknown = false; /* an unknown token waits for what follows it */
    char spelt[64];
    if (b->family == LODE_BPE_BYTES) {
        for (size_t i = 0; i < text.len; i++) {
            int32_t id = b->byte_id[(uint8_t)text.data[i]];
            if (id < 0 && (id = b->unk) < 0)
                continue;
            symbols[n++] = (struct lode_bpe_symbol){.id = id, .start = (uint32_t)i};
        }
        return n;
    }
    for (size_t i = 0, len; i < text.len; i += len) {
        lode_char_at(text.data + i, &len);
        struct lode_bpe_symbol s = {.start = (uint32_t)i};
        if (b->family == LODE_BPE_SCORES) {
            const int32_t user =
                b->user ? lode_trie_longest(b->user, text.data + i, text.len - i, &len) : -1;
            s.id = user >= 0 ? frozen(user) : lode_vocab_find(b->vocab, text.data + i, len);
            symbols[n++] = s;
            continue;
        }
        /* with the marks of continuing and last symbols, where the model has them */
        const bool last = i + len == text.len;
        const struct lode_str prefix = i ? b->prefix : (struct lode_str){0};
        const struct lode_str suffix = last ? b->suffix : (struct lode_str){0};
        const char *key = text.data + i;
        size_t key_len = len;
        if (prefix.len + suffix.len) {
            memcpy(spelt, prefix.data ? prefix.data : "", prefix.len);
            memcpy(spelt + prefix.len, key, len);
            memcpy(spelt + prefix.len + len, suffix.data ? suffix.data : "", suffix.len);
            key = spelt;
            key_len += prefix.len + suffix.len;
        }
        s.id = lode_vocab_find(b->vocab, key, key_len);
        if (s.id >= 0) {
            if (unknown)
                symbols[n++] = (struct lode_bpe_symbol){.id = b->unk, .start = s.start};
            unknown = false;
            symbols[n++] = s;
            continue;
        }
        bool bytes = b->byte_fallback;
        for (size_t k = 0; bytes && k < key_len; k++)
            bytes = b->byte_id[(uint8_t)key[k]] >= 0;
        for (size_t k = 0; bytes && k < key_len && k < len; k++)
            symbols[n++] = (struct lode_bpe_symbol){.id = b->byte_id[(uint8_t)key[k]],
                                                    .start = s.start + (uint32_t)k};
        if (bytes || b->unk < 0)
            continue;
        if (unknown && !b->fuse_unk)
            symbols[n++] = (struct lode_bpe_symbol){.id = b->unk, .start = s.start};
        unknown = true;
    }
    if (unknown)
        symbols[n++] = (struct lode_bpe_symbol){.id = b->unk, .start = (uint32_t)text.len};
    return n;
}

static void link_all(const struct lode_bpe *b, const char *text, uint32_t len,
                     struct lode_bpe_symbol *s, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t end = i + 2 < n ? s[i + 2].start : len;
        s[i].prev = i ? i - 1 : NONE;
        s[i].next = i + 1 < n ? i + 1 : NONE;
        s[i].rank = i + 1 < n ? rank_of(b, text, &s[i], &s[i + 1], end, &s[i].joined) : NONE;
    }
}

static uint32_t end_of(const struct lode_bpe_symbol *s, uint32_t i, uint32_t len) {
    return s[i].next == NONE ? len : s[s[i].next].start;
}

static void update(const struct lode_bpe *b, const char *text, uint32_t len,
                   struct lode_bpe_symbol *s, uint32_t i) {
    const uint32_t next = s[i].next;
    s[i].rank =
        next == NONE ? NONE : rank_of(b, text, &s[i], &s[next], end_of(s, next, len), &s[i].joined);
}

/* Joins i with its next; ranks of i and of what is before it change. */
static void join(const struct lode_bpe *b, const char *text, uint32_t len,
                 struct lode_bpe_symbol *s, uint32_t i) {
    const uint32_t next = s[i].next;
    s[i].id = s[i].joined;
    s[i].next = s[next].next;
    if (s[next].next != NONE)
        s[s[next].next].prev = i;
    s[next].id = DEAD;
    s[next].rank = NONE;
    update(b, text, len, s, i);
    if (s[i].prev != NONE)
        update(b, text, len, s, s[i].prev);
}

static void join_short(const struct lode_bpe *b, const char *text, uint32_t len,
                       struct lode_bpe_symbol *s) {
    for (;;) {
        uint32_t best = 0;
        for (uint32_t i = s[0].next; i != NONE; i = s[i].next)
            if (s[i].rank < s[best].rank)
                best = i;
        if (s[best].rank == NONE)
            return;
        join(b, text, len, s, best);
    }
}

/* A binary heap of rank << 32 | symbol.  Entries are not withdrawn: one counts only while it still
 * is its symbol's rank.  At most one is added net for each join, so 2n are enough. */
static void sift_down(uint64_t *heap, size_t n, size_t i) {
    const uint64_t x = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= x)
            break;
        heap[i] = heap[child];
    }
    heap[i] = x;
}

static bool heap_add(struct lode_bpe_run *run, size_t *n, uint64_t x) {
    if (*n == run->heap_cap) {
        const size_t cap = run->heap_cap ? run->heap_cap + run->heap_cap / 2 : 1024;
        uint64_t *heap = lode_realloc(run->heap, cap, sizeof *heap);
        if (!heap)
            return false;
        run->heap = heap;
        run->heap_cap = cap;
    }
    size_t i = (*n)++;
    for (; i > 0 && run->heap[(i - 1) / 2] > x; i = (i - 1) / 2)
        run->heap[i] = run->heap[(i - 1) / 2];
    run->heap[i] = x;
    return true;
}

static int join_long(const struct lode_bpe *b, struct lode_bpe_run *run, const char *text,
                     uint32_t len, uint32_t n_symbols) {
    struct lode_bpe_symbol *s = run->symbols;
    size_t n = 0;
    for (uint32_t i = 0; i < n_symbols; i++)
        if (s[i].rank != NONE && !heap_add(run, &n, (uint64_t)s[i].rank << 32 | i))
            return LODE_ERR_NOMEM;
    while (n > 0) {
        const uint64_t top = run->heap[0];
        const uint32_t i = (uint32_t)top;
        run->heap[0] = run->heap[--n];
        if (n)
            sift_down(run->heap, n, 0);
        if (s[i].rank != (uint32_t)(top >> 32))
            continue;
        join(b, text, len, s, i);
        if (s[i].rank != NONE && !heap_add(run, &n, (uint64_t)s[i].rank << 32 | i))
            return LODE_ERR_NOMEM;
        const uint32_t prev = s[i].prev;
        if (prev != NONE && s[prev].rank != NONE &&
            !heap_add(run, &n, (uint64_t)s[prev].rank << 32 | prev))
            return LODE_ERR_NOMEM;
    }
    return 0;
}

/* The ids of the symbols that are left; sentencepiece's unknown characters become bytes or one
 * unknown token a row. */
static void emit(const struct lode_bpe *b, const char *text, uint32_t len,
                 const struct lode_bpe_symbol *s, struct lode_ids *out) {
    bool unknown = false;
    for (uint32_t i = 0; i != NONE; i = s[i].next) {
        const int32_t id = s[i].id <= frozen(0) ? frozen(s[i].id) : s[i].id;
        const bool usable =
            id >= 0 && (b->family != LODE_BPE_SCORES || b->vocab->kinds[id] == LODE_PIECE_NORMAL ||
                        b->vocab->kinds[id] == LODE_PIECE_USER);
        if (usable) {
            lode_ids_add(out, id);
        } else if (b->byte_fallback) {
            for (uint32_t k = s[i].start; k < end_of(s, i, len); k++)
                lode_ids_add(out, b->byte_id[(uint8_t)text[k]]);
        } else if (b->unk >= 0 && !(unknown && b->fuse_unk)) {
            lode_ids_add(out, b->unk);
        }
        unknown = !usable;
    }
}

static bool whole(const struct lode_bpe *b, struct lode_str piece, struct lode_ids *out) {
    char spelt[2 * LODE_TRIE_MAX_LEN];
    size_t len = 0;
    if (piece.len > b->vocab->max_len || piece.len > sizeof spelt / 2)
        return false;
    for (size_t i = 0; i < piece.len; i++) {
        if (b->family == LODE_BPE_BYTES)
            len += lode_utf8_encode(lode_byte_char((uint8_t)piece.data[i]), spelt + len);
        else
            spelt[len++] = piece.data[i];
    }
    const int32_t id = lode_vocab_find(b->vocab, spelt, len);
    if (id < 0)
        return false;
    lode_ids_add(out, id);
    return true;
}

static int encode_word(const struct lode_bpe *b, struct lode_bpe_run *run, struct lode_str word,
                       struct lode_ids *out, struct lode_error *err) {
    if (grow(run, word.len + 1) < 0)
        return lode_fail_nomem(err, "the symbols of a long word");
    const uint32_t len = (uint32_t)word.len, n = begin(b, word, run->symbols);
    if (n == 0)
        return 0;
    link_all(b, word.data, len, run->symbols, n);
    if (n <= SHORT)
        join_short(b, word.data, len, run->symbols);
    else if (join_long(b, run, word.data, len, n) < 0)
        return lode_fail_nomem(err, "joining the symbols of a long word");
    emit(b, word.data, len, run->symbols, out);
    return 0;
}

int lode_bpe_encode(const struct lode_bpe *b, struct lode_bpe_run *run, struct lode_str piece,
                    struct lode_ids *out, struct lode_error *err) {
    if (piece.len == 0 || (b->ignore_merges && whole(b, piece, out)))
        return 0;
    const bool cuts = b->cuts && b->prefix.len + b->suffix.len == 0;
    for (size_t low = 0, high; low < piece.len; low = high) {
        high = cuts ? next_cut(piece, low + 1) : piece.len;
        LODE_TRY(encode_word(b, run, (struct lode_str){piece.data + low, high - low}, out, err));
    }
    return 0;
}
