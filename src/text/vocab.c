#include "text/vocab.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/map.h"

#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct lode_vocab_slot {
    uint32_t id1;  /* id + 1; 0: empty */
    uint32_t hash; /* tells most misses without touching the text */
};

int lode_vocab_init(struct lode_vocab *v, struct lode_arena *arena, uint32_t n, bool scores) {
    *v = (struct lode_vocab){.n = n, .cap = 64, .seed = lode_hash_seed()};
    if (n > INT32_MAX / 4)
        return LODE_ERR_LIMIT;
    while (v->cap < n + n / 2)
        v->cap *= 2;
    v->pieces = lode_arena_alloc_zero(arena, n, sizeof *v->pieces);
    v->kinds = lode_arena_alloc_zero(arena, n, sizeof *v->kinds);
    v->special = lode_arena_alloc_zero(arena, n, sizeof *v->special);
    v->scores = scores ? lode_arena_alloc_zero(arena, n, sizeof *v->scores) : NULL;
    v->slots = lode_alloc_zero(v->cap, sizeof *v->slots);
    if (!v->pieces || !v->kinds || !v->special || (scores && !v->scores) || !v->slots)
        return LODE_ERR_NOMEM;
    return 0;
}

void lode_vocab_deinit(struct lode_vocab *v) {
    lode_free(v->slots);
    *v = (struct lode_vocab){0};
}

static uint32_t hash_of(const struct lode_vocab *v, const char *text, size_t len) {
    return (uint32_t)XXH3_64bits_withSeed(text, len, v->seed);
}

static struct lode_vocab_slot *find_slot(const struct lode_vocab *v, const char *text, size_t len,
                                         uint32_t hash) {
    for (uint32_t i = hash & (v->cap - 1);; i = (i + 1) & (v->cap - 1)) {
        struct lode_vocab_slot *s = &v->slots[i];
        if (s->id1 == 0)
            return s;
        if (s->hash == hash) {
            const struct lode_str p = v->pieces[s->id1 - 1];
            if (p.len == len && (len == 0 || memcmp(p.data, text, len) == 0))
                return s;
        }
    }
}

void lode_vocab_index(struct lode_vocab *v, uint32_t id) {
    const struct lode_str p = v->pieces[id];
    const uint32_t hash = hash_of(v, p.data, p.len);
    struct lode_vocab_slot *s = find_slot(v, p.data, p.len, hash);
    if (s->id1 == 0)
        *s = (struct lode_vocab_slot){id + 1, hash};
    if (p.len > v->max_len)
        v->max_len = (uint32_t)p.len;
}

int32_t lode_vocab_find(const struct lode_vocab *v, const char *text, size_t len) {
    if (len > v->max_len || v->cap == 0)
        return -1;
    return (int32_t)find_slot(v, text, len, hash_of(v, text, len))->id1 - 1;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

int lode_piece_byte(struct lode_str p) {
    if (p.len != 6 || memcmp(p.data, "<0x", 3) != 0 || p.data[5] != '>')
        return -1;
    const int high = hex_digit(p.data[3]), low = hex_digit(p.data[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

bool lode_vocab_bytes(const struct lode_vocab *v, int32_t ids[256]) {
    bool all = true;
    for (int b = 0; b < 256; b++) {
        char spelt[8];
        snprintf(spelt, sizeof spelt, "<0x%02X>", (unsigned)b & 0xff);
        ids[b] = lode_vocab_find(v, spelt, 6);
        all = all && ids[b] >= 0;
    }
    return all;
}
