/* vocab_trie.h - the tokens of a vocabulary as bytes, in a tree that is walked in one pass.
 *
 * Nodes lie in preorder (a child behind its parent, in byte order), each with the end of its
 * subtree: what is impossible is skipped in one step.
 */
#ifndef LODE_GRAMMAR_VOCAB_TRIE_H
#define LODE_GRAMMAR_VOCAB_TRIE_H

#include "lode/grammar.h"

#include "text/grammar/build.h"

enum { VOCAB_MAX_TOKEN = 512 }; /* bytes; longer tokens are never allowed */

struct vocab_node {
    uint32_t end;    /* behind the subtree */
    uint32_t parent; /* of the first level: UINT32_MAX */
    uint32_t tokens; /* the first of its tokens in `ids`; they end where the next node's begin */
    uint16_t depth;  /* of the first level: 0 */
    uint8_t byte;
};

struct lode_grammar_vocab {
    struct lode_arena arena;
    struct lode_str *bytes; /* (n) */
    uint32_t n, longest;
    struct vocab_node *nodes; /* (n_nodes + 1) */
    uint32_t n_nodes;
    int32_t *ids; /* tokens in the order of their bytes */
    int32_t *ends;
    size_t n_ends;
    uint64_t serial; /* no two vocabularies have the same */
    struct mask_cache *plain; /* owned: masks that are alike in all grammars (masks.h) */
};

#endif
