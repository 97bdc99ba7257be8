/* trie.h - a fixed set of byte strings, walked one byte at a time.
 *
 * Built once from all its strings, then read by any number of threads.  The children of a node lie
 * next to one another in byte order, so that a step is a short search and a node is 12 bytes.
 *
 *     for (uint32_t node = 0; i < n && (node = lode_trie_step(t, node, s[i])) != 0; i++)
 *         if (t->nodes[node].value >= 0) ... s[..i] is in the set ...
 */
#ifndef LODE_TEXT_TRIE_H
#define LODE_TEXT_TRIE_H

#include "base/buf.h"

/* Longest string of a set: what a walk may cost at each position of a text. */
#define LODE_TRIE_MAX_LEN 1024

struct lode_trie_node {
    uint32_t first;      /* index of the first child */
    int32_t value;       /* of the string that ends here; negative: none */
    uint16_t n_children; /* 0..256 */
    uint8_t byte;        /* on the edge from the parent */
};

struct lode_trie {
    struct lode_trie_node *nodes; /* owned; (n_nodes), the root first; NULL: the empty set */
    uint32_t n_nodes;
    uint32_t root[256]; /* child of the root by byte, 0: none */
};

struct lode_trie_item {
    struct lode_str key; /* borrowed until build returns; 1..LODE_TRIE_MAX_LEN bytes */
    int32_t value;       /* not negative; the first of equal keys wins */
};

/* Sorts items.  0 or LODE_ERR_NOMEM; LODE_ERR_LIMIT where a key is too long. */
int lode_trie_build(struct lode_trie *t, struct lode_trie_item *items, size_t n);
void lode_trie_free(struct lode_trie *t);

/* The child of node by byte, 0 if none. */
static inline uint32_t lode_trie_step(const struct lode_trie *t, uint32_t node, uint8_t byte) {
    if (node == 0)
        return t->root[byte];
    const struct lode_trie_node *parent = &t->nodes[node];
    uint32_t low = parent->first, n = parent->n_children;
    while (n > 0) {
        const uint32_t half = n / 2;
        const uint8_t b = t->nodes[low + half].byte;
        if (b == byte)
            return low + half;
        if (b < byte) {
            low += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return 0;
}

/* The longest string of the set that s starts with: its value and *len; negative: none. */
int32_t lode_trie_longest(const struct lode_trie *t, const char *s, size_t n, size_t *len);

#endif
