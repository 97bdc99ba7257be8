#include "text/trie.h"

#include "base/alloc.h"
#include "base/error.h"

#include <stdlib.h>

static int by_key(const void *pa, const void *pb) {
    const struct lode_trie_item *a = pa, *b = pb;
    const size_t n = a->key.len < b->key.len ? a->key.len : b->key.len;
    const int c = memcmp(a->key.data, b->key.data, n);
    if (c)
        return c;
    if (a->key.len != b->key.len)
        return a->key.len < b->key.len ? -1 : 1;
    return a->value < b->value ? -1 : a->value > b->value;
}

static size_t common_prefix(struct lode_str a, struct lode_str b) {
    size_t i = 0;
    while (i < a.len && i < b.len && a.data[i] == b.data[i])
        i++;
    return i;
}

/* The items that pass through a node share its path: a range of the sorted list. */
struct range {
    uint32_t low, high, depth;
};

int lode_trie_build(struct lode_trie *t, struct lode_trie_item *items, size_t n) {
    *t = (struct lode_trie){0};
    if (n == 0)
        return 0;
    for (size_t i = 0; i < n; i++)
        if (items[i].key.len == 0 || items[i].key.len > LODE_TRIE_MAX_LEN)
            return LODE_ERR_LIMIT;
    qsort(items, n, sizeof *items, by_key);
    size_t n_nodes = 1;
    for (size_t i = 0; i < n; i++)
        n_nodes += items[i].key.len - (i ? common_prefix(items[i - 1].key, items[i].key) : 0);
    if (n_nodes > INT32_MAX)
        return LODE_ERR_LIMIT;

    t->nodes = lode_alloc_zero(n_nodes, sizeof *t->nodes);
    struct range *ranges = lode_alloc(n_nodes, sizeof *ranges);
    if (!t->nodes || !ranges) {
        lode_free(ranges);
        lode_trie_free(t);
        return LODE_ERR_NOMEM;
    }
    /* Breadth first, so that siblings are neighbours. */
    ranges[0] = (struct range){0, (uint32_t)n, 0};
    t->n_nodes = 1;
    for (uint32_t node = 0; node < t->n_nodes; node++) {
        uint32_t i = ranges[node].low;
        const uint32_t high = ranges[node].high, depth = ranges[node].depth;
        t->nodes[node].value = -1;
        if (items[i].key.len == depth)
            t->nodes[node].value = items[i].value;
        while (i < high && items[i].key.len == depth)
            i++;
        t->nodes[node].first = t->n_nodes;
        while (i < high) {
            const uint8_t byte = (uint8_t)items[i].key.data[depth];
            const uint32_t low = i;
            while (i < high && (uint8_t)items[i].key.data[depth] == byte)
                i++;
            ranges[t->n_nodes] = (struct range){low, i, depth + 1};
            t->nodes[t->n_nodes++].byte = byte;
            t->nodes[node].n_children++;
        }
    }
    lode_free(ranges);
    for (uint32_t c = 0; c < t->nodes[0].n_children; c++)
        t->root[t->nodes[t->nodes[0].first + c].byte] = t->nodes[0].first + c;
    return 0;
}

void lode_trie_free(struct lode_trie *t) {
    lode_free(t->nodes);
    *t = (struct lode_trie){0};
}

int32_t lode_trie_longest(const struct lode_trie *t, const char *s, size_t n, size_t *len) {
    int32_t value = -1;
    uint32_t node = 0;
    for (size_t i = 0; i < n && (node = lode_trie_step(t, node, (uint8_t)s[i])) != 0; i++) {
        if (t->nodes[node].value >= 0) {
            value = t->nodes[node].value;
            *len = i + 1;
        }
    }
    return value;
}
